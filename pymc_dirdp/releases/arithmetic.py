"""How draws were made, in words."""

from pymc_dirdp.mechanisms.base import Mechanism

__all__ = ["arithmetic"]

# What is proved about a draw, by sampler.
_ARITHMETIC = {
    "exact": "whole numbers: the release has the proved law, and nothing was rounded on the way from the counts",
    "fast": "floating point, rounded to a public grid: the guarantee is proved for the ideal law, and nothing is "
    "proved of the last bits of this draw",
}


_BY_WEIGHTS = (
    "whole numbers, by weights that were computed in floating point: the loss of the law that was drawn from is known "
    "to about 1e-12"
)


def arithmetic(mechanism: Mechanism, sampler: str) -> str:
    """What is proved about the numbers of a draw; nothing is said of a sampler that is not chosen yet."""
    if sampler == "exact" and mechanism.weighs_in_floats:
        return _BY_WEIGHTS
    return _ARITHMETIC.get(sampler, "")
