"""Log-linear models: densities, derivatives, modes, what measurements tell, and draws around the mode."""

import numpy as np
import pytest

from pymc_dirdp.inference.log_linear import LogLinearPosterior, Marginals
from pymc_dirdp.inference.measurements import Family, Measurement
from pymc_dirdp.networks.joint_fit import NetworkMarginals


def joined(tables):
    return np.concatenate([table.ravel() for table in tables])


class Problem:
    """Families with their true tables, noisy marginals of the product of these, and the posterior.

    Its variance of the sample is that at the true tables.
    """

    def __init__(self, families, measured, n, *, whole):
        self.families, self.measured, self.n = families, measured, n
        rng, self.truth = np.random.default_rng(3), {}
        for family in families:
            rows, values = ((), family.shape) if whole else (family.shape[:-1], family.shape[-1:])
            self.truth[family.name] = rng.dirichlet(np.ones(np.prod(values)), rows).reshape(family.shape)
        self.of_sample, self.measurements = self.marginals(self.truth), []
        # Each with a variance of its own.
        for i, (axes, counts) in enumerate(zip(measured, self.of_sample, strict=True), 1):
            noisy = counts + rng.normal(0, (40 * i) ** 0.5, counts.shape)
            self.measurements.append(Measurement(tuple(axes), noisy, 40.0 * i))
        kind = Marginals if whole else NetworkMarginals
        marginals = kind(families, [one.axes for one in self.measurements])
        self.posterior = LogLinearPosterior(marginals, self.measurements, n)
        self.start = self.posterior.coordinates(self.truth)
        self.posterior.reweighted(self.start)
        self.variances = joined([np.full(one.noisy.shape, one.variance) for one in self.measurements])
        self.variances += joined(self.of_sample)

    def marginals(self, tables):
        """The expected counts of all that is measured."""
        factors = ",".join("".join(family.axes) for family in self.families)
        return [self.n * np.einsum(f"{factors}->{axes}", *tables.values()) for axes in self.measured]

    def expected(self, coordinates):
        return joined(self.marginals(self.posterior.tables(coordinates)))

    def random(self, rng):
        return joined([rng.normal(size=effects.shape) for effects in self.posterior.effects])

    def scales(self, scale):
        """The same for each group of effects but the first, which changes no share; and of each coordinate."""
        orders = [effects.orders for effects in self.posterior.effects]
        of_groups = [np.array([0.0, *np.full(len(order) - 1, scale)]) for order in orders]
        return of_groups, self.posterior._of_each(of_groups)


# The parents of c are not measured together, and d has no edge from a.
NETWORK = [
    Family("p_a", ("a",), (3,)),
    Family("p_c", ("b", "a", "c"), (2, 3, 2)),
    Family("p_b", ("b",), (2,)),
    Family("p_d", ("c", "d"), (2, 3)),
]
PROBLEMS = {
    "network": Problem(NETWORK, ("cab", "dc", "a", "da"), 900.0, whole=False),
    "one table": Problem([Family("p", ("a", "b", "c"), (2, 3, 4))], ("abc", "ca", "b", "c"), 800.0, whole=True),
}


@pytest.fixture(params=PROBLEMS)
def problem(request):
    return PROBLEMS[request.param]


def test_the_objective_and_its_derivatives(problem):
    """Minus the logarithm of the stated densities, its curvature, and that by squares of slopes of the marginals."""
    posterior, rng = problem.posterior, np.random.default_rng(1)
    x, other, v = (problem.random(rng) for _ in range(3))
    scales, noisy = rng.uniform(0.5, 1.5, x.size), joined([one.noisy for one in problem.measurements])

    def directly(x):
        return 0.5 * x @ x + 0.5 * np.sum((noisy - problem.expected(scales * x)) ** 2 / problem.variances)

    difference = posterior.objective(x, scales)[0] - posterior.objective(other, scales)[0]
    assert difference == pytest.approx(directly(x) - directly(other), rel=1e-11)
    h, unit = 1e-6, np.eye(x.size)
    ends = directly(x + h * v), directly(x - h * v)
    assert posterior.objective(x, scales)[1] @ v == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-5)
    ahead, behind = (posterior.objective(x + step * v, scales)[1] for step in (h, -h))
    np.testing.assert_allclose(posterior.curvature(x, scales)(v), (ahead - behind) / (2 * h), rtol=1e-5, atol=1e-3)
    ahead, behind = ([problem.expected(scales * (x + step * e)) for e in unit] for step in (h, -h))
    slopes = np.subtract(ahead, behind).T / (2 * h)
    dense = unit + slopes.T @ (slopes / problem.variances[:, None])
    np.testing.assert_allclose(posterior.curvature(x, scales, gauss_newton=True)(unit), dense, rtol=1e-5, atol=1e-5)


def test_the_mode_has_no_gradient_and_does_not_depend_on_the_start(problem):
    posterior, (scales, of_each) = problem.posterior, problem.scales(1.0)
    mode = posterior.mode(problem.start, scales, 1e-6)
    other = posterior.mode(problem.random(np.random.default_rng(0)), scales, 1e-6)
    np.testing.assert_allclose(other, mode, atol=1e-6)
    assert np.linalg.norm(posterior.objective(mode, of_each)[1]) < 1e-6


def test_what_the_marginals_tell_is_what_linear_algebra_gives(problem):
    """The trace of the part that they determine, and the evidence by Laplace's approximation."""
    posterior, found = problem.posterior, []
    for scale in (0.6, 0.3):
        scales, of_each = problem.scales(scale)
        mode = posterior.mode(problem.start, scales, 1e-6)
        x = np.divide(mode, of_each, out=np.zeros(mode.shape), where=of_each > 0)
        curvature = posterior.curvature(x, of_each, gauss_newton=True)(np.eye(x.size))
        parts = np.split(
            1 - np.diag(np.linalg.inv(curvature)),
            np.cumsum([effects.groups.size for effects in posterior.effects])[:-1],
        )
        for known, effects, part in zip(posterior.known(mode, scales), posterior.effects, parts, strict=True):
            exact = effects.sums(part.reshape(effects.shape))
            np.testing.assert_allclose(known, exact, atol=0.25)
            assert known.sum() == pytest.approx(exact.sum(), rel=0.05, abs=0.3)
        laplace = -posterior.objective(x, of_each)[0] - np.linalg.slogdet(curvature)[1] / 2
        found.append((posterior.log_evidence(mode, scales), laplace))
    (one, first), (other, second) = found
    assert one - other == pytest.approx(first - second, abs=0.02)


def test_draws_around_the_mode_have_the_inverse_curvature_as_covariance(problem):
    """Of 4,000 pairs, in each direction that linear algebra looks at; a variance is off by 0.022 at one deviation."""
    posterior, (scales, of_each) = problem.posterior, problem.scales(1.0)
    mode = posterior.mode(problem.start, scales, 1e-6)
    draws, free = posterior.spread(mode, scales, np.random.default_rng(3), 8000), of_each > 0
    assert draws.shape == (8000, mode.size)
    off = (draws - mode)[:, free]
    matrix = posterior.curvature(mode, of_each, gauss_newton=True)(np.eye(mode.size))[np.ix_(free, free)]
    np.testing.assert_allclose(off.mean(axis=0), 0, atol=1e-12)
    values, vectors = np.linalg.eigh(matrix)
    ratios = (off @ vectors).var(axis=0) * values
    assert np.all(np.abs(ratios - 1) < 0.13)
    assert np.any(np.abs(1.2 * ratios - 1) > 0.13)
