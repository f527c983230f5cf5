"""Trees of sums, against brute force over all totals and tables, and against sums for each total by itself."""

from functools import reduce
from time import process_time

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp, softmax

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.rows import RowPosterior
from pymc_dirdp.inference.tables import CountTree
from pymc_dirdp.inference.tree import Cells, Group

from .posteriors import dirichlet, geometric, log_convolved, of_private_total, with_means


def test_one_tilt_serves_no_total_that_one_far_wider_cell_was_cut_off_for():
    """A run of totals went further than the wide cell had been kept: the evidence was wrong by a factor of up to 27."""
    for y in ([0.995, 0.0025, 0.0025], [0.9995, 0.0003, 0.0002]):
        posterior = RowPosterior(alpha=np.ones(3), total=100_000, log_likelihood=dirichlet(y, 0.1, np.ones(3)))
        totals, group = np.arange(58_000, 62_001, 400), Group(Cells(posterior))
        group.start(total=60_000)
        found = group.logs(58_000, 62_000)[::400] + posterior.log_normaliser(totals)
        expected = [posterior.at(int(n)).log_evidence for n in totals]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


def test_rows_that_are_nearly_empty_are_drawn_too():
    """A release with little in it leaves every total open. Proposals for 350 records are next to never an empty row."""
    posterior = RowPosterior(alpha=np.ones(4), total=700, log_likelihood=lambda counts, cells: 1e-5 * counts)
    totals = np.concatenate([np.zeros(20, dtype=np.int64), [1, 2, 3], np.full(200, 300)])
    group = Group(Cells(posterior))
    group.start(total=300)
    start = process_time()
    counts = group.draw(totals, np.random.default_rng(1))
    np.testing.assert_array_equal(counts.sum(axis=1), totals)
    assert process_time() - start < 5


def test_totals_next_to_those_that_no_table_has():
    """Found by attack: a genuine release of three rows with a private number of records was called damaged."""
    middle, alpha, x = np.array([1500.0, 2500.0, 900.0]), np.array([1.0, 2.0, 0.5]), np.arange(6000.0)

    def log_likelihood(counts, cells):
        distance = np.abs(middle[cells] - counts)
        return np.where(distance <= 300, -distance / 10, -np.inf)

    posterior = RowPosterior(alpha=alpha, total=20_000, log_likelihood=log_likelihood)
    with np.errstate(divide="raise", over="raise", invalid="raise"):
        mean, sd = of_private_total(posterior).distribution[1].part(0).mean_and_sd
    cells = [log_likelihood(x, np.full(x.shape, i)) + gammaln(x + alpha[i]) - gammaln(x + 1) for i in range(3)]
    weights = softmax(reduce(log_convolved, cells) + gammaln(x + 1) - gammaln(x + alpha.sum()))
    expected = weights @ x
    assert mean == pytest.approx(expected, rel=1e-10)
    assert sd == pytest.approx(np.sqrt(weights @ (x - expected) ** 2), rel=1e-8)


def test_totals_below_the_least_of_any_table_are_skipped():
    def log_likelihood(x, i):
        return np.where(x < 5, -np.inf, -0.3 * x) + 0.0 * i

    posterior = RowPosterior(alpha=np.ones(3), total=50, log_likelihood=log_likelihood)
    mean, _ = of_private_total(posterior).distribution[1].part(0).mean_and_sd
    weights = np.exp(-0.3 * np.arange(15, 51)) * [(n - 13) * (n - 14) / ((n + 1) * (n + 2)) for n in range(15, 51)]
    assert mean == pytest.approx(weights @ np.arange(15, 51) / weights.sum(), rel=1e-10)


@pytest.mark.parametrize(
    ("log_likelihood", "words"),
    [
        # Three cells of seven records, and a total of at most twenty.
        (lambda x, i: np.where(x == 7.0 + 0 * i, 0.0, -np.inf), "No table of counts"),
        (lambda x, i: np.where(x == 7, np.nan, 0.0) + 0.0 * i, "log-likelihood"),
        (lambda x, i: np.where(x == 7, np.inf, 0.0) + 0.0 * i, "log-likelihood"),
    ],
    ids=["no table", "NaN", "infinity"],
)
def test_what_cannot_be_summed_is_an_error_and_soon(log_likelihood, words):
    posterior = RowPosterior(alpha=np.ones(3), total=20, log_likelihood=log_likelihood)
    for summed in (lambda: of_private_total(posterior).distribution, lambda: posterior.means):
        with pytest.raises(ArgumentError, match=words):
            summed()


@pytest.mark.parametrize(
    ("d", "total", "scale", "alpha"), [(5, 775, 257.5, 0.0032), (2, 1900, 1535.0, 0.0003), (6, 900, 300.0, 0.2)]
)
def test_counts_of_which_nearly_all_are_0_may_have_any_private_total(d, total, scale, alpha):
    """No tilt leads from one total to the next: evidence was off by factors of up to exp(3), and took minutes."""
    z = np.zeros(d)
    z[0] = total / d
    posterior = RowPosterior(alpha=np.full(d, alpha), total=total, log_likelihood=geometric(z, scale))
    tree = CountTree([posterior], [np.zeros_like], total, lambda n: np.zeros(np.shape(n)), None)
    evidence, number = tree.root.distribution
    x = np.arange(total + 1.0)
    logs = np.array([posterior.log_weight(x, np.full(x.shape, cell)) for cell in range(d)])
    normaliser = posterior.log_normaliser(x)
    expected, means = with_means(lambda cells: logsumexp(reduce(log_convolved, cells) + normaliser), logs)
    assert evidence == pytest.approx(expected, abs=1e-8)
    found = np.zeros(total + 1)
    found[number.low : number.low + number.values.shape[1]] = number.values[0]
    np.testing.assert_allclose(found, np.exp(reduce(log_convolved, logs) + normaliser - expected), atol=1e-9)
    np.testing.assert_allclose(tree.count_means.ravel(), means, rtol=1e-7)


def test_a_range_of_totals_that_contradicts_the_output_is_drawn_from():
    """Draws of the cells were refused for their total, and too many of them: now the total comes first."""
    posterior = RowPosterior(alpha=np.ones(2), total=10**4, log_likelihood=geometric([1.0, 2.0], 1.0))
    root = of_private_total(posterior, lambda n: np.where(n >= 9000, 0.0, -np.inf))
    totals = root.draw_below(2000, np.random.default_rng(1)).sum(axis=1)
    # Each more record costs a nat.
    assert totals.min() == 9000
    assert np.mean(totals - 9000) == pytest.approx(1 / (np.e - 1), abs=0.1)
