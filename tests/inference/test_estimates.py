"""Intervals against sums over all counts, and against draws."""

import numpy as np
import pytest
from scipy.special import betainc

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.estimates import RowGiven
from pymc_dirdp.inference.rows import RowPosterior

from . import goldens
from .posteriors import LIKELIHOODS, brute_force, dirichlet, draw, estimate, row, simulated


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_against_brute_force(name):
    posterior = row(name)
    found = estimate(posterior, prob=[0.5, 0.9])
    tables, logs, evidence = brute_force(posterior)
    mass, a0 = np.exp(logs), posterior.alpha.sum() + 12
    means = (posterior.alpha + mass @ tables) / a0
    squares = mass @ ((posterior.alpha + tables) * (posterior.alpha + tables + 1)) / (a0 * (a0 + 1))
    np.testing.assert_allclose(found.share_means, means, atol=1e-12)
    np.testing.assert_allclose(found.share_sds, np.sqrt(squares - means**2), atol=1e-9)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-10)
    for m, prob in enumerate(found.prob):
        for end, level in enumerate([(1 - prob) / 2, (1 + prob) / 2]):
            for i in range(3):
                a = posterior.alpha[i] + tables[:, i]
                q = found.share_intervals[m, i, end]
                below = mass @ betainc(a, a0 - a, q)
                # A share of a cell that is probably empty is 0 to all digits of a double.
                assert below == pytest.approx(level, abs=1e-8) or (q == 0 and mass @ betainc(a, a0 - a, 1e-290) > level)
                k = found.count_intervals[m, i, end]
                assert mass @ (tables[:, i] <= k) >= level - 1e-12
                assert mass @ (tables[:, i] < k) < level


@pytest.mark.parametrize(
    ("d", "total", "r", "alpha"),
    [(10, 10_000, 0.02, 1.0), (30, 1000, 0.5, 0.2), (3, 100_000, 1e-3, 1.0), (2, 10**6, 0.01, 1)],
)
def test_intervals_are_those_of_draws(d, total, r, alpha):
    """Wide and narrow distributions of the counts, at the ends of the shares and inside."""
    rng = np.random.default_rng(d)
    _, x = simulated(d, total, alpha, rng)
    y = np.maximum(rng.dirichlet(r * x + 1), 1e-300)
    posterior = RowPosterior(alpha=np.full(d, alpha), total=total, log_likelihood=dirichlet(y, r, np.ones(d)))
    found, drawn = estimate(posterior, prob=[0.6]), draw(posterior, 20_000, rng)
    for intervals, sample in ((found.share_intervals, drawn.shares), (found.count_intervals, drawn.counts)):
        below = (sample <= intervals[0, :, 0]).mean(axis=0)
        above = (sample <= intervals[0, :, 1]).mean(axis=0)
        discrete = (sample == intervals[0, :, 0]).mean(axis=0) + (sample == intervals[0, :, 1]).mean(axis=0)
        assert np.all(np.abs(below - 0.2) < 0.018 + discrete)
        assert np.all(np.abs(above - 0.8) < 0.018 + discrete)


def test_probabilities_are_checked():
    for prob in ([], [0.0], [1.0], [2]):
        with pytest.raises(ArgumentError, match="prob"):
            estimate(row("dirichlet"), prob=prob)


@pytest.mark.parametrize(
    ("kind", "d", "n", "width", "is_smooth"),
    [
        ("discrete gaussian", 2, 3000, 30, True),
        ("discrete gaussian", 3, 3000, 10, True),
        ("geometric", 3, 1000, 8, False),
    ],
)
def test_pairs_a_step_apart_stand_for_all_where_noise_is_smooth(kind, d, n, width, is_smooth, monkeypatch):
    """Quantiles of shares against those of all pairs of counts and totals; where there are kinks, all are taken."""
    case, prob, used, grid = (kind, (d,), n, width, 1.0, True), [0.5, 0.999], [], RowGiven._grid

    def noted(self, *given):
        used.append(grid(self, *given))
        return used[-1]

    monkeypatch.setattr(RowGiven, "_grid", noted)
    found = goldens.posterior_of_case(*case).estimate(prob)["t0"]
    few = found.share_intervals
    pairs = [None if one is None else one[2].size for one in used]
    assert all(one is not None and one < 5000 for one in pairs) == is_smooth
    assert all(one is None for one in pairs) != is_smooth
    monkeypatch.setattr(RowGiven, "_grid", lambda *given: None)
    monkeypatch.setattr("pymc_dirdp.inference.estimates._ALL_PAIRS", 10**8)
    monkeypatch.setattr("pymc_dirdp.inference.estimates._MOST_PAIRS", 10**8)
    every = goldens.posterior_of_case(*case).estimate(prob)["t0"].share_intervals
    assert np.abs(few - every).max() < 1e-6 * found.share_sds.min()
    # Steps that are twice as long would be seen: their masses do not add up.
    if is_smooth:
        monkeypatch.setattr(RowGiven, "_grid", noted)
        monkeypatch.setattr("pymc_dirdp.inference.estimates._STEP", 2.8)
        used.clear()
        assert len(goldens.posterior_of_case(*case).estimate(prob)["t0"].share_intervals) == 2
        assert used == [None] * d
