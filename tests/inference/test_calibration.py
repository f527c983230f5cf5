"""The truth lies where the distribution says it does.

Over many data sets from the prior; other readings of them fail.
"""

import numpy as np
import pytest

from .calibration import CASES, LEVELS, coverage, p_value, ranks_of

FAST = ("4 cells, N 1000, r 0.1", "geometric 20, 10 cells, N 300, sparse")


def holds(case, sets, seed):
    shares, counts, naive = ranks_of(case, sets, np.random.default_rng(seed))
    for ranks in (shares, counts):
        assert p_value(ranks) > 1e-6
        for prob, (found, error) in zip(LEVELS, coverage(ranks), strict=True):
            # Of few data sets all may hold the truth, and then their own spread says nothing.
            assert abs(found - prob) < 4 * max(error, np.sqrt(prob * (1 - prob) / sets)) + 0.005
    return naive


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAST)
def test_calibrated(name):
    assert p_value(holds(CASES[name], 200, 1)) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_case_is_calibrated_over_a_thousand_data_sets(name):
    assert p_value(holds(CASES[name], 1000, 3)) < 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "misread"),
    [
        ("4 cells, N 1000, r 0.1", {"total": 1.05}),
        ("geometric 20, 10 cells, N 300, sparse", {"r": 1.6}),
    ],
)
def test_a_misread_release_is_not_calibrated(name, misread):
    shares, counts, _ = ranks_of(CASES[name], 200, np.random.default_rng(4), **misread)
    assert min(p_value(shares), p_value(counts)) < 1e-6
