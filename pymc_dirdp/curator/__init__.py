"""What the holder of the data may see and nobody else: diagnoses, realised errors, pointwise scores. Confidential."""

from pymc_dirdp.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
