"""Rules for several synthetic data sets: their formulas, their guard, and what fits them not."""

import numpy as np
import pytest
from scipy.stats import t

import pymc_dirdp as dirdp


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
    assert t(degrees, 0.325, np.sqrt(total)).cdf([low, high]) == pytest.approx([0.1, 0.9])


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
    with pytest.raises(dirdp.errors.ArgumentError, match=match):
        dirdp.papers.combine(**arguments).interval(prob)
