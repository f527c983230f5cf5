"""Drawing from the distribution of a mechanism: `fast` in floating point, `exact` in integers.

All randomness comes from `entropy` or, for the exact sampler, from `bits`; both take it from the operating system.
"""
