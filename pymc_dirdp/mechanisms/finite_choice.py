"""One of finitely many outcomes, drawn in integers from probabilities that are doubles."""

from bisect import bisect_right
from itertools import accumulate

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.sampling.bits import Bits

__all__ = ["drawn_from", "whole_weights"]

# A probability p becomes the weight p 2**100 + 2**50, rounded down.
_ONE, _FLOOR = 100, 50


def whole_weights(probabilities: Array) -> list[int]:
    """Probabilities as whole weights, each at least `2**50`.

    The floor is the same whatever the secret is, so the distribution that is drawn from is a mixture: it is that of the
    weights with probability about `1 - size * 2**-50`, and uniform otherwise. Mixing two distributions with the same
    third one never increases a divergence between them, and an outcome that is possible for one data set is so for all.
    What is rounded down is below 1, that is `2**-50` of any weight, so it moves a loss by less than 1e-15.

    Parameters
    ----------
    probabilities : array, shape (size,)
        At least 0. They need not add up to 1 exactly.
    """
    floor = 1 << _FLOOR
    return [int(p) + floor for p in np.ldexp(probabilities, _ONE).tolist()]


def drawn_from(probabilities: Array, bits: Bits) -> int:
    """The index of an outcome, with probability proportional to its whole weight exactly."""
    cumulative = list(accumulate(whole_weights(probabilities)))
    return bisect_right(cumulative, bits.uniform(cumulative[-1]))
