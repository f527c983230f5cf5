"""The sparse geometric mechanism.

Its distribution against the dense one, its guarantee by all outputs, and what it refuses.
"""

import math
import re
from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import gammaincc
from scipy.stats import chi2, ncx2

from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.mechanisms.sparse import SparseGeometricMechanism, least_threshold
from pymc_dirdp.planning.prices import calibrate
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP

CELLS, COUNTS, MOST = [4, 1], [1, 3], 3


def outcome_distribution(scale, threshold, table):
    """The distribution of what is seen of a whole table.

    For each cell nothing, or a noisy count, where large ones are one.
    """
    q = math.exp(-1 / scale)
    far = np.arange(-400, 401)
    noise = (1 - q) / (1 + q) * q ** np.abs(far)
    each = []
    for count in table:
        above = [noise[far == threshold + x - count].item() for x in range(MOST)]
        rest = noise[far >= threshold + MOST - count].sum()
        each.append([1 - sum(above) - rest, *above, rest])
    return {
        seen: math.prod(distribution[x] for distribution, x in zip(each, seen, strict=True))
        for seen in product(*map(range, [MOST + 2] * len(table)))
    }


def seen_of(listed, noisy, n_cells, threshold):
    seen = [0] * n_cells
    for cell, value in zip(listed.tolist(), noisy.tolist(), strict=True):
        seen[cell] = min(value - threshold, MOST) + 1
    return tuple(seen)


@pytest.mark.thorough
@pytest.mark.parametrize("threshold", [1, 2])
def test_the_list_has_the_distribution_of_the_dense_table_and_the_test_has_power(threshold):
    """Chi-square at 1e-6 of all that is seen of five cells at once; a scale 30 % away is found almost surely."""
    scale, draws, n_cells = 1.0, 5_000, 5
    mechanism = SparseGeometricMechanism(n_cells, threshold, scale)
    rng = np.random.default_rng(3)
    table = np.zeros(n_cells, dtype=int)
    table[CELLS] = COUNTS
    lists = Counter(
        seen_of(*mechanism.release(CELLS, COUNTS, random_seed=rng), n_cells, threshold) for _ in range(draws)
    )
    dense = GeometricMechanism(np.ones((draws, n_cells)), scale).release(
        np.broadcast_to(table, (draws, n_cells)), random_seed=rng
    )
    others = Counter(
        seen_of(np.flatnonzero(row >= threshold), row[row >= threshold].astype(int), n_cells, threshold)
        for row in dense
    )
    distributions = [outcome_distribution(value, threshold, table) for value in (scale, 1.3 * scale)]
    common = [
        seen for seen in distributions[0] if draws * min(distribution[seen] for distribution in distributions) >= 10
    ]

    def together(weights, total):
        values = np.array([weights[seen] for seen in common], dtype=float)
        return np.append(values, total - values.sum())

    true, wrong = (draws * together(distribution, 1.0) for distribution in distributions)
    least = chi2.isf(1e-6, len(common))
    assert ncx2.sf(least, len(common), float(np.sum((true - wrong) ** 2 / wrong))) > 0.999
    for counted in (lists, others):
        seen = together(counted, draws)
        assert np.sum((seen - true) ** 2 / true) < least < np.sum((seen - wrong) ** 2 / wrong)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("contribution", [1, 2])
def test_the_guarantee_holds_over_all_outputs_of_neighbours(adjacency, contribution):
    """Three cells; the neighbours are those that a person with so many records can make."""
    scale, threshold = 1.5, 2
    mechanism = SparseGeometricMechanism(3, threshold, scale, adjacency=adjacency, contribution=contribution)
    if adjacency == "replace-one":
        pairs = [((contribution, 2, 0), (0, 2, contribution)), ((contribution, 0, 0), (0, 1, contribution - 1))]
    else:
        pairs = [((contribution, 2, 0), (0, 2, 0)), ((1, contribution - 1, 4), (0, 0, 4))]
    worst = 0.0
    for pair in pairs:
        for one, other in (pair, pair[::-1]):
            p, q = (outcome_distribution(scale, threshold, table) for table in (one, other))
            worst = max(worst, *(abs(math.log(p[seen] / q[seen])) for seen in p))
            for epsilon in (0.0, 0.3, 0.9 * mechanism.pure_epsilon):
                stick = sum(max(p[seen] - math.exp(epsilon) * q[seen], 0.0) for seen in p)
                assert stick <= mechanism.delta(epsilon) * (1 + 1e-12)
    assert worst <= mechanism.pure_epsilon * (1 + 1e-12)
    # Nothing is guaranteed that is not needed: on large noisy counts the loss is that of the dense table.
    assert worst > 0.6 * mechanism.pure_epsilon


def test_curves_are_those_of_the_dense_table():
    mechanism = SparseGeometricMechanism(10**10, 60, 2.5, contribution=3)
    dense = GeometricMechanism(np.ones((40, 25)), 2.5, contribution=3)
    assert mechanism.renyi(4.0) == dense.renyi(4.0)
    assert mechanism.delta(0.3) == dense.delta(0.3)
    assert mechanism.pure_epsilon == dense.pure_epsilon
    assert mechanism.satisfies(PureDP(epsilon=mechanism.pure_epsilon))
    target = ApproxDP(epsilon=0.7, delta=1e-7)
    made = SparseGeometricMechanism.for_guarantee(target, n_cells=10**9, threshold=90, contribution=2)
    assert made.satisfies(target)
    assert not SparseGeometricMechanism(10**9, 90, made.scale * (1 - 1e-8), contribution=2).satisfies(target)


def test_the_cells_come_in_order_and_each_once_also_where_all_hold_records():
    mechanism = SparseGeometricMechanism(50, 1, 3.0)
    for seed in range(20):
        cells = np.random.default_rng(seed).permutation(50)[: 1 + 2 * seed]
        listed, noisy = mechanism.release(cells, np.full(len(cells), 5), random_seed=seed)
        assert np.all(np.diff(listed) > 0)
        assert 0 <= listed[0] <= listed[-1] < 50
        assert noisy.dtype == listed.dtype == np.int64
        assert noisy.min() >= 1
        # The same list, in whatever order the cells come, so the order of the records is not in it.
        order = np.argsort(cells)
        assert set(mechanism.release(cells[order], np.full(len(cells), 10**6), random_seed=seed)[0]) >= set(cells)


def test_what_is_drawn_for_empty_cells_does_not_depend_on_which_these_are():
    mechanism = SparseGeometricMechanism(200, 3, 2.0)
    lists = [set(mechanism.release([cell], [10**9], random_seed=4)[0].tolist()) for cell in (10, 150)]
    assert lists[0] - {10, 150} == lists[1] - {10, 150}
    assert len(lists[0]) > 10


def test_the_ends_of_the_domain():
    mechanism = SparseGeometricMechanism(2**63 - 1, 100, 2.0)
    cells = [0, 2**63 - 2, 2**62 + 1]
    listed, noisy = mechanism.release(cells, [2**53, 2**53, 0])
    assert listed[0] == 0
    assert listed[-1] == 2**63 - 2
    assert noisy.max() <= 2**53
    # A cell that is named with no record is as good as one that is not named.
    assert 2**62 + 1 not in listed
    assert all(part.size == 0 for part in mechanism.release([], []))


@pytest.mark.parametrize(
    ("cells", "counts", "says"),
    [
        ([1, 1], [1, 2], "named twice"),
        ([-1], [2], "outside of the table"),
        ([100], [2], "outside of the table"),
        ([2**63], [2], "outside of the table"),
        ([2**70], [2], "integers"),
        ([1.0], [2], "integers"),
        ([True], [2], "integers"),
        (["a"], [2], "integers"),
        ([[1], [2]], [[1], [2]], "integers"),
        ([[1], [2, 3]], [1, 2], "integers"),
        (1, 2, "integers"),
        ([1, 2], [1], "one count for each"),
        ([1], [[1]], "one count for each"),
        ([1], [-1], "negative"),
        ([1], [1.5], "not integers"),
        ([1], [np.nan], "missing"),
        ([1], [2.0**60], "above 2"),
        ([1], ["x"], "array of integers"),
    ],
)
def test_bad_tables_are_refused_without_showing_them(cells, counts, says):
    with pytest.raises(DataError, match=says) as caught:
        SparseGeometricMechanism(100, 5, 2.0).release(cells, counts)
    # Neither a cell nor a count nor how many there are.
    assert not re.search(r"[3-9]|\d\d", str(caught.value).replace("2**53", ""))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((10**10, 0, 2.0), "Expected threshold >= 1.*not private either.*Take threshold=46"),
        ((10**10, -5, 2.0), "Expected threshold >= 1"),
        ((10**10, math.nan, 2.0), "threshold"),
        ((10**10, 1.5, 2.0), "threshold to be an integer"),
        ((10**10, None, 2.0), "threshold"),
        ((10**10, 2**41, 2.0), "at most 2\\*\\*40"),
        ((10**10, 5, 2.0), r"about 5.11e\+08 empty cells.*so few is 18, and 46"),
        ((1, 5, 2.0), "n_cells"),
        ((2**63, 5, 2.0), "n_cells below 2\\*\\*63"),
        ((100, 5, 1e-3), "scale between"),
        ((100, 5, 1e13), "scale between"),
        ((100, 5, -1.0), "scale > 0"),
    ],
)
def test_bad_parameters_are_refused_with_a_way_out(arguments, says):
    with pytest.raises(ArgumentError, match=says):
        SparseGeometricMechanism(*arguments)


def test_the_ways_out_that_errors_name_work():
    with pytest.raises(ArgumentError) as caught:
        SparseGeometricMechanism(10**10, 5, 2.0)
    few, one = (int(found) for found in re.findall(r"(?:few is|and) (\d+)", str(caught.value)))
    assert SparseGeometricMechanism(10**10, few, 2.0).expected_false <= 1e6
    assert SparseGeometricMechanism(10**10, one, 2.0).expected_false <= 1


@pytest.mark.parametrize("n_cells", [2, 1000, 10**10, 2**63 - 1])
@pytest.mark.parametrize("false_cells", [1e-6, 1.0, 1000.0])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 20.0])
def test_the_least_threshold(n_cells, false_cells, epsilon):
    guarantee = PureDP(epsilon=epsilon)
    threshold = least_threshold(guarantee, n_cells, false_cells=false_cells)
    scale = GeometricMechanism.for_guarantee(guarantee, prior=np.ones(2)).scale

    def false(threshold):
        return n_cells * math.exp(-threshold / scale) / (1 + math.exp(-1 / scale))

    assert false(threshold) <= false_cells
    assert threshold == 1 or false(threshold - 1) > false_cells
    with pytest.raises(ArgumentError, match="false_cells"):
        least_threshold(guarantee, n_cells, false_cells=0.0)


def test_the_number_of_false_cells_is_the_expected_one():
    mechanism = SparseGeometricMechanism(10**9, 28, 2.0)
    listed = np.array([len(mechanism.release([], [], random_seed=seed)[0]) for seed in range(10)])
    assert abs(listed.sum() - 10 * mechanism.expected_false) < 6 * math.sqrt(10 * mechanism.expected_false)


def test_how_many_records_a_cell_needs_by_noise_and_by_gamma_numbers():
    """The table in docs/counting.md: of 10**8 cells 1000 are listed although empty, and with 95 % one with records."""
    guarantee, n_cells, false = ApproxDP(epsilon=1, delta=1e-6), 10**8, 1000
    threshold = least_threshold(guarantee, n_cells, false_cells=false)
    mechanism = SparseGeometricMechanism.for_guarantee(guarantee, n_cells=n_cells, threshold=threshold)
    needed = {"geometric noise": next(n for n in range(threshold, 100) if listed_with(mechanism, n) >= 0.95)}
    for alpha, called in ((1.0, "1"), (0.1, "0.1"), (1e-4, "1e-4")):
        needed[f"Gamma, prior parameter {called}"] = needed_by_gamma(guarantee, alpha, false / n_cells)
    page = (Path(__file__).parents[2] / "docs" / "counting.md").read_text(encoding="utf-8")
    for called, records in needed.items():
        (printed,) = re.findall(rf"\| {re.escape(called)} \| ([\d ]+) \|", page)
        assert int(printed.replace(" ", "")) == pytest.approx(records, rel=1e-3, abs=0.5)


def needed_by_gamma(guarantee, alpha, share):
    """As many records as a cell needs to pass the threshold that this share of the empty cells passes."""
    r = calibrate(guarantee, prior=[alpha] * 3, n_records=10**6, mechanism=Dirichlet(strategy="temper")).r
    tau = math.exp(brentq(lambda log: gammaincc(alpha, math.exp(log)) - share, -60, 4))
    return math.ceil((brentq(lambda a: gammaincc(a, tau) - 0.95, alpha, 100) - alpha) / r)


def listed_with(mechanism, count):
    """The probability that a cell with so many records, at least the threshold, is listed."""
    q = math.exp(-1 / mechanism.scale)
    return 1 - q ** (count - mechanism.threshold + 1) / (1 + q)
