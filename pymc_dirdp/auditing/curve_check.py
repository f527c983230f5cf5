"""Compare a privacy curve with the distributions of the output, which are integrated."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, final, override

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.auditing.intervals import guaranteed_orders
from pymc_dirdp.checks import at_least
from pymc_dirdp.display import Tabular
from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions

__all__ = ["CurveCheck", "CurvePoint", "check_curve"]

# What summing thousands of probabilities in floating point may add, relative and absolute. This is an error of the
# audit and not of the curve.
_ROUNDING, _TINY = 1e-9, 1e-15


@final
@dataclass(frozen=True)
class CurvePoint:
    """One number of a curve or of a claim, beside what two neighbours lose."""

    measure: str
    stated: float  # What the curve or the claim says.
    lost: float  # A lower bound of what the two distributions lose.

    @property
    def shortfall(self) -> float:
        """How much more is lost than stated, relative to what is stated; negative where the statement holds."""
        lost = max(self.lost - _TINY, 0.0)
        if self.stated > 0:
            return lost / self.stated - 1
        return math.inf if lost > 0 else 0.0

    @property
    def exceeded(self) -> bool:
        """Whether more is lost than stated, beyond rounding."""
        return self.shortfall > _ROUNDING


@final
@dataclass(frozen=True, repr=False)
class CurveCheck(Tabular):
    """A curve and a claim, compared with the distributions of the output at two neighbours. No random numbers are used.

    Attributes
    ----------
    mechanism : str
        The name of its class.
    points : tuple of CurvePoint
        Each `measure` with what is `stated`, a lower bound of what is `lost`, and the relative `shortfall`.
    """

    mechanism: str
    points: tuple[CurvePoint, ...]

    @property
    def verdict(self) -> str:
        """`"refuted"` if the two distributions lose more than is stated anywhere, else `"consistent"`."""
        return "refuted" if any(point.exceeded for point in self.points) else "consistent"

    @property
    def shortfall(self) -> float:
        """The largest relative shortfall. If it is just below 0, the curve is exact and this pair attains it."""
        return max(point.shortfall for point in self.points)

    @override
    def _parts(self) -> tuple[list[str], list[dict[str, Any]], list[str]]:
        title = f"{self.mechanism}: {self.verdict}; largest shortfall {self.shortfall:.3g}"
        return [title], [asdict(point) | {"shortfall": point.shortfall} for point in self.points], []


def check_curve(
    mechanism: Mechanism,
    *,
    pair: tuple[ArrayLike, ArrayLike] | None = None,
    claim: Guarantee | None = None,
    epsilons: Sequence[float] | None = None,
    orders: Sequence[float] = (1.0, 1.25, 2.0, 4.0, 8.0, 16.0),
) -> CurveCheck:
    """Compare a mechanism's curve, and a claim, with the distributions of its output at two neighbours.

    The distributions are cut into cells and summed. The result is a lower bound of the loss, so a curve that is below
    it is wrong. `audit` draws from the mechanism instead.

    Parameters
    ----------
    mechanism : Mechanism
        A mechanism of this library.
    pair : tuple of two arrays, optional
        Made-up neighbours. None takes the worst ones.
    claim : Guarantee, optional
        What is stated about the mechanism, for example by somebody who calibrated it.
    epsilons : sequence of float, optional
        The points at which `delta` is compared, each >= 0. None takes nine, from 0 to where delta is 1e-8.
    orders : sequence of float
        The orders at which the Rényi divergence is compared, each >= 1.

    Returns
    -------
    result : CurveCheck

    References
    ----------
    Theory, section 2 to 5.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms import DirichletMechanism
    >>> result = check_curve(DirichletMechanism([1, 1, 1], 0.2))
    >>> result.verdict
    'consistent'
    """
    mechanism = Mechanism.required(mechanism)
    x, y = mechanism.worst_pair() if pair is None else (np.asarray(data, dtype=np.float64) for data in pair)
    distributions = mechanism.output_distributions(x, y)
    points = []
    if claim is not None:
        allowed = Guarantee.checked(claim=claim).allowed
        points.append(CurvePoint(str(claim), allowed, claim.loss(_Lost(distributions))))
    try:
        if epsilons is None:
            epsilons = np.linspace(0.0, mechanism.epsilon(1e-8), 9).tolist()
        for epsilon in epsilons:
            e = at_least(0, epsilon=epsilon)
            points.append(CurvePoint(f"delta at epsilon {e:.4g}", mechanism.delta(e), distributions.delta(e)))
        for order in orders:
            stated = mechanism.renyi(order)
            # Where the divergence diverges, nothing is guaranteed.
            if math.isfinite(stated):
                points.append(CurvePoint(f"Rényi divergence of order {order:g}", stated, distributions.renyi(order)))
        if math.isfinite(mechanism.pure_epsilon):
            points.append(CurvePoint("largest loss", mechanism.pure_epsilon, distributions.pure_epsilon))
    except UnattainableError:
        # A mechanism that states nothing is compared with the claim alone.
        if claim is None:
            raise
    return CurveCheck(type(mechanism).__name__, tuple(points))


@dataclass(frozen=True)
class _Lost:
    """A lower bound, in every measure, of what two distributions lose."""

    distributions: FiniteDistributions

    def renyi(self, order: float) -> float:
        return self.distributions.renyi(order)

    def rho(self, omega: float) -> float:
        # The distributions' own `rho` is an upper bound.
        orders: list[float] = guaranteed_orders(omega).tolist()
        return max(self.distributions.renyi(order) / order for order in orders)

    def delta(self, epsilon: float) -> float:
        return self.distributions.delta(epsilon)

    @property
    def pure_epsilon(self) -> float:
        return self.distributions.pure_epsilon
