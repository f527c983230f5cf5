"""What was published of whom, in the columns of a register of deployments: by one release, or by several together."""

import math
from dataclasses import asdict, dataclass
from typing import Any, final

from pymc_dirdp.display import visible
from pymc_dirdp.numerics.roots import ceil_to_digits as up
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.odds import Odds, delta_of


@final
@dataclass(frozen=True)
class Deployment:
    """What a release, or a ledger of releases about the same people, says of itself to a register.

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
