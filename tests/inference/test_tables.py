"""Tables of several rows, and of a private number of records, against all tables there are."""

import itertools

import numpy as np
import pymc as pm
import pytest
from scipy.special import betainc, gammaln, logsumexp
from scipy.stats import chi2

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.observed_table import Beliefs
from pymc_dirdp.inference.tables import TablePosterior
from pymc_dirdp.mechanisms.noise import Noise
from pymc_dirdp.releases.opened import open_release
from tests.planned import planned_sample

PRIOR, COUNTS = np.array([[1.0, 0.5], [2.0, 1.0]]), np.array([[2, 1], [1, 3]])


def released(**options):
    with pm.Model():
        p = pm.Dirichlet("p", a=PRIOR)
        pm.Multinomial("x", n=COUNTS.sum(axis=1), p=p, observed=COUNTS)
        release = planned_sample(dirdp.ApproxDP(epsilon=2.0, delta=1e-3), **options)
    return open_release(release).tables["p"]


def brute_force(output, most, row_prior):
    """All tables of up to so many records, their logarithms with the likelihood; a flat prior of the number."""
    cells = range(output.observed_table.least, most + 1)
    x = np.array([x for x in itertools.product(cells, repeat=4) if sum(x) <= most], dtype=float).reshape(-1, 2, 2)
    if output.n_records is not None:
        x = x[x.sum(axis=(1, 2)) == most]
    rows = x.sum(axis=2)
    logs = np.array([output.mechanism.log_likelihood(y, x, steps=output.steps) for y in output.published]).sum(axis=0)
    for values, prior in ((rows, row_prior), (x[:, 0], PRIOR[0]), (x[:, 1], PRIOR[1])):
        total, concentration = values.sum(axis=1), prior.sum()
        logs = logs + gammaln(total + 1) + gammaln(concentration) - gammaln(total + concentration)
        logs += np.sum(gammaln(values + prior) - gammaln(values + 1) - gammaln(prior), axis=1)
    logs -= 0 if output.n_records is not None else np.log(most + 1)
    return x, np.exp(logs - logsumexp(logs)), float(logsumexp(logs))


@pytest.mark.thorough
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("options", [{}, {"released_draws": 2, "min_count": 1}, {"mechanism": "geometric"}], ids=str)
def test_rows_have_the_posterior_of_all_tables(adjacency, options, monkeypatch):
    private = adjacency == "add-remove"
    output = released(adjacency=adjacency, **options, **({"n_records": 8} if private else {}))
    row_prior = np.array([1.5, 0.7])
    most = 12 if private else 7
    posterior = TablePosterior(output.observed_table, Beliefs(row_prior=row_prior, n_prior=most if private else None))
    tables, probabilities, evidence = brute_force(output, most, row_prior)
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-7)
    draws = posterior.draw(20_000, np.random.default_rng(1))
    assert draws.counts.shape == draws.shares.shape == (20_000, 2, 2)
    place = {tuple(map(int, table)): i for i, table in enumerate(tables.reshape(-1, 4))}
    drawn = draws.counts.reshape(-1, 4).tolist()
    seen = np.bincount([place[tuple(table)] for table in drawn], minlength=len(tables))

    def p_value(posterior):
        rare = posterior * len(drawn) < 10
        observed, expected = (np.append(values[~rare], values[rare].sum()) for values in (seen, posterior * len(drawn)))
        return chi2.sf(np.sum((observed - expected) ** 2 / np.maximum(expected, 1e-9)), len(expected) - 1)

    assert p_value(probabilities) > 1e-6
    # With other beliefs about the rows it is another distribution.
    assert p_value(brute_force(output, most, np.array([1.5, 3.0]))[1]) < 1e-6
    estimates_are_those_of(tables, probabilities, posterior.estimate([0.8]))


def estimates_are_those_of(tables, probabilities, found):
    counts = tables.reshape(len(tables), -1)
    first = counts + PRIOR.ravel()
    size = np.repeat((tables + PRIOR).sum(axis=-1), 2, axis=-1)
    means, shares = probabilities @ counts, probabilities @ (first / size)
    np.testing.assert_allclose(found.count_means, means, rtol=1e-8)
    np.testing.assert_allclose(found.count_sds, np.sqrt(probabilities @ counts**2 - means**2), rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(found.share_means, shares, rtol=1e-8)
    squares = probabilities @ (first * (first + 1) / (size * (size + 1)))
    np.testing.assert_allclose(found.share_sds, np.sqrt(squares - shares**2), rtol=1e-7)
    for end, level in enumerate([0.1, 0.9]):
        ends = found.share_intervals[0, :, end]
        below = [probabilities @ betainc(a, b, q) for a, b, q in zip(first.T, (size - first).T, ends, strict=True)]
        # Ends of intervals are those of draws, because totals of rows are not known.
        np.testing.assert_allclose(below, level, atol=5 * np.sqrt(0.09 / 20_000) + 1e-3)
        for x, k in zip(counts.T, found.count_intervals[0, :, end], strict=True):
            assert probabilities @ (x <= k) >= level - 1e-9
            assert probabilities @ (x < k) < level + 1e-9


def test_a_private_number_of_a_single_row():
    with pm.Model():
        p = pm.Dirichlet("p", a=[1.0, 2.0, 0.5])
        pm.Multinomial("x", n=9, p=p, observed=[5, 3, 1])
        release = dirdp.sample(dirdp.PureDP(epsilon=1.0), mechanism="geometric", adjacency="add-remove")
    output = open_release(release).tables["p"]
    weights = np.arange(16.0) ** 2
    posterior = TablePosterior(output.observed_table, Beliefs(n_prior=weights))
    x = np.array([x for x in itertools.product(range(16), repeat=3) if sum(x) <= 15], dtype=float)
    prior, n = np.array([1.0, 2.0, 0.5]), x.sum(axis=1)
    with np.errstate(divide="ignore"):
        logs = np.log(weights[n.astype(int)] / weights.sum()) + output.mechanism.log_likelihood(output.published[0], x)
    logs += gammaln(n + 1) + gammaln(3.5) - gammaln(n + 3.5)
    logs += np.sum(gammaln(x + prior) - gammaln(x + 1) - gammaln(prior), axis=1)
    assert posterior.log_evidence == pytest.approx(logsumexp(logs), abs=1e-9)
    means = np.exp(logs - logsumexp(logs)) @ x
    drawn = posterior.draw(20_000, np.random.default_rng(1)).counts
    assert np.all(np.abs(drawn.mean(axis=0) - means) < 5 * drawn.std(axis=0) / np.sqrt(20_000))


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


def noisy(z, n_records, scale=1.0, prior=None):
    prior = np.ones(np.shape(z)) if prior is None else np.asarray(prior, dtype=float)
    known = {} if n_records is None else {"n_records": n_records}
    adjacency = "add-remove" if n_records is None else "replace-one"
    mechanism = dirdp.mechanisms.GeometricMechanism(prior, scale, adjacency=adjacency)
    return dirdp.mechanisms.MechanismOutput(mechanism, np.asarray(z, dtype=float), prior=prior, **known)


UNLIKELY = {
    "a prior of many records against the noisy counts": ([0, 0, 500], 500, 1.0, [1e5, 1e5, 1e5]),
    "no records": ([0, 1, -1], 0, 1.0, None),
    "a row that is empty": ([[3, 2], [-30, -30]], 5, 1.0, None),
    "noise wider than the number of records": ([40_000, -20_000, 3], 10, 1e4, None),
    "counts far beyond the number of records": ([10**6, -(10**6)], 100, 1.0, None),
    "a prior that is nearly certain": ([5, 3], 8, 0.01, [1e10, 1e-3]),
}


@pytest.mark.parametrize(("n", "prior"), [(8, 1e15), (8, 1e300), (10**7, 1e15)])
def test_priors_that_leave_evidence_no_digits_are_refused(n, prior):
    output = noisy([5, 3], n, 0.01, [prior, 1e-3])
    for infer in (dirdp.estimate, dirdp.analyse):
        with pytest.raises(ArgumentError, match="far too large or too small"):
            infer(output, progressbar=False)


@pytest.mark.parametrize("case", UNLIKELY)
def test_outputs_that_nearly_contradict_what_is_known_have_their_distribution(case):
    """Against all tables, with logarithms of every one."""
    z, n, scale, prior = UNLIKELY[case]
    output = noisy(z, n, scale, prior)
    found = dirdp.estimate(output, prob=[1e-300, 0.5, 1 - 1e-16], progressbar=False).tables["p"]
    a = output.prior.reshape(-1, output.prior.shape[-1])
    cells = np.meshgrid(*[np.arange(n + 1.0)] * (a.size - 1), indexing="ij")
    last = n - sum(cells)
    x = np.stack([*cells, last], axis=-1)[last >= 0].reshape(-1, *a.shape)
    rows = x.sum(axis=2)
    logs = output.mechanism.log_likelihood(np.asarray(z, dtype=float), x.reshape(-1, *np.shape(z)))
    logs += np.sum(gammaln(x + a) - gammaln(a) - gammaln(x + 1), axis=(1, 2))
    logs += np.sum(gammaln(rows + 1) + gammaln(a.sum(axis=1)) - gammaln(rows + a.sum(axis=1)), axis=1)
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


@pytest.mark.parametrize(
    "output",
    [noisy([3, 1], 4, prior=[1e30, 1.0]), noisy([3, 1], 4, prior=[1e99, 1e-99])],
)
def test_what_nothing_explains_is_one_error(output):
    for verb in (dirdp.estimate, dirdp.analyse):
        with pytest.raises(ArgumentError, match="far too large"):
            verb(output, progressbar=False)
