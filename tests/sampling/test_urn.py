"""The urn that walks: its exact distribution by enumeration, of many steps at once and one by one, and odd weights.

`test_all_words.py` enumerates the walk with numbers of any size, and the urn that jumps.
"""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import betabinom, chisquare

from pymc_dirdp.sampling import exact as module
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.exact import synthetic_counts, urn
from tests.oracles import Tape, dirichlet_multinomial, distribution

# All steps at once; in blocks of one and of two; with points of three bits, of which the others are drawn where they
# matter; and one by one, in Python.
WAYS = [{}, {"_AT_ONCE": 1}, {"_AT_ONCE": 2}, {"_LEADING": 3}, {"_LEADING": 0}]


@pytest.fixture(params=WAYS, ids=str)
def way(request, monkeypatch):
    for name, value in request.param.items():
        monkeypatch.setattr(module, name, value)


class AgainError(Exception):
    """A place that no weight covers was drawn."""


@pytest.fixture
def nothing_again(monkeypatch):
    """Such a place ends the draw."""
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


def product_of_rows(rows, digits, steps, draws=1):
    """The probability of each table of independent urns."""
    tables = {(): Fraction(1)}
    for row in rows * draws:
        one = dirichlet_multinomial([Fraction(w, 2**digits) for w in row], steps)
        tables = {(*before, *table): p * q for before, p in tables.items() for table, q in one.items()}
    return tables


@pytest.mark.usefixtures("way", "nothing_again")
@pytest.mark.parametrize(
    ("rows", "digits", "steps", "draws"),
    [
        ([(5, 1)], 1, 3, 1),
        # A copy of a copy of a copy, and a place that no weight covers.
        ([(1, 1)], 0, 5, 1),
        ([(1, 1)], 2, 3, 1),
        ([(3, 4, 2, 1)], 3, 2, 1),
        ([(3, 0, 2)], 0, 1, 1),
        # Side by side: rows with other weights, with other numbers of cells and of bits, and draws of one.
        ([(1, 2), (3, 1)], 0, 2, 1),
        ([(1, 1), (1, 2)], 1, 2, 1),
        ([(1, 1)], 0, 2, 2),
    ],
)
def test_distribution_by_enumeration(rows, digits, steps, draws):
    """Whether a place is drawn again depends on the number of earlier records, and not on which they are.

    So what is left out has the same share everywhere, and the distribution is exactly that of what is left.
    """

    def run(tape):
        try:
            return tuple(urn(rows, digits, steps=steps, draws=draws, bits=tape).ravel().tolist())
        except AgainError:
            return "again"

    found, left = distribution(run, left=Fraction(0))
    assert left == 0
    accepted = 1 - found.pop("again", Fraction(0))
    assert {table: p / accepted for table, p in found.items()} == product_of_rows(rows, digits, steps, draws)


def test_many_rows_have_the_stated_distribution_and_share_their_calls(monkeypatch):
    """Chi-square against the Beta-binomial distributions of three kinds of rows among 6,000.

    That of another kind is rejected.

    One kind has weights that 64 bits do not hold. The rows take few calls together, and no call each.
    """
    calls, block = [], module._block
    monkeypatch.setattr(module, "_block", lambda *given: calls.append(1) or block(*given))
    kinds, digits, steps, each = [(1.5, 2.0), (3.0, 0.5), (0.25, 4.0)], 70, 8, 2_000
    whole = [[int(u * 2**digits) for u in kind] for kind in kinds]
    counts = urn(whole * each, digits, steps=steps, draws=1, bits=Bits(5))[0]
    assert len(calls) < 100
    assert np.all(counts.sum(axis=1) == steps)
    pmfs = [betabinom.pmf(np.arange(steps + 1), steps, *kind) for kind in kinds]
    for kind, pmf in enumerate(pmfs):
        seen = np.bincount(counts[kind::3, 0], minlength=steps + 1)
        assert chisquare(seen, each * pmf / pmf.sum()).pvalue > 1e-6
        assert chisquare(seen, each * pmfs[kind - 1] / pmfs[kind - 1].sum()).pvalue < 1e-6
    assert abs(np.corrcoef(counts[::3, 0], counts[1::3, 0])[0, 1]) < 5 / math.sqrt(each)


class Scripted(Tape):
    """Answers to `uniform` and `uniforms` that are written down."""

    def uniform(self, n):
        return self._choices.pop(0)


def test_a_place_that_no_weight_covers_is_drawn_again():
    """Also if the second place is that of an earlier record, or the third one is covered."""
    # The weights 1 and 1 lie on the first two quarters of one cell: at 2 and 3 nothing is. The second record is drawn
    # from two places, the earlier record and the cell.
    for later, category in [((0,), 1), ((1, 0), 0), ((1, 3, 0), 1), ((1, 2, 1, 1), 1), ((1, 3, 1, 0), 0)]:
        bits = Scripted([1, 1, 2, *later])
        counts = urn([[1, 1]], 2, steps=2, draws=1, bits=bits)
        assert counts.tolist() == [[[int(category == 0), 1 + int(category == 1)]]]
        assert not bits._choices


@pytest.mark.parametrize("d", [2, 1000, 50_000])
def test_every_category_can_be_reached(d):
    """The first and the last point of a category find it, also among many."""
    rng = np.random.default_rng(d)
    weights = rng.integers(1, 10**9, size=d).tolist()
    ends = list(itertools.accumulate(weights))
    for category in {0, 1, d // 2, d - 2, d - 1}:
        for point in (ends[category] - weights[category], ends[category] - 1):
            assert urn([weights], 0, steps=1, draws=1, bits=Scripted([point]))[0, 0, category] == 1


@pytest.mark.parametrize(
    ("weights", "digits", "steps", "draws"),
    [
        ([[3, 4, 5], [1, 1, 9]], 1, 700, 3),
        ([[1, 10**6, 3, 1]], 0, 50, 4000),
        ([[2**60, 2**61, 5]], 20, 300, 5),
        ([[2**63 - 1, 1], [1, 2**64 - 1]], 64, 300, 5),
        ([[1, 1]], 100, 300, 5),
        ([[2**70, 3, 2**66]], 66, 300, 5),
        ([[2**126 - 1, 2**126 - 10, 3]], 127, 300, 5),
        # Rows of which 64 bits do not hold the numbers are drawn one by one, and the others side by side.
        ([[2**130, 1], [1, 1], [1, 2**130], [2**60, 2**50]], 60, 50, 40),
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


def test_no_number_is_a_float_and_none_is_refused(monkeypatch):
    """Parameters that no product or sum of doubles could hold, and counts up to the largest that are known exactly."""
    most = np.array([2**53, 2**53])
    counts = synthetic_counts(np.array([1e300, 1e-300]), 1e-300, most, steps=50, draws=2, bits=Bits(1))
    assert counts.tolist() == [[50, 0]] * 2
    counts = synthetic_counts(np.array([5e-324, 5e-324]), 1.7e308, most, steps=1000, draws=1, bits=Bits(1))
    assert abs(counts[0, 0] - 500) < 5 * math.sqrt(250)
    # One category takes all; a first record that waited for its place among the cells would wait a billion times.
    none = np.zeros((200, 3), dtype=np.int64)
    seen = synthetic_counts(np.full((200, 3), 1e-12), 1.0, none, steps=20, draws=1, bits=Bits(1))
    assert np.all(seen.max(axis=-1) == 20)
    assert len(set(seen.argmax(axis=-1).ravel())) == 3
    # The weights are `r * counts + alpha` of the doubles, as fractions, and no neighbouring double.
    found, drawn = [], module._urn

    def noted(weights, which, digits, *given):
        found.extend(Fraction(weights[i], 2**digits) for i in which.ravel())
        return drawn(weights, which, digits, *given)

    monkeypatch.setattr(module, "_urn", noted)
    synthetic_counts(np.array([[0.1, 0.7]] * 2), 0.0878, np.array([[4, 6], [6, 6]]), steps=1, draws=1, bits=Bits(1))
    assert found == [Fraction(0.0878) * n + Fraction(a) for n, a in ((4, 0.1), (6, 0.7), (6, 0.1), (6, 0.7))]
