"""Figures of P1 and P2 as numbers: bound, exact supremum, and the two data sets that the paper looks at."""

import math

import numpy as np
import pytest
from scipy.special import gammaln

import pymc_dirdp as dirdp


def dirichlet_renyi(order, u, v):
    def log_beta(z):
        return gammaln(z).sum() - gammaln(z.sum())

    mixed = order * u - (order - 1) * v
    return (log_beta(mixed) - order * log_beta(u) + (order - 1) * log_beta(v)) / (order - 1)


@pytest.mark.parametrize("order", [2, 20, 200])
@pytest.mark.parametrize("r", [0.01, 0.1, 1.0])
def test_p1_figure_3(order, r):
    """Neighbours of its kind that do differ by one moved record, with the larger one of each cell empty elsewhere."""
    alpha = np.full(6, 1 + 4 * (order - 1) * r)
    bound = dirdp.published.p1_theorem_1(order=order, r=r, alpha_min=alpha[0]).epsilon
    exact = dirdp.mechanisms.DirichletMechanism(alpha, r).renyi(order)
    shown = np.array([11.0, 8, 65, 25, 38, 1]), np.array([11.0, 9, 65, 25, 38, 0])
    worst = np.array([0.0, 0, 65, 25, 38, 1]), np.array([0.0, 1, 65, 25, 38, 0])
    (of_shown, of_worst) = (dirichlet_renyi(order, r * x + alpha, r * y + alpha) for x, y in (shown, worst))
    assert of_shown < of_worst
    assert of_worst == pytest.approx(exact, rel=1e-6)
    assert exact < bound < 1.5 * exact


def test_p2_figure_1():
    x, y = np.array([11.0, 8, 65, 25, 38, 0]), np.array([11.0, 8, 65, 25, 38, 1])
    for a in (1.5, 2.0, 5.0, 20.0):
        bound = dirdp.published.p2_theorem_1(gamma=1.0, alpha_min=a, delta_2_squared=1.0).rho
        exact = dirdp.mechanisms.DirichletMechanism(np.full(6, a), 1.0, adjacency="add-remove").rho(2.0)
        shown = max(dirichlet_renyi(2, x + a, y + a), dirichlet_renyi(2, y + a, x + a)) / 2
        assert 0.9 * exact < shown < exact < bound
        # The other cells hold the rest, and with more of it the pair of the figure becomes the worst one.
        more = x + [1e9, 0, 0, 0, 0, 0], y + [1e9, 0, 0, 0, 0, 0]
        assert dirichlet_renyi(2, more[0] + a, more[1] + a) / 2 <= exact * (1 + 1e-5)
    # psi'(1) / 2
    assert dirdp.published.p2_theorem_1(gamma=1.0, alpha_min=2.0, delta_2_squared=1.0).rho == pytest.approx(
        math.pi**2 / 12
    )
