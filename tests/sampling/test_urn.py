"""The urn: its exact distribution by enumeration, of many steps at once and one by one, and draws with known power."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import betabinom, chisquare

from pymc_dirdp.sampling import exact
from pymc_dirdp.sampling import exact as module
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.exact import synthetic_counts, urn

SMALL = [
    ((1, 2), 0, 3),
    ((5, 1), 1, 3),
    ((1, 1), 2, 3),
    ((2, 1, 3), 1, 3),
    ((3, 4, 2, 1), 3, 2),
    ((3, 2), 0, 1),
    ((7, 1), 3, 2),
    # A copy of a copy of a copy.
    ((1, 1), 0, 5),
    ((3, 5, 4), 4, 2),
]


class AgainError(Exception):
    """A place that no weight covers was drawn."""


class Scripted:
    """Answers to `uniform` and `uniforms` that are written down."""

    def __init__(self, answers):
        self.answers = iter(answers)

    def uniform(self, n):
        answer = next(self.answers, None)
        if answer is None:
            self.n = n
            raise EOFError
        return answer

    def uniforms(self, limits):
        return np.array([self.uniform(n) for n in limits.tolist()], dtype=np.int64)


@pytest.fixture
def nothing_again(monkeypatch):
    """A place that no weight covers ends the draw."""
    find, categories = module.bisect_right, module._Weights.categories

    def found(self, points, row, bits):
        chosen = categories(self, points, row, bits)
        if np.any(chosen == self.outside):
            raise AgainError
        return chosen

    def first_above(cumulative, point):
        if point >= cumulative[-1]:
            raise AgainError
        return find(cumulative, point)

    monkeypatch.setattr(module._Weights, "categories", found)
    monkeypatch.setattr(module, "bisect_right", first_above)


def outcomes(weights, digits, steps, draws=1):
    return outcomes_of_rows([weights], digits, steps, draws)


def outcomes_of_rows(rows, digits, steps, draws=1):
    """The counts of every sequence of answers, with its probability, if no place is drawn again.

    Whether one is depends on the number of earlier records and not on which they are. So what is left out has the
    same share everywhere, and the distribution is that of what is left.
    """
    mass, paths = Counter(), [((), Fraction(1))]
    while paths:
        path, weight = paths.pop()
        bits = Scripted(path)
        try:
            counts = urn(rows, digits, steps=steps, draws=draws, bits=bits)
        except AgainError:
            continue
        except EOFError:
            paths += [((*path, answer), weight / bits.n) for answer in range(bits.n)]
        else:
            mass[tuple(counts.ravel().tolist())] += weight
    return {counts: share / mass.total() for counts, share in mass.items()}


def dirichlet_multinomial(counts, parameters):
    """Probability of the counts, as a fraction."""

    def rising(x, n):
        return math.prod((x + i for i in range(n)), start=Fraction(1))

    ways = math.factorial(sum(counts))
    for c in counts:
        ways //= math.factorial(c)
    product = math.prod((rising(u, c) for c, u in zip(counts, parameters, strict=True)), start=Fraction(1))
    return ways * product / rising(sum(parameters), sum(counts))


def tables(d, steps):
    return [c for c in itertools.product(range(steps + 1), repeat=d) if sum(c) == steps]


# All steps at once; in blocks of one and of two; with points of three bits, of which the others are drawn where they
# matter; and one by one, in Python.
WAYS = [{}, {"_AT_ONCE": 1}, {"_AT_ONCE": 2}, {"_LEADING": 3}, {"_LEADING": 0}]


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(("weights", "digits", "steps"), SMALL)
def test_distribution_by_enumeration(weights, digits, steps, way, nothing_again, monkeypatch):
    """Every sequence of answers, each of which is as likely as any other at its place."""
    for name, value in way.items():
        monkeypatch.setattr(module, name, value)
    distribution = outcomes(weights, digits, steps)
    parameters = [Fraction(w, 2**digits) for w in weights]
    assert distribution == {c: dirichlet_multinomial(c, parameters) for c in tables(len(weights), steps)}


@pytest.mark.parametrize("at_once", [2, 6])
def test_draws_side_by_side_are_independent(at_once, nothing_again, monkeypatch):
    """One after the other, and side by side."""
    monkeypatch.setattr(module, "_AT_ONCE", at_once)
    distribution = outcomes((1, 1), 0, 3, draws=2)
    alone = {c: dirichlet_multinomial(c, [Fraction(1), Fraction(1)]) for c in tables(2, 3)}
    assert distribution == {(*one, *other): p * q for one, p in alone.items() for other, q in alone.items()}


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize(
    ("rows", "digits", "steps"), [([(1, 2), (3, 1)], 0, 3), ([(1, 1), (5, 3)], 1, 2), ([(1, 0, 1), (1, 2, 4)], 1, 2)]
)
def test_rows_side_by_side_have_distributions_of_their_own(rows, digits, steps, way, nothing_again, monkeypatch):
    """Rows with other weights, and with other numbers of cells and of bits, are independent."""
    for name, value in way.items():
        monkeypatch.setattr(module, name, value)
    distribution = outcomes_of_rows(rows, digits, steps)
    first, second = ([Fraction(w, 2**digits) for w in row] for row in rows)
    expected = {
        (*one, *other): dirichlet_multinomial(one, first) * dirichlet_multinomial(other, second)
        for one in tables(len(first), steps)
        for other in tables(len(second), steps)
    }
    assert distribution == {counts: share for counts, share in expected.items() if share}


def test_many_rows_have_the_stated_distribution_and_share_their_calls(monkeypatch):
    """Chi-square against the Beta-binomial distributions of three kinds of rows among 30,000.

    That of another kind is rejected.

    One kind has weights that 64 bits do not hold. The rows take few calls together, and no call each.
    """
    calls, block = [], module._block
    monkeypatch.setattr(module, "_block", lambda *given: calls.append(1) or block(*given))
    kinds, digits, steps, each = [(1.5, 2.0), (3.0, 0.5), (0.25, 4.0)], 70, 8, 10_000
    whole = [[int(u * 2**digits) for u in kind] for kind in kinds]
    counts = urn(whole * each, digits, steps=steps, draws=1, bits=Bits(5))[0]
    assert len(calls) < 100
    assert np.all(counts.sum(axis=1) == steps)
    distributions = [betabinom.pmf(np.arange(steps + 1), steps, *kind) for kind in kinds]
    for kind, distribution in enumerate(distributions):
        seen = np.bincount(counts[kind::3, 0], minlength=steps + 1)
        assert chisquare(seen, each * distribution / distribution.sum()).pvalue > 1e-6
        other = distributions[kind - 1]
        assert chisquare(seen, each * other / other.sum()).pvalue < 1e-6
    assert abs(np.corrcoef(counts[::3, 0], counts[1::3, 0])[0, 1]) < 5 / math.sqrt(each)


def test_weights_of_any_size_beside_others():
    """Rows whose numbers 64 bits do not hold are drawn one by one, and the others side by side."""
    counts = urn([[2**130, 1], [1, 1], [1, 2**130], [2**60, 2**50]], 60, steps=50, draws=40, bits=Bits(2))
    assert np.all(counts.sum(axis=-1) == 50)
    assert counts[:, 0].tolist() == [[50, 0]] * 40
    assert counts[:, 2].tolist() == [[0, 50]] * 40
    assert np.all(counts[:, 1].max(axis=-1) == 50)
    assert np.all(counts[:, 3, 0] > 25)


def test_a_place_that_no_weight_covers_is_drawn_again():
    """Also if the second place is that of an earlier record, or the third one is covered."""
    # The weights 1 and 1 lie on the first two quarters of one cell: at 2 and 3 nothing is. The second record is drawn
    # from two places, the earlier record and the cell.
    for later, category in [((0,), 1), ((1, 0), 0), ((1, 3, 0), 1), ((1, 2, 1, 1), 1), ((1, 3, 1, 0), 0)]:
        bits = Scripted([1, 1, 2, *later])
        counts = urn([[1, 1]], 2, steps=2, draws=1, bits=bits)
        assert counts.tolist() == [[[int(category == 0), 1 + int(category == 1)]]]
        assert next(bits.answers, None) is None


def test_the_enumeration_finds_a_wrong_parameter(nothing_again):
    assert outcomes((1, 2), 1, 3)[3, 0] != dirichlet_multinomial((3, 0), [Fraction(2, 4), Fraction(3, 2)])


def test_neighbours_reach_the_same_tables(nothing_again):
    """All that can be released, exhaustively: the same set for data sets that differ in a record, or in many."""
    reached = {
        tuple(table): set(outcomes([2 * c + 1 for c in table], 1, 3))
        for table in [(2, 1, 0), (1, 2, 0), (0, 0, 3), (1, 1, 0)]
    }
    assert all(seen == set(tables(3, 3)) for seen in reached.values())


@pytest.mark.parametrize(
    ("weights", "digits", "steps", "draws"),
    [
        ([[3, 4, 5], [1, 1, 9]], 1, 700, 3),
        ([[1, 1]], 0, 200_000, 2),
        ([[1, 10**6, 3, 1]], 0, 50, 4000),
        ([[2**60, 2**61, 5]], 20, 300, 5),
        ([[2**63 - 1, 1], [1, 2**64 - 1]], 64, 300, 5),
        ([[2**64, 2**64]], 65, 300, 5),
        ([[1, 1]], 100, 300, 5),
        ([[2**70, 3, 2**66]], 66, 300, 5),
        ([[2**126 - 1, 2**126 - 10, 3]], 127, 300, 5),
        ([[2**140, 2**139]], 141, 50, 5),
        # Numbers that 64 bits do not hold are drawn one by one.
        ([[2**130, 2**131]], 60, 50, 5),
    ],
)
def test_weights_of_all_sizes(weights, digits, steps, draws):
    """Every row adds up, and its mean is that of the distribution: six standard deviations."""
    counts = urn(weights, digits, steps=steps, draws=draws, bits=Bits(4))
    assert np.all(counts.sum(axis=-1) == steps)
    for row, seen in zip(weights, counts.mean(axis=0) / steps, strict=True):
        p = np.array([float(Fraction(w, sum(row))) for w in row])
        total = float(Fraction(sum(row), 2**digits))
        sd = np.sqrt(p * (1 - p) * (total + steps) / (total + 1) / steps / draws)
        assert np.all(np.abs(seen - p) <= 6 * sd + 1e-9)


@pytest.mark.parametrize("d", [2, 1000, 50_000])
def test_every_category_can_be_reached(d):
    """The first and the last point of a category find it, also among many."""
    rng = np.random.default_rng(d)
    weights = rng.integers(1, 10**9, size=d).tolist()
    ends = list(itertools.accumulate(weights))
    for category in {0, 1, d // 2, d - 2, d - 1}:
        for point in (ends[category] - weights[category], ends[category] - 1):
            assert urn([weights], 0, steps=1, draws=1, bits=Scripted([point]))[0, 0, category] == 1


def test_no_number_is_a_float_and_none_is_refused():
    """Parameters that no product or sum of doubles could hold, and counts up to the largest that are known exactly."""
    counts = synthetic_counts(
        np.array([1e300, 1e-300]), 1e-300, np.array([2**53, 2**53]), steps=50, draws=2, bits=Bits(1)
    )
    assert counts.tolist() == [[50, 0]] * 2
    counts = synthetic_counts(
        np.array([5e-324, 5e-324]), 1.7e308, np.array([2**53, 2**53]), steps=1000, draws=1, bits=Bits(1)
    )
    assert abs(counts[0, 0] - 500) < 5 * math.sqrt(250)


def test_the_distribution_is_that_of_the_doubles_given(monkeypatch):
    """The weights are `r * counts + alpha` of the doubles, as fractions, and no neighbouring double."""
    seen, drawn = {}, exact._urn

    def noted(weights, which, digits, *given):
        seen["weights"] = [Fraction(weights[i], 2**digits) for i in which[0]]
        return drawn(weights, which, digits, *given)

    monkeypatch.setattr(exact, "_urn", noted)
    alpha, r = [0.1, 0.7], 0.0878
    synthetic_counts(np.array(alpha), r, np.array([400, 600]), steps=1, draws=1, bits=Bits(1))
    assert seen["weights"] == [Fraction(r) * 400 + Fraction(0.1), Fraction(r) * 600 + Fraction(0.7)]


def test_tiny_parameters_take_no_longer():
    """One category takes all; a first record that waited for its place among the cells would wait a billion times."""
    seen = synthetic_counts(
        np.full((200, 3), 1e-12), 1.0, np.zeros((200, 3), dtype=np.int64), steps=20, draws=1, bits=Bits(1)
    )
    assert np.all(seen.max(axis=-1) == 20)
    assert len(set(seen.argmax(axis=-1).ravel())) == 3
