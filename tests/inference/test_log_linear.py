import itertools

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from pymc_dirdp.inference.log_linear import EliminationError, LogLinearPosterior, NetworkMarginals
from pymc_dirdp.inference.measurements import Family, Measurement

SEEDS = range(20)


def network(seed):
    """A random directed graph of up to 6 nodes, its tables, and some sets of variables, in random orders."""
    rng = np.random.default_rng(seed)
    nodes = [f"v{i}" for i in range(rng.integers(2, 7))]
    sizes = dict(zip(nodes, rng.integers(1, 5, len(nodes)).tolist(), strict=True))
    order = rng.permutation(nodes).tolist()
    families = []
    for i, node in enumerate(order):
        parents = rng.permutation(order[:i]).tolist()[: rng.integers(0, min(i, 3) + 1)]
        axes = (*parents, node)
        families.append(Family(f"p_{node}", axes, tuple(sizes[axis] for axis in axes)))
    families = [families[i] for i in rng.permutation(len(families))]
    tables = [rng.dirichlet(np.ones(family.shape[-1]), family.shape[:-1]) for family in families]
    wanted = [family.axes for family in families]
    wanted += [tuple(rng.permutation(nodes)[: rng.integers(1, len(nodes) + 1)].tolist()) for _ in range(6)]
    return families, tables, wanted, rng


def brute_force(families, tables, wanted):
    """Marginals of the product of all tables."""
    letters = {family.variable: chr(ord("a") + i) for i, family in enumerate(families)}
    spelled = [("".join(letters[axis] for axis in axes)) for axes in [family.axes for family in families]]
    return [np.einsum(f"{','.join(spelled)}->{''.join(letters[axis] for axis in axes)}", *tables) for axes in wanted]


@pytest.mark.parametrize("seed", SEEDS)
def test_marginals_are_those_of_the_product_of_all_tables(seed):
    families, tables, wanted, _ = network(seed)
    marginals = NetworkMarginals(families, wanted)
    for found, expected in zip(
        marginals.values(marginals.run(tables)), brute_force(families, tables, wanted), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("seed", SEEDS)
def test_derivatives_forwards_are_those_of_finite_differences(seed):
    families, tables, wanted, rng = network(seed)
    marginals = NetworkMarginals(families, wanted)
    direction = [rng.normal(size=table.shape) for table in tables]
    h = 1e-5
    ahead, behind = (
        marginals.values(marginals.run([t + s * h * d for t, d in zip(tables, direction, strict=True)]))
        for s in (1, -1)
    )
    forward = marginals.values(marginals.changes(marginals.run(tables), direction))
    for found, a, b in zip(forward, ahead, behind, strict=True):
        np.testing.assert_allclose(found, (a - b) / (2 * h), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
def test_derivatives_backwards_are_the_transposed_of_those_forwards(seed):
    families, tables, wanted, rng = network(seed)
    marginals = NetworkMarginals(families, wanted)
    made = marginals.run(tables)
    direction = [rng.normal(size=table.shape) for table in tables]
    of_wanted = [rng.normal(size=value.shape) for value in marginals.values(made)]
    forward = marginals.values(marginals.changes(made, direction))
    forwards = sum(np.sum(a * b) for a, b in zip(of_wanted, forward, strict=True))
    slopes = marginals.slopes(made, of_wanted)[: len(tables)]
    assert forwards == pytest.approx(sum(np.sum(a * b) for a, b in zip(slopes, direction, strict=True)), rel=1e-10)


@pytest.mark.parametrize("seed", SEEDS)
def test_changes_of_slopes_are_those_of_finite_differences(seed):
    families, tables, wanted, rng = network(seed)
    marginals = NetworkMarginals(families, wanted)
    made = marginals.run(tables)
    direction = [rng.normal(size=table.shape) for table in tables]
    of_wanted, change = ([rng.normal(size=value.shape) for value in marginals.values(made)] for _ in range(2))
    h = 1e-5

    def slopes(step):
        there = marginals.run([t + step * d for t, d in zip(tables, direction, strict=True)])
        return marginals.slopes(there, [a + step * b for a, b in zip(of_wanted, change, strict=True)])[: len(tables)]

    found = marginals.slope_changes(made, marginals.changes(made, direction), marginals.slopes(made, of_wanted), change)
    for one, ahead, behind in zip(found[: len(tables)], slopes(h), slopes(-h), strict=True):
        np.testing.assert_allclose(one, (ahead - behind) / (2 * h), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", SEEDS[:5])
def test_many_directions_at_once_are_each_by_itself(seed):
    families, tables, wanted, rng = network(seed)
    marginals = NetworkMarginals(families, wanted)
    made = marginals.run(tables)
    directions = [rng.normal(size=(3, *table.shape)) for table in tables]
    together = marginals.values(marginals.changes(made, directions))
    of_wanted = [value * 2 for value in together]
    back = marginals.slopes(made, of_wanted)[: len(tables)]
    for i in range(3):
        alone = marginals.values(marginals.changes(made, [d[i] for d in directions]))
        for a, b in zip(together, alone, strict=True):
            np.testing.assert_allclose(a[i], b, atol=1e-12)
        for a, b in zip(back, marginals.slopes(made, [2 * value for value in alone]), strict=False):
            np.testing.assert_allclose(a[i], b, atol=1e-12)


def grid(width):
    """A grid of variables of 10 values, each with the ones above and to the left as parents, and one child of a row."""
    families = []
    for i, j in itertools.product(range(width), repeat=2):
        axes = tuple(f"v{a}{b}" for a, b in ((i - 1, j), (i, j - 1)) if a >= 0 and b >= 0) + (f"v{i}{j}",)
        families.append(Family(f"p_{i}{j}", axes, (10,) * len(axes)))
    return families


def test_a_network_whose_elimination_explodes_is_refused_before_anything_is_computed():
    families = grid(9)
    with pytest.raises(EliminationError, match=r"needs a product of 10+ cells.*consistency='tables'"):
        NetworkMarginals(families, [family.axes for family in families])


def test_a_chain_of_many_variables_needs_small_tables_only():
    families = [Family("p_0", ("v0",), (10,))]
    families += [Family(f"p_{i}", (f"v{i - 1}", f"v{i}"), (10, 10)) for i in range(1, 60)]
    tables = [np.random.default_rng(i).dirichlet(np.ones(10), family.shape[:-1]) for i, family in enumerate(families)]
    marginals = NetworkMarginals(families, [("v59",), ("v3", "v58")])
    last, far = marginals.values(marginals.run(tables))
    np.testing.assert_allclose(last, np.linalg.multi_dot([tables[0][None], *tables[1:]])[0], atol=1e-12)
    first = np.linalg.multi_dot([tables[0][None], *tables[1:4]])[0]
    np.testing.assert_allclose(far, first[:, None] * np.linalg.multi_dot(tables[4:59]), atol=1e-12)


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
        return LogLinearPosterior(self.families, measurements, self.n, whole=self.whole)


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
    scales = [rng.uniform(0.5, 1.5, effects.shape) for effects in posterior.effects]
    return scales, *rng.normal(size=(n, sum(scale.size for scale in scales)))


def scales_of_groups(posterior, scale):
    """The same for each group of effects but the first, which changes no share."""
    return [np.array([0.0, *np.full(len(effects.orders) - 1, scale)]) for effects in posterior.effects]


def joined(tables):
    return np.concatenate([table.ravel() for table in tables])


def expected_at(problem, posterior, x, scales):
    """The marginals at coordinates that are divided by their scales."""
    parts = np.split(x, np.cumsum([scale.size for scale in scales])[:-1])
    coordinates = [scale * part.reshape(scale.shape) for scale, part in zip(scales, parts, strict=True)]
    return problem.marginals(posterior.tables(coordinates))


def test_tables_and_coordinates_are_inverse(problem, posterior):
    for name, table in posterior.tables(posterior.coordinates(problem.truth)).items():
        np.testing.assert_allclose(table, problem.truth[name], rtol=1e-12)


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


def test_the_gradient_is_that_of_finite_differences(posterior):
    scales, x = points(posterior, 1)
    numeric = approx_fprime(x, lambda x: posterior.objective(x, scales)[0], 1e-7)
    np.testing.assert_allclose(posterior.objective(x, scales)[1], numeric, rtol=1e-4, atol=1e-3)


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
    mode = joined(posterior.mode(posterior.coordinates(problem.truth), scales, 1e-6))
    start = [rng.normal(size=effects.shape) for effects in posterior.effects]
    np.testing.assert_allclose(joined(posterior.mode(start, scales, 1e-6)), mode, atol=1e-6)
    assert np.linalg.norm(posterior.objective(mode, posterior._of_each(scales))[1]) < 1e-6


def test_without_measurements_the_shares_are_uniform(problem):
    posterior = problem.posterior([])
    mode = posterior.mode(
        [np.ones(effects.shape) for effects in posterior.effects], scales_of_groups(posterior, 1.0), 1e-6
    )
    for table in posterior.tables(mode).values():
        np.testing.assert_allclose(table, 1 / (table.size if problem.whole else table.shape[-1]), rtol=1e-6)


@pytest.mark.parametrize("name", [pytest.param("network", marks=pytest.mark.thorough), "one table"])
def test_without_noise_and_without_shrinkage_the_tables_are_those_that_were_measured(name):
    problem = PROBLEMS[name]
    exact = problem.posterior(problem.measurements(1e-6))
    if problem.whole:
        # The mode is the same with the variance of the sample, and is found in a tenth of the time.
        exact.reweighted(exact.coordinates(problem.truth))
    flat = [np.zeros(effects.shape) for effects in exact.effects]
    mode = exact.mode(flat, scales_of_groups(exact, 1e5), 1e-4)
    for name, table in exact.tables(mode).items():
        np.testing.assert_allclose(table, problem.truth[name], atol=1e-6)


def test_what_the_marginals_tell_is_the_trace_that_linear_algebra_gives(problem, posterior):
    scales = scales_of_groups(posterior, 0.6)
    mode, of_each = posterior.mode(posterior.coordinates(problem.truth), scales, 1e-6), posterior._of_each(scales)
    x = joined(
        [np.divide(one, own, out=np.zeros(own.shape), where=own > 0) for one, own in zip(mode, of_each, strict=True)]
    )
    determined = 1 - np.diag(np.linalg.inv(posterior.curvature(x, of_each, gauss_newton=True)(np.eye(x.size))))
    parts = np.split(determined, np.cumsum([own.size for own in of_each])[:-1])
    for known, effects, part in zip(posterior.known(mode, scales), posterior.effects, parts, strict=True):
        exact = effects.sums(part.reshape(effects.shape))
        np.testing.assert_allclose(known, exact, atol=0.25)
        assert known.sum() == pytest.approx(exact.sum(), rel=0.05)


def fitted_chain(measurements):
    """The joint counts of 400 records that fit a chain of three variables, hardly shrunk."""
    families = [Family("p_a", ("a",), (2,)), Family("p_b", ("a", "b"), (2, 3)), Family("p_c", ("b", "c"), (3, 2))]
    exact = LogLinearPosterior(families, measurements, 400.0)
    flat = [np.zeros(effects.shape) for effects in exact.effects]
    tables = exact.tables(exact.mode(flat, scales_of_groups(exact, 20.0), 1e-4))
    return 400 * np.einsum("a,ab,bc->abc", tables["p_a"], tables["p_b"], tables["p_c"])


def test_noiseless_marginals_of_a_chain_have_the_joint_counts_that_private_pgm_gives():
    """Of `mbi` 2.0.0: `MirrorDescent().estimate` of these two marginals, 400 records, 2000 iterations.

    Two marginals that agree in what they share have one network through both: counts of ab times bc over those of b.
    """
    ab, bc = np.array([[120.0, 60, 20], [30, 90, 80]]), np.array([[100.0, 50], [30, 120], [90, 10]])
    of_mbi = [[[80, 40], [12, 48], [18, 2]], [[20, 10], [18, 72], [72, 8]]]
    joint = fitted_chain([Measurement(("a", "b"), ab, 1e-6), Measurement(("b", "c"), bc, 1e-6)])
    np.testing.assert_allclose(joint, of_mbi, atol=1e-3)


def test_noisy_marginals_of_a_chain_have_the_fit_that_private_pgm_gives():
    """Marginals that contradict each other, with noise of different sizes: the network nearest to all of them.

    Of `mbi` 2.0.0: `MirrorDescent().estimate` of these four marginals, 400 records, 5000 iterations, in doubles. All
    cells of the fit are positive, so least squares among marginals that agree give the same.
    """
    noisy = {
        "ab": ([[121.3, 57.9, 24.6], [28.2, 93.4, 74.1]], 4.0),
        "bc": ([[104.7, 49.2], [26.9, 121.8], [95.3, 13.1]], 6.0),
        "b": ([148.6, 151.2, 99.7], 3.0),
        "c": ([221.9, 171.4], 5.0),
    }
    of_mbi = {
        "ab": [[121.08851844, 57.66185179, 25.2996298], [27.98851841, 93.16185179, 74.79962976]],
        "bc": [[103.3306246, 45.74641225], [29.00395807, 121.81974551], [92.19173267, 7.90752689]],
    }
    unit = np.eye(12).reshape(12, 2, 3, 2)
    # The known total comes with hardly any noise.
    sums = [np.einsum(f"nabc->n{axes}", unit).reshape(12, -1).T / sd for axes, (_, sd) in noisy.items()]
    rows = [np.full((1, 12), 1e6), *sums]
    seen = [np.array([400e6]), *(np.ravel(counts) / sd for counts, sd in noisy.values())]
    nearest = np.linalg.lstsq(np.concatenate(rows), np.concatenate(seen))[0].reshape(2, 3, 2)
    joint = fitted_chain([Measurement(tuple(axes), np.array(counts), sd**2) for axes, (counts, sd) in noisy.items()])
    for axes, expected in of_mbi.items():
        np.testing.assert_allclose(np.einsum(f"abc->{axes}", nearest), expected, atol=1e-4)
        np.testing.assert_allclose(np.einsum(f"abc->{axes}", joint), expected, atol=0.02)


def test_draws_around_the_mode_have_the_inverse_curvature_as_covariance(problem, posterior):
    """Of 4,000 pairs, in each direction that linear algebra looks at; a variance is off by 0.022 at one deviation."""
    scales = scales_of_groups(posterior, 1.0)
    mode = posterior.mode(posterior.coordinates(problem.truth), scales, 1e-6)
    draws = posterior.spread(mode, scales, np.random.default_rng(3), 8000)
    assert {len(one) for one in draws} == {8000}
    of_each = posterior._of_each(scales)
    x, free = joined(mode), joined(of_each) > 0
    off = (np.concatenate([one.reshape(8000, -1) for one in draws], axis=1) - x)[:, free]
    matrix = posterior.curvature(x, of_each, gauss_newton=True)(np.eye(x.size))[np.ix_(free, free)]
    np.testing.assert_allclose(off.mean(axis=0), 0, atol=1e-12)
    values, vectors = np.linalg.eigh(matrix)
    ratios = (off @ vectors).var(axis=0) * values
    assert np.all(np.abs(ratios - 1) < 0.13)
    assert np.any(np.abs(1.2 * ratios - 1) > 0.13)
