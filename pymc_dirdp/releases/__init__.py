"""From a model and a guarantee to a release that is safe to publish, and to its report."""

from pymc_dirdp.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
