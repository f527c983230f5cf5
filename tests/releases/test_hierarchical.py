"""The hierarchical model of a network given its noisy marginals: what is in it, and whether it is calibrated."""

import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.mode import Mode
from pytensor.graph.replace import vectorize_graph
from scipy.special import ndtri, softmax
from scipy.stats import binom, chi2, laplace, norm

import pymc_dirdp as dirdp
from pymc_dirdp.inference.shrinkage import SCALES
from pymc_dirdp.mechanisms.settings import Marginals
from pymc_dirdp.releases import hierarchical
from pymc_dirdp.releases.noisy_marginals import network_of

CATEGORIES = {"a": ["x", "y", "z"], "b": [1, 2], "one": ["only"], "c": ["no", "yes"]}
STRUCTURE = {"a": [], "b": ["a"], "one": ["a"], "c": ["b", "a"]}
# Compiling takes longer than what is computed here.
QUICK = Mode(linker="py", optimizer="fast_compile")
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
TWO = {"a": ["x", "y"], "b": ["p", "q"]}


def records(n, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    b = (rng.random(n) < np.array([0.2, 0.5, 0.9])[a]).astype(int)
    c = (rng.random(n) < 0.1 + 0.3 * b + 0.2 * (a == 1)).astype(int)
    codes = {"a": a, "b": b, "c": c, "one": np.zeros(n, dtype=int)}
    return {name: np.asarray(CATEGORIES[name])[code] for name, code in codes.items()}


def released(mechanism="marginals", n=2000, guarantee=TARGET, **options):
    model = dirdp.bayesian_network(records(n), STRUCTURE, categories=CATEGORIES)
    return dirdp.sample(guarantee, model, mechanism=mechanism, **options)


def two_nodes(epsilon, n=300, **options):
    """A release of two variables of two values, whose marginals are replaced later."""
    data = {"a": list("xy") * (n // 2), "b": list("pq") * (n // 2)}
    model = dirdp.bayesian_network(data, {"a": [], "b": ["a"]}, categories=TWO)
    options = {"mechanism": "marginals", **options}
    return dirdp.sample(dirdp.ApproxDP(epsilon=epsilon, delta=1e-4), model, **options)


def measured_cells(model):
    """The labels of all noisy counts."""
    return [label for name in ("noisy_cell", "noisy_laplace_cell") for label in model.coords.get(name, ())]


@pytest.fixture(scope="module")
def release():
    return released()


@pytest.mark.thorough
@pytest.mark.parametrize("consistency", ["joint", "tables"])
def test_the_model_has_the_names_dims_and_labels_of_the_release(release, consistency):
    model = dirdp.releases.analyst_model(release, consistency=consistency)
    for name, table in release["posterior"].data_vars.items():
        assert model.named_vars_to_dims[name] == table.dims[2:]
        shares = pm.draw(model[name], 3, random_seed=1, mode=QUICK)
        assert shares.shape == (3, *table.shape[2:])
        np.testing.assert_allclose(shares.sum(axis=-1), 1, rtol=1e-12)
    assert model.coords["a"] == ("x", "y", "z")
    assert np.isfinite(model.compile_logp(mode=QUICK)(model.initial_point()))
    with model:
        pm.Deterministic("odds", model["p_c"][..., 1] / model["p_c"][..., 0], dims=("b", "a"))
    assert "odds" in model.named_vars


def test_a_small_network_is_taken_together_and_a_large_one_table_by_table(release, monkeypatch):
    assert measured_cells(dirdp.releases.analyst_model(release))[:3] == ["a=x", "a=y", "a=z"]
    monkeypatch.setattr(hierarchical, "MOST_WORK", 3)
    assert "p_a: a=x of a, b" in measured_cells(dirdp.releases.analyst_model(release))
    with pytest.raises(dirdp.errors.ArgumentError, match="consistency='tables'"):
        dirdp.releases.analyst_model(release, consistency="joint")
    monkeypatch.setattr(hierarchical, "MOST_CELLS", 10)
    with pytest.raises(dirdp.errors.ArgumentError, match=r"cells together.*tables="):
        dirdp.releases.analyst_model(release)
    some = dirdp.releases.analyst_model(release, ["p_b"])
    assert [variable.name for variable in some.deterministics] == ["p_b"]
    assert {"p_b: a=x, b=1", "p_b: a=y", "p_b: b=2"} <= set(measured_cells(some))


def test_what_does_not_fit_is_refused(release):
    for options in ({"prior": 1.0}, {"row_prior": 1.0}, {"n_prior": {"p_a": 5}}):
        with pytest.raises(dirdp.errors.ArgumentError, match="sums of effects"):
            dirdp.releases.analyst_model(release, **options)
    with pytest.raises(dirdp.errors.ArgumentError, match="no table 'q'"):
        dirdp.releases.analyst_model(release, ["q"])
    with pytest.raises(dirdp.errors.ArgumentError, match="'a', which is a parent"):
        dirdp.releases.analyst_model(release, ["p_b"], consistency="joint")
    with pytest.raises(dirdp.errors.ArgumentError, match="Did you mean 'joint'"):
        dirdp.releases.analyst_model(release, consistency="jointly")
    with pytest.raises(dirdp.errors.ArgumentError, match="one release"):
        dirdp.releases.analyst_model([release, release], consistency="joint")
    with pytest.raises(dirdp.errors.ArgumentError, match="no noisy counts"):
        dirdp.releases.analyst_model(released("dirichlet"), consistency="tables")


def test_noisy_tables_have_a_hierarchical_model_if_one_asks_for_it():
    release = released("geometric")
    assert "p_a_release" in dirdp.releases.analyst_model(release).named_vars
    model = dirdp.releases.analyst_model(release, consistency="joint")
    kinds = {variable.name: type(variable.owner.op).__name__ for variable in model.observed_RVs}
    assert kinds == {"noisy_laplace": "LaplaceRV"}
    assert len(measured_cells(model)) == 3 + 6 + 12


def test_a_private_number_of_records_is_a_variable():
    release = released(adjacency="add-remove")
    model = dirdp.releases.analyst_model(release)
    low, high = (float(bound.eval()) for bound in model["n_records"].owner.op.dist_params(model["n_records"].owner))
    assert low < 2000 < high < 4000
    capped = dirdp.releases.analyst_model(release, n_prior=5000)
    assert [float(b.eval()) for b in capped["n_records"].owner.op.dist_params(capped["n_records"].owner)] == [0, 5000]


@pytest.mark.thorough
@pytest.mark.parametrize("noise", ["gaussian", "geometric"])
@pytest.mark.parametrize("consistency", ["joint", "tables"])
def test_the_density_is_that_of_another_way_to_write_it(noise, consistency):
    """Two variables of two values: the prior and the likelihood by hand, at random points."""
    release = two_nodes(1.0, mechanism=Marginals(noise=noise))
    model = dirdp.releases.analyst_model(release, consistency=consistency)
    logp, rng, n = model.compile_logp(jacobian=False, mode=QUICK), np.random.default_rng(0), 300
    measured = {one.axes: one for one in network_of(release).measurements}
    half = np.sqrt(0.5)

    def distributions(margin, one):
        scale = one.laplace_scale
        distribution = norm(margin, one.variance**0.5) if scale is None else laplace(margin, scale)
        return distribution.logpdf(one.noisy).sum()

    def multinomial(p, e):
        root = np.sqrt(p)
        return root * e - p * np.sum(root * e, axis=-1, keepdims=True)

    differences = []
    for _ in range(4):
        point = {value.name: rng.normal(size=value.type.shape) for value in model.value_vars}
        scales, e, off = np.exp(point["scales_log__"]), point["effects"], point["sampling"]
        expected = norm.logpdf(e).sum() + norm.logpdf(off).sum()
        if consistency == "joint":
            # Contrasts of two values are 1 / root 2 and its opposite; constants are 1.
            a = softmax(scales[0] * e[0] * half * np.array([1, -1]))
            alone, by_a = scales[1] * e[1], scales[2] * e[2]
            logits = np.stack([alone + by_a * half, alone - by_a * half]) * half
            b = softmax(np.stack([logits, -logits], axis=-1), axis=-1)
            spreads = [1, 1, 2]
            of_a = a + multinomial(a, off[:2]) / np.sqrt(n)
            of_b = b + multinomial(b, off[2:].reshape(2, 2)) / np.sqrt(np.maximum(n * a, 1))[:, None]
            counts = n * of_a[:, None] * of_b
            for axes, margin in ((("a",), counts.sum(1)), (("b",), counts.sum(0)), (("a", "b"), counts)):
                expected += distributions(margin, measured[axes])
        else:
            spreads = [1, 1, 1, 2]
            p = softmax(scales[0] * e[0] * half * np.array([1, -1]))
            counts = n * p + np.sqrt(n) * multinomial(p, off[:2])
            expected += distributions(counts, measured["a",])
            both = measured["a", "b"]
            expected += norm(counts, (2 * both.variance) ** 0.5).logpdf(both.noisy.sum(1)).sum()
            # The coordinates are in the order of a table: those of b alone, of a alone, and of both.
            i, j = np.array([[1], [-1]]) * half, np.array([[1, -1]]) * half
            p = softmax(scales[2] * e[1] * j + scales[1] * e[2] * i + scales[3] * e[3] * i * j)
            counts = n * p + np.sqrt(n) * multinomial(p.ravel(), off[2:]).reshape(2, 2)
            for axes, margin in ((("a",), counts.sum(1)), (("b",), counts.sum(0)), (("a", "b"), counts)):
                expected += distributions(margin, measured[axes])
        tau = np.maximum(SCALES[spreads], SCALES[-1])
        expected += np.sum(np.log(2) + norm.logpdf(scales, 0, tau))
        found = float(logp(point))
        differences.append((found - expected) / (1 + abs(expected)))
    np.testing.assert_allclose(differences, 0, atol=1e-8)


HALF = np.sqrt(0.5)


def tables_of(values, consistency):
    """The shares of a, and of b given a, from the variables of the model: shapes (sets, 2) and (sets, 2, 2).

    Table by table, only that of b is in the model.
    """
    signs = HALF * np.array([1, -1])
    e, s = values["effects"], values["scales"]
    if consistency == "joint":
        by_a = s[:, 1:2] * e[:, 1:2] + s[:, 2:3] * e[:, 2:3] * signs
        return softmax(s[:, :1] * e[:, :1] * signs, axis=-1), softmax(by_a[..., None] * signs, axis=-1)
    rows, columns = signs[:, None], signs[None, :]
    c = [one[:, None, None] for one in (s[:, 0] * e[:, 1], s[:, 1] * e[:, 0], s[:, 2] * e[:, 2])]
    p = softmax(c[0] * rows + c[1] * columns + c[2] * rows * columns, axis=(1, 2))
    return p.sum(axis=2), p / p.sum(axis=2, keepdims=True)


def with_counts(values, counts, a, b, consistency, rng):
    """The variables of the model with those of the sample, so that the records are the ones with these counts.

    A part of them changes nothing, and is drawn from its prior.
    """
    n = counts[0].sum()
    p = a[..., None] * b

    def of(off, shares, axes):
        root = np.sqrt(shares)
        over = tuple(range(-axes, 0))
        found = off / root + root * np.sum(root * rng.normal(size=shares.shape), axis=over, keepdims=True)
        return found.reshape(len(found), -1)

    if consistency == "tables":
        return values | {"sampling": of((counts - n * p) / np.sqrt(n), p, 2)}
    of_a = counts.sum(axis=2)
    seen = counts / np.maximum(of_a, 1)[..., None]
    off = np.where(of_a[..., None] > 0, seen - b, 0.0) * np.sqrt(np.maximum(n * a, 1))[..., None]
    both = [of((of_a - n * a) / np.sqrt(n), a, 1), of(off, b, 1)]
    return values | {"sampling": np.concatenate(both, axis=1)}


def chain(model, start, published, consistency, rng, iterations, steps, size):
    """Hamiltonian Monte Carlo of many data sets at once: shares after each step, shape (iterations, sets, shares)."""
    values = [model.rvs_to_values[variable] for variable in model.free_RVs]
    data = [model[f"{variable.name}_published"] for variable in model.observed_RVs]
    many = [pt.tensor(shape=(None, *one.type.shape)) for one in [*values, *data]]
    logp = vectorize_graph(model.logp(), dict(zip([*values, *data], many, strict=True)))
    mode = Mode(linker="py", optimizer="fast_run").excluding("fusion", "local_careduce_fusion")
    compiled = pytensor.function(many, [logp, *pt.grad(logp.sum(), many[: len(values)])], mode=mode)

    def slopes(x):
        value, *gradient = compiled(*x, *published)
        return value, gradient

    def each(values, x):
        return [values.reshape(-1, *(1,) * (one.ndim - 1)) for one in x]

    def kinetic(momentum):
        return 0.5 * sum(np.sum(m.reshape(len(m), -1) ** 2, axis=1) for m in momentum)

    names = [variable.name for variable in model.free_RVs]
    x, shown = [np.log(start[n]) if n == "scales" else start[n] for n in names], []
    value, gradient = slopes(x)
    for _ in range(iterations):
        momentum = [rng.normal(size=one.shape) for one in x]
        energy, wide = value - kinetic(momentum), each(size * rng.uniform(0.3, 1.0, len(value)), x)
        there, g = x, gradient
        for _ in range(steps):
            momentum = [m + 0.5 * w * d for m, w, d in zip(momentum, wide, g, strict=True)]
            there = [y + w * m for y, w, m in zip(there, wide, momentum, strict=True)]
            new, g = slopes(there)
            momentum = [m + 0.5 * w * d for m, w, d in zip(momentum, wide, g, strict=True)]
        taken = np.log(rng.random(len(value))) < new - kinetic(momentum) - energy
        x = [np.where(t, y, z) for t, y, z in zip(each(taken, x), there, x, strict=True)]
        gradient = [np.where(t, y, z) for t, y, z in zip(each(taken, x), g, gradient, strict=True)]
        value = np.where(taken, new, value)
        now = {n: np.exp(one) if n == "scales" else one for n, one in zip(names, x, strict=True)}
        shown.append(asked(*tables_of(now, consistency)))
    return np.stack(shown)


def asked(a, b):
    return np.stack([a[:, 0], b[:, 0, 0], b[:, 1, 0]], axis=-1)


def ranks(epsilon, noise, consistency, wrong=1.0, sets=300, iterations=60, steps=15, size=0.15):
    """The share of the draws given a release that lie below the truth, for truths and releases of the model itself.

    The truth is one draw of its own posterior. It is put at a random place in a chain that is run from it forwards and
    backwards, so ranks are uniform however slowly the chain moves, if the posterior is right (Gandy and Scott 2020,
    https://doi.org/10.48550/arXiv.2001.06465, algorithm 2).
    """
    rng, release = np.random.default_rng(7), two_nodes(epsilon, mechanism=Marginals(noise=noise), random_seed=1)
    # Table by table, that of b is looked at.
    model = dirdp.releases.analyst_model(release, None if consistency == "joint" else ["p_b"], consistency=consistency)
    free = [model["scales"], model["effects"]]
    values = dict(zip([one.name for one in free], pm.draw(free, sets, random_seed=3, mode=QUICK), strict=True))
    a, b = tables_of(values, consistency)
    n, measurements = network_of(release).n_records, network_of(release).measurements
    counts = rng.multinomial(n, (a[..., None] * b).reshape(sets, -1)).reshape(sets, 2, 2)
    start = with_counts(values, counts, a, b, consistency, rng)
    published = []
    for variable in model.observed_RVs:
        margins, scales = [], []
        for one in measurements:
            if (one.laplace_scale is None) == (variable.name == "noisy"):
                margin = counts.sum(axis=tuple(1 + i for i, axis in enumerate("ab") if axis not in one.axes))
                margins.append(margin.reshape(sets, -1))
                scales += [one.variance**0.5 if one.laplace_scale is None else one.laplace_scale] * one.noisy.size
        distribution = rng.normal if variable.name == "noisy" else rng.laplace
        published.append(np.concatenate(margins, axis=1) + wrong * distribution(0, scales, (sets, len(scales))))
    both = [chain(model, start, published, consistency, rng, iterations, steps, size) for _ in range(2)]
    after = rng.integers(0, iterations + 1, sets)
    here = np.arange(iterations)[:, None]
    kept = np.concatenate([here < after, here < iterations - after])
    drawn, truth = np.concatenate(both), asked(a, b)
    below = np.sum(kept[..., None] * (drawn < truth - 1e-12), axis=0)
    # Where a step was not taken, the truth stands in the chain again; its place among equals is random.
    equal = np.sum(kept[..., None] * (np.abs(drawn - truth) <= 1e-12), axis=0)
    return (below + rng.random(below.shape) * (equal + 1)) / (iterations + 1)


def p_values(found):
    """How likely ranks are as far from uniform: as normal scores, and in the intervals of 50, 80 and 95 %."""
    scores = np.sum(ndtri(np.clip(found, 1e-9, 1 - 1e-9)) ** 2)
    distribution = chi2(found.size)
    yield 2 * min(distribution.cdf(scores), distribution.sf(scores))
    for level in (0.5, 0.8, 0.95):
        inside = int(np.sum(np.abs(found - 0.5) < level / 2))
        distribution = binom(found.size, level)
        yield 2 * min(distribution.cdf(inside), distribution.sf(inside - 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "noise", "consistency", "size"),
    [
        (0.3, "gaussian", "joint", 0.15),
        (0.3, "gaussian", "tables", 0.15),
        (0.3, "geometric", "joint", 0.15),
        (3.0, "gaussian", "joint", 0.04),
    ],
)
def test_intervals_are_calibrated(epsilon, noise, consistency, size):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dirdp.errors.SeededReleaseWarning)
        assert min(p_values(ranks(epsilon, noise, consistency, size=size))) > 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [1.6])
def test_noise_of_another_scale_is_noticed(wrong):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dirdp.errors.SeededReleaseWarning)
        assert min(p_values(ranks(0.3, "gaussian", "joint", wrong))) < 1e-6
