"""The regret bound of docs/proofs/regret.md: each of its lemmas by numbers, and the bound beside simulated runs."""

import math

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.batch_release import BatchNoise
from pymc_dirdp.bandits.design import Design
from pymc_dirdp.bandits.simulation import divergence

GRID = (np.arange(4000) + 0.5) / 4000


def likelihood(batches, means, epsilon):
    noise = BatchNoise(1 / epsilon)
    return sum(noise.log_likelihood(z, n, means) for n, z in batches)


def random_batches(rng, epsilon):
    sizes = [4, 4, 8, 16][: rng.integers(1, 5)]
    return [(n, int(rng.integers(-2 * n, 3 * n))) for n in sizes]


@pytest.mark.parametrize("epsilon", [0.3, 4.0])
def test_a_likelihood_has_one_maximum_and_fills_its_share_of_the_line(epsilon):
    rng = np.random.default_rng(20261122)
    for _ in range(30):
        batches = random_batches(rng, epsilon)
        n, logs = sum(size for size, _ in batches), likelihood(batches, GRID, epsilon)
        slopes = np.sign(np.diff(logs))[np.abs(np.diff(logs)) > 1e-9]
        assert np.count_nonzero(np.diff(slopes)) <= 1
        assert (not len(slopes)) or slopes[0] >= slopes[-1]
        parts = np.exp(logs - logs.max())
        assert parts.mean() > 0.999 / (n + 1)
        for nu, y in ((0.3, 0.5), (0.6, 0.7), (0.05, 0.9)):
            # The mass above y, and below by the mirror; (N + 1) cannot be left out.
            ratio = np.exp(np.diff(likelihood(batches, np.array([nu, y]), epsilon))[0])
            assert parts[y < GRID].sum() / parts.sum() <= (n + 1) * ratio * 1.001
        nu, y = 0.7, 0.4
        of_nu = np.exp(likelihood(batches, np.array([nu]), epsilon)[0] - logs.max())
        assert parts[y < GRID].mean() >= 0.999 * of_nu * nu * (1 - (y / nu) ** (n + 1)) / (n + 1)


def upper_tail(n, delta, batches, epsilon):
    return math.exp(-2 * n * delta**2) + (4 / 3) ** batches * math.exp(-epsilon * n * delta / 2)


def rho(y, best, n, last, epsilon):
    """The bound of the expected odds against the best arm after n pulls, whose last batch has so many of them."""
    w = (y + best) / 2
    affinity = min(1.0, 2 * math.sqrt(upper_tail(last, (best - w) / 4, 1, epsilon)))
    return 2 * (n + 1) / (w * (1 - (y / w) ** (n + 1))) * affinity ** (2 / 3)


def pulls_bound(mean, best, epsilon, log_rounds, x, y):
    """The bound of the theorem for the pulls of one arm, and its first part, which rises with the rounds."""
    first = math.ceil(2 / epsilon)
    d = float(divergence(np.array(x), y, epsilon))

    def log_gamma(j):
        n = first * 2.0 ** (j - 1)
        return 1 + (j + 1) * math.log(n + 1) - n * d

    start = next(j for j in range(1, 200) if log_gamma(j) + log_rounds <= 0)
    bound = leading = first * 2.0 ** (start - 1)
    for j in range(start, start + 60):
        n = first * 2.0 ** (j - 1)
        bound += n * upper_tail(n, (x - mean) / 2, j, epsilon) + math.exp(log_gamma(j) + log_rounds)
    bound += first * y / (1 - y)
    for j in range(1, 60):
        n = first * 2.0 ** (j - 1)
        bound += n * rho(y, best, n, max(n / 2, first), epsilon)
    return bound, leading


def test_the_bound_is_above_simulated_runs_and_twice_the_lower_bound_in_the_end():
    best, mean, epsilon = 0.9, 0.2, 1.0
    design = Design(mechanism=BatchNoise(1 / epsilon), first_batch=math.ceil(2 / epsilon))
    runs = dirdp.simulate_bandit(design, [best, mean], 10**5, 50, random_seed=1, progressbar=False)
    bound, _ = pulls_bound(mean, best, epsilon, math.log(1e5), 0.3, 0.8)
    assert 1 < runs.pulls[:, 1].mean() < bound
    # Means that are nearly those of the arms: all that rises with the rounds is a batch of at most twice the size.
    x, y = 0.201, 0.899
    least = 1 / float(divergence(np.array(mean), best, epsilon))
    ratios = [pulls_bound(mean, best, epsilon, log_t, x, y)[1] / log_t for log_t in np.geomspace(1e5, 2e5, 40)]
    assert max(ratios) < 2.05 * least
    assert min(ratios) > 0.95 * least
    bounds = [pulls_bound(mean, best, epsilon, log_t, x, y) for log_t in (1e5, 1e9)]
    # What is left is a constant: it does not rise with the rounds.
    rest = [bound - leading for bound, leading in bounds]
    assert rest[1] <= rest[0] + 1 < math.inf
