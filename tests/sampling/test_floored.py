"""Exact draws of intensities above a floor: against mpmath bit by bit, and the attacks on how they are found."""

import importlib
import math
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import exp, gammainc, inf, log, loggamma, mp, mpf, workdps
from scipy.special import gammainc as scipy_lower
from scipy.special import gammaincc
from scipy.stats import chi2_contingency, chisquare, kstest

from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.sampling import floored
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.floored import cells_of, exact_floored, intensities
from tests.sampling.test_bits import Given


def upper(a, g):
    """`Gamma(a, g)`; where the series of mpmath is too long, by the recurrence for `Gamma(a) * Q(a, g)`."""
    if a < 1e6:
        return gammainc(a, g)
    term = total = exp((a - 1) * log(g) - g)
    while term > total * mpf(10) ** -mp.dps:
        a -= 1
        term *= a / g
        total += term
    return total


def share(a, floor, ceiling, j):
    """`P[G >= g_j]` to the digits of mpmath, for a fraction `a`."""
    a, g = mpf(a.numerator) / a.denominator, mpf(floor) * mpf(2) ** (mpf(j) / 2**36)
    if a >= 1e6 and ceiling == math.inf:
        # The mass below the floor is e**(-a) or less.
        assert floor <= 0.01 * a
        return upper(a, g) / exp(loggamma(a))
    if ceiling == math.inf:
        return gammainc(a, g) / gammainc(a, floor)
    ends = [gammainc(a, 0, x) if ceiling < a else -gammainc(a, x) for x in (mpf(ceiling), g, mpf(floor))]
    return (ends[0] - ends[1]) / (ends[0] - ends[2])


def exact_shape(alpha, r, count):
    return Fraction(alpha) + Fraction(r) * count


def words_of(u, count):
    """The leading words of a number between 0 and 1."""
    whole = int(u * mpf(2) ** (64 * count))
    return [whole >> 64 * k & 2**64 - 1 for k in reversed(range(count))]


def drawn(settings, words, **options):
    alpha, r, floor, count, ceiling = settings
    bits = Given(words)
    (cell,) = exact_floored([alpha], r, floor, [count], ceiling=ceiling, draws=1, bits=bits).ravel()
    return int(cell), bits._spent


SETTINGS = [
    # alpha, r, floor, count, ceiling
    (0.02, 0.7, 8.0, 0, math.inf),
    (0.02, 0.7, 8.0, 1, math.inf),
    (0.02, 0.7, 8.0, 23, math.inf),
    (1.0, 1.0, 1.0, 0, math.inf),
    (1e-3, 0.2, 1e-3, 0, math.inf),
    (1e-3, 0.2, 1e-3, 4, math.inf),
    (0.3, 0.9, 0.1, 2000, math.inf),
    (0.3, 0.9, 16.0, 30_000, math.inf),
    (0.5, 1.1, 1e4, 0, math.inf),
    (0.5, 1.1, 1e4, 8000, math.inf),
    (0.5, 1.1, 1e4, 9900, math.inf),
    (0.02, 1.0, 8.0, 10**7, math.inf),
    (0.3, 0.7, 2.0, 0, 40.0),
    (0.3, 0.7, 2.0, 30, 40.0),
    (0.3, 0.7, 2.0, 5000, 40.0),
    (0.3, 0.7, 2.0, 10, 2.001),
    (0.3, 0.7, 900.0, 3, 905.0),
    (0.3, 0.7, 2.0, 40_000, 20_000.0),
    (0.3, 0.7, 2.0, 29_000, 20_000.0),
]


@pytest.mark.thorough
@pytest.mark.parametrize("settings", SETTINGS)
def test_the_cell_is_where_mpmath_puts_it(settings):
    """`P[G >= g_{j + 1}] <= U < P[G >= g_j]` at 60 digits, in the body and 2**-42 from both ends."""
    alpha, r, floor, count, ceiling = settings
    a = exact_shape(alpha, r, count)
    rng = np.random.default_rng(5)
    words = [*rng.integers(1, 2**64, 12, dtype=np.uint64).tolist(), 3 << 20, 2**64 - (3 << 20)]
    with workdps(60):
        # The series of the oracle is long for large shapes.
        for word in words if a < 1e6 else words[-3:]:
            # Where a cell has less mass than one word can tell apart, a second is taken.
            j, spent = drawn(settings, [word, 2**63, 0])
            u = word if spent == 1 else word << 64 | 2**63
            assert spent == 1 or (spent == 2 and word in words[-2:])
            assert j >= 0
            assert share(a, floor, ceiling, j + 1) <= mpf(u) / 2 ** (64 * spent)
            assert j == 0 or mpf(u + 1) / 2 ** (64 * spent) <= share(a, floor, ceiling, j)


@pytest.mark.parametrize("settings", SETTINGS)
def test_an_undecided_comparison_takes_more_bits(settings):
    """U agrees with `P[G >= g_j]` in one, two or three words, and the next word puts it on one side or the other."""
    alpha, r, floor, count, ceiling = settings
    a = exact_shape(alpha, r, count)
    j, _ = drawn(settings, [2**63 + 12345])
    with workdps(100):
        border = words_of(share(a, floor, ceiling, j), 4)
    for known in (1, 2, 3):
        for step, cell in ((-1, j), (1, j - 1)):
            last = border[known] + step * 2**20
            if 0 <= last < 2**64:
                assert drawn(settings, [*border[:known], last]) == (cell, known + 1)
    with pytest.raises(EOFError):
        drawn(settings, border[:3])


def bad_guesses(kind):
    real, cell = floored.guesses, math.log(2) / 2**36

    def guesses(u, a, floor, ceiling):
        good = real(u, a, floor, ceiling)
        return {
            "one below": good - cell,
            "one above": good + cell,
            "a thousand above": good + 1000 * cell,
            "far below": good / 2,
            "far above": 2 * good + 11,
            "the floor": np.zeros_like(good),
            "the end": np.full_like(good, 1e9),
            "below the floor": np.full_like(good, -5.0),
        }[kind]

    return guesses


TABLE = [[0.02, 0.3, 2.0], [1e-3, 5.0, 40.0]]
COUNTS = [[0, 3, 100], [10**7, 0, 2500]]


@pytest.mark.parametrize("ceiling", [math.inf, 60.0])
@pytest.mark.parametrize(
    "kind",
    [
        "one below",
        "one above",
        "a thousand above",
        "far below",
        "far above",
        "the floor",
        "the end",
        "below the floor",
    ],
)
def test_a_bad_guess_changes_no_draw(kind, ceiling, monkeypatch):
    def draw():
        return exact_floored(TABLE, 0.7, 8.0, COUNTS, ceiling=ceiling, draws=5, bits=Bits(4))

    good = draw()
    monkeypatch.setattr(floored, "guesses", bad_guesses(kind))
    assert np.array_equal(draw(), good)


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_guess_is_good_enough_to_be_quick(settings, monkeypatch):
    """Two tails for a draw where doubles find the cell."""
    asked, real = [], floored._Distribution._share
    monkeypatch.setattr(floored._Distribution, "_share", lambda self, j: asked.append(j) or real(self, j))
    alpha, r, floor, count, ceiling = settings
    exact_floored([alpha], r, floor, [count], ceiling=ceiling, draws=50, bits=Bits(3))
    near_the_ceiling = exact_shape(alpha, r, count) > 1.2 * ceiling
    assert len(asked) <= 50 * (40 if near_the_ceiling else 3)


@pytest.mark.parametrize(
    ("alpha", "r", "count", "rounded"),
    [
        # Each is what some sum or product in doubles makes of the shape.
        (2.0**-60, 0.75, 40, Fraction(30)),
        (0.02, 0.7, 1001, Fraction(0.02 + 0.7 * 1001)),
        (0.1, 0.3, 2**53 - 1, Fraction(0.1 + 0.3 * (2.0**53 - 1))),
    ],
)
def test_the_shape_is_not_rounded(alpha, r, count, rounded):
    """U lies between the tail of the true shape and that of the rounded one, so each of them has its own cell."""
    floor, true = 8.0, exact_shape(alpha, r, count)
    assert true != rounded
    from flint import arb, ctx

    before, ctx.prec = ctx.prec, 500
    try:
        middle = round(2**36 * math.log2(float(true) / floor))
        g = arb(floor) * arb(2) ** arb((middle, -36))
        tails = [g.gamma_upper(arb(a.numerator) / a.denominator) for a in (true, rounded)]
        wholes = [arb(floor).gamma_upper(arb(a.numerator) / a.denominator) for a in (true, rounded)]
        one, other = (tail / whole for tail, whole in zip(tails, wholes, strict=True))
        whole = int(((one + other) / 2 * arb(2) ** 192).floor().unique_fmpz())
        expected = middle if (one + other) / 2 < one else middle - 1
    finally:
        ctx.prec = before
    words = [whole >> 64 * k & 2**64 - 1 for k in (2, 1, 0)]
    assert drawn((alpha, r, floor, count, math.inf), words)[0] == expected


def test_what_the_series_below_the_shape_leaves_out_is_in_its_interval():
    """Cut where its terms fall below 2**-30, at so many digits that rounding alone would not cover what is left out."""
    import flint

    before, flint.ctx.prec = flint.ctx.prec, 300
    try:
        distribution = floored._Distribution(flint, 28_000, 0, 2.0, 20_000.0)
        distribution._precision = 30
        coarse = distribution._lower_gamma(flint.arb(15_000))
        distribution._precision = 290
        fine = distribution._lower_gamma(flint.arb(15_000))
        assert coarse.contains(fine)
        assert coarse.rad() < coarse * 2.0**-29
        assert fine.rad() < fine * 2.0**-200
    finally:
        flint.ctx.prec = before


def truncated(g, a, floor, ceiling):
    """`P[G >= g]` by SciPy."""
    if ceiling < math.inf:
        ends = scipy_lower(a, floor), scipy_lower(a, ceiling)
        return (ends[1] - scipy_lower(a, g)) / (ends[1] - ends[0])
    return gammaincc(a, g) / gammaincc(a, floor)


@pytest.mark.parametrize(
    ("a", "floor", "ceiling", "wrong"),
    [
        (0.02, 8.0, math.inf, [(2.5, 8.0), (0.02, 8.4)]),
        (1e-3, 1e-3, math.inf, [(0.2, 1e-3), (1e-3, 2e-3)]),
        (16.5, 8.0, math.inf, [(17.5, 8.0), (16.5, 12.0)]),
        (300.0, 400.0, math.inf, [(330.0, 400.0), (300.0, 401.0)]),
        (5.0, 2.0, 6.0, [(6.0, 2.0), (5.0, 2.5)]),
    ],
)
def test_the_distribution(a, floor, ceiling, wrong):
    """Kolmogorov and Smirnov at 1e-6 against SciPy; a shape or a floor that is somewhat off is rejected."""
    cells = exact_floored([a] * 2000, 0.5, floor, [0] * 2000, ceiling=ceiling, draws=2, bits=Bits(11))
    g = intensities(cells, floor).ravel()
    assert np.all((g > floor) & (g < ceiling))
    assert kstest(truncated(g, a, floor, ceiling), "uniform").pvalue > 1e-6
    for other, other_floor in wrong:
        assert kstest(np.clip(truncated(g, other, other_floor, ceiling), 0, 1), "uniform").pvalue < 1e-6


def test_cells_of_a_table_and_draws_are_independent_and_in_order():
    counts = np.array([[0, 50], [2000, 3]])
    cells = exact_floored(np.full((2, 2), 0.3), 0.7, 8.0, counts, draws=400, bits=Bits(2))
    assert cells.shape == (400, 2, 2)
    for place in np.ndindex(2, 2):
        g = intensities(cells[:, *place], 8.0)
        assert kstest(truncated(g, 0.3 + 0.7 * counts[place], 8.0, math.inf), "uniform").pvalue > 1e-6
    ranks = np.argsort(np.argsort(cells.reshape(400, 4), axis=0), axis=0)
    correlations = np.corrcoef(ranks, rowvar=False)[np.triu_indices(4, 1)]
    assert np.all(np.abs(correlations) < 0.25)
    words = [2**63, 5 << 59, 2**62, 2**61]
    apart = [drawn((0.3, 0.7, 8.0, int(c), math.inf), [w])[0] for c, w in zip(counts.ravel(), words, strict=True)]
    together = exact_floored(np.full((2, 2), 0.3), 0.7, 8.0, counts, draws=1, bits=Given(words))
    assert together.ravel().tolist() == apart


def test_a_seed_fixes_the_draws():
    def draw(seed):
        return exact_floored(TABLE, 0.7, 8.0, COUNTS, draws=3, bits=Bits(seed))

    assert np.array_equal(draw(7), draw(7))
    assert not np.any(draw(7) == draw(8))
    assert not np.any(draw(None) == draw(None))
    assert len(set(draw(7).ravel().tolist())) == 18


@pytest.mark.parametrize("floor", [1e-3, 8.0, 1e4])
@pytest.mark.parametrize("ceiling", [math.inf, 2e4])
def test_every_draw_lies_on_the_grid(floor, ceiling):
    """Also where a cell holds nothing, ten million records, or as many as there may be."""
    counts = [0, 1, 10**7, 2**53]
    cells = exact_floored([1e-3, 1e-300, 0.5, 1.0], 1.0, floor, counts, ceiling=ceiling, draws=2, bits=Bits(6))
    assert cells.dtype == np.int64
    assert np.all((cells >= 0) & (cells < 2**53))
    g = intensities(cells, floor)
    # The ceiling lies inside the last cell, whose middle may be above it.
    assert np.all((floor < g) & (g < ceiling * (1 + 2.0**-36)))
    assert np.array_equal(cells_of(g, floor), cells)


# Neighbours: one record in the first cell, or in the second. With the first counts, one cell is empty.
NEIGHBOURS = [([0, 7], [1, 6]), ([250, 31], [251, 30])]


@pytest.mark.thorough
@pytest.mark.parametrize("count", sorted({c for pair in NEIGHBOURS for table in pair for c in table}))
def test_every_cell_is_possible_whatever_the_counts(count):
    """A U that ends in any given cell: near the floor, in the body, and where a cell has a chance of 2**-300."""
    alpha, r, floor = 0.02, 0.7, 8.0
    a = exact_shape(alpha, r, count)
    rng = np.random.default_rng(count)
    body = rng.integers(0, 5 << 36, 8).tolist()
    with workdps(300):
        for j in [0, 1, 2, 3, *body, *(b ^ 1 for b in body)]:
            border = share(a, floor, inf, j), share(a, floor, inf, j + 1)
            words = words_of(sum(border) / 2, 12)
            assert drawn((alpha, r, floor, count, math.inf), words)[0] == j


@pytest.mark.thorough
@pytest.mark.parametrize("pair", NEIGHBOURS)
def test_the_last_bits_do_not_tell_neighbours_apart(pair):
    """The low byte of the cell is uniform for either table, and the two agree; without its lowest bit it is not."""
    rows = 3000
    seen = [
        exact_floored(np.full((rows, 2), 0.02), 0.7, 8.0, np.tile(table, (rows, 1)), draws=1, bits=Bits(seed)) & 255
        for seed, table in enumerate(pair)
    ]
    for place in (0, 1):
        bytes_ = np.array([np.bincount(s[0, :, place], minlength=256) for s in seen])
        assert min(chisquare(b).pvalue for b in bytes_) > 1e-6
        assert chi2_contingency(bytes_).pvalue > 1e-6
        assert chisquare(np.bincount(seen[0][0, :, place] & 254, minlength=256)).pvalue < 1e-6


@given(st.integers(0, 2**45), st.floats(1e-6, 1e6))
def test_the_map_to_intensities_is_increasing_and_has_an_inverse(j, floor):
    cells = j + np.arange(-1, 2)[max(0, 1 - j) :]
    g = intensities(cells, floor)
    assert np.all(np.diff(g) > 0)
    assert np.array_equal(cells_of(g, floor), cells)
    with workdps(40):
        exact = mpf(floor) * mpf(2) ** ((2 * mpf(int(cells[0])) + 1) / 2**37)
        assert abs(mpf(float(g[0])) / exact - 1) < mpf(2) ** -50


@pytest.mark.parametrize(
    "g", [8.0, 7.9, [9.0, 20.0], math.nan, math.inf, -1.0, 0.0, "a", [[1], [2, 3]], None, 8.5 + 1e-9]
)
def test_what_does_not_lie_on_the_grid(g):
    with pytest.raises(ArgumentError, match="floor=8"):
        cells_of(g, 8.0)


def test_an_intensity_of_another_floor_or_after_arithmetic_is_not_on_the_grid():
    g = intensities(np.arange(1000) * 10**7, 8.0)
    for other in (g * (1 + 1e-12), g.astype(np.float32), g + 1, g / g.sum() + 8):
        with pytest.raises(ArgumentError):
            cells_of(other, 8.0)
    with pytest.raises(ArgumentError):
        cells_of(g, 7.0)


def test_arguments():
    def draw(alpha=(1.0, 1.0), r=1.0, floor=8.0, counts=(3, 4), **options):
        return exact_floored(alpha, r, floor, counts, **{"draws": 1, "bits": Bits(1)} | options)

    for wrong in (
        {"alpha": [1.0, 0.0]},
        {"alpha": [1.0, math.nan]},
        {"r": 0},
        {"r": math.inf},
        {"floor": 0},
        {"floor": -1.0},
        {"floor": math.nan},
        {"floor": math.inf},
        {"ceiling": 8.0},
        {"ceiling": 7.0},
        {"ceiling": math.nan},
        {"draws": 0},
        {"draws": 1.5},
    ):
        # The public arguments are looked at first, so that the error is the same for all counts.
        for counts in ((3, 4), (-1, 4), (3, 4, 5)):
            with pytest.raises(ArgumentError, match=next(iter(wrong))):
                draw(counts=counts, **wrong)
    for counts in ((123457, -987651), (3, 98765.5), (98765, 98766, 98767), (98765, math.nan), (98765, 2.0**60)):
        with pytest.raises(DataError) as error:
            draw(counts=counts)
        assert "9876" not in str(error.value)
        assert error.value.__cause__ is None
    assert draw(alpha=[[[0.5]]], counts=[[[2]]], draws=4).shape == (4, 1, 1, 1)


def test_the_precision_of_flint_is_left_as_it_was():
    from flint import ctx

    before, ctx.prec = ctx.prec, 77
    try:
        exact_floored([1.0], 1.0, 8.0, [3], draws=1, bits=Bits(1))
        assert ctx.prec == 77
        without_bits = Given([0])
        with pytest.raises(EOFError):
            exact_floored([1.0], 1.0, 8.0, [3], draws=1, bits=without_bits)
        assert ctx.prec == 77
    finally:
        ctx.prec = before


def test_threads_do_not_disturb_each_other():
    """The precision of python-flint may be shared by all threads. Another one makes a draw slower and no other draw."""

    def draw(seed):
        return exact_floored(np.array(TABLE), 0.7, 8.0, COUNTS, draws=20, bits=Bits(seed))

    alone = [draw(seed) for seed in range(6)]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(draw, range(6)))
    assert np.array_equal(alone, together)


def test_without_python_flint_an_error_says_how_to_install_it(monkeypatch):
    real = importlib.import_module

    def without(name, *rest):
        if name == "flint":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(ImportError, match="pip install python-flint"):
        exact_floored([1.0], 1.0, 8.0, [3], draws=1, bits=Bits(1))
    assert intensities(np.array([3]), 8.0) > 8
