"""Counts of records, from any engine, over a declared domain."""
