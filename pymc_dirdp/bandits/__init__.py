"""Private Thompson sampling, its simulator, and a lower bound on the regret of private policies."""

from pymc_dirdp.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
