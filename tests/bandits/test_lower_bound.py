"""The constant of the lower bound, against a search over all means between two."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.simulation import divergence


def kl(z, y):
    return z * np.log(z / y) + (1 - z) * np.log((1 - z) / (1 - y))


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 10.0])
@pytest.mark.parametrize(("x", "y"), [(0.2, 0.3), (0.05, 0.9), (0.49, 0.5), (1e-4, 0.01)])
def test_the_divergence_is_the_least_of_all(x, y, epsilon):
    found = minimize_scalar(
        lambda z: epsilon * abs(z - x) + kl(z, y), bounds=(x, y), method="bounded", options={"xatol": 1e-12}
    )
    assert divergence(np.array([x]), y, epsilon)[0] == pytest.approx(min(found.fun, kl(x, y)), rel=1e-6)


def test_it_is_that_of_lai_and_robbins_without_privacy_and_that_of_the_specification_with_it():
    means = [0.75, 0.5, 0.6]
    expected = sum((0.75 - mu) / kl(mu, 0.75) for mu in means[1:])
    assert dirdp.bandits.bandit_lower_bound(means, np.inf) == pytest.approx(expected)
    assert dirdp.bandits.bandit_lower_bound(means, 50.0) == pytest.approx(expected)
    for means, value in (([0.75, 0.625, 0.5, 0.375, 0.25], 576), ([0.75, 0.7, 0.7, 0.7, 0.7], 683)):
        assert dirdp.bandits.bandit_lower_bound(means, 0.1) * np.log(1e6) == pytest.approx(value, abs=0.6)


def test_equal_arms_cost_nothing_and_no_privacy_budget_costs_all():
    assert dirdp.bandits.bandit_lower_bound([0.5, 0.5], 1.0) == 0
    assert dirdp.bandits.bandit_lower_bound([0.5, 0.4], 0.0) == np.inf


@pytest.mark.parametrize("means", [[], [0.5], [0.0, 0.5], [1.0, 0.5], [0.5, np.nan], "ab", [[0.1, 0.2]]])
def test_bad_means(means):
    with pytest.raises(dirdp.errors.ArgumentError, match="mean"):
        dirdp.bandits.bandit_lower_bound(means, 1.0)
