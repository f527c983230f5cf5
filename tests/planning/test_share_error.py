"""The error of a share of a draw, in closed form: against draws of shares, counts and releases."""

import math

import numpy as np
import pytest

from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.planning.draw_error import draw_share_error, smallest_share

CASES = {
    "hair": (np.ones(4), np.full(4, 2.677), 0.2028, 592),
    "a Beta, few records": (np.array([0.5, 3.0]), np.array([1.0, 3.5]), 1.5, 7),
    "one record": (np.ones(3), np.full(3, 0.1), 1e-4, 1),
    "sharper than the posterior": (np.ones(3), np.full(3, 9.0), 10.0, 300),
    "rows": (np.ones((6, 2)), np.full((6, 2), 2.0), 0.1, 3000),
    "rows of different priors": (np.array([[1, 2, 0.5], [3, 1, 1]]), np.array([[1.5, 2.5, 1], [3.5, 2, 2]]), 0.3, 2000),
}


def simulated(prior, alpha, r, n_records, k=200_000):
    """Mean squared error and its standard error; rows share the records as a Dirichlet with ones would."""
    rng = np.random.default_rng(9)
    a, alpha = prior.reshape(-1, prior.shape[-1]), alpha.reshape(-1, prior.shape[-1])
    sizes = rng.multinomial(n_records, rng.dirichlet(np.ones(len(a)), k)) if len(a) > 1 else np.full((k, 1), n_records)
    squares = np.zeros(k)
    for row in range(len(a)):
        gammas = rng.standard_gamma(a[row], (k, a.shape[1]))
        p = gammas / gammas.sum(axis=1, keepdims=True)
        drawn = rng.standard_gamma(r * rng.multinomial(sizes[:, row], p) + alpha[row])
        y = drawn / drawn.sum(axis=1, keepdims=True)
        squares += ((y - p) ** 2).mean(axis=1) / len(a)
    return squares.mean(), squares.std() / math.sqrt(k)


@pytest.mark.parametrize("case", CASES)
def test_the_error_is_that_of_simulated_draws(case):
    """Within six standard errors, which an error of a tenth would exceed."""
    prior, alpha, r, n_records = CASES[case]
    found = draw_share_error(DirichletMechanism(alpha, r), prior, n_records) ** 2
    mean, error = simulated(prior, alpha, r, n_records)
    assert abs(found - mean) < 6 * error
    assert abs(1.1 * found - mean) > 6 * error


def test_noise_has_no_draw_that_is_a_release_and_no_records_have_no_error():
    assert draw_share_error(GeometricMechanism(np.ones(3), 1.0), np.ones(3), 10) is None
    assert draw_share_error(DirichletMechanism(np.ones(3), 1.0), np.ones(3), 0) is None


def test_a_draw_of_the_posterior_itself_errs_by_twice_its_variance():
    """Oracle: r = 1 and alpha the prior give a draw that is independent of the truth, from the same posterior."""
    prior, n = np.array([1.0, 2.0, 4.0]), 50
    rng = np.random.default_rng(2)
    p = rng.dirichlet(prior, 400_000)
    u = prior + rng.multinomial(n, p)
    m = u / u.sum(axis=1, keepdims=True)
    variance = m * (1 - m) / (u.sum(axis=1, keepdims=True) + 1)
    found = draw_share_error(DirichletMechanism(prior, 1.0), prior, n)
    assert found**2 == pytest.approx(2 * variance.mean(), rel=0.005)


@pytest.mark.parametrize("n", [1, 10**7])
@pytest.mark.parametrize("d", [2, 1000])
def test_extreme_sizes_give_a_share(n, d):
    for r, alpha in ((1e-4, 1e-3), (10.0, 1e3)):
        assert 0 < draw_share_error(DirichletMechanism(np.full(d, alpha), r), np.ones(d), n) < 1


@pytest.mark.parametrize(
    ("alpha", "r", "n"),
    [(np.full(4, 2.677), 0.2028, 592), (np.array([0.5, 3.0]), 2.0, 20), (np.ones((3, 2)), 0.1, 900)],
)
def test_a_cell_of_this_share_and_an_empty_one_are_mistaken_in_a_twentieth_of_draws(alpha, r, n):
    """Oracle: draws of both. The largest share over all cells is looked for."""
    found = smallest_share(DirichletMechanism(alpha, r), alpha.shape, n)
    rng, records, mistakes = np.random.default_rng(5), r * n / (alpha.size / alpha.shape[-1]), []
    for own, row in zip(alpha.ravel(), np.repeat(alpha.sum(axis=-1), alpha.shape[-1]), strict=True):
        limit = np.quantile(rng.beta(own, row - own + records, 400_000), 0.95)
        drawn = rng.beta(own + records * found, row - own + records * (1 - found), 400_000)
        mistakes.append(np.mean(drawn <= limit))
    assert max(mistakes) == pytest.approx(0.05, abs=0.003)


def test_noise_hides_a_share_of_its_own_width():
    """Oracle: draws of the noise itself, of two cells; the approximation is within a tenth."""
    mechanism = GeometricMechanism(np.ones(4), 20.0)
    noise = mechanism.noise_of_rows(100_000, np.random.default_rng(1)).ravel()
    share = smallest_share(mechanism, (4,), 2000)
    assert 2 * np.quantile(noise, 0.95) == pytest.approx(2000 * share, rel=0.1)
    assert smallest_share(mechanism, (4,), 1) == 1.0


def test_fewer_records_or_more_rows_hide_more_and_nothing_is_said_without_records():
    mechanism = DirichletMechanism(np.full((2, 3), 2.0), 0.3)
    many, few = (smallest_share(mechanism, (2, 3), n) for n in (1000, 100))
    assert 0 < many < few < 1
    assert smallest_share(mechanism, (2, 3), 1) == 1.0
    assert smallest_share(mechanism, (2, 3), 0) is None
    assert smallest_share(mechanism, (2, 3), float("nan")) is None


@pytest.mark.parametrize("alpha", [1e-3, 1e3])
@pytest.mark.parametrize("r", [1e-4, 10.0])
def test_extreme_numbers_give_a_share(alpha, r):
    assert 0 < smallest_share(DirichletMechanism(np.full(1000, alpha), r), (1000,), 10**7) <= 1
