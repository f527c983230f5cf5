"""Bias and error of a cell against Beta distributions, the counts of an urn, and the errors of a group of two."""

import numpy as np
import pytest
from scipy import stats

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.papers import cell_errors

SIX = dirdp.ApproxDP(epsilon=0.5, delta=1e-6)


def test_the_distributions_of_the_cells():
    counts, alpha, r = np.array([[0, 7, 93], [40, 40, 20]]), np.array([[1.0, 0.5, 2.0], [3.0, 1.0, 0.1]]), 0.3
    found = cell_errors(DirichletMechanism(alpha, r), counts, row_records=100)
    u = r * counts + alpha
    distribution = stats.beta(u, u.sum(axis=1, keepdims=True) - u)
    np.testing.assert_allclose(found.bias, distribution.mean() - counts / 100, rtol=1e-12, atol=1e-16)
    np.testing.assert_allclose(found.sd, distribution.std(), rtol=1e-12)
    np.testing.assert_allclose(
        found.error, np.sqrt(distribution.var() + (distribution.mean() - counts / 100) ** 2), rtol=1e-12
    )
    assert found.relative_bias[0, 0] == np.inf
    assert found.relative_bias[0, 1] == pytest.approx(distribution.mean()[0, 1] / 0.07 - 1, rel=1e-10)


def test_a_group_of_two_is_expected_to_look_fifteen_times_as_large():
    """Six categories, a flat prior of 1, 5000 records, (0.5, 1e-6): +1380 %, and more for P1's objective."""
    planned = dirdp.calibrate(SIX, prior=[1] * 6, n_records=5000)
    small, large = (cell_errors(planned, count, row_records=5000).relative_bias[0] for count in (2, 1000))
    assert small == pytest.approx(13.806, abs=5e-3)
    assert large == pytest.approx(-0.0055, abs=5e-4)
    for_estimate = dirdp.calibrate(SIX, prior=[1] * 6, n_records=5000, objective="estimate")
    assert cell_errors(for_estimate, 2, row_records=5000).relative_bias[0] == pytest.approx(17.58, abs=0.01)


def test_extremes():
    found = cell_errors(DirichletMechanism(np.full(1000, 1e-3), 1e-4), 1, row_records=10_000_000)
    assert np.all(np.isfinite(found.error))
    assert found.relative_bias[0] > 0
    # A guarantee of this size leaves nothing of a bias, and its sign is not lost either.
    sharp = cell_errors(DirichletMechanism([1.0, 1.0], 1e6), [1, 9], row_records=10)
    np.testing.assert_allclose(sharp.bias, [8e-8, -8e-8], rtol=1e-6)


def test_arguments_and_the_text_of_the_object():
    mechanism = DirichletMechanism([1.0, 1.0], 0.5)
    assert "0.3" not in repr(cell_errors(mechanism, 3, row_records=10))
    for wrong in (-1, 11, np.nan, "three", [1, 2, 3]):
        with pytest.raises(ArgumentError, match="counts") as caught:
            cell_errors(mechanism, wrong, row_records=10)
        assert caught.value.__context__ is None
    with pytest.raises(ArgumentError, match="row_records"):
        cell_errors(mechanism, 0, row_records=0)
    with pytest.raises(ArgumentError, match="GeometricMechanism does not draw from a tempered posterior"):
        cell_errors(dirdp.mechanisms.GeometricMechanism([1, 1], 2.0), 3, row_records=10)
    with pytest.raises(ArgumentError, match="not draw from a tempered posterior"):
        cell_errors("dirichlet", 3, row_records=10)
