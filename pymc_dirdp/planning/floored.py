"""Calibration of floored draws: the largest concentration, and the floor and shift closest to the frequencies."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import integer, positive_array
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.floored import FlooredDirichletMechanism
from pymc_dirdp.numerics.roots import bracket, log_excess, safe_root, with_slack
from pymc_dirdp.planning.expected_kl import draw_kl, predicted_data
from pymc_dirdp.privacy.curves import NoLoss, PrivacyCurves
from pymc_dirdp.privacy.floored import STEPS, floored_curves, largest_variance
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import Contribution, adjacency_named
from pymc_dirdp.signatures import user_facing

__all__ = ["calibrate_floored", "largest_floored_r"]

# What every cell holds without a record. It costs nothing, and the smallest that was tried gave the least error.
_ALPHA = 0.02
# The floors that are tried, half an octave apart, and the one at which the search starts.
_FLOORS, _FIRST = tuple((2.0 ** np.arange(-5, 7.5, 0.5)).tolist()), 4.0
# What is taken off intensities before shares are formed, in units of the floor.
_SHIFTS = (0.0, 0.2, 0.4, 0.6, 0.8, 0.95)
# Made-up cells in each trial, and data sets at least.
_CELLS, _FEWEST = 10_000, 20
# Every fourth of these data sets is looked at first.
_PART = 4
_SEED = 20261122
# Ceilings that are tried, in units of what all records of a row count, and how often r and the ceiling take turns.
_CEILINGS, _ITERATIONS = (0.1, 0.2, 0.4, 0.7, 1.0, 1.3), 3

# Steps around the first r until the guarantee breaks, and how closely the last r that keeps it is found.
_FACTOR, _RTOL = 1.1, 1e-9

# The expected error of a mechanism, and the mechanism.
type _Trial = tuple[float, FlooredDirichletMechanism]


@user_facing
def calibrate_floored(
    guarantee: Guarantee,
    *,
    prior: ArrayLike,
    n_records: int | Sequence[int] | None = None,
    adjacency: str = "replace-one",
    contribution: Contribution | int = 1,
    public_totals: bool = False,
) -> FlooredDirichletMechanism:
    """The floored mechanism that keeps `guarantee`, with the floor and shift that bring draws closest to frequencies.

    They are compared by the expected Kullback-Leibler divergence of a draw from the frequencies, on data sets
    that the prior predicts. No data is used.

    Parameters
    ----------
    guarantee : Guarantee
        The target. For `PureDP` the mechanism has a ceiling, and noise is much closer to the data.
    prior : array_like, shape (..., d)
        The model's own prior, positive.
    n_records : int or sequence of int
        Number of records in all, or of each row in order: the public one, or your guess. It changes the guarantee only
        with `public_totals`.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change.
    contribution : Contribution or int, default 1
        What one person can add to the table.
    public_totals : bool, default False
        Whether `n_records` is the number of records of every data set that could occur. Under replace-one a row of two
        categories, to which a person adds one record at most, then loses less; of several rows the number of each has
        to be public, as that of applicants of each department may be.

    Returns
    -------
    mechanism : FlooredDirichletMechanism
        `mechanism.satisfies(guarantee)` is True.

    Raises
    ------
    UnattainableError
        If the guarantee is so tight that no `r` within its bounds keeps it.
    ArgumentError
        If an argument is outside its domain, or `n_records` is missing.

    References
    ----------
    The proof page of :class:`~pymc_dirdp.mechanisms.FlooredDirichletMechanism`.

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP
    >>> mechanism = calibrate_floored(ApproxDP(epsilon=1, delta=1e-6), prior=[1, 1, 1, 1], n_records=592)
    >>> mechanism.satisfies(ApproxDP(epsilon=1, delta=1e-6))
    True

    Three departments whose numbers of applicants are public:

    >>> known = {"prior": np.ones((3, 2)), "n_records": [933, 585, 918]}
    >>> for public in (False, True):
    ...     print(calibrate_floored(ApproxDP(epsilon=1, delta=1e-6), **known, public_totals=public).in_short)
    r 0.8..., floor 16, shift 0.2
    r 1.3..., floor 22.63, shift 0.2
    """
    parameters = positive_array(prior=prior)
    facts: dict[str, Any] = {
        "adjacency": adjacency_named(adjacency).name,
        "contribution": Contribution.of(contribution).fitted(parameters.shape),
    }
    if n_records is None:
        raise ArgumentError(
            "mechanism='floored' plans for a number of records: pass n_records= (your guess, if the number is private)."
        )
    n_rows = math.prod(parameters.shape[:-1])
    numbers = [integer(0, n_records=number) for number in np.array(n_records, dtype=object).ravel().tolist()]
    if len(numbers) not in (1, n_rows):
        raise ArgumentError(f"Expected n_records to be one number, or one for each of the {n_rows} rows of the prior.")
    one_each = public_totals and len(numbers) == n_rows
    if one_each and FlooredDirichletMechanism.knows_records(parameters.shape, **facts):
        facts["n_records"] = n_records
    if sum(numbers) < n_rows:
        raise ArgumentError("mechanism='floored' compares draws with frequencies, so each row needs a record.")
    alpha = np.full(parameters.shape, _ALPHA)
    data = predicted_data(parameters, sum(numbers), max(_CELLS // parameters.size, _FEWEST))

    def trial(loss: float, some: Integers, floor: float) -> _Trial:
        # The largest divergence of order 1 for a small r hardly depends on the floor where a guarantee holds.
        r = min(math.sqrt(loss / largest_variance(floor)[1]), STEPS[1])
        return _best_shift(FlooredDirichletMechanism(alpha, r, floor, **facts), some)

    if Guarantee.checked(guarantee=guarantee).is_pure:
        return _least(partial(_below_a_ceiling, guarantee, alpha, data, sum(numbers) / n_rows, facts), None)

    def best_near(floor: float | None, some: Integers) -> FlooredDirichletMechanism:
        at = _FIRST if floor is None else floor
        r = largest_floored_r(guarantee, alpha, at, **facts)
        return _least(partial(trial, r**2 * largest_variance(at)[1], some), floor)

    # A part of the data says about which floor it is, and all of them decide, by the r that is found there.
    best = best_near(best_near(None, data[::_PART]).floor, data)
    return replace(best, r=largest_floored_r(guarantee, alpha, best.floor, **facts))


def _below_a_ceiling(
    guarantee: Guarantee, alpha: Array, data: Integers, of_row: float, facts: dict[str, Any], floor: float
) -> _Trial:
    """The best ceiling for a pure guarantee.

    It is a few times what all records of a row count, of which there are `of_row`.
    """
    trials = []
    for times in _CEILINGS:
        ceiling = max(of_row, 2 * floor)
        # The largest r falls slowly as the ceiling rises.
        for _ in range(_ITERATIONS):
            r = largest_floored_r(guarantee, alpha, floor, ceiling, **facts)
            ceiling = max(times * r * of_row, 2 * floor)
        r = largest_floored_r(guarantee, alpha, floor, ceiling, **facts)
        trials.append(_best_shift(FlooredDirichletMechanism(alpha, r, floor, ceiling=ceiling, **facts), data))
    return min(trials, key=itemgetter(0))


def _best_shift(mechanism: FlooredDirichletMechanism, data: Integers) -> _Trial:
    intensities = mechanism.simulated(data, np.random.default_rng(_SEED))
    shifted = (replace(mechanism, shift=c) for c in _SHIFTS)
    return min(((draw_kl(one.shares_of(intensities), data), one) for one in shifted), key=itemgetter(0))


def _least(trial: Callable[[float], _Trial], near: float | None) -> FlooredDirichletMechanism:
    """The mechanism with the least error, if errors fall and then rise: of all floors, or of those near one."""
    found = {i: trial(_FLOORS[i]) for i in (range(0, len(_FLOORS), 4) if near is None else [_FLOORS.index(near)])}
    for step in (2, 1) if near is None else (1, 1):
        best = min(found, key=lambda i: found[i][0])
        found |= {i: trial(_FLOORS[i]) for i in (best - step, best + step) if i not in found and 0 <= i < len(_FLOORS)}
    return min(found.values(), key=itemgetter(0))[1]


def largest_floored_r(
    guarantee: Guarantee, alpha: Array, floor: float, ceiling: float = math.inf, **people: Any
) -> float:
    """The largest concentration at which a floored draw keeps a guarantee, from below.

    Parameters
    ----------
    guarantee : Guarantee
        Of any kind. `PureDP` needs a finite ceiling.
    alpha : array, shape (..., d)
        Prior parameters, positive.
    floor, ceiling : float
        Same as in :func:`~pymc_dirdp.privacy.floored.floored_curves`, and so are the bounds of `r`.
    **people
        `adjacency`, `contribution` and `n_records`, as for :func:`~pymc_dirdp.privacy.floored.floored_curves`.

    Returns
    -------
    r : float
        The curves at `r` satisfy the guarantee, and those at an `r` that is larger by a share of 1e-6 do not; it is
        the largest one that is computed, where that keeps the guarantee.

    Raises
    ------
    UnattainableError
        If no concentration keeps the guarantee, or no record can move.

    References
    ----------
    The page of proofs "floored".

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dirdp import ZeroCDP
    >>> round(largest_floored_r(ZeroCDP(rho=0.02574), np.full((1, 4), 0.5), 8.0), 3)
    0.65
    """

    def curves(r: float) -> PrivacyCurves:
        return floored_curves(alpha, r, floor, ceiling, **people)

    if Guarantee.checked(guarantee=guarantee).is_pure and math.isinf(ceiling):
        raise UnattainableError(
            "Without a ceiling no floored draw keeps pure differential privacy: an intensity may be as large as it "
            "likes. State a finite ceiling, or ask for ZeroCDP(rho)."
        )
    if isinstance(curves(1.0), NoLoss):
        raise UnattainableError("Where a record cannot move, every concentration keeps every guarantee; take r = 1.")
    divergence = guarantee.as_divergence()
    if divergence is not None:
        # Divergences are at most their order times rho, which goes with the square of r.
        start = math.sqrt(divergence.epsilon / divergence.order / curves(1.0).rho(math.inf))
    else:
        # A pure loss nearly goes with r, and a divergence with its square.
        loss, allowed = curves(1.0).loss(guarantee)
        start = (allowed / loss) ** (1.0 if guarantee.is_pure else 0.5)

    def excess(r: float) -> float:
        return log_excess(*curves(r).loss(guarantee))

    ends = {"start": min(max(start, STEPS[0]), STEPS[1]), "least": STEPS[0], "most": STEPS[1]}
    safe, unsafe = bracket(excess, factor=_FACTOR, **ends)
    if not safe:
        raise UnattainableError(
            f"The guarantee is so tight that a record would count less than {STEPS[0]:g}, and floored draws are not "
            "computed for that. State another guarantee, or use mechanism='geometric'."
        )
    return safe if math.isinf(unsafe) else with_slack(safe_root(excess, safe=safe, unsafe=unsafe, rtol=_RTOL), excess)
