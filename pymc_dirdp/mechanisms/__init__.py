"""One mechanism a file. Public numbers in fields, counts only as arguments of a call."""

from pymc_dirdp.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
