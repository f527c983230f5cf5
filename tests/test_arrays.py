"""The different ones of many values."""

import numpy as np
import pytest

from pymc_dirdp.arrays import distinct_values

RNG = np.random.default_rng(1)
VALUES = {
    "none": np.array([], dtype=np.int64),
    "one": np.array([7]),
    "equal": np.full((3, 4), -5),
    "close": RNG.integers(-3, 4, (50, 4)),
    "with gaps": RNG.choice([-9, 0, 8], 1000),
    "the next to a search": np.array([0, 2, 1, 4]),
    "the last of a look-up": np.array([0, 2, 1, 3]),
    "far apart": np.array([2**63 - 1, -(2**63), 0, 0]),
    "at the end": np.array([2**63 - 1, 2**63 - 2, 2**63 - 1]),
    "at the other end": np.array([-(2**63), -(2**63) + 1]),
    "bits of doubles": np.array([0.0, -0.0, 1.0, 1.0]).view(np.int64),
    "doubles": np.array([0.5, -1.0, 0.5]),
}


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_each_value_is_found_at_its_place(values):
    found, place = distinct_values(values)
    assert found.dtype == values.dtype
    assert np.all(found[1:] > found[:-1])
    np.testing.assert_array_equal(found[place], values)
    np.testing.assert_array_equal(found, np.unique(values))
