"""Private Thompson sampling, its simulator, and what no private policy can beat."""

from pymc_dirdp.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
