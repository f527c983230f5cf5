"""Which mechanism loses least at the same promise? Decided without data."""

from contextlib import suppress
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.known import noises
from pymc_dirdp.privacy.contribution import Contribution
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.utility.simulated import predicted_data, simulated_kl

__all__ = ["Choice", "rank"]

Array = NDArray[np.float64]


@final
@dataclass(frozen=True)
class Choice:
    """The a priori losses of every mechanism that can keep a promise, and the least of them.

    Attributes
    ----------
    objective : {"posterior", "estimate"}
        Which loss.
    expected_kl : tuple of (str, float)
        In nats, the least first.
    """

    objective: str
    expected_kl: tuple[tuple[str, float], ...]

    @property
    def best(self) -> str:
        """The mechanism that loses least."""
        return self.expected_kl[0][0]

    def margin(self, kind: str) -> float:
        """The loss of `kind` over that of the best; `inf` if it cannot keep the promise."""
        found = dict(self.expected_kl)
        return found[kind] / max(self.expected_kl[0][1], 1e-300) if kind in found else np.inf


def rank(
    dirichlet: Mechanism | None,
    share: Guarantee | None,
    *,
    prior: Array,
    n_records: int | None,
    adjacency: str,
    objective: str,
    contribution: Contribution | int = 1,
    n_simulated_cells: int = 200_000,
) -> Choice:
    """Mechanisms for one table by their a priori loss, on the same simulated data sets.

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
    objective : {"posterior", "estimate"}
        Which loss decides, see :class:`pymc_dirdp.utility.simulated.ExpectedKL`.
    contribution : int or Contribution
        What one person adds to the table.
    n_simulated_cells : int
        How many counts to simulate.
    """
    if not n_records:
        raise ArgumentError(
            "mechanism='auto' plans for a number of records: pass n_records= (your guess, if the number is private)."
        )
    made: dict[str, Mechanism] = {} if dirichlet is None else {"dirichlet": dirichlet}
    if share is not None:
        # Continuous noise cannot be drawn exactly, and is never chosen.
        for kind, noise in noises(exact=True).items():
            with suppress(UnattainableError):
                made[kind] = noise.for_guarantee(share, prior=prior, adjacency=adjacency, contribution=contribution)
    data = predicted_data(prior, n_records, max(100, min(5_000, n_simulated_cells // prior.size)))
    scores = {kind: getattr(simulated_kl(mechanism, prior, data), objective) for kind, mechanism in made.items()}
    # On ties, keep the first kind, which is the Dirichlet mechanism.
    return Choice(objective, tuple(sorted(scores.items(), key=lambda item: item[1])))
