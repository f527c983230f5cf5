"""Log-linear models: densities, derivatives, modes, what measurements tell, and draws around the mode."""

import numpy as np
import pytest

from pymc_dirdp.inference.log_linear import LogLinearPosterior, Marginals
from pymc_dirdp.inference.measurements import Family, Measurement
from pymc_dirdp.networks.joint_fit import NetworkMarginals


class Problem:
    """Families with their true tables, and noisy marginals of the product of these."""

    def __init__(self, families, measured, n, *, whole):
        self.families, self.measured, self.n, self.whole = families, measured, n, whole
        rng, self.truth = np.random.default_rng(3), {}
        for family in families:
            rows, values = ((), family.shape) if whole else (family.shape[:-1], family.shape[-1:])
            self.truth[family.name] = rng.dirichlet(np.ones(np.prod(values)), rows).reshape(family.shape)

    def marginals(self, tables):
        """The expected counts of all that is measured."""
        factors = ",".join("".join(family.axes) for family in self.families)
        return [self.n * np.einsum(f"{factors}->{axes}", *tables.values()) for axes in self.measured]

    def measurements(self, variance, rng=None):
        """Each with a variance of its own, and without noise if there is nothing to draw it from."""
        found = []
        for i, (axes, counts) in enumerate(zip(self.measured, self.marginals(self.truth), strict=True), 1):
            noise = 0.0 if rng is None else rng.normal(0, (i * variance) ** 0.5, counts.shape)
            found.append(Measurement(tuple(axes), counts + noise, i * variance))
        return found

    def posterior(self, measurements):
        kind = Marginals if self.whole else NetworkMarginals
        return LogLinearPosterior(kind(self.families, [one.axes for one in measurements]), measurements, self.n)


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


@pytest.fixture
def measurements(problem):
    return problem.measurements(40.0, np.random.default_rng(5))


@pytest.fixture
def posterior(problem, measurements):
    """With the variance of the sample at the true tables."""
    found = problem.posterior(measurements)
    found.reweighted(found.coordinates(problem.truth))
    return found


def points(posterior, n=2):
    """Scales of each coordinate, and some points."""
    rng = np.random.default_rng(1)
    scales = joined([rng.uniform(0.5, 1.5, effects.shape) for effects in posterior.effects])
    return scales, *rng.normal(size=(n, scales.size))


def scales_of_groups(posterior, scale):
    """The same for each group of effects but the first, which changes no share."""
    return [np.array([0.0, *np.full(len(effects.orders) - 1, scale)]) for effects in posterior.effects]


def joined(tables):
    return np.concatenate([table.ravel() for table in tables])


def expected_at(problem, posterior, x, scales):
    """The marginals at coordinates that are divided by their scales."""
    return problem.marginals(posterior.tables(scales * x))


def test_the_objective_is_minus_the_logarithm_of_the_stated_densities(problem, measurements, posterior):
    scales, x, other = points(posterior)
    of_sample = problem.marginals(problem.truth)

    def directly(x):
        total, expected = 0.5 * x @ x, expected_at(problem, posterior, x, scales)
        for one, here, variance in zip(measurements, expected, of_sample, strict=True):
            total += 0.5 * np.sum((one.noisy - here) ** 2 / (one.variance + variance))
        return total

    difference = posterior.objective(x, scales)[0] - posterior.objective(other, scales)[0]
    assert difference == pytest.approx(directly(x) - directly(other), rel=1e-11)


def test_the_curvature_is_that_of_finite_differences(posterior):
    scales, x, v = points(posterior)
    h = 1e-6
    ahead, behind = (posterior.objective(x + step * v, scales)[1] for step in (h, -h))
    np.testing.assert_allclose(posterior.curvature(x, scales)(v), (ahead - behind) / (2 * h), rtol=1e-5, atol=1e-3)


def test_the_gauss_newton_curvature_is_the_sum_of_squares_of_derivatives_of_the_marginals(
    problem, measurements, posterior
):
    scales, x = points(posterior, 1)
    h, unit = 1e-6, np.eye(x.size)
    ahead, behind = ([joined(expected_at(problem, posterior, x + step * e, scales)) for e in unit] for step in (h, -h))
    slopes = np.subtract(ahead, behind).T / (2 * h)
    noise = joined([np.full(one.noisy.shape, one.variance) for one in measurements])
    variance = noise + joined(problem.marginals(problem.truth))
    dense = unit + slopes.T @ (slopes / variance[:, None])
    np.testing.assert_allclose(posterior.curvature(x, scales, gauss_newton=True)(unit), dense, rtol=1e-5, atol=1e-5)


def test_the_mode_has_no_gradient_and_does_not_depend_on_the_start(problem, posterior):
    scales, rng = scales_of_groups(posterior, 1.0), np.random.default_rng(0)
    mode = posterior.mode(posterior.coordinates(problem.truth), scales, 1e-6)
    start = joined([rng.normal(size=effects.shape) for effects in posterior.effects])
    np.testing.assert_allclose(posterior.mode(start, scales, 1e-6), mode, atol=1e-6)
    assert np.linalg.norm(posterior.objective(mode, posterior._of_each(scales))[1]) < 1e-6


@pytest.mark.parametrize("name", [pytest.param("network", marks=pytest.mark.thorough), "one table"])
def test_without_noise_and_without_shrinkage_the_tables_are_those_that_were_measured(name):
    problem = PROBLEMS[name]
    exact = problem.posterior(problem.measurements(1e-6))
    if problem.whole:
        # The mode is the same with the variance of the sample, and is found in a tenth of the time.
        exact.reweighted(exact.coordinates(problem.truth))
    flat = joined([np.zeros(effects.shape) for effects in exact.effects])
    mode = exact.mode(flat, scales_of_groups(exact, 1e5), 1e-4)
    for name, table in exact.tables(mode).items():
        np.testing.assert_allclose(table, problem.truth[name], atol=1e-6)


def test_what_the_marginals_tell_is_the_trace_that_linear_algebra_gives(problem, posterior):
    scales = scales_of_groups(posterior, 0.6)
    mode, of_each = posterior.mode(posterior.coordinates(problem.truth), scales, 1e-6), posterior._of_each(scales)
    x = np.divide(mode, of_each, out=np.zeros(mode.shape), where=of_each > 0)
    determined = 1 - np.diag(np.linalg.inv(posterior.curvature(x, of_each, gauss_newton=True)(np.eye(x.size))))
    parts = np.split(determined, np.cumsum([effects.groups.size for effects in posterior.effects])[:-1])
    for known, effects, part in zip(posterior.known(mode, scales), posterior.effects, parts, strict=True):
        exact = effects.sums(part.reshape(effects.shape))
        np.testing.assert_allclose(known, exact, atol=0.25)
        assert known.sum() == pytest.approx(exact.sum(), rel=0.05)


def test_draws_around_the_mode_have_the_inverse_curvature_as_covariance(problem, posterior):
    """Of 4,000 pairs, in each direction that linear algebra looks at; a variance is off by 0.022 at one deviation."""
    scales = scales_of_groups(posterior, 1.0)
    mode = posterior.mode(posterior.coordinates(problem.truth), scales, 1e-6)
    draws = posterior.spread(mode, scales, np.random.default_rng(3), 8000)
    assert draws.shape == (8000, mode.size)
    of_each = posterior._of_each(scales)
    free = of_each > 0
    off = (draws - mode)[:, free]
    matrix = posterior.curvature(mode, of_each, gauss_newton=True)(np.eye(mode.size))[np.ix_(free, free)]
    np.testing.assert_allclose(off.mean(axis=0), 0, atol=1e-12)
    values, vectors = np.linalg.eigh(matrix)
    ratios = (off @ vectors).var(axis=0) * values
    assert np.all(np.abs(ratios - 1) < 0.13)
    assert np.any(np.abs(1.2 * ratios - 1) > 0.13)
