"""Naive Bayes and Bayesian networks: models for records, and predictions from releases."""
