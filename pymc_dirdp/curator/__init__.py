"""What only the holder of the data may see: diagnoses, realised errors, pointwise scores. All of it is confidential."""

from pymc_dirdp.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
