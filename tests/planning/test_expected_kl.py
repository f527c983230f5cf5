"""Closed forms against Monte Carlo and brute-force sums."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import polygamma

from pymc_dirdp.curator.realised import by_size, frequencies
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.planning.draw_error import expected_kl
from pymc_dirdp.planning.expected_kl import PriorExpectedKL, dirichlet_kl_rows

REFERENCE = Path(__file__).parents[1] / "reference" / "curves.json"


def realised_kl(counts, alpha, r):
    """`E KL(x/N || y)` over `y ~ Dirichlet(r x + alpha)`, averaged over rows by size."""
    x = np.asarray(counts)
    return float(by_size(x, expected_kl(frequencies(x), r * x + np.asarray(alpha))))


def test_reference_values():
    reference = json.loads(REFERENCE.read_text())
    for case in reference["expected_kl"]:
        value = realised_kl(case["counts"], case["alpha"], case["r"])
        assert value == pytest.approx(float(case["value"]), rel=1e-10)
    for case in reference["dirichlet_kl"]:
        value = dirichlet_kl_rows(np.array(case["u"]), np.array(case["v"])).sum()
        assert value == pytest.approx(float(case["value"]), rel=1e-9)
    assert np.isnan(realised_kl([0, 0], [1, 1], 1.0))
    assert PriorExpectedKL([1, 1], 0).posterior(0.1) == 0
    with pytest.raises(ArgumentError, match="n_records"):
        PriorExpectedKL(np.ones(2), -1)


def test_dirichlet_kl_of_equal_distributions_is_zero_and_of_near_ones_does_not_cancel():
    u = np.array([3.0, 5.0])
    assert dirichlet_kl_rows(u, u) == 0
    # Second order: the Fisher information times half the squared step.
    step = 1e-7
    expected = step**2 / 2 * (polygamma(1, 3.0) - polygamma(1, 8.0))
    assert dirichlet_kl_rows(u, u + [step, 0]) == pytest.approx(expected, rel=1e-5)


def test_rows_are_planned_with_an_equal_share_each():
    """Oracle: two tables of one row each, with half of the records."""
    prior = np.array([[1.0, 2.0, 0.5], [3.0, 1.0, 1.0]])
    both = PriorExpectedKL(prior, 60)
    rows = [PriorExpectedKL(row, 30) for row in prior]
    for how in ({"s": 1.5}, {"keep": 0.5}):
        assert both.posterior(0.3, **how) == pytest.approx(sum(row.posterior(0.3, **how) for row in rows), rel=1e-12)
        # The loss of the draw is an average over rows, that of posteriors a sum.
        assert both.estimate(0.3, **how) == pytest.approx(sum(row.estimate(0.3, **how) for row in rows) / 2, rel=1e-12)
