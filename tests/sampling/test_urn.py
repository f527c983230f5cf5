"""The urn that walks, and the compiled one that jumps: distributions by enumeration, odd weights, division of the work.

`test_all_words.py` enumerates the walk with numbers of any size, and the urn that jumps.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import betabinom

from pymc_dirdp.sampling import compiled_urn
from pymc_dirdp.sampling import exact as module
from pymc_dirdp.sampling.bits import Bits, compiled
from pymc_dirdp.sampling.compiled_urn import _below, _under, urns_in_jumps
from pymc_dirdp.sampling.exact import synthetic_counts, urn
from tests.oracles import AgainError, Tape, dirichlet_multinomial, distribution, drawn_p_value

# All steps at once; in blocks of one and of two; with points of three bits, of which the others are drawn where they
# matter; and one by one, in Python.
WAYS = [{}, {"_AT_ONCE": 1}, {"_AT_ONCE": 2}, {"_LEADING": 3}, {"_LEADING": 0}]


@pytest.fixture(params=WAYS, ids=str)
def way(request, monkeypatch):
    for name, value in request.param.items():
        monkeypatch.setattr(module, name, value)


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
    """Whether a place is drawn again depends on the number of earlier records alone, so no table is favoured."""

    def run(tape):
        return tuple(urn(rows, digits, steps=steps, draws=draws, bits=tape).ravel().tolist())

    found, left = distribution(run, left=Fraction(0))
    assert left == 0
    accepted = 1 - found.pop("again", Fraction(0))
    assert {table: p / accepted for table, p in found.items()} == product_of_rows(rows, digits, steps, draws)


def test_many_rows_have_the_stated_distribution_and_share_their_calls(monkeypatch):
    """Beta-binomial, for three kinds of rows among 6,000 that 64 bits do not hold. A call is for many of them."""
    calls, block = [], module._block
    monkeypatch.setattr(module, "_block", lambda *given: calls.append(1) or block(*given))
    kinds, digits, steps, each = [(1.5, 2.0), (3.0, 0.5), (0.25, 4.0)], 70, 8, 2_000
    whole = [[int(u * 2**digits) for u in kind] for kind in kinds]
    counts = urn(whole * each, digits, steps=steps, draws=1, bits=Bits(5))[0]
    assert len(calls) < 100
    assert np.all(counts.sum(axis=1) == steps)
    pmfs = [betabinom.pmf(np.arange(steps + 1), steps, *kind) for kind in kinds]
    for kind, pmf in enumerate(pmfs):
        assert drawn_p_value(counts[kind::3, 0], range(steps + 1), pmf) > 1e-6
        assert drawn_p_value(counts[kind::3, 0], range(steps + 1), pmfs[kind - 1]) < 1e-6
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


@pytest.mark.parametrize(
    ("weights", "digits", "steps", "draws"),
    [
        ([[3, 4, 5], [1, 1, 9]], 1, 700, 3),
        ([[1, 10**6, 3, 1]], 0, 50, 4000),
        ([[*range(1000, 2000)]], 0, 5000, 5),
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


# The compiled urn.

BYTES = "Array(uint8, 1, 'C', readonly=True)"
# The largest limits that an urn meets are of `MAX_STEPS` stars among as many bars.
LIMITS = [1, 2, 3, *(2**k + e for k in (8, 16, 24) for e in (-1, 0, 1)), 3 * 2**24, 2**26 + 1, 2**29 + 1, 2**30]


@pytest.fixture(scope="module")
def both_ways():
    """The two primitives that read bytes, in Python and compiled."""
    under = compiled(f"Tuple((boolean, int64))({BYTES}, int64, int64, int64)", _under)
    return (_below, _under), (compiled(f"Tuple((int64, int64))({BYTES}, int64, int64)", _below, _under), under)


def real(data, at):
    """The number of which the bytes are the digits, cut off after so many that no comparison here needs more."""
    digits = bytes(data[at : at + 40])
    return Fraction(int.from_bytes(digits), 256 ** len(digits))


def digits_of(number, last):
    """Twelve digits of a fraction below 1, then bytes that are all the same."""
    data = np.full(64, last, dtype=np.uint8)
    data[:12] = list((number.numerator * 256**12 // number.denominator).to_bytes(12))
    return data


@pytest.mark.parametrize("limit", LIMITS)
def test_a_number_below_a_limit_is_a_real_number_times_it_rounded_down(limit, both_ways):
    """However many bytes it takes, so near to `k / limit` that a few do not tell on which side; so is a coin."""
    rng = np.random.default_rng(limit)
    data = np.frombuffer(rng.bytes(2**13), dtype=np.uint8)
    for below, under in both_ways:
        at = 0
        for part in [0, 1, limit // 3, limit - 1, limit] * 12:
            value, end = below(data, at, limit)
            assert value == math.floor(real(data, at) * limit)
            answer, at = under(data, end, part, limit)
            assert answer == (real(data, end) * limit < part)
    edges = {1, 2, limit // 2, limit - 1, *rng.integers(1, limit, size=20, endpoint=True).tolist()}
    for k in sorted(edge for edge in edges if 0 < edge < limit):
        # Twelve digits are not above the edge: with 0 behind them they stay below it unless they are all of it.
        for near in (digits_of(Fraction(k, limit), 0), digits_of(Fraction(k, limit) + Fraction(1, 256**12), 1)):
            value = math.floor(real(near, 0) * limit)
            assert value in (k - 1, k)
            for below, under in both_ways:
                assert below(near, 0, limit)[0] == value
                assert under(near, 0, k, limit)[0] == (value < k)


def in_jumps(weights, digits, steps, draws, bits):
    table = np.array(weights, dtype=object)
    different, which = np.unique(table, return_inverse=True)
    counts = np.zeros((len(table) * draws, table.shape[1]), dtype=np.int64)
    which = which.reshape(table.shape)
    urns_in_jumps(which, different.tolist(), digits, draws=draws, steps=steps, bits=bits, counts=counts)
    assert (counts.sum(axis=1) == steps).all()
    return counts.reshape(len(table), draws, -1)


@pytest.fixture
def threads(monkeypatch):
    """Work is divided among the parts of three cores. The bits of the parts, which have seeds."""
    made = []

    def seeded():
        made.append(Bits(1000 + len(made)))
        return made[-1]

    monkeypatch.setattr(compiled_urn.os, "cpu_count", lambda: 3)
    monkeypatch.setattr(compiled_urn, "Bits", seeded)
    return made


# More digits than a word, as many atoms as steps, fractions alone, and atoms alone.
ROWS, DIGITS = [(3 * 2**90 + 5, 2**88), (6 * 2**90, 2**86), (2**89, 2**90 - 1), (2**92, 2**91)], 90


@pytest.mark.parametrize("seed", [8, None])
def test_rows_have_their_own_weights_and_draws_are_independent(seed, threads):
    """Also in threads, if the bits are those of the system. The same call rejects the weights of the next row."""
    steps, draws = 7, 6_000
    counts = in_jumps(ROWS, DIGITS, steps, draws, Bits(seed))[..., 0]
    assert len(threads) == (0 if seed else 12)
    for i, (a, b) in enumerate(ROWS):
        pmf = betabinom.pmf(np.arange(steps + 1), steps, a / 2**DIGITS, b / 2**DIGITS)
        assert drawn_p_value(counts[i], range(steps + 1), pmf) > 1e-6
        assert drawn_p_value(counts[i - 1], range(steps + 1), pmf) < 1e-6
        for one, other in ((counts[i], counts[i - 1]), (counts[i, 1:], counts[i, :-1])):
            assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(draws)
    # Parts with the same bits would repeat one another.
    assert len({part.tobytes() for part in np.split(counts.reshape(-1), 12)}) == 12


def test_an_urn_that_runs_out_of_bytes_is_drawn_again_from_its_first_byte(monkeypatch):
    """So the draws are the same, however many bytes are asked for at a time."""
    weights = [[5, 7, 20]] * 50
    one = in_jumps(weights, 2, 300, 10, Bits(6))
    taken = []

    class Noted(Bits):
        def spend(self, used):
            taken.append(used)
            super().spend(used)

    code, used = compiled_urn._compiled(), []

    def noted(*given):
        done, read = code(*given)
        used.append(read)
        return done, read

    monkeypatch.setattr(compiled_urn, "_compiled", lambda: noted)
    # Words are whole, so bytes that are left of one are not used: only the first urns take the same.
    for words in (1, 16):
        monkeypatch.setitem(compiled_urn.urns_in_jumps.__kwdefaults__, "words", words)
        taken.clear()
        used.clear()
        other = in_jumps(weights, 2, 300, 10, Noted(6))
        # No word is read by two urns.
        assert taken == [-(-read // 8) for read in used]
        np.testing.assert_array_equal(one[0, 0], other[0, 0])
        assert 0 in taken if words == 1 else len(taken) > 50
        assert not (one == other).all()


def test_large_work_goes_in_jumps_and_rows_that_do_not_fit_walk(monkeypatch):
    """Rows with more atoms than steps, or of any size, beside others; the walk and the jumps draw the same."""
    jumped, jump = [], module.urns_in_jumps
    monkeypatch.setattr(module, "urns_in_jumps", lambda rows, *a, **k: jumped.append(len(rows)) or jump(rows, *a, **k))
    monkeypatch.setitem(module._urn.__kwdefaults__, "worth", 100 * 4 * 2000)
    # The last row but one has as many atoms as steps.
    rows = [(2, 3), (1, 2**80), (50, 150), (400, 100)]
    counts = module.urn(rows, 1, steps=100, draws=2000, bits=Bits(2))
    assert jumped == [2]
    assert (counts.sum(axis=-1) == 100).all()
    assert counts[:, 1].tolist() == [[0, 100]] * 2000
    for i, (a, b) in enumerate(rows):
        if i != 1:
            expected = 100 * a / (a + b)
            sd = betabinom.std(100, a / 2, b / 2)
            assert abs(counts[:, i, 0].mean() - expected) < 5 * sd / math.sqrt(2000)
    assert module.urn(rows, 1, steps=99, draws=2000, bits=Bits(2)).shape == (2000, 4, 2)
    # Found by attack: if all rows had more records than the urn has steps, the compiled sampler had no urns.
    monkeypatch.setitem(module._urn.__kwdefaults__, "worth", 1)
    for number in (50, 300):
        alone = module.urn([(number, 150)] * 2, 1, steps=60, draws=500, bits=Bits(3))
        assert (alone.sum(axis=-1) == 60).all()
        share = number / (number + 150)
        assert abs(alone[..., 0].mean() / 60 - share) < 5 * betabinom.std(60, number / 2, 75) / 60 / math.sqrt(1000)
    assert jumped == [2, 0, 0]


def test_a_seed_gives_the_same_draw_on_any_number_of_cores(threads, monkeypatch):
    """Without one, threads have bits of the system, and no two of them the same words."""
    one = in_jumps([(2, 3, 1), (7, 1, 1)], 1, 100, 20, Bits(3))
    monkeypatch.setattr(compiled_urn.os, "cpu_count", lambda: 1)
    np.testing.assert_array_equal(in_jumps([(2, 3, 1), (7, 1, 1)], 1, 100, 20, Bits(3)), one)
    assert not threads
    monkeypatch.setattr(compiled_urn.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(compiled_urn, "Bits", lambda: threads.append(Bits()) or threads[-1])
    in_jumps([(1, 1)] * 8, 0, 100, 1, Bits())
    assert len({id(one) for one in threads}) == 8
    assert all(one.of_the_system for one in threads)
    assert len({one.ahead()[:4].tobytes() for one in threads}) == 8
