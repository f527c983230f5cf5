"""Log-linear models of noisy marginals: derivatives, modes, draws around them, effects, and what is fitted."""

import itertools

import numpy as np
import pytest
from scipy.special import beta, logsumexp, softmax

from pymc_dirdp.inference.effects import Effects, Shrinkage, probabilities_of
from pymc_dirdp.inference.log_linear import LogLinearPosterior, Marginals
from pymc_dirdp.inference.measurements import Family, Measurement, number_of_records
from pymc_dirdp.inference.table_fit import fit_tables, fitted, independent_logits, noise_dominates
from pymc_dirdp.networks.joint_fit import NetworkMarginals
from pymc_dirdp.progress import QUIET


def joined(tables):
    return np.concatenate([table.ravel() for table in tables])


class Problem:
    """Families with their true tables, noisy marginals of their product, and the posterior with the true variances."""

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


@pytest.mark.parametrize("shape", [(4,), (3, 1, 2), (2, 2, 3, 2, 2)])
def test_coordinates_are_inverse_to_logits_and_the_transposed_map_is_transposed(shape):
    effects, rng = Effects(shape), np.random.default_rng(0)
    coordinates, slopes = rng.normal(size=(2, 3, *shape))
    np.testing.assert_allclose(effects.logits(effects.coordinates(slopes)), slopes, atol=1e-12)
    over = tuple(range(1, len(shape) + 1))
    left = (effects.logits(coordinates) * slopes).sum(axis=over)
    np.testing.assert_allclose(left, (coordinates * effects.transposed(slopes)).sum(axis=over), rtol=1e-11)


def test_an_effect_is_the_part_that_the_analysis_of_variance_gives_to_its_axes():
    """For each subset of the axes: averages over the others, minus the effects of its own subsets."""
    shape, parts = (2, 3, 4), {}
    table, effects = np.random.default_rng(0).normal(size=shape), Effects(shape)
    coordinates = effects.coordinates(table)
    for subset in itertools.chain.from_iterable(itertools.combinations(range(3), n) for n in range(4)):
        others = tuple(i for i in range(3) if i not in subset)
        smaller = sum(part for of, part in parts.items() if set(of) < set(subset))
        parts[subset] = table.mean(axis=others, keepdims=True) - smaller
        group = effects.groups[tuple(int(i in subset) for i in range(3))]
        own = np.where(effects.groups == group, coordinates, 0.0)
        np.testing.assert_allclose(effects.logits(own), np.broadcast_to(parts[subset], shape), atol=1e-12)
        assert effects.orders[group] == len(subset)
        assert effects.of_several[group] == (2 in subset and len(subset) > 1)


def test_effects_of_more_than_three_axes_are_one_group():
    effects = Effects((2,) * 6)
    assert len(effects.orders) == 1 + 6 + 15 + 20 + 1
    assert effects.orders.max() == 6
    assert effects.sums(np.ones((2,) * 6))[-1] == 15 + 6 + 1


def test_what_is_not_known_takes_the_scale_of_its_order():
    """A thousand coordinates of size 2, all told: the prior's ten make little difference."""
    shrinkage = Shrinkage({"p": np.array([0, 2]), "q": np.array([0, 2])})
    nothing, squares = np.zeros(2), {"p": np.array([0.0, 4000.0]), "q": np.zeros(2)}
    known = {"p": np.array([0.0, 1000.0]), "q": nothing}
    assert not shrinkage.update(squares, known)
    for scales in shrinkage.scales.values():
        assert scales == pytest.approx([0.0, 2.0], rel=0.01)
    assert shrinkage.update(squares, known)


def test_learned_scales_are_those_that_made_the_effects():
    """Coordinates are drawn with a known scale and seen with noise; the fixed point finds the scale again."""
    rng = np.random.default_rng(0)
    truth, noise, n = 0.3, 0.25, 4000
    seen = rng.normal(0, truth, n) + rng.normal(0, noise, n)
    shrinkage = Shrinkage({"p": np.array([0, 1])})
    for _ in range(100):
        t2 = shrinkage.scales["p"][1] ** 2
        precision = t2 / (t2 + noise**2)
        mode = {"p": np.array([0.0, np.sum((precision * seen) ** 2)])}
        if shrinkage.update(mode, {"p": np.array([0.0, n * precision])}):
            break
    assert shrinkage.scales["p"][1] == pytest.approx(truth, rel=0.1)


def test_probabilities_are_those_of_a_sum_over_all_subsets():
    """Given a subset of size k the share has been integrated: its prior is B(k + 1/2, n - k + 9/2) / B(1/2, 9/2)."""
    log_odds, total, there = np.array([-1.0, 0.5, 2.0, -3.0]), 0.0, np.zeros(4)
    for chosen in itertools.product([0, 1], repeat=4):
        k = sum(chosen)
        weight = beta(k + 0.5, 8.5 - k) / beta(0.5, 4.5) * np.exp(np.dot(chosen, log_odds))
        total, there = total + weight, there + weight * np.array(chosen)
    # Grid points: the error of the midpoints is largest at 0, where the density has no bound.
    np.testing.assert_allclose(probabilities_of(log_odds), there / total, rtol=0.05)
    np.testing.assert_allclose(probabilities_of([1e6, -1e6, 0.0])[:2], [1, 0], atol=1e-12)
    assert probabilities_of([]).shape == (0,)


def test_the_start_is_independence_with_the_measured_marginals():
    """Each marginal is read off all that holds it, also off what has axes that the family has not."""
    family, rng = Family("p", ("a", "b", "c"), (2, 3, 4)), np.random.default_rng(3)
    counts = rng.multinomial(800, rng.dirichlet(np.ones(24))).reshape(2, 3, 4).astype(float)
    of_c = counts.sum(axis=(0, 1))
    exact = {"abc": counts, "ca": counts.sum(axis=1).T, "b": counts.sum(axis=(0, 2)), "xc": [0.3 * of_c, 0.7 * of_c]}
    measured = [Measurement(tuple(axes), np.array(table), 1e-6).onto(family.axes) for axes, table in exact.items()]
    expected = np.einsum("a,b,c->abc", *(counts.sum(axis=over) / 800 for over in ((1, 2), (0, 2), (0, 1))))
    np.testing.assert_allclose(softmax(independent_logits(family, measured)), expected, rtol=1e-6)
    # Nothing is known of what is not measured.
    np.testing.assert_allclose(softmax(independent_logits(family, [])), 1 / 24, rtol=1e-6)


FAMILIES = [Family("p_a", ("a",), (3,)), Family("p_b", ("a", "b"), (3, 4)), Family("p_c", ("a", "b", "c"), (3, 4, 2))]
JOINT = np.random.default_rng(1).dirichlet(np.full(24, 2.0)).reshape(3, 4, 2)
PRODUCT = np.einsum("a,b,c->abc", *(np.random.default_rng(4).dirichlet(np.ones(d)) for d in (3, 4, 2)))
MARGINALS = {"a": (1, 2), "b": (0, 2), "ab": (2,), "c": (0, 1), "ac": (1,), "bc": (0,), "abc": ()}


def noisy_marginals(p, n, sd, seed):
    rng = np.random.default_rng(seed)
    counts = rng.multinomial(n, p.ravel()).reshape(p.shape)
    tables = {tuple(axes): counts.sum(axis=over) for axes, over in MARGINALS.items()}
    return [Measurement(axes, table + rng.normal(0, sd, table.shape), sd**2) for axes, table in tables.items()]


def divergence(p, tables):
    """The KL divergence of the fitted network from the true shares of records, in nats."""
    fitted_joint = tables["p_a"][:, None, None] * tables["p_b"][..., None] * tables["p_c"]
    return np.sum(p * np.log(p / fitted_joint))


def clipped(measured):
    """What one does without a model: the family's own table, without what is negative, and half a record more."""
    own = {one.axes: np.maximum(one.noisy, 0) + 0.5 for one in measured}
    return {of.name: own[of.axes] / own[of.axes].sum(axis=-1, keepdims=True) for of in FAMILIES}


@pytest.mark.parametrize(
    ("p", "n", "sd", "most"), [(JOINT, 500, 24.0, 0.4), (JOINT, 300, 150.0, 0.8), (PRODUCT, 5000, 30.0, 0.25)]
)
def test_the_fit_is_better_than_own_tables_and_the_mean_than_the_mode_where_noise_hides_most(p, n, sd, most):
    """The interactions of a product distribution are shrunk."""
    found, others, families = [], [], [family.sorted for family in FAMILIES]
    for seed in range(6):
        measured = noisy_marginals(p, n, sd, seed)
        assert noise_dominates(measured, n) == (sd > n / 5)
        found.append(divergence(p, fit_tables(FAMILIES, measured, n)))
        other = fitted(families, measured, n, QUIET)[0] if sd > n / 5 else clipped(measured)
        others.append(divergence(p, other))
    assert np.mean(found) < most * np.mean(others)


def test_a_private_number_of_records_is_read_off_the_totals():
    measured = noisy_marginals(JOINT, 5000, 5.0, 0)
    known, private = fit_tables(FAMILIES, measured, 5000), fit_tables(FAMILIES, measured, None)
    for name, table in known.items():
        np.testing.assert_allclose(private[name], table, rtol=0.02)


@pytest.mark.parametrize(
    ("effect", "sd", "most"), [(0.0, 20.0, 0.01), (0.0, 70.0, 0.01), (0.0, 250.0, 0.01), (1.0, 40.0, -0.2)]
)
def test_features_of_a_class_are_used_and_do_no_harm_where_they_say_nothing(effect, sd, most):
    """Cross-entropies, above that of frequencies. Without Bayes factors noisy features lose up to .06 nats."""
    lost = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        logits = rng.normal(0, 0.5, (8, 1, 3)) + effect * rng.normal(size=(8, 2, 3))
        shares = {f"p_{i}": softmax(of, axis=1) for i, of in enumerate(logits)}
        y, further = (rng.random(n) < 0.3 for n in (1400, 20_000))
        families = [Family("p_y", ("y",), (2,)), *(Family(name, ("y", f"x{name}"), (2, 3)) for name in shares)]
        measured = [Measurement(("y",), np.bincount(y, minlength=2) + rng.normal(0, sd / 100, 2), sd**2 / 1e4)]
        for family, p in zip(families[1:], shares.values(), strict=True):
            counts = np.stack([rng.multinomial(np.sum(y == k), p[k]) for k in (0, 1)])
            measured.append(Measurement(family.axes, counts + rng.normal(0, sd, (2, 3)), sd**2))
        found = fit_tables(families, measured, 1400)
        logs = np.tile(np.log(found["p_y"]), (20_000, 1))
        for name, p in shares.items():
            x = (p[further.astype(int)].cumsum(axis=1) < rng.random((20_000, 1))).sum(axis=1)
            logs += np.log(found[name][:, x]).T
        logs -= logsumexp(logs, axis=1, keepdims=True)
        alone = -(0.7 * np.log(0.7) + 0.3 * np.log(0.3))
        lost.append(-logs[np.arange(20_000), further.astype(int)].mean() - alone)
    assert np.mean(lost) < most


def test_a_family_has_parents_that_are_sorted_and_given_back():
    family = Family("p_d", ("c", "a", "b", "d"), (2, 3, 4, 5))
    assert (family.parents, family.variable) == (("c", "a", "b"), "d")
    assert (family.sorted.axes, family.sorted.shape) == (("a", "b", "c", "d"), (3, 4, 2, 5))
    table = np.random.default_rng(0).random(family.shape)
    np.testing.assert_array_equal(family.as_given(table.transpose(1, 2, 0, 3)), table)


def test_a_marginal_has_the_order_of_the_axes_asked_for_and_the_variance_of_its_sums():
    noisy = np.arange(24.0).reshape(2, 3, 4, 1)
    measured = Measurement(("a", "b", "c", "one"), noisy, 1.5)
    onto = measured.onto(["c", "x", "a"])
    assert onto.axes == ("c", "a")
    np.testing.assert_array_equal(onto.noisy, noisy.sum(axis=(1, 3)).T)
    assert (onto.variance, measured.onto(["c", "b", "a"]).variance) == (4.5, 1.5)
    assert measured.onto(["x"]) is None


def test_the_number_of_records_is_the_best_linear_estimate_from_the_totals():
    """Against the simulated distribution: unbiased, with the variance of weighting by precision, and no less."""
    rng, found = np.random.default_rng(1), []
    for _ in range(4000):
        one, other = 500 + rng.normal(0, 4, 2), 1000 / 12 + rng.normal(0, 1, (3, 4))
        found.append(number_of_records([Measurement(("a",), one, 16.0), Measurement(("a", "b"), other, 1.0)]))
    best = 1 / (1 / 32 + 1 / 12)
    assert abs(np.mean(found) - 1000) < 5 * (best / 4000) ** 0.5
    assert np.var(found) == pytest.approx(best, rel=0.12)
    assert number_of_records([Measurement(("a",), np.array([-50.0, 3.0]), 1.0)]) == 1.0
