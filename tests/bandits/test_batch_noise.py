"""The loss of a run is that of one noisy sum, by all transcripts of short runs; and posteriors on a grid."""

import itertools
import math
from functools import cache

import mpmath
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import binom

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.batch_release import BatchNoise, log_probability
from pymc_dirdp.bandits.beliefs import CELLS, Belief, Grid, best_probabilities, expected_losses
from pymc_dirdp.bandits.design import Design
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.sampling.bits import Bits

GUARANTEE = dirdp.PureDP(epsilon=1.0)
NOISE, TWICE = BatchNoise.for_guarantee(GUARANTEE), BatchNoise(2.0)
MEANS = np.array([1e-9, 1e-3, 0.01, 0.3, 0.5, 0.77, 0.99, 1 - 1e-7])


@pytest.mark.parametrize("first_batch", [1, 2])
def test_a_batch_outputs_the_sum_of_its_own_rewards(monkeypatch, first_batch):
    """The real sampler without noise, beside the rule that is enumerated below."""
    monkeypatch.setattr(BatchNoise, "release", lambda self, counts, bits: counts[1])
    bandit, rng = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, first_batch=first_batch), np.random.default_rng(1)
    opened, expected = {"a": [], "b": []}, {"a": [], "b": []}
    for arm, reward in zip(rng.choice(["a", "b"], 60), rng.integers(0, 2, 60), strict=True):
        bandit.update(str(arm), int(reward))
        opened[arm].append(reward)
        seen = sum(size for size, _ in expected[arm])
        if len(opened[arm]) == max(first_batch, seen):
            expected[arm].append((len(opened[arm]), sum(opened[arm])))
            opened[arm] = []
    assert [list(batches) for batches in bandit._run.state.released] == list(expected.values())


@cache
def chances(histories):
    return best_probabilities(np.stack([Belief((1.0, 1.0), NOISE, one).weights for one in histories]))


def all_arms(histories, opened):
    return [0, 1]


def by_outputs(histories, opened):
    """A new arm after the first release; the arm of a release below 1 goes."""
    finished = [arm for arm, one in enumerate(histories) if one]
    going = {arm for arm in finished if histories[arm][0][1] < 1}
    return sorted({0, 1} | ({2} if finished else set()) - going) or [2]


def by_open_batches(histories, opened):
    """The same, and an arm goes because of a reward that nobody has seen."""
    arms = by_outputs(histories, opened)
    return [arm for arm in arms if opened[arm][:2] != (1, 0)] or arms


def log_output(z, total, most):
    """Logarithm of the probability of an output. -1 and `most` + 1 stand for all beyond, which have the same ratio."""
    q = math.exp(-1 / NOISE.scale)
    if -1 < z <= most:
        return math.log((1 - q) / (1 + q)) + abs(z - total) * math.log(q)
    return (total + 1 if z == -1 else most + 1 - total) * math.log(q) - math.log1p(q)


def distribution_of_run(rewards, rule, first_batch, *, early=False, cumulative=False):
    """Logarithms of the probabilities of all transcripts: the sets of arms, choices and releases.

    Two mutants: a success ends its batch `early`, or sums are `cumulative`.
    """
    design, distribution = Design(mechanism=NOISE, first_batch=first_batch), {}

    def play(done, log_p, histories, opened, seen):
        if done == len(rewards):
            distribution[seen] = np.logaddexp(distribution.get(seen, -np.inf), log_p)
            return
        arms = rule(histories, opened)
        for arm, chance in zip(arms, chances(tuple(histories[one] for one in arms)), strict=True):
            pulls, total, earlier = opened[arm][0] + 1, opened[arm][1] + rewards[done], opened[arm][2]
            size = design.next_size(sum(n for n, _ in histories[arm]))
            ends = pulls == size or (early and total)
            most = len(rewards) if cumulative else pulls
            for z in range(-1, most + 2) if ends else (None,):
                now, left, log_z = list(histories), list(opened), 0.0
                left[arm] = (pulls, total, earlier)
                if z is not None:
                    log_z = log_output(z, earlier + total, most)
                    now[arm] = (*histories[arm], (pulls, min(z, pulls + 1)))
                    left[arm] = (0, 0, earlier + total if cumulative else 0)
                play(done + 1, log_p + math.log(chance) + log_z, tuple(now), tuple(left), (*seen, tuple(arms), arm, z))

    play(0, 0.0, ((), (), ()), ((0, 0, 0),) * 3, ())
    assert math.fsum(map(math.exp, distribution.values())) == pytest.approx(1, abs=1e-9)
    return distribution


def largest_loss(rule, rounds, first_batch, **mutant):
    """The largest loss over all transcripts and all pairs of tables that differ in one reward.

    What the arms that are not chosen would have given changes nothing, so the rewards of the chosen ones are a table.
    """
    distributions = {
        rewards: distribution_of_run(rewards, rule, first_batch, **mutant)
        for rewards in itertools.product((0, 1), repeat=rounds)
    }
    worst = 0.0
    for rewards, p in distributions.items():
        for t in np.flatnonzero(np.array(rewards) == 0):
            other = distributions[(*rewards[:t], 1, *rewards[t + 1 :])]
            if p.keys() != other.keys():
                return math.inf
            worst = max(worst, max(abs(p[key] - other[key]) for key in p))
    return worst


@pytest.mark.parametrize(
    ("rule", "rounds", "first_batch"),
    [
        (all_arms, 3, 1),
        (all_arms, 4, 2),
        (by_outputs, 4, 2),
        pytest.param(all_arms, 4, 1, marks=pytest.mark.thorough),
        pytest.param(by_outputs, 5, 2, marks=pytest.mark.thorough),
    ],
)
def test_a_whole_run_loses_what_one_release_loses(rule, rounds, first_batch):
    """Also if arms come and go, as long as outputs alone decide it."""
    assert largest_loss(rule, rounds, first_batch) == pytest.approx(NOISE.pure_epsilon, abs=1e-9)


def test_other_rules_lose_more():
    assert largest_loss(all_arms, 3, 2, early=True) > 1.5
    assert largest_loss(all_arms, 3, 1, cumulative=True) > 1.5
    assert largest_loss(by_open_batches, 4, 2) > 2 * NOISE.pure_epsilon


def test_the_noise_is_the_least_that_keeps_the_guarantee():
    pure = dirdp.PureDP(epsilon=0.5)
    approximate, renyi = dirdp.ApproxDP(epsilon=0.5, delta=1e-6), dirdp.RenyiDP(epsilon=0.1, order=4)
    for guarantee in (pure, approximate, renyi, dirdp.ZeroCDP(rho=0.1)):
        noise = BatchNoise.for_guarantee(guarantee)
        assert noise.satisfies(guarantee)
        assert not BatchNoise(noise.scale * (1 - 1e-9)).satisfies(guarantee)
        assert BatchNoise.for_guarantee(guarantee, rewards=3).satisfies(guarantee)
    for rewards in (1, 3):
        assert BatchNoise.for_guarantee(pure, rewards=rewards).scale == pytest.approx(2 * rewards, rel=1e-9)


def test_the_noise_has_its_scale_and_no_other():
    """By chance this fails once in a million runs, and scales that are wrong by 30 per cent are always found."""
    bits, noise, rng, reach = Bits(), BatchNoise(2.0), np.random.default_rng(1), 12
    for draw in (lambda: noise.release((5, 5), bits), lambda: noise.simulated((5, 5), rng)):
        drawn = np.clip([draw() - 5 for _ in range(2500)], -reach - 1, reach + 1)
        seen = np.bincount(drawn + reach + 1, minlength=2 * reach + 3)
        for scale, fits in ((2.0, True), (1.4, False), (2.6, False)):
            q = math.exp(-1 / scale)
            inside = [(1 - q) / (1 + q) * q ** abs(g) for g in range(-reach, reach + 1)]
            beyond = q ** (reach + 1) / (1 + q)
            assert (stats.chisquare(seen, np.array([beyond, *inside, beyond]) * 2500).pvalue > 1e-6) == fits


def test_its_curves_are_those_of_one_cell_of_geometric_noise():
    noise, q, g = BatchNoise(2.0), math.exp(-0.5), np.arange(-200, 201)
    p, shifted = ((1 - q) / (1 + q) * q ** np.abs(g - shift) for shift in (0, 1))
    for epsilon in (0.0, 0.2, 0.4):
        assert noise.delta(epsilon) == pytest.approx(np.maximum(p - math.exp(epsilon) * shifted, 0).sum(), rel=1e-12)
    assert noise.renyi(3) == pytest.approx(np.log((p**3 / shifted**2).sum()) / 2, rel=1e-12)


def summed(z, n, mu, scale):
    x = np.arange(n + 1)[:, None]
    return logsumexp(binom.logpmf(x, n, mu) - np.abs(z - x) / scale, axis=0) + np.log(np.tanh(0.5 / scale))


def test_the_closed_form_is_the_sum():
    for scale, n in itertools.product([1000, 10, 1, 0.3, 0.05], [0, 1, 2, 5, 97]):
        for z in sorted({-3 * n, -1, 0, 1, n // 3, n - 1, n, n + 1, 4 * n}):
            expected = summed(z, n, MEANS, scale)
            assert log_probability(z, n, MEANS, scale) == pytest.approx(expected, rel=1e-12, abs=1e-12), (z, n, scale)


def test_far_from_every_likely_count_the_logarithm_keeps_its_digits():
    """Both halves are below the least double in the first two, and one in the others. Oracle: 60 digits."""
    for z, n, mu, scale in ((2999, 3000, 0.01, 3), (-5, 2000, 0.99, 3), (100, 1000, 0.1, 0.3), (300, 800, 0.001, 0.1)):
        with mpmath.workdps(60):
            p, q = mpmath.mpf(mu), mpmath.exp(-1 / mpmath.mpf(scale))
            terms = (mpmath.binomial(n, x) * p**x * (1 - p) ** (n - x) * q ** abs(z - x) for x in range(n + 1))
            expected = float(mpmath.log(mpmath.fsum(terms) * (1 - q) / (1 + q)))
        assert log_probability(z, n, [mu], scale)[0] == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("z", [-2, 0, 7, 12, 20])
def test_the_slope_of_a_batch_is_that_of_the_sum(z):
    n, scale, mu = 12, 1.7, np.array([0.05, 0.3, 0.9])
    mechanism, x = BatchNoise(scale), np.arange(n + 1)[:, None]
    weights = np.exp(binom.logpmf(x, n, mu) - np.abs(z - x) / mechanism.scale)
    score = x / mu - (n - x) / (1 - mu)
    assert mechanism.slope(z, n, mu) == pytest.approx((weights * score).sum(axis=0) / weights.sum(axis=0), rel=1e-10)
    assert mechanism.slope(z, 0, mu) == pytest.approx([0, 0, 0])
    assert mechanism.log_likelihood(z, n, mu) == pytest.approx(summed(z, n, mu, mechanism.scale), rel=1e-12)
    for wrong in ([0.0], [1.0], [0.5, np.nan]):
        with pytest.raises(ArgumentError, match="strictly between 0 and 1"):
            log_probability(1, 3, wrong, 1.0)


@pytest.mark.parametrize("prior", [(0.05, 0.05), (300.0, 2.0), (0.5, 4000.0)])
def test_prior_masses_are_those_of_the_beta_distribution(prior):
    belief = Belief(prior, TWICE)
    lower = stats.beta(*prior).cdf(np.sin(belief.grid.angles) ** 2)
    upper = stats.beta(*prior[::-1]).cdf(np.sin(np.pi / 2 - belief.grid.angles) ** 2)
    assert belief.cdf == pytest.approx(np.where(belief.grid.angles < 1, lower, 1 - upper), abs=1e-12)
    assert belief.weights.shape == (CELLS,)


def test_tails_of_the_prior_keep_their_digits_where_the_mass_is_elsewhere():
    low, high = Grid(1.2, 1.5), Belief((2.0, 3000.0), TWICE).grid
    logs = low.log_prior((2.0, 3000.0))
    middle = low.means
    expected = 1.5 * np.log(middle) + 2999.5 * np.log1p(-middle)
    assert np.ptp((logs - expected)[:1500]) < 0.1
    assert np.isfinite(high.log_prior((2.0, 3000.0))).all()


@pytest.mark.parametrize("batches", [((5, 3),), ((5, 9), (10, -4)), ((3, 1), (300, 2), (3000, 40))])
def test_means_are_those_of_quadrature(batches):
    belief = Belief((1.0, 2.0), TWICE, batches).narrowed()

    def density(mu):
        logs = sum(log_probability(z, n, [mu], TWICE.scale)[0] for n, z in batches)
        return np.exp(logs - top) * (1 - mu)

    grid = np.linspace(1e-4, 1 - 1e-4, 3000)
    top = sum(log_probability(z, n, grid, TWICE.scale) for n, z in batches).max()
    low, high = np.sin(belief.grid.low) ** 2, np.sin(belief.grid.high) ** 2
    whole = quad(density, low, high, limit=500, epsabs=0)[0]
    mean = quad(lambda mu: mu * density(mu), low, high, limit=500, epsabs=0)[0] / whole
    assert belief.mean == pytest.approx(mean, rel=2e-6)


def test_a_narrow_posterior_gets_a_fine_grid():
    draws = Belief((1.0, 1.0), TWICE, ((10**8, 3 * 10**7),)).narrowed().draw(4000, np.random.default_rng(1))
    assert stats.kstest(draws, stats.norm(0.3, np.sqrt(0.3 * 0.7 / 1e8)).cdf).pvalue > 1e-6
    assert draws.std() == pytest.approx(np.sqrt(0.3 * 0.7 / 1e8), rel=0.06)


def test_the_best_arm_is_that_of_draws():
    beliefs = [Belief((1.0, 1.0), TWICE, one) for one in (((10, 6),), ((10, 5), (10, 9)), ())]
    draws = np.stack([one.draw(50_000, np.random.default_rng(k)) for k, one in enumerate(beliefs)])
    seen = np.bincount(draws.argmax(axis=0), minlength=3) / draws.shape[1]
    on_one_grid = best_probabilities(np.stack([one.weights for one in beliefs]))
    best, losses = expected_losses([one.narrowed() for one in beliefs])
    assert on_one_grid == pytest.approx(seen, abs=0.01)
    assert best == pytest.approx(on_one_grid, abs=1e-5)
    assert losses == pytest.approx(draws.max(axis=0).mean() - draws.mean(axis=1), abs=0.004)


@pytest.mark.parametrize("batches", [((50, 20), (50, 90), (400, 100)), ((10**4, 4000), (10**4, 9000))])
def test_one_batch_after_the_other_gives_the_same_posterior(batches):
    belief = Belief((1.0, 1.0), TWICE)
    for size, released in batches:
        belief = belief.and_batch(size, released)
    at_once = Belief((1.0, 1.0), TWICE, batches).narrowed()
    assert belief.batches == at_once.batches
    assert belief.mean == pytest.approx(at_once.mean, rel=1e-6)
