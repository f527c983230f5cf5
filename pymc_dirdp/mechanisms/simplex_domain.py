"""The domain of P3's simplex mechanism."""

from dataclasses import KW_ONLY, dataclass
from fractions import Fraction
from typing import final

from pymc_dirdp.checks import integer, open_unit_interval, positive
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.numerics.rounding import not_below

__all__ = ["SimplexDomain"]

# The rounding error of one addition of probabilities.
_ROUNDING = Fraction(1, 2**52)


@final
@dataclass(frozen=True)
class SimplexDomain:
    """Vectors of the unit simplex with floors, and a neighbouring relation on them.

    Two vectors are neighbours if they differ in two protected entries, by at most `b / 2` in each.

    Parameters
    ----------
    n_protected : int
        How many entries are protected, `|W|`, at least 2.
    eta : float
        Every protected entry is at least this.
    etabar : float
        The entries that are not protected add up to at least this.
    b : float
        The l1 norm of what a neighbour changes, in (0, 1].
    weight : float, default 1.0
        How much one person's vector counts in what is released: 1 for an identity query, `1 / N` for an average,
        the largest `|l_j|` for a linear query.

    References
    ----------
    P3 Definitions 1 and 3, Assumption 1, with ERRATA P3.6 and P3.7.

    Examples
    --------
    >>> SimplexDomain(2, eta=0.1, etabar=0.1, b=0.1).n_protected
    2
    """

    n_protected: int
    _: KW_ONLY
    eta: float
    etabar: float
    b: float
    weight: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_protected", integer(2, n_protected=self.n_protected))
        for name in ("eta", "etabar"):
            object.__setattr__(self, name, open_unit_interval(**{name: getattr(self, name)}))
        object.__setattr__(self, "b", positive(b=self.b))
        object.__setattr__(self, "weight", positive(weight=self.weight))
        if self.b > 1 or self.weight > 1:
            raise ArgumentError(f"Expected b and weight to be at most 1, got b={self.b:g}, weight={self.weight:g}.")
        if self.span <= 2 * self.eta:
            raise ArgumentError(
                f"The domain holds one vector at most: {self.n_protected} entries of at least eta={self.eta:g} and the "
                f"rest of at least etabar={self.etabar:g} leave nothing to move. Lower eta or etabar."
            )

    @property
    def span(self) -> float:
        """`C = 1 - etabar - (m - 2) eta`, the largest sum of two protected entries."""
        return 1 - self.etabar - (self.n_protected - 2) * self.eta

    @property
    def largest_step(self) -> float:
        """How far one person can move an entry of what is released: `weight * min(b / 2, C - 2 eta)`, rounded up.

        With fractions, because little is left of the difference where the domain is small. An input is checked with a
        sum of doubles, whose rounding is added.
        """
        m = self.n_protected
        room = 1 - Fraction(self.etabar) - m * Fraction(self.eta) + m * _ROUNDING
        return not_below(Fraction(self.weight) * min(Fraction(self.b) / 2, room))
