"""One mechanism per file. Fields hold public numbers; counts are only ever arguments of a call."""

from pymc_dirdp.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
