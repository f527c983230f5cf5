"""Searches for least values, against SciPy and against known minima."""

import math

import pytest
from scipy.optimize import minimize_scalar

from pymc_dirdp.numerics.minima import minimum_search
from pymc_dirdp.numerics.roots import found_together

FUNCTIONS = [
    (lambda x: (x - 1) ** 2, -1.0, 4.0, 1.0),
    (lambda x: abs(x - 0.3), -1.0, 4.0, 0.3),
    (lambda x: x * math.log(x), 0.01, 2.0, 1 / math.e),
    (lambda x: -x, 0.0, 1.0, 1.0),
    (lambda x: math.inf if x > 2 else (x - 1.5) ** 4, -5.0, 9.0, 1.5),
]


def found(f, low, high, close):
    asked = []

    def values(points):
        asked.extend(points.values())
        return [f(x) for x in points.values()]

    ((x, value),) = found_together([minimum_search(low, high, close)], values)
    return x, value, asked


@pytest.mark.parametrize(("f", "low", "high", "truth"), FUNCTIONS)
def test_the_least_value_of_known_functions(f, low, high, truth):
    x, value, asked = found(f, low, high, 1e-6)
    # A quartic is flat around its minimum.
    assert x == pytest.approx(truth, abs=1e-5 if f(truth + 1e-3) > 1e-10 else 1e-3)
    assert value == f(x) == min(map(f, asked))
    assert all(low < at < high for at in asked)


@pytest.mark.parametrize(("f", "low", "high", "truth"), FUNCTIONS[:4])
def test_it_asks_for_about_as_many_values_as_scipy(f, low, high, truth):
    ours = found(f, low, high, 1e-7)
    theirs = minimize_scalar(f, bounds=(low, high), method="bounded", options={"xatol": 1e-7})
    assert ours[0] == pytest.approx(theirs.x, abs=3e-7)
    assert abs(len(ours[2]) - theirs.nfev) <= 2


def test_searches_side_by_side_find_what_each_finds_alone():
    ways = [(f, low, high) for f, low, high, _ in FUNCTIONS]

    def values(points):
        return [ways[i][0](x) for i, x in points.items()]

    together = found_together([minimum_search(low, high, 1e-7) for _, low, high in ways], values)
    assert together == [found(*way, 1e-7)[:2] for way in ways]
