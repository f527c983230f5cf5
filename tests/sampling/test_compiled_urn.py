"""The compiled urn in jumps: its comparisons against real numbers, draws of rows, and how its work is divided.

`test_all_words.py` enumerates its parts by words of a few bits.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import betabinom, chisquare

from pymc_dirdp.sampling import compiled_urn, exact
from pymc_dirdp.sampling.bits import Bits, compiled
from pymc_dirdp.sampling.compiled_urn import _below, _under, urns_in_jumps


def fits(seen, pmf):
    """The p-value of draws of 0, 1, ... with these probabilities; those that are expected to be few are one."""
    expected, many_times = len(seen) * pmf, np.bincount(seen, minlength=len(pmf))
    rare = expected < 5
    if rare.any():
        expected, many_times = (np.append(x[~rare], x[rare].sum()) for x in (expected, many_times))
    return chisquare(many_times, expected * many_times.sum() / expected.sum()).pvalue


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
    """However many bytes it takes: those that decide at last are digits of the same number. So is a coin.

    Also numbers so near `k / limit` that no cell of a few bytes tells on which side they are.
    """
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


def drawn(weights, digits, steps, draws, bits):
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
    counts = drawn(ROWS, DIGITS, steps, draws, Bits(seed))[..., 0]
    assert len(threads) == (0 if seed else 12)
    for i, (a, b) in enumerate(ROWS):
        pmf = betabinom.pmf(np.arange(steps + 1), steps, a / 2**DIGITS, b / 2**DIGITS)
        assert fits(counts[i], pmf) > 1e-6
        assert fits(counts[i - 1], pmf) < 1e-6
        for one, other in ((counts[i], counts[i - 1]), (counts[i, 1:], counts[i, :-1])):
            assert abs(np.corrcoef(one, other)[0, 1]) < 5 / math.sqrt(draws)
    # Parts with the same bits would repeat one another.
    assert len({part.tobytes() for part in np.split(counts.reshape(-1), 12)}) == 12


def test_an_urn_that_runs_out_of_bytes_is_drawn_again_from_its_first_byte(monkeypatch):
    """So the draws are the same, however many bytes are asked for at a time."""
    weights = [[5, 7, 20]] * 50
    one = drawn(weights, 2, 300, 10, Bits(6))
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
        other = drawn(weights, 2, 300, 10, Noted(6))
        # No word is read by two urns.
        assert taken == [-(-read // 8) for read in used]
        np.testing.assert_array_equal(one[0, 0], other[0, 0])
        assert 0 in taken if words == 1 else len(taken) > 50
        assert not (one == other).all()


def test_large_work_goes_in_jumps_and_rows_that_do_not_fit_walk(monkeypatch):
    """Rows with more atoms than steps, or of any size, beside others; the walk and the jumps draw the same."""
    jumped, jump = [], exact.urns_in_jumps
    monkeypatch.setattr(exact, "urns_in_jumps", lambda rows, *a, **k: jumped.append(len(rows)) or jump(rows, *a, **k))
    monkeypatch.setitem(exact._urn.__kwdefaults__, "worth", 100 * 4 * 2000)
    # The last row but one has as many atoms as steps.
    rows = [(2, 3), (1, 2**80), (50, 150), (400, 100)]
    counts = exact.urn(rows, 1, steps=100, draws=2000, bits=Bits(2))
    assert jumped == [2]
    assert (counts.sum(axis=-1) == 100).all()
    assert counts[:, 1].tolist() == [[0, 100]] * 2000
    for i, (a, b) in enumerate(rows):
        if i != 1:
            expected = 100 * a / (a + b)
            sd = betabinom.std(100, a / 2, b / 2)
            assert abs(counts[:, i, 0].mean() - expected) < 5 * sd / math.sqrt(2000)
    assert exact.urn(rows, 1, steps=99, draws=2000, bits=Bits(2)).shape == (2000, 4, 2)
    # Found by attack: if all rows had more records than the urn has steps, the compiled sampler had no urns.
    monkeypatch.setitem(exact._urn.__kwdefaults__, "worth", 1)
    for number in (50, 300):
        alone = exact.urn([(number, 150)] * 2, 1, steps=60, draws=500, bits=Bits(3))
        assert (alone.sum(axis=-1) == 60).all()
        share = number / (number + 150)
        assert abs(alone[..., 0].mean() / 60 - share) < 5 * betabinom.std(60, number / 2, 75) / 60 / math.sqrt(1000)
    assert jumped == [2, 0, 0]


def test_a_seed_gives_the_same_draw_on_any_number_of_cores(threads, monkeypatch):
    one = drawn([(2, 3, 1), (7, 1, 1)], 1, 100, 20, Bits(3))
    monkeypatch.setattr(compiled_urn.os, "cpu_count", lambda: 1)
    np.testing.assert_array_equal(drawn([(2, 3, 1), (7, 1, 1)], 1, 100, 20, Bits(3)), one)
    assert not threads


def test_bits_of_threads_come_from_the_system(monkeypatch):
    """And no two of them have the same words."""
    made = []
    monkeypatch.setattr(compiled_urn.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(compiled_urn, "Bits", lambda: made.append(Bits()) or made[-1])
    drawn([(1, 1)] * 8, 0, 100, 1, Bits())
    assert len({id(one) for one in made}) == 8
    assert all(one.of_the_system for one in made)
    assert len({one.ahead()[:4].tobytes() for one in made}) == 8
