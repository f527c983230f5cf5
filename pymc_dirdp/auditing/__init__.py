"""Attacks on mechanisms. `attack` draws outputs and counts; `curve_check` integrates their densities."""

from pymc_dirdp.lazy import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
