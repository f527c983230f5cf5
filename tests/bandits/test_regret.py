"""The regret bound of docs/proofs/regret.md: each of its lemmas by numbers, and the bound beside simulated runs."""

import csv
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.batch_release import BatchNoise
from pymc_dirdp.bandits.design import Design
from pymc_dirdp.bandits.simulation import divergence

ARMS = {"A": (0.75, 0.625, 0.5, 0.375, 0.25), "B": (0.75, 0.7, 0.7, 0.7, 0.7)}
GRID = (np.arange(4000) + 0.5) / 4000


def likelihood(batches, means, epsilon):
    noise = BatchNoise(1 / epsilon)
    return sum(noise.log_likelihood(z, n, means) for n, z in batches)


def random_batches(rng, epsilon):
    sizes = [4, 4, 8, 16][: rng.integers(1, 5)]
    return [(n, int(rng.integers(-2 * n, 3 * n))) for n in sizes]


def test_the_variance_of_a_binomial_number_with_a_log_concave_weight():
    rng = np.random.default_rng(20261122)
    for _ in range(300):
        n = int(rng.integers(2, 30))
        s = np.arange(n + 1)
        binomial = gammaln(n + 1) - gammaln(s + 1) - gammaln(n - s + 1)
        weights = np.cumsum(np.concatenate([[0], -np.sort(rng.normal(0, 2, n))]))
        for log_w, holds in ((weights, True), (-3 * np.abs(weights) + 0.4 * (s - n / 2) ** 2, False)):
            p = np.exp(binomial + log_w - np.logaddexp.reduce(binomial + log_w))
            mean = p @ s
            excess = p @ (s - mean) ** 2 - mean * (1 - mean / n)
            assert excess < 1e-9 or not holds
    # A weight that is not log-concave: the two ends.
    p = np.array([0.5, 0, 0, 0.5])
    assert p @ (np.arange(4) - 1.5) ** 2 > 1.5 * (1 - 0.5)


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


def distribution_of_noise(epsilon, reach):
    k = np.arange(-reach, reach + 1)
    return np.tanh(epsilon / 2) * np.exp(-epsilon * np.abs(k))


def distribution_of_sum(n, mean, batches, epsilon, reach=150):
    """Of the sum of all outputs, from -batches * reach on."""
    distribution = stats.binom(n, mean).pmf(np.arange(n + 1))
    for _ in range(batches):
        distribution = np.convolve(distribution, distribution_of_noise(epsilon, reach))
    return np.arange(len(distribution)) - batches * reach, distribution


def upper_tail(n, delta, batches, epsilon):
    return math.exp(-2 * n * delta**2) + (4 / 3) ** batches * math.exp(-epsilon * n * delta / 2)


@pytest.mark.parametrize(("epsilon", "batches"), [(0.3, 3), (1.0, 2)])
def test_the_tails_of_a_sum_of_outputs(epsilon, batches):
    for n in (16, 64):
        z, distribution = distribution_of_sum(n, 0.3, batches, epsilon)
        for delta in (0.05, 0.1, 0.2):
            assert distribution[z > n * (0.3 + 2 * delta)].sum() <= upper_tail(n, delta, batches, epsilon)
        z, distribution = distribution_of_sum(n, 0.6, batches, epsilon)
        for x in (0.1, 0.3, 0.5):
            bound = math.e * (n + 1) ** batches * math.exp(-n * divergence(np.array(x), 0.6, epsilon))
            assert distribution[z <= n * x].sum() <= bound
    # Without privacy's part the second tail is too small to hold.
    z, distribution = distribution_of_sum(256, 0.6, 1, 0.3)
    assert distribution[z <= 25.6].sum() > math.e * 257 * math.exp(-256 * divergence(np.array(0.1), 0.6, np.inf))


def rho(y, best, n, last, epsilon):
    """The bound of the expected odds against the best arm after n pulls, whose last batch has so many of them."""
    w = (y + best) / 2
    affinity = min(1.0, 2 * math.sqrt(upper_tail(last, (best - w) / 4, 1, epsilon)))
    return 2 * (n + 1) / (w * (1 - (y / w) ** (n + 1))) * affinity ** (2 / 3)


@pytest.mark.parametrize(("sizes", "epsilon"), [((30,), 2.0), ((6, 6), 1.0)])
def test_the_odds_against_the_best_arm(sizes, epsilon):
    """By all outputs: the bound is one, and it falls where the last batch is large."""
    y, best, reach, total = 0.4, 0.9, 20, 0.0
    for outputs in itertools.product(*(range(-reach, n + reach) for n in sizes)):
        logs = likelihood(list(zip(sizes, outputs, strict=True)), np.append(GRID[::20], best), epsilon)
        parts = np.exp(logs[:-1] - logs[:-1].max())
        total += math.exp(logs[-1]) * parts[GRID[::20] <= y].sum() / parts[GRID[::20] > y].sum()
    assert 0 < total < rho(y, best, sum(sizes), sizes[-1], epsilon)


def test_the_bound_of_the_odds_falls_like_an_exponential():
    found = [rho(0.4, 0.9, 2 * n, n, 1.0) for n in (10**4, 2 * 10**4, 4 * 10**4)]
    assert found[2] < found[1] ** 1.5 < 1e-4


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


def test_the_table_of_the_page_is_that_of_the_simulated_runs():
    root = Path(__file__).resolve().parents[2]
    page = (root / "docs" / "proofs" / "regret.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| [AB]", line)]
    text = (root / "tests" / "benchmarks" / "bandit_rivals.csv").read_text(encoding="utf-8")
    runs = [row for row in csv.DictReader(text.splitlines()) if row["policy"].startswith("private Thompson")]
    assert len(rows) == 10
    for means, epsilon, *found in rows:
        ours = [row for row in runs if row["means"] == means[0] and float(row["epsilon"]) == float(epsilon)]
        expected = [float(row["median"]) / math.log(int(row["horizon"])) for row in ours]
        lower = dirdp.bandits.bandit_lower_bound(ARMS[means[0]], float(epsilon))
        assert [f"{number:.1f}" for number in (*expected, 2 * lower, lower)] == found
