"""Edges at quantiles: brute force over all neighbours of small data sets, mutants, accuracy, and odd arguments."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.mechanisms.choices import QuantilesMechanism
from pymc_dirdp.privacy.bounded_loss import BoundedRange
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.loss_distribution import FiniteDistributions
from pymc_dirdp.sampling import drawing
from pymc_dirdp.sampling.drawing import SecretCounts


def scores_of(mechanism, counts):
    return np.array(mechanism.prepare().scores(SecretCounts(counts)), dtype=float)


def edge_distributions(mechanism, data):
    """The logarithm of the distribution of each edge.

    `data` are the numbers of candidates that each record has reached.
    """
    between = np.bincount(data, minlength=mechanism.n_candidates + 1)
    scores = scores_of(mechanism, between) / (mechanism.scale * mechanism.n_bins)
    return scores - np.logaddexp.reduce(scores, axis=1, keepdims=True)


def printed_distribution(mechanism, data):
    """The same from the definition: shares of records below each candidate, counted one by one."""
    rows = []
    for edge in range(1, mechanism.n_bins):
        aim = edge / mechanism.n_bins * len(data)
        below = [sum(record <= i for record in data) for i in range(mechanism.n_candidates)]
        weights = [math.exp(-abs(count - aim) / mechanism.scale) for count in below]
        rows.append([math.log(weight / math.fsum(weights)) for weight in weights])
    return np.array(rows)


def joint(logs):
    """The logarithm of the distribution of all edges before equal ones are joined."""
    total = np.zeros(1)
    for row in logs:
        total = np.add.outer(total, row).ravel()
    return total


def neighbours(mechanism, n):
    values, m = range(mechanism.n_candidates + 1), mechanism.contribution
    for data in itertools.combinations_with_replacement(values, n):
        for places in {tuple(sorted(c)) for c in itertools.combinations(range(n), m)}:
            rest = tuple(record for i, record in enumerate(data) if i not in places)
            if mechanism.adjacency == "add-remove":
                yield data, rest
                yield rest, data
            else:
                yield from ((data, rest + others) for others in itertools.product(values, repeat=m))


CASES = {
    "replace-one": QuantilesMechanism(3, n_candidates=3, scale=1.0),
    "add-remove": QuantilesMechanism(3, n_candidates=3, scale=1.0, adjacency="add-remove"),
    "many bins": QuantilesMechanism(5, n_candidates=2, scale=1.5, adjacency="add-remove"),
    "two records": QuantilesMechanism(3, n_candidates=3, scale=2.0, adjacency="add-remove", contribution=2),
    "two replaced": QuantilesMechanism(2, n_candidates=3, scale=2.0, contribution=2),
}


@pytest.mark.parametrize("name", CASES)
def test_no_neighbours_lose_more_than_the_curves(name):
    mechanism = CASES[name]
    orders, epsilons = (1.0, 2.0, 30.0), [share * mechanism.pure_epsilon for share in (0.0, 0.2, 0.6)]
    claimed = [mechanism.pure_epsilon, *map(mechanism.delta, epsilons), *map(mechanism.renyi, orders)]
    reached = np.zeros(len(claimed))
    for n in (2, 3, 4):
        for one, other in neighbours(mechanism, n):
            mine, its = (edge_distributions(mechanism, list(data)) for data in (one, other))
            distributions = FiniteDistributions(joint(mine), joint(its))
            found = [distributions.pure_epsilon, *map(distributions.delta, epsilons), *map(distributions.renyi, orders)]
            reached = np.maximum(reached, np.array(found) / claimed)
    assert reached.max() <= 1 + 1e-9
    assert reached[0] > 0.3


@pytest.mark.parametrize(
    ("bins", "records", "sizes"),
    [(2, 1, 6), (5, 1, 8), (20, 1, 20), (3, 2, 8), (10, 2, 20), (8, 3, 9)],
)
def test_no_record_is_the_worst_for_edges_on_both_sides(bins, records, sizes):
    """The widths of all edges together, in integers, for all data sets and all records that are added to them."""
    mechanism = QuantilesMechanism(bins, n_candidates=3, scale=1.0, adjacency="add-remove", contribution=records)
    claims = [mechanism._widths(k, records - k) for k in mechanism._splits]
    claims = (np.array([*claims, *(claim[::-1] for claim in claims)]) * bins).astype(int)
    found = set()
    for n in range(sizes % 5, sizes + 1, 5) if bins > 7 else range(sizes + 1):
        for data in itertools.combinations_with_replacement(range(4), n):
            for added in itertools.combinations_with_replacement(range(4), records):
                before, after = (
                    scores_of(mechanism, np.bincount(each, minlength=4)) for each in (data, (*data, *added))
                )
                found.add(tuple(np.ptp(after - before, axis=1).tolist()))
    assert all(np.any(np.all(np.array(widths) <= claims, axis=1)) for widths in found)
    sums = [sum(max(2 * (bins - j), bins) for j in range(1, bins)) * records, max(map(sum, found))]
    assert max(claims.sum(axis=1)) == sums[0]
    # What is claimed is reached; each edge by itself has a width of `2 max(q, 1 - q)` for each record.
    if records < 3:
        assert sums[1] == sums[0]
        assert np.max(list(found), axis=0).tolist() == [2 * records * max(j, bins - j) for j in range(1, bins)]


@pytest.mark.parametrize(("bins", "share"), [(2, 1.0), (3, 0.875), (20, 0.839)])
@pytest.mark.parametrize("records", [1, 5])
def test_what_the_edges_cost_together(bins, share, records):
    """A share of `2 max(q, 1 - q)` for each edge and record."""
    mechanism = QuantilesMechanism(bins, n_candidates=9, scale=16.0, adjacency="add-remove", contribution=records)
    apart = sum(2 * max(j, bins - j) for j in range(1, bins)) / bins * records / 16
    assert mechanism.pure_epsilon == pytest.approx(share * apart, rel=1e-3)
    worst = Composition(tuple((BoundedRange(float(u) / 16), 1) for u in mechanism._widths(records, 0)))
    assert mechanism.rho(math.inf) == pytest.approx(worst.rho(math.inf))
    for epsilon in (0.1, 0.5, 0.95):
        at = epsilon * mechanism.pure_epsilon
        assert mechanism.delta(at) >= worst.delta(at) * (1 - 1e-12)
    # Beside another release, and for more records than are split one by one, every record counts for every edge.
    beside = Composition(((mechanism, 1), (BoundedRange(0.5), 1))).pure_epsilon - 0.5
    assert beside == pytest.approx((apart if len(mechanism._splits) > 1 else share * apart), rel=1e-3)
    assert replace(mechanism, contribution=400).pure_epsilon <= apart / records * 400 * (1 + 1e-12)


def test_the_distribution_is_the_one_of_the_definition():
    rng = np.random.default_rng(1)
    for mechanism in CASES.values():
        for n in (0, 1, 30):
            data = rng.integers(0, mechanism.n_candidates + 1, n)
            assert edge_distributions(mechanism, data) == pytest.approx(
                printed_distribution(mechanism, list(data)), abs=1e-9
            )


def test_what_is_drawn_is_that_distribution(monkeypatch):
    """The scale that the draw is called with, and the scores; the draw itself is tested in its own file."""
    mechanism, asked = CASES["many bins"], []

    def scripted(scores, scale, bits):
        asked.append(np.array(scores, dtype=float) / float(scale))
        return len(asked) % 2

    monkeypatch.setattr(drawing, "chosen", scripted)
    assert mechanism.release([4, 0, 9]) == (0, 1)
    logs = np.array(asked) - np.logaddexp.reduce(asked, axis=1, keepdims=True)
    assert logs == pytest.approx(edge_distributions(mechanism, [0] * 4 + [2] * 9))


@pytest.mark.parametrize(
    "guarantee",
    [dirdp.PureDP(epsilon=1.0), dirdp.ZeroCDP(rho=0.1), dirdp.ApproxDP(epsilon=1.0, delta=1e-6)],
)
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_every_kind_of_guarantee_is_used_up(guarantee, adjacency):
    mechanism = QuantilesMechanism.for_guarantee(guarantee, n_bins=10, n_candidates=50, adjacency=adjacency)
    assert mechanism.satisfies(guarantee)
    stronger = QuantilesMechanism(10, n_candidates=50, scale=mechanism.scale * 0.998, adjacency=adjacency)
    assert not stronger.satisfies(guarantee)
    # A record that is added or removed costs less, and at half of the edges half of it.
    assert mechanism.scale <= QuantilesMechanism.for_guarantee(guarantee, n_bins=10, n_candidates=50).scale


def test_edges_are_near_the_quantiles():
    """An edge misses by more than scale (log(candidates) + t) records with a probability of exp(-t) at most."""
    rng = np.random.default_rng(5)
    data = rng.normal(size=20_000)
    candidates = np.linspace(-4, 4, 801)
    mechanism = QuantilesMechanism.for_guarantee(dirdp.ApproxDP(epsilon=1, delta=1e-6), n_bins=10, n_candidates=801)
    between = np.bincount(np.searchsorted(candidates, data, side="right"), minlength=802)
    edges = candidates[list(mechanism.release(between, random_seed=1))]
    assert len(edges) == 9
    missed = np.abs([np.sum(data < edge) for edge in edges] - np.arange(1, 10) * 2000)
    # The grid itself misses by 45 records at most: half of a step where the density is largest, with its noise.
    assert np.all(missed < mechanism.scale * (math.log(801) + 20) + 60)
    assert np.all(missed < 400)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"n_bins": 1}, "n_bins"),
        ({"n_bins": 1001}, "at most 1000 bins"),
        ({"n_candidates": 0}, "n_candidates"),
        ({"n_candidates": 10**5 + 1}, "100000 candidates"),
        ({"scale": 0.0}, "scale"),
        ({"scale": math.nan}, "scale"),
        ({"scale": 1e300}, "scale"),
        ({"adjacency": "both"}, "adjacency"),
        ({"contribution": 0}, "contribution"),
    ],
)
def test_odd_arguments(wrong, said):
    with pytest.raises(ArgumentError, match=said):
        QuantilesMechanism(**{"n_bins": 3, "n_candidates": 4, "scale": 1.0} | wrong)


def test_what_is_refused_and_what_has_one_answer():
    assert QuantilesMechanism(3, n_candidates=1, scale=1.0).release([0, 0]) == (0,)
    mechanism = QuantilesMechanism(3, n_candidates=2, scale=1.0)
    assert len(mechanism.release([0] * 3)) <= 2
    for wrong in ([7, 8], [[7, 8, 9]], [7.0, 8.0, 9.0]):
        with pytest.raises(DataError, match="Expected 3 integers") as caught:
            mechanism.release(wrong)
        assert not {"7", "8", "9"} & set(str(caught.value))
    with pytest.raises(UnattainableError, match="No scale satisfies"):
        QuantilesMechanism.for_guarantee(dirdp.PureDP(epsilon=1e-25), n_bins=3, n_candidates=4)
