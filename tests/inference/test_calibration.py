"""The truth lies where the distribution says it does, over many data sets from the prior; misreadings of them fail."""

import numpy as np
import pytest

from .calibration import CASES, LEVELS, coverage, p_value, ranks_of

# Misread are the number of records, and the scale of the noise.
FAST = {"4 cells, N 1000, r 0.1": {"total": 1.05}, "geometric 20, 10 cells, N 300, sparse": {"r": 1.6}}


@pytest.mark.parametrize(
    ("name", "sets"),
    [
        *(pytest.param(name, 150, marks=pytest.mark.thorough) for name in FAST),
        *(pytest.param(name, 1000, marks=pytest.mark.slow) for name in CASES),
    ],
)
def test_calibrated(name, sets):
    shares, counts, naive = ranks_of(CASES[name], sets, np.random.default_rng(1))
    for ranks in (shares, counts):
        assert p_value(ranks) > 1e-6
        for prob, (found, error) in zip(LEVELS, coverage(ranks), strict=True):
            # Of few data sets all may hold the truth, and then their own spread says nothing.
            assert abs(found - prob) < 4 * max(error, np.sqrt(prob * (1 - prob) / sets)) + 0.005
    assert p_value(naive) < 1e-6
    if name in FAST:
        shares, counts, _ = ranks_of(CASES[name], sets, np.random.default_rng(4), **FAST[name])
        assert min(p_value(shares), p_value(counts)) < 1e-6
