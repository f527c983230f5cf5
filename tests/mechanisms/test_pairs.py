"""Noisy pairs of a wide table: what both rounds lose together, and what the second round may be divided by."""

import math
from fractions import Fraction

import numpy as np
import pytest

from pymc_dirdp.mechanisms.geometric import Geometric
from pymc_dirdp.mechanisms.pairs import PairsMechanism
from pymc_dirdp.sampling.bits import Bits

RECORDS = np.array([[0, 0, 0]] * 9 + [[1, 2, 1]] * 8 + [[0, 1, 1]] * 3)
NEIGHBOURS = {"add-remove": RECORDS[1:], "replace-one": np.concatenate([RECORDS[1:], [[1, 1, 1]]])}


def counted(mechanism, records, table):
    counts = np.zeros(mechanism.shape(table), dtype=np.int64)
    np.add.at(counts, tuple(records[:, i] for i in table), 1)
    return counts


def transcript(mechanism, records, bits):
    """Each table that was looked at, with the looks and what they published, in both rounds."""
    first = [
        mechanism.measured(counted(mechanism, records, table), looks, bits)
        for table, looks in zip(mechanism.tables, mechanism.first_looks, strict=True)
    ]
    second = mechanism.second_looks(first)
    again = [
        (pair, looks, mechanism.measured(counted(mechanism, records, pair), looks, bits))
        for pair, looks in zip(mechanism.pairs, second, strict=True)
        if looks
    ]
    return [*zip(mechanism.tables, mechanism.first_looks, first, strict=True), *again], second


@pytest.mark.parametrize("adjacency", NEIGHBOURS)
def test_losses_of_transcripts_have_the_distribution_that_is_accounted(adjacency):
    """From the density of each output, with the division that the mechanism itself finds."""
    mechanism = PairsMechanism([2, 3, 2], parameter=800.0, adjacency=adjacency)
    other = NEIGHBOURS[adjacency]
    bits = Bits(np.random.default_rng(1))
    losses, divisions = [], set()
    for _ in range(1500):
        published, second = transcript(mechanism, RECORDS, bits)
        divisions.add(second)
        squares = 0.0
        for table, looks, output in published:
            ours, theirs = (output - looks * counted(mechanism, records, table) for records in (RECORDS, other))
            squares += float((theirs.astype(float) ** 2 - ours.astype(float) ** 2).sum()) / looks
        losses.append(squares / (2 * mechanism.parameter))
    # The division does depend on what was published.
    assert len(divisions) > 100
    assert {sum(second) for second in divisions} == {sum(mechanism.first_looks)}
    # The new record has another value in each column, so no table is unchanged, and the accounted loss is attained.
    changes = 2 if adjacency == "replace-one" else 1
    mean, variance = (changes * mechanism.looks / (times * mechanism.parameter) for times in (2, 1))
    scores = (np.array(losses) - mean) / math.sqrt(variance)
    assert abs(scores.mean()) < 4 / math.sqrt(1500)
    assert abs(scores.var() - 1) < 4 * math.sqrt(2 / 1500)
    for epsilon in (0.2, 0.5, 1.0):
        sticks = np.maximum(-np.expm1(epsilon - np.array(losses)), 0.0)
        assert abs(sticks.mean() - mechanism.delta(epsilon)) < 4 * sticks.std() / math.sqrt(1500)


@pytest.mark.parametrize("noise", ["gaussian", "geometric"])
@pytest.mark.parametrize("size", [0, 1, 10**6, 2**60])
def test_the_second_round_has_as_many_looks_as_the_first_whatever_was_published(noise, size):
    rng = np.random.default_rng([1, size % 2**32])
    for lengths in ([2, 2], [1, 2, 40, 3, 7], [3] * 12, [2, 300, 2, 300]):
        mechanism = PairsMechanism(lengths, parameter=3.0, noise=noise)
        first = [rng.integers(-size, size + 1, size=mechanism.shape(table)) for table in mechanism.tables]
        second = mechanism.second_looks(first)
        assert sum(second) == sum(mechanism.first_looks)
        assert min(second) >= 0


def test_geometric_noise_of_many_looks_has_no_smaller_scale_than_is_accounted():
    """The double that was once divided is below the quotient, and has no more digits than a scale may have."""
    parameter, looks = 261049.0, 884500
    assert Fraction(parameter / looks) < Fraction(parameter) / looks
    assert Fraction(Geometric(parameter / looks).scale) < Fraction(parameter) / looks
    mechanism = PairsMechanism([2, 2], parameter=parameter, noise="geometric")
    assert mechanism.variance(looks) >= Geometric(parameter / looks).sd ** 2
    assert Fraction(mechanism._geometric(looks).scale) >= Fraction(parameter) / looks
