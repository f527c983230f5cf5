"""Rows of counts with a known total: against all tables, in units, with many cells and many records."""

import tracemalloc
from functools import reduce

import numpy as np
import pytest
from scipy.special import gammaln, softmax

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.numbers import TooManyNumbersError
from pymc_dirdp.inference.rows import BatchedRows, RowPosterior
from tests.oracles import drawn_p_value

from .posteriors import ALPHA, LIKELIHOODS, brute_force, geometric, released, row, simulated, tabulated


def tiny(x, i):
    """Likelihoods of e-800 and below in every cell, and counts that are impossible, in the middle too."""
    return np.where((i == 1) & ((x < 2) | (x == 5)), -np.inf, LIKELIHOODS["geometric"](x, i) - 800.0 * (1 + i))


def conflict(x, i):
    """A sparse cell is empty or near 60, another is sharply in between: the total is improbable under every tilt."""
    return -((x - np.array([60.0, 70.0])[i]) ** 2) / 18


def hardly_between(x, i):
    """Counts are 0 or 12, all but never between, and add up to 36 or to 31: no tilt makes that probable."""
    return -3.0 * np.minimum(x, np.abs(12 - x)) - 0.1 * i


def rare():
    """One cell is 0, 60 or, much less likely, between; another is nearly known, so it has to be between; one is 0."""
    table = np.full((3, 101), -np.inf)
    table[0, [0, 29, 30, 60]] = [0.0, -31.0, -30.0, 0.0]
    table[1, [70, 71]] = 0.0
    table[2, 0] = 0.0
    return table


ROWS = {
    **{name: row(name) for name in LIKELIHOODS},
    **{f"{name}, at least 2": row(name, least=2) for name in ("urn", "geometric", "pooled")},
    "likelihoods of next to nothing": RowPosterior(alpha=ALPHA, total=12, log_likelihood=tiny),
    "only tables far from every peak": RowPosterior(alpha=[1e-3, 1.0], total=100, log_likelihood=conflict),
    **{
        f"a total of {total} that is hardly possible": RowPosterior(
            alpha=[1.0, 0.5, 2.0], total=total, log_likelihood=hardly_between, smooth=False
        )
        for total in (36, 31)
    },
    **{
        f"a rare total of {d} cells": RowPosterior(
            alpha=np.ones(d), total=100, log_likelihood=tabulated(rare()[:d]), smooth=False
        )
        for d in (2, 3)
    },
}


@pytest.mark.parametrize("name", ROWS)
def test_evidence_moments_and_draws_are_those_of_all_tables(name):
    """In a batch with rows of other totals, if these have as many cells."""
    rows = [ROWS[name]]
    if len(rows[0].alpha) == 3 and rows[0].smooth:
        rows = [*rows, row("dirichlet", total=0), row("dirichlet", total=6)]
    known = BatchedRows(rows)
    drawn = known.draw(10_000, np.random.default_rng(8))
    for place, posterior in enumerate(rows):
        tables, logs, evidence = brute_force(posterior)
        means = np.exp(logs) @ tables
        assert known.log_evidences[place] == pytest.approx(evidence, abs=1e-9)
        np.testing.assert_allclose(known.moments[0][place], means, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(known.moments[1][place], np.exp(logs) @ (tables - means) ** 2, atol=1e-9)
        assert drawn_p_value(drawn[:, place], tables, np.exp(logs)) > 1e-6
        if name == "geometric" and not place:
            assert drawn_p_value(drawn[:, place], tables, softmax(logs + 0.2 * tables[:, 0])) < 1e-6


# All cells are empty, and the total is not; every cell holds two at least; even counts, odd total; no count.
IMPOSSIBLE = [[[0, 1, 1, 1]] * 3, [[1, 1, 0, 0]] * 3, [[0, 1, 0, 1]] * 3, [[0] * 4, [0] * 4, [1] * 4]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"alpha": [1.0, 0.0, 1.0]}, "alpha"),
        ({"alpha": np.ones((2, 3))}, "one row"),
        ({"total": -1}, "total"),
        ({"total": 1.5}, "total"),
        ({"least": 5}, "least"),
        *(
            ({"total": 3, "log_likelihood": tabulated(np.where(table, -np.inf, 0)), "smooth": False}, "No table")
            for table in IMPOSSIBLE
        ),
    ],
)
def test_what_is_impossible_is_an_error(options, words):
    with pytest.raises(ArgumentError, match=words):
        _ = RowPosterior(**{"alpha": ALPHA, "total": 12, "log_likelihood": LIKELIHOODS["urn"], **options}).means


@pytest.mark.parametrize("middle", [(12_345, 54_321), (12_345, 54_321, 20_000)])
@pytest.mark.parametrize("off", [4, 0, -19])
def test_a_total_is_not_called_impossible_before_the_counts_are_found(middle, off):
    """Found when the documentation was built: no node lay near the few numbers of records that a row may have."""
    near, d = np.arange(-10, 11), len(middle)

    def log_likelihood(x, i):
        distance = np.abs(x - np.array(middle)[i])
        return np.where(distance <= 10, -2.0 * distance, -np.inf)

    total = sum(middle) + off
    sums = reduce(np.convolve, [np.exp(-2.0 * np.abs(near))] * d)
    expected = np.log(sums[10 * d + off]) + gammaln(total + 1) + gammaln(d) - gammaln(total + d)
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        found = RowPosterior(alpha=np.ones(d), total=total, log_likelihood=log_likelihood).log_evidence
    assert found == pytest.approx(expected, abs=1e-8)


def test_one_cell_far_wider_than_all_others_together():
    """Sums of the small cells decide; the wide one takes what they leave."""
    z = np.array([7e5, 1e5 + 20.0, 1e5 - 25.5, 1e5 + 15.0])
    scale = np.array([2e4, 3.0, 1.0, 2.0])
    posterior = RowPosterior(
        alpha=np.ones(4), total=10**6, log_likelihood=lambda x, i: -((z[i] - x) ** 2) / (2 * scale[i] ** 2)
    )
    # The small cells by all their numbers: what is left is the wide one's.
    near = [np.arange(np.rint(z[i]) - 40 * scale[i], np.rint(z[i]) + 40 * scale[i] + 1) for i in (1, 2, 3)]
    grid = np.meshgrid(*near, indexing="ij")
    last = 10**6 - sum(grid)
    logs = sum(posterior.log_likelihood(x, np.array(i)) for i, x in zip((0, 1, 2, 3), (last, *grid), strict=True))
    mass = np.exp(logs - logs.max())
    mass /= mass.sum()
    means = np.array([np.sum(mass * x) for x in (last, *grid)])
    np.testing.assert_allclose(posterior.means, means, rtol=1e-10)
    variances = [np.sum(mass * (x - mean) ** 2) for x, mean in zip((last, *grid), means, strict=True)]
    np.testing.assert_allclose(posterior.variances, variances, rtol=1e-8)


def test_ten_million_records_take_little_memory():
    posterior = released(50, 10**7, 10.0, 1.0, 5)
    tracemalloc.start()
    means = posterior.means
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
    assert means.sum() == pytest.approx(1e7, rel=1e-9)


def test_many_cells_are_summed_and_drawn_in_halves():
    """The search for the tilt starts with a sample of so many cells."""
    d, rng = 600, np.random.default_rng(1)
    _, x = simulated(d, 6000, 1.0, rng)
    posterior = RowPosterior(alpha=np.ones(d), total=6000, log_likelihood=geometric(x + rng.normal(size=d), 3.0))
    means, variances = posterior.means, posterior.variances
    assert means.sum() == pytest.approx(6000, rel=1e-10)
    assert np.mean(np.abs(means - x)) < 6
    counts = posterior.batch.draw(3000, rng)[:, 0]
    z = ((counts.mean(axis=0) - means) / np.sqrt(variances / 3000))[variances > 0.04]
    assert np.abs(z).max() < 5.5
    assert np.mean(z**2) == pytest.approx(1, abs=0.4)
    # What halves could spoil is how cells go together: given the total the sum over the first half varies less.
    half = counts[:, : d // 2].sum(axis=1).var()
    first, second = variances[: d // 2].sum(), variances[d // 2 :].sum()
    assert half == pytest.approx(first * second / (first + second), rel=0.15)
    assert abs(half / first - 1) > 0.3


@pytest.mark.parametrize(("unit", "known_shares"), [(4.0, False), (20.0, False), (4.0, True)])
def test_counts_in_units_are_off_by_the_square_of_the_unit(unit, known_shares):
    rng, alpha = np.random.default_rng(1), np.array([0.01, 0.01, 0.5, 3.0])
    z = rng.multinomial(40_000, rng.dirichlet(alpha)) + rng.laplace(0, 1000, 4).round()
    shares = np.log(rng.dirichlet(alpha + 1)) if known_shares else None
    every = RowPosterior(alpha=alpha, total=40_000, log_likelihood=geometric(z, 1000.0), log_shares=shares)
    units, sds = every.in_units(unit), np.sqrt(every.variances)
    # With known shares the counts have a width of their own, and kinks of noise stand between multiples.
    error = 20 * (units.unit / min(1000.0, sds.max())) ** 2
    assert abs(units.log_evidence - every.log_evidence) < error
    assert np.all(np.abs(units.means - every.means) < error * sds)
    assert np.all(np.abs(np.sqrt(units.variances) - sds) < error * sds + known_shares * units.unit / 2)


def test_draws_in_units_add_up_and_have_the_moments():
    posterior = RowPosterior(
        alpha=[0.05, 1.0, 2.0], total=1_674_501_301, log_likelihood=geometric([-1e8, 4e8, 1.3e9], 1e8)
    )
    known = BatchedRows.summable([posterior])
    assert known.units[0] > 1
    counts = known.draw(20_000, np.random.default_rng(1))[:, 0]
    assert np.all(counts.sum(axis=1) == posterior.total)
    assert np.all(counts >= 0)
    means, variances = (of[0] for of in known.moments)
    assert np.all(np.abs(counts.mean(axis=0) - means) < 4.5 * np.sqrt(variances / 20_000))
    np.testing.assert_allclose(counts.std(axis=0), np.sqrt(variances), rtol=0.05)
    # A small prior says that a cell is nearly empty, whatever a unit is: counts fall by powers of ten, nearly.
    near = counts[:, 0][counts[:, 0] < 1e6]
    assert len(near) > 500
    levels = np.array([1e1, 1e2, 1e3, 1e4, 1e5])
    expected = np.exp(gammaln(levels + 1 + 0.05) - gammaln(levels + 1)) / np.exp(gammaln(1e6 + 0.05) - gammaln(1e6))
    found = (near[:, None] <= levels).mean(axis=0)
    assert np.all(np.abs(found - expected) < 4.5 * np.sqrt(expected * (1 - expected) / len(near)) + 8e-3)


def test_what_units_cannot_do_is_refused():
    """Guaranteed counts, few records, and counts that are known one by one, which follow no curve between them."""
    many = {"name": "geometric", "total": 1000}
    for posterior, unit in ((row(**many, least=2), 4.0), (row("geometric"), 100.0), (row(**many, smooth=False), 4.0)):
        with pytest.raises(TooManyNumbersError, match="larger parameters"):
            posterior.in_units(unit)
