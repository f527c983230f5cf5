"""The floored Dirichlet mechanism: its distribution, what is inferred from it, and what it refuses."""

import itertools
import math
import sys

import mpmath
import numpy as np
import pymc as pm
import pytest
from scipy.integrate import quad
from scipy.special import gammaincc, logsumexp
from scipy.stats import ks_2samp, kstest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms.floored import FlooredDirichletMechanism
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio
from pymc_dirdp.privacy.people import Contribution

COUNTS = np.array([3, 0, 9])


def floored(alpha=(0.5, 0.5, 2.0), r=0.7, floor=3.0, **options):
    return FlooredDirichletMechanism(alpha, r, floor, **options)


@pytest.mark.parametrize("sampler", ["exact", "fast"])
def test_intensities_have_the_distribution_of_gammas_above_the_floor(sampler):
    mechanism = floored()
    drawn = mechanism.release(COUNTS, draws=3000, sampler=sampler, random_seed=1)
    assert drawn.shape == (3000, 3)
    for a, g in zip(mechanism.alpha + 0.7 * COUNTS, drawn.T, strict=True):
        assert kstest(g, lambda x, a=a: 1 - gammaincc(a, x) / gammaincc(a, 3.0)).pvalue > 1e-4
        assert kstest(g, lambda x, a=a: 1 - gammaincc(a + 1, x) / gammaincc(a + 1, 3.0)).pvalue < 1e-3


def test_made_up_data_sets_have_draws_of_that_distribution():
    """And not those of an intensity that is raised to the floor after it was drawn."""
    mechanism = floored()
    drawn = mechanism.simulated(np.broadcast_to(COUNTS, (3000, 3)), np.random.default_rng(2))
    for a, g in zip(mechanism.alpha + 0.7 * COUNTS, drawn.T, strict=True):
        assert kstest(g, lambda x, a=a: 1 - gammaincc(a, x) / gammaincc(a, 3.0)).pvalue > 1e-4
    raised = np.maximum(np.random.default_rng(2).gamma(mechanism.alpha[0] + 2.1, size=3000), 3.0)
    assert kstest(raised, lambda x: 1 - gammaincc(2.6, x) / gammaincc(2.6, 3.0)).pvalue < 1e-6


def test_a_draw_is_the_intensities_over_their_sum():
    mechanism = floored()
    together = mechanism.release(COUNTS, draws=4, random_seed=2)
    np.testing.assert_array_equal(mechanism.sample(COUNTS, draws=4, random_seed=2), mechanism.shares_of(together))
    released = mechanism.draw(COUNTS, 4, sampler="exact", random_seed=2)
    np.testing.assert_array_equal(released.shares(mechanism), mechanism.shares_of(together))
    np.testing.assert_array_equal(released.published["intensities"], together)


def test_a_shift_takes_a_part_of_the_floor_off_every_intensity():
    mechanism = floored(shift=0.75)
    g = mechanism.release(COUNTS, draws=4, random_seed=2)
    np.testing.assert_array_equal(g, floored().release(COUNTS, draws=4, random_seed=2))
    shares = mechanism.sample(COUNTS, draws=4, random_seed=2)
    np.testing.assert_allclose(shares, (g - 2.25) / (g - 2.25).sum(axis=1, keepdims=True), rtol=1e-14)
    assert (shares > 0).all()
    # It costs nothing, and what is inferred does not depend on it.
    assert mechanism.delta(1.0) == floored().delta(1.0)
    np.testing.assert_array_equal(
        mechanism.cell_log_likelihood(g[0], COUNTS), floored().cell_log_likelihood(g[0], COUNTS)
    )
    # An intensity next to the floor leaves a positive share, whatever the shift.
    assert floored(shift=1 - 1e-12).shares_of(np.array([np.nextafter(3.0, 4), 5, 5]))[0] > 0


@pytest.mark.thorough
def test_sampling_the_stated_truncated_model_gives_the_distribution_that_is_drawn_from():
    """NUTS knows the model as it is written down and nothing of the sampler."""
    mechanism = floored()
    with pm.Model():
        shape = mechanism.alpha + mechanism.r * COUNTS
        pm.Truncated("g", pm.Gamma.dist(alpha=shape, beta=1.0, shape=3), lower=mechanism.floor)
        found = pm.sample(draws=4000, tune=1000, chains=1, cores=1, random_seed=3, progressbar=False)
    sampled = found["posterior"]["g"].values[0, ::4]
    drawn = mechanism.release(COUNTS, draws=1000, random_seed=4)
    other = floored(r=0.9).release(COUNTS, draws=1000, random_seed=4)
    for cell in range(3):
        assert ks_2samp(sampled[:, cell], drawn[:, cell]).pvalue > 1e-3
    assert ks_2samp(sampled[:, 2], other[:, 2]).pvalue < 1e-3
    own, sampled_shares = mechanism.shares_of(drawn), mechanism.shares_of(sampled)
    assert ks_2samp(own[:, 0], sampled_shares[:, 0]).pvalue > 1e-3


@pytest.mark.parametrize("options", [{}, {"ceiling": 9.0}], ids=["floor", "ceiling"])
def test_the_likelihood_is_a_density(options):
    mechanism = floored(**options)
    for cell, count in ((0, 0), (1, 3), (2, 20)):

        def density(g, cell=cell, count=count):
            output, counts = np.full(3, g), np.full(3, count)
            return float(np.exp(mechanism.cell_log_likelihood(output, counts)[cell]))

        total = quad(density, 3.0, options.get("ceiling", 120.0), limit=200, epsabs=1e-12)[0]
        assert total == pytest.approx(1.0, abs=1e-9)


def test_a_public_number_of_records_is_checked():
    mechanism = floored([0.02, 0.02], n_records=12)
    assert mechanism.n_records == floored([0.02, 0.02], n_records=[12]).n_records == 12
    assert mechanism.epsilon(1e-6) < floored([0.02, 0.02]).epsilon(1e-6)
    assert mechanism.release([3, 9]).shape == (1, 2)
    with pytest.raises(DataError, match="add up to n_records") as error:
        mechanism.release([3, 8])
    assert "11" not in str(error.value)
    x, y = mechanism.worst_pair()
    assert x.sum() == y.sum() == 12
    assert np.abs(x - y).sum() == 2
    for options in ({"alpha": [1, 1, 1]}, {"adjacency": "add-remove"}, {"contribution": 2}):
        with pytest.raises(ArgumentError, match="rows of two categories"):
            floored(**{"alpha": [1.0, 1.0], "n_records": 12} | options)
    assert floored([1.0, 1.0], n_records=0).epsilon(1e-6) == 0


def test_public_numbers_of_rows_are_checked():
    mechanism = floored(np.full((3, 2), 0.02), n_records=[12, 40, 0])
    assert mechanism.n_records == (12, 40, 0)
    assert mechanism.assumed_records == 52
    assert mechanism.epsilon(1e-6) < floored(np.full((3, 2), 0.02)).epsilon(1e-6)
    assert mechanism.release([[3, 9], [40, 0], [0, 0]]).shape == (1, 3, 2)
    # The total is the same, and a row has another number.
    for counts in ([[3, 8], [40, 1], [0, 0]], [[3, 9], [40, 0], [1, 0]]):
        with pytest.raises(DataError, match="add up") as error:
            mechanism.release(counts)
        assert not set("1489") & set(str(error.value))
    x, y = mechanism.worst_pair()
    for table in (x, y):
        assert table.sum(axis=-1).tolist() == [12, 40, 0]
        mechanism.check(table)
    assert np.abs(x - y).sum() == 2
    with pytest.raises(ArgumentError, match="leave n_records out"):
        floored(np.full((3, 2), 0.02), n_records=52)
    with pytest.raises(ArgumentError, match="integer"):
        floored(np.full((2, 2), 0.02), n_records=[1.5, 2])


@pytest.mark.parametrize("d", [2, 3, 5])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_the_worst_neighbours_of_any_number_of_categories(d, adjacency):
    x, y = floored(np.full((2, d), 0.02), adjacency=adjacency).worst_pair()
    assert np.abs(x - y).sum() == (2 if adjacency == "replace-one" else 1)
    assert min(x.max(), y.max()) > 0


def test_rows_without_records_have_no_neighbours():
    for alpha, n_records in (([0.02, 0.02], 0), (np.full((2, 2), 0.02), [0, 0])):
        mechanism = floored(alpha, n_records=n_records)
        x, y = mechanism.worst_pair()
        mechanism.check(x)
        assert np.array_equal(x, y)
        assert mechanism.epsilon(1e-6) == 0


def test_the_neighbours_of_rows_with_a_single_record_are_data():
    for alpha, n_records in (([0.02, 0.02], 1), (np.full((2, 2), 0.02), [1, 1]), (np.full((2, 2), 0.02), [1, 0])):
        mechanism = floored(alpha, n_records=n_records)
        for table in mechanism.worst_pair():
            mechanism.check(table)


def test_a_person_with_a_record_in_each_row_of_public_size():
    mechanism = floored(np.full((2, 2), 0.02), n_records=[30, 30], contribution=Contribution(1, ("each",)))
    x, y = mechanism.worst_pair()
    assert x.sum(axis=-1).tolist() == y.sum(axis=-1).tolist() == [30, 30]
    assert np.abs(x - y).sum() == 4
    mechanism.check(x)
    mechanism.check(y)


@pytest.mark.parametrize("floor", [1e-3, 3.0, 800.0, 1e4])
def test_the_normaliser_is_that_of_forty_digits(floor):
    """Far below the floor SciPy's incomplete Gamma function is 0, and another way is taken."""
    mechanism = floored(alpha=[0.02, 0.02], r=1.0, floor=floor)
    with mpmath.workdps(40):
        for count in (0, 1, 100, 2000, 10**6):
            mass = float(mpmath.log(mpmath.gammainc(mpmath.mpf(0.02) + count, mpmath.mpf(floor))))
            g = floor * 1.5
            expected = (0.02 + count - 1) * math.log(g) - g - mass
            found = mechanism.cell_log_likelihood(np.full(2, g), np.full(2, count))[0]
            assert found == pytest.approx(expected, rel=1e-12, abs=1e-11 * max(abs(mass), 1))


@pytest.mark.parametrize("n_records", [7, None])
def test_the_posterior_given_the_intensities_is_that_of_brute_force(n_records):
    prior, adjacency = np.array([0.6, 1.0, 2.0]), "replace-one" if n_records else "add-remove"
    mechanism = floored(adjacency=adjacency)
    output = mechanism.release([1, 4, 2], random_seed=3)[0]
    most = n_records or 40
    tables = np.array([x for x in itertools.product(range(most + 1), repeat=3) if n_records in (None, sum(x))])
    tables = tables[tables.sum(axis=1) <= most]
    logs = _log_gamma_ratio(tables.astype(float), prior).sum(axis=1) + mechanism.log_likelihood(output, tables)
    if n_records is None:
        # Each total from 0 to 40 is as likely as another, and given it each table as the prior of the shares says.
        sizes = tables.sum(axis=1).astype(float)
        logs -= _log_gamma_ratio(sizes, np.full(sizes.shape, prior.sum()))
    mass = np.exp(logs - logsumexp(logs))
    seen = dirdp.mechanisms.MechanismOutput(mechanism, output, prior=prior, n_records=n_records)
    numbers = {} if n_records else {"n_prior": {"p": 40}}
    found = dirdp.estimate(seen, **numbers).frame()
    np.testing.assert_allclose(found["count"], mass @ tables, rtol=1e-7)


def test_intensities_tell_more_than_their_shares():
    """Under add-remove the sum of the intensities says how many records there are."""
    mechanism = floored(alpha=[0.02] * 4, r=0.9, floor=4.0, adjacency="add-remove")
    output = mechanism.release([50, 100, 20, 30], random_seed=4)[0]
    seen = dirdp.mechanisms.MechanismOutput(mechanism, output, prior=np.ones(4))
    counts = dirdp.estimate(seen, n_prior={"p": 2000}).frame()["count"].sum()
    assert 150 < counts < 250


def test_what_no_sampler_returns_is_refused():
    mechanism = floored(ceiling=20.0)
    output = mechanism.release(COUNTS, random_seed=5)[0]
    assert mechanism.is_on_grid(output, None)
    for wrong in (output / 10, output * 10, np.append(output[:2], 2.99)):
        assert not mechanism.is_on_grid(wrong, None)
        with pytest.raises(ArgumentError, match="between the floor and the ceiling"):
            mechanism.row_likelihoods(wrong)
    assert not mechanism.is_on_grid(output * (1 + 1e-12), None)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"floor": 0.0}, "floor"),
        ({"floor": 1e-4}, "floor"),
        ({"r": -1.0}, "r"),
        ({"alpha": [0.0, 1.0]}, "alpha"),
        ({"alpha": [1e-9, 1.0]}, "alpha"),
        ({"ceiling": 3.0}, "ceiling"),
        ({"ceiling": math.nan}, "ceiling"),
        ({"shift": 1.0}, "shift"),
        ({"shift": -0.1}, "shift"),
        ({"shift": math.nan}, "shift"),
        ({"adjacency": "swap"}, "adjacency"),
    ],
    ids=str,
)
def test_numbers_outside_their_domain_are_refused(facts, message):
    with pytest.raises(ArgumentError, match=message):
        floored(**facts)


def test_the_exact_sampler_asks_for_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "flint", None)
    with pytest.raises(ImportError, match="pip install python-flint"):
        floored().release(COUNTS)
    assert floored().release(COUNTS, sampler="fast").shape == (1, 3)


def test_errors_do_not_show_counts():
    with pytest.raises(dirdp.errors.DataError) as caught:
        floored().release([12345, -1, 2])
    assert "12345" not in str(caught.value)


def test_calibration_for_itself_names_the_function_that_does_it():
    with pytest.raises(ArgumentError, match="calibrate_floored"):
        FlooredDirichletMechanism.for_guarantee(dirdp.ZeroCDP(rho=0.1), prior=[1, 1])


@pytest.mark.thorough
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_an_audit_finds_half_of_what_is_lost_and_no_more(adjacency):
    mechanism = floored(alpha=[0.02] * 3, r=1.5, floor=2.0, adjacency=adjacency)
    lost = mechanism.epsilon(1e-2)
    for sampler, n in (("fast", 100_000), ("exact", 20_000)):
        found = dirdp.audit(mechanism, delta=1e-2, sampler=sampler, n=n, random_seed=1)
        assert lost / 2 < found.bounds[0].lower < lost


@pytest.mark.thorough
def test_last_bits_tell_nothing():
    mechanism = floored(alpha=[0.02] * 3, r=1.5, floor=2.0)
    found = dirdp.audit(mechanism, delta=1e-2, sampler="exact", last_bits=True, n=20_000, random_seed=1)
    assert found.bounds[0].lower < mechanism.epsilon(1e-2)


def test_blocks_of_a_survey_lose_more_than_one():
    one = floored(alpha=np.full((3, 2), 0.5))
    survey = floored(alpha=np.full((3, 2), 0.5), contribution=Contribution(1, ("each",)))
    assert survey.rho(math.inf) == pytest.approx(3 * one.rho(math.inf), rel=1e-9)
    assert survey.epsilon(1e-6) > one.epsilon(1e-6)


def test_pure_privacy_takes_a_ceiling():
    assert floored().pure_epsilon == math.inf
    assert 0 < floored(ceiling=30.0).pure_epsilon < math.inf
    chosen = dirdp.planning.calibrate_floored(dirdp.PureDP(epsilon=1.0), prior=[1, 1], n_records=100)
    assert 0.999 < chosen.pure_epsilon <= 1


def test_no_counts_and_no_intensities_exceed_the_pure_loss():
    """All moves of a record in tables of up to 60 records, at all corners of what may be released."""
    chosen = dirdp.planning.calibrate_floored(dirdp.PureDP(epsilon=1.0), prior=np.ones(3), n_records=60)
    ends = np.array([chosen.floor, chosen.ceiling * (1 - 1e-15)])
    counts = np.arange(61.0)
    gain, lose = (
        chosen._distribution.log_density(g, counts + 1, np.full(61, chosen.alpha[0]))
        - chosen._distribution.log_density(g, counts, np.full(61, chosen.alpha[0]))
        for g in ends[::-1]
    )
    worst = float(np.max(gain[:, None] - lose[None, :]))
    # With ever more records in the other cell it is attained.
    assert 0.8 < worst <= chosen.pure_epsilon <= 1
