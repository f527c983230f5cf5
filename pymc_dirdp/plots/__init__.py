"""Pictures. Every function draws on your axes or creates them, and returns them. Pictures are readable in greyscale."""

from pymc_dirdp.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
