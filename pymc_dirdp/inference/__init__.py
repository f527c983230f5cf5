"""What may anybody conclude from a release? Exact laws of the counts and the shares behind it."""
