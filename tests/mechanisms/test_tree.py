"""A tree chosen privately: brute force over all neighbours of small data sets, mutants, and odd arguments."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.choices import TreeMechanism
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions
from pymc_dirdp.sampling import drawing
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.drawing import Once, SecretCounts
from pymc_dirdp.texts.codec import facts_of, value_of

LENGTHS = (2, 2, 3)
CELLS = list(itertools.product(*map(range, LENGTHS)))
PAIRS = list(itertools.combinations(range(3), 2))


def counted(data, lengths=LENGTHS):
    """The marginals and the pairs of records, counted one by one."""
    marginals = [np.zeros(length, dtype=np.int64) for length in lengths]
    pairs = {
        (i, j): np.zeros((lengths[i], lengths[j]), dtype=np.int64)
        for i, j in itertools.combinations(range(len(lengths)), 2)
    }
    for record in data:
        for i, value in enumerate(record):
            marginals[i][value] += 1
        for i, j in pairs:
            pairs[i, j][record[i], record[j]] += 1
    return marginals, pairs


def choose_edges(mechanism, noisy, pairs, bits):
    """The edges, given the noisy marginals."""
    prepared = replace(mechanism.prepare(1), bits=Once(bits))
    return prepared.choose_edges(noisy, {pair: SecretCounts(counts) for pair, counts in pairs.items()})


class Scripted:
    """Stands for the draw: follows a script of choices, and keeps what was offered at each."""

    def __init__(self, script):
        self.script, self.offered = list(script), []

    def __call__(self, scores, scale, bits):
        self.offered.append((list(scores), float(scale)))
        if len(self.offered) > len(self.script):
            raise EOFError
        return self.script[len(self.offered) - 1]


def distribution(mechanism, noisy, data, monkeypatch):
    """The logarithm of the probability of each sequence of choices, given the noisy marginals: from what is offered."""
    _, pairs = counted(data, mechanism.lengths)
    found, open_ = {}, [((), 0.0)]
    with monkeypatch.context() as patched:
        while open_:
            script, log = open_.pop()
            follow = Scripted(script)
            patched.setattr(drawing, "chosen", follow)
            try:
                choose_edges(mechanism, noisy, pairs, None)
            except EOFError:
                scores, scale = follow.offered[-1]
                weights = np.array([float(score) for score in scores]) / scale
                logs = weights - np.logaddexp.reduce(weights)
                open_ += [((*script, i), log + each) for i, each in enumerate(logs.tolist())]
            else:
                found[script] = log
    assert math.isclose(math.fsum(map(math.exp, found.values())), 1.0, abs_tol=1e-9)
    return found


def neighbours(n, adjacency, records=1):
    """All pairs of data sets of n records: some of them replaced, or missing in the second."""
    for data in itertools.combinations_with_replacement(CELLS, n):
        rest = data[: n - records]
        if adjacency == "add-remove":
            yield data, rest
        else:
            yield from ((data, (*rest, *others)) for others in itertools.product(CELLS, repeat=records))


def noisy_marginals(count, seed):
    rng = np.random.default_rng(seed)
    return [[rng.integers(-1, 5, length).astype(float) for length in LENGTHS] for _ in range(count)]


def worst(mechanism, n, seeds, monkeypatch, records=1):
    """The largest loss of a sequence of choices.

    And of the whole distribution, over all neighbours: ratios to the claim.
    """
    choices = Composition(((mechanism.choice, mechanism.choices),))
    points = [("delta", share * choices.pure_epsilon) for share in (0.0, 0.2, 0.6)] + [
        ("renyi", order) for order in (1, 3, 30)
    ]
    claimed = {point: getattr(choices, point[0])(float(point[1])) for point in points}
    reached = dict.fromkeys(["pure", *points], 0.0)
    for noisy in noisy_marginals(*seeds):
        known = {}

        def of(data, noisy=noisy, known=known):
            data = tuple(sorted(data))
            if data not in known:
                known[data] = distribution(mechanism, noisy, data, monkeypatch)
            return known[data]

        for one, other in neighbours(n, mechanism.adjacency, records):
            mine, its = of(one), of(other)
            assert mine.keys() == its.keys()
            distributions = FiniteDistributions(
                np.array(list(mine.values())), np.array([its[script] for script in mine])
            )
            reached["pure"] = max(reached["pure"], distributions.pure_epsilon / choices.pure_epsilon)
            for point in points:
                reached[point] = max(reached[point], getattr(distributions, point[0])(float(point[1])) / claimed[point])
    return reached


CASES = {
    "replace-one": (TreeMechanism(LENGTHS, 3.0, 1.0), 2, 1),
    "add-remove": (TreeMechanism(LENGTHS, 2.0, 1.0, adjacency="add-remove"), 3, 1),
    "two records": (TreeMechanism(LENGTHS, 5.0, 1.0, adjacency="add-remove", contribution=2), 2, 2),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.thorough
def test_no_neighbours_lose_more_than_the_curves(name, monkeypatch):
    mechanism, n, records = CASES[name]
    reached = worst(mechanism, n, (2, 1), monkeypatch, records)
    assert max(reached.values()) <= 1 + 1e-9
    # The bound of a choice is for scores that go up and down by all that they can.
    assert reached["pure"] > 0.3


def test_half_the_sensitivity_and_a_choice_that_is_not_paid_are_refuted(monkeypatch):
    """One record moves so that a score falls by 2 and the others rise by 2, found by a search."""
    mechanism = TreeMechanism((2, 2, 2), 1.0, 1.0)
    noisy = [np.array([3.0, 8.0]), np.array([6.0, 8.0]), np.array([0.0, 6.0])]
    others = [(0, 1, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (1, 0, 0), (0, 0, 0)]
    mine, its = (distribution(mechanism, noisy, [*others, last], monkeypatch) for last in ((0, 1, 1), (1, 1, 0)))
    first = [np.logaddexp.reduce([log for script, log in each.items() if script[0] == 0]) for each in (mine, its)]
    assert 0.9999 * mechanism.choice.u < first[0] - first[1] <= mechanism.choice.u
    # A width of 2 m / scale in the place of 4 m / scale is half of it, for three variables.
    assert first[0] - first[1] > 1.9 * replace(mechanism, adjacency="add-remove").choice.u

    # Both choices lose, so that one of them alone is no bound.
    mechanism = TreeMechanism((2, 2, 2), 2.0, 1.0)
    noisy = [np.array([7.0, 1.0]), np.array([8.0, 6.0]), np.array([0.0, 8.0])]
    others = [(0, 0, 0), (1, 1, 0), (1, 0, 0), (1, 0, 0), (1, 0, 0), (1, 1, 0)]
    mine, its = (distribution(mechanism, noisy, [*others, last], monkeypatch) for last in ((1, 1, 1), (0, 1, 0)))
    distributions = FiniteDistributions(np.array(list(mine.values())), np.array([its[script] for script in mine]))
    assert 1.4 * mechanism.choice.u < distributions.pure_epsilon <= 2 * mechanism.choice.u
    assert mechanism.choice.delta(mechanism.choice.u) == 0 < distributions.delta(mechanism.choice.u)


@pytest.mark.parametrize(("adjacency", "width"), [("replace-one", 2), ("add-remove", 1)])
@pytest.mark.parametrize("records", [1, 2])
def test_the_one_choice_of_two_variables_attains_its_width(adjacency, width, records, monkeypatch):
    """Brute force: its only other candidate is "no more edges", whose score stays."""
    mechanism = TreeMechanism((2, 2), 3.0, 1.0, adjacency=adjacency, contribution=records)
    assert mechanism.choice.u == pytest.approx(width * records / 3)
    cells, reached = list(itertools.product((0, 1), repeat=2)), 0.0
    for noisy in ([np.array([3.0, 1.0]), np.array([2.0, 2.0])], [np.array([0.0, 4.0]), np.array([4.0, -1.0])]):
        distributions = {
            data: np.array([log for _, log in sorted(distribution(mechanism, noisy, data, monkeypatch).items())])
            for n in (3 - records, 3)
            for data in itertools.combinations_with_replacement(cells, n)
        }
        for data in itertools.combinations_with_replacement(cells, 3):
            for rest in itertools.combinations(data, 3 - records):
                replacements = itertools.product(cells, repeat=records) if adjacency == "replace-one" else [()]
                others = [distributions[tuple(sorted((*rest, *new)))] for new in replacements]
                reached = max(reached, *(float(np.ptp(distributions[data] - other)) for other in others))
    assert 0.999 * mechanism.choice.u <= reached <= mechanism.choice.u * (1 + 1e-12)


@pytest.mark.thorough
def test_the_whole_distribution_with_its_noisy_marginals_keeps_the_curves(monkeypatch):
    """Two variables: every noisy marginal that is likely, and what is chosen after it."""
    mechanism = TreeMechanism((2, 2), 4.0, 1.5, "geometric", adjacency="add-remove")
    reach, scale = np.arange(-3, 6), mechanism.parameter
    grid = list(itertools.product(reach, repeat=4))
    one, other = [(0, 0), (0, 0)], [(0, 0)]
    logs = []
    for data in (one, other):
        marginals, _ = counted(data, (2, 2))
        counts = np.concatenate(marginals)
        per_cell = math.log(math.tanh(1 / (2 * scale)))
        joint = []
        for noisy in grid:
            of_noise = 4 * per_cell - np.abs(np.array(noisy) - counts).sum() / scale
            halves = [np.array(noisy[:2], dtype=float), np.array(noisy[2:], dtype=float)]
            joint += [of_noise + log for _, log in sorted(distribution(mechanism, halves, data, monkeypatch).items())]
        logs.append(np.array(joint))
    distributions = FiniteDistributions(*logs)
    assert 0.7 * mechanism.pure_epsilon < distributions.pure_epsilon <= mechanism.pure_epsilon * (1 + 1e-12)
    for epsilon in (0.2, 0.8, 1.5):
        excess = np.exp(logs[0]) - math.exp(epsilon) * np.exp(logs[1])
        assert excess[excess > 0].sum() <= mechanism.delta(epsilon)


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


def test_dependent_pairs_are_joined_and_others_are_not():
    rng = np.random.default_rng(3)
    a, c = rng.integers(3, size=(2, 4000))
    data = np.column_stack([a, (a + (rng.random(4000) < 0.1)) % 3, c, (c + (rng.random(4000) < 0.1)) % 3])
    mechanism = TreeMechanism((3, 3, 3, 3), 5.0, 5.0)
    assert {mechanism.release(*counted(data, mechanism.lengths)) for _ in range(10)} == {((0, 1), (2, 3))}
    alone = rng.integers(3, size=(4000, 4))
    edges = [len(mechanism.release(*counted(alone, mechanism.lengths))) for _ in range(20)]
    assert np.mean(edges) < 1.5


def test_an_end_is_offered_last_and_ends_the_choices(monkeypatch):
    marginals, pairs = counted([(0, 0, 0)] * 4)
    follow = Scripted([0, 1])
    monkeypatch.setattr(drawing, "chosen", follow)
    mechanism = TreeMechanism(LENGTHS, 4.0, 1.0)
    assert choose_edges(mechanism, [m.astype(float) for m in marginals], pairs, None) == ((0, 1), (1, 2))
    assert [len(scores) for scores, _ in follow.offered] == [4, 3]
    assert [scores[-1] for scores, _ in follow.offered] == [
        mechanism.prepare().stop_score(3),
        mechanism.prepare().stop_score(2),
    ]
    monkeypatch.setattr(drawing, "chosen", Scripted([3]))
    assert choose_edges(mechanism, [m.astype(float) for m in marginals], pairs, None) == ()


def test_no_noisy_marginal_breaks_it():
    """Marginals that are negative, empty or huge, and counts up to 2**53."""
    _, pairs = counted([(0, 0, 0)])
    mechanism = TreeMechanism(LENGTHS, 4.0, 1.0)
    for noisy in ([-5.0, -1.0], [0.0, 0.0], [2.0**1000, 3.0], [2.0**53, 2.0**53]):
        edges = choose_edges(mechanism, [np.array(noisy), np.array(noisy), np.array([*noisy, 1.0])], pairs, Bits(1))
        assert set(edges) <= set(PAIRS)
    large = {pair: cells * 2**53 for pair, cells in pairs.items()}
    marginals = [np.array([2**53, *[0] * (length - 1)]) for length in LENGTHS]
    assert set(mechanism.release(marginals, large)) <= set(PAIRS)
    assert mechanism.release([0 * m for m in marginals], {pair: 0 * cells for pair, cells in pairs.items()}) is not None


def test_a_seed_repeats_the_choice_and_the_system_does_not():
    marginals, pairs = counted(np.random.default_rng(0).integers(2, size=(50, 3)))
    mechanism = TreeMechanism(LENGTHS, 200.0, 50.0)
    for seed in range(12):
        one, other = (mechanism.release(marginals, pairs, random_seed=seed) for _ in range(2))
        assert one == other
    assert len({mechanism.release(marginals, pairs) for _ in range(60)}) > 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lengths": (2,)}, "at least two variables"),
        ({"lengths": (2, 1, 1)}, "at least two variables"),
        ({"lengths": (2,) * 201}, "at most 200"),
        ({"lengths": (2, 1001, 1000)}, "1001000 cells together"),
        ({"lengths": (2, 0)}, "length"),
        ({"scale": 0.0}, "scale"),
        ({"scale": 2.0**70}, "scale"),
        ({"parameter": -1.0}, "sigma"),
        ({"noise": "laplace"}, "noise"),
        ({"adjacency": "both"}, "adjacency"),
        ({"contribution": 0}, "contribution"),
    ],
)
def test_odd_arguments_are_refused(change, said):
    with pytest.raises(ArgumentError, match=said):
        replace(TreeMechanism(LENGTHS, 4.0, 1.0), **change)


def test_facts_are_read_back_and_lengths_are_integers():
    mechanism = TreeMechanism(LENGTHS, 4.1, 1.3, "geometric", adjacency="add-remove", contribution=2)
    assert value_of(TreeMechanism, facts_of(mechanism)) == mechanism
    for wrong in ("223", [2, 2, True]):
        with pytest.raises(ArgumentError):
            value_of(TreeMechanism, facts_of(mechanism) | {"lengths": wrong})
