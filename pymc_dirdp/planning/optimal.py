"""The least expected error of all private mechanisms, whatever they do: a linear programme for tables of two cells."""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, entr

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer, positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.guarantees import Guarantee

__all__ = ["optimal_error"]

# A programme for so many records takes up to a minute, and its time grows with their fourth power.
_MOST_RECORDS = 100
# The search ends where a mechanism is known that errs so little more, relative or in nats.
_RTOL, _ATOL = 1e-5, 1e-12
_ROUNDS = 30
# Estimates that are closer to one another than this are taken for one; in units of `arcsin(sqrt(y))`.
_CLOSE = 1e-6
# How far the solver may be from what is asked for.
_TOLERANCE = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}


def optimal_error(guarantee: Guarantee, *, prior: ArrayLike, n_records: int) -> float:
    """The least expected divergence that any mechanism reaches, for one table of two cells and a public size.

    The divergence is `KL(x/N || y)`, of the output from the frequencies in the data, averaged over data sets that
    the prior predicts: the measure of :func:`pymc_dirdp.expected_error` with `objective="estimate"`. Two data sets of
    `n_records` records are neighbours if one record differs.

    Parameters
    ----------
    guarantee : PureDP or ApproxDP
        What the mechanism has to keep. Bounds on Rényi divergences are no linear constraints.
    prior : array_like, shape (2,)
        The model's own prior, positive.
    n_records : int
        The public number of records, from 1 to 100. The programme takes a second for 40 records, and up to a minute
        for 100.

    Returns
    -------
    error : float
        In nats. No mechanism errs less, and one errs at most 1e-5 more, relative, or 1e-12 nats; the solver adds a
        rounding error of the same size.

    Raises
    ------
    ArgumentError
        If an argument is outside its domain.

    Notes
    -----
    The best output is the expected frequency given all that is released. If it is `m`, its expected divergence is the
    entropy of `m` less the expected entropy of the frequencies. The entropy is concave, so it is at least the least of
    its chords between any points, and with chords in its place the least error is that of a linear programme. What
    solves it is a mechanism, whose own error is an upper bound. Its outputs become further points, until both agree.

    References
    ----------
    Ghosh, Roughgarden and Sundararajan (2012), Universally utility-maximizing privacy mechanisms,
    https://doi.org/10.1137/09076828X: for `PureDP` geometric noise is the optimum of every error that grows with the
    distance of counts. It was that of this divergence, too, wherever both were computed.

    Examples
    --------
    >>> from pymc_dirdp import PureDP
    >>> round(optimal_error(PureDP(epsilon=1.0), prior=[1, 1], n_records=10), 6)
    0.048812
    """
    parameters = positive_array(prior=prior)
    delta = Guarantee.checked(guarantee=guarantee).stated_delta
    if delta is None:
        raise ArgumentError(
            "The optimum is computed for PureDP and ApproxDP. That of an (epsilon, delta) which follows from your "
            "guarantee is a lower bound: dirdp.privacy.convert(guarantee, dirdp.ApproxDP, delta=1e-6)."
        )
    if parameters.shape != (2,):
        raise ArgumentError(f"The optimum is computed for a prior of shape (2,), got shape {parameters.shape}.")
    n = integer(1, n_records=n_records)
    if n > _MOST_RECORDS:
        raise ArgumentError(
            f"The optimum is computed for up to {_MOST_RECORDS} records. Take fewer; or mechanism='geometric' with "
            "dirdp.estimate, which for PureDP reached it wherever it was computed."
        )
    weights, size = _predicted(parameters, n), 1.0
    points = np.linspace(0, math.pi / 2, 2 * n + 3)
    for _ in range(_ROUNDS):
        lower, joint = _programme(weights, points, math.exp(-guarantee.budget), delta, size)
        mass = joint.sum(axis=0)
        seen = mass > _ATOL
        means = np.clip((np.arange(n + 1) / n @ joint)[seen] / mass[seen], 0, 1)
        upper = float(mass[seen] @ _entropy(means) - weights @ _entropy(np.arange(n + 1) / n))
        if upper - lower <= _RTOL * upper + _ATOL:
            break
        points, size = _with(points, np.arcsin(np.sqrt(means))), max(upper, _ATOL)
    return max(lower, 0.0)


def _predicted(prior: Array, n: int) -> Array:
    """Probabilities of the counts 0, ..., n of the first cell: Beta-binomial."""
    x = np.arange(n + 1)
    logs = betaln(x + prior[0], n - x + prior[1]) - betaln(x + 1, n - x + 1)
    mass = np.exp(logs - logs.max())
    return np.asarray(mass / mass.sum())


def _entropy(share: Array) -> Array:
    return np.asarray(entr(share) + entr(1 - share))


def _with(points: Array, found: Array) -> Array:
    """The points with those that were found, in place of the points that are close to them."""
    found = np.unique(found[(found > _CLOSE) & (found < math.pi / 2 - _CLOSE)])
    found = found[np.diff(found, prepend=0.0) > _CLOSE]
    far = [point for point in points[1:-1] if np.abs(found - point).min(initial=math.inf) > _CLOSE]
    return np.concatenate([[0.0], np.sort([*found, *far]), [math.pi / 2]])


def _programme(weights: Array, points: Array, ratio: float, delta: float, size: float) -> tuple[float, Array]:
    """The least error with chords between the points, and the joint table of count and chord, shape (n + 1, chords).

    Parameters
    ----------
    weights : array, shape (n + 1,)
        Probabilities of the counts.
    points : array
        `arcsin(sqrt(y))` of the ends of the chords, rising from 0 to `pi / 2`.
    ratio : float
        `exp(-epsilon)`.
    delta : float
    size : float
        About how large the error is, so that the solver works with numbers near 1.
    """
    from scipy import sparse  # Here, because it takes half a second to import.
    from scipy.optimize import linprog

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
    if found.x is None:
        raise ArgumentError(
            f"The linear programme for {n} records has no result. Take fewer records, or a less extreme prior. "
            f"The solver says: {found.message}"
        )
    return float(found.fun) * size, weights[:, None] * found.x[: cost.size].reshape(cost.shape)
