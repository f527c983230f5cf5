"""The prior of a table by its distance from noisy counts, against sums over all tables."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import gammaln

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.shells import Shells
from pymc_dirdp.inference.tree import Spread
from pymc_dirdp.mechanisms.outputs import BlockLikelihood
from pymc_dirdp.numerics.balls import Ball

MOST = 9
CASES = {
    "pair": (True, [4, -1], [1.0, 0.3]),
    "three": (True, [3, -2, 6], [1.0, 0.3, 2.0]),
    "three with priors of every strength": (True, [-6, 9, 4], [30.0, 1e4, 1e-3]),
    "one private": (False, [2], [3.0]),
    "two private": (False, [4, -3], [1.0, 0.3]),
    "three private with priors of every strength": (False, [-2, 9, 1], [30.0, 1e5, 1e-3]),
}


def log_numbers(totals):
    return -0.3 * totals


def by_enumeration(zero_sum, noisy, alpha, log_shares):
    """All tables up to the largest norm: their norms, counts and priors."""
    changes = np.array(list(itertools.product(range(-2 * MOST, 2 * MOST + 1), repeat=len(noisy))))
    norms = np.abs(changes).sum(axis=1) // (1 + zero_sum)
    counts = np.array(noisy) + changes
    possible = (norms <= MOST) & np.all(counts >= 0, axis=1) & ((changes.sum(axis=1) == 0) | (not zero_sum))
    norms, counts = norms[possible], counts[possible]
    totals = counts.sum(axis=1)
    logs = gammaln(totals + 1) - gammaln(counts + 1).sum(axis=1)
    if log_shares is None:
        size = alpha.sum()
        logs += gammaln(size) - gammaln(size + totals) + (gammaln(alpha + counts) - gammaln(alpha)).sum(axis=1)
    else:
        logs += np.where(counts > 0, counts * log_shares, 0.0).sum(axis=1)
    return norms, counts, logs if zero_sum else logs + log_numbers(totals)


@pytest.mark.parametrize("are_known", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_shells_totals_and_counts(name, are_known):
    zero_sum, noisy, alpha = CASES[name]
    alpha = np.array(alpha)
    log_shares = np.log(np.arange(1.0, len(noisy) + 1) / 7) if are_known else None
    block = BlockLikelihood(Ball(len(noisy), zero_sum), np.array(noisy, dtype=float), np.arange(MOST + 1))
    found = Shells.of(block, alpha, log_shares, log_numbers)
    norms, counts, logs = by_enumeration(zero_sum, noisy, alpha, log_shares)
    for norm in range(MOST + 1):
        inside = logs[norms <= norm]
        wanted = np.logaddexp.reduce(inside) if len(inside) else -math.inf
        assert found.log_inside[norm] == pytest.approx(wanted, abs=1e-9)
    # Weights of shells that fall with the norm.
    log_reach = -0.2 * np.arange(MOST + 1)
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
    drawn = found.draw(np.full(4000, MOST), np.random.default_rng(1))
    prior = np.exp(logs - np.logaddexp.reduce(logs))
    means, sds = prior @ counts, np.sqrt(prior @ counts**2 - (prior @ counts) ** 2)
    assert np.all(np.abs(drawn.mean(axis=0) - means) <= 6 * sds / math.sqrt(4000) + 1e-9)


def test_functions_of_a_private_total():
    """What the moments of shares are made of: expectations of a function of the total for each count."""
    noisy, alpha = [4, 1], np.array([1.0, 0.3])
    block = BlockLikelihood(Ball(2, zero_sum=False), np.array(noisy, dtype=float), np.arange(MOST + 1))
    found = Shells.of(block, alpha, None, None)
    weights = found.weights(np.zeros(MOST + 1))
    total = found.totals(weights)
    given = found.given(weights, Spread(total.low, np.stack([total.values, total.values / (1 + total.numbers)])))
    _, counts, logs = by_enumeration(False, noisy, alpha, None)
    logs = logs - log_numbers(counts.sum(axis=1))
    posterior = np.exp(logs - np.logaddexp.reduce(logs))
    for column, cell in zip(counts.T, given, strict=True):
        for count, value in zip(cell.numbers, cell.values[1], strict=True):
            wanted = posterior[column == count] @ (1 / (1 + counts[column == count].sum(axis=1)))
            assert value == pytest.approx(wanted, rel=1e-9, abs=1e-15)


def test_what_is_refused():
    block = BlockLikelihood(Ball(3, zero_sum=False), np.zeros(3), np.arange(1501))
    with pytest.raises(ArgumentError, match="larger epsilon"):
        Shells.of(BlockLikelihood(block.ball, block.noisy, np.arange(1502)), np.ones(3), None, None)
    with pytest.raises(ArgumentError, match=r"shape \(3,\), got \(2,\)"):
        Shells.of(block, np.ones(2), None, None)
    with pytest.raises(ArgumentError, match="integers"):
        Shells.of(BlockLikelihood(block.ball, np.full(3, 0.5), np.arange(9)), np.ones(3), None, None)
    wide = BlockLikelihood(Ball(300, zero_sum=False), np.zeros(300), np.arange(1501))
    with pytest.raises(ArgumentError, match="too many possible counts"):
        Shells.of(wide, np.ones(300), None, None)
