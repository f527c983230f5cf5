"""Posteriors of tables: in blocks and in units, of what is nearly contradicted, and the likelihood of shares."""

import math
from functools import partial, reduce

import numpy as np
import pymc as pm
import pytest
from scipy.special import gammaln, logsumexp

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.observed_table import Beliefs, MechanismOutput, number_of, pooled
from pymc_dirdp.inference.rows import RowPosterior
from pymc_dirdp.inference.tables import CountTree, posterior_of, rows_are_divided
from pymc_dirdp.mechanisms.geometric import GeometricMechanism, ZeroSumGeometricMechanism
from pymc_dirdp.mechanisms.noise import Noise
from pymc_dirdp.privacy.people import Contribution
from tests.oracles import tables_of

from .posteriors import log_convolved, log_multinomial_dirichlet, with_means


def test_noise_that_is_known_at_integers_only_is_not_summed_over_too_many(monkeypatch):
    with pm.Model():
        p = pm.Beta("p", 1, 1)
        pm.Binomial("x", n=10**7, p=p, observed=10**6)
        release = dirdp.sample(dirdp.PureDP(epsilon=1.0), mechanism="geometric")
    monkeypatch.setattr("pymc_dirdp.mechanisms.geometric.ZeroSumGeometric.smooth_noise", False)
    assert not Noise.smooth_noise
    with pytest.raises(
        ArgumentError, match="Set smooth_noise = True in the class of the noise of ZeroSumGeometricMech"
    ):
        dirdp.analyse(release)
    monkeypatch.setattr("pymc_dirdp.mechanisms.geometric.ZeroSumGeometric.smooth_noise", True)
    assert dirdp.analyse(release, draws=10)["posterior"]["p"].notnull().all()


def noisy(z, n_records, scale, prior, adjacency="replace-one"):
    prior = np.ones(np.shape(z)) if prior is None else np.asarray(prior, dtype=float)
    mechanism = GeometricMechanism(prior, scale, adjacency=adjacency)
    known = {"n_records": n_records} if adjacency == "replace-one" else {}
    return MechanismOutput(mechanism, np.asarray(z, dtype=float), prior=prior, **known)


@pytest.mark.parametrize(
    ("shape", "adjacency", "scale"),
    [
        ((3,), "replace-one", 1e8),
        ((6,), "replace-one", 1e5),
        ((3,), "add-remove", 1e5),
        *(
            pytest.param((2, 2), adjacency, 1e5, marks=pytest.mark.thorough)
            for adjacency in ("replace-one", "add-remove")
        ),
    ],
)
def test_what_one_record_is_does_not_matter_in_noise_of_millions(shape, adjacency, scale):
    """Counts are in units of many records: shares are those of a table with a thousandth of the noise."""
    rng, both = np.random.default_rng(shape[-1]), []
    z = 20 * rng.dirichlet(np.ones(np.prod(shape))).reshape(shape) + rng.laplace(0, 1, shape)
    for size in (2000.0, scale):
        output = noisy(np.rint(size * z), round(20 * size), size, np.full(shape, 1.5), adjacency)
        options = {"progressbar": False} | ({} if output.n_records else {"n_prior": round(40 * size)})
        both.append(dirdp.estimate(output, [0.5, 0.8, 0.95], **options).tables["p"])
    drawn = dirdp.analyse(output, 400, chains=1, random_seed=1, **options)["latent_counts"]["p"].values
    small, found = both
    # Of a count of k records a multinomial draw leaves sqrt(k).
    np.testing.assert_allclose(found.share_means, small.share_means, atol=2e-4)
    np.testing.assert_allclose(found.share_sds, small.share_sds, rtol=2e-3)
    np.testing.assert_allclose(found.share_intervals, small.share_intervals, atol=1.5e-2 if found.caveat else 1e-3)
    np.testing.assert_allclose(found.count_intervals / scale, small.count_intervals / 2000, atol=0.02)
    np.testing.assert_allclose(found.count_means / scale, small.count_means / 2000, atol=1e-3)
    np.testing.assert_allclose(found.count_sds / scale, small.count_sds / 2000, rtol=2e-3)
    assert found.log_evidence + z.size * np.log(scale / 2000) == pytest.approx(small.log_evidence, abs=2e-3)
    assert drawn.min() >= 0
    off = drawn.reshape(400, -1).mean(axis=0) - found.count_means
    assert np.all(np.abs(off) < 5 * found.count_sds / 400**0.5)
    assert adjacency == "add-remove" or np.all(drawn.reshape(400, -1).sum(axis=1) == output.n_records)


UNLIKELY = {
    "a prior of many records against the noisy counts": ([0, 0, 500], 500, 1.0, [1e5, 1e5, 1e5]),
    "no records": ([0, 1, -1], 0, 1.0, None),
    "a row that is empty": ([[3, 2], [-30, -30]], 5, 1.0, None),
    "noise wider than the number of records": ([40_000, -20_000, 3], 10, 1e4, None),
    "counts far beyond the number of records": ([10**6, -(10**6)], 100, 1.0, None),
    "a prior that is nearly certain": ([5, 3], 8, 0.01, [1e10, 1e-3]),
}


@pytest.mark.parametrize(("n", "prior"), [(8, 1e15), (8, 1e30), (8, 1e300), (10**7, 1e15)])
def test_priors_that_leave_evidence_no_digits_are_refused(n, prior):
    output = noisy([5, 3], n, 0.01, [prior, 1e-3])
    for infer in (dirdp.estimate, dirdp.analyse):
        with pytest.raises(ArgumentError, match="far too large or too small"):
            infer(output, progressbar=False)


@pytest.mark.parametrize("case", UNLIKELY)
def test_outputs_that_nearly_contradict_what_is_known_have_their_distribution(case):
    z, n, scale, prior = UNLIKELY[case]
    output = noisy(z, n, scale, prior)
    found = dirdp.estimate(output, prob=[1e-300, 0.5, 1 - 1e-16], progressbar=False).tables["p"]
    a = output.prior.reshape(-1, output.prior.shape[-1])
    x = np.array(list(tables_of(a.shape, n)), dtype=float)
    rows = x.sum(axis=2)
    logs = output.mechanism.log_likelihood(np.asarray(z, dtype=float), x.reshape(-1, *np.shape(z)))
    logs += log_multinomial_dirichlet(x, a).sum(axis=1)
    if len(a) > 1:
        # Divisions of the records among rows are as likely as one another.
        logs -= np.log(len(np.unique(rows, axis=0)))
    evidence = logsumexp(logs)
    masses = np.exp(logs - evidence)
    # Logarithms of Gamma functions of the prior leave that many digits.
    accuracy = max(1e-9, 1e-15 * a.max() * np.log(a.max() + 1) * max(n, 1) / 10)
    assert found.log_evidence == pytest.approx(evidence, rel=1e-12, abs=accuracy)
    np.testing.assert_allclose(found.count_means, np.tensordot(masses, x, 1).ravel(), rtol=accuracy, atol=accuracy)
    assert np.all(np.diff(found.share_intervals, axis=2) >= 0)
    assert np.all((found.share_intervals >= 0) & (found.share_intervals <= 1))
    drawn = dirdp.analyse(output, 20, random_seed=1, progressbar=False)["latent_counts"]["p"].values
    assert np.all(drawn.reshape(80, -1).sum(axis=1) == n)


# Blocks of rows whose numbers of records an output tells; `test_contract.py` has blocks of one row.


def test_blocks_of_several_rows_are_put_into_the_order_of_the_table():
    """Classes by features, where everybody has one record of each feature: the blocks are the features."""
    prior, unit = np.ones((2, 3, 2)), Contribution(1, ("any", "each"))
    counts = np.array([[[4, 9], [20, 3], [8, 8]], [[20, 7], [10, 7], [11, 13]]])
    # Noise of this scale is always 0, so the distribution is that of the very counts.
    mechanism = ZeroSumGeometricMechanism(prior, 0.02, contribution=unit)
    output = MechanismOutput(mechanism, mechanism.release(counts), prior=prior, n_records=120).observed_table
    assert [(rows.tolist(), total) for rows, total in output.blocks] == [([0, 3], 40), ([1, 4], 40), ([2, 5], 40)]
    assert rows_are_divided(output)
    row_prior = np.arange(1.0, 7.0).reshape(2, 3)
    posterior = posterior_of(output, Beliefs(row_prior=row_prior))
    drawn = posterior.draw(50, np.random.default_rng(1))
    np.testing.assert_array_equal(drawn.counts, np.broadcast_to(counts, (50, 2, 3, 2)))
    np.testing.assert_allclose(posterior.estimate([0.8]).count_means, counts.ravel(), atol=1e-9)
    # The shares of the rows in a block have the prior that belongs to them.
    evidence = log_multinomial_dirichlet(counts, prior).sum()
    evidence += log_multinomial_dirichlet(counts.sum(axis=2).T, row_prior.T).sum()
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-7)


def test_beliefs_about_blocks_are_checked():
    prior = np.array([[1.0, 0.5], [2.0, 1.0]])
    mechanism = ZeroSumGeometricMechanism(prior, 2.0, contribution=Contribution(1, ("each",)))
    output = MechanismOutput(mechanism, [[2, 3], [4, 1]], prior=prior, n_records=10)
    for beliefs, words in (
        ({"row_prior": [1.0, 2.0]}, "Leave row_prior out"),
        ({"prior": [1.0, 2.0]}, "shape of the table"),
        ({"n_prior": 10}, "n_prior"),
    ):
        with pytest.raises(ArgumentError, match=words):
            dirdp.estimate(output, **beliefs)


@pytest.mark.parametrize("mechanism", ["gaussian", "dirichlet"])
def test_every_reading_of_a_complete_survey_has_its_public_totals(mechanism, tmp_path, edited):
    """Sixty people answer two items each: each item has sixty answers, whatever noise there is."""
    rng = np.random.default_rng(5)
    with pm.Model(coords={"person": range(60), "item": ["a", "b"], "answer": range(3)}) as model:
        p = pm.Dirichlet("p", np.ones((2, 3)), dims=("item", "answer"))
        pm.Categorical("x", p=p, observed=rng.integers(0, 3, (60, 2)), dims=("person", "item"))
    guarantee = dirdp.ApproxDP(epsilon=1, delta=1e-6)
    dirdp.save(dirdp.sample(guarantee, model, unit="person", mechanism=mechanism), tmp_path / "r.json")
    release = dirdp.load(tmp_path / "r.json")
    assert release["mechanism/p"]["public_totals"].dims == ("item",)
    assert dirdp.verify(release)
    for text in (str(dirdp.report(release, full=True)), dirdp.estimate(release).conditions[0]):
        assert "60 in each of 2 parts of its rows" in " ".join(text.split())
    idata = dirdp.analyse(release, 50, chains=1)
    for counts in (idata["latent_counts"], dirdp.releases.latent_counts(idata, release)):
        np.testing.assert_array_equal(counts["p"].values.sum(axis=-1), 60)
    # Totals that are not those of the release are found.
    for totals in ([61, 60], [60.5, 59.5], [120], []):
        with pytest.raises(dirdp.errors.ReleaseError):
            dirdp.verify(edited(release, (("plan", "tables", 0, "totals"), totals)))


def test_shares_are_asked_for_after_everything_else():
    """Found by comparison: the evidence of no shares was kept, and called that of these."""
    prior, counts = np.ones((2, 3)), np.array([[30.0, 11, 9], [4, 21, 25]])
    output = noisy(counts, 100, 2.0, prior).observed_table
    fresh, asked = (posterior_of(output, Beliefs()) for _ in range(2))
    asked.estimate([0.5])
    asked.counts(2, np.random.default_rng(1))
    logs = np.log(np.random.default_rng(2).dirichlet(np.ones(3), 2))
    one, other = fresh.with_shares(logs), asked.with_shares(logs)
    assert one.log_evidence == other.log_evidence != asked.log_evidence
    np.testing.assert_array_equal(*(each.counts(5, np.random.default_rng(3)) for each in (one, other)))


def test_shares_and_outputs_that_are_too_improbable_for_doubles():
    """The weights of counts differ by far more than doubles can: the logarithms are those of one table."""
    z = np.array([[20.0, 0.0], [10.0, 20.0]])

    def steep(own):
        return lambda counts, cells: -1e4 * np.abs(own[cells] - counts)

    rows = [RowPosterior(alpha=[1, 1], total=50, log_likelihood=steep(own)) for own in z]
    log_shares = np.array([[-900.0, 0.0], [-1.0, np.log(-np.expm1(-1.0))]])
    given = CountTree(rows, [np.zeros_like] * 2, 50, None, np.ones(2)).with_shares(log_shares)
    np.testing.assert_allclose(given.count_means, z, atol=1e-12)
    # 20 records in one row of 50 are as likely as any other number.
    expected = -math.log(51) + 20 * -900.0 + math.log(math.comb(30, 10)) - 10 + 20 * log_shares[1, 1]
    assert given.log_evidence == pytest.approx(expected, rel=1e-12)


def over_all_totals(log_prior, row_prior, cells):
    """The logarithm of the likelihood, from the logarithms of the weights of 0, 1, 2, ... records in each cell."""
    x = np.arange(cells.shape[-1] + 0.0)
    rows = [reduce(log_convolved, row) + gammaln(x + a) - gammaln(a) for row, a in zip(cells, row_prior, strict=True)]
    of_whole = gammaln(x + 1) + gammaln(row_prior.sum()) - gammaln(x + row_prior.sum())
    return logsumexp(reduce(log_convolved, rows) + of_whole + log_prior(x))


N_PRIORS = {
    "integer": 300,
    "range": range(3, 301),
    "array": np.exp(-np.arange(301) / 200),
    "gaps": np.arange(301) % 7 == 0,
    "public": None,
}


@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
@pytest.mark.parametrize("n_prior", N_PRIORS.values(), ids=N_PRIORS)
@pytest.mark.parametrize(("rows", "releases"), [(1, 1), (1, 2), (2, 1)])
def test_numbers_of_records_are_summed_wherever_shares_lead(rows, n_prior, releases, far):
    """Numbers far from the sum of the noisy counts were left out: as nearly impossible, but so is all that is far.

    Sums also ended at the first number that a prior excludes.
    """
    noisy = np.array([[200.0, 4.0], [12.0, 30.0]])[:rows] + np.zeros((releases, 1, 1))
    noisy[1:, 0] += [1, -2]
    shares = np.array([[0.02, 0.98], [0.9, 0.1]] if far else [[0.97, 0.03], [0.3, 0.7]])[:rows]
    if rows == 1:
        noisy, shares = noisy[:, 0], shares[0]
    known = {"n_records": 210} if n_prior is None else {}
    mechanism = GeometricMechanism(np.ones(shares.shape), 1.0, adjacency="replace-one" if known else "add-remove")
    outputs = [MechanismOutput(mechanism, z, prior=np.ones(shares.shape), **known).observed_table for z in noisy]
    seen, row_prior = pooled(outputs, own_prior=True), np.array([0.5, 2.0])[:rows]
    beliefs = Beliefs(n_prior=n_prior, row_prior=row_prior if rows > 1 else None)
    value, means = posterior_of(seen, beliefs).likelihood(np.log(shares))
    x = np.arange(301.0)
    noise = mechanism.cell_noise.log_noise(noisy[..., None] - x).sum(axis=0)
    cells = (np.log(shares)[..., None] * x - gammaln(x + 1) + noise).reshape(rows, 2, -1)
    log_prior = number_of(seen, n_prior)[1] or (lambda n: np.where(n == 210, 0.0, -np.inf))
    expected, wanted = with_means(partial(over_all_totals, log_prior, row_prior), cells)
    assert value == pytest.approx(expected, abs=1e-9)
    np.testing.assert_allclose(means.reshape(rows, 2), wanted, rtol=1e-8)
