"""Hockey-stick divergences of floored intensities, against 30 digits and against SciPy's incomplete Gamma functions."""

import math

import mpmath as mp
import numpy as np
import pytest
from scipy.special import gammaincc, gammaln

from pymc_dirdp.privacy import floored_loss
from pymc_dirdp.privacy.floored_loss import Cells, joining, leaving, moving

# r, the shape that gains, the shape that loses, floor, epsilon, and the divergence with 30 digits.
KNOWN = [
    (0.65, 10.9, 20.65, 8.0, 1.0, 1.4875869589465668e-7),
    (0.5, 5.5, 13.5, 4.0, 1.0, 8.81572651340970405e-8),
    (2.5, 10.5, 18.0, 8.0, 3.0, 1.87896328944188043e-4),
    (0.3, 1.0, 3.1, 0.3, 1.0, 1.73416039527684153e-5),
]


def cells(a, floor, r):
    return Cells.of(np.array([float(a)]), np.array([float(floor)]), r)


def by_scipy(a, b, r, floor_a, floor_b, epsilon, n=400):
    """The same divergence as a difference of tails, with many panels and no grading."""
    log_z = lambda x, t: gammaln(x) + np.log(gammaincc(x, t))  # noqa: E731
    c = log_z(a, floor_a) - log_z(a + r, floor_a) + log_z(b + r, floor_b) - log_z(b, floor_b)
    s = (epsilon - c) / r
    low, high = math.log(floor_b), math.log(max(b, floor_b) + 60 + 30 * math.sqrt(max(b, floor_b)))
    kink = min(max(math.log(floor_a) - s, low), high)
    x, w = np.polynomial.legendre.leggauss(14)
    total = 0.0
    for start, end in ((low, kink), (kink, high)):
        edges = np.linspace(start, end, n + 1)
        half = np.diff(edges)[:, None] / 2
        v = edges[:-1, None] + half * (1 + x)
        g = np.maximum(np.exp(v + s), floor_a)
        first = np.exp(b * v - np.exp(v) - log_z(b, floor_b)) * gammaincc(a + r, g) / gammaincc(a + r, floor_a)
        second = np.exp((b + r) * v - np.exp(v) - log_z(b + r, floor_b)) * gammaincc(a, g) / gammaincc(a, floor_a)
        total += float(((first - math.exp(epsilon) * second) * w * half).sum())
    return total


@pytest.mark.parametrize(("r", "a", "b", "floor", "epsilon", "known"), KNOWN)
def test_the_divergence_of_a_move_against_30_digits(r, a, b, floor, epsilon, known):
    assert moving(cells(b, floor, r), cells(a, floor, r), epsilon)[0] == pytest.approx(known, rel=1e-12)
    assert by_scipy(a, b, r, floor, floor, epsilon) == pytest.approx(known, rel=1e-6)


def test_moves_between_cells_with_different_floors_against_scipy():
    rng = np.random.default_rng(3)
    seen = 0
    for _ in range(60):
        floor_a, floor_b = 10 ** rng.uniform(-2, 1.5, 2)
        a, b = 10 ** rng.uniform(-0.5, 1.7, 2)
        r, epsilon = 10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-1.5, 0.7)
        expected = by_scipy(a, b, r, floor_a, floor_b, epsilon)
        if expected > 1e-9:
            seen += 1
            value = moving(cells(b, floor_b, r), cells(a, floor_a, r), epsilon)[0]
            assert value == pytest.approx(expected, rel=2e-6, abs=1e-14)
    assert seen > 40


def exact_one_way(a, r, floor, epsilon, leaves):
    with mp.workdps(30):
        z = lambda x: mp.gammainc(mp.mpf(x), mp.mpf(floor))  # noqa: E731
        a, r = mp.mpf(a), mp.mpf(r)
        change = mp.log(z(a + r) / z(a))
        at = (change + (-epsilon if leaves else epsilon)) / r
        g = max(mp.exp(at), mp.mpf(floor))
        tails = [mp.gammainc(x, g) / z(x) for x in (a, a + r)]
        if leaves:
            return float((1 - tails[0]) - mp.exp(epsilon) * (1 - tails[1]))
        return float(tails[1] - mp.exp(epsilon) * tails[0])


@pytest.mark.parametrize("floor", [1e-3, 0.3, 8.0, 900.0])
@pytest.mark.parametrize("epsilon", [0.0, 0.05, 1.0, 4.0])
@pytest.mark.parametrize("r", [1e-3, 0.7, 10.0])
def test_joining_and_leaving_against_30_digits(floor, epsilon, r):
    for a in (0.05, 1.0, floor + 2, 3 * floor + 20):
        cell = cells(a, floor, r)
        joins, leaves = (exact_one_way(a, r, floor, epsilon, way) for way in (False, True))
        assert joining(cell, epsilon)[0] == pytest.approx(joins, rel=1e-10, abs=1e-27)
        assert leaving(cell, epsilon)[0] == pytest.approx(leaves, rel=1e-10, abs=1e-27)


def test_a_step_that_moves_little_keeps_its_digits():
    """The total variation of a small step is `r E|log G - mean| / 2`, which a difference of tails would lose."""
    for a, floor in ((3.0, 1.0), (20.0, 8.0), (0.5, 8.0)):
        tiny = joining(cells(a, floor, 1e-9), 0.0)[0] / 1e-9
        assert joining(cells(a, floor, 1e-5), 0.0)[0] / 1e-5 == pytest.approx(tiny, rel=1e-4)
        assert leaving(cells(a, floor, 1e-9), 0.0)[0] / 1e-9 == pytest.approx(tiny, rel=1e-6)


def test_many_pairs_at_once_are_the_single_ones():
    a, b = np.array([0.5, 10.9, 300.0]), np.array([20.65, 3.0, 0.7])
    floor_a, floor_b = np.array([8.0, 2.0, 0.1]), np.array([8.0, 8.0, 1.0])
    both = moving(Cells.of(b, floor_b, 0.65), Cells.of(a, floor_a, 0.65), 0.5)
    for i in range(3):
        single = moving(cells(b[i], floor_b[i], 0.65), cells(a[i], floor_a[i], 0.65), 0.5)
        assert both[i] == pytest.approx(single[0], rel=1e-13)


def test_more_panels_change_nothing(monkeypatch):
    """At random pairs of cells, most of them odd: shapes and floors over seven powers of ten, steps up to 20."""
    rng = np.random.default_rng(9)
    floors, shapes = 10 ** rng.uniform(-3, 4, (300, 2)), 10 ** rng.uniform(-3, 4, (300, 2))
    floors[::2, 1] = floors[::2, 0]
    r = 10 ** rng.uniform(-4, 1.3, 300)
    epsilons = 10 ** rng.uniform(-3, 1, 300) * np.maximum(1, r)

    def values():
        cells = [
            (Cells.of(b[:1], t[1:], s), Cells.of(b[1:], t[:1], s)) for b, t, s in zip(shapes, floors, r, strict=True)
        ]
        return np.array([moving(*pair, epsilon)[0] for pair, epsilon in zip(cells, epsilons, strict=True)])

    usual = values()
    panels = 40
    monkeypatch.setattr(floored_loss, "_GRADED", (np.arange(1, panels + 1) / panels) ** 1.5)
    monkeypatch.setattr(floored_loss, "_TAIL_PANELS", 20)
    bulk = floored_loss._BULK
    finer = np.interp(np.arange(4 * len(bulk) - 3) / 4, np.arange(len(bulk)), bulk)
    monkeypatch.setattr(floored_loss, "_BULK", finer)
    more = values()
    told = more > 1e-40
    assert told.sum() > 100
    np.testing.assert_allclose(usual[told], more[told], rtol=1e-10)
    assert np.all(usual[~told] < 2e-40)
