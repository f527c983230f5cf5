"""Real-valued statistics: divergences of Dirichlet distributions in closed form, limits, and quadrature."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import polygamma

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.papers.privacy import RealValuedLoss, p1_theorem_1, p2_theorem_1, p2_theorem_2
from pymc_dirdp.privacy.divergences import renyi_remove
from tests.oracles import dirichlet_renyi


def neighbours(rng, d, delta_2_squared, delta_inf):
    """Statistics at least 0 and with steps of both signs that keep both sensitivities."""
    step = rng.uniform(-delta_inf, delta_inf, d) * (rng.uniform(size=d) < rng.uniform(0.2, 1))
    norm = float((step**2).sum())
    step *= math.sqrt(min(1.0, delta_2_squared / norm)) if norm else 1.0
    f = rng.gamma(0.3, 2.0, d) * (rng.uniform(size=d) < 0.5) + np.maximum(-step, 0.0)
    return f, f + step


@pytest.mark.parametrize("order", [1.0, 1.3, 5.0])
@pytest.mark.parametrize(("delta_2_squared", "delta_inf"), [(0.7, 0.3), (0.1, 3.0)])
def test_no_neighbours_are_further_apart(order, delta_2_squared, delta_inf):
    rng = np.random.default_rng(int(order * 10))
    for _ in range(100):
        d = int(rng.integers(2, 8))
        r = rng.uniform(0.05, 1.0)
        alpha = rng.uniform(0.2, 4.0, d)
        bound = RealValuedLoss(r, float(alpha.min()), delta_2_squared, delta_inf).renyi(order)
        f, g = neighbours(rng, d, delta_2_squared, delta_inf)
        if math.isfinite(bound):
            assert dirichlet_renyi(order, r * f + alpha, r * g + alpha) <= bound * (1 + 1e-9)
            published_needs = alpha.min() - (order - 1) * r * delta_inf
            if published_needs > 0:
                known = {"alpha_min": float(alpha.min()), "delta_2_squared": delta_2_squared, "delta_inf": delta_inf}
                assert bound <= p1_theorem_1(order=order, r=r, **known).epsilon * (1 + 1e-12)


@pytest.mark.parametrize("order", [2.0, 3.5])
@pytest.mark.parametrize("cells", [1, 5])
def test_it_is_approached_as_another_cell_fills(order, cells):
    r, a, step = 0.4, 1.3, 0.5
    bound = RealValuedLoss(r, a, cells * step**2, step).renyi(order)
    before = np.array([step] * cells + [1e7])
    after = np.array([0.0] * cells + [1e7])
    found = dirichlet_renyi(order, r * after + a, r * before + a)
    assert found == pytest.approx(bound, rel=1e-5)


def test_below_order_2_many_small_steps_can_be_worse():
    """The term that is dropped above order 2 is needed here: 400 steps of 1/20 against one step of 1."""
    r, a = 1.0, 0.5
    steps = np.array([0.05] * 400)
    found = dirichlet_renyi(1.0, np.append(r * 0 * steps + a, 1e9), np.append(r * steps + a, 1e9))
    one_step = renyi_remove(1.0, a, r)
    bound = RealValuedLoss(r, a, 1.0, 1.0).renyi(1.0)
    assert one_step < found <= bound
    assert bound == pytest.approx(float(polygamma(1, a)) / 2)


def hockey_stick(epsilon, first, second):
    p, q = stats.beta(*first), stats.beta(*second)
    # The ratio of two Beta densities crosses a level twice at most; quad gets the kinks by a fine partition.
    points = np.concatenate([[0], np.geomspace(1e-12, 0.5, 60), 1 - np.geomspace(0.5, 1e-12, 60)[1:], [1]])
    nodes, weights = np.polynomial.legendre.leggauss(40)
    low, width = points[:-1], np.diff(points)
    x = low[:, None] + width[:, None] * (nodes + 1) / 2
    return float(((width[:, None] * weights / 2) * np.maximum(p.pdf(x) - math.exp(epsilon) * q.pdf(x), 0)).sum())


@pytest.mark.parametrize("epsilon", [0.0, 0.5])
def test_the_exact_pair_covers_fractional_steps(epsilon):
    """One entry grows and one falls, each by at most w, and the total may change."""
    rng = np.random.default_rng(8)
    alpha, r, w = np.array([1.2, 2.0]), 0.6, 0.7
    exact = DirichletMechanism(alpha, r * w)
    worst = 0.0
    for _ in range(20):
        gain, loss = rng.uniform(0, w, 2)
        f = rng.gamma(0.5, 1.0, 2) * rng.integers(0, 2, 2)
        first, second = r * (f + [gain, 0]) + alpha, r * (f + [0, loss]) + alpha
        for one, other in ((first, second), (second, first)):
            worst = max(worst, hockey_stick(epsilon, one, other))
    assert worst <= exact.delta(epsilon) + 1e-9
    # And it is attained by the whole weight that moves between empty cells.
    first, second = r * np.array([w, 0]) + alpha, r * np.array([0, w]) + alpha
    attained = max(hockey_stick(epsilon, first, second), hockey_stick(epsilon, second, first))
    assert attained == pytest.approx(exact.delta(epsilon), rel=1e-4, abs=1e-9)
    bound = RealValuedLoss(r, float(alpha.min()), 2 * w**2, w)
    assert bound.delta(epsilon) >= exact.delta(epsilon)


def test_the_other_curves_follow_from_the_divergences():
    known = {"r": 0.3, "alpha_min": 4.0, "delta_2_squared": 2.0, "delta_inf": 1.0}
    loss = RealValuedLoss(**known)
    orders = np.linspace(1.0001, 6.0, 400)
    for omega in (1.5, 2.0, 6.0):
        below = orders[orders <= omega]
        assert max(np.asarray(loss.renyi(below)) / below) <= loss.rho(omega) * (1 + 1e-9)
        assert loss.rho(omega) <= p2_theorem_1(gamma=(omega - 1) * 0.3, **known).rho * (1 + 1e-9)
    assert loss.epsilon(1e-6) < p2_theorem_2(delta=1e-6, **known).epsilon
    # For counts, where one cell gains and the number of records is fixed, the exact curve is lower still.
    assert DirichletMechanism(np.full(3, 4.0), 0.3).epsilon(1e-6) < loss.epsilon(1e-6)
    assert loss.renyi(1 + 4.0 / 0.3 + 1) == math.inf
    assert loss.rho(1e9) == math.inf
    together = loss._deltas(0.1 * np.arange(5))
    assert np.all(np.diff(together) <= 0)
    assert together[3] >= loss.delta(0.3) * (1 - 1e-9)


RENYI, APPROX = dirdp.RenyiDP(order=5, epsilon=0.1), dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("guarantee", [RENYI, dirdp.TruncatedCDP(rho=0.01, omega=20), APPROX])
@pytest.mark.parametrize("alpha_min", [1e-3, 300.0])
def test_calibration_ends_at_the_boundary(guarantee, alpha_min):
    found = RealValuedLoss.for_guarantee(guarantee, alpha_min=alpha_min, delta_2_squared=0.5, delta_inf=0.25)
    assert found.satisfies(guarantee)
    assert not RealValuedLoss(found.r * 1.001, alpha_min, 0.5, 0.25).satisfies(guarantee)


def test_arguments():
    between = "between 1e-60 and 1e"
    wrong = {"r": 0, "alpha_min": -1.0, "delta_2_squared": math.nan, "delta_inf": "1"}
    far = {"r": 1e-200, "delta_inf": 1e200, "alpha_min": 1e-300}
    for name, value, words in (*((n, v, n) for n, v in wrong.items()), *((n, v, between) for n, v in far.items())):
        with pytest.raises(ArgumentError, match=words):
            RealValuedLoss(**({"r": 1.0, "alpha_min": 1.0, "delta_2_squared": 2.0, "delta_inf": 1.0} | {name: value}))
    for guarantee in (dirdp.PureDP(epsilon=1), dirdp.ZeroCDP(rho=1)):
        with pytest.raises(UnattainableError, match="unbounded"):
            RealValuedLoss.for_guarantee(guarantee, alpha_min=1.0, delta_2_squared=1.0, delta_inf=1.0)
    # An entry cannot change by more than the whole vector.
    assert RealValuedLoss(1.0, 2.0, 0.25, 9.0).renyi(3) == pytest.approx(RealValuedLoss(1.0, 2.0, 0.25, 0.5).renyi(3))
