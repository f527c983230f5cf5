"""Bounds and statements of the papers, by paper and theorem. Exact curves are in `privacy` and `mechanisms`."""

from pymc_dirdp.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
