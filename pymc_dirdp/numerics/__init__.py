"""Roots, integrals and tails. This package does not depend on anything about privacy."""
