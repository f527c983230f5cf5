"""Distributions that are cut into cells never lose more than those they come from, and little less."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import pymc_dirdp as dirdp
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions


def test_merging_cells_loses_little_and_gains_nothing():
    cells = np.arange(-12, 12, 0.02)
    logs = [norm.logpdf(cells, mean) for mean in (0.5, 0.0)]
    distributions = FiniteDistributions(*(log - logsumexp(log) for log in logs))
    product = distributions.merged(600).times(distributions.merged(600))
    merged = product.merged(800)
    assert len(merged.log_p) <= 800
    assert np.exp(merged.log_p).sum() == pytest.approx(1, rel=1e-9)
    for order in (1.0, 2.0, 8.0):
        assert merged.renyi(order) <= product.renyi(order) * (1 + 1e-12)
        assert merged.renyi(order) == pytest.approx(order * 0.5**2, rel=1e-3)
    for epsilon in (0.0, 1.0, 3.0):
        assert merged.delta(epsilon) <= product.delta(epsilon) * (1 + 1e-12)
        assert merged.delta(epsilon) == pytest.approx(product.delta(epsilon), rel=5e-3)


def test_impossible_cells_stay_impossible_when_cells_are_merged():
    distributions = FiniteDistributions(np.log([0.5, 0.25, 0.25]), np.array([-math.inf, math.log(0.5), math.log(0.5)]))
    assert distributions.merged(2).delta(5.0) == pytest.approx(0.5)


def test_a_record_in_each_of_many_rows_is_a_composition():
    """Oracle: the composition of as many mechanisms of one row, by its own convolution."""
    row, rows = dirdp.mechanisms.DirichletMechanism([1.0, 1.0, 1.0], 0.2), 3
    table = dirdp.mechanisms.DirichletMechanism(np.ones((rows, 3)), 0.2)
    x, y = np.zeros((2, rows, 3))
    x[:, 0], y[:, 1] = 1, 1
    distributions, whole = table.output_distributions(x, y, cells=2_000), Composition(((row, rows),))
    for order in (1.0, 2.0):
        assert distributions.renyi(order) <= whole.renyi(order) * (1 + 1e-9)
        assert distributions.renyi(order) == pytest.approx(rows * row.renyi(order), rel=5e-3)
    assert distributions.delta(0.5) <= whole.delta(0.5)
    assert distributions.delta(0.5) == pytest.approx(whole.delta(0.5), rel=2e-2)


def test_what_is_not_known_is_refused():
    mechanism = dirdp.mechanisms.DirichletMechanism(np.ones(4), 0.3)
    with pytest.raises(dirdp.errors.ArgumentError, match="changes its cell within a row"):
        mechanism.output_distributions(np.array([3.0, 0, 0, 0]), np.array([0.0, 1, 0, 0]))
    with pytest.raises(dirdp.errors.ArgumentError, match="two data sets that differ"):
        mechanism.output_distributions(np.ones(4), np.ones(4))
    with pytest.raises(dirdp.errors.ArgumentError, match="too many cells"):
        dirdp.mechanisms.DiscreteGaussianMechanism(np.ones(2), 1e20).output_distributions(
            np.array([1.0, 0.0]), np.array([0.0, 1.0])
        )
