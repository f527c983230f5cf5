"""The ledger: all releases about the same people, and the remaining budget."""
