"""Noisy counts of all pairs: brute force over all neighbours of small data sets, a second oracle, and odd arguments."""

import itertools
import math
from dataclasses import replace

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import binomtest

from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.marginals import MarginalsMechanism
from pymc_dirdp.mechanisms.pairs import PairsMechanism
from pymc_dirdp.privacy.bounded_loss import BoundedRange
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.drawing import SecretCounts
from pymc_dirdp.texts.codec import facts_of, value_of

LENGTHS = (2, 3, 2)
KINDS = (
    ApproxDP(epsilon=1.0, delta=1e-6),
    PureDP(epsilon=1.0),
    ZeroCDP(rho=0.05),
    RenyiDP(order=8.0, epsilon=0.5),
    TruncatedCDP(rho=0.05, omega=10.0),
)
ADJACENCIES = ("replace-one", "add-remove")


def counted(data, mechanism):
    """All tables of the first round, counted one by one."""
    tables = []
    for table in mechanism.tables:
        counts = np.zeros(mechanism.shape(table), dtype=np.int64)
        for record in data:
            counts[tuple(record[i] for i in table)] += 1
        tables.append(counts)
    return tables


def released(mechanism, data, seed):
    """The noisy counts of a data set."""
    bits = Bits(np.random.default_rng(seed))
    return list(mechanism.prepare(bits).of([SecretCounts(counts) for counts in counted(data, mechanism)]))


# Privacy.


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("contribution", [1, 3])
@pytest.mark.parametrize("guarantee", KINDS, ids=lambda kind: type(kind).__name__)
def test_the_least_noise_that_keeps_a_guarantee(guarantee, contribution, adjacency):
    mechanism = PairsMechanism.for_guarantee(guarantee, LENGTHS, adjacency=adjacency, contribution=contribution)
    assert mechanism.satisfies(guarantee)
    assert not replace(mechanism, parameter=mechanism.parameter * (1 - 1e-4)).satisfies(guarantee)
    assert value_of(PairsMechanism, facts_of(mechanism)) == mechanism


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
    # Composed one by one, each on a grid, tables lose nearly as much; with several records of a unit both are bounds.
    near = 5e-3 if contribution == 1 else 0.2
    for delta in (1e-3, 1e-6):
        assert mechanism.epsilon(delta) == pytest.approx(table.epsilon(delta), rel=near)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_what_was_chosen_before_leaves_less(adjacency):
    guarantee, before = ApproxDP(epsilon=1.0, delta=1e-6), BoundedRange(0.3)
    alone = PairsMechanism.for_guarantee(guarantee, LENGTHS, adjacency=adjacency)
    after = PairsMechanism.for_guarantee(guarantee, LENGTHS, adjacency=adjacency, before=[(before, 1)])
    assert after.parameter > 1.02 * alone.parameter


def loss(mechanism, output, data, other):
    """The logarithm of how much likelier the noisy counts are with one data set than with another."""
    log_pmf, tables = (
        mechanism.drawn_noise.log_pmf,
        zip(output, counted(data, mechanism), counted(other, mechanism), strict=True),
    )
    return sum(float((log_pmf(z - x * 1.0) - log_pmf(z - y * 1.0)).sum()) for z, x, y in tables)


NEIGHBOURS = [
    ("add-remove", [(0, 0, 0), (1, 2, 1)], [(0, 0, 0)]),
    ("add-remove", [], [(1, 1, 0)]),
    ("replace-one", [(0, 0, 0), (1, 2, 1)], [(0, 0, 0), (0, 1, 0)]),
    ("replace-one", [(0, 0, 0)], [(0, 0, 1)]),
]


@pytest.mark.parametrize(("adjacency", "data", "other"), NEIGHBOURS)
def test_the_losses_of_whole_releases_lie_below_the_curve(adjacency, data, other):
    mechanism = PairsMechanism.for_guarantee(ApproxDP(epsilon=0.8, delta=0.02), LENGTHS, adjacency=adjacency)
    losses = np.array([loss(mechanism, released(mechanism, data, seed), data, other) for seed in range(400)])
    for epsilon in (0.0, 0.2, 0.5):
        excess = np.maximum(-np.expm1(epsilon - losses), 0.0)
        assert excess.mean() <= mechanism.delta(epsilon) + 4 * excess.std() / 20
    # A record that stands in other cells of all tables loses exactly as much as the curve is about.
    if len({*map(tuple, data)} ^ {*map(tuple, other)}) == 1 or data[-1][0] != other[-1][0]:
        assert excess.mean() >= mechanism.delta(0.5) - 5 * excess.std() / 20


@pytest.mark.parametrize(("adjacency", "data", "other"), NEIGHBOURS)
def test_no_pure_loss_is_above_epsilon(adjacency, data, other):
    mechanism = PairsMechanism.for_guarantee(PureDP(epsilon=0.7), LENGTHS, adjacency=adjacency)
    losses = [loss(mechanism, released(mechanism, data, seed), data, other) for seed in range(100)]
    assert max(np.abs(losses)) <= 0.7 + 1e-12
    assert mechanism.pure_epsilon <= 0.7


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("lengths", [(2, 2), (2, 3), (2, 2, 2)])
def test_all_neighbours_of_tiny_tables_by_brute_force(lengths, adjacency):
    """The loss of each pair of neighbours is a sum of exact losses of the cells that change; 50 digits."""
    mechanism = PairsMechanism(lengths, 4.0, adjacency=adjacency)
    cells = list(itertools.product(*map(range, lengths)))
    sets = [list(data) for n in range(3) for data in itertools.combinations_with_replacement(cells, n)]
    kinds = set()
    for data, other in itertools.permutations(sets, 2):
        same = len(data) == len(other) and len(list_difference(data, other)) == 1
        one_more = abs(len(data) - len(other)) == 1 and not list_difference(*sorted((data, other), key=len))
        if same if adjacency == "replace-one" else one_more:
            pairs = zip(counted(data, mechanism), counted(other, mechanism), strict=True)
            changes = np.concatenate([(after - before).ravel() for before, after in pairs])
            assert set(np.abs(changes[changes != 0])) == {1}
            kinds.add(int(np.abs(changes).sum()))
    for epsilon in (0.1, 0.6):
        worst = max(float(exact_delta(mechanism.drawn_noise.variance, changed, epsilon)) for changed in kinds)
        assert worst <= mechanism.delta(epsilon) <= worst * (1 + 1e-6)


def list_difference(first, second):
    """What the first list has beside the second, by how often."""
    rest = list(second)
    return [item for item in first if not (item in rest and (rest.remove(item) or True))]


def exact_delta(variance, changed, epsilon):
    """By the definition, from the sum of the noises of all cells that change by 1; 50 digits."""
    with mp.workdps(50):
        s, reach = mp.mpf(float(variance)), int(13 * math.sqrt(variance)) + 10
        cell = [mp.exp(-(mp.mpf(k) ** 2) / (2 * s)) for k in range(-reach, reach + 1)]
        weight, total = mp.fsum(cell), np.array([mp.mpf(1)], dtype=object)
        for _ in range(changed):
            total = np.convolve(total, np.array([mass / weight for mass in cell], dtype=object))
        losses = [(2 * mp.mpf(j) + changed) / (2 * s) for j in range(-reach * changed, reach * changed + 1)]
        return mp.fsum(
            mass * (1 - mp.exp(epsilon - lost)) for lost, mass in zip(losses, total, strict=True) if lost > epsilon
        )


def test_several_records_of_a_unit_count_as_many_times():
    one = PairsMechanism(LENGTHS, 900.0, adjacency="add-remove")
    three = replace(one, contribution=3)
    assert three.rho(8) == pytest.approx(9 * one.rho(8), rel=1e-12)
    assert three.epsilon(1e-6) >= one.epsilon(1e-6)
    pure = PairsMechanism(LENGTHS, 900.0, "geometric", adjacency="add-remove")
    assert replace(pure, contribution=3).pure_epsilon == pytest.approx(3 * pure.pure_epsilon, rel=1e-12)
    assert replace(pure, adjacency="replace-one").pure_epsilon == pytest.approx(2 * pure.pure_epsilon, rel=1e-12)


# The noise.


@pytest.mark.parametrize("noise", ["gaussian", "geometric"])
def test_noisy_counts_have_the_variance_that_they_say(noise):
    mechanism = PairsMechanism([200, 50], 8.0, noise)
    tables = [SecretCounts(np.full(mechanism.shape(table), 7)) for table in mechanism.tables]
    seen, sd = mechanism.prepare(Bits(np.random.default_rng(1))).of(tables)[-1], mechanism.drawn_noise.sd
    assert seen.mean() == pytest.approx(7, abs=5 * sd / math.sqrt(seen.size))
    assert seen.std() == pytest.approx(sd, rel=0.05)


def test_counts_are_added_exactly_however_large_they_are():
    mechanism = PairsMechanism([2, 2], 2.0**-19)
    tables = [SecretCounts(np.full(mechanism.shape(table), 2**60 + 1)) for table in mechanism.tables]
    noisy = mechanism.prepare(Bits(np.random.default_rng(0))).of(tables)
    assert [set(counts.ravel().tolist()) for counts in noisy] == [{2**60 + 1}] * 3


# What is refused.


@pytest.mark.parametrize(
    ("lengths", "says"),
    [
        ((2,), "at least two columns"),
        ((1, 1, 5), "at least two columns"),
        ((2,) * 301, "at most 300 columns"),
        ((5000, 5000), "at most 6500"),
        ((10**6, 2), "at most 6500"),
        ((2, 2, *[1] * 7000), "at most 6500"),
        ((2, 0), "length"),
        ((2, 2.5), "length"),
    ],
)
def test_lengths_that_no_table_has(lengths, says):
    with pytest.raises(ArgumentError, match=says):
        PairsMechanism(lengths, 10.0)


def test_numbers_outside_their_domain():
    for parameter in (0.0, -1.0, math.nan, math.inf, 2.0**41):
        with pytest.raises(ArgumentError, match="parameter"):
            PairsMechanism(LENGTHS, parameter)
    with pytest.raises(ArgumentError, match="noise"):
        PairsMechanism(LENGTHS, 1.0, "laplace")
    with pytest.raises(ArgumentError, match="contribution"):
        PairsMechanism(LENGTHS, 1.0, contribution=0)
    with pytest.raises(ArgumentError, match="adjacency"):
        PairsMechanism(LENGTHS, 1.0, adjacency="swap")


def test_a_guarantee_that_hides_everything_is_refused():
    with pytest.raises(UnattainableError, match="No noise up to"):
        PairsMechanism.for_guarantee(PureDP(epsilon=1e-18), LENGTHS)


def test_columns_with_one_category_cost_nothing():
    with_one = PairsMechanism((2, 1, 3, 2), 50.0)
    without = PairsMechanism(LENGTHS, 50.0)
    assert with_one.columns == (0, 2, 3)
    assert len(with_one.tables) == len(without.tables) == 6
    assert with_one.epsilon(1e-6) == without.epsilon(1e-6)


def test_the_random_bits_of_two_tables_differ():
    mechanism = PairsMechanism((2, 2, 2), 1e6)
    noise = np.concatenate([table.ravel() for table in released(mechanism, [], 5)])
    assert binomtest(int((noise > 0).sum()), noise.size).pvalue > 1e-6
    assert len(set(noise.tolist())) == noise.size
