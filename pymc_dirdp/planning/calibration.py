"""Calibration of the Dirichlet mechanism for a guarantee, on the safe side of every root."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import at_least, integer, one_of, positive_array
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.papers.privacy import p1_theorem_1_concentration
from pymc_dirdp.planning.boundary import Boundary, optimal, optimal_of_blocks
from pymc_dirdp.planning.expected_kl import PriorExpectedKL
from pymc_dirdp.planning.urn_steps import calibrate_urn, needs_urn
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.unit import is_binary_row

__all__ = ["OBJECTIVES", "STRATEGIES", "calibrate", "untouched"]

STRATEGIES = ("optimal", "temper", "inflate", "algorithm-1")
OBJECTIVES = ("posterior", "estimate")
# A level is less simple than a number that is added, so it is chosen where it makes a draw better by a per cent.
_CLEARLY = 0.99


def calibrate(
    guarantee: Guarantee,
    *,
    prior: ArrayLike,
    n_records: int | None = None,
    adjacency: str = "replace-one",
    strategy: str = "optimal",
    objective: str = "posterior",
    min_count: float = 0.0,
    contribution: Contribution | int = 1,
    public_totals: bool = False,
) -> DirichletMechanism:
    """The Dirichlet mechanism that keeps `guarantee` and wastes nothing of it.

    Parameters
    ----------
    guarantee : Guarantee
        The target. `PureDP`, `ZeroCDP` and `omega=inf` are kept by the counts of an urn and by no continuous draw: the
        result has `urn_steps`, a power of 2, and only the exact sampler. They need `n_records`.
    prior : array_like, shape (..., d)
        The model's own prior, positive.
    n_records : int, optional
        Number of records in all, which the strategy `"optimal"` plans for: the public N under replace-one, your guess
        under add-remove. It changes the guarantee only with `public_totals`.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change.
    strategy : {"optimal", "temper", "inflate", "algorithm-1"}, default "optimal"
        Where the room for privacy comes from.

        * `"optimal"`: the pair of `r` and `alpha = prior + s`, `s >= 0`, on the boundary of the guarantee with the
          least a priori expected Kullback-Leibler divergence, see `objective`; or the best pair of `r` and
          `alpha = max(prior, t)`, where its divergence is less by a per cent at least.
        * `"temper"`: `alpha = prior` and the largest `r`. It is above 1 where the guarantee has room for a draw that is
          more concentrated than the posterior.
        * `"inflate"`: `r = 1` and the least `s` (P2 section 4.1).
        * `"algorithm-1"`: P1 Algorithm 1 with its own bound, for `RenyiDP` only. It ignores the prior:
          `alpha = 1 + 4 (order - 1) r` in every cell.
    objective : {"posterior", "estimate"}, default "posterior"
        What `"optimal"` keeps small: `"posterior"` the divergence of the private posterior from the posterior, with
        `r <= 1`, so that a loose guarantee gives back the posterior unchanged; `"estimate"` the divergence of the draw
        from the data's frequencies (P1's measure).
    min_count : float, default 0.0
        The public guarantee that every cell of every data set that could occur holds at least so many records.
    contribution : Contribution or int, default 1
        What one person can add to the table. An integer means so many records at most, anywhere in the table.
    public_totals : bool, default False
        Whether `n_records` is the public number of records of every data set that could occur. A table with one row of
        two categories loses less then, under replace-one (Theory, Theorem 14); nothing else changes.

    Returns
    -------
    mechanism : DirichletMechanism
        `mechanism.satisfies(guarantee)` is True. Where there is a boundary, `r` is within 1e-9 relative of it,
        or within 1e-4 for `ZeroCDP`.

    Raises
    ------
    UnattainableError
        If no setting reaches the guarantee; the message says what can be reached.
    ArgumentError
        If an argument is outside its domain, or `"optimal"` lacks `n_records`.

    References
    ----------
    Theory, section 2 to 5 and 8, P1 Algorithm 1, P2 section 4.1.

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP
    >>> mechanism = calibrate(ApproxDP(epsilon=1, delta=1e-6), prior=[1, 1, 1, 1], n_records=592)
    >>> mechanism.satisfies(ApproxDP(epsilon=1, delta=1e-6))
    True
    """
    parameters = positive_array(prior=prior)
    common: dict[str, Any] = {
        "adjacency": adjacency_named(adjacency).name,
        "min_count": at_least(0, min_count=min_count),
        "contribution": Contribution.of(contribution).fitted(parameters.shape),
    }
    shared = dict(common)
    one_of(STRATEGIES, strategy=strategy)
    one_of(OBJECTIVES, objective=objective)
    Guarantee.checked(guarantee=guarantee)
    if strategy == "algorithm-1":
        return _algorithm_1(guarantee, parameters.shape, **shared)
    # Without a record that may move nothing can be told apart, and there is nothing to calibrate by.
    if (
        public_totals
        and n_records
        and n_records > 2 * math.ceil(common["min_count"])
        and adjacency_named(adjacency).records_are_public
        and is_binary_row(parameters.shape)
    ):
        shared["n_records"] = n_records
    if needs_urn(guarantee):
        planned = None if n_records is None else integer(0, n_records=n_records)
        return _verified(
            calibrate_urn(
                guarantee, prior=parameters, n_records=planned, strategy=strategy, objective=objective, shared=shared
            ),
            guarantee,
        )
    boundary = Boundary(guarantee, parameters, **shared)
    if strategy == "temper":
        r, s = boundary.largest_r(0.0), 0.0
    elif strategy == "inflate":
        r, s = 1.0, boundary.least_s(1.0)
    else:
        boundary, r, s = _least_error(boundary, _expected_kl(parameters, n_records, objective), objective)
    mechanism = DirichletMechanism(boundary.raised(s), r, **shared)
    if not mechanism.satisfies(guarantee):
        # Several records of a person lose a little more when they are spread.
        boundary.spread = True
        if strategy == "inflate":
            s = boundary.least_s(1.0, near=max(s, 1e-6))
        else:
            r = boundary.largest_r(s, near=r)
        mechanism = DirichletMechanism(boundary.raised(s), r, **shared)
    return _verified(mechanism, guarantee)


def untouched(prior: Array, *, adjacency: str, min_count: float, contribution: Contribution) -> DirichletMechanism:
    """The model's own posterior as it is, for a table of one category, of which it says nothing: shape `(..., 1)`."""
    return DirichletMechanism(prior, 1.0, adjacency=adjacency, min_count=min_count, contribution=contribution)


def _verified(mechanism: DirichletMechanism, guarantee: Guarantee) -> DirichletMechanism:
    if not mechanism.satisfies(guarantee):
        raise UnattainableError(
            f"Calibration for {guarantee} ended on the wrong side of its boundary, so there is no result. "
            "Please report the guarantee, the prior and the strategy."
        )
    return mechanism


def _least_error(boundary: Boundary, error: Callable[..., float], objective: str) -> tuple[Boundary, float, float]:
    """The boundary that the best setting is on, and the setting."""
    search = optimal_of_blocks if boundary.composed else optimal
    capped = objective == "posterior"
    r, s = search(boundary, error, cap_r=capped)
    if s == 0 or np.ptp(boundary.prior) == 0:
        # A flat prior is the same either way.
        return boundary, r, s
    levels = boundary.levels()
    other, level = search(levels, lambda r, s: error(r, level=s), cap_r=capped)
    better = error(other, level=level) < _CLEARLY * error(r, s)
    return (levels, other, level) if better else (boundary, r, s)


def _expected_kl(prior: Array, n_records: int | None, objective: str) -> Callable[..., float]:
    if n_records is None:
        raise ArgumentError(
            "strategy='optimal' plans for a number of records: pass n_records= (your guess, if the number is private), "
            "or use strategy='temper' or 'inflate', which need none."
        )
    expected = PriorExpectedKL(prior, integer(0, n_records=n_records))
    if objective == "posterior":
        return expected.posterior
    expected.estimate(1.0)  # Without records this raises an error, and it has to do so before the search.
    return expected.estimate


def _algorithm_1(
    guarantee: Guarantee, shape: tuple[int, ...], adjacency: str, min_count: float, contribution: Contribution
) -> DirichletMechanism:
    order = guarantee.fixed.get("order")
    if order is None:
        raise UnattainableError(
            f"strategy='algorithm-1' is P1's calibration for RenyiDP targets, got {guarantee}. "
            "Use strategy='optimal', which knows the exact curves, or state a RenyiDP target."
        )
    relation, records = adjacency_named(adjacency), contribution.records
    r = p1_theorem_1_concentration(
        order=order,
        epsilon=guarantee.budget,
        delta_2_squared=contribution.blocks(shape) * records**2 * relation.delta_2_squared,
        delta_inf=records * relation.delta_inf,
        min_count=min_count,
    )
    alpha = np.full(shape, 1 + 4 * (order - 1) * r * records * relation.delta_inf)
    mechanism = DirichletMechanism(alpha, r, adjacency=adjacency, min_count=min_count, contribution=contribution)
    return _verified(mechanism, guarantee)
