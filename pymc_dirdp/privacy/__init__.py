"""What is guaranteed and what is lost: privacy curves, and what one person can change."""

from pymc_dirdp.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
