"""Noisy counts of all pairs: brute force over all neighbours of small data sets, the division, and odd arguments."""

import itertools
import math
from dataclasses import replace
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import binomtest

from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms import pairs as pairs_file
from pymc_dirdp.mechanisms.pairs import PairsMechanism
from pymc_dirdp.privacy.bounded_loss import BoundedRange
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP
from pymc_dirdp.sampling.bits import Bits
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
    """Both rounds of a data set."""
    bits, tables = Bits(np.random.default_rng(seed)), counted(data, mechanism)
    first = [mechanism.measured(*one, bits) for one in zip(tables, mechanism.first_looks, strict=True)]
    again = mechanism.second_looks(first)
    of_pairs = tables[len(mechanism.columns) :]
    return first, again, [mechanism.measured(*one, bits) for one in zip(of_pairs, again, strict=True) if one[1]]


# Privacy.


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("contribution", [1, 3])
@pytest.mark.parametrize("guarantee", KINDS, ids=lambda kind: type(kind).__name__)
def test_the_least_noise_that_keeps_a_guarantee(guarantee, contribution, adjacency):
    mechanism = PairsMechanism.for_guarantee(guarantee, LENGTHS, adjacency=adjacency, contribution=contribution)
    assert mechanism.satisfies(guarantee)
    assert not mechanism.with_parameter(mechanism.parameter * (1 - 1e-4)).satisfies(guarantee)
    assert value_of(PairsMechanism, facts_of(mechanism)) == mechanism


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_what_was_chosen_before_leaves_less(adjacency):
    guarantee, before = ApproxDP(epsilon=1.0, delta=1e-6), BoundedRange(0.3)
    alone = PairsMechanism.for_guarantee(guarantee, LENGTHS, adjacency=adjacency)
    after = PairsMechanism.for_guarantee(guarantee, LENGTHS, adjacency=adjacency, before=[(before, 1)])
    assert after.parameter > 1.05 * alone.parameter


def log_density(mechanism, counts, published, looks):
    """Of what so many looks publish of a table, up to a constant."""
    if mechanism.noise == "geometric":
        return -float(np.abs(published - counts).sum()) * looks / mechanism.parameter
    return -float(((published - looks * counts) ** 2).sum()) / (2 * looks * mechanism.parameter)


def loss(mechanism, output, data, other):
    """The logarithm of how much likelier both rounds are with one data set than with another."""
    first, again, second = output
    total, columns = 0.0, len(mechanism.columns)
    for times, sign in ((data, 1), (other, -1)):
        tables = counted(times, mechanism)
        rounds = [*zip(tables, first, mechanism.first_looks, strict=True)]
        looked = [(table, looks) for table, looks in zip(tables[columns:], again, strict=True) if looks]
        rounds += [(table, published, looks) for (table, looks), published in zip(looked, second, strict=True)]
        total += sign * sum(log_density(mechanism, *one) for one in rounds)
    return total


NEIGHBOURS = [
    ("add-remove", [(0, 0, 0), (1, 2, 1)], [(0, 0, 0)]),
    ("add-remove", [], [(1, 1, 0)]),
    ("replace-one", [(0, 0, 0), (1, 2, 1)], [(0, 0, 0), (0, 1, 0)]),
    ("replace-one", [(0, 0, 0)], [(0, 0, 1)]),
]


@pytest.mark.parametrize(("adjacency", "data", "other"), NEIGHBOURS)
def test_the_losses_of_whole_releases_lie_below_the_curve(adjacency, data, other):
    """Each loss is computed from the likelihoods of both rounds, as they were divided in the release."""
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
def test_all_neighbours_of_tiny_tables_by_brute_force(adjacency, monkeypatch):
    """Two columns of two: the loss of each pair of neighbours is a sum of exact losses of the cells that change."""
    monkeypatch.setattr(pairs_file, "_LOOKS", 3)
    mechanism = PairsMechanism((2, 2), 40.0, adjacency=adjacency)
    # All of the second round goes to the only pair.
    looks = [*mechanism.first_looks[:2], mechanism.first_looks[2] + sum(mechanism.first_looks)]
    assert sum(looks) == mechanism.looks
    cells = list(itertools.product(range(2), repeat=2))
    sets = [list(data) for n in range(3) for data in itertools.combinations_with_replacement(cells, n)]
    worst = {0.1: 0.0, 0.6: 0.0}
    for data, other in itertools.permutations(sets, 2):
        same = len(data) == len(other) and len(list_difference(data, other)) == 1
        one_more = abs(len(data) - len(other)) == 1 and not list_difference(*sorted((data, other), key=len))
        if not (same if adjacency == "replace-one" else one_more):
            continue
        changes = [
            (abs(int(change)), n)
            for before, after, n in zip(counted(data, mechanism), counted(other, mechanism), looks, strict=True)
            for change in (after - before).ravel()
            if change
        ]
        assert {size for size, _ in changes} == {1}
        for epsilon in worst:
            worst[epsilon] = max(worst[epsilon], float(exact_delta(mechanism.parameter, changes, epsilon)))
    for epsilon, exact in worst.items():
        assert exact <= mechanism.delta(epsilon) <= exact * (1 + 1e-6)


def list_difference(first, second):
    """What the first list has beside the second, by how often."""
    rest = list(second)
    return [item for item in first if not (item in rest and (rest.remove(item) or True))]


def exact_delta(s, changes, epsilon):
    """By the definition, from the sum of the noises of all cells that change; 50 digits."""
    units = sum(n for _, n in changes)
    with mp.workdps(50):
        reach = int(14 * math.sqrt(s * units)) + 10
        total = np.zeros(2 * reach + 1)
        total[reach] = 1.0
        for _, n in changes:
            k = np.arange(-reach, reach + 1)
            weights = np.exp(-(k**2) / (2 * n * s))
            total = np.convolve(total, weights / weights.sum(), mode="same")
        terms = []
        for j, mass in zip(range(-reach, reach + 1), total, strict=True):
            lost = (2 * mp.mpf(j) + units) / (2 * mp.mpf(s))
            if lost > epsilon:
                terms.append(mp.mpf(mass) * (1 - mp.exp(epsilon - lost)))
        return mp.fsum(terms)


def test_several_records_of_a_unit_count_as_many_times():
    one = PairsMechanism(LENGTHS, 900.0, adjacency="add-remove")
    three = replace(one, contribution=3)
    assert three.rho(8) == pytest.approx(9 * one.rho(8), rel=1e-12)
    assert three.epsilon(1e-6) >= one.epsilon(1e-6)
    pure = PairsMechanism(LENGTHS, 900.0, "geometric", adjacency="add-remove")
    assert replace(pure, contribution=3).pure_epsilon == pytest.approx(3 * pure.pure_epsilon, rel=1e-12)
    assert replace(pure, adjacency="replace-one").pure_epsilon == pytest.approx(2 * pure.pure_epsilon, rel=1e-12)


# The noise, and how the second round is divided.


@pytest.mark.parametrize("noise", ["gaussian", "geometric"])
def test_noisy_counts_have_the_variance_that_they_say(noise):
    mechanism = PairsMechanism(LENGTHS, 80.0, noise)
    counts = np.full((200, 50), 7)
    for looks in (1, 5):
        seen = mechanism.estimated(mechanism.measured(counts, looks, Bits(np.random.default_rng(1))), looks)
        assert seen.mean() == pytest.approx(7, abs=5 * math.sqrt(mechanism.variance(looks) / seen.size))
        assert seen.var() == pytest.approx(mechanism.variance(looks), rel=0.1)


def test_exact_bits_give_exact_sums_however_large_the_counts():
    mechanism = PairsMechanism(LENGTHS, 2.0**-19)
    counts = np.array([2**40, 0])
    assert mechanism.measured(counts, 100, Bits(np.random.default_rng(0))).tolist() == [100 * 2**40, 0]


def test_the_second_round_goes_to_what_depends():
    mechanism = PairsMechanism.for_guarantee(ApproxDP(epsilon=2.0, delta=1e-6), (3, 3, 3), adjacency="add-remove")
    alike = [(i % 3, i % 3, (i // 3) % 3) for i in range(9000)]
    _, again, second = released(mechanism, alike, 0)
    assert sum(again) == sum(mechanism.first_looks) == mechanism.looks // 2
    assert again[0] > 1.3 * max(again[1:])
    assert len(second) == sum(looks > 0 for looks in again)


def test_where_nothing_depends_the_second_round_is_divided_evenly():
    mechanism = PairsMechanism(LENGTHS, 1e9)
    first = [mechanism.first_looks[0] * np.full(mechanism.shape(table), 50) for table in mechanism.tables]
    again = mechanism.second_looks(first)
    assert sum(again) == sum(mechanism.first_looks)
    assert max(again) - min(again) <= 1


def test_a_division_is_the_same_whatever_the_last_bits():
    mechanism = PairsMechanism.for_guarantee(ApproxDP(epsilon=1.0, delta=1e-6), (4,) * 8)
    rng = np.random.default_rng(3)
    for _ in range(50):
        first = [rng.integers(0, 10**5, mechanism.shape(table)) for table in mechanism.tables]
        before, wanted = np.full(28, 60.0), rng.gamma(1.0, size=28)
        looks = sum(mechanism.first_looks)
        found = pairs_file._divided(before, wanted, looks)
        nudged = pairs_file._divided(before, wanted * (1 + rng.choice([-1, 1], 28) * 2.0**-52), looks)
        assert found == nudged
        assert sum(found) == looks
        assert sum(mechanism.second_looks(first)) == looks


def test_a_divided_round_is_in_proportion_to_what_is_wanted():
    found = np.array(pairs_file._divided(np.zeros(4), np.array([1.0, 2.0, 3.0, 4.0]), 1000))
    assert found.tolist() == [100, 200, 300, 400]
    # What is there already is not taken back.
    assert pairs_file._divided(np.array([100.0, 0.0]), np.array([1.0, 1.0]), 10) == (0, 10)


# What is refused.


@pytest.mark.parametrize(
    ("lengths", "says"),
    [
        ((2,), "at least two columns"),
        ((1, 1, 5), "at least two columns"),
        ((2,) * 301, "at most 300 columns"),
        ((5000, 5000), "at most 20000000"),
        ((2, 0), "length"),
        ((2, 2.5), "length"),
    ],
)
def test_lengths_that_no_table_has(lengths, says):
    with pytest.raises(ArgumentError, match=says):
        PairsMechanism(lengths, 10.0)


def test_numbers_outside_their_domain():
    for parameter in (0.0, -1.0, math.nan, math.inf, 2.0**61):
        with pytest.raises(ArgumentError, match="parameter"):
            PairsMechanism(LENGTHS, parameter)
    with pytest.raises(ArgumentError, match="noise"):
        PairsMechanism(LENGTHS, 1.0, "laplace")
    with pytest.raises(ArgumentError, match="contribution"):
        PairsMechanism(LENGTHS, 1.0, contribution=0)
    with pytest.raises(ArgumentError, match="adjacency"):
        PairsMechanism(LENGTHS, 1.0, adjacency="swap")


def test_a_guarantee_that_hides_everything_is_refused():
    with pytest.raises(UnattainableError, match="so tight"):
        PairsMechanism.for_guarantee(PureDP(epsilon=1e-18), LENGTHS)


def test_columns_with_one_category_cost_nothing():
    with_one = PairsMechanism((2, 1, 3, 2), 50.0)
    without = PairsMechanism(LENGTHS, 50.0)
    assert with_one.columns == (0, 2, 3)
    assert with_one.looks == without.looks
    assert with_one.epsilon(1e-6) == without.epsilon(1e-6)


def test_a_parameter_has_few_digits():
    found = PairsMechanism(LENGTHS, 1234.56789).parameter
    assert 1234.56789 <= found <= 1234.56789 * (1 + 2**-20)
    assert Fraction(found).numerator.bit_length() <= 21
    assert PairsMechanism(LENGTHS, found).parameter == found


def test_the_random_bits_of_two_tables_differ():
    mechanism = PairsMechanism((2, 2, 2), 1e6)
    first, _, _ = released(mechanism, [], 5)
    noise = np.concatenate([table.ravel() for table in first])
    assert binomtest(int((noise > 0).sum()), noise.size).pvalue > 1e-6
    assert len(set(noise.tolist())) == noise.size
