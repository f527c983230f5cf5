"""Tables of billions of cells: counted, released and estimated by the cells that are listed."""

from pymc_dirdp.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
