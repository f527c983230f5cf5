"""The truth lies where the law says it does, over many data sets from the prior; other readings of them fail."""

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import norm

from pymc_dirdp.inference.posterior import draw, draw_shares
from pymc_dirdp.inference.product_law import ProductLaw
from pymc_dirdp.inference.totals import PrivateTotal, RowTotals

from .laws import dirichlet, geometric, simulated, together, urn

SETS = 400
DRAWS = 99


def rank(truth, drawn, rng):
    """Where the truth lies among the draws, ties broken at random: uniform on (0, 1) if both have one law."""
    below = (drawn < truth).sum(axis=0) + rng.random(truth.shape) * ((drawn == truth).sum(axis=0) + 1)
    return below / (len(drawn) + 1)


def p_value(ranks):
    """Smallest of the p-values for middle and width of the ranks; the cells of one data set count as one."""
    ranks = np.asarray(ranks)
    found = []
    for score in (ranks - 0.5, (ranks - 0.5) ** 2 - 1 / 12):
        mean = score.reshape(len(ranks), -1).mean(axis=1)
        found.append(2 * norm.sf(abs(mean.mean()) / mean.std() * np.sqrt(len(mean))))
    return min(found)


def coverage_is_nominal(ranks):
    flat = np.asarray(ranks)
    for prob in (0.5, 0.8, 0.95):
        inside = (np.abs(flat - 0.5) < prob / 2).reshape(len(flat), -1).mean(axis=1)
        assert abs(inside.mean() - prob) < 4 * inside.std() / np.sqrt(len(inside)) + 0.005


def output_of(kind, x, r, rng):
    """An output of a mechanism and its likelihood, where r may be misread afterwards."""
    d, ones = len(x), np.ones(len(x))
    if kind == "dirichlet":
        y = np.maximum(rng.dirichlet(r * x + 1), 1e-300)
        return lambda r: dirichlet(y, r, ones)
    if kind == "three draws":
        ys = np.maximum(rng.dirichlet(r * x + 1, size=3), 1e-300)
        return lambda r: together(*(dirichlet(y, r, ones) for y in ys))
    if kind == "urn":
        seen = rng.multinomial(500, rng.dirichlet(r * x + 1))
        return lambda r: urn(seen, r, ones)
    if kind == "laplace":
        z = x + rng.laplace(size=d) / r
        return lambda r: geometric(z, 1 / r)
    if kind == "geometric":
        z = x + rng.geometric(-np.expm1(-r), size=d) - rng.geometric(-np.expm1(-r), size=d)
        return lambda r: geometric(z, 1 / r)
    z = x + rng.normal(size=d) / r
    return lambda r: lambda c, i: -((r * (c - z[i])) ** 2) / 2


CASES = {
    "two cells": ("dirichlet", 2, 100, 1.0, 1.0),
    "weak": ("dirichlet", 4, 1000, 0.1, 1.0),
    "sparse": ("dirichlet", 10, 1000, 0.1, 0.2),
    "many cells": ("dirichlet", 40, 500, 0.5, 1.0),
    "three draws": ("three draws", 4, 300, 0.2, 1.0),
    "urn": ("urn", 5, 300, 0.3, 1.0),
    "laplace": ("laplace", 10, 300, 0.2, 1.0),
    "geometric": ("geometric", 10, 300, 0.05, 0.2),
    "gaussian": ("gaussian", 10, 300, 0.15, 1.0),
}


def ranks_of(case, *, misread_r=1.0, misread_total=1.0, seed=1):
    kind, d, total, r, alpha = CASES[case]
    rng = np.random.default_rng(seed)
    shares, counts = [], []
    for _ in range(SETS):
        p, x = simulated(d, total, alpha, rng)
        likelihood = output_of(kind, x, r, rng)(r * misread_r)
        law = ProductLaw(alpha=np.full(d, alpha), total=round(total * misread_total), log_likelihood=likelihood)
        drawn = draw(law, DRAWS, rng)
        shares.append(rank(p, drawn.shares, rng))
        counts.append(rank(x, drawn.counts, rng))
    return shares, counts


@pytest.mark.parametrize("case", CASES)
def test_calibrated(case):
    for ranks in ranks_of(case):
        assert p_value(ranks) > 1e-6
        coverage_is_nominal(ranks)


@pytest.mark.parametrize(
    ("case", "misread"),
    [
        ("weak", {"misread_r": 0.6}),
        ("sparse", {"misread_r": 1.5}),
        ("many cells", {"misread_r": 0.8}),
        ("geometric", {"misread_r": 1.6}),
        ("gaussian", {"misread_r": 1.2}),
        ("laplace", {"misread_total": 1.05}),
        ("gaussian", {"misread_total": 0.95}),
        ("urn", {"misread_total": 0.5}),
    ],
)
def test_a_misread_release_is_not_calibrated(case, misread):
    assert min(p_value(ranks) for ranks in ranks_of(case, **misread)) < 1e-6


def test_reading_a_draw_as_data_is_not_calibrated():
    rng = np.random.default_rng(2)
    ranks = []
    for _ in range(SETS):
        p, x = simulated(4, 1000, 1.0, rng)
        y = rng.dirichlet(0.1 * x + 1)
        ranks.append(rank(p, draw_shares(np.tile(1000 * y, (DRAWS, 1)), np.ones(4), rng), rng))
    assert p_value(ranks) < 1e-6
    assert np.mean(np.abs(np.asarray(ranks) - 0.5) < 0.475) < 0.6


@pytest.mark.parametrize(("wrong", "calibrated"), [(0, True), (40, False)])
def test_a_private_total_is_calibrated(wrong, calibrated):
    """The total is uniform on 0..80; somebody who is sure that it is 41 at least is not calibrated."""
    rng = np.random.default_rng(3)
    ranks = []
    for _ in range(SETS):
        total = int(rng.integers(0, 81))
        _, x = simulated(3, total, 1.0, rng)
        likelihood = output_of("geometric", x, 0.3, rng)(0.3)
        law = ProductLaw(alpha=np.ones(3), total=80, log_likelihood=likelihood)
        found = PrivateTotal(law, log_prior=lambda n: np.where(n >= wrong, 0.0, -40.0))
        ranks.append(rank(x, found.draw(DRAWS, rng)[0], rng))
    assert (p_value(ranks) > 1e-6) == calibrated


@pytest.mark.parametrize("calibrated", [True, False])
def test_rows_are_calibrated(calibrated):
    """Rows whose totals are drawn with their counts; somebody who takes all rows to be equal is not calibrated."""
    rng = np.random.default_rng(4)
    ranks = []
    for _ in range(SETS // 2):
        totals = rng.multinomial(120, rng.dirichlet(np.ones(3)))
        xs = [simulated(2, int(n), 1.0, rng)[1] for n in totals]
        rows = [
            ProductLaw(alpha=np.ones(2), total=120, log_likelihood=output_of("dirichlet", x, 0.3, rng)(0.3)) for x in xs
        ]
        if calibrated:
            found = RowTotals(rows, total=120, log_factors=[lambda n: gammaln(0.3 * n + 2)] * 3)
            tables, _ = found.draw(DRAWS, rng)
        else:
            tables = [draw(row.at(40), DRAWS, rng).counts for row in rows]
        ranks.append(np.concatenate([rank(x, table, rng) for x, table in zip(xs, tables, strict=True)]))
    assert (p_value(ranks) > 1e-6) == calibrated
    if calibrated:
        coverage_is_nominal(ranks)
