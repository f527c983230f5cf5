"""Attacks on mechanisms. `attack` draws outputs and counts; `curve_audit` integrates the laws of the outputs."""
