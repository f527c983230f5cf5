"""Draws from the distribution of a mechanism: `fast` in floating point, `exact` in integers.

All randomness comes from `bits`, which takes it from the operating system.
"""
