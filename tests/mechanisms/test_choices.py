"""Choices of a tree and of edges: brute force over all neighbours of small data sets, accuracy, and odd arguments."""

import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.mechanisms.choices import QuantilesMechanism, TreeMechanism
from pymc_dirdp.privacy.bounded_loss import BoundedRange
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.sampling import drawing
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.drawing import Once, SecretCounts
from tests.mechanisms.test_contract import delta_of, renyi_of


def losses(curves, mine, its):
    """The largest loss, and divergences in both directions, over what is claimed. The arguments are logarithms."""
    found = [float(np.abs(mine - its).max()) / curves.pure_epsilon]
    for first, second in ((mine, its), (its, mine)):
        both = np.exp(first), first - second
        found += [delta_of(both, at) / curves.delta(at) for at in np.array([0.0, 0.2, 0.6]) * curves.pure_epsilon]
        found += [renyi_of(both, order) / curves.renyi(order) for order in (2, 30)]
    return found


class Scripted:
    """Stands for the draw: follows a script of choices, and keeps what was offered at each."""

    def __init__(self, script):
        self.script, self.offered = list(script), []

    def __call__(self, scores, scale, bits):
        self.offered.append((list(scores), float(scale)))
        if len(self.offered) > len(self.script):
            raise EOFError
        return self.script[len(self.offered) - 1]


# A tree.

LENGTHS = (2, 2, 3)
PAIRS = list(itertools.combinations(range(3), 2))


def counted(data, lengths=LENGTHS):
    """The marginals and the pairs of records."""
    table = np.zeros(lengths, dtype=np.int64)
    for record in data:
        table[tuple(record)] += 1
    axes = range(len(lengths))
    marginals, *pairs = (
        {of: table.sum(axis=tuple({*axes} - {*of})) for of in itertools.combinations(axes, size)} for size in (1, 2)
    )
    return list(marginals.values()), pairs[0]


@cache
def prepared(mechanism):
    return mechanism.prepare(1)


def choose_edges(mechanism, noisy, pairs, bits=None):
    """The edges, given the noisy marginals."""
    secret = {pair: SecretCounts(counts) for pair, counts in pairs.items()}
    return replace(prepared(mechanism), bits=Once(bits)).choose_edges([np.array(z, dtype=float) for z in noisy], secret)


def tree_distribution(mechanism, noisy, data, monkeypatch):
    """The logarithm of the probability of each sequence of choices, given the noisy marginals: from what is offered."""
    _, pairs = counted(data, mechanism.lengths)
    found, open_ = {}, [((), 0.0)]
    while open_:
        script, log = open_.pop()
        follow = Scripted(script)
        monkeypatch.setattr(drawing, "chosen", follow)
        try:
            choose_edges(mechanism, noisy, pairs)
        except EOFError:
            scores, scale = follow.offered[-1]
            weights = np.array([float(score) for score in scores]) / scale
            logs = weights - np.logaddexp.reduce(weights)
            open_ += [((*script, i), log + each) for i, each in enumerate(logs.tolist())]
        else:
            found[script] = log
    assert math.isclose(math.fsum(map(math.exp, found.values())), 1.0, abs_tol=1e-9)
    return np.array([log for _, log in sorted(found.items())])


def neighbours(mechanism, cells, n):
    """All pairs of data sets of n records: some of them replaced, or missing in the second."""
    m = mechanism.contribution
    for data in itertools.combinations_with_replacement(cells, n):
        for rest in set(itertools.combinations(data, n - m)):
            more = [()] if mechanism.adjacency == "add-remove" else itertools.product(cells, repeat=m)
            yield from ((data, tuple(sorted(rest + others))) for others in more)


TREES = {
    "replace-one": (TreeMechanism((2, 2, 2), 3.0, 1.0), 2),
    "add-remove": (TreeMechanism(LENGTHS, 2.0, 1.0, adjacency="add-remove"), 2),
    "two records": (TreeMechanism((2, 2, 2), 5.0, 1.0, adjacency="add-remove", contribution=2), 3),
}


@pytest.mark.parametrize("name", TREES)
def test_no_neighbours_lose_more_by_a_tree_than_its_curves(name, monkeypatch):
    mechanism, n = TREES[name]
    choices = Composition(((mechanism.choice, mechanism.choices),))
    cells = list(itertools.product(*map(range, mechanism.lengths)))
    noisy = [np.random.default_rng(3).integers(-1, 5, length) for length in mechanism.lengths]
    of = cache(lambda data: tree_distribution(mechanism, noisy, data, monkeypatch))
    reached = np.max([losses(choices, of(one), of(other)) for one, other in neighbours(mechanism, cells, n)], axis=0)
    assert max(reached) <= 1 + 1e-9
    # The bound of a choice is for scores that go up and down by all that they can.
    assert reached[0] > 0.3


def test_half_the_sensitivity_and_a_choice_that_is_not_paid_are_refuted(monkeypatch):
    """One record changes so that a score falls by 2 and the others rise by 2, found by a search."""

    def changed(scale, noisy, others, first, second):
        mechanism = TreeMechanism((2, 2, 2), scale, 1.0)
        return mechanism, *(tree_distribution(mechanism, noisy, [*others, one], monkeypatch) for one in (first, second))

    others = [(0, 1, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (1, 0, 0), (0, 0, 0)]
    mechanism, mine, its = changed(1.0, [[3, 8], [6, 8], [0, 6]], others, (0, 1, 1), (1, 1, 0))
    # Sequences in rising order: those that begin with the first pair come first, and there are three of them.
    loss = np.logaddexp.reduce(mine[:3]) - np.logaddexp.reduce(its[:3])
    assert 0.9999 * mechanism.choice.u < loss <= mechanism.choice.u
    # A width of 2 m / scale in the place of 4 m / scale is half of it, for three variables.
    assert loss > 1.9 * replace(mechanism, adjacency="add-remove").choice.u

    # Both choices lose, so that one of them alone is no bound.
    others = [(0, 0, 0), (1, 1, 0), (1, 0, 0), (1, 0, 0), (1, 0, 0), (1, 1, 0)]
    mechanism, mine, its = changed(2.0, [[7, 1], [8, 6], [0, 8]], others, (1, 1, 1), (0, 1, 0))
    assert 1.4 * mechanism.choice.u < np.abs(mine - its).max() <= 2 * mechanism.choice.u
    assert mechanism.choice.delta(mechanism.choice.u) == 0


def test_the_whole_distribution_with_its_noisy_marginals_keeps_the_curves(monkeypatch):
    """Two variables: every noisy marginal that is likely, and what is chosen after it."""
    mechanism = TreeMechanism((2, 2), 4.0, 1.5, "geometric", adjacency="add-remove")
    logs = []
    for data in ([(0, 0), (0, 0)], [(0, 0)]):
        counts, joint = np.concatenate(counted(data, (2, 2))[0]), []
        for noisy in itertools.product(range(-1, 4), repeat=4):
            log = 4 * math.log(math.tanh(1 / 3)) - np.abs(np.array(noisy) - counts).sum() / 1.5
            joint += [log + tree_distribution(mechanism, [noisy[:2], noisy[2:]], data, monkeypatch)]
        logs.append(np.concatenate(joint))
    reached = losses(mechanism, *logs)
    assert 0.7 < reached[0] <= 1 + 1e-12
    # Divergences of what was listed, which is a part of all.
    assert max(reached) <= 1 + 1e-12
    assert max(reached[1:4]) > 0.3


def test_curves_are_those_of_the_marginals_and_of_all_choices():
    mechanism = TreeMechanism((3, 1, 4, 2), 10.0, 8.0)
    assert mechanism.variables == (0, 2, 3)
    assert mechanism.choices == 2
    assert mechanism.choice.u == pytest.approx(0.4)
    assert mechanism.rho(math.inf) == pytest.approx(3 / 64 + 2 * 0.4**2 / 8, rel=1e-3)
    assert replace(mechanism, adjacency="add-remove").choice.u == pytest.approx(0.2)
    assert replace(mechanism, contribution=3).choice.u == pytest.approx(1.2)
    pure = TreeMechanism((2, 2), 8.0, 4.0, "geometric", adjacency="add-remove")
    assert pure.pure_epsilon == pytest.approx(2 / 4 + 1 / 8)
    # 4 / 7 is no double, and the width is not below it.
    assert TreeMechanism((2, 2, 2), 7.0, 4.0).choice.u >= 4 / 7


def test_an_end_is_offered_last_and_ends_the_choices(monkeypatch):
    marginals, pairs = counted([(0, 0, 0)] * 4)
    follow = Scripted([0, 1])
    monkeypatch.setattr(drawing, "chosen", follow)
    mechanism = TreeMechanism(LENGTHS, 4.0, 1.0)
    assert choose_edges(mechanism, marginals, pairs) == ((0, 1), (1, 2))
    assert [len(scores) for scores, _ in follow.offered] == [4, 3]
    assert [scores[-1] for scores, _ in follow.offered] == [math.ceil(4 * math.log(n)) for n in (3, 2)]
    monkeypatch.setattr(drawing, "chosen", Scripted([3]))
    assert choose_edges(mechanism, marginals, pairs) == ()


def test_the_score_is_a_distance_less_what_independence_explains(monkeypatch):
    """Cell by cell, where two records are predicted, one, and none."""
    mechanism, follow = TreeMechanism((2, 30), 1.0, 2.0), Scripted([0])
    noisy, joint = [np.array([40.0, 20.0]), np.repeat([3.0, 1.0], 15)], np.arange(60).reshape(2, 30) % 5
    monkeypatch.setattr(drawing, "chosen", follow)
    choose_edges(mechanism, noisy, {(0, 1): joint})
    distance = mean = spread = 0.0
    for i, j in itertools.product(range(2), range(30)):
        first, second = noisy[0][i] / 60, noisy[1][j] / 60
        expected = 60 * first * second
        variance = expected * (1 - first) * (1 - second) + mechanism.marginals[0].noise_sd ** 2 * (first**2 + second**2)
        if round(expected) == 0:
            variance = min(variance, expected**2)
        distance += abs(joint[i, j] - round(expected))
        mean += math.sqrt(2 / math.pi * variance) if round(expected) else expected
        spread += (1 - 2 / math.pi) * variance
    assert follow.offered[0][0][0] == distance - math.floor(mean + math.sqrt(2 * math.log(2**2 / 2) * spread))


def test_no_noisy_marginal_breaks_it():
    """Marginals that are negative, empty or huge, and counts up to 2**53."""
    marginals, pairs = counted([(0, 0, 0)])
    mechanism = TreeMechanism(LENGTHS, 4.0, 1.0)
    for noisy in ([-5.0, -1.0], [0.0, 0.0], [2.0**1000, 3.0], [2.0**53, 2.0**53]):
        assert set(choose_edges(mechanism, [noisy, noisy, [*noisy, 1.0]], pairs, Bits(1))) <= set(PAIRS)
    for times in (2**53, 0):
        tables = [times * m for m in marginals], {pair: times * cells for pair, cells in pairs.items()}
        assert set(mechanism.release(*tables)) <= set(PAIRS)


def test_a_seed_repeats_the_choice_and_the_system_does_not():
    marginals, pairs = counted(np.random.default_rng(0).integers(2, size=(50, 3)))
    mechanism = TreeMechanism(LENGTHS, 200.0, 50.0)
    for seed in range(12):
        assert len({mechanism.release(marginals, pairs, random_seed=seed) for _ in range(2)}) == 1
    assert len({mechanism.release(marginals, pairs) for _ in range(60)}) > 1


# Edges of bins.


def scores_of(mechanism, counts):
    return np.array(mechanism.prepare().scores(SecretCounts(counts)), dtype=float)


def edge_distributions(mechanism, data):
    """The logarithm of the distribution of each edge; `data` has the number of candidates that each record reached."""
    between = np.bincount(data, minlength=mechanism.n_candidates + 1)
    scores = scores_of(mechanism, between) / (mechanism.scale * mechanism.n_bins)
    return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)


def all_edges(mechanism, data):
    """The logarithm of the distribution of all edges before equal ones are joined."""
    total = np.zeros(1)
    for row in edge_distributions(mechanism, np.array(data, dtype=int)):
        total = np.add.outer(total, row).ravel()
    return total


BINS = {
    "replace-one": QuantilesMechanism(3, n_candidates=3, scale=1.0),
    "add-remove": QuantilesMechanism(3, n_candidates=3, scale=1.0, adjacency="add-remove"),
    "many bins": QuantilesMechanism(5, n_candidates=2, scale=1.5, adjacency="add-remove"),
    "two records": QuantilesMechanism(3, n_candidates=3, scale=2.0, adjacency="add-remove", contribution=2),
    "two replaced": QuantilesMechanism(2, n_candidates=3, scale=2.0, contribution=2),
}


@pytest.mark.parametrize("name", BINS)
def test_no_neighbours_lose_more_by_edges_than_the_curves(name):
    mechanism = BINS[name]
    of = cache(lambda data: all_edges(mechanism, data))
    pairs = {pair for n in (2, 3) for pair in neighbours(mechanism, range(mechanism.n_candidates + 1), n)}
    reached = np.max([losses(mechanism, of(one), of(other)) for one, other in pairs if one != other], axis=0)
    assert max(reached) <= 1 + 1e-9
    assert reached[0] > 0.3


@pytest.mark.parametrize(("bins", "records", "sizes"), [(5, 1, range(1, 7)), (5, 2, (2, 4)), (8, 3, (4,))])
def test_no_record_is_the_worst_for_edges_on_both_sides(bins, records, sizes):
    """The widths of all edges together, in integers, for all data sets and all records that are added to them."""
    mechanism = QuantilesMechanism(bins, n_candidates=3, scale=1.0, adjacency="add-remove", contribution=records)
    claims = [mechanism._widths(k, records - k) for k in mechanism._splits]
    claims = np.array([*claims, *(claim[::-1] for claim in claims)], dtype=float) * bins
    of = cache(lambda data: scores_of(mechanism, np.bincount(data, minlength=4)))
    for n in sizes:
        for data in itertools.combinations_with_replacement(range(4), n):
            for added in itertools.combinations_with_replacement(range(4), records):
                widths = np.ptp(of(tuple(sorted(data + added))) - of(data), axis=1)
                assert np.any(np.all(widths <= claims + 1e-9, axis=1))


@pytest.mark.parametrize(("bins", "share"), [(2, 1.0), (3, 0.875), (20, 0.839)])
@pytest.mark.parametrize("records", [1, 5])
def test_what_the_edges_cost_together(bins, share, records):
    """A share of `2 max(q, 1 - q)` for each edge and record."""
    mechanism = QuantilesMechanism(bins, n_candidates=9, scale=16.0, adjacency="add-remove", contribution=records)
    apart = sum(2 * max(j, bins - j) for j in range(1, bins)) / bins * records / 16
    assert mechanism.pure_epsilon == pytest.approx(share * apart, rel=1e-3)
    worst = Composition(tuple((BoundedRange(float(u) / 16), 1) for u in mechanism._widths(records, 0)))
    assert mechanism.rho(math.inf) == pytest.approx(worst.rho(math.inf))
    for epsilon in (0.1, 0.5, 0.95):
        at = epsilon * mechanism.pure_epsilon
        assert mechanism.delta(at) >= worst.delta(at) * (1 - 1e-12)
    # Beside another release every record counts for every edge if they may be split, and so do more than are split.
    beside = Composition(((mechanism, 1), (BoundedRange(0.5), 1))).pure_epsilon - 0.5
    assert beside == pytest.approx(apart if (bins, records) == (20, 5) else share * apart, rel=1e-3)
    assert replace(mechanism, contribution=400).pure_epsilon <= apart / records * 400 * (1 + 1e-12)


def test_what_is_drawn_is_the_distribution_of_the_definition(monkeypatch):
    """Shares of records below each candidate, counted one by one; the scale that the draw is called with."""
    rng = np.random.default_rng(1)
    for mechanism in BINS.values():
        for n in (0, 1, 30):
            data = rng.integers(0, mechanism.n_candidates + 1, n)
            for edge, logs in enumerate(edge_distributions(mechanism, data), start=1):
                below = np.array([sum(record <= i for record in data) for i in range(mechanism.n_candidates)])
                wanted = -np.abs(below - edge / mechanism.n_bins * n) / mechanism.scale
                assert logs == pytest.approx(wanted - np.logaddexp.reduce(wanted), abs=1e-9)
    mechanism, follow = BINS["many bins"], Scripted([1, 0, 1, 0])
    monkeypatch.setattr(drawing, "chosen", follow)
    assert mechanism.release([4, 3, 9]) == (0, 1)
    asked = np.array([np.array(scores, dtype=float) / scale for scores, scale in follow.offered])
    logs = asked - np.logaddexp.reduce(asked, axis=1, keepdims=True)
    assert logs == pytest.approx(edge_distributions(mechanism, [0] * 4 + [1] * 3 + [2] * 9))


@pytest.mark.parametrize(
    "guarantee", [dirdp.PureDP(epsilon=1.0), dirdp.ZeroCDP(rho=0.1), dirdp.ApproxDP(epsilon=1.0, delta=1e-6)]
)
def test_every_kind_of_guarantee_is_used_up(guarantee):
    scales = []
    for adjacency in ("add-remove", "replace-one"):
        mechanism = QuantilesMechanism.for_guarantee(guarantee, n_bins=10, n_candidates=50, adjacency=adjacency)
        assert mechanism.satisfies(guarantee)
        assert not replace(mechanism, scale=mechanism.scale * 0.998).satisfies(guarantee)
        scales.append(mechanism.scale)
    # A record that is added or removed costs less, and at half of the edges half of it.
    assert scales[0] < scales[1]
    with pytest.raises(UnattainableError, match="No scale satisfies"):
        QuantilesMechanism.for_guarantee(dirdp.PureDP(epsilon=1e-25), n_bins=3, n_candidates=4)


def test_what_is_refused_and_what_has_one_answer():
    assert QuantilesMechanism(3, n_candidates=1, scale=1.0).release([0, 0]) == (0,)
    mechanism = QuantilesMechanism(3, n_candidates=2, scale=1.0)
    assert len(mechanism.release([0] * 3)) <= 2
    for wrong in ([7, 8], [[7, 8, 9]], [7.0, 8.0, 9.0]):
        with pytest.raises(DataError, match="Expected 3 integers") as caught:
            mechanism.release(wrong)
        assert not {"7", "8", "9"} & set(str(caught.value))


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        *(("tree", {"lengths": lengths}, "at least two variables") for lengths in ((2,), (2, 1, 1))),
        ("tree", {"lengths": (2,) * 201}, "at most 200"),
        ("tree", {"lengths": (2, 1001, 1000)}, "1001000 cells together"),
        ("tree", {"lengths": (2, 0)}, "length"),
        ("tree", {"parameter": -1.0}, "sigma"),
        ("tree", {"noise": "laplace"}, "noise"),
        ("bins", {"n_bins": 1}, "n_bins"),
        ("bins", {"n_bins": 1001}, "at most 1000 bins"),
        ("bins", {"n_candidates": 0}, "n_candidates"),
        ("bins", {"n_candidates": 10**5 + 1}, "100000 candidates"),
        *((kind, {"scale": scale}, "scale") for kind in ("tree", "bins") for scale in (0.0, math.nan, 2.0**70)),
        *((kind, {"adjacency": "both"}, "adjacency") for kind in ("tree", "bins")),
        *((kind, {"contribution": 0}, "contribution") for kind in ("tree", "bins")),
    ],
)
def test_odd_arguments(kind, change, said):
    with pytest.raises(ArgumentError, match=said):
        replace(TREES["replace-one"][0] if kind == "tree" else BINS["replace-one"], **change)
