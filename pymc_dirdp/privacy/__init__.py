"""Guarantees, privacy curves, and the sensitivity of tables to one person."""

from pymc_dirdp.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
