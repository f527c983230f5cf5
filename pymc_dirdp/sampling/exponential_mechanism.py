"""One of finitely many candidates by the exponential mechanism, drawn with integers and random bits alone."""

from collections.abc import Sequence
from fractions import Fraction

from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import Uniform, exponential_coin

__all__ = ["chosen"]


def chosen(scores: Sequence[int], scale: Fraction, bits: Bits) -> int:
    """A position with a probability in proportion to `exp(scores[position] / scale)`, exactly.

    Parameters
    ----------
    scores : sequence of int
        Integers of any size and sign, at least one. Secret.
    scale : Fraction
        Positive. For a real scale take :func:`pymc_dirdp.sampling.discrete_noise.dyadic_above` of it.
    bits : Bits
        The source of randomness.

    Returns
    -------
    position : int

    Notes
    -----
    A position is proposed with equal probabilities, and accepted with probability `exp((score - largest score) /
    scale)`. So the number of proposals, and with it the time, depends on the scores: let nobody time a choice who may
    not know them.

    References
    ----------
    McSherry and Talwar (2007), Mechanism design via differential privacy, https://doi.org/10.1109/FOCS.2007.66.
    Canonne, Kamath and Steinke (2020), Algorithm 1, for the coin.

    Examples
    --------
    >>> chosen([0, 10**6, 3], Fraction(1), Bits())
    1
    """
    t, s = scale.numerator, scale.denominator
    largest = max(scores)
    while True:
        position = bits.uniform(len(scores))
        if _accepted(bits.uniform, (largest - scores[position]) * s, t):
            return position


def _accepted(uniform: Uniform, a: int, b: int) -> bool:
    """True with probability `exp(-a / b)`, for any `a` of at least 0."""
    whole, rest = divmod(a, b)
    return all(exponential_coin(uniform, 1, 1) for _ in range(whole)) and exponential_coin(uniform, rest, b)
