"""What may anybody infer from a release? Exact distributions of the counts and the shares behind it."""
