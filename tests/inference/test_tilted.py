"""Four ways to sum, against each other; the tilt does not matter; large totals need little memory."""

import tracemalloc

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import nbinom

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.numbers import Distributions, ImpossibleError
from pymc_dirdp.inference.rows import RowPosterior, TiltedCells, solved
from pymc_dirdp.inference.sums import Convolution, Fourier, Inversion, Pair

from .posteriors import dirichlet, geometric, simulated


def released(d, total, r, alpha, seed):
    rng = np.random.default_rng(seed)
    _, x = simulated(d, total, alpha, rng)
    y = np.maximum(rng.dirichlet(r * x + 1), 1e-300)
    return RowPosterior(alpha=np.full(d, alpha), total=total, log_likelihood=dirichlet(y, r, np.ones(d)))


@pytest.mark.parametrize(
    ("d", "total", "r", "alpha"), [(10, 1000, 0.1, 1.0), (8, 2000, 0.05, 0.2), (30, 500, 1.0, 1.0)]
)
def test_convolution_fourier_and_inversion_agree(d, total, r, alpha):
    posterior = released(d, total, r, alpha, 1)
    cells = posterior.tilted.cells
    found = []
    for kind in (Convolution, Fourier, Inversion):
        tilted = TiltedCells(cells, total, kind(cells, total))
        found.append((tilted.log_sum_of_products, tilted.marginals.means, tilted.marginals.variances))
    for evidence, means, variances in found[1:]:
        assert evidence == pytest.approx(found[0][0], rel=0, abs=1e-11)
        np.testing.assert_allclose(means, found[0][1], rtol=1e-11)
        np.testing.assert_allclose(variances, found[0][2], rtol=1e-9)


def test_two_cells_are_one_sum():
    posterior = released(2, 3000, 0.1, 0.3, 2)
    cells = posterior.tilted.cells
    pair, convolution = (TiltedCells(cells, 3000, kind(cells, 3000)) for kind in (Pair, Convolution))
    np.testing.assert_allclose(pair.marginals.means, convolution.marginals.means, rtol=1e-11)
    totals = np.array([2900, 3000, 3100])
    np.testing.assert_allclose(pair.sums.log_sum(totals), convolution.sums.log_sum(totals), rtol=0, atol=1e-10)


@pytest.mark.parametrize(("d", "total"), [(10, 1000), (3, 60)])
def test_the_tilt_does_not_matter(d, total):
    """A tilt that moves the mean of the sum by one standard deviation gives the same marginals."""
    posterior = released(d, total, 0.1, 1.0, 3)
    cells = posterior.cells()
    tilt = posterior.tilted.cells.tilt
    cells.settle(tilt + 1 / np.sqrt(posterior.tilted.cells.variances.sum()))
    kind = type(posterior.tilted.sums)
    shifted = TiltedCells(cells, total, kind(cells, total))
    assert abs(cells.means.sum() - total) > 0.5 * np.sqrt(cells.variances.sum())
    assert shifted.log_sum_of_products == pytest.approx(posterior.tilted.log_sum_of_products, rel=0, abs=1e-10)
    np.testing.assert_allclose(shifted.marginals.means, posterior.means, rtol=1e-10)


def test_a_million_records_in_two_cells_against_the_plain_sum():
    posterior = released(2, 10**6, 1e-3, 0.01, 4)
    x = np.arange(10**6 + 1.0)
    weights = posterior.log_weight(x, np.zeros(len(x), dtype=int)) + posterior.log_weight(
        10**6 - x, np.ones(len(x), dtype=int)
    )
    mass = np.exp(weights - weights.max())
    mean = mass @ x / mass.sum()
    assert posterior.means[0] == pytest.approx(mean, rel=1e-11)
    assert posterior.variances[0] == pytest.approx(mass @ (x - mean) ** 2 / mass.sum(), rel=1e-9)
    assert posterior.tilted.log_sum_of_products == pytest.approx(weights.max() + np.log(mass.sum()), rel=0, abs=1e-9)


def test_one_cell_far_wider_than_all_others_together():
    """Sums of the small cells decide; the wide one takes what they leave."""
    z = np.array([7e5, 1e5 + 20.0, 1e5 - 25.5, 1e5 + 15.0])
    scale = np.array([2e4, 3.0, 1.0, 2.0])
    posterior = RowPosterior(
        alpha=np.ones(4), total=10**6, log_likelihood=lambda x, i: -((z[i] - x) ** 2) / (2 * scale[i] ** 2)
    )
    assert isinstance(posterior.tilted.sums, Inversion)
    small = Convolution(posterior.tilted.cells, 10**6)
    reference = TiltedCells(posterior.tilted.cells, 10**6, small)
    np.testing.assert_allclose(posterior.means, reference.marginals.means, rtol=1e-10)
    np.testing.assert_allclose(posterior.variances, reference.marginals.variances, rtol=1e-8)


@pytest.mark.parametrize("r", [1e-4, 10.0])
@pytest.mark.parametrize("d", [2, 10, 50])
def test_ten_million_records_take_little_memory(d, r):
    posterior = released(d, 10**7, r, 1.0, 5)
    tracemalloc.start()
    means = posterior.means
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6
    assert means.sum() == pytest.approx(1e7, rel=1e-9)


def test_one_noisy_cell_of_a_binary_table():
    posterior = RowPosterior(
        alpha=[1.0, 2.0], total=30, log_likelihood=lambda x, i: np.where(i == 0, -np.abs(11 - x) / 3, 0.0)
    )
    x = np.arange(31)
    logs = gammaln(x + 1) - gammaln(x + 1) + gammaln(32 - x) - gammaln(31 - x) - np.abs(11 - x) / 3
    mass = np.exp(logs - logs.max())
    assert posterior.means[0] == pytest.approx(mass @ x / mass.sum(), rel=1e-12)


def test_narrow_noise_among_many_numbers_is_found():
    z = np.array([4_123_456.4, 5_000_000.0, 876_543.9])
    posterior = RowPosterior(alpha=np.full(3, 1e-3), total=10**7, log_likelihood=geometric(z, 1.0))
    np.testing.assert_allclose(posterior.means, z, atol=1.5)


def vague(total, r, alpha=1.0):
    """Records of which the output says next to nothing."""
    y = np.array([0.5, 0.3, 0.2])
    return RowPosterior(alpha=np.full(3, alpha), total=total, log_likelihood=dirichlet(y, r, np.ones(3)))


def test_a_million_records_that_hardly_anything_is_known_of():
    """Against the sum over the first cell, of the plain sums over the other two, at every ten thousandth count."""
    posterior = vague(10**6, 1e-5)
    assert isinstance(posterior.tilted.sums, Fourier)
    others = RowPosterior(alpha=np.ones(2), total=10**6, log_likelihood=lambda x, i: posterior.log_likelihood(x, i + 1))
    counts = np.arange(5000, 10**6, 10_000)
    logs = posterior.log_weight(counts.astype(float), np.zeros(len(counts), dtype=int))
    logs += [others.at(10**6 - int(x)).tilted.log_sum_of_products for x in counts]
    mass = np.exp(logs - logs.max())
    assert posterior.means[0] == pytest.approx(mass @ counts / mass.sum(), rel=1e-3)
    assert posterior.tilted.log_sum_of_products == pytest.approx(logs.max() + np.log(mass.sum() * 1e4), abs=1e-3)


def test_what_is_too_wide_is_refused_and_the_ways_out_work():
    """Ten million records of which the output says next to nothing; fewer cells, or a prior that says more, will do."""
    with pytest.raises(ArgumentError, match="larger parameters, or merge"):
        vague(10**7, 1e-6).means  # noqa: B018
    merged = RowPosterior(alpha=[1.0, 2.0], total=10**7, log_likelihood=dirichlet([0.5, 0.5], 1e-6, [1.0, 2.0]))
    for posterior in (merged, vague(10**7, 1e-6, alpha=60.0)):
        assert posterior.means.sum() == pytest.approx(1e7)


def bounded_cells():
    """Three cells whose counts lie within ten of 40, 60 and 20, and are likely as geometric noise makes them."""
    middle = np.array([40.0, 60.0, 20.0])

    def log_weight(x, cell):
        distance = np.abs(x - middle[cell])
        return np.where(distance <= 10, -2 * distance, -np.inf)

    return Distributions(log_weight, 3, 0, 500, smooth=False)


@pytest.mark.parametrize(("beyond", "end"), [(70, 90), (300, 150)])
def test_a_total_that_no_counts_have_spoils_no_other(beyond, end):
    """After the search for it, the least and the largest total that exist are found as with fresh cells."""
    cells = bounded_cells()
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        with pytest.raises(ImpossibleError, match="0 in double precision"):
            solved(cells, beyond)
        for total in (end, 121, end):
            fresh = solved(bounded_cells(), total).log_sum_of_products
            assert solved(cells, total).log_sum_of_products == pytest.approx(fresh, abs=1e-9)
        # There is one such table: every count is ten away.
        assert fresh == pytest.approx(-60.0, abs=1e-9)


def test_a_total_is_not_called_impossible_before_the_counts_are_found():
    """Found when the documentation was built: no node lay near the few numbers of records that a row may have."""
    middle, near = np.array([12_345.0, 54_321.0]), np.arange(-10, 11)

    def log_weight(x, cell):
        distance = np.abs(x - middle[cell])
        return np.where(distance <= 10, -2 * distance, -np.inf)

    cells = Distributions(log_weight, 2, 0, 100_000)
    assert cells.reach() == (0, 200_000)
    found = solved(cells, 66_666 + 4).log_sum_of_products
    first = np.where(np.abs(4 - near) <= 10, np.exp(-2.0 * np.abs(near) - 2.0 * np.abs(4 - near)), 0)
    assert found == pytest.approx(np.log(first.sum()), abs=1e-9)


def test_many_cells_take_no_more_nodes_than_few():
    """Equal cells with means of .4.

    Whose sum is a negative binomial distribution: 20,000 rounded means miss 8,000 together.
    """
    d, q = 20_000, 2 / 7
    cells = Distributions(lambda x, cell: x * np.log(q), d, 0, 400)
    cells.settle(0.0)
    sums = Inversion(cells, 8_000, most_nodes=60)
    totals = np.array([7_800, 8_000, 8_150])
    np.testing.assert_allclose(sums.log_sum(totals), nbinom.logpmf(totals, d, 1 - q), atol=1e-9)
    rest = nbinom.logpmf(8_000 - np.arange(3), d - 1, 1 - q)
    np.testing.assert_allclose(sums.log_rest(np.arange(3.0), np.array([0, 9_999, d - 1])), rest, atol=1e-9)
