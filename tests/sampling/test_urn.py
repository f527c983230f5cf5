"""The urn: its exact law by enumeration, its words one by one, and draws with known power."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import betabinom, chisquare

from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.exact import default_steps, exact_dirichlet, synthetic_counts
from pymc_dirdp.sampling.rationals import rounded
from pymc_dirdp.sampling.urn import compiled, row_totals, urn

TOP = 2**64 - 1


def by_hand(weights, denominator, steps, words, top=TOP):
    """The urn in Python integers, in the words of the theory. Returns the counts of one draw; may end the words."""
    counts, records = [0] * len(weights), []
    words = iter(words)
    while len(records) < steps:
        total = sum(weights) + denominator * len(records)
        full_rounds = (top + 1) // total * total
        point = next(word for word in words if word < full_rounds) % total
        if point < sum(weights):
            records.append(next(i for i in range(len(weights)) if point < sum(weights[: i + 1])))
        else:
            records.append(records[(point - sum(weights)) // denominator])
        counts[records[-1]] += 1
    return tuple(counts)


def walked(weights, denominator, steps, words, top=TOP):
    """The compiled walk on given words: counts of one draw, steps done and words used."""
    counts = np.zeros((1, len(weights)), dtype=np.int64)
    done, used = compiled()(
        np.cumsum(weights).astype(np.uint64),
        denominator,
        np.array(words, dtype=np.uint64),
        np.empty(steps, dtype=np.int32),
        counts,
        0,
        np.uint64(top),
    )
    return tuple(counts[0].tolist()), done, used


def dirichlet_multinomial(counts, parameters):
    """Probability of the counts, as a fraction."""

    def rising(x, n):
        return math.prod((x + i for i in range(n)), start=Fraction(1))

    ways = math.factorial(sum(counts))
    for c in counts:
        ways //= math.factorial(c)
    product = math.prod((rising(u, c) for c, u in zip(counts, parameters, strict=True)), start=Fraction(1))
    return ways * product / rising(sum(parameters), sum(counts))


@pytest.mark.parametrize("urn_on", [by_hand, lambda *given: walked(*given)[0]], ids=["by hand", "compiled"])
@pytest.mark.parametrize(
    ("weights", "denominator", "steps"),
    [((1, 2), 3, 3), ((5, 1), 2, 3), ((1, 1), 1, 5), ((2, 1, 3), 2, 3), ((1, 4, 2, 1), 5, 2), ((3, 2), 7, 1)],
)
def test_law_by_enumeration(urn_on, weights, denominator, steps):
    """Every sequence of outcomes of the uniform draws, each of which is as likely as any other."""
    totals = [sum(weights) + denominator * j for j in range(steps)]
    # A word below the total is its own remainder, so words stand for the outcomes.
    seen = Counter(urn_on(weights, denominator, steps, points) for points in itertools.product(*map(range, totals)))
    assert seen.total() == math.prod(totals)
    parameters = [Fraction(w, denominator) for w in weights]
    tables = [c for c in itertools.product(range(steps + 1), repeat=len(weights)) if sum(c) == steps]
    for counts in tables:
        assert Fraction(seen[counts], seen.total()) == dirichlet_multinomial(counts, parameters)


@pytest.mark.parametrize("top", [TOP, 2**8 - 1, 2**5 - 1])
def test_compiled_walk_follows_the_one_by_hand(top):
    """Word by word: whatever the words, the same counts after the same number of them."""
    rng = np.random.default_rng(4)
    thrown_away = 0
    for _ in range(300):
        weights = rng.integers(1, 4 if top < TOP else 2**58, size=rng.integers(2, 4)).tolist()
        denominator, steps = int(rng.integers(1, 3 if top < TOP else 2**56)), int(rng.integers(1, 6))
        words = rng.integers(0, top, size=100, dtype=np.uint64, endpoint=True).tolist()
        counts, done, used = walked(weights, denominator, steps, words, top)
        assert done == steps
        assert counts == by_hand(weights, denominator, steps, words[:used], top)
        with pytest.raises((StopIteration, RuntimeError)):
            by_hand(weights, denominator, steps, words[: used - 1], top)
        thrown_away += used - steps
    assert thrown_away > 0


@pytest.mark.parametrize("total", range(2, 257))
def test_each_remainder_has_as_many_words(total):
    """All 256 words of eight bits: no category is favoured, and only a part of one round is thrown away."""
    weights = [1] * total
    seen = np.zeros(total, dtype=int)
    accepted = 0
    for word in range(256):
        counts, done, used = walked(weights, 1, 1, [word], top=255)
        assert used == 1
        accepted += done
        seen += counts
    assert set(seen.tolist()) == {256 // total}
    assert accepted == 256 // total * total


@pytest.mark.parametrize("total", [3, 10, 2**32 + 1, 2**61 + 7, 2**62 - 1])
def test_words_at_the_border(total):
    """The last word of the last full round is used, the next one is not; the largest word is used for powers of 2."""
    border = 2**64 // total * total
    assert walked([total - 1, 1], 1, 1, [border - 1]) == ((0, 1), 1, 1)
    assert walked([total - 1, 1], 1, 1, [border]) == ((0, 0), 0, 1)
    assert walked([total - 1, 1], 1, 1, [TOP, border, 0]) == ((1, 0), 1, 3)
    assert walked([2**61 - 1, 2**61], 1, 1, [2**61 - 2]) == ((1, 0), 1, 1)
    assert walked([2**61, 2**61], 1, 1, [TOP]) == ((0, 1), 1, 1)


def test_words_that_run_out_in_the_middle():
    """In blocks of any size the walk goes on where it was: here one word at a time."""

    class OneByOne(Bits):
        def ahead(self):
            return super().ahead()[:1]

    weights, given = np.array([[3, 4, 5], [1, 1, 9]]), {"steps": 57, "draws": 3}
    slowly = urn(weights, 2, **given, bits=OneByOne(11))
    assert np.array_equal(slowly, urn(weights, 2, **given, bits=Bits(11)))
    # Across the end of a block.
    many = urn(weights, 2, steps=9000, draws=2, bits=Bits(12))
    assert np.array_equal(many, urn(weights, 2, steps=9000, draws=2, bits=OneByOne(12)))


def test_same_bits_same_release():
    rationals = rounded([[1.0, 0.3, 2.0], [0.5, 0.5, 0.5]], 0.3, steps=5000, most_records=100)
    table = np.array([[5, 0, 17], [1, 2, 3]])

    def release(seed):
        return exact_dirichlet(rationals, table, draws=4, bits=Bits(seed))

    assert np.array_equal(release(1), release(1))
    assert not np.array_equal(release(1), release(2))
    assert not np.array_equal(release(None), release(None))
    assert release(1).shape == (4, 2, 3)
    assert np.all(np.round(release(1) * 5000) / 5000 == release(1))
    assert np.allclose(release(1).sum(axis=-1), 1, rtol=1e-12)
    # One source goes on: its draws do not repeat.
    bits = Bits(1)
    first, second = (exact_dirichlet(rationals, table, draws=4, bits=bits) for _ in range(2))
    assert np.array_equal(first, release(1))
    assert not np.array_equal(first, second)


def test_draws_and_rows_are_independent():
    """Correlations of 20,000 pairs: five standard deviations."""
    draws = urn(np.array([[3, 4], [2, 2]]), 2, steps=40, draws=20_000, bits=Bits(9))[..., 0]
    for x, y in [(draws[:, 0], draws[:, 1]), (draws[:-1, 0], draws[1:, 0]), (draws[:-1, 1], draws[1:, 1])]:
        assert abs(np.corrcoef(x, y)[0, 1]) < 5 / math.sqrt(20_000)


@pytest.mark.parametrize("cell", [0, 1, 2])
def test_draws_have_the_stated_law(cell):
    """Chi-square of a cell's beta-binomial law with a threshold of 1e-6; an r that is 30 % off is rejected."""
    alpha, r, counts, steps = np.array([0.5, 1.0, 2.0]), 0.37, np.array([40, 3, 12]), 30
    rationals = rounded(alpha, r, steps=steps, most_records=1000)
    seen = np.bincount(synthetic_counts(rationals, counts, draws=50_000, bits=Bits(6))[:, cell], minlength=steps + 1)

    def p_value(assumed):
        u = assumed * counts + alpha
        expected = seen.sum() * betabinom(steps, u[cell], u.sum() - u[cell]).pmf(np.arange(steps + 1))
        # Cells that are expected less than five times are put together.
        rare = expected < 5
        if not rare.any():
            return chisquare(seen, expected).pvalue
        return chisquare([*seen[~rare], seen[rare].sum()], [*expected[~rare], expected[rare].sum()]).pvalue

    assert p_value(r) > 1e-6
    assert p_value(0.7 * r) < 1e-6
    assert p_value(1.3 * r) < 1e-6


def test_moments_on_a_fine_grid():
    """Mean of the Dirichlet law, variance larger by 1 + u0 / steps: five standard errors of 20,000 draws."""
    alpha, r, counts = np.array([[1.0, 1.0, 1.0], [0.5, 2.0, 3.0]]), 0.5, np.array([[20, 4, 0], [0, 0, 7]])
    rationals = rounded(alpha, r, steps=100, most_records=100)
    y = exact_dirichlet(rationals, counts, draws=20_000, bits=Bits(21))
    u = r * counts + alpha
    total = u.sum(axis=-1, keepdims=True)
    p = u / total
    variance = p * (1 - p) / (total + 1) * (1 + total / 100)
    assert np.all(np.abs(y.mean(axis=0) - p) < 5 * np.sqrt(variance / 20_000))
    assert np.all(np.abs(y.var(axis=0) / variance - 1) < 5 * np.sqrt(2.5 / 20_000))


@pytest.mark.parametrize("d", [2, 1000, 100_000])
def test_every_category_can_be_reached(d):
    """A word in the first and the last point of a category finds it, also among many."""
    rng = np.random.default_rng(d)
    weights = rng.integers(1, 10**9, size=d)
    ends = np.cumsum(weights)
    for category in {0, 1, d // 2, d - 2, d - 1}:
        for word in (ends[category] - weights[category], ends[category] - 1):
            counts, done, _ = walked(weights, 1, 1, [word])
            assert done == 1
            assert counts.index(1) == category


def test_sums_do_not_overflow():
    table = np.full((2, 5), 2**62)
    assert row_totals(table) == [5 * 2**62] * 2
    rng = np.random.default_rng(0)
    table = rng.integers(0, 2**63 - 1, size=(4, 7))
    assert row_totals(table) == [sum(row) for row in table.tolist()]
    largest = 2**63 - 1 - 10
    assert urn(np.array([largest - 1, 1]), 1, steps=10, draws=1, bits=Bits(0)).sum() == 10
    for weights, denominator, steps in [([largest, 1], 1, 10), ([2**62] * 4, 1, 1), ([1, 1], 2**62, 2)]:
        with pytest.raises(UnattainableError, match="63 bits") as error:
            urn(np.array(weights), denominator, steps=steps, draws=1, bits=Bits(0))
        assert str(2**62) not in str(error.value)


@pytest.mark.parametrize(
    "counts", [[1, 2], [1, 2, -1], [1, 2, 0.5], [1, 2, math.nan], [1, 2, math.inf], [1, 2, 2.0**60], [600, 1, 400]]
)
def test_counts_that_cannot_be_are_refused_and_not_shown(counts):
    rationals = rounded([1.0, 1.0, 1.0], 1.0, steps=10, most_records=1000)
    with pytest.raises(DataError) as error:
        synthetic_counts(rationals, counts, draws=1, bits=Bits(0))
    assert not any(shown in str(error.value) for shown in ("600", "400", "1001", "0.5", "-1"))


def test_the_bound_on_records_is_for_each_row_and_may_be_met():
    rationals = rounded(np.ones((2, 2)), 1.0, steps=10, most_records=1000)
    assert synthetic_counts(rationals, [[600, 400], [0, 1000]], draws=1, bits=Bits(0)).sum() == 20
    with pytest.raises(ArgumentError):
        synthetic_counts(rationals, [[1, 1], [1, 1]], draws=0, bits=Bits(0))


def test_default_steps():
    # 100 * (0.5 * 10**4 + 4)
    assert default_steps([[1, 1], [1, 3]], 0.5, 10**4) == 500_400
    assert default_steps([1, 1], 0.5, 0) == 10_000
    assert default_steps([1, 1], 1.0, 10**9) == 10_000_000
    with pytest.raises(ArgumentError):
        default_steps([1, 1], 1.0, -1)
