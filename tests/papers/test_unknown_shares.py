"""Expected divergences from unknown shares: against quadrature over the shares, and against simulation."""

import numpy as np
import pytest
from printed_p1 import p1_equation_4, unknown_shares_kl
from scipy import integrate, stats
from scipy.special import digamma, rel_entr, xlogy

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.planning.calibration import Boundary
from pymc_dirdp.planning.expected_kl import PriorExpectedKL
from pymc_dirdp.privacy.people import Contribution


def by_quadrature(prior, alpha, r, n):
    """Two categories: an integral over p of a sum over counts of the two expectations over y, which is Beta."""
    prior_distribution = stats.beta(*prior)

    def given(p):
        x = np.arange(n + 1)
        mass = stats.binom(n, p).pmf(x)
        u = np.stack([r * x + alpha[0], r * (n - x) + alpha[1]])
        total = u.sum(axis=0)
        entropy = xlogy(p, p) + xlogy(1 - p, 1 - p)
        forward = entropy - p * digamma(u[0]) - (1 - p) * digamma(u[1]) + digamma(total)
        mean = u / total
        of_draw = (mean * (digamma(u + 1) - digamma(total + 1))).sum(axis=0)
        reverse = of_draw - mean[0] * np.log(p) - mean[1] * np.log1p(-p)
        return prior_distribution.pdf(p) * (mass @ forward), prior_distribution.pdf(p) * (mass @ reverse)

    return [integrate.quad(lambda p, i=i: given(p)[i], 0, 1, epsabs=1e-11, limit=400)[0] for i in (0, 1)]


@pytest.mark.thorough
@pytest.mark.parametrize("prior", [(1.0, 1.0), (2.5, 1.5)])
@pytest.mark.parametrize(("alpha", "r"), [((1.0, 1.0), 1.0), ((3.0, 2.0), 0.2), ((0.5, 4.0), 2.0)])
@pytest.mark.parametrize("n", [0, 1, 30])
def test_two_categories_by_quadrature(prior, alpha, r, n):
    found = unknown_shares_kl(DirichletMechanism(alpha, r), prior=prior, n_records=n)
    forward, reverse = by_quadrature(prior, alpha, r, n)
    assert found.forward == pytest.approx(forward, rel=1e-7)
    assert found.reverse == pytest.approx(reverse, rel=1e-7)


def test_a_table_of_rows_against_simulation():
    rng = np.random.default_rng(11)
    prior, alpha = np.array([[1.0, 1.0, 4.0], [0.5, 2.0, 2.0]]), np.array([[2.0, 2.0, 3.0], [1.0, 1.5, 2.5]])
    r, n, many = 0.4, 60, 40_000
    found = unknown_shares_kl(DirichletMechanism(alpha, r), prior=prior, n_records=n)
    forward, reverse = np.zeros(many), np.zeros(many)
    for a, b in zip(prior, alpha, strict=True):
        p = rng.dirichlet(a, many)
        gamma = rng.gamma(r * rng.multinomial(n // 2, p) + b)
        y = gamma / gamma.sum(axis=1, keepdims=True)
        forward += rel_entr(p, y).sum(axis=1) / 2
        reverse += rel_entr(y, p).sum(axis=1) / 2
    for name, values in (("forward", forward), ("reverse", reverse)):
        assert abs(values.mean() - getattr(found, name)) < 5 * values.std() / np.sqrt(many)


def test_how_far_it_is_from_the_loss_against_the_frequencies():
    """What is between both is what the data themselves do not tell of p: (d - 1) / 2N."""
    mechanism = dirdp.calibrate(dirdp.ApproxDP(epsilon=1, delta=1e-6), prior=np.ones(4), n_records=100_000)
    found = unknown_shares_kl(mechanism, prior=np.ones(4), n_records=100_000)
    s = float(mechanism.alpha[0]) - 1
    known = PriorExpectedKL(np.ones(4), 100_000).estimate(mechanism.r, s)
    assert found.forward - known == pytest.approx(3 / 2 / 100_000, rel=0.1)


def test_equation_4_bounds_both_directions_draw_by_draw():
    rng = np.random.default_rng(5)
    for _ in range(200):
        p = rng.dirichlet([1.0, 2.0, 0.7])
        f = rng.multinomial(20, p) / 20
        y = rng.dirichlet(5 * f + 0.5)
        assert rel_entr(p, y).sum() <= p1_equation_4(p=p, frequencies=f, y=y) * (1 + 1e-12)
        # "A similar bound for KL(y || p)": y and p change places.
        if np.all(f > 0):
            assert rel_entr(y, p).sum() <= p1_equation_4(p=y, frequencies=f, y=p) * (1 + 1e-12)
    f = np.array([0.6, 0.4])
    assert p1_equation_4(p=f, frequencies=f, y=f) == 0


def test_extremes():
    for prior, alpha, r, n in (
        (np.full(1000, 1e-3), np.full(1000, 1e-3), 1e-4, 10_000_000),
        (np.arange(1.0, 101.0), np.full(100, 0.5), 10.0, 1),
        (np.ones(2), np.full(2, 1e6), 1e-4, 0),
    ):
        found = unknown_shares_kl(DirichletMechanism(alpha, r), prior=prior, n_records=n)
        assert np.isfinite([found.forward, found.reverse]).all()
        assert found.forward >= 0
        assert found.reverse >= 0


def test_arguments():
    mechanism = DirichletMechanism([1.0, 1.0], 0.5)
    with pytest.raises(ArgumentError, match="shape"):
        unknown_shares_kl(mechanism, prior=[1, 1, 1], n_records=3)
    with pytest.raises(ArgumentError, match="n_records"):
        unknown_shares_kl(mechanism, prior=[1, 1], n_records=-1)
    with pytest.raises(ArgumentError, match="no tempered posterior"):
        unknown_shares_kl(dirdp.mechanisms.DiscreteGaussianMechanism([1, 1], 2.0), prior=[1, 1], n_records=3)
    for wrong in ({"p": [0.5, 0.6]}, {"y": [1.0, 0.0]}, {"frequencies": [1.5, -0.5]}, {"p": [0.2, 0.3, 0.5]}):
        with pytest.raises((ArgumentError, dirdp.errors.DataError)):
            p1_equation_4(**({"p": [0.5, 0.5], "frequencies": [0.5, 0.5], "y": [0.5, 0.5]} | wrong))


@pytest.mark.parametrize(
    ("prior", "n", "guarantee"),
    [
        (np.ones(4), 592, dirdp.ApproxDP(epsilon=1, delta=1e-6)),
        (np.full(10, 0.3), 1000, dirdp.ApproxDP(epsilon=1, delta=1e-6)),
        (np.ones(10), 1000, dirdp.RenyiDP(order=5, epsilon=0.1)),
    ],
)
def test_the_objective_for_estimates_is_nearly_the_best_for_unknown_shares(prior, n, guarantee):
    """Against a search along the boundary of the guarantee; the objective for posteriors is not."""
    boundary = Boundary(guarantee, prior, adjacency="replace-one", min_count=0.0, contribution=Contribution())
    found = []
    for s in np.geomspace(0.1, 30, 24).tolist():
        mechanism = DirichletMechanism(prior + s, boundary.largest_r(s))
        found.append(unknown_shares_kl(mechanism, prior=prior, n_records=n))
    forward, reverse = min(kl.forward for kl in found), min(kl.reverse for kl in found)
    planned, other = (
        unknown_shares_kl(
            dirdp.calibrate(guarantee, prior=prior, n_records=n, objective=objective), prior=prior, n_records=n
        )
        for objective in ("estimate", "posterior")
    )
    assert planned.forward < 1.001 * forward
    assert planned.reverse < 1.03 * reverse
    assert other.forward > 1.1 * forward
