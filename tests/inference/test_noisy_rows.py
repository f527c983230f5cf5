"""The likelihood of noisy rows: against all tables there are, convolutions of logarithms, and finite differences."""

import itertools

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp

from pymc_dirdp import mechanisms
from pymc_dirdp.inference.noisy_rows import NoisyRows, PrivateTotal, noisy_rows, private_total
from pymc_dirdp.inference.observed_table import Beliefs
from pymc_dirdp.inference.tables import posterior_of
from pymc_dirdp.mechanisms.outputs import CellNoise

from . import goldens


def noise_of(rng, largest=20.0):
    scale = float(np.exp(rng.uniform(np.log(0.3), np.log(largest))))
    normal = bool(rng.integers(2))
    return CellNoise(normal, 1 / (2 * scale**2) if normal else 1 / scale, -1.3)


def rows_of(noise, noisy, totals):
    return NoisyRows(totals, published=(noisy, noise.numbers))


def terms(x, weights, noise, noisy):
    return x * np.log(weights) - gammaln(x + 1) + noise.log_noise(noisy - x)


@pytest.mark.parametrize("seed", range(10))
def test_public_rows_are_the_sum_over_all_tables(seed):
    """Narrow and wide noise, also far from the noisy counts; rows of few records have fewer waves than cells."""
    rng = np.random.default_rng(seed)
    cells, n, noise = rng.integers(2, 6), int(rng.integers(0, 9)), noise_of(rng, 20.0 if seed % 2 else 1.0)
    noisy = rng.integers(-10, 20, size=(1, cells)).astype(float)
    p = rng.dirichlet(np.full(cells, rng.choice([0.1, 1.0, 10.0])))
    x = np.array([x for x in itertools.product(range(n + 1), repeat=cells) if sum(x) == n], dtype=float)
    logs = gammaln(n + 1) + terms(x, p, noise, noisy).sum(axis=1)
    value, means = rows_of(noise, noisy, np.array([n])).likelihood(np.log(p)[None])
    assert value == pytest.approx(logsumexp(logs), rel=1e-13, abs=1e-13)
    np.testing.assert_allclose(means[0], np.exp(logs - logsumexp(logs)) @ x, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_long_rows_are_convolutions_also_where_the_shares_are_wrong(seed):
    rng = np.random.default_rng(seed)
    cells, n, noise = int(rng.integers(3, 9)), int(rng.integers(100, 400)), noise_of(rng, 30.0)
    shares = rng.dirichlet(np.ones(cells))
    noisy = rng.multinomial(n, shares) + np.round(rng.laplace(scale=2.0, size=cells))
    tried = rng.dirichlet(np.ones(cells)) if seed % 2 else shares
    x = np.arange(n + 1.0)
    total = np.where(x == 0, 0.0, -np.inf)
    for p, z in zip(tried, noisy, strict=True):
        one = terms(x, p, noise, z)
        total = np.array([logsumexp(total[: i + 1] + one[: i + 1][::-1]) for i in range(n + 1)])
    value, means = rows_of(noise, noisy[None], np.array([n])).likelihood(np.log(tried)[None])
    assert value == pytest.approx(total[n] + gammaln(n + 1), abs=1e-10)
    assert means.sum() == pytest.approx(n, rel=1e-10)


@pytest.mark.parametrize("cells", [2, 3, 60])
@pytest.mark.parametrize("totals", [np.array([300, 0]), None])
def test_means_are_the_gradient_and_two_evaluations_are_equal(cells, totals):
    rng = np.random.default_rng(cells)
    for normal in (False, True):
        rows = rows_of(CellNoise(normal, 0.3, -1.0), rng.integers(-3, 20, size=(2, cells)).astype(float), totals)
        logs = np.log(rng.dirichlet(np.ones(cells), size=2) * (1 if totals is not None else 300))
        value, means = rows.likelihood(logs)
        step = rng.normal(size=logs.shape) * 1e-5
        slope = (rows.likelihood(logs + step)[0] - rows.likelihood(logs - step)[0]) / 2
        assert slope == pytest.approx(np.sum(means * step), rel=1e-6, abs=1e-11)
        again = rows.likelihood(logs)
        assert (value, means.tobytes()) == (again[0], again[1].tobytes())


def test_cells_that_are_impossible():
    noise = CellNoise(False, 0.5, 0.0)
    for totals in (np.array([5]), None):
        for cells in (2, 3):
            logs = np.full((1, cells), 0.0)
            logs[0, 0] = -np.inf
            near = np.where(np.isinf(logs), -60.0, logs)
            rows = rows_of(noise, np.full((1, cells), 4.0), totals)
            value, means = rows.likelihood(logs)
            assert value == pytest.approx(rows.likelihood(near)[0], abs=1e-10)
            assert means[0, 0] == 0
    nothing = rows_of(noise, np.zeros((1, 3)), np.array([5])).likelihood(np.full((1, 3), -np.inf))
    assert nothing[0] == -np.inf
    assert not nothing[1].any()
    assert rows_of(noise, np.zeros((1, 3)), None).likelihood(np.full((1, 3), np.nan))[0] == -np.inf


@pytest.mark.parametrize("kind", ["GeometricMechanism", "DiscreteGaussianMechanism", "ZeroSumGeometricMechanism"])
@pytest.mark.parametrize("parameter", [0.4, 3.0, 60.0])
def test_the_noise_of_a_cell_is_that_of_its_mechanism(kind, parameter):
    mechanism = getattr(mechanisms, kind)([1, 1, 1], parameter)
    noise = np.array([-40.0, -1.0, 0.0, 3.0, 1000.0])
    np.testing.assert_allclose(mechanism.cell_noise.log_noise(noise), mechanism.noise.log_pmf(noise), rtol=1e-12)
    assert mechanisms.DirichletMechanism([1, 1, 1], 0.5).cell_noise is None


def test_arrays_that_must_not_be_written_to():
    """JAX and nutpie hand out such arrays."""
    noise, noisy, logs = CellNoise(False, 0.5, -1.0), np.full((1, 3), 4.0), np.log(np.full((1, 3), 1 / 3))
    expected = rows_of(noise, noisy, np.array([12])).likelihood(logs)
    for array in (noisy, logs):
        array.flags.writeable = False
    numbers = noise.numbers
    rows = NoisyRows(np.array([12]))
    fixed = rows_of(noise, noisy, np.array([12]))
    for found in (
        rows.likelihood(logs, noisy, numbers),
        fixed.likelihood(logs),
        fixed.likelihood(logs[0]),
    ):
        assert found[0] == expected[0]
        assert np.array_equal(np.reshape(found[1], (1, 3)), expected[1])
    for bad in (np.nan, np.inf):
        assert rows.likelihood(np.full((1, 3), bad), noisy, numbers)[0] == -np.inf


@pytest.mark.parametrize("kind", ["draw", "urn", "truncated"])
def test_lists_of_many_records_are_the_sums_of_any_row(kind):
    rng = np.random.default_rng(6)
    counts = rng.multinomial(3000, rng.dirichlet(np.ones(6)))
    output = goldens.released(kind, counts, 20, False, rng, np.ones(6)).observed_table
    rows = noisy_rows(output, Beliefs())
    assert rows is not None
    assert rows.tables is not None
    for p in (rng.dirichlet(np.ones(6)), (counts + 1) / (counts + 1).sum(), np.array([0.5, 0.5, 0, 0, 0, 0])):
        with np.errstate(divide="ignore"):
            logs = np.log(p)
        value, means = rows.likelihood(logs[None])
        given = posterior_of(output, Beliefs()).with_shares(logs)
        assert value == pytest.approx(given.log_evidence, rel=1e-11)
        np.testing.assert_allclose(means[0], given.count_means, rtol=1e-8, atol=1e-8)


# Coefficients that are known before the probabilities


@pytest.mark.parametrize("seed", range(2))
def test_sums_of_listed_terms_are_those_from_the_noisy_counts_outward(seed):
    """Odds and their inverses, even and odd totals, rows with many records, and samplers that are far away."""
    rng = np.random.default_rng(seed)
    for _ in range(40):
        totals = np.r_[rng.integers(0, 101, size=12), 0, 1, 100, 101, 5000]
        noise, noisy = noise_of(rng), np.round(rng.normal(scale=60, size=(len(totals), 2)))
        log_odds = rng.normal(scale=rng.choice([1.0, 30.0, 900.0]), size=len(totals))
        log_odds[:4] = [0.0, np.inf, -np.inf, -745.0]
        logs = -np.logaddexp(0, np.stack([-log_odds, log_odds], axis=1))
        listed, fresh = rows_of(noise, noisy, totals), NoisyRows(totals)
        assert listed.arrays[0].shape == (len(totals), 1, 105)
        (value, means), (other, others) = (
            listed.evaluated(logs),
            fresh.evaluated(logs, noisy, np.array(noise.numbers)),
        )
        np.testing.assert_allclose(value, other, rtol=1e-12, atol=1e-11)
        np.testing.assert_allclose(means, others, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("change", ["noisy", "totals", "improper"])
def test_listed_terms_of_other_counts_are_not_used(change):
    """As where a model is given other noisy counts than those that it was made for."""
    rng, noise, totals = np.random.default_rng(1), CellNoise(False, 0.4, -1.3), np.array([20, 21, 50])
    noisy = np.array([[3.0, 17.0], [30.0, -4.0], [25.0, 25.0]])
    listed = rows_of(noise, noisy, totals).arrays[0]
    logs = np.log(rng.dirichlet(np.ones(2), size=3))
    if change == "noisy":
        noisy = noisy + np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    if change == "totals":
        totals = totals + [1, 0, -1]
    if change == "improper":
        logs[0], logs[1] = np.nan, np.inf
    arguments = noisy, np.array(noise.numbers)
    with_others = NoisyRows(totals, listed).evaluated(logs, *arguments)
    np.testing.assert_allclose(with_others[0], NoisyRows(totals).evaluated(logs, *arguments)[0], rtol=1e-13)
    np.testing.assert_allclose(with_others[1], NoisyRows(totals).evaluated(logs, *arguments)[1], rtol=1e-11)


def over_all_totals(noise, noisy, numbers, p):
    """The logarithm of the likelihood, and the expected counts: all tables of every number of records, by cells."""
    x = np.arange(numbers[-1] + 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        cells = [
            np.where(x == 0, 0.0, x * np.log(w)) - gammaln(x + 1) + noise.log_noise(z - x)
            for w, z in zip(p, noisy, strict=True)
        ]
    scales = [cell.max() for cell in cells]

    def summed(*lists):
        total = np.ones(1)
        for each in lists:
            total = np.convolve(total, each)[: len(x)]
        return total

    lists = [np.exp(cell - scale) for cell, scale in zip(cells, scales, strict=True)]
    of_number = np.where(x >= numbers[0], gammaln(x + 1) - gammaln(numbers[-1] / 2), -np.inf)
    weights = np.exp(of_number)
    whole = weights @ summed(*lists)
    means = [weights @ summed(*lists[:k], x * lists[k], *lists[k + 1 :]) / whole for k in range(len(lists))]
    value = np.log(whole) + gammaln(numbers[-1] / 2) + sum(scales) - np.log(len(numbers))
    return value, np.array(means)


@pytest.mark.parametrize("seed", range(10))
def test_a_private_total_is_the_sum_over_all_numbers_of_records(seed):
    rng = np.random.default_rng(seed)
    noise = CellNoise(*((True, 0.2, -1.4) if seed % 2 else (False, 0.6, -1.2)))
    noisy = rng.integers(-3, 16, size=rng.integers(2, 5)).astype(float)
    p = rng.dirichlet(np.full(len(noisy), rng.choice([0.3, 5.0])))
    if seed % 5 == 0:
        p = np.append(p[1:] / p[1:].sum(), 0.0)
    total = PrivateTotal(noisy, noise, range(0, 160))
    with np.errstate(divide="ignore"):
        value, means = total.likelihood(np.log(p))
    expected, cell_loglik = over_all_totals(noise, noisy, total.numbers, p)
    assert value == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(means, cell_loglik, rtol=1e-10, atol=1e-12)


def test_a_private_total_that_may_be_beyond_its_range_is_left_to_other_sums():
    """Against the sum over the numbers of the range, a few of which are missing on either side."""
    noise, noisy, p = CellNoise(False, 1.0, -0.8), np.array([9.0, 4.0, 12.0]), np.array([0.3, 0.2, 0.5])
    for numbers in (range(0, 20), range(0, 26), range(0, 40), range(24, 200), range(26, 200)):
        assert PrivateTotal(noisy, noise, numbers).likelihood(np.log(p)) is None
    for numbers in (range(0, 100), range(1, 100)):
        total = PrivateTotal(noisy, noise, numbers)
        found, expected = total.likelihood(np.log(p)), over_all_totals(noise, noisy, numbers, p)
        if found is not None:
            assert found[0] == pytest.approx(expected[0], rel=1e-12)
    assert PrivateTotal(noisy, noise, range(0, 100)).likelihood(np.log(p)) is not None


@pytest.mark.parametrize(
    ("kind", "n", "n_prior"),
    [("geometric", 0, 400), ("geometric", 10_000, range(9_000, 11_000)), ("discrete gaussian", 300, range(100, 900))],
)
def test_a_private_total_is_what_the_tree_of_sums_says(kind, n, n_prior):
    """Also where shares are so wrong that numbers beyond the range may matter, where the tree is asked."""
    rng = np.random.default_rng(1)
    counts = rng.multinomial(n, [0.4, 0.3, 0.2, 0.1])
    seen = goldens.released(kind, counts, 3.0, True, rng, np.ones(4)).observed_table
    tree, total = posterior_of(seen, Beliefs(n_prior=n_prior)), private_total(seen, Beliefs(n_prior=n_prior))
    assert private_total(seen, Beliefs(n_prior=np.ones(400))) is None
    for logs in np.log(rng.dirichlet([80, 60, 40, 20], size=5)):
        value, means = total.likelihood(logs)
        assert value == pytest.approx(tree.with_shares(logs).log_evidence, rel=1e-10)
        np.testing.assert_allclose(means, tree.with_shares(logs).count_means, rtol=1e-8, atol=1e-8)
        assert tree.likelihood(logs)[0] == value
    wrong = np.log([1e-9, 1e-9, 1e-9, 1.0])
    assert tree.likelihood(wrong)[0] == pytest.approx(tree.with_shares(wrong).log_evidence, rel=1e-10)


def test_a_private_total_far_from_the_noisy_counts():
    """Numbers near the sum of the noisy counts had 22 nats less. Oracle: a sum over expected numbers."""
    noise, noisy = CellNoise(False, 1 / 30, -np.log(60)), np.array([1489.0, 424.0, 7619.0, 469.0])
    p = np.random.default_rng(1).dirichlet(np.full(4, 50.0))
    value, _ = PrivateTotal(noisy, noise, range(0, 20_001)).likelihood(np.log(p))
    x, expected = np.arange(20_001.0)[:, None], np.arange(200, 12_000, 20.0)
    logs = [logsumexp(terms(x, m * p, noise, noisy), axis=0).sum() - m for m in expected]
    assert value == pytest.approx(logsumexp(logs) + np.log(20 / 20_001), rel=1e-10)
