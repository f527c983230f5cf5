"""What a release, or several together, guarantee to whom: in lines, and in the columns of a register of deployments."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, final

from pymc_dirdp.display import Line, visible
from pymc_dirdp.numerics.roots import ceil_to_digits as up
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.odds import Odds, delta_of


@final
@dataclass(frozen=True)
class Deployment:
    """What a release, or a ledger of releases about the same people, states.

    Attributes
    ----------
    product : str
        The names of what is published.
    description : str
    guarantee : Guarantee
    unit : str
        The label of whom it protects.
    neighbours : str
        What neighbouring data sets are, in words.
    odds : Odds
        What it lets anyone infer, with the curves behind it.
    accounting : str
        How its losses were added up.
    digest : str
        The digest of a plan, or the head of a ledger.
    version : str
        Of this library.
    """

    product: str
    description: str
    guarantee: Guarantee
    unit: str
    neighbours: str
    odds: Odds
    accounting: str
    digest: str
    version: str

    def lines(self, *, protects: str, protected: str, most: str, together: str = "") -> Iterator[Line]:
        """What is guaranteed to whom, first for one screen and then as it is printed under a table.

        Parameters
        ----------
        protects, protected : str
            Who is protected, in two lines of a screen and in full.
        most : str
            What anyone loses at most.
        together : str, optional
            Of what all of this is the guarantee, to be said behind it.
        """
        yield Line("protects", protects, 0)
        yield Line("at most", most, 0)
        yield Line("odds", f"times {self.odds}", 0)
        yield Line("guarantee", f"{self.guarantee}{together}", 1)
        yield Line("protected", protected, 1)
        yield Line("odds of the truth", f"times {self.odds}, about {self.odds.secret}", 1)

    @property
    def row(self) -> dict[str, Any]:
        """The columns of the public registry of deployments, in its order."""
        delta = delta_of(self.guarantee)
        # An (epsilon, delta) as it is stated; any other kind by the curves.
        epsilon: float | None = self.guarantee.budget
        if self.guarantee.stated_delta is None:
            epsilon = up(float(self.odds.curves.epsilon(delta)))
            epsilon = epsilon if math.isfinite(epsilon) else None
        return {
            "product": visible(self.product),
            "description": visible(self.description),
            "flavor": self.guarantee.flavour,
            "unit": visible(self.unit),
            "epsilon": epsilon,
            "delta": 0.0 if self.guarantee.is_pure else delta,
            "parameters": asdict(self.guarantee),
            "neighbours": visible(self.neighbours),
            "model": "Central",
            "accounting": self.accounting,
            "implementation": "pymc_dirdp",
            "version": visible(self.version),
            "digest": self.digest,
        }
