"""The bounds and statements of the papers, by paper and theorem, beside which the exact curves stand."""

from pymc_dirdp.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
