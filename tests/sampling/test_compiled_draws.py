"""Compiled noise by enumeration: from all words it makes what Python makes, whose probabilities are exact.

`test_discrete_noise.py` holds the draws in Python against their formulas, by all their choices.
"""

from fractions import Fraction

import pytest

from pymc_dirdp.sampling import discrete_noise
from pymc_dirdp.sampling.bits import Bits, compiled, exponential_coin
from pymc_dirdp.sampling.discrete_noise import _NO_WORDS, _coin, _gaussian, _laplace, _uniform, gaussian, laplace


class Tape(Bits):
    """Words of 64 bits of which the leading ones are written when somebody asks for them; none but these are read."""

    def __init__(self, choices):
        super().__init__(0)
        self.choices, self.size, self.branches = choices, len(choices), 0

    def __getitem__(self, place):
        return Leading(self, place)

    def _word(self):
        self._spent += 1
        return Leading(self, self._spent - 1)


class Leading:
    """A word, of which any number of leading bits can be asked for once."""

    def __init__(self, tape, place):
        self.tape, self.place = tape, place

    def __ror__(self, nothing):
        assert nothing == 0
        return self

    def __rshift__(self, behind):
        if self.place == self.tape.size:
            self.tape.branches = 2 ** (64 - int(behind))
            raise EOFError
        return self.tape.choices[self.place]


def in_python(draw, choices):
    """The answer from these words, how many it took, and how many words there are for the next place."""
    tape = Tape(choices)
    try:
        return draw(tape.uniform), tape._spent, 0
    except EOFError:
        return None, len(choices), tape.branches


def in_arrays(draw, choices, none):
    """The same of a function of an array of words, which says that there are too few."""
    answer, at = draw(Tape(choices), 0)
    return (None, len(choices)) if answer == none else (answer, at)


def differences(array, python, none=_NO_WORDS, weight=1 / 3000):
    """How many words of this weight or more have one answer in arrays and another in Python; and how many have any."""
    paths, ended, differ = [((), 1.0)], 0, 0
    while paths:
        choices, share = paths.pop()
        *expected, branches = in_python(python, choices)
        differ += in_arrays(array, choices, none) != tuple(expected)
        ended += not branches
        if branches and share >= weight:
            paths += [((*choices, choice), share / branches) for choice in range(branches)]
    return differ, ended


COINS = [(0, 1, 1, 1), (1, 1, 1, 1), (1, 2, 1, 1), (2, 3, 1, 1), (2, 3, 3, 5), (1, 2, 1, 3)]
SCALES = [Fraction(1), Fraction(3, 2), Fraction(2, 5), Fraction(4)]
VARIANCES = [Fraction(1, 5), Fraction(1), Fraction(5, 4), Fraction(9)]


@pytest.mark.parametrize("n", [*range(1, 10), 15, 16, 17, 31, 32, 33])
def test_a_number_below_a_limit(n):
    differ, ended = differences(lambda words, at: _uniform(words, at, n), lambda uniform: uniform(n), none=-1)
    assert not differ
    assert ended >= n


@pytest.mark.parametrize("numbers", COINS)
def test_a_coin_with_the_probability_of_an_exponential(numbers):
    def python(uniform):
        return int(exponential_coin(uniform, *numbers))

    differ, ended = differences(lambda words, at: _coin(words, at, *numbers), python, none=-1)
    assert not differ
    assert ended
    a, b, c, d = numbers
    differ, _ = differences(lambda words, at: _coin(words, at, b - a, b, c, d), python, none=-1)
    assert differ or 2 * a == b


@pytest.mark.parametrize("scale", SCALES)
def test_laplace_noise(scale):
    t, s = scale.numerator, scale.denominator
    differ, ended = differences(lambda words, at: _laplace(words, at, t, s), lambda uniform: laplace(uniform, t, s))
    assert not differ
    assert ended > 20
    differ, _ = differences(lambda words, at: _laplace(words, at, t + 1, s), lambda uniform: laplace(uniform, t, s))
    assert differ


@pytest.mark.parametrize("variance", VARIANCES)
def test_gaussian_noise(variance):
    n, d = variance.numerator, variance.denominator
    t = int(variance**0.5) + 1

    def python(uniform):
        return gaussian(uniform, n, d)

    differ, ended = differences(lambda words, at: _gaussian(words, at, t, n, d), python)
    assert not differ
    assert ended > 20
    differ, _ = differences(lambda words, at: _gaussian(words, at, t, n, d + 1), python)
    assert differ


def test_numbers_of_the_real_size():
    """Limits on both sides of each power of two that compiled code admits, of the same words as in Python."""
    code = compiled("UniTuple(int64, 2)(Array(uint64, 1, 'C', readonly=True), int64, int64)", _uniform)
    for power in range(1, 62):
        for n in {2**power - 1, 2**power, 2**power + 1} - {1}:
            bits = Bits(n)
            words, at = bits.ahead(400)[:400], 0
            for _ in range(20):
                value, at = code(words, at, n)
                assert value == bits.uniform(n)
            assert at == bits._spent
    assert discrete_noise._LIMIT > 2**61 + 1
