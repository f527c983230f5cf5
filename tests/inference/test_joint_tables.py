"""Tables given one joint release: sums and draws against all data sets, calibration, and the divergences of JOINT."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import chisquare, multinomial

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.joint_tables import JointPosterior, JointTables, RadialPosterior, given_all_others
from pymc_dirdp.inference.observed_table import Beliefs
from pymc_dirdp.inference.tables import posterior_of
from pymc_dirdp.mechanisms.joint import JointNoise, JointTableMechanism, ZeroSumJointTableMechanism
from pymc_dirdp.mechanisms.outputs import BlockLikelihood
from pymc_dirdp.numerics.balls import Ball
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.sampling.bits import Bits

# A private number of records is at most this, and as likely as any other.
MOST = 7


def up_to(most):
    return lambda totals: np.where(totals <= most, -math.log(most + 1), -np.inf)


def all_counts(cells, total):
    """All tables with this total, or with any that a private one may be."""
    totals = range(MOST + 1) if total is None else [total]
    return [x for x in itertools.product(range(max(totals) + 1), repeat=cells) if sum(x) in totals]


def log_prior(x, alpha):
    """Dirichlet-multinomial, from its definition."""
    x, alpha = np.asarray(x), np.asarray(alpha)
    several = gammaln(x.sum() + 1) - gammaln(x + 1).sum()
    return several + gammaln(alpha.sum()) - gammaln(alpha).sum() + gammaln(alpha + x).sum() - gammaln((alpha + x).sum())


CASES = {
    "different tables": (JointNoise([3, 2], 0.5, zero_sum=True), (5, 5), ([1, 0.1, 2], [1, 1]), [3, 3, -1, 0, 5]),
    "unequal records": (
        JointNoise([2, 3], 0.6, records=(2, 1), zero_sum=True),
        (6, 3),
        ([1, 1], [4, 1, 9]),
        [2, 4, 1, 4, -2],
    ),
    "far off": (JointNoise([3, 2], 0.4, zero_sum=True), (4, 2), ([1, 1, 1], [1, 1]), [-6, 12, -2, 2, 0]),
    "strong priors": (JointNoise([3, 2], 5.0, zero_sum=True), (5, 3), ([30, 1e4, 1e-3], [1e5, 1]), [-9, 16, -2, 1, 2]),
    "private": (
        JointNoise([2, 3], 0.5),
        (None, None),
        ([1, 0.2], [3, 1, 1]),
        [4, -1, 1, 3, -2],
    ),
    "private and replaced": (
        JointNoise([1, 3], 1.5, (1, 2)),
        (None, None),
        ([1], [30, 1e4, 1e-3]),
        [4, -9, 16, -2],
    ),
}


def by_enumeration(noise, totals, priors, output):
    tables = [all_counts(d, n) for d, n in zip(noise.cells, totals, strict=True)]
    both = list(itertools.product(*tables))
    logs = np.array(
        [
            sum(log_prior(x, alpha) for x, alpha in zip(of, priors, strict=True))
            - totals.count(None) * math.log(MOST + 1)
            + float(noise.log_probability(np.subtract(output, np.concatenate(of))))
            for of in both
        ]
    )
    return [np.concatenate(of) for of in both], np.exp(logs - np.logaddexp.reduce(logs)), np.logaddexp.reduce(logs)


@pytest.mark.parametrize("name", CASES)
def test_sums_and_draws_are_those_over_all_data_sets(name):
    noise, totals, priors, output = CASES[name]
    found = JointTables(noise.joint_likelihoods(output), priors, log_numbers=up_to(MOST))
    both, posterior, evidence = by_enumeration(noise, totals, priors, output)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-9)
    np.testing.assert_allclose(np.concatenate(found.count_means), posterior @ np.array(both), rtol=1e-9, atol=1e-12)
    cells = [cell for table in found.count_probabilities for cell in table]
    for column, cell in zip(np.array(both).T, cells, strict=True):
        wanted = [posterior[column == count].sum() for count in cell.numbers]
        np.testing.assert_allclose(cell.values, wanted, rtol=1e-8, atol=1e-14)
    drawn = found.counts(20_000, np.random.default_rng(6))
    counts = np.concatenate(drawn, axis=1)
    number = {tuple(x.tolist()): i for i, x in enumerate(both)}
    seen = np.bincount([number[tuple(x)] for x in counts.tolist()], minlength=len(both))
    common = 20_000 * posterior >= 5
    observed, expected = seen[common], 20_000 * posterior[common]
    rest = [20_000 - observed.sum()], [20_000 - expected.sum()]
    assert chisquare(*(np.append(a, b) for a, b in zip((observed, expected), rest, strict=True))).pvalue > 1e-6


# JOINT, section A: KL(x / N || posterior mean) for tables of 1000 records and epsilon 1, with the error of that table.
DIVERGENCES = {
    (2, 10, 1.0, 1.0): (0.000244, 0.000005),
    (2, 10, 0.1, 1.0): (0.001335, 0.000023),
    (4, 3, 1.0, 1.0): (0.00071, 0.00005),
    (2, 6, 1.0, 0.1): (0.006399, 0.000069),
}


# A table of four cells takes twenty times as long as those of two.
@pytest.mark.thorough
@pytest.mark.parametrize("of", [pytest.param(of, marks=[pytest.mark.slow] if of[0] == 4 else []) for of in DIVERGENCES])
def test_divergence_of_the_posterior_mean(of):
    """Ten tables of two cells: .00024 where independent noise has .00083."""
    (cells, number, alpha, epsilon), n, draws = of, 1000, 60
    noise, rng = JointNoise([cells] * number, 1 / epsilon, zero_sum=True), np.random.default_rng(4)
    errors = []
    for _ in range(draws):
        x = [rng.multinomial(n, rng.dirichlet(np.full(cells, alpha))) for _ in range(number)]
        output = np.concatenate(x) + noise.fast((cells * number,), rng)
        means = JointTables(noise.joint_likelihoods(output), [[alpha] * cells] * number).count_means
        each = [a[a > 0] / n * np.log(a[a > 0] / b[a > 0]) for a, b in zip(x, means, strict=True)]
        errors.append(np.mean([one.sum() for one in each]))
    known, error = DIVERGENCES[of]
    assert np.mean(errors) == pytest.approx(known, abs=4 * math.hypot(error, np.std(errors) / math.sqrt(draws)))


def test_large_tables_and_large_priors():
    """Priors of any size leave no sum empty, and the means keep their total."""
    noise, rng = JointNoise([12, 2, 5], 2.0, zero_sum=True), np.random.default_rng(1)
    x = np.concatenate([rng.multinomial(10**6, rng.dirichlet(np.ones(d))) for d in noise.cells])
    output = x + noise.exact(x.shape, Bits(3)).astype(float)
    for alpha in (1e-3, 1.0, 1e5):
        found = JointTables(noise.joint_likelihoods(output), [np.full(d, alpha) for d in noise.cells])
        assert all(means.sum() == pytest.approx(10**6, rel=1e-12) for means in found.count_means)
        assert math.isfinite(found.log_evidence)
    assert all(np.all(counts.sum(axis=1) == 10**6) for counts in found.counts(50, rng))


EACH = Contribution(1, ("each",))
SURVEY = ZeroSumJointTableMechanism(np.ones((2, 3)), 0.5, contribution=EACH)
ANSWERS = np.array([[2.0, 5.0, -1.0], [1.0, 0.0, 5.0]])
PRIOR = np.array([[1.0, 0.3, 2.0], [1.0, 1.0, 1.0]])
OUTPUT = dirdp.mechanisms.MechanismOutput(SURVEY, ANSWERS, prior=PRIOR, n_records=12)


def test_public_verbs_read_the_output_of_a_survey():
    both, posterior, evidence = by_enumeration(SURVEY.noise, (6, 6), PRIOR, ANSWERS.ravel())
    means = posterior @ np.array(both)
    assert isinstance(posterior_of(OUTPUT.observed_table, Beliefs()), JointPosterior)
    found = dirdp.estimate(OUTPUT, progressbar=False)
    np.testing.assert_allclose(found.tables["p"].count_means, means, rtol=1e-9)
    shares = (means.reshape(2, 3) + PRIOR) / (means.reshape(2, 3) + PRIOR).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found.tables["p"].share_means, shares.ravel(), rtol=1e-9)
    assert found.tables["p"].log_evidence == pytest.approx(evidence, abs=1e-9)
    drawn = dirdp.analyse(OUTPUT, draws=4000, chains=1, random_seed=2, progressbar=False)
    counts = drawn["latent_counts"]["p"].values.reshape(-1, 6)
    np.testing.assert_allclose(counts.mean(axis=0), means, atol=0.1)
    assert np.all(counts.reshape(-1, 2, 3).sum(axis=2) == [6, 6])
    np.testing.assert_allclose(drawn["posterior"]["p"].values.reshape(-1, 6).mean(axis=0), shares.ravel(), atol=0.02)


def test_public_verbs_read_a_survey_with_private_totals():
    """Sums over all data sets, with the totals of the rows as likely as one another; quantiles are those of draws."""
    mechanism = JointTableMechanism(np.ones((2, 3)), 0.5, adjacency="add-remove", contribution=EACH)
    output = dirdp.mechanisms.MechanismOutput(mechanism, ANSWERS, prior=PRIOR)
    both, posterior, evidence = by_enumeration(mechanism.noise, (None, None), PRIOR, ANSWERS.ravel())
    found = dirdp.estimate(output, n_prior=MOST, progressbar=False).tables["p"]
    assert found.log_evidence == pytest.approx(evidence, abs=1e-9)
    counts = np.array(both).reshape(-1, 2, 3)
    np.testing.assert_allclose(found.count_means, posterior @ counts.reshape(-1, 6), rtol=1e-9)
    shapes = counts + PRIOR
    sizes = shapes.sum(axis=2, keepdims=True)
    means = (shapes / sizes).reshape(-1, 6)
    squares = (shapes * (shapes + 1) / (sizes * (sizes + 1))).reshape(-1, 6)
    np.testing.assert_allclose(found.share_means, posterior @ means, rtol=1e-9)
    np.testing.assert_allclose(found.share_sds**2, posterior @ squares - (posterior @ means) ** 2, rtol=1e-8)
    assert found.caveat == "ends of intervals of shares from 20000 exact draws"
    drawn = dirdp.analyse(output, n_prior=MOST, draws=4000, random_seed=2, progressbar=False)
    np.testing.assert_allclose(drawn["posterior"]["p"].values.reshape(-1, 6).mean(axis=0), found.share_means, atol=0.02)
    low, high = np.quantile(drawn["posterior"]["p"].values.reshape(-1, 6), [0.025, 0.975], axis=0)
    np.testing.assert_allclose(found.share_intervals[-1], np.stack([low, high], axis=-1), atol=0.05)
    with pytest.raises(ArgumentError, match="n_prior"):
        dirdp.estimate(output, progressbar=False)
    with pytest.raises(ArgumentError, match="row_prior"):
        dirdp.estimate(output, n_prior=MOST, row_prior=[1, 1], progressbar=False)
    mechanism = JointTableMechanism(np.ones((2, 3)), 0.5, contribution=EACH)
    replaced = dirdp.mechanisms.MechanismOutput(mechanism, ANSWERS, prior=PRIOR, n_records=12)
    with pytest.raises(ArgumentError, match="the numbers of records of its rows are private"):
        dirdp.estimate(replaced, progressbar=False)


@pytest.mark.parametrize("zero", [False, True])
def test_the_likelihood_of_known_shares(zero):
    shares = np.array([[0.2, 0.5, 0.3], [0.6, 0.4, 0.0] if zero else [0.6, 0.3, 0.1]])
    tables = [all_counts(3, 6)] * 2
    both = np.array([np.concatenate(of) for of in itertools.product(*tables)])
    with np.errstate(divide="ignore"):
        logs, of_shares = np.log(shares), multinomial.logpmf(both.reshape(-1, 2, 3), [6, 6], shares).sum(axis=1)
    weights = of_shares + SURVEY.log_likelihood(ANSWERS, both.reshape(-1, 2, 3))
    value, gradient = posterior_of(OUTPUT.observed_table, Beliefs()).likelihood(logs)
    assert value == pytest.approx(np.logaddexp.reduce(weights), abs=1e-9)
    wanted = np.exp(weights - np.logaddexp.reduce(weights)) @ both
    np.testing.assert_allclose(gradient.ravel(), wanted, rtol=1e-8, atol=1e-12)
    drawn = posterior_of(OUTPUT.observed_table, Beliefs()).with_shares(logs).counts(4000, np.random.default_rng(1))
    np.testing.assert_allclose(drawn.reshape(-1, 6).mean(axis=0), wanted, atol=0.1)


def test_what_public_verbs_refuse():
    with pytest.raises(ArgumentError, match="Reshape it"):
        dirdp.mechanisms.MechanismOutput(SURVEY, ANSWERS.ravel(), prior=PRIOR.ravel(), n_records=12)
    with pytest.raises(ArgumentError, match="inference cannot combine them"):
        dirdp.mechanisms.MechanismOutput(SURVEY, np.stack([ANSWERS, ANSWERS]), prior=PRIOR, n_records=12)
    with pytest.raises(ArgumentError, match="Analyse each release separately"):
        dirdp.estimate(
            [OUTPUT, dirdp.mechanisms.MechanismOutput(SURVEY, 1.0 * ANSWERS[:, ::-1], prior=PRIOR, n_records=12)]
        )
    with pytest.raises(ArgumentError, match="row_prior"):
        dirdp.estimate(OUTPUT, row_prior=[1, 1], progressbar=False)
    with pytest.raises(ArgumentError, match="sum to 12 records"):
        dirdp.estimate(dirdp.mechanisms.MechanismOutput(SURVEY, ANSWERS, prior=PRIOR, n_records=6), progressbar=False)


def test_errors():
    seen = JointNoise([2, 2], 1.0, zero_sum=True).joint_likelihoods([3, 1, 2, 2])
    with pytest.raises(ArgumentError, match="priors for 2 tables, got 1"):
        JointTables(seen, [[1, 1]])
    with pytest.raises(ArgumentError, match=r"shape \(2,\), got \(3,\)"):
        JointTables(seen, [[1, 1], [1, 1, 1]])
    with pytest.raises(ArgumentError, match="integers"):
        JointTables(JointNoise([2], 1.0, zero_sum=True).joint_likelihoods([2.5, 1]), [[1, 1]])
    with pytest.raises(ArgumentError, match="larger epsilon"):
        JointTables(JointNoise([3], 100.0, zero_sum=True).joint_likelihoods([2, 1, 4]), [[1, 1, 1]])
    with pytest.raises(ArgumentError, match="No table of counts"):
        JointTables(JointNoise([2], 0.01, zero_sum=True).joint_likelihoods([20, -10]), [[1, 1]])


def test_what_one_table_says_of_the_noise_of_another_is_used():
    """A large noise in one table makes that of another likely to be large, so its counts are less certain."""
    first, second = ZeroSumJointTableMechanism.sharing(dirdp.PureDP(epsilon=1.0), [(np.ones(2), 1)] * 2)
    spreads = []
    for far in (0.0, 30.0):
        outputs = [np.array([50.0, 50.0]), np.array([20.0 + far, -far])]
        likelihood, _ = given_all_others([first, second], outputs, [np.ones(2), np.ones(2)])
        (first_cell, _), *_ = JointTables(likelihood, [np.ones(2)]).count_probabilities
        spreads.append(first_cell.mean_and_sd[1])
    assert spreads[1] > 2 * spreads[0]


# One table by its distance from noisy counts, up to this norm.
REACH = 9
SHELLS = {
    "three with priors of every strength": (True, [-6, 9, 4], [30.0, 1e4, 1e-3]),
    "one private": (False, [2], [3.0]),
    "three private with priors of every strength": (False, [-2, 9, 1], [30.0, 1e5, 1e-3]),
}


def falling(totals):
    return -0.3 * totals


def shells_by_enumeration(zero_sum, noisy, alpha, log_shares):
    """All tables up to the largest norm: their norms, counts and priors."""
    changes = np.array(list(itertools.product(range(-2 * REACH, 2 * REACH + 1), repeat=len(noisy))))
    norms = np.abs(changes).sum(axis=1) // (1 + zero_sum)
    counts = np.array(noisy) + changes
    possible = (norms <= REACH) & np.all(counts >= 0, axis=1) & ((changes.sum(axis=1) == 0) | (not zero_sum))
    norms, counts = norms[possible], counts[possible]
    totals = counts.sum(axis=1)
    logs = gammaln(totals + 1) - gammaln(counts + 1).sum(axis=1)
    if log_shares is None:
        size = alpha.sum()
        logs += gammaln(size) - gammaln(size + totals) + (gammaln(alpha + counts) - gammaln(alpha)).sum(axis=1)
    else:
        logs += np.where(counts > 0, counts * log_shares, 0.0).sum(axis=1)
    return norms, counts, logs if zero_sum else logs + falling(totals)


@pytest.mark.parametrize("are_known", [False, True])
@pytest.mark.parametrize("name", SHELLS)
def test_shells_totals_and_counts(name, are_known):
    zero_sum, noisy, alpha = SHELLS[name]
    alpha = np.array(alpha)
    log_shares = np.log(np.arange(1.0, len(noisy) + 1) / 7) if are_known else None
    block = BlockLikelihood(Ball(len(noisy), zero_sum), np.array(noisy, dtype=float), np.arange(REACH + 1))
    found = RadialPosterior(block, alpha, log_shares, falling)
    norms, counts, logs = shells_by_enumeration(zero_sum, noisy, alpha, log_shares)
    for norm in range(REACH + 1):
        inside = logs[norms <= norm]
        wanted = np.logaddexp.reduce(inside) if len(inside) else -math.inf
        assert found.log_inside[norm] == pytest.approx(wanted, abs=1e-9)
    # Weights of shells that fall with the norm.
    log_reach = -0.2 * np.arange(REACH + 1)
    posterior = np.exp(logs + log_reach[norms])
    weights = found.weights(log_reach)
    assert weights.sum() == pytest.approx(posterior.sum(), rel=1e-9)
    posterior /= posterior.sum()
    totals = found.totals(weights)
    wanted = [posterior[counts.sum(axis=1) == total].sum() for total in totals.numbers]
    np.testing.assert_allclose(totals.values, wanted, rtol=1e-8, atol=1e-300)
    for column, cell in zip(counts.T, found.marginals(weights), strict=True):
        wanted = [posterior[column == count].sum() for count in cell.numbers]
        np.testing.assert_allclose(cell.values, wanted, rtol=1e-7, atol=1e-14)
    drawn = found.draw(np.full(4000, REACH), np.random.default_rng(1))
    prior = np.exp(logs - np.logaddexp.reduce(logs))
    means, sds = prior @ counts, np.sqrt(prior @ counts**2 - (prior @ counts) ** 2)
    assert np.all(np.abs(drawn.mean(axis=0) - means) <= 6 * sds / math.sqrt(4000) + 1e-9)


def test_shells_refuse():
    block = BlockLikelihood(Ball(3, zero_sum=False), np.zeros(3), np.arange(1501))
    with pytest.raises(ArgumentError, match="larger epsilon"):
        RadialPosterior(BlockLikelihood(block.ball, block.noisy, np.arange(1502)), np.ones(3), None, None)
    with pytest.raises(ArgumentError, match=r"shape \(3,\), got \(2,\)"):
        RadialPosterior(block, np.ones(2), None, None)
    with pytest.raises(ArgumentError, match="integers"):
        RadialPosterior(BlockLikelihood(block.ball, np.full(3, 0.5), np.arange(9)), np.ones(3), None, None)
    wide = BlockLikelihood(Ball(300, zero_sum=False), np.zeros(300), np.arange(1501))
    with pytest.raises(ArgumentError, match="too many possible counts"):
        RadialPosterior(wide, np.ones(300), None, None)
