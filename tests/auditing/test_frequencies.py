"""Keys that are commoner for one data set score higher."""

import math

import numpy as np
import pytest

from pymc_dirdp.auditing.statistics import frequency_ratio, most_informative


def test_a_ratio_is_that_of_the_counts_with_half_an_observation():
    x, y = np.array([7, 7, 7, 9], dtype=np.uint64), np.array([7, 9, 9, 9], dtype=np.uint64)
    score = frequency_ratio(x, y)(np.array([7, 9, 8, 2**63], dtype=np.uint64))
    assert score[:2].tolist() == pytest.approx([math.log(3.5 / 1.5), -math.log(3.5 / 1.5)])
    np.testing.assert_array_equal(score[2:], 0)


def test_samples_of_two_sizes_are_compared_by_their_shares():
    x, y = np.zeros(1_000, dtype=np.uint64), np.zeros(10, dtype=np.uint64)
    assert frequency_ratio(x, y)(x[:1])[0] == pytest.approx(0, abs=1e-9)


def test_the_key_that_tells_most_is_not_the_one_with_most_values():
    """A key that never repeats fits its own outputs best, and tells nothing about others."""
    rng = np.random.default_rng(3)
    unique = [rng.integers(2**60, size=2_000, dtype=np.uint64) for _ in range(2)]
    telling = [(rng.random(2_000) < share).astype(np.uint64) for share in (0.5, 0.6)]
    assert most_informative([unique[0], telling[0]], [unique[1], telling[1]], 1) == [1]
