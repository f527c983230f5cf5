"""Posteriors as points of a metric space: the candidates of P4's mechanisms, their distances and sensitivities."""
