"""Draws that are prepared without counts: what they check, what they add, and that secret counts show nothing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_dirdp.errors import DataError
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.drawing import AddedNoise, DirichletDrawing, EdgesDrawing, SecretCounts, exact_sum


@pytest.mark.parametrize(
    "use", [np.asarray, np.sum, list, len, hash, lambda c: c == c, lambda c: c + 1, lambda c: c.__reduce_ex__(4)]
)
def test_secret_counts_show_nothing(use):
    counts = SecretCounts([48611, 7])
    assert repr(counts) == str(counts) == "SecretCounts(secret)"
    with pytest.raises(TypeError) as caught:
        use(counts)
    assert "48611" not in str(caught.value)
    with pytest.raises(AttributeError):
        counts.other = 1


@given(st.data())
def test_noise_is_added_to_each_marginal_without_rounding_before_the_end(data):
    counts = data.draw(st.lists(st.integers(0, 2**50), min_size=6, max_size=6))
    size = data.draw(st.sampled_from([2**4, 2**40, 2**70, 2**1100]))
    noise = data.draw(st.lists(st.integers(-size, size), min_size=8, max_size=8))
    table = np.array(counts).reshape(2, 3)
    by_row, cells = np.array(noise[:2], dtype=object), np.array(noise[2:], dtype=object).reshape(2, 3)
    drawing = AddedNoise((2, 3), 0.0, None, (((1,), by_row), ((), cells)))
    rows, whole = drawing.of(SecretCounts(table))
    most = 2**1000
    clipped = [
        max(-most, min(most, int(count) + extra)) for count, extra in zip(table.sum(axis=1), noise, strict=False)
    ]
    assert rows.tolist() == list(map(float, clipped))
    clipped = [max(-most, min(most, count + extra)) for count, extra in zip(counts, noise[2:], strict=True)]
    assert whole.ravel().tolist() == list(map(float, clipped))


def urn(shape=(3,), min_count=0.0, n_records=None):
    return DirichletDrawing(shape, min_count, n_records, np.ones(shape), 0.5, 1, Bits(1), 10)


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        ([1, 2], "another shape"),
        ([1, 2, -7919], "negative"),
        ([1, 2, 7919.5], "not integers"),
        ([1, 2, math.nan], "missing or not finite"),
        ([1, 2, math.inf], "missing or not finite"),
        ([1, 2, 2.0**60], r"above 2\*\*53"),
        ([1, 2, 10**400], "array of integers"),
        (["7919", "x", 1], "array of integers"),
        ([1, 2, 3], "fewer records than min_count"),
        ([5, 5, 6], "do not add up"),
    ],
)
def test_counts_that_do_not_fit_are_refused_and_not_shown(counts, problem):
    with pytest.raises(DataError, match=problem) as caught:
        urn(min_count=2.0, n_records=15).of(SecretCounts(counts))
    assert caught.value.__context__ is None
    assert not any(shown in str(caught.value) for shown in ("7919", "-7"))
    assert urn(min_count=5.0, n_records=15).of(SecretCounts([5, 5, 5]))[0].shape == (1, 3)


def test_sums_over_more_than_2_53_records_are_refused():
    counts = SecretCounts(np.full((2, 3), 2**52))
    assert AddedNoise((2, 3), 0.0, None, (((), np.zeros((2, 3))),)).of(counts)[0].shape == (2, 3)
    with pytest.raises(DataError, match="maximum"):
        AddedNoise((2, 3), 0.0, None, (((0,), np.zeros(3)),)).of(counts)


@given(st.lists(st.integers(0, 2**53), max_size=50))
def test_sums_of_large_counts_are_exact(counts):
    assert exact_sum(np.array(counts, dtype=float)) == sum(counts)


def test_edges_want_their_own_number_of_counts():
    with pytest.raises(DataError, match="Expected 4 integers"):
        EdgesDrawing(2, 3, 1, Bits(1)).of([SecretCounts([1, 2, 3])])
