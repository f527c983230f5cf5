"""Rational parameters on the safe side of the real ones."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.checks import integer, positive, positive_array
from pymc_dirdp.errors import UnattainableError

__all__ = ["LARGEST_TOTAL", "Rationals", "dyadic_above", "rounded"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# The urn counts in 64-bit integers; half of their range is left over, so that few random words are thrown away.
LARGEST_TOTAL = 2**62

# A finer grid than 2**-40, relative, would change nothing that can be seen. A coarser one than 2**-10 might.
_FINE = 40
_COARSE = 10


@dataclass(frozen=True, eq=False)
class Rationals:
    """`alpha` and `r` as whole numbers over one denominator.

    Attributes
    ----------
    prior : array of int, shape (..., d)
        Numerators of `alpha`, at least 1.
    per_record : int
        Numerator of `r`, at least 1.
    denominator : int
        A power of two, so that both are also doubles, without any rounding.
    steps : int
        Number of steps of the urn.
    most_records : int
        With so many records in a row, or fewer, the numerators and the steps stay below :data:`LARGEST_TOTAL`.
    """

    prior: Integers
    per_record: int
    denominator: int
    steps: int
    most_records: int

    @cached_property
    def alpha(self) -> Array:
        """The prior parameters that are used: exact, and not below those that were asked for."""
        return self.prior / float(self.denominator)

    @property
    def r(self) -> float:
        """The concentration that is used: exact, and not above the one that was asked for."""
        return self.per_record / self.denominator

    def weights(self, counts: Integers) -> Integers:
        """Numerators of `r * counts + alpha`. **Secret**, as the counts are.

        Parameters
        ----------
        counts : array of int, shape (..., d)
            At most `most_records` in each row.
        """
        weights: Integers = self.per_record * counts + self.prior
        return weights


def rounded(alpha: ArrayLike, r: float, *, steps: int, most_records: int) -> Rationals:
    """The nearest pair on a fine grid with `alpha` not smaller and `r` not larger.

    Every privacy curve rises with `r` and falls with `alpha` (Theory, Theorem 3), so the curves of the rounded pair
    are nowhere above those of the pair that was asked for.

    Parameters
    ----------
    alpha : array_like, shape (..., d)
        Prior parameters, positive.
    r : float
        Concentration, positive.
    steps : int
        Number of steps of the urn, at least 1: the records in every row of the synthetic table. Must be public.
    most_records : int
        A **public** bound on the number of records in any row of any data set that could occur.

    Returns
    -------
    rationals : Rationals
        The denominator is the least power of two that moves `r` and every `alpha` by at most 2**-40, relative, or the
        largest that keeps the numerators and the steps together below 2**62 for every data set within the bound. It
        depends on these public arguments alone.

    Raises
    ------
    UnattainableError
        If only a grid fits that moves `r` or some `alpha` by more than 2**-10, relative.

    References
    ----------
    Theory, section 11 and Theorem 3.
    """
    wanted, concentration = positive_array(alpha=alpha), positive(r=r)
    steps, most_records = integer(1, steps=steps), integer(0, most_records=most_records)
    # frexp(x) = (mantissa, e) with x >= 2**(e - 1).
    finest = max(0, _FINE + 1 - math.frexp(min(concentration, float(wanted.min())))[1])
    k = min(finest, _largest_exponent(wanted, concentration, steps, most_records))
    if k >= 0:
        # Scaling by a power of two and rounding to a whole number are exact in floating point, and so are the integers:
        # a double above 2**53 is whole already.
        result = Rationals(
            prior=np.ceil(np.ldexp(wanted, k)).astype(np.int64),
            per_record=math.floor(math.ldexp(concentration, k)),
            denominator=2**k,
            steps=steps,
            most_records=most_records,
        )
        if max(1 - result.r / concentration, float(np.max(result.alpha / wanted)) - 1) <= 2.0**-_COARSE:
            return result
    raise UnattainableError(
        f"With steps={steps} and most_records={most_records} the exact sampler cannot hold r={concentration:g} and "
        f"alpha (from {wanted.min():g} to {wanted.max():g}) within 0.1 % in 62-bit integers. "
        "Lower steps or most_records, or use sampler='fast'."
    )


def _largest_exponent(alpha: Array, r: float, steps: int, most_records: int) -> int:
    """The largest k for which every total is certain to stay below the limit. Negative if there is none."""
    # In units of 1 / denominator: every step adds one, the prior and the records are there from the start. The slack is
    # for the rounding of these sums; each numerator of the prior may be rounded up by one.
    total = (float(alpha.sum(axis=-1).max()) + r * most_records + steps) * (1 + 2.0**-20)
    mantissa, exponent = math.frexp((LARGEST_TOTAL - alpha.shape[-1]) / total)
    return exponent - 1 if mantissa else -1


def dyadic_above(value: float | Fraction) -> Fraction:
    """The least number that is not below `value` and has 41 binary digits or fewer."""
    exact = Fraction(value)
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    exponent -= exact < Fraction(2) ** exponent
    step = Fraction(2) ** (exponent - 40)
    return math.ceil(exact / step) * step
