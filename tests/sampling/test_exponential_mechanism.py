"""The exponential mechanism: its distribution by the tree of its choices, draws with known power, and odd scores."""

from collections import Counter
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.stats import chi2

from pymc_dirdp.sampling import bits
from pymc_dirdp.sampling.bits import Bits, chosen

CASES = [
    ([0, 1, 3], Fraction(2)),
    ([5, 5], Fraction(1, 3)),
    ([-4, 0, -1, -1], Fraction(3, 2)),
    ([7], Fraction(1)),
    ([10**30, 10**30 - 1], Fraction(1)),
]


def distribution(scores, scale):
    with mpmath.workdps(40):
        weights = [
            mpmath.exp((score - max(scores)) * scale.denominator / mpmath.mpf(scale.numerator)) for score in scores
        ]
        return [weight / mpmath.fsum(weights) for weight in weights]


class RestartError(Exception):
    """A proposal was not kept, so the same choice begins again and its mass is divided like that of the others."""


class Followed:
    """A uniform number that follows every outcome, and the mass of every position that is chosen."""

    def __init__(self, scores, scale, monkeypatch, accept, least=Fraction(1, 2**12)):
        def or_again(uniform, a, b):
            if accept(uniform, a, b):
                return True
            raise RestartError

        self.mass, self.left = Counter(), Fraction(0)
        with monkeypatch.context() as patched:
            patched.setattr(bits, "_accepted", or_again)
            paths = [((), Fraction(1))]
            while paths:
                self.path, weight = paths.pop()
                if weight < least:
                    self.left += weight
                    continue
                self.at = 0
                try:
                    self.mass[chosen(scores, scale, self)] += weight
                except EOFError as asked:
                    (n,) = asked.args
                    paths += [((*self.path, i), weight / n) for i in range(n)]
                except RestartError:
                    pass

    def uniform(self, n):
        if n == 1:
            return 0
        if self.at == len(self.path):
            raise EOFError(n)
        self.at += 1
        return self.path[self.at - 1]


def agrees(scores, scale, monkeypatch, accept):
    found, exact = Followed(scores, scale, monkeypatch, accept), distribution(scores, scale)
    ended = sum(found.mass.values())
    assert found.left < ended / 10
    return all(
        found.mass[position] / (ended + found.left) <= probability
        and probability <= (found.mass[position] + found.left) / (ended + found.left)
        for position, probability in enumerate(Fraction(str(p)) for p in exact)
    )


@pytest.mark.parametrize(("scores", "scale"), CASES)
def test_every_outcome_has_its_probability(scores, scale, monkeypatch):
    assert agrees(scores, scale, monkeypatch, bits._accepted)


@pytest.mark.parametrize("mutant", ["another sign", "another scale"])
def test_another_distribution_is_found(mutant, monkeypatch):
    accept = bits._accepted
    wrong = {
        "another sign": lambda uniform, a, b: not accept(uniform, a, b) if a else True,
        "another scale": lambda uniform, a, b: accept(uniform, 2 * a, b),
    }
    assert not agrees([0, 1, 3], Fraction(2), monkeypatch, wrong[mutant])


def test_draws_have_the_distribution_and_another_scale_is_rejected():
    scores, draws = [0, 40, 55, 61, 17], 40_000
    bits = Bits(3)
    counts = np.bincount([chosen(scores, Fraction(20), bits) for _ in range(draws)], minlength=len(scores))

    def statistic(scale):
        expected = draws * np.array([float(p) for p in distribution(scores, scale)])
        return float(((counts - expected) ** 2 / expected).sum())

    far = chi2.isf(1e-6, len(scores) - 1)
    assert statistic(Fraction(20)) < far < statistic(Fraction(22))


def test_far_scores_are_never_chosen_and_cost_no_time():
    bits = Bits()
    assert all(chosen([0, -(10**400), 10**9], Fraction(1, 10**6), bits) == 2 for _ in range(100))
    assert {chosen([3] * 4, Fraction(10**40), bits) for _ in range(100)} == {0, 1, 2, 3}


def test_bits_are_those_of_the_system_and_a_seed_repeats_them():
    assert [chosen([0, 1, 2], Fraction(1), Bits(9)) for _ in range(3)] == [chosen([0, 1, 2], Fraction(1), Bits(9))] * 3
    assert len({tuple(chosen([0, 0], Fraction(1), bits) for _ in range(64)) for bits in (Bits(), Bits())}) == 2
