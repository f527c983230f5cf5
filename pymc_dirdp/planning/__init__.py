"""Planning without data: calibration, allocation, choice, comparison, price lists, expected errors."""

from pymc_dirdp.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
