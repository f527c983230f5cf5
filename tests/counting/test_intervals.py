"""Numbers as intervals, in memory."""

import numpy as np
import pytest

from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.counting.intervals import count_between, interval_of
from pymc_dirdp.errors import DataError


@pytest.mark.parametrize("kind", [list, np.array, lambda values: np.array(values, dtype=object)])
def test_an_interval_is_the_number_of_edges_that_are_reached(kind):
    values = [-np.inf, -1, 0, 0.5, 1, 2, np.inf]
    assert interval_of(kind(values), [0, 1.0]).tolist() == [0, 0, 1, 1, 2, 2, 2]


def test_whole_numbers_of_any_type():
    for dtype in (np.int8, np.uint64, np.int64, np.float32):
        assert interval_of(np.array([1, 2, 3], dtype=dtype), [2, 3]).tolist() == [0, 1, 2]


def test_records_are_counted_in_each_interval():
    rng = np.random.default_rng(0)
    values, edges = rng.normal(size=500), [-1.0, 0.0, 2.0]
    expected = [np.sum((low <= values) & (values < high)) for low, high in zip([-9, *edges], [*edges, 9], strict=True)]
    assert count_between({"x": values}, "x", edges, None).tolist() == expected
    assert count_between({"x": [], "who": []}, "x", edges, Bound("who", 1)).tolist() == [0, 0, 0, 0]
    assert count_between({"x": values, "who": [1] * 500}, "x", edges, Bound("who", 3)).sum() == 3
    with pytest.raises(DataError, match="not of one length"):
        count_between({"x": values, "who": [1]}, "x", edges, Bound("who", 1))
