"""The ledger: what has been released about the same people, and what is left of a limit."""
