"""Roots, integrals and tails. This room does not depend on anything about privacy."""
