"""Roots, integrals and tails. Nothing here knows of privacy."""
