"""The expected error of estimates: against exact sums, for known and private totals, and at the ends of its domain."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import digamma

from pymc_dirdp.inference.observed_table import Beliefs, MechanismOutput
from pymc_dirdp.inference.tables import posterior_of
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.mechanisms.marginals import MarginalsMechanism
from pymc_dirdp.papers.hellinger import HellingerMechanism
from pymc_dirdp.planning import estimate_error as module
from pymc_dirdp.planning.estimate_error import estimate_error, estimated_shares
from pymc_dirdp.planning.prices import calibrate
from pymc_dirdp.privacy.guarantees import ApproxDP
from pymc_dirdp.privacy.people import Contribution


def errors(parameters, estimate):
    """Divergence and squared error of an estimate, expected given the counts; rows of shape (..., d)."""
    size = parameters.sum(axis=-1, keepdims=True)
    mean = parameters / size
    kl = (mean * (digamma(parameters + 1) - digamma(size + 1) - np.log(estimate))).sum(axis=-1)
    squared = mean * (1 - mean) / (size + 1) + (mean - estimate) ** 2
    return kl.mean(), squared.mean()


def test_more_noise_more_error_and_more_draws_less():
    prior = np.ones(5)
    least, most = (estimate_error(GeometricMechanism(prior, scale), prior, 500).share for scale in (1e-3, 1e6))
    # Without noise what is left is the posterior's own width, and with too much of it the prior's.
    assert least == pytest.approx(np.sqrt(0.2 * 0.8 / 506 * 5 / 6), rel=0.3)
    assert most == pytest.approx(np.sqrt(0.2 * 0.8 / 6), rel=0.1)
    drawn = DirichletMechanism(prior, 0.05)
    assert estimate_error(drawn, prior, 500, draws=5).kl < estimate_error(drawn, prior, 500).kl
    noise = GeometricMechanism(prior, 10.0)
    assert estimate_error(noise, prior, 500, draws=5) == estimate_error(noise, prior, 500)
    assert estimate_error(noise, prior, 500, public=False).kl > estimate_error(noise, prior, 500).kl


def test_it_is_a_number_at_the_ends_of_its_domain_and_none_without_records():
    for mechanism in (
        GeometricMechanism(np.full((2, 3), 100.0), 1e5),
        DirichletMechanism(np.full(3, 1e-3), 1e-4),
        DirichletMechanism(np.full((2, 3), 100.1), 10.0),
    ):
        prior = np.full(mechanism.shape, 1e-3)
        for public, n_records in ((True, 1), (False, 10**7)):
            found = estimate_error(mechanism, prior, n_records, public=public)
            assert found.kl > 0
            assert 0 < found.share < 1
        assert estimate_error(mechanism, prior, 0) is None


def test_shares_are_estimated_from_one_simulated_table():
    """With hardly any noise they are those of the posterior; a mechanism of marginals is fitted elsewhere."""
    prior, counts = np.array([[1.0, 2.0], [0.5, 0.5]]), np.array([[30, 10], [4, 16]])
    rng = np.random.default_rng(0)
    found = estimated_shares(GeometricMechanism(prior, 0.01), prior, counts, public=True, rng=rng)
    exact = (prior + counts) / (prior + counts).sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(found, exact, atol=1e-3)
    noisy = estimated_shares(GeometricMechanism(prior, 20.0), prior, counts, public=True, rng=rng)
    assert np.abs(noisy - exact).max() > 0.01
    # Several releases are estimated each alone.
    several = estimated_shares(GeometricMechanism(prior, 3.0), prior, counts, public=True, rng=rng, times=40)
    assert several.shape == (40, 2, 2)
    assert len(np.unique(several[:, 0, 0])) > 15
    assert (np.abs(several.mean(axis=0) - exact) < 0.1).all()
    marginals = MarginalsMechanism(prior, ((1,),), (1.0,))
    assert estimated_shares(marginals, prior, counts, public=True, rng=rng) is None
    assert estimate_error(marginals, prior, 60) is None
    hellinger = HellingerMechanism(np.ones(2), 2000, 1.0)
    assert estimate_error(hellinger, np.ones(2), 2000) is None


@pytest.mark.parametrize(
    ("kind", "step", "public"), [(GeometricMechanism, 3.0, False), (DirichletMechanism, 0.3, True)]
)
def test_equal_cells_are_summed_once_as_each_alone(kind, step, public, monkeypatch):
    """Cells of equal and of uneven priors in rows of their own, against sums for every cell by itself."""
    prior = np.array([[0.2, 1.0, 1.0, 7.5, 1.0], [1.0, 0.2, 3.0, 1.0, 1.0], [0.2, 1.0, 1.0, 7.5, 1.0]])
    found, kinds, distinct = [], [], module._distinct

    def alone(*columns):
        every = np.arange(columns[0].size)
        kinds.append(len(distinct(*columns)[0]) / len(every))
        return every, every

    for of_cells in (distinct, alone):
        monkeypatch.setattr(module, "_distinct", of_cells)
        module._estimate_error.cache_clear()
        error = estimate_error(kind(prior, step), prior, 400, public=public)
        found.append([error.kl, error.share])
    assert found[0] == pytest.approx(found[1], rel=1e-12)
    assert min(kinds) < 0.9


def test_a_part_of_many_cells_has_the_error_of_all(monkeypatch):
    """The same simulation with all cells: their errors agree within what simulations of three tables differ by."""
    prior, found = np.linspace(0.1, 3, 900), []
    mechanism = calibrate(ApproxDP(epsilon=1, delta=1e-6), prior=prior, n_records=20_000, mechanism="gaussian")
    for most in (300, 10**6):
        monkeypatch.setitem(module._estimate_error.__wrapped__.__kwdefaults__, "most_cells", most)
        module._estimate_error.cache_clear()
        found.append(estimate_error(mechanism, prior, 20_000))
    part, whole = ([error.kl, error.share] for error in found)
    assert part == pytest.approx(whole, rel=0.1)
    # Few records are one record at least in the part of the cells.
    assert estimate_error(mechanism, prior, 1).kl > 0


def test_the_records_divide_among_rows_with_no_row_before_another():
    """The share of one of n rows is Beta(1, n - 1): mean 1 / n."""
    for n in (2, 7):
        rows = module._Rows.simulated(np.ones((n, 2)), np.full(n, 10_000.0), n, public=False)
        shares = rows.counts.sum(axis=1) / 10_000
        error = 6 * math.sqrt((n - 1) / (n**2 * (n + 1)) / len(shares))
        assert abs(shares.mean() - 1 / n) < error < 0.3 / n
        assert shares.max() > 0.6
    # Totals are looked at within 3.5 deviations of what was said, at no number below 0.
    said = np.linspace(0.0, 1500.0, len(rows.counts))
    totals, weights = rows.totals((said, 20.0))
    assert totals.shape == weights.shape
    np.testing.assert_allclose(totals.min(axis=0), np.maximum(said - 70, 0))
    np.testing.assert_allclose(totals.max(axis=0), said + 70)
    assert np.all(np.diff(totals, axis=0) > 0)


# The neighbours, whether sizes of rows are public, the sizes, the categories, each prior, the noise.
SETTINGS = [
    ("replace-one", True, (1990, 10), 4, 1.0, "geometric"),
    ("replace-one", True, (500, 5, 50, 45), 2, 1.0, "dirichlet"),
    ("replace-one", False, (250, 250, 250, 250), 4, 1.0, "geometric"),
    ("add-remove", False, (100, 100), 4, 1.0, "dirichlet"),
    # Half as large again if what draws say of the number of records is left out.
    ("add-remove", False, (300,), 3, 5.0, "dirichlet"),
    ("add-remove", False, (300, 300), 2, 1.0, "geometric"),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("adjacency", "public", "sizes", "d", "a", "kind"), SETTINGS, ids=str)
def test_the_realised_error_is_the_expected_one(adjacency, public, sizes, d, a, kind):
    """The truth comes from the model: shares from their prior and, where they are private, sizes from any division.

    Sizes that are public were taken for private once: .038 was expected for (1990, 10), and .143 realised.
    """
    rng, releases, n, prior = np.random.default_rng(11), 25, sum(sizes), np.full((len(sizes), d), a)
    known = adjacency == "replace-one"
    facts = {"prior": prior, "n_records": n, "adjacency": adjacency, "public": ["n_records"] if known else ()}
    facts["contribution"] = Contribution(1, ("own",) if public else ("any",))
    mechanism = calibrate(ApproxDP(epsilon=1.0, delta=1e-6), mechanism=kind, **facts)
    expected = estimate_error(mechanism, prior, n, public=known, totals=sizes if public else ())
    realised = []
    for _ in range(releases):
        totals = sizes if public else rng.multinomial(n, rng.dirichlet(np.ones(len(sizes))))
        counts = np.stack([rng.multinomial(size, rng.dirichlet(np.full(d, a))) for size in totals])
        values = mechanism.releases(counts, 1, sampler="fast", random_seed=rng)
        output = MechanismOutput(mechanism, values, prior=prior, n_records=n if known else None, sampler="fast")
        blocks = [(np.array([row]), size) for row, size in enumerate(sizes)] if public else output.observed_table.blocks
        seen = replace(output.observed_table, blocks=blocks)
        found = posterior_of(seen, Beliefs(n_prior=None if known else 2 * n)).estimate([0.5])
        realised.append(errors(prior + counts, found.share_means.reshape(counts.shape)))
    ratios = np.array(realised) / [expected.kl, expected.share**2]
    assert np.all(np.abs(ratios.mean(axis=0) - 1) < 5.5 * ratios.std(axis=0) / math.sqrt(releases) + 0.15)
