"""Noisy marginals, and tables fitted to them, each by itself: starts, scales, means, and their use."""

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from pymc_dirdp.inference.measurements import Family, Measurement, number_of_records
from pymc_dirdp.inference.table_fit import fit_tables, fitted, independent_logits, noise_dominates
from pymc_dirdp.progress import QUIET


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
    """The cross-entropy of the class of further records, above that of its frequencies, given eight features.

    Without the Bayes factors up to .06 nats are lost where features are noise.
    """
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
