"""Tables fitted to noisy marginals, each by itself and together: derivatives, modes, scales, and their use."""

import numpy as np
import pytest
from scipy.special import softmax

from pymc_dirdp.inference.log_linear import EliminationError, LogLinearPosterior, _divided
from pymc_dirdp.inference.measurements import Family, Measurement
from pymc_dirdp.inference.network_fit import (
    MOST_ROUNDS,
    fit_jointly,
    fit_tables,
    fitted,
    independent_logits,
    noise_hides,
    shares_given_parents,
)
from pymc_dirdp.progress import QUIET, Bar


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


def test_what_the_noise_hides_is_left_out():
    """Shares of one in ten with a noise of ten thousand: all tables are nearly uniform, and none is at an edge."""
    p = joint(np.random.default_rng(1))
    found = fit_tables(FAMILIES, levels(p, 100, 1e8, np.random.default_rng(0)), 100)
    for family in FAMILIES:
        np.testing.assert_allclose(found[family.name], 1 / family.shape[-1], atol=0.05)


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


def test_many_parents_and_variables_of_one_value():
    axes = ("a", "b", "c", "d", "e", "f")
    family = Family("p_f", axes, (2, 3, 1, 2, 2, 2))
    p = np.random.default_rng(0).dirichlet(np.ones(48)).reshape(family.shape)
    measured = [Measurement(axes, 1e6 * p, 1.0)]
    found = fit_tables([family], measured, 10**6)["p_f"]
    np.testing.assert_allclose(found, p / p.sum(axis=-1, keepdims=True), atol=0.02)


def test_the_bar_never_counts_more_than_was_announced():
    p = joint(np.random.default_rng(1))
    with Bar((MOST_ROUNDS + 1) * 3, "tables", shown=False) as bar:
        fit_tables(FAMILIES, levels(p, 800, 100.0, np.random.default_rng(0)), 800, bar)
        assert 0 < bar._done <= bar._total


def test_the_mean_is_taken_where_noise_hides_most_and_it_is_better_there():
    p = joint(np.random.default_rng(1))
    means, modes = [], []
    for i in range(15):
        measured = levels(p, 300, 150.0**2, np.random.default_rng(i))
        assert noise_hides(measured, 300)
        means.append(divergence(p, fit_tables(FAMILIES, measured, 300)))
        modes.append(divergence(p, fitted([family.sorted for family in FAMILIES], measured, 300, QUIET)[0]))
    assert np.mean(means) < 0.8 * np.mean(modes)
    assert not noise_hides(levels(p, 300, 25.0**2, np.random.default_rng(0)), 300)


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


def test_a_fit_without_a_parent_asks_for_no_bayes_factor():
    family = Family("p", ("a",), (3,))
    found = fit_tables([family], [Measurement(("a",), np.array([20.0, 30.0, 50.0]), 1e-3)], 100)
    np.testing.assert_allclose(found["p"], [0.2, 0.3, 0.5], atol=0.01)


# A chain, of which the families alone are measured: what is measured of b and c says something of b.
CHAIN = [
    Family("p_a", ("a",), (3,)),
    Family("p_b", ("a", "b"), (3, 4)),
    Family("p_c", ("b", "c"), (4, 3)),
    Family("p_d", ("c", "b", "d"), (3, 4, 2)),
]
LETTERS = {"p_a": "a", "p_b": "ab", "p_c": "bc", "p_d": "cbd"}


def truth(seed):
    rng = np.random.default_rng(seed)
    return {family.name: rng.dirichlet(np.full(family.shape[-1], 2.0), family.shape[:-1]) for family in CHAIN}


def joint_of_chain(tables):
    return np.einsum("a,ab,bc,cbd->abcd", *(tables[family.name] for family in CHAIN))


def measured_marginals(tables, n, variances, rng):
    """Noisy marginals of n records, by the letters of the axes."""
    p = joint_of_chain(tables)
    counts = rng.multinomial(n, p.ravel()).reshape(p.shape)
    found = []
    for letters, variance in variances.items():
        table = np.einsum(f"abcd->{letters}", counts)
        found.append(Measurement(tuple(letters), table + rng.normal(0, variance**0.5, table.shape), variance))
    return found


def families_measured(tables, n, variance, rng):
    return measured_marginals(tables, n, dict.fromkeys(LETTERS.values(), variance), rng)


def divergence_of_chain(tables, found):
    p = joint_of_chain(tables)
    return float(np.sum(p * np.log(p / joint_of_chain(found))))


def test_a_marginal_of_no_family_tells_something_of_the_tables_between():
    """B given a is hardly measured; what is measured of a and c, and of b and c, tells it all the same."""
    apart, together = [], []
    for seed in range(12):
        tables = truth(seed)
        variances = {"a": 100.0, "b": 100.0, "ab": 1e6, "bc": 10.0, "ac": 10.0, "cbd": 100.0}
        measured = measured_marginals(tables, 5000, variances, np.random.default_rng(seed))
        apart.append(divergence_of_chain(tables, fit_tables(CHAIN, measured, 5000)))
        together.append(divergence_of_chain(tables, fit_jointly(CHAIN, measured, 5000)))
    assert np.mean(together) < 0.7 * np.mean(apart)


@pytest.mark.parametrize("fit", [fit_tables, fit_jointly])
def test_the_more_records_the_smaller_the_divergence(fit):
    found = []
    for n in (10**3, 10**5, 10**7):
        fits = []
        for seed in range(3):
            tables = truth(seed)
            measured = families_measured(tables, n, 400.0, np.random.default_rng(seed))
            fits.append(divergence_of_chain(tables, fit(CHAIN, measured, n)))
        found.append(np.mean(fits))
    assert found[0] > 10 * found[1] > 100 * found[2]
    assert found[2] < 1e-5


@pytest.mark.parametrize(("fit", "close"), [(fit_tables, 1e-4), (fit_jointly, 1e-2)])
def test_the_order_of_parents_families_and_measurements_makes_no_difference(fit, close):
    measured = families_measured(truth(1), 3000, 100.0, np.random.default_rng(0))
    first = fit(CHAIN, measured, 3000)
    turned = [Measurement(one.axes[::-1], one.noisy.transpose(), one.variance) for one in reversed(measured)]
    second = fit([Family("p_d", ("b", "c", "d"), (4, 3, 2)), *CHAIN[:3]], turned, 3000)
    np.testing.assert_allclose(second["p_d"].transpose(1, 0, 2), first["p_d"], rtol=close)
    np.testing.assert_allclose(second["p_b"], first["p_b"], rtol=close)


@pytest.mark.parametrize("fit", [fit_tables, fit_jointly])
@pytest.mark.parametrize("n", [0, 1, None, 10**9])
@pytest.mark.parametrize("variance", [1e-3, 1.0, 1e10])
def test_shares_are_shares_for_every_number_of_records_and_noise(fit, n, variance):
    found = fit(CHAIN, families_measured(truth(1), n or 0, variance, np.random.default_rng(0)), n)
    for family in CHAIN:
        assert found[family.name].shape == family.shape
        assert np.all(found[family.name] > 0)
        np.testing.assert_allclose(found[family.name].sum(axis=-1), 1, rtol=1e-12)


def test_a_network_whose_marginals_explode_is_refused():
    families = [Family(f"p_{i}", (f"v{i}",), (10,)) for i in range(10)]
    families += [Family(f"p_w{i}", (f"v{i}", f"v{i + 1}", f"w{i}"), (10, 10, 2)) for i in range(9)]
    every = tuple(f"v{i}" for i in range(10))
    with pytest.raises(EliminationError, match="consistency='tables'"):
        fit_jointly(families, [Measurement(every, np.zeros((1,) * 10), 1.0)], 100)


def test_the_fit_is_the_mode_given_the_variance_of_the_sample_at_the_fit():
    """The gradient is short with the weights of the fit itself, and long without the variance of the sample."""
    measured = families_measured(truth(1), 2000, 1.0, np.random.default_rng(0))
    found = fit_jointly(CHAIN, measured, 2000)
    ordered = [family.sorted for family in CHAIN]
    _, scales = fitted(ordered, measured, 2000, QUIET)
    posterior = LogLinearPosterior(ordered, measured, 2000)
    mode = posterior.coordinates(
        {
            family.name: found[family.name].transpose([family.axes.index(a) for a in family.sorted.axes])
            for family in CHAIN
        }
    )
    of_each = [scales[f.name][e.groups] for f, e in zip(CHAIN, posterior.effects, strict=True)]
    for own in of_each:
        own[..., 0] = 0.0
    x = np.concatenate(
        [np.divide(m, s, out=np.zeros(s.shape), where=s > 0).ravel() for m, s in zip(mode, of_each, strict=True)]
    )
    without = np.linalg.norm(posterior.objective(x, of_each)[1])
    posterior.reweighted(mode)
    assert np.linalg.norm(posterior.objective(x, of_each)[1]) < 0.1
    assert without > 10


@pytest.fixture
def lengths(monkeypatch):
    """The shapes of the tables of each search for a mode, and how long the gradient is where it ends.

    Lengths are looked at, and not numbers of steps: in coordinates of which the prior has the variance 1.
    """
    found, found_by = [], LogLinearPosterior.mode

    def watched(self, start, scales, close):
        mode, of_each = found_by(self, start, scales, close), self._of_each(scales)
        length = np.linalg.norm(self.objective(_divided(mode, of_each), of_each)[1])
        found.append((tuple(effects.shape for effects in self.effects), length))
        return mode

    monkeypatch.setattr(LogLinearPosterior, "mode", watched)
    return found


def test_each_table_ends_where_the_gradient_is_short(lengths):
    p = joint(np.random.default_rng(1))
    fit_tables(FAMILIES, levels(p, 10**5, 25.0, np.random.default_rng(0)), 10**5)
    last = dict(lengths)
    assert len(last) == 3
    assert max(last.values()) <= 1e-3


def test_the_joint_fit_ends_where_the_gradient_is_short(lengths):
    fit_jointly(CHAIN, families_measured(truth(1), 10**5, 25.0, np.random.default_rng(0)), 10**5)
    # What comes before is the search of a table by itself, which starts the joint fit.
    together = [length for shapes, length in lengths if len(shapes) == len(CHAIN)]
    assert len(together) == 2
    assert together[-1] <= 1e-3


def test_shares_given_other_parents_are_those_of_the_joint_distribution():
    p = joint(np.random.default_rng(9))
    wanted = [Family("p_b", ("b",), (4,)), Family("p_c", ("b", "c"), (4, 2)), Family("p_a", ("c", "a"), (2, 3))]
    found = shares_given_parents(FAMILIES, conditional(p), wanted)
    bc, ca = p.sum(axis=0), p.sum(axis=1).T
    np.testing.assert_allclose(found["p_b"], bc.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(found["p_c"], bc / bc.sum(axis=1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(found["p_a"], ca / ca.sum(axis=1, keepdims=True), rtol=1e-12)
