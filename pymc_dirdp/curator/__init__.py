"""Confidential results for the data holder only: diagnoses, realised errors and pointwise scores."""

from pymc_dirdp.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
