"""Pictures. Every function takes axes, or makes them, and returns them; colours survive a black-and-white print."""

from pymc_dirdp.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
