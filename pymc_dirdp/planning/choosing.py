"""Which mechanism has the least error at the same promise? This is decided without data."""

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, final

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.known import by_kind, noises
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.planning.calibration import calibrate
from pymc_dirdp.planning.floor_choice import calibrate_floored
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.utility.estimate_error import estimate_error

__all__ = ["Choice", "of_kind", "rank"]


@final
@dataclass(frozen=True)
class Choice:
    """The expected errors of all mechanisms that can keep a promise.

    Attributes
    ----------
    expected_kl : tuple of (str, float)
        The divergence of what :func:`pymc_dirdp.estimate` says of the shares from the shares, in nats, averaged over
        rows; the least first.
    """

    expected_kl: tuple[tuple[str, float], ...]

    @property
    def best(self) -> str:
        """The mechanism with the least error."""
        return self.expected_kl[0][0]

    def margin(self, kind: str) -> float:
        """The error of `kind` over that of the best; `inf` if it cannot keep the promise."""
        return dict(self.expected_kl).get(kind, math.inf) / max(self.expected_kl[0][1], 1e-300)


def _floored(
    guarantee: Guarantee,
    *,
    prior: Array,
    n_records: int | None,
    adjacency: str,
    contribution: Contribution | int,
    public_totals: bool,
    **_: Any,
) -> TableMechanism:
    """What is calibrated in one way only."""
    known: dict[str, Any] = {"n_records": n_records, "public_totals": public_totals}
    return calibrate_floored(guarantee, prior=prior, adjacency=adjacency, contribution=contribution, **known)


# Kinds that this room calibrates for a number of records. All others have one setting for a guarantee, and find it.
_CALIBRATED: dict[str, Callable[..., TableMechanism]] = {"dirichlet": calibrate, "floored": _floored}


def of_kind(
    kind: str,
    guarantee: Guarantee,
    *,
    prior: Array,
    n_records: int | None,
    adjacency: str,
    contribution: Contribution | int = 1,
    public_totals: bool = False,
    **strategy: Any,
) -> TableMechanism:
    """The mechanism of a kind that keeps a guarantee for one table.

    Parameters
    ----------
    kind : str
        As in `plan(mechanism=...)`, but for `"auto"`.
    guarantee : Guarantee
    prior, n_records, adjacency, contribution
        As for :func:`pymc_dirdp.calibrate`.
    public_totals : bool
        Whether the numbers of records are public, so that noise may add up to 0, and two categories lose less.
    **strategy
        Its options `strategy`, `objective` and `min_count`, for kinds that have strategies.
    """
    common: dict[str, Any] = {"prior": prior, "adjacency": adjacency, "contribution": contribution}
    if kind in _CALIBRATED:
        return _CALIBRATED[kind](guarantee, n_records=n_records, public_totals=public_totals, **common, **strategy)
    mechanism = by_kind(kind, public_totals=public_totals)
    if mechanism.needs_public_totals and not public_totals:
        raise ArgumentError(
            f"mechanism={kind!r} publishes the number of records, which is private here. Use mechanism='geometric'. If "
            "the number is public and the adjacency replace-one, planning functions take public_totals=True."
        )
    return mechanism.planned(guarantee, n_records=n_records, **common)


def rank(
    dirichlet: Mechanism | None,
    share: Guarantee | None,
    *,
    prior: Array,
    n_records: int | None,
    adjacency: str,
    contribution: Contribution | int = 1,
    public_totals: bool = False,
    draws: int = 1,
) -> Choice:
    """Mechanisms for one table by the expected error of estimates from them, on the same simulated data sets.

    What decides is what whoever reads the release has in the end: the means of the shares given what was put out, and
    not a draw, or noisy counts that are taken for data.

    Parameters
    ----------
    dirichlet : Mechanism or None
        The Dirichlet mechanism that keeps the promise, if one does.
    share : Guarantee or None
        What noise has to promise in its place; None leaves noise out.
    prior : array, shape (..., d)
    n_records : int or None
        The public number of records, or the size to plan for.
    adjacency : str
    contribution : int or Contribution
        What one person adds to the table.
    public_totals : bool
        Whether the numbers of records are public, so that noise may add up to 0.
    draws : int
        How many draws of the Dirichlet mechanism are released.
    """
    if n_records == 0:
        raise ArgumentError("mechanism='auto' compares errors, and without a record there is none. Take 'geometric'.")
    if n_records is None:
        raise ArgumentError(
            "mechanism='auto' plans for a number of records: pass n_records= (your guess, if the number is private)."
        )
    mechanisms: dict[str, Mechanism] = {} if dirichlet is None else {"dirichlet": dirichlet}
    if share is not None:
        # Continuous noise cannot be drawn exactly, and is never chosen.
        for kind, noise in noises(exact=True, public_totals=public_totals).items():
            with suppress(UnattainableError):
                mechanisms[kind] = noise.for_guarantee(
                    share, prior=prior, adjacency=adjacency, contribution=contribution
                )
    errors = {
        kind: estimate_error(mechanism, prior, n_records, public=public_totals, draws=draws)
        for kind, mechanism in mechanisms.items()
    }
    scores = [(kind, error.kl) for kind, error in errors.items() if error is not None]
    # On ties, keep the first kind, which is the Dirichlet mechanism.
    return Choice(tuple(sorted(scores, key=lambda item: item[1])))
