"""Exact samplers by enumeration: all words that a source can hold, and the probability of each answer as a fraction.

A word has few bits here, so that every limit of a primitive lies inside what is enumerated. What is made of primitives
is enumerated by their answers, whose probabilities are those of the primitives. The words of the real size are sampled
on both sides of each limit.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.sampling import bits as bits_module
from pymc_dirdp.sampling import compiled_urn
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.compiled_urn import _add_up, _before_a_bar, _below, _category, _share_out, _under, _urns, _wait
from tests.oracles import Tape, agrees, dirichlet_multinomial, distribution


class Bytes(Tape):
    """The same as an array of words, each of which is read once, in order. The second time it would not be random."""

    def __init__(self, choices):
        super().__init__(choices)
        # As a source of bytes, it has no end.
        self.read, self.size = 0, 2**40

    def after(self, place):
        """The next place."""
        assert place == self.read
        self.read += 1
        return self.read

    def __getitem__(self, place):
        self.after(place)
        return self.uniform(2**compiled_urn._WIDTH)


class Words(Tape):
    """Words in the place of random ones, from which `uniform` makes numbers by itself."""

    uniform = Bits.uniform

    def _word(self):
        return Tape.uniform(self, 2**bits_module._LENGTH)


def answer_of(function, tape, *numbers):
    """The answer of a function of bytes, which says where the first byte is that it has not read."""
    value, end = function(tape, 0, *numbers)
    assert end == tape.read
    return value


@pytest.fixture
def width(request, monkeypatch):
    """Words of a few bits."""
    monkeypatch.setattr(compiled_urn, "_WIDTH", request.param)
    monkeypatch.setattr(bits_module, "_LENGTH", request.param)
    return request.param


@pytest.fixture
def primitives(monkeypatch):
    """Coins and numbers below a limit are branches of the tape; the tests of these say that they may be."""

    def under(tape, at, part, whole):
        return tape.coin(Fraction(part, whole)), tape.after(at)

    def below(tape, at, limit):
        return tape.uniform(limit), tape.after(at)

    monkeypatch.setattr(compiled_urn, "_under", under)
    monkeypatch.setattr(compiled_urn, "_below", below)


widths = pytest.mark.parametrize("width", [1, 2, 3], indirect=True)


@widths
def test_a_number_below_a_limit(width):
    """Limits on both sides of every power of the word: where the bytes read ahead were three, this failed above it."""
    powers = [2 ** (width * i) for i in range(1, 6)]
    for limit in sorted({1, 2, 5, *(p + e for p in powers if p <= 64 for e in (-1, 0, 1))} - {0}):
        exact = dict.fromkeys(range(limit), Fraction(1, limit))
        assert agrees(lambda tape, limit=limit: answer_of(_below, tape, limit), exact, Bytes)
        # One round of words: what it accepts has equal probabilities, and all else starts again.
        round_of_words = Fraction(2 ** (limit - 1).bit_length() - limit, 2 ** (limit - 1).bit_length())
        found, _ = distribution(lambda tape, limit=limit: tape.uniform(limit), Words, round_of_words)
        assert set(found) == set(range(limit))
        assert len(set(found.values())) == 1
        if limit > 1:
            wrong = exact | {0: Fraction(3, 2 * limit)}
            assert not agrees(
                lambda tape, limit=limit: answer_of(_below, tape, limit), wrong, Bytes, left=Fraction(1, 8 * limit)
            )


@widths
def test_a_coin_with_the_probability_of_a_ratio(width):
    for whole in (1, 3, 8, 9, 65):
        for part in {0, 1, whole // 2, whole - 1, whole}:
            p = Fraction(part, whole)
            exact = {answer: q for answer, q in ((True, p), (False, 1 - p)) if q}
            assert agrees(lambda tape, part=part, whole=whole: answer_of(_under, tape, part, whole), exact, Bytes)


def waiting(atoms, cells, most):
    free = [Fraction(1)]
    for s in range(most):
        free.append(free[-1] * Fraction(atoms + s, atoms + cells + s))
    return {s: free[s] - free[s + 1] for s in range(most)} | {most: free[most]}


@pytest.mark.usefixtures("primitives")
@pytest.mark.parametrize(("atoms", "cells", "most"), [(1, 1, 3), (3, 1, 5), (9, 2, 6)])
def test_steps_to_a_new_record(atoms, cells, most):
    """One by one (few atoms) and in windows (more atoms than the square of the cells)."""
    exact, left = waiting(atoms, cells, most), Fraction(1, 30)
    assert agrees(lambda tape: answer_of(_wait, tape, atoms, cells, most), exact, Bytes, left)
    wrong = waiting(atoms + 1, cells, most)
    assert not agrees(lambda tape: answer_of(_wait, tape, atoms, cells, most), wrong, Bytes, left)


@pytest.mark.usefixtures("primitives")
@pytest.mark.parametrize(("stars", "bars"), [(1, 1), (4, 2), (5, 2), (3, 3)])
def test_stars_before_the_first_of_some_bars(stars, bars):
    """At `bars**2` stars the way changes; the number is Beta-binomial."""
    ways = math.comb(stars + bars, bars)
    exact = {k: Fraction(math.comb(stars - k + bars - 1, bars - 1), ways) for k in range(stars + 1)}
    assert agrees(lambda tape: answer_of(_before_a_bar, tape, stars, bars), exact, Bytes)


@pytest.mark.usefixtures("primitives")
def test_stars_between_atoms():
    def run(tape):
        atoms = np.array([2, 0, 1])
        assert _share_out(tape, 0, 3, atoms, np.empty(2, dtype=np.int64)) == tape.read
        return tuple(atoms.tolist())

    # Three stars among three atoms: ten ways, of which k + 1 give k stars to the first two atoms.
    assert agrees(run, {(k, 0, 3 - k): Fraction(k + 1, 10) for k in range(4)}, Bytes)


@widths
def test_a_category_by_its_weight(width):
    """Fractions of one and two digits, of which none may cover the last place."""
    base = 2**width
    for fractions in ([[1], [base - 1], [1]], [[0, 1], [1, 0], [0, base - 1]], [[0, 1], [0, 0], [0, 1]]):
        fractions = np.array(fractions, dtype=np.uint8)
        size, d = fractions.shape[1], len(fractions)
        sums = np.zeros((d, size + 1), dtype=np.int64)
        first = _add_up(fractions, np.arange(d), sums)
        whole = [sum(int(digit) * base ** (size - 1 - i) for i, digit in enumerate(row)) for row in fractions]
        # A number below the first digit of the last sum and one, with all digits behind it.
        places = (int(sums[-1, first]) + 1) * base ** (size - first)
        exact = {k: Fraction(w, places) for k, w in enumerate(whole) if w}
        exact |= {-1: 1 - sum(exact.values())} if sum(whole) < places else {}
        assert agrees(lambda tape, sums=sums, first=first: answer_of(_category, tape, sums, first), exact, Bytes)


@pytest.mark.usefixtures("primitives")
@pytest.mark.parametrize("width", [1, 2], indirect=True)
def test_the_urn(width):
    """Whole urns: fractions alone, atoms alone, both, and an empty place. The walk is in `test_urn.py`."""
    base = 2**width
    for weights, steps in (([1, 1], 2), ([base, 2 * base], 3), ([base + 1, 1], 2), ([1, 0, base], 2)):

        def run(tape, weights=weights, steps=steps):
            counts = np.zeros((1, len(weights)), dtype=np.int64)
            whole = np.array([w // base for w in weights], dtype=np.int64)
            fractions = np.array([[w % base] for w in weights], dtype=np.uint8)
            done, used = _urns(tape, np.arange(len(weights))[None], 0, whole, fractions, 1, steps, counts, 0)
            assert (done, used) == (1, tape.read)
            return tuple(counts[0].tolist())

        parameters = [Fraction(w, base) for w in weights]
        assert agrees(run, dirichlet_multinomial(parameters, steps), Bytes, Fraction(1, 10))
        parameters[0] += 1
        assert not agrees(run, dirichlet_multinomial(parameters, steps), Bytes, Fraction(1, 10))


def test_an_urn_of_many_steps_has_every_last_bit():
    """Counts modulo 4 were .12, .88, 0 and 0 for an empty table, and .065, .61, .32 and 0 for its neighbour."""
    mechanism = DirichletMechanism([1, 1], 1.0, adjacency="add-remove")
    for seed, counts in enumerate(([0, 0], [1, 0])):
        y = mechanism.sample(counts, released_draws=60, steps=2**26, random_seed=seed)
        first = np.rint(((2 * 2**26 + 2) * np.asarray(y)[:, 0] - 1) / 2).astype(np.int64)
        assert chisquare(np.bincount(first % 4, minlength=4)).pvalue > 1e-6
