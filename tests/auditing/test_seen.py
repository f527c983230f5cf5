"""Outputs of any shape become rows, and their kinds tell shapes and zeros apart."""

import numpy as np

from pymc_dirdp.auditing.statistics import as_rows, commonest_shape, hashed


def test_other_shapes_are_separate():
    outputs = [np.array([1.0, 0.0]), np.array([2.0, 3.0]), np.ones(3), np.ones(3), np.zeros(3), np.array(np.nan)]
    assert commonest_shape(outputs[:2]) == (2,)
    found = as_rows(outputs, (2,))
    np.testing.assert_array_equal(found.inside, [True, True, False, False, False, False])
    np.testing.assert_array_equal(found.points[:2], [[1, 0], [2, 3]])
    assert found.kinds[2] == found.kinds[3]
    assert len(set(found.kinds.tolist())) == 5


def test_what_is_not_a_number_is_of_another_kind_and_counts_as_zero():
    found = as_rows(np.array([[1.0, np.nan], [1.0, 2.0], [np.inf, 2.0]]), (2,))
    assert len(set(found.kinds.tolist())) == 3
    np.testing.assert_array_equal(found.numbers[0], [1, 0])
    assert np.all(np.isfinite(found.numbers))


def test_parts_keep_all_that_is_known():
    part = as_rows(np.arange(10.0).reshape(5, 2), (2,))[1:3]
    assert len(part) == 2
    np.testing.assert_array_equal(part.points, [[2, 3], [4, 5]])


def test_rows_that_differ_have_keys_that_differ():
    rng = np.random.default_rng(2)
    rows = rng.random((50_000, 3)).view(np.uint64)
    assert len(np.unique(hashed(rows))) == 50_000
    small = np.stack(np.meshgrid(*[np.arange(30, dtype=np.uint64)] * 3), axis=-1).reshape(-1, 3)
    assert len(np.unique(hashed(small))) == 30**3
    assert hashed(small[:1])[0] == hashed(small[:1].copy())[0]
