"""The guarantee of a release, or of several together: as lines, and as columns of a registry of deployments."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, final

from pymc_dirdp.display import Line, escape_invisible
from pymc_dirdp.numerics.roots import ceil_to_digits as up
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.odds import Odds, delta_of


@final
@dataclass(frozen=True)
class Deployment:
    """The statement of a release, or of a ledger of releases about the same people.

    Attributes
    ----------
    product : str
        The names of the published quantities.
    description : str
    guarantee : Guarantee
    unit : str
        The label of the unit of privacy.
    neighbours : str
        The neighbouring relation, in words.
    odds : Odds
        The posterior odds about one person, with their curves.
    accounting : str
        The composition rule.
    digest : str
        The digest of a plan, or the head of a ledger.
    version : str
        The version of this library.
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
        """The guarantee, first for one screen and then as it is printed under a table.

        Parameters
        ----------
        protects, protected : str
            Who is protected, in two lines of a screen and in full.
        most : str
            The maximum loss of a person.
        together : str, optional
            A note on the composition, appended to the guarantee.
        """
        yield Line("protects", protects, 0)
        yield Line("at most", most, 0)
        yield Line("odds", f"times {self.odds}", 0)
        yield Line("guarantee", f"{self.guarantee}{together}", 1)
        yield Line("protected", protected, 1)
        yield Line("posterior odds", f"times {self.odds}, about {self.odds.secret}", 1)

    @property
    def row(self) -> dict[str, Any]:
        """The columns of the public registry of deployments, in its order."""
        delta = delta_of(self.guarantee)
        # An (epsilon, delta) as stated; any other kind by its curves.
        epsilon: float | None = self.guarantee.budget
        if self.guarantee.stated_delta is None:
            epsilon = up(float(self.odds.curves.epsilon(delta)))
            epsilon = epsilon if math.isfinite(epsilon) else None
        return {
            "product": escape_invisible(self.product),
            "description": escape_invisible(self.description),
            "flavor": self.guarantee.flavour,
            "unit": escape_invisible(self.unit),
            "epsilon": epsilon,
            "delta": 0.0 if self.guarantee.is_pure else delta,
            # JSON has no infinity.
            "parameters": {
                name: value if math.isfinite(value) else str(value) for name, value in asdict(self.guarantee).items()
            },
            "neighbours": escape_invisible(self.neighbours),
            "model": "Central",
            "accounting": self.accounting,
            "implementation": "pymc_dirdp",
            "version": escape_invisible(self.version),
            "digest": self.digest,
        }
