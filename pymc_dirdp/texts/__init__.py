"""The form of every text that leaves the house, from which it is read again."""
