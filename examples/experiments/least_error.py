"""The least expected divergence that any mechanism reaches, for one table of two cells and a public size."""

import math

import numpy as np
from scipy import sparse
from scipy.optimize import linprog
from scipy.special import betaln, entr

# The search ends where a mechanism is known that errs so little more, relative or in nats.
_RTOL, _ATOL = 1e-5, 1e-12
_ROUNDS = 30
# Estimates that are closer to one another than this are taken for one; in units of `arcsin(sqrt(y))`.
_CLOSE = 1e-6
# How far the solver may be from what is asked for.
_TOLERANCE = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}


def least_error(epsilon, delta, prior, n):
    """The least `KL(x/N || y)` in nats of an output `y`, averaged over data sets that the prior predicts.

    Data sets of `n` records are neighbours if one record differs. No mechanism that is (epsilon, delta)-DP errs less,
    and one errs at most 1e-5 more, relative, or 1e-12 nats; the solver adds a rounding error of the same size. It takes
    a second for 40 records, and a minute for 100.

    The best output is the expected frequency given all that is released. If it is `m`, its expected divergence is the
    entropy of `m` less the expected entropy of the frequencies. The entropy is concave, so it is at least the least of
    its chords between any points, and with chords in its place the least error is that of a linear programme. What
    solves it is a mechanism, whose own error is an upper bound. Its outputs become further points, until both agree.
    """
    weights, size = _predicted(prior, n), 1.0
    points = np.linspace(0, math.pi / 2, 2 * n + 3)
    for _ in range(_ROUNDS):
        lower, joint = _programme(weights, points, math.exp(-epsilon), delta, size)
        mass = joint.sum(axis=0)
        seen = mass > _ATOL
        means = np.clip((np.arange(n + 1) / n @ joint)[seen] / mass[seen], 0, 1)
        upper = float(mass[seen] @ _entropy(means) - weights @ _entropy(np.arange(n + 1) / n))
        if upper - lower <= _RTOL * upper + _ATOL:
            break
        points, size = _with(points, np.arcsin(np.sqrt(means))), max(upper, _ATOL)
    return max(lower, 0.0)


def _predicted(prior, n):
    """Probabilities of the counts 0, ..., n of the first cell: Beta-binomial."""
    x = np.arange(n + 1)
    logs = betaln(x + prior[0], n - x + prior[1]) - betaln(x + 1, n - x + 1)
    mass = np.exp(logs - logs.max())
    return mass / mass.sum()


def _entropy(share):
    return entr(share) + entr(1 - share)


def _with(points, found):
    """The points with those that were found, in place of the points that are close to them."""
    found = np.unique(found[(found > _CLOSE) & (found < math.pi / 2 - _CLOSE)])
    found = found[np.diff(found, prepend=0.0) > _CLOSE]
    far = [point for point in points[1:-1] if np.abs(found - point).min(initial=math.inf) > _CLOSE]
    return np.concatenate([[0.0], np.sort([*found, *far]), [math.pi / 2]])


def _programme(weights, points, ratio, delta, size):
    """The least error with chords between the points, and the joint table of count and chord, shape (n + 1, chords).

    `points` are `arcsin(sqrt(y))` of the ends of the chords, rising from 0 to `pi / 2`; `ratio` is `exp(-epsilon)`, and
    `size` about how large the error is, so that the solver works with numbers near 1.
    """
    n, share = len(weights) - 1, np.sin(points) ** 2
    entropy = _entropy(share)
    slopes = np.diff(entropy) / np.diff(share)
    frequencies = np.arange(n + 1)[:, None] / n
    # The cost of an output is a chord at the frequency, less the entropy of the frequency, which no output changes.
    cost = weights[:, None] * (entropy[:-1] + slopes * (frequencies - share[:-1]) - _entropy(frequencies))
    chords, neighbours = len(slopes), 2 * n
    one, next_one = (sparse.diags_array(np.ones(n), offsets=k, shape=(n, n + 1)) for k in (0, 1))
    # Two neighbours p, q in both orders: ratio * p <= q + ratio * delta * excess, where the excesses add up to 1.
    each = sparse.eye_array(chords)
    exceeding = sparse.kron(sparse.vstack([ratio * one - next_one, ratio * next_one - one]), each)
    adding = sparse.kron(sparse.eye_array(neighbours), np.ones((1, chords)))
    none = sparse.csr_array((neighbours, cost.size))
    slack = -ratio * delta * sparse.eye_array(neighbours * chords)
    sums_to_one = sparse.kron(sparse.eye_array(n + 1), np.ones((1, chords)))
    found = linprog(
        np.concatenate([cost.ravel() / size, np.zeros(neighbours * chords)]),
        A_ub=sparse.vstack([sparse.hstack([exceeding, slack]), sparse.hstack([none, adding])]).tocsr(),
        b_ub=np.concatenate([np.zeros(neighbours * chords), np.ones(neighbours)]),
        A_eq=sparse.hstack([sums_to_one, sparse.csr_array((n + 1, neighbours * chords))]).tocsr(),
        b_eq=np.ones(n + 1),
        method="highs-ds",
        options=_TOLERANCE,
    )
    assert found.x is not None, found.message
    return float(found.fun) * size, weights[:, None] * found.x[: cost.size].reshape(cost.shape)
