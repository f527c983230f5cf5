"""Drawing from the law of a mechanism. `entropy` is the only door to randomness."""
