"""The likelihood of the shares of few records: against all tables, one after the other, and against the general law."""

import itertools
import math
from dataclasses import replace

import mpmath
import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.inference import all_counts, table_law
from pymc_dirdp.inference.all_counts import AllCounts
from pymc_dirdp.inference.blocks import law_of
from pymc_dirdp.inference.product_law import ProductLaw
from pymc_dirdp.releases.inference_setup import conclusions

from .laws import tabulated

ROW_PRIOR = np.array([0.5, 1.0, 2.0])


def noisy(z):
    return lambda counts, cells: -np.abs(z[cells] - counts) / 1.5


def factor(totals):
    return -((totals - 2.3) ** 2) / 7


def rows_of(cells, rows, most, least=0):
    z = np.random.default_rng(rows + 10 * cells).uniform(-1, 4, (rows, cells))
    return [ProductLaw(alpha=np.ones(cells), total=most, log_likelihood=noisy(own), least=least) for own in z]


def table(rows, log_numbers):
    factors = [np.zeros_like, factor, np.zeros_like][: len(rows)]
    return AllCounts(rows, log_numbers, row_prior=ROW_PRIOR[: len(rows)], log_factors=factors)


def brute_force(rows, log_numbers, shares):
    """Over every table: the law of the totals of rows, the multinomial law of each row, and what was put out."""
    cells, found, least = shares.shape[1], [], rows[0].least
    with mpmath.workdps(40):
        prior = [mpmath.mpf(one) for one in ROW_PRIOR[: len(rows)].tolist()]
        for counts in itertools.product(range(len(log_numbers)), repeat=shares.size):
            total = sum(counts)
            if total >= len(log_numbers) or log_numbers[total] == -np.inf or min(counts) < least:
                continue
            by_row = np.reshape(counts, (len(rows), cells)).tolist()
            term = mpmath.exp(log_numbers[total]) * mpmath.factorial(total)
            term *= mpmath.gamma(sum(prior)) / mpmath.gamma(total + sum(prior))
            for i, (row, own) in enumerate(zip(rows, by_row, strict=True)):
                n = sum(own)
                term *= mpmath.gamma(n + prior[i]) / (mpmath.gamma(prior[i]) * mpmath.factorial(n))
                term *= mpmath.factorial(n) * mpmath.exp(factor(n) if i == 1 else 0)
                for c, (x, p) in enumerate(zip(own, shares[i].tolist(), strict=True)):
                    term *= mpmath.mpf(p) ** x / mpmath.factorial(x) * mpmath.exp(row.log_likelihood(x, c))
            found.append((term, by_row))
        whole = mpmath.fsum(term for term, _ in found)
        mean = sum(np.array(of, dtype=float) * float(term / whole) for term, of in found)
        return float(mpmath.log(whole)), mean


NUMBERS = {
    "public": np.where(np.arange(7) == 6, 0.0, -np.inf),
    "private": np.log([0.0, 0.1, 0.3, 0.0, 0.2, 0.3, 0.1], out=np.full(7, -np.inf), where=np.arange(7) % 3 > 0),
}


@pytest.mark.parametrize("least", [0, 1])
@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 3), (1, 2), (1, 4)])
@pytest.mark.parametrize("kind", NUMBERS)
def test_it_is_the_sum_over_all_tables(kind, shape, least):
    log_numbers = NUMBERS[kind]
    rows = rows_of(shape[1], shape[0], 6 - least * shape[1] * (shape[0] - 1), least)
    shares = np.random.default_rng(4).dirichlet(np.ones(shape[1]), shape[0])
    value, means = table(rows, log_numbers).given(np.log(shares))
    expected, expected_means = brute_force(rows, log_numbers, shares)
    assert value == pytest.approx(expected, rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(means, expected_means, rtol=1e-11)


def test_totals_may_be_taken_in_parts(monkeypatch):
    rows, log_numbers = rows_of(3, 3, 40), np.log(np.arange(1.0, 42))
    shares = np.log(np.random.default_rng(4).dirichlet(np.ones(3), 3))
    whole = table(rows, log_numbers).given(shares)
    monkeypatch.setattr(all_counts, "_AT_A_TIME", 90)
    parts = table(rows, log_numbers).given(shares)
    assert parts[0] == pytest.approx(whole[0], rel=1e-13)
    np.testing.assert_allclose(parts[1], whole[1], rtol=1e-12)


def test_empty_cells_and_what_is_impossible():
    public = np.where(np.arange(5) == 4, 0.0, -np.inf)
    rows = rows_of(2, 2, 4)
    with np.errstate(divide="ignore"):
        logs = np.log([[0.0, 1.0], [0.3, 0.7]])
    value, means = table(rows, public).given(logs)
    expected, expected_means = brute_force(rows, public, np.exp(logs))
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(means, expected_means, atol=1e-14)
    assert means[0, 0] == 0
    # A record in the first cell of the first row is certain, and its share is 0.
    certain = tabulated([[-np.inf, 0.0, 0.0, 0.0, 0.0], [0.0] * 5])
    one = table([replace(rows[0], log_likelihood=certain), rows[1]], public)
    assert np.isfinite(one.given(np.log([[0.5, 0.5], [0.3, 0.7]]))[0])
    value, means = one.given(logs)
    assert value == -np.inf
    assert means.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    nobody = table(rows_of(2, 2, 0), np.zeros(1))
    assert nobody.given(np.log([[0.5, 0.5], [0.3, 0.7]]))[1].tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_shares_and_outputs_that_are_too_improbable_for_doubles():
    """The weights of counts differ by far more than doubles can: the logarithms are those of one table."""
    public = np.where(np.arange(51) == 50, 0.0, -np.inf)
    z = np.array([[20.0, 0.0], [10.0, 20.0]])

    def steep(own):
        return lambda counts, cells: -1e4 * np.abs(own[cells] - counts)

    rows = [ProductLaw(alpha=[1, 1], total=50, log_likelihood=steep(own)) for own in z]
    log_shares = np.array([[-900.0, 0.0], [-1.0, np.log(-np.expm1(-1.0))]])
    value, means = AllCounts(rows, public, row_prior=np.ones(2), log_factors=[np.zeros_like] * 2).given(log_shares)
    np.testing.assert_allclose(means, z, atol=1e-12)
    # 20 records in one row of 50 are as likely as any other number.
    expected = -math.log(51) + 20 * -900.0 + math.log(math.comb(30, 10)) - 10 + 20 * log_shares[1, 1]
    assert value == pytest.approx(expected, rel=1e-12)


RELEASES = [
    {"mechanism": "geometric"},
    {"mechanism": "geometric", "adjacency": "add-remove"},
    {"mechanism": "gaussian"},
    {"mechanism": "dirichlet", "min_count": 1},
]


@pytest.mark.parametrize("options", RELEASES, ids=lambda options: "-".join(map(str, options.values())))
def test_it_is_the_general_law_of_a_release(options, monkeypatch):
    kinds = {"a": ["x", "y", "z"], "b": ["no", "yes"]}
    data = {"a": ["x"] * 30 + ["y"] * 20 + ["z"] * 10, "b": (["no"] * 4 + ["yes"]) * 12}
    model = dirdp.bayesian_network(data, {"a": [], "b": ["a"]}, categories=kinds)
    release = dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-4), model, **options)
    row_prior = {"p_b": [1.0, 2.0, 0.5]} if options["mechanism"] == "gaussian" else None
    found = conclusions(release, None, None, row_prior, jointly=False)
    rng = np.random.default_rng(3)
    shares = {"p_a": np.log(rng.dirichlet(np.ones(3))), "p_b": np.log(rng.dirichlet(np.ones(2), 3))}
    monkeypatch.setattr(table_law, "_MOST_TERMS", (10**9, 10**9))
    laws = {name: law_of(found.tables[name], found.beliefs[name]) for name in shares}
    small = {name: law.likelihood(shares[name]) for name, law in laws.items()}
    assert all(law._all_counts is not None for law in laws.values())
    monkeypatch.setattr(table_law, "_MOST_TERMS", (0, 0))
    for name, (value, means) in small.items():
        general = law_of(found.tables[name], found.beliefs[name])
        expected, expected_means = general.likelihood(shares[name])
        assert general._all_counts is None
        assert value == pytest.approx(expected, rel=1e-9, abs=1e-9)
        np.testing.assert_allclose(means, expected_means, rtol=1e-6, atol=1e-9)
