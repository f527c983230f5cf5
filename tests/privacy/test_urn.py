"""The pure loss of an urn against all tables of a few records, with fractions; and the curves that follow from it."""

import math
from fractions import Fraction
from itertools import product

import mpmath
import numpy as np
import pytest
from scipy.special import gammaln

from pymc_dirdp.mechanisms import DirichletMechanism
from pymc_dirdp.privacy.bounded_loss import RandomisedResponse
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.privacy.unit import dominating_pair
from pymc_dirdp.privacy.urn import _spread_loss, largest_urn_loss, urn_cells

ORDERS = (1.0, 1 + 1e-7, 1.5, 2.0, 7.0, 100.0)
EPSILONS = (0.0, 0.05, 0.3, 0.8)
FLAT, UNEVEN = ((1.0, 1.0), (1.0, 1.0)), ((0.25, 2.0), (1.0, 0.5))
TABLES = [FLAT, UNEVEN, ((3.0, 0.5),), ((0.5, 1.0, 2.0),), ((0.5, 8.0), (0.5, 8.0), (1.0, 1.0))]


def pure(alpha, r, steps, adjacency="replace-one", *, contribution=1):
    return urn_cells(np.array(alpha), Contribution.of(contribution)).pure_epsilon(r, steps, adjacency)


def urn_distribution(parameters, steps):
    """The probability of every outcome, as fractions: a Dirichlet-multinomial distribution."""
    distribution = {}
    for counts in product(range(steps + 1), repeat=len(parameters)):
        if sum(counts) == steps:
            mass = Fraction(math.factorial(steps))
            for u, c in zip(parameters, counts, strict=True):
                mass *= rising(u, c) / math.factorial(c)
            distribution[counts] = mass / rising(sum(parameters), steps)
    return distribution


def rising(u, c):
    return math.prod((u + j for j in range(c)), start=Fraction(1))


def true_curves(p, q):
    """All curves of two distributions in both directions, with digits for divergences of 1e-120."""
    with mpmath.workdps(160):
        pairs = [
            (mpmath.mpf(p[c].numerator) / p[c].denominator, mpmath.mpf(q[c].numerator) / q[c].denominator) for c in p
        ]
        pairs = [pairs, [(b, a) for a, b in pairs]]
        pure = max(mpmath.log(a / b) for pair in pairs for a, b in pair)
        renyi = [max(divergence(pair, order) for pair in pairs) for order in ORDERS]
        delta = [max(sum(max(a - mpmath.exp(e) * b, 0) for a, b in pair) for pair in pairs) for e in EPSILONS]
    return pure, renyi, delta


def divergence(pair, order):
    if order == 1:
        return sum(a * mpmath.log(a / b) for a, b in pair)
    return mpmath.log(sum(a * (a / b) ** (mpmath.mpf(order) - 1) for a, b in pair)) / (mpmath.mpf(order) - 1)


def assert_within(curves, p, q):
    pure, renyi, delta = true_curves(p, q)
    assert curves.pure_epsilon >= pure
    assert all(curves.renyi(order) >= true for order, true in zip(ORDERS, renyi, strict=True))
    assert all(curves.delta(epsilon) >= true for epsilon, true in zip(EPSILONS, delta, strict=True))


def digits(ratio):
    """The logarithm of a fraction with 40 digits."""
    with mpmath.workdps(40):
        return mpmath.log(mpmath.mpf(ratio.numerator) / ratio.denominator)


def likelihood(alpha, r, counts, outcome):
    """The probability of the counts of urns, one for each row, without what is the same for all data sets."""
    ratio = Fraction(1)
    for row, x, seen in zip(alpha, counts, outcome, strict=True):
        u = [Fraction(a) + Fraction(r) * c for a, c in zip(row, x, strict=True)]
        ratio *= math.prod((rising(a, c) for a, c in zip(u, seen, strict=True)), start=Fraction(1))
        ratio /= rising(sum(u), sum(seen))
    return ratio


def tables(shape, most):
    """All tables of this shape with cells of up to `most` records."""
    rows, d = shape
    for flat in product(range(most + 1), repeat=rows * d):
        yield tuple(flat[i * d : (i + 1) * d] for i in range(rows))


def changed(table, changes):
    cells = [list(row) for row in table]
    for (i, j), more in changes:
        cells[i][j] += more
    return cells


def true_pure(alpha, r, steps, neighbours):
    """The largest loss of any outcome over neighbours."""
    shape = len(alpha), len(alpha[0])
    # A loss is a sum over rows, so rows are looked at one by one.
    outcomes = [seen for seen in product(range(steps + 1), repeat=shape[1]) if sum(seen) == steps]
    largest = Fraction(1)
    for x, y in neighbours:
        ratio = Fraction(1)
        for row, one, other in zip(alpha, x, y, strict=True):
            if tuple(one) != tuple(other):
                ratio *= max(
                    likelihood([row], r, [one], [seen]) / likelihood([row], r, [other], [seen]) for seen in outcomes
                )
        largest = max(largest, ratio)
    return digits(largest)


def replacements(alpha, most):
    cells = list(product(range(len(alpha)), range(len(alpha[0]))))
    for table in tables((len(alpha), len(alpha[0])), most):
        for a, b in product(cells, repeat=2):
            if a != b:
                yield changed(table, [(a, 1)]), changed(table, [(b, 1)])


def additions(alpha, most):
    cells = list(product(range(len(alpha)), range(len(alpha[0]))))
    for table in tables((len(alpha), len(alpha[0])), most):
        for a in cells:
            more = changed(table, [(a, 1)])
            yield more, table
            yield table, more


@pytest.mark.parametrize("alpha", TABLES)
@pytest.mark.parametrize(("r", "steps"), [(0.5, 2), (2.0, 3)])
def test_no_replacement_loses_more(alpha, r, steps):
    claim = pure(alpha, r, steps)
    most = 1 if len(alpha) > 2 else 2
    true = true_pure(alpha, r, steps, replacements(alpha, most))
    assert true <= claim
    if len(alpha) == 1:
        assert claim == pytest.approx(float(true), rel=1e-12)


@pytest.mark.parametrize("alpha", TABLES)
@pytest.mark.parametrize(("r", "steps"), [(0.5, 2), (2.0, 3)])
def test_no_addition_or_removal_loses_more(alpha, r, steps):
    claim = pure(alpha, r, steps, "add-remove")
    assert true_pure(alpha, r, steps, additions(alpha, 2 if len(alpha) < 3 else 1)) <= claim


@pytest.mark.parametrize("alpha", [FLAT, UNEVEN])
def test_the_losses_of_rows_are_approached_as_a_row_fills_up(alpha):
    """The record leaves the smallest cell of a row with many others, and comes into the other row, which is empty."""
    r, steps = 0.5, 4
    replaced, joined = (pure(alpha, r, steps, how) for how in ("replace-one", "add-remove"))
    gaps = []
    for others in (10, 1_000, 100_000):
        pairs, single = [], []
        for a, b in product(product(range(2), repeat=2), repeat=2):
            if a[0] != b[0]:
                full = changed(((0, 0), (0, 0)), [((a[0], 1 - a[1]), others)])
                with_a, with_b = changed(full, [(a, 1)]), changed(full, [(b, 1)])
                pairs += [(with_a, with_b), (with_b, with_a)]
                single += [(with_a, full), (full, with_a)]
        larger, removed = true_pure(alpha, r, steps, pairs), true_pure(alpha, r, steps, single)
        assert larger < replaced
        assert removed < joined
        gaps.append((replaced - float(larger), joined - float(removed)))
    assert np.all(np.diff(gaps, axis=0) < 0)
    assert max(gaps[-1]) < 1e-3


def test_a_claim_that_leaves_out_the_row_that_is_joined_is_refuted():
    """Within a row the loss is smaller than for a change of rows."""
    within = pure(np.array(FLAT[:1]), 0.5, 3)
    assert true_pure(FLAT, 0.5, 3, replacements(FLAT, 2)) > within


@pytest.mark.parametrize(("adjacency", "records"), [("replace-one", 2), ("add-remove", 2), ("replace-one", 3)])
@pytest.mark.parametrize("row", [(1.0, 1.0), (0.125, 0.25), (0.5, 1.0, 2.0)])
def test_several_records_lose_no_more_than_one_after_the_other(adjacency, records, row):
    r, steps, d = 0.5, 3, len(row)
    claim = pure([row], r, steps, adjacency, contribution=records)
    ways = [way for way in product(range(records + 1), repeat=d) if sum(way) <= records]
    if adjacency == "replace-one":
        pairs = [([x], [y]) for x in ways for y in ways if sum(x) == sum(y) == records]
    else:
        pairs = [pair for x in ways for pair in (([x], [(0,) * d]), ([(0,) * d], [x]))]
    true = true_pure([row], r, steps, pairs)
    assert true <= claim
    # All records in one cell lose more than one of them does.
    assert true > pure([row], r, steps, adjacency) * (1 - 1e-12)


def most_spread_loss(row, r, steps, records, others, fixed):
    """The largest loss over all ways in which up to so many records of a person are replaced, beside other records."""
    d = len(row)
    ways = np.array([way for way in product(range(records + 1), repeat=d) if sum(way) <= records])
    outcomes = np.array([seen for seen in product(range(steps + 1), repeat=d) if sum(seen) == steps])
    largest = 0.0
    for base in others:
        u = np.array(row) + r * (ways + np.array(base))
        logs = (gammaln(u[:, None] + outcomes) - gammaln(u)[:, None]).sum(axis=-1)
        logs += (gammaln(u.sum(axis=1)) - gammaln(u.sum(axis=1) + steps))[:, None]
        number = ways.sum(axis=1)
        for x, one in zip(number, logs, strict=True):
            pairs = number == records if fixed else number >= 0
            if not fixed or x == records:
                largest = max(largest, float((one - logs[pairs]).max()))
    return largest


SPREAD = [
    ((1.0, 1.0), 0.5, 4, 3),
    ((0.125, 0.25), 0.5, 5, 2),
    ((0.01, 3.0), 1.0, 6, 4),
    ((0.5, 1.0, 2.0), 0.5, 4, 3),
    ((0.02, 0.01, 0.5), 0.7, 4, 4),
    ((0.01, 0.03, 0.02, 1.0), 0.3, 3, 3),
    ((1e-3, 1e-3, 1e-3, 1e-3), 2.0, 3, 4),
]


@pytest.mark.parametrize(("row", "r", "steps", "records"), SPREAD)
def test_the_loss_by_several_records_in_one_row_is_exact(row, r, steps, records):
    """Every table of up to one other record in each cell, and every change of up to three or four of a person's."""
    claim = pure([row], r, steps, contribution=records)
    others = list(product(range(2), repeat=len(row)))
    true = most_spread_loss(row, r, steps, records, others, fixed=False)
    assert claim == pytest.approx(true, rel=1e-9)
    assert claim <= pure([row], r, steps) * records * (1 + 1e-12)


def test_a_person_whose_number_of_records_is_private_may_lose_more():
    """Three records in three empty cells, or four in the fourth: what is missing counts besides."""
    row, r, steps, records = SPREAD[-1]
    fixed = most_spread_loss(row, r, steps, records, [(0, 0, 0, 0)], fixed=True)
    assert pure([row], r, steps, contribution=records) > fixed + 0.05
    # With larger parameters it is the same, and a quarter less than what one record after the other would lose.
    row, r, steps, records = (1.0, 1.0, 1.0), 0.5, 4, 4
    claim = pure([row], r, steps, contribution=records)
    assert claim == pytest.approx(most_spread_loss(row, r, steps, records, [(0, 0, 0)], fixed=True), rel=1e-9)
    assert claim < 0.76 * records * pure([row], r, steps)


@pytest.mark.parametrize(("row", "r", "steps", "records"), SPREAD)
def test_the_loss_by_several_records_that_appear_is_approached_as_the_row_fills_up(row, r, steps, records):
    claim = pure([row], r, steps, "add-remove", contribution=records)
    d, ways = len(row), [way for way in product(range(records + 1), repeat=len(row)) if sum(way) <= records]
    outcomes = np.array([seen for seen in product(range(steps + 1), repeat=d) if sum(seen) == steps])

    def loss(full, more):
        base = np.array(row) + r * full * (np.arange(d) == np.argmax(row))
        u = base + r * np.array(more)
        logs = [
            (gammaln(v + outcomes) - gammaln(v)).sum(axis=1) + gammaln(v.sum()) - gammaln(v.sum() + steps)
            for v in (u, base)
        ]
        return float(np.abs(logs[0] - logs[1]).max())

    found = [max(loss(full, more) for more in ways) for full in (0, 1, 10, 10**6)]
    assert max(found) <= claim * (1 + 1e-9)
    assert found[-1] == pytest.approx(claim, rel=1e-4)


def test_many_records_lose_no_more_than_a_few_after_the_other():
    few, many = (pure(np.full((1, 20), 0.3), 0.1, 5_000, contribution=k) for k in (12, 24))
    assert few < many <= 2 * few * (1 + 1e-12)


def test_all_curves_hold_across_rows():
    """Both rows of every pair of neighbours, whole distributions: curves that follow from the largest loss alone."""
    alpha, r, steps = UNEVEN, 1.0, 2
    for adjacency, neighbours in (("replace-one", replacements), ("add-remove", additions)):
        curves = RandomisedResponse(pure(alpha, r, steps, adjacency))
        for x, y in neighbours(alpha, 1):
            distributions = []
            for table in (x, y):
                rows = [
                    urn_distribution([Fraction(a) + Fraction(r) * c for a, c in zip(row, counts, strict=True)], steps)
                    for row, counts in zip(alpha, table, strict=True)
                ]
                distributions.append({(c, e): rows[0][c] * rows[1][e] for c in rows[0] for e in rows[1]})
            assert_within(curves, *distributions)


def test_a_guarantee_on_every_cell_counts_as_a_larger_prior():
    guaranteed = DirichletMechanism(np.ones((2, 3)), 0.5, urn_steps=20, min_count=4.0)
    assert guaranteed.pure_epsilon == pytest.approx(pure(np.full((2, 3), 3.0), 0.5, 20), rel=1e-14)
    cells = urn_cells(np.ones((2, 3)), Contribution.of(1))
    assert cells.pure_epsilon(0.5, 20, "replace-one", more=2.0) == guaranteed.pure_epsilon


def test_blocks_of_a_person_add_up_and_kinds_of_people_do_not():
    alpha = np.array([[1.0, 1.0], [0.5, 2.0], [1.0, 1.0]])
    first, second = largest_urn_loss(1.0, 0.3, 9), largest_urn_loss(0.5, 0.3, 9)
    each = pure(alpha, 0.3, 9, contribution=Contribution(1, ("each",)))
    assert each == pytest.approx(2 * first + second, rel=1e-12)
    own = pure(alpha, 0.3, 9, contribution=Contribution(1, ("own",)))
    assert own == pytest.approx(second, rel=1e-12)
    assert second <= own


def test_the_worst_rows_are_two_different_ones():
    """The row with the smallest cell also has the smallest sum, so another one has to be left or joined."""
    alpha = np.array([[0.5, 0.5], [1.0, 1.5], [0.75, 9.0]])
    loss = pure(alpha, 0.5, 6)
    ways = [
        largest_urn_loss(float(alpha[i].min()), 0.5, 6) + largest_urn_loss(float(alpha[j].sum()), 0.5, 6)
        for i, j in product(range(3), repeat=2)
        if i != j
    ]
    assert loss == pytest.approx(max(ways), rel=1e-13)


@pytest.mark.parametrize("a", [1e-100, 1e-3, 0.5, 1.0, 40.0, 1e6, 1e12])
@pytest.mark.parametrize("r", [1e-4, 0.3, 10.0])
@pytest.mark.parametrize("steps", [1, 1_000, 1_001, 10_000_000])
def test_the_largest_loss_of_one_cell_is_rounded_up(a, r, steps):
    with mpmath.workdps(60):
        x, more = mpmath.mpf(a), mpmath.mpf(r)
        true = mpmath.loggamma(x + more + steps) - mpmath.loggamma(x + more)
        true += mpmath.loggamma(x) - mpmath.loggamma(x + steps)
        found = largest_urn_loss(a, r, steps)
        assert true <= found
        # Where the prior outweighs all steps, the bound may be loose; it is tiny there.
        assert found <= true * (1 + 1e-12) or (a > 1e3 and found <= 1.01 * true)


def test_a_public_number_of_records_changes_no_pure_loss():
    """All other records may lie in the other cell."""
    alpha, r, steps = ((0.5, 2.0),), 0.5, 3
    for n in range(1, 6):
        pairs = [([(i + 1, n - 1 - i)], [(i, n - i)]) for i in range(n)]
        both = pairs + [(y, x) for x, y in pairs]
        true = true_pure(alpha, r, steps, both)
        assert float(true) == pytest.approx(pure(alpha, r, steps), rel=1e-12)


def test_one_category_loses_nothing():
    assert pure(np.ones((3, 1)), 1.0, 5) == 0
    assert dominating_pair(np.ones(2), 0.2, "replace-one").pure_epsilon == math.inf


def test_many_steps_of_several_records_overflow_nowhere():
    """Found by random mechanisms: an urn to which nobody adds a record had an infinite bracket."""
    losses = [pure([1.0, 1.0], 1e-6, steps, contribution=2) for steps in (10**3, 10**6, 10**9)]
    assert 0 < losses[0] <= losses[1] <= losses[2] < math.inf


def parted(number, most, largest=None):
    """All ways to write a number as a sum of at most so many positive integers, the largest first."""
    if number == 0 or most == 0:
        return [()] if number == 0 else []
    first = range(min(number, largest or number), 0, -1)
    return [(one, *rest) for one in first for rest in parted(number - one, most - 1, one)]


@pytest.mark.parametrize("replaced", [False, True])
@pytest.mark.parametrize("seed", range(18))
def test_steps_are_spread_over_the_cells_where_they_lose_most(seed, replaced):
    """Oracle: the largest terms of each way to part the records, term by term; never below, and tight."""
    rng = np.random.default_rng(seed)
    # Few steps and small parameters lose most in several cells, many steps and larger ones in one.
    width, most = (0.3, 8) if seed % 2 else (3, 40)
    cells, r = np.sort(10 ** rng.uniform(-2, width - 2, 1 + seed % 3)), float(10 ** rng.uniform(-1, 1))
    records, steps = int(rng.integers(2, 6)), int(rng.integers(2, most))
    if seed >= 12:
        # Cells that are equal have equal terms, of which some are one too many: one step less than all have.
        cells, records, steps = np.full(2 + seed % 2, 0.1), 2 + seed % 2, 6 * int(rng.integers(1, 5)) - 1
    total = float(cells.sum() + 1.5)
    j, worst = np.arange(steps), 0.0
    for number in range(records + 1) if replaced else (records,):
        for way in parted(number, len(cells)):
            terms = np.concatenate([[], *(np.log1p(g * r / (a + j)) for g, a in zip(way, cells, strict=False))])
            missing = np.log1p((records - number) * r / (total + number * r + j)) if replaced else 0.0
            worst = max(worst, np.sort(terms)[::-1][:steps].sum() + np.sum(missing))
    found = _spread_loss(cells, total, r, steps, records, replaced=replaced)
    assert worst * (1 - 1e-13) <= found <= worst * (1 + 1e-9)
