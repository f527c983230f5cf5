"""Values of synthetic records that are changed one at a time."""

import itertools

import numpy as np
import pytest

from pymc_dirdp.networks import refinement
from pymc_dirdp.networks.refinement import refine


def pairs_of(codes, lengths):
    hot = np.concatenate([np.eye(length)[codes[:, i]] for i, length in enumerate(lengths)], axis=1)
    return hot.T @ hot


def squares(codes, lengths, expected):
    column = np.repeat(np.arange(len(lengths)), lengths)
    return float((((pairs_of(codes, lengths) - expected) ** 2) * (column != column[:, None])).sum())


@pytest.mark.parametrize("lengths", [(2, 2), (3, 4, 2), (1, 5, 2, 3)])
def test_pairs_are_never_further_away(lengths):
    rng = np.random.default_rng(1)
    for n in (1, 7, 200):
        target, start = (np.stack([rng.integers(k, size=n) for k in lengths], axis=1) for _ in range(2))
        expected = pairs_of(target, lengths).astype(float)
        found = refine(start, lengths, expected, rng)
        assert squares(found, lengths, expected) <= squares(start, lengths, expected)
        assert found.shape == start.shape
        assert (found >= 0).all()
        assert (found < np.array(lengths)).all()
        # What it was given is as it was.
        assert np.array_equal(refine(target, lengths, expected, rng), target)


def test_no_single_change_is_left_that_would_help_much(monkeypatch):
    monkeypatch.setattr(refinement, "_SWEEPS", 50)
    rng, lengths = np.random.default_rng(3), (3, 3, 2)
    target, start = (np.stack([rng.integers(k, size=30) for k in lengths], axis=1) for _ in range(2))
    expected = pairs_of(target, lengths).astype(float)
    found = refine(start, lengths, expected, rng)
    least = squares(found, lengths, expected)
    for row, (column, length) in itertools.product(range(30), enumerate(lengths)):
        for value in range(length):
            other = found.copy()
            other[row, column] = value
            assert squares(other, lengths, expected) >= least - 1e-9


def test_the_compiled_sweep_is_the_plain_one():
    rng, lengths = np.random.default_rng(5), (4, 3, 5)
    codes = np.stack([rng.integers(k, size=60) for k in lengths], axis=1)
    starts, expected = np.array([0, 4, 7, 12]), rng.gamma(1.0, size=(12, 12)) * 5
    expected += expected.T
    order = rng.permutation(codes.size)
    plain, compiled = codes.copy(), codes.copy()
    errors = [pairs_of(codes, lengths) - expected for _ in range(2)]
    counts = (
        refinement._sweep(plain, starts, errors[0], order),
        refinement.compiled_sweep()(compiled, starts, errors[1], order),
    )
    assert counts[0] == counts[1] > 0
    assert np.array_equal(plain, compiled)
    np.testing.assert_allclose(errors[0], errors[1])


def test_no_records():
    assert refine(np.empty((0, 2), dtype=int), [2, 2], np.ones((4, 4)), np.random.default_rng(0)).shape == (0, 2)
