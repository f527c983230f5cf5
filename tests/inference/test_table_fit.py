"""Tables fitted to noisy marginals, each by itself: starts, scales, means, and their use."""

import numpy as np
import pytest
from scipy.special import softmax

from pymc_dirdp.inference.measurements import Family, Measurement
from pymc_dirdp.inference.table_fit import (
    fit_tables,
    fitted,
    independent_logits,
    noise_dominates,
)
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


FAMILIES = [
    Family("p_a", ("a",), (3,)),
    Family("p_b", ("a", "b"), (3, 4)),
    Family("p_c", ("a", "b", "c"), (3, 4, 2)),
]


def joint(rng):
    return rng.dirichlet(np.full(24, 2.0)).reshape(3, 4, 2)


def levels(p, n, variance, rng, spread=True):
    """Noisy marginals of n records, or of the expected counts."""
    counts = rng.multinomial(n, p.ravel()).reshape(p.shape) if spread else n * p
    marginals = {"a": (1, 2), "b": (0, 2), "ab": (2,), "c": (0, 1), "ac": (1,), "bc": (0,), "abc": ()}
    return [
        Measurement(tuple(axes), (table := counts.sum(axis=over)) + rng.normal(0, variance**0.5, table.shape), variance)
        for axes, over in marginals.items()
    ]


def conditional(p):
    a, ab = p.sum(axis=(1, 2)), p.sum(axis=2)
    return {"p_a": a, "p_b": ab / a[:, None], "p_c": p / ab[..., None]}


def divergence(p, tables):
    """The KL divergence of the fitted network from the true shares of records, in nats."""
    true = conditional(p)
    weights = {"p_a": 1.0, "p_b": p.sum(axis=(1, 2))[:, None], "p_c": p.sum(axis=2)[..., None]}
    return sum(np.sum(weights[name] * q * np.log(q / tables[name])) for name, q in true.items())


def clipped(measured):
    """What one does without a model: the family's own table, without what is negative, and half a record more."""
    found = {}
    for family in FAMILIES:
        own = next(one for one in measured if one.axes == family.axes)
        cells = np.maximum(own.noisy, 0) + 0.5
        found[family.name] = cells / cells.sum(axis=-1, keepdims=True)
    return found


def test_the_fit_is_better_than_the_families_own_tables():
    p = joint(np.random.default_rng(1))
    fitted, own = [], []
    for i in range(20):
        measured = levels(p, 500, 600.0, np.random.default_rng(i))
        fitted.append(divergence(p, fit_tables(FAMILIES, measured, 500)))
        own.append(divergence(p, clipped(measured)))
    assert np.mean(fitted) < 0.4 * np.mean(own)


def test_independence_is_found_where_it_is_true():
    """The interactions of a product distribution are shrunk more than those of a distribution that has them."""
    rng = np.random.default_rng(4)
    product = np.einsum("a,b,c->abc", rng.dirichlet(np.ones(3)), rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(2)))
    measured = levels(product, 5000, 900.0, rng)
    found = fit_tables(FAMILIES, measured, 5000)["p_c"]
    assert np.ptp(found, axis=(0, 1)).max() < 0.5 * np.ptp(clipped(measured)["p_c"], axis=(0, 1)).max()


def test_a_private_number_of_records_is_read_off_the_totals():
    p = joint(np.random.default_rng(1))
    measured = levels(p, 5000, 25.0, np.random.default_rng(0))
    with_n, without = fit_tables(FAMILIES, measured, 5000), fit_tables(FAMILIES, measured, None)
    for name, table in with_n.items():
        np.testing.assert_allclose(without[name], table, rtol=0.02)


def test_the_mean_is_taken_where_noise_hides_most_and_it_is_better_there():
    p = joint(np.random.default_rng(1))
    means, modes = [], []
    for i in range(15):
        measured = levels(p, 300, 150.0**2, np.random.default_rng(i))
        assert noise_dominates(measured, 300)
        means.append(divergence(p, fit_tables(FAMILIES, measured, 300)))
        modes.append(divergence(p, fitted([family.sorted for family in FAMILIES], measured, 300, QUIET)[0]))
    assert np.mean(means) < 0.8 * np.mean(modes)
    assert not noise_dominates(levels(p, 300, 25.0**2, np.random.default_rng(0)), 300)


def classifier(n, features, effect, rng):
    """A class of two values and features of three, each with an effect of the class of that size on its logits."""
    families = [Family("p_y", ("y",), (2,))]
    families += [Family(f"p_{i}", ("y", f"x{i}"), (2, 3)) for i in range(features)]
    tables = {"p_y": np.array([0.7, 0.3])}
    y = (rng.random(n) < 0.3).astype(int)
    counts = {"p_y": np.bincount(y, minlength=2)}
    for i in range(features):
        logits = rng.normal(0, 0.5, 3) + effect * rng.normal(size=(2, 3))
        p = tables[f"p_{i}"] = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        x = (p[y].cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
        counts[f"p_{i}"] = np.bincount(3 * y + x, minlength=6).reshape(2, 3)
    return families, counts, tables


def class_error(families, found, tables, rng):
    """The cross-entropy of the class of further records, above that of its frequencies."""
    y = (rng.random(20_000) < 0.3).astype(int)
    logs = np.log(found["p_y"])[None].repeat(len(y), axis=0)
    for family in families[1:]:
        p = tables[family.name]
        x = (p[y].cumsum(axis=1) < rng.random((len(y), 1))).sum(axis=1)
        logs = logs + np.log(found[family.name][:, x]).T
    logs -= np.logaddexp.reduce(logs, axis=1, keepdims=True)
    alone = -(0.7 * np.log(0.7) + 0.3 * np.log(0.3))
    return -logs[np.arange(len(y)), y].mean() - alone


@pytest.mark.parametrize("variance", [20.0**2, 70.0**2, 250.0**2])
def test_features_that_say_nothing_of_a_class_do_not_harm(variance):
    """Eight features of noise: frequencies of the class alone are the best there is, at every size of the noise.

    Without the Bayes factors up to .06 nats are lost.
    """
    lost = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        families, counts, tables = classifier(1400, 8, 0.0, rng)
        noise = {family.name: rng.normal(0, variance**0.5, family.shape) for family in families}
        noise["p_y"] /= 100
        measured = [
            Measurement(
                family.axes, counts[family.name] + noise[family.name], variance / (1e4 if family.name == "p_y" else 1)
            )
            for family in families
        ]
        lost.append(class_error(families, fit_tables(families, measured, 1400), tables, rng))
    assert np.mean(lost) < 0.01


def test_features_that_tell_a_class_are_used():
    lost = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        families, counts, tables = classifier(1400, 10, 1.0, rng)
        measured = [
            Measurement(family.axes, counts[family.name] + rng.normal(0, 40.0, family.shape), 1600.0)
            for family in families
        ]
        lost.append(class_error(families, fit_tables(families, measured, 1400), tables, rng))
    assert np.mean(lost) < -0.2
