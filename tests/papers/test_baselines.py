"""Rules for several synthetic data sets: their formulas, and their guard; and errors of the cells of a draw."""

import numpy as np
import pytest
from scipy import stats

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.papers import cell_errors


def test_the_published_formulas():
    q, u = np.array([0.31, 0.35, 0.28, 0.36]), np.array([1e-4, 2e-4, 2e-4, 3e-4])
    combined = dirdp.papers.combine(q, u)
    between = np.sum((q - q.mean()) ** 2) / 3
    total = (1 + 1 / 4) * between - u.mean()
    degrees = 3 * (1 - u.mean() / ((1 + 1 / 4) * between)) ** 2
    assert combined.estimate == pytest.approx(0.325)
    assert combined.variance == pytest.approx(total)
    assert combined.degrees_of_freedom == pytest.approx(degrees)
    low, high = combined.interval(0.8)
    assert stats.t(degrees, 0.325, np.sqrt(total)).cdf([low, high]) == pytest.approx([0.1, 0.9])


def test_a_difference_that_is_not_positive_is_replaced():
    """One coordinate has a negative difference, one none at all, and one a positive one."""
    q = np.array([[0.3, 0.3, 0.1], [0.3001, 0.3, 0.5]])
    combined = dirdp.papers.combine(q, np.full((2, 3), 0.01), records_ratio=0.5)
    np.testing.assert_allclose(combined.variance, [0.005, 0.005, 1.5 * 0.08 - 0.01])
    np.testing.assert_allclose(combined.degrees_of_freedom[:2], 1.0)
    assert np.all(np.isfinite(combined.interval()))
    alike = dirdp.papers.combine([0.0, 0.0], [0.0, 0.0])
    assert alike.interval() == (0.0, 0.0)


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"estimates": [0.3], "variances": [0.1]}, "two sets"),
        ({"estimates": 0.3, "variances": 0.1}, "two sets"),
        ({"estimates": [0.3, np.nan]}, "finite estimates"),
        ({"variances": [0.1, -0.1]}, "finite estimates"),
        ({"estimates": ["a", "b"]}, "two sets|finite estimates"),
        ({"records_ratio": 0.0}, "records_ratio"),
        ({"prob": 0.0}, "prob"),
        ({"prob": 1.0}, "prob"),
    ],
)
def test_what_cannot_be_combined(wrong, match):
    arguments = {"estimates": [0.1, 0.2], "variances": [0.1, 0.1], "prob": 0.5} | wrong
    prob = arguments.pop("prob")
    with pytest.raises(ArgumentError, match=match):
        dirdp.papers.combine(**arguments).interval(prob)


# Bias and error of a cell against Beta distributions, and the errors of a group of two.

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
