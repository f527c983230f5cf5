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


# The parents of c are not measured together, and d has no edge from a.
FAMILIES = [
    Family("p_a", ("a",), (3,)),
    Family("p_c", ("b", "a", "c"), (2, 3, 2)),
    Family("p_b", ("b",), (2,)),
    Family("p_d", ("c", "d"), (2, 3)),
]
RNG = np.random.default_rng(3)
TABLES = {family.name: RNG.dirichlet(np.ones(family.shape[-1]), family.shape[:-1]) for family in FAMILIES}
JOINT = np.einsum("a,bac,b,cd->abcd", *TABLES.values())
AXES = ("cab", "dc", "a", "da")


def measured(variance, n=900.0, rng=None):
    exact = [n * np.einsum(f"abcd->{axes}", JOINT) for axes in AXES]
    noise = [0.0 if rng is None else rng.normal(0, variance**0.5, table.shape) for table in exact]
    return [
        Measurement(tuple(axes), table + extra, variance) for axes, table, extra in zip(AXES, exact, noise, strict=True)
    ]


@pytest.fixture
def posterior():
    found = LogLinearPosterior(FAMILIES, measured(40.0, rng=np.random.default_rng(5)), 900.0)
    found.reweighted(found.coordinates(TABLES))
    return found


def points(posterior, n=2):
    """Scales of each coordinate, and some points."""
    rng = np.random.default_rng(1)
    scales = [rng.uniform(0.5, 1.5, family.shape) for family in FAMILIES]
    return scales, *rng.normal(size=(n, sum(scale.size for scale in scales)))


def test_tables_and_coordinates_are_inverse(posterior):
    for name, table in posterior.tables(posterior.coordinates(TABLES)).items():
        np.testing.assert_allclose(table, TABLES[name], rtol=1e-12)


def test_the_objective_is_minus_the_logarithm_of_the_stated_densities(posterior):
    scales, x, other = points(posterior)
    noisy = measured(40.0, rng=np.random.default_rng(5))

    def directly(x):
        ends = np.cumsum([scale.size for scale in scales])[:-1]
        coordinates = [s * part.reshape(s.shape) for s, part in zip(scales, np.split(x, ends), strict=True)]
        joint = np.einsum("a,bac,b,cd->abcd", *posterior.tables(coordinates).values())
        total = 0.5 * x @ x
        for one in noisy:
            letters = f"abcd->{''.join(one.axes)}"
            variance = 40.0 + 900 * np.einsum(letters, JOINT)
            total += 0.5 * np.sum((one.noisy - 900 * np.einsum(letters, joint)) ** 2 / variance)
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


def test_the_gauss_newton_matrix_is_the_curvature_where_everything_fits():
    exact = LogLinearPosterior(FAMILIES, measured(40.0), 900.0)
    scales = [np.ones(family.shape) for family in FAMILIES]
    x = np.concatenate([table.ravel() for table in exact.coordinates(TABLES)])
    unit = np.eye(len(x))
    positive, full = exact.curvature(x, scales, True)(unit), np.stack([exact.curvature(x, scales)(v) for v in unit])
    np.testing.assert_allclose(positive, full, rtol=1e-9, atol=1e-7)
    np.testing.assert_allclose(positive, positive.T, rtol=1e-9, atol=1e-7)
    assert np.linalg.eigvalsh(positive).min() > 1 - 1e-9


def test_the_mode_has_no_gradient(posterior):
    scales = [np.array([0.0, *np.ones(len(effects.orders) - 1)]) for effects in posterior.effects]
    mode = posterior.mode(posterior.coordinates(TABLES), scales, 1e-6)
    x = np.concatenate([table.ravel() for table in mode])
    of_each = []
    for effects, own in zip(posterior.effects, scales, strict=True):
        of_each.append(own[effects.groups])
        of_each[-1][..., 0] = 0.0
    assert np.linalg.norm(posterior.objective(x, of_each)[1]) < 1e-6


@pytest.mark.thorough
def test_without_noise_and_without_shrinkage_the_tables_are_those_that_were_measured():
    exact = LogLinearPosterior(FAMILIES, measured(1e-6), 900.0)
    scales = [np.array([0.0, *np.full(len(effects.orders) - 1, 1e5)]) for effects in exact.effects]
    flat = {family.name: np.full(family.shape, 1 / family.shape[-1]) for family in FAMILIES}
    for name, table in exact.tables(exact.mode(exact.coordinates(flat), scales, 1e-4)).items():
        np.testing.assert_allclose(table, TABLES[name], atol=1e-6)


def test_noiseless_marginals_of_a_chain_have_the_joint_counts_that_private_pgm_gives():
    """Of `mbi` 2.0.0: `MirrorDescent().estimate` of these two marginals, 400 records, 2000 iterations.

    Two marginals that agree in what they share have one network through both: counts of ab times bc over those of b.
    """
    ab, bc = np.array([[120.0, 60, 20], [30, 90, 80]]), np.array([[100.0, 50], [30, 120], [90, 10]])
    of_mbi = [[[80, 40], [12, 48], [18, 2]], [[20, 10], [18, 72], [72, 8]]]
    families = [Family("p_a", ("a",), (2,)), Family("p_b", ("a", "b"), (2, 3)), Family("p_c", ("b", "c"), (3, 2))]
    exact = LogLinearPosterior(families, [Measurement(("a", "b"), ab, 1e-6), Measurement(("b", "c"), bc, 1e-6)], 400.0)
    scales = [np.array([0.0, *np.full(len(effects.orders) - 1, 20.0)]) for effects in exact.effects]
    flat = {family.name: np.full(family.shape, 1 / family.shape[-1]) for family in families}
    tables = exact.tables(exact.mode(exact.coordinates(flat), scales, 1e-4))
    joint = 400 * np.einsum("a,ab,bc->abc", tables["p_a"], tables["p_b"], tables["p_c"])
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
    families = [Family("p_a", ("a",), (2,)), Family("p_b", ("a", "b"), (2, 3)), Family("p_c", ("b", "c"), (3, 2))]
    measured = [Measurement(tuple(axes), np.array(counts), sd**2) for axes, (counts, sd) in noisy.items()]
    exact = LogLinearPosterior(families, measured, 400.0)
    scales = [np.array([0.0, *np.full(len(effects.orders) - 1, 20.0)]) for effects in exact.effects]
    flat = {family.name: np.full(family.shape, 1 / family.shape[-1]) for family in families}
    tables = exact.tables(exact.mode(exact.coordinates(flat), scales, 1e-4))
    joint = 400 * np.einsum("a,ab,bc->abc", tables["p_a"], tables["p_b"], tables["p_c"])
    for axes, expected in of_mbi.items():
        np.testing.assert_allclose(np.einsum(f"abc->{axes}", nearest), expected, atol=1e-4)
        np.testing.assert_allclose(np.einsum(f"abc->{axes}", joint), expected, atol=0.02)


def test_draws_around_the_mode_have_the_inverse_curvature_as_covariance(posterior):
    """Of 4,000 pairs, in each direction that linear algebra looks at; a variance is off by 0.022 at one deviation."""
    scales = [np.array([0.0, *np.ones(len(effects.orders) - 1)]) for effects in posterior.effects]
    mode = posterior.mode(posterior.coordinates(TABLES), scales, 1e-6)
    draws = posterior.spread(mode, scales, np.random.default_rng(3), 8000)
    assert {len(one) for one in draws} == {8000}
    of_each = posterior._of_each(scales)
    x, free = (np.concatenate([one.ravel() for one in tables]) for tables in (mode, [s > 0 for s in of_each]))
    off = (np.concatenate([one.reshape(8000, -1) for one in draws], axis=1) - x)[:, free]
    matrix = posterior.curvature(x, of_each, gauss_newton=True)(np.eye(x.size))[np.ix_(free, free)]
    np.testing.assert_allclose(off.mean(axis=0), 0, atol=1e-12)
    values, vectors = np.linalg.eigh(matrix)
    ratios = (off @ vectors).var(axis=0) * values
    assert np.all(np.abs(ratios - 1) < 0.13)
    assert np.any(np.abs(1.2 * ratios - 1) > 0.13)
