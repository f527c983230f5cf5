"""Numbers of the papers' figures by a third way: exact fractions, and 40 digits of mpmath. SciPy is not asked."""

import itertools
import json
from fractions import Fraction
from pathlib import Path

import mpmath as mp
import pytest

decimal = mp.mpf
RECORDS = Path(__file__).resolve().parents[1] / "docs" / "figures"


def crossing(delta_at, delta, low, high):
    return mp.findroot(lambda epsilon: mp.log(delta_at(epsilon)) - mp.log(delta), (low, high), solver="anderson")


def upper(first, second, at):
    """The probability of a Beta variable above a point."""
    return mp.betainc(first, second, at, 1, regularized=True)


def delta_of_shares(epsilon, first, second):
    at = 1 / (1 + mp.exp(-epsilon / (first - second)))
    return upper(first, second, at) - mp.exp(epsilon) * upper(second, first, at)


def exact_of_figure_8(order, r):
    prior = 1 + 4 * (order - 1) * r
    return crossing(lambda epsilon: delta_of_shares(epsilon, prior + r, prior), decimal("1e-5"), 0.2, 0.8)


def one_more_record(prior, delta):
    """Gamma(prior + 1) against Gamma(prior), whose ratio is u / prior, in the worse direction."""

    def delta_at(epsilon):
        return max(direction(epsilon) for direction in (added, removed))

    def added(epsilon):
        at = prior * mp.exp(epsilon)
        return mp.gammainc(prior + 1, at, regularized=True) - mp.exp(epsilon) * mp.gammainc(prior, at, regularized=True)

    def removed(epsilon):
        at = prior * mp.exp(-epsilon)
        below = [mp.gammainc(shape, 0, at, regularized=True) for shape in (prior, prior + 1)]
        return below[0] - mp.exp(epsilon) * below[1]

    return crossing(delta_at, delta, 1, 6)


def affinity(a, b):
    """Of two Beta distributions whose parameters are integers: the half-integers have factors of pi that cancel."""
    middle = [mp.mpf(x + y) / 2 for x, y in zip(a, b, strict=True)]
    return mp.beta(*middle) / mp.sqrt(mp.beta(*a) * mp.beta(*b))


def hellinger(a, b):
    return mp.sqrt(max(1 - affinity(a, b), mp.mpf(0)))


def local_sensitivity(count, n):
    neighbours = [other for other in (count - 1, count + 1) if 0 <= other <= n]
    return max(hellinger((count + 1, n - count + 1), (other + 1, n - other + 1)) for other in neighbours)


def smooth_sensitivity(count, n):
    return 1 / min(1 / local_sensitivity(other, n) + abs(other - count) for other in range(n + 1))


def definition_4(n):
    """The expected distance, and the probability of the true posterior."""
    at = n // 2
    distances = [hellinger((at + 1, n - at + 1), (k + 1, n - k + 1)) for k in range(n + 1)]
    weights = [mp.exp(-distance / (4 * smooth_sensitivity(at, n))) for distance in distances]
    total = mp.fsum(weights)
    return mp.fsum(w * d for w, d in zip(weights, distances, strict=True)) / total, weights[at] / total


def loss_of_definition_4(n):
    """The largest loss of neighbours, over all outputs."""
    logs = []
    for count in range(n + 1):
        exponent = -1 / (4 * smooth_sensitivity(count, n))
        of_count = [exponent * hellinger((count + 1, n - count + 1), (k + 1, n - k + 1)) for k in range(n + 1)]
        total = mp.log(mp.fsum(map(mp.exp, of_count)))
        logs.append([one - total for one in of_count])
    return max(abs(a - b) for one, other in itertools.pairwise(logs) for a, b in zip(one, other, strict=True))


def below(entries, k, eta, gamma):
    """Singles less pairs, by quadrature in the logarithm."""
    one = mp.betainc(k * eta, k * (1 - eta), 0, gamma, regularized=True)

    def both(t):
        x = gamma * mp.exp(-t)
        density = x ** (k * eta) * (1 - x) ** (k * (1 - eta) - 1) / mp.beta(k * eta, k * (1 - eta))
        return density * mp.betainc(k * eta, k * (1 - 2 * eta), 0, gamma / (1 - x), regularized=True)

    return entries * one - entries * (entries - 1) / 2 * mp.quad(both, [0, 0.5, 2, 8, 30])


def least_deviation():
    """Gaussian noise for a step of 0.1 at (1, 0.01)."""

    def delta_at(ratio):
        return mp.ncdf(ratio / 2 - 1 / ratio) - mp.e * mp.ncdf(-ratio / 2 - 1 / ratio)

    return decimal("0.1") / mp.findroot(lambda ratio: delta_at(ratio) - decimal("0.01"), (0.4, 0.7), solver="anderson")


VALUES = {
    ("p2_figure_1", "bound, prior 1.5"): lambda: mp.pi**2 / 4,
    ("p2_figure_1", "exact, prior 1.5"): lambda: mp.log(3) / 2,
    ("p2_figure_1", "exact epsilon, prior 5, delta 1e-6"): lambda: one_more_record(mp.mpf(5), decimal("1e-6")),
    ("p1_figure_3", "bound, order 2, r 0.1"): lambda: mp.psi(1, decimal("1.3")) / 50,
    ("p1_figure_8", "exact, order 2, r 0.1"): lambda: exact_of_figure_8(2, decimal("0.1")),
    ("p1_figure_8", "exact, order 10, r 0.1"): lambda: exact_of_figure_8(10, decimal("0.1")),
    ("p1_figure_2", "delta, 5 entries, gamma 0.001"): lambda: below(
        5, decimal("171.87"), decimal("0.028"), decimal("0.001")
    ),
    ("p3_table_1_figure_4", "sum of the printed averages"): lambda: sum(
        Fraction(one) for one in ("0.314923", "0.315923", "0.320923")
    ),
    ("p3_figure_3", "k 24, true delta"): lambda: delta_of_shares(decimal("8.53"), mp.mpf(6), decimal("1.2")),
    ("p3_figure_1", "deviation, exact"): least_deviation,
    ("p4_figure_1", "local, 50 of 100"): lambda: local_sensitivity(50, 100),
    ("p4_figure_1", "global, 50 of 100"): lambda: max(local_sensitivity(count, 100) for count in range(101)),
    ("p4_figure_5", "10 records, printed"): lambda: definition_4(10)[0],
    ("p4_tables_1_2", "no step, 10 records, printed"): lambda: definition_4(10)[1],
    ("p4_tables_1_2", "no step, 10 records, Laplace noise"): lambda: -mp.expm1(decimal("-0.5")) / 2,
    ("p4_figure_7", "prior 1, 10 records, printed"): lambda: loss_of_definition_4(10),
}


@pytest.mark.parametrize("where", VALUES)
def test_a_number_has_all_its_digits(where):
    name, what = where
    numbers = json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))["numbers"]
    with mp.workdps(40):
        value = VALUES[where]()
    # A record has six digits, rounded.
    assert float(f"{float(value):.6g}") == pytest.approx(numbers[what], rel=1e-5)
    assert float(value) != pytest.approx(1.001 * numbers[what], rel=1e-5)
