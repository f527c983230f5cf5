"""Noisy counts of all pairs: brute force over all neighbours of small data sets, a second oracle, and odd arguments."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.marginals import MarginalsMechanism
from pymc_dirdp.mechanisms.pairs import PairsMechanism
from pymc_dirdp.privacy.bounded_loss import BoundedRange
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.drawing import SecretCounts
from pymc_dirdp.texts.codec import facts_of, value_of
from tests.oracles import neighbours, tables_of

LENGTHS = (2, 3, 2)
KINDS = [ApproxDP(epsilon=1.0, delta=1e-6), PureDP(epsilon=1.0), ZeroCDP(rho=0.05)]
KINDS += [RenyiDP(order=8.0, epsilon=0.5), TruncatedCDP(rho=0.05, omega=10.0)]
ADJACENCIES = ("replace-one", "add-remove")


@pytest.mark.parametrize("guarantee", KINDS, ids=lambda kind: type(kind).__name__)
@pytest.mark.parametrize(("adjacency", "contribution"), [("add-remove", 1), ("replace-one", 3)])
def test_the_least_noise_that_keeps_a_guarantee(guarantee, contribution, adjacency):
    people = {"adjacency": adjacency, "contribution": contribution}
    mechanism = PairsMechanism.for_guarantee(guarantee, LENGTHS, **people)
    assert mechanism.satisfies(guarantee)
    assert not replace(mechanism, parameter=mechanism.parameter * (1 - 1e-4)).satisfies(guarantee)
    assert value_of(PairsMechanism, facts_of(mechanism)) == mechanism
    # What was chosen before leaves less.
    before = [(BoundedRange(0.3), 1)]
    after = PairsMechanism.for_guarantee(guarantee, LENGTHS, **people, before=before)
    assert after.parameter > 1.02 * mechanism.parameter


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("contribution", [1, 2])
@pytest.mark.parametrize("noise", ["gaussian", "geometric"])
def test_the_curves_are_those_of_marginals_of_one_table(noise, contribution, adjacency):
    """A table of all columns, whose marginals are measured, where it is small enough."""
    people = {"adjacency": adjacency, "contribution": contribution}
    mechanism = PairsMechanism(LENGTHS, 9.0, noise, **people)
    table = MarginalsMechanism(np.ones(LENGTHS), mechanism.tables, (9.0,) * len(mechanism.tables), noise, **people)
    for order in (1.5, 2, 8):
        assert mechanism.renyi(order) == pytest.approx(table.renyi(order), rel=1e-12)
    assert mechanism.pure_epsilon == pytest.approx(table.pure_epsilon, rel=1e-12)
    # Composed one by one, each on a grid, tables lose nearly as much; with several records of a unit both are bounds.
    near = 5e-3 if contribution == 1 else 0.2
    for delta in (1e-3, 1e-6):
        assert mechanism.epsilon(delta) == pytest.approx(table.epsilon(delta), rel=near)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("lengths", [(2, 3), (2, 2, 2)])
def test_all_neighbours_of_tiny_tables_by_brute_force(lengths, adjacency):
    """The loss of a pair of neighbours is a sum of losses of the cells that change by 1."""
    mechanism = PairsMechanism(lengths, 4.0, adjacency=adjacency)
    summed = [tuple({*range(len(lengths))} - {*table}) for table in mechanism.tables]
    kinds = set()
    for data in itertools.chain(tables_of(lengths, 1), tables_of(lengths, 2)):
        for other in neighbours(data, adjacency):
            changes = np.concatenate([(data - other).sum(axis=axes).ravel() for axes in summed])
            assert set(np.abs(changes[changes != 0])) == {1}
            kinds.add(int(np.abs(changes).sum()))
    variance, k = float(mechanism.drawn_noise.variance), np.arange(-40, 41)
    mass = np.exp(-(k**2) / (2 * variance))
    for epsilon in (0.1, 0.6):
        deltas = []
        for changed in kinds:
            total = np.ones(1)
            for _ in range(changed):
                total = np.convolve(total, mass / mass.sum())
            loss = (2 * np.arange(-40 * changed, 40 * changed + 1) + changed) / (2 * variance)
            deltas.append(math.fsum(total * np.maximum(-np.expm1(np.minimum(epsilon - loss, 0)), 0)))
        assert max(deltas) * (1 - 1e-12) <= mechanism.delta(epsilon) <= max(deltas) * (1 + 1e-6)


@pytest.mark.parametrize("noise", ["gaussian", "geometric"])
def test_noisy_counts_have_the_variance_that_they_say(noise):
    mechanism = PairsMechanism([60, 50], 8.0, noise)
    tables = [SecretCounts(np.full(mechanism.shape(table), 7)) for table in mechanism.tables]
    first, second, seen = mechanism.prepare(Bits(np.random.default_rng(1))).of(tables)
    sd = mechanism.drawn_noise.sd
    assert seen.mean() == pytest.approx(7, abs=5 * sd / math.sqrt(seen.size))
    assert seen.std() == pytest.approx(sd, rel=0.12)
    # The random bits of two tables differ.
    assert not np.array_equal(first[:50], second)
    assert not np.array_equal(second, seen.ravel()[:50])


def test_counts_are_added_exactly_however_large_they_are():
    mechanism = PairsMechanism([2, 2], 2.0**-19)
    tables = [SecretCounts(np.full(mechanism.shape(table), 2**60 + 1)) for table in mechanism.tables]
    noisy = mechanism.prepare(Bits(np.random.default_rng(0))).of(tables)
    assert [set(counts.ravel().tolist()) for counts in noisy] == [{2**60 + 1}] * 3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        *(({"lengths": lengths}, "at least two columns") for lengths in ((2,), (1, 1, 5))),
        ({"lengths": (2,) * 301}, "at most 300 columns"),
        *(({"lengths": lengths}, "at most 6500") for lengths in ((5000, 5000), (10**6, 2), (2, 2, *[1] * 7000))),
        *(({"lengths": lengths}, "length") for lengths in ((2, 0), (2, 2.5))),
        *(({"parameter": parameter}, "parameter") for parameter in (0.0, -1.0, math.nan, math.inf, 2.0**41)),
        ({"noise": "laplace"}, "noise"),
        ({"contribution": 0}, "contribution"),
        ({"adjacency": "swap"}, "adjacency"),
    ],
)
def test_odd_arguments(change, says):
    with pytest.raises(ArgumentError, match=says):
        replace(PairsMechanism(LENGTHS, 10.0), **change)
    with pytest.raises(UnattainableError, match="No noise up to"):
        PairsMechanism.for_guarantee(PureDP(epsilon=1e-18), LENGTHS)


def test_columns_with_one_category_cost_nothing():
    with_one = PairsMechanism((2, 1, 3, 2), 50.0)
    without = PairsMechanism(LENGTHS, 50.0)
    assert with_one.columns == (0, 2, 3)
    assert len(with_one.tables) == len(without.tables) == 6
    assert with_one.epsilon(1e-6) == without.epsilon(1e-6)
