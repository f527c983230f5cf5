"""The urn: its exact law by enumeration, compiled and in Python, and draws with known power."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import betabinom, chisquare

from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.sampling import urn as module
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.exact import synthetic_counts
from pymc_dirdp.sampling.urn import urn

SMALL = [
    ((1, 2), 0, 3),
    ((5, 1), 1, 3),
    ((1, 1), 2, 4),
    ((2, 1, 3), 1, 3),
    ((3, 4, 2, 1), 3, 3),
    ((3, 2), 0, 1),
    ((7, 1), 3, 3),
]


@pytest.fixture(autouse=True)
def nothing_walked(monkeypatch):
    """Other tests of this process do not decide which of the two ways is taken."""
    monkeypatch.setattr(module, "_walked", {"steps": 0})


class AgainError(Exception):
    """A place that no weight covers was drawn."""


class Scripted:
    """Answers to `uniform` that are written down."""

    def __init__(self, answers, cells):
        self.answers, self.cells, self.step, self.behind = iter(answers), cells, None, False

    def uniform(self, n):
        self.n = n
        # The first record comes from the weights at once.
        if self.step is None:
            self.step = 0
        elif not self.behind:
            if n - self.cells == self.step:
                raise AgainError
            self.step = n - self.cells
        answer = next(self.answers, None)
        if answer is None:
            raise EOFError
        # Behind the earlier records lie the weights, and there a second number is asked for.
        self.behind = not self.behind and 0 < self.step <= answer
        return answer


def outcomes(weights, digits, steps):
    """The counts of every sequence of answers, with its probability, if no place is drawn again.

    Whether one is depends on the number of earlier records and not on which they are. So what is left out has the
    same share everywhere, and the law is that of what is left.
    """
    mass, paths = Counter(), [((), Fraction(1))]
    while paths:
        path, weight = paths.pop()
        bits = Scripted(path, -(-sum(weights) // 2**digits))
        try:
            counts = urn([weights], digits, steps=steps, draws=1, bits=bits)
        except AgainError:
            continue
        except EOFError:
            paths += [((*path, answer), weight / bits.n) for answer in range(bits.n)]
        else:
            mass[tuple(counts[0, 0].tolist())] += weight
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


@pytest.mark.parametrize(("weights", "digits", "steps"), SMALL)
def test_law_by_enumeration(weights, digits, steps):
    """Every sequence of answers, each of which is as likely as any other at its place."""
    law = outcomes(weights, digits, steps)
    parameters = [Fraction(w, 2**digits) for w in weights]
    assert law == {c: dirichlet_multinomial(c, parameters) for c in tables(len(weights), steps)}


def test_the_enumeration_finds_a_wrong_parameter():
    assert outcomes((1, 2), 1, 3)[3, 0] != dirichlet_multinomial((3, 0), [Fraction(2, 4), Fraction(3, 2)])


def test_neighbours_reach_the_same_tables():
    """All that can be released, exhaustively: the same set for data sets that differ in a record, or in many."""
    reached = {
        tuple(table): set(outcomes([2 * c + 1 for c in table], 1, 4))
        for table in [(2, 1, 0), (1, 2, 0), (0, 0, 3), (1, 1, 0)]
    }
    assert all(seen == set(tables(3, 4)) for seen in reached.values())


@pytest.mark.parametrize(
    ("weights", "digits", "steps", "draws"),
    [
        ([[3, 4, 5], [1, 1, 9]], 1, 700, 3),
        ([[1, 1]], 0, 20_000, 2),
        ([[1, 10**6, 3, 1]], 0, 50, 40),
        ([[2**60, 2**61, 5]], 20, 300, 5),
        ([[2**63 - 1, 1], [1, 2**64 - 1]], 64, 300, 5),
        ([[2**64, 2**64]], 65, 300, 5),
        ([[1, 1]], 100, 300, 5),
        ([[2**70, 3, 2**66]], 66, 300, 5),
        ([[2**126 - 1, 2**126 - 10, 3]], 127, 300, 5),
        ([[2**126 - 1, 2**126 - 10, 3]], 80, 300, 5),
        # What does not fit into 64 bits, or into two words, stays in Python.
        ([[2**130, 2**131]], 60, 50, 5),
        ([[2**140, 2**139]], 141, 50, 5),
    ],
)
def test_compiled_and_python_make_the_same_draws_from_the_same_words(weights, digits, steps, draws, monkeypatch):
    given = {"digits": digits, "steps": steps, "draws": draws}
    first, second = Bits(4), Bits(4)
    monkeypatch.setattr(module, "_walked", {"steps": 0})
    plain = urn(weights, bits=first, **given)
    monkeypatch.setattr(module, "_STEPS_IN_PYTHON", 0)
    assert np.array_equal(urn(weights, bits=second, **given), plain)
    # They also leave the same words behind.
    assert first.uniform(2**64) == second.uniform(2**64)
    assert np.all(plain.sum(axis=-1) == steps)

    class Scarce(Bits):
        """So many words at a time as are asked for: every step meets the end of its words."""

        def ahead(self, least=1):
            return super().ahead(least)[:least]

    assert np.array_equal(urn(weights, bits=Scarce(4), **given), plain)


def test_small_tables_need_no_compiler(monkeypatch):
    monkeypatch.setattr(module, "compiled_walk", None)
    monkeypatch.setattr(module, "_walked", {"steps": 0})
    urn([[1, 2]], 0, steps=10_000, draws=1, bits=Bits())


def test_many_small_tables_are_compiled_as_a_large_one_is(monkeypatch):
    """Python walks so many steps in a process, and no more, and what it walked before changes no draw."""
    walks = []
    for called, walk in {name: getattr(module, name) for name in ("_in_python", "_compiled")}.items():

        def noted(*given, called=called, walk=walk):
            walks.append(called)
            return walk(*given)

        monkeypatch.setattr(module, called, noted)
    monkeypatch.setattr(module, "_STEPS_IN_PYTHON", 250)
    monkeypatch.setattr(module, "_walked", {"steps": 0})
    bits = Bits(3)
    drawn = [urn([[1, 2]], 0, steps=100, draws=1, bits=bits).tolist() for _ in range(4)]
    assert walks == ["_in_python"] * 2 + ["_compiled"] * 2
    monkeypatch.setattr(module, "_STEPS_IN_PYTHON", 10**6)
    bits = Bits(3)
    assert [urn([[1, 2]], 0, steps=100, draws=1, bits=bits).tolist() for _ in range(4)] == drawn


@pytest.mark.parametrize("d", [2, 1000, 50_000])
def test_every_category_can_be_reached(d, monkeypatch):
    """The first and the last point of a category find it, also among many, in Python and compiled."""
    rng = np.random.default_rng(d)
    weights = rng.integers(1, 10**9, size=d).tolist()
    ends = list(itertools.accumulate(weights))
    length = (ends[-1] - 1).bit_length()
    for category in {0, 1, d // 2, d - 2, d - 1}:
        for point in (ends[category] - weights[category], ends[category] - 1):

            class Given(Bits):
                def ahead(self, least=1, word=point << 64 - length):
                    self._words = np.array([word] * 3, dtype=np.uint64)
                    return self._words

            for steps_in_python in (10**6, 0):
                monkeypatch.setattr(module, "_STEPS_IN_PYTHON", steps_in_python)
                monkeypatch.setattr(module, "_walked", {"steps": 0})
                assert urn([weights], 0, steps=1, draws=1, bits=Given())[0, 0, category] == 1


def test_no_number_is_a_float_and_none_is_refused():
    """Parameters that no product or sum of doubles could hold, and counts up to the largest that are known exactly."""
    counts = synthetic_counts([1e300, 1e-300], 1e-300, [2**53, 2**53], steps=50, draws=2, bits=Bits(1))
    assert counts.tolist() == [[50, 0]] * 2
    counts = synthetic_counts([5e-324, 5e-324], 1.7e308, [2**53, 2**53], steps=1000, draws=1, bits=Bits(1))
    assert abs(counts[0, 0] - 500) < 5 * math.sqrt(250)


def test_the_law_is_that_of_the_doubles_given():
    """The weights are `r * counts + alpha` of the doubles, as fractions, and no neighbouring double."""
    seen = {}

    class Recorded(Bits):
        def uniform(self, n):
            seen.setdefault("first", n)
            return super().uniform(n)

    alpha, r = [0.1, 0.7], 0.0878
    total = Fraction(r) * 1000 + sum(map(Fraction, alpha))
    synthetic_counts(alpha, r, [400, 600], steps=1, draws=1, bits=Recorded(1))
    assert seen["first"] == total * max(Fraction(x).denominator for x in [*alpha, r])


def test_tiny_parameters_take_no_longer():
    """One category takes all; a first record that waited for its place among the cells would wait a billion times."""
    seen = synthetic_counts(np.full((200, 3), 1e-12), 1.0, np.zeros((200, 3)), steps=20, draws=1, bits=Bits(1))
    assert np.all(seen.max(axis=-1) == 20)
    assert len(set(seen.argmax(axis=-1).ravel())) == 3


def test_draws_and_rows_are_independent():
    """Correlations of 20,000 pairs: five standard deviations."""
    draws = urn([[3, 4], [2, 2]], 1, steps=20, draws=20_000, bits=Bits(9))[..., 0]
    for x, y in [(draws[:, 0], draws[:, 1]), (draws[:-1, 0], draws[1:, 0]), (draws[:-1, 1], draws[1:, 1])]:
        assert abs(np.corrcoef(x, y)[0, 1]) < 5 / math.sqrt(20_000)


@pytest.mark.parametrize("cell", [0, 1, 2])
def test_draws_have_the_stated_law(cell):
    """Chi-square of a cell's beta-binomial law with a threshold of 1e-6; an r that is 30 % off is rejected."""
    alpha, r, counts, steps = np.array([0.5, 1.0, 2.0]), 0.37, np.array([40, 3, 12]), 30
    draws = synthetic_counts(alpha, r, counts, steps=steps, draws=50_000, bits=Bits(6))
    seen = np.bincount(draws[:, cell], minlength=steps + 1)

    def p_value(assumed):
        u = assumed * counts + alpha
        expected = seen.sum() * betabinom(steps, u[cell], u.sum() - u[cell]).pmf(np.arange(steps + 1))
        # Cells that are expected less than five times are put together.
        rare = expected < 5
        if not rare.any():
            return chisquare(seen, expected).pvalue
        return chisquare([*seen[~rare], seen[rare].sum()], [*expected[~rare], expected[rare].sum()]).pvalue

    assert p_value(r) > 1e-6
    assert p_value(0.7 * r) < 1e-6
    assert p_value(1.3 * r) < 1e-6


@pytest.mark.parametrize(
    "counts", [[1, 2], [1, 2, -1], [1, 2, 0.5], [1, 2, math.nan], [1, 2, math.inf], [1, 2, 2.0**60], ["600", "x", 1]]
)
def test_counts_that_cannot_be_are_refused_and_not_shown(counts):
    with pytest.raises(DataError) as error:
        synthetic_counts([1.0, 1.0, 1.0], 1.0, counts, steps=10, draws=1, bits=Bits(0))
    assert not any(shown in str(error.value) for shown in ("600", "0.5", "-1"))


@pytest.mark.parametrize("bad", [{"draws": 0}, {"steps": 0}, {"steps": 1.5}, {"alpha": [0.0, 1.0]}, {"r": 0.0}])
def test_arguments_outside_their_domain(bad):
    with pytest.raises(ArgumentError):
        synthetic_counts(**{"alpha": [1, 1], "r": 1, "counts": [1, 1], "steps": 9, "draws": 1, "bits": Bits()} | bad)
