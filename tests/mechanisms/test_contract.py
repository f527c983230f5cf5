"""Laws that every mechanism keeps, whatever it is. A new mechanism is one more subject."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.special import gammaln

from pymc_dirdp.composition import Composition
from pymc_dirdp.guarantees import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.gaussian import GaussianMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.mechanisms.laplace import LaplaceMechanism


def dirichlet_renyi(mechanism, order, x, y):
    """Divergence of the output laws at counts x and y, from beta functions."""
    u, v = mechanism.concentration(x), mechanism.concentration(y)
    mixed = order * u + (1 - order) * v
    if np.any(mixed <= 0):
        return math.inf

    def log_beta(a):
        return gammaln(a).sum(axis=-1) - gammaln(a.sum(axis=-1))

    return float(np.sum(log_beta(mixed) - order * log_beta(u) - (1 - order) * log_beta(v)) / (order - 1))


@dataclass(frozen=True)
class Subject:
    """A mechanism, and an oracle for the divergence of its outputs at two data sets."""

    mechanism: Mechanism
    shape: tuple[int, ...]
    adjacency: str
    divergence: Callable
    least: int = 0


def dirichlet(alpha, r, **options):
    mechanism = DirichletMechanism(alpha, r, **options)
    return Subject(
        mechanism, mechanism.alpha.shape, mechanism.adjacency, dirichlet_renyi, math.ceil(mechanism.min_count)
    )


def gaussian_renyi(mechanism, order, x, y):
    return order * float(np.sum((x - y) ** 2)) / (2 * mechanism.sigma**2)


def laplace_renyi(mechanism, order, x, y):
    """By quadrature over each cell; the integrand has a kink at both counts."""
    b, total = mechanism.scale, 0.0
    for shift in np.abs(x - y).ravel():
        integral = sum(
            quad(lambda z, s=shift: math.exp(-(order * abs(z - s) + (1 - order) * abs(z)) / b) / (2 * b), low, high)[0]
            for low, high in ((-40 * b, 0), (0, shift), (shift, shift + 40 * b))
        )
        total += math.log(integral) / (order - 1)
    return total


def geometric_renyi(mechanism, order, x, y):
    """By summation over whole numbers, cell by cell."""
    g = np.arange(-400, 402)
    total = 0.0
    for shift in np.abs(x - y).ravel():
        p, q = (np.exp(-np.abs(g - at) / mechanism.scale) for at in (shift, 0))
        total += math.log(math.fsum((p / p.sum()) ** order * (q / q.sum()) ** (1 - order))) / (order - 1)
    return total


SUBJECTS = {
    "geometric": Subject(GeometricMechanism(np.ones(3), 3.0), (3,), "replace-one", geometric_renyi),
    "gaussian": Subject(GaussianMechanism(np.ones(3), 4.0), (3,), "replace-one", gaussian_renyi),
    "gaussian add-remove": Subject(
        GaussianMechanism(np.ones((2, 2)), 2.0, adjacency="add-remove"), (2, 2), "add-remove", gaussian_renyi
    ),
    "laplace": Subject(LaplaceMechanism(np.ones((2, 2)), 3.0), (2, 2), "replace-one", laplace_renyi),
    "laplace add-remove": Subject(
        LaplaceMechanism(np.ones(3), 1.5, adjacency="add-remove"), (3,), "add-remove", laplace_renyi
    ),
    "flat": dirichlet([1.0, 1.0, 1.0], 0.2),
    "uneven": dirichlet([0.3, 2.0], 0.1),
    "rows": dirichlet([[1.0, 0.6], [2.0, 0.5]], 0.15),
    "add-remove": dirichlet([0.8, 1.5, 1.0], 0.2, adjacency="add-remove"),
    "min_count": dirichlet([0.2, 0.2], 0.5, min_count=1.0),
    "posterior": dirichlet([1.0, 1.0], 1.0),
}


@pytest.fixture(params=SUBJECTS)
def subject(request):
    return SUBJECTS[request.param]


@pytest.fixture
def mechanism(subject):
    return subject.mechanism


ORDERS = np.concatenate([[1.0], 1 + np.geomspace(1e-6, 50, 25)])
EPSILONS = np.linspace(0, 6, 25)


def neighbours(subject, n):
    """All neighbouring data sets of n records over the cells, on top of what every cell holds."""
    cells = math.prod(subject.shape)
    for data in itertools.combinations_with_replacement(range(cells), n):
        x = np.bincount(data, minlength=cells) + subject.least
        if subject.adjacency == "add-remove":
            for cell in range(cells):
                yield x, x + np.eye(cells, dtype=int)[cell]
            continue
        for left, joined in itertools.permutations(range(cells), 2):
            if x[left] > subject.least:
                y = x.copy()
                y[left] -= 1
                y[joined] += 1
                yield x, y


@pytest.mark.parametrize("order", [1.3, 2.0, 4.0])
def test_no_neighbours_are_further_apart_than_the_curve(subject, order):
    bound = subject.mechanism.renyi(order)
    worst = max(
        subject.divergence(subject.mechanism, order, *(counts.reshape(subject.shape) for counts in pair))
        for n in range(1, 4)
        for x, y in neighbours(subject, n)
        for pair in ((x, y), (y, x))
    )
    assert worst <= bound * (1 + 1e-11)
    assert worst > 0.4 * bound or not math.isfinite(bound)


def test_curves_are_monotone(mechanism):
    divergences = mechanism.renyi(ORDERS)
    assert np.all(np.diff(divergences[np.isfinite(divergences)]) >= -1e-11 * divergences[0])
    rhos = mechanism.rho(ORDERS[1:])
    assert np.all(np.diff(rhos[np.isfinite(rhos)]) >= -1e-11 * rhos[0])
    deltas = mechanism.delta(EPSILONS)
    assert np.all(np.diff(deltas) <= 0)
    assert np.all((deltas >= 0) & (deltas <= 1))
    epsilons = mechanism.epsilon(np.geomspace(1e-12, 0.5, 15))
    assert np.all(np.diff(epsilons) <= 0)


def test_epsilon_is_the_inverse_of_delta_from_above(mechanism):
    for delta in (1e-2, 1e-5, 1e-9):
        epsilon = mechanism.epsilon(delta)
        assert mechanism.delta(epsilon) <= delta
        assert epsilon == 0 or mechanism.delta(epsilon * (1 - 1e-7)) > delta


def test_rho_bounds_every_divergence_below_omega(mechanism):
    for omega in (1.5, 2.0, 3.0):
        rho = mechanism.rho(omega)
        orders = np.linspace(1.001, omega * (1 - 1e-12), 20)
        assert np.all(mechanism.renyi(orders) <= orders * rho * (1 + 1e-11))


def test_the_curve_is_below_the_conversion_of_the_divergences(mechanism):
    for delta in (1e-3, 1e-6):
        order = mechanism.best_order(delta)
        converted = (
            mechanism.renyi(order) + math.log(order - 1) - (math.log(delta) + order * math.log(order)) / (order - 1)
        )
        # For a loss of two values the best conversion is exact, so the roots may differ in their last digits.
        assert mechanism.epsilon(delta) <= converted * (1 + 1e-9)


def test_satisfies_is_the_comparison_with_the_curve(mechanism):
    just = math.nextafter
    for guarantee, weaker in (
        (RenyiDP(order=1.5, epsilon=mechanism.renyi(1.5)), {"epsilon": just(mechanism.renyi(1.5), 0)}),
        (TruncatedCDP(rho=mechanism.rho(1.5), omega=1.5), {"rho": just(mechanism.rho(1.5), 0)}),
        (ApproxDP(epsilon=0.3, delta=mechanism.delta(0.3)), {"delta": just(mechanism.delta(0.3), 0)}),
    ):
        assert mechanism.satisfies(guarantee)
        facts = {name: getattr(guarantee, name) for name in guarantee.__dataclass_fields__} | weaker
        assert not mechanism.satisfies(type(guarantee)(**facts))
    assert mechanism.satisfies(PureDP(epsilon=1e9)) == math.isfinite(mechanism.pure_epsilon)
    assert mechanism.satisfies(ZeroCDP(rho=1e9)) == math.isfinite(mechanism.rho(math.inf))


def test_hockey_sticks_are_the_curve_and_compose(mechanism):
    there, back = mechanism.hockey_sticks(0.1, 40)
    np.testing.assert_allclose(np.maximum(there, back), mechanism.delta(0.1 * np.arange(40)), rtol=1e-9, atol=1e-300)
    twice = Composition(((mechanism, 2),))
    assert mechanism.epsilon(1e-6) < twice.epsilon(1e-6)
    assert twice.renyi(1.5) == 2 * mechanism.renyi(1.5)


def test_arrays_and_numbers_agree(mechanism):
    assert mechanism.renyi(2) == mechanism.renyi(np.array([2.0]))[0]
    assert mechanism.delta(np.array([[0.5, 1.0]])).shape == (1, 2)
    assert isinstance(mechanism.epsilon(1e-3), float)


def test_permuted_cells_and_rows_have_the_same_curves():
    """For the Dirichlet mechanism; exactly, not only up to rounding."""
    alpha = np.array([[1.0, 0.6, 3.0], [2.0, 0.5, 0.7]])
    first = DirichletMechanism(alpha, 0.2)
    second = DirichletMechanism(alpha[::-1, ::-1], 0.2)
    assert first.renyi(3) == second.renyi(3)
    assert first.delta(0.2) == second.delta(0.2)
