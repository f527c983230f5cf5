"""The smallest share that is told from an empty cell: against draws, and at the ends of what is allowed."""

import numpy as np
import pytest

from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.planning.smallest_share import smallest_share


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
