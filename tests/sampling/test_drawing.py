"""Draws that are prepared without counts: what they check, what they add, and that secret counts show nothing."""

import copy
import math
import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_dirdp.errors import DataError, InternalError
from pymc_dirdp.mechanisms import DirichletMechanism, DiscreteGaussianMechanism, GeometricMechanism
from pymc_dirdp.mechanisms.choices import QuantilesMechanism
from pymc_dirdp.mechanisms.pairs import PairsMechanism
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.drawing import AddedNoise, DirichletDrawing, Once, PairsDrawing, SecretCounts, exact_sum


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
    size = data.draw(st.sampled_from([2**4, 2**40, 2**62, 2**63 - 1, 2**70, 2**1100]))
    noise = data.draw(st.lists(st.integers(-size, size) | st.just(size), min_size=8, max_size=8))
    table = np.array(counts).reshape(2, 3)
    by_row, cells = np.array(noise[:2], dtype=object), np.array(noise[2:], dtype=object).reshape(2, 3)
    drawing = AddedNoise((2, 3), 0.0, None, (((1,), Once(by_row)), ((), Once(cells))))
    rows, whole = drawing.of(SecretCounts(table))
    sums = [*zip(table.sum(axis=1).tolist(), noise[:2], strict=True), *zip(counts, noise[2:], strict=True)]
    clipped = [float(max(-(2**1000), min(2**1000, count + extra))) for count, extra in sums]
    assert [*rows.tolist(), *whole.ravel().tolist()] == clipped


def urn(shape=(3,), min_count=0.0, n_records=None):
    return DirichletDrawing(shape, min_count, n_records, np.ones(shape), 0.5, 1, Once(Bits(1)), 10)


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        ([1, 2], "another shape"),
        ([1, 2, -7919], "negative"),
        ([1, 2, -1], "negative"),
        ([1, 2, 7919.5], "not integers"),
        ([1, 2, math.nan], "missing or not finite"),
        ([1, 2, math.inf], "missing or not finite"),
        ([1, 2, 2.0**53 + 2], r"above 2\*\*53"),
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


def test_sums_of_many_records_are_exact_and_refused_above_2_53():
    counts = SecretCounts(np.full((2, 3), 2**52))
    assert AddedNoise((2, 3), 0.0, None, (((), Once(np.zeros((2, 3)))),)).of(counts)[0].shape == (2, 3)
    with pytest.raises(DataError, match="maximum"):
        AddedNoise((2, 3), 0.0, None, (((0,), Once(np.zeros(3))),)).of(counts)
    rng = np.random.default_rng(1)
    for counts in (rng.integers(0, 2**53, 50), np.full(1000, 2**53), np.zeros(0, dtype=int)):
        assert exact_sum(counts.astype(float)) == sum(counts.tolist())


ONE = [np.array([4, 5])]
PREPARED = {
    "dirichlet": (lambda: DirichletMechanism([1, 1], 0.5).prepare(1, sampler="exact", n_records=9), ONE),
    "fast": (lambda: DirichletMechanism([1, 1], 0.5).prepare(1, sampler="fast"), ONE),
    "geometric": (lambda: GeometricMechanism([1, 1], 2.0).prepare(1, sampler="exact"), ONE),
    "gaussian": (lambda: DiscreteGaussianMechanism([1, 1], 2.0).prepare(1, sampler="fast"), ONE),
    "edges": (lambda: QuantilesMechanism(2, n_candidates=3, scale=4.0).prepare(), [np.arange(4)]),
    "pairs": (lambda: PairsMechanism([2, 2], 4.0).prepare(Bits()), [*(np.arange(2),) * 2, np.zeros((2, 2), dtype=int)]),
}


@pytest.mark.parametrize("kind", PREPARED)
def test_a_draw_is_used_once_and_shows_no_noise(kind):
    """Found by attack: noise beside its output gives the counts, and noise that is used twice cancels."""
    prepare, tables = PREPARED[kind]
    drawing, secret = prepare(), [SecretCounts(table) for table in tables]
    assert not {"array", "Bits"} & {*re.findall(r"\w+", repr(drawing))}
    for copier in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            copier(drawing)
    # A shallow copy shares the noise, which can still be taken once.
    drawing = copy.copy(drawing)
    argument = secret[0] if tables is ONE else secret
    drawing.of(argument)
    with pytest.raises(InternalError, match="used twice"):
        drawing.of(argument)


def test_noise_of_another_shape_is_refused():
    """Found by attack: one draw was added to all cells."""
    for noise in (np.array(5), np.array([5]), np.zeros((2, 2))):
        with pytest.raises(InternalError, match="another shape"):
            AddedNoise((3,), 0.0, None, (((), Once(noise)),)).of(SecretCounts([1, 2, 3]))
        with pytest.raises(InternalError, match="another shape"):
            PairsDrawing((Once(noise.astype(object)),)).of([SecretCounts(np.array([1, 2, 3]))])
    whole = PairsDrawing((Once(np.array([2**70, -(2**70), 1], dtype=object)),)).of([SecretCounts(np.array([1, 2, 3]))])
    assert whole[0].tolist() == [2**63 - 1, -(2**63), 4]
