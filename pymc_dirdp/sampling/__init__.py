"""Drawing from the law of a mechanism: `fast` in floating point, `exact` in whole numbers.

`entropy` and, for the exact sampler, `bits` are the only doors to randomness; both open on the operating system.
"""
