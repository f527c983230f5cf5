"""Marginals of whole models, from the plan to the readers of the file."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DirdpError, ReleaseError, UnattainableError, UnsupportedModelError
from pymc_dirdp.mechanisms.registry import Marginals
from pymc_dirdp.releases import release as release_module
from tests.mechanisms.test_marginals import exact_delta
from tests.planned import planned_sample

CATEGORIES = {"a": ["x", "y"], "b": ["p", "q", "r"], "c": ["no", "yes"]}
NETWORK = {"a": [], "b": ["a"], "c": ["a", "b"]}
TARGET, PURE = dirdp.ApproxDP(epsilon=1.0, delta=1e-5), dirdp.PureDP(epsilon=1.0)
MARGINALS = {"mechanism": "marginals"}


@pytest.fixture(scope="module")
def network():
    rng = np.random.default_rng(0)
    a = rng.choice(["x", "y"], 500, p=[0.3, 0.7])
    b = np.where(rng.random(500) < 0.6, np.where(a == "x", "p", "q"), "r")
    records = {"a": a, "b": b, "c": np.where(rng.random(500) < np.where(b == "q", 0.8, 0.1), "yes", "no")}
    return dirdp.bayesian_network(records, NETWORK, categories=CATEGORIES)


@pytest.fixture(scope="module")
def plan(network):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release_module, "count_readings", None)
        return dirdp.plan(TARGET, network, **MARGINALS)


@pytest.fixture(scope="module")
def release(network, plan):
    return dirdp.sample(plan, network)


def test_a_plan_shows_what_will_be_measured(plan):
    assert {part.table.name: part.mechanism.marginals for part in plan.parts} == {
        "p_a": ((0,),),
        "p_b": ((1,), (0, 1)),
        "p_c": ((2,), (0, 2), (1, 2), (0, 1, 2)),
    }
    report = dirdp.report(plan, full=True)
    text = " ".join(str(report).split())
    marginals = "; ".join(line for _, line in dict(report.sections)["Marginals"])
    for sd in (sd for part in plan.parts for sd in part.mechanism.noise_sds):
        assert f"noise of standard deviation {sd:.4g} a cell, {sd / 500:.2g} of all records" in marginals
    assert "a x b x c" in text
    assert "dirdp.analyse draws" in text
    assert 0.999 * TARGET.allowed < TARGET.loss(plan.composition) <= TARGET.allowed


def test_a_release_has_an_estimate_and_the_noisy_counts_of_each_marginal(release):
    assert release["posterior"].sizes["draw"] == 1
    assert release["posterior"]["p_c"].dims == ("chain", "draw", "a", "b", "c")
    np.testing.assert_allclose(release["posterior"]["p_c"].sum("c"), 1.0)
    assert "not a draw" in release.attrs["estimate"]
    noisy = release["mechanism/p_c"]
    assert noisy["noisy_counts_0_2"].dims == ("a", "c")
    assert noisy["noisy_counts_0_1_2"].dims == ("a", "b", "c")
    assert list(noisy["c"].values) == ["no", "yes"]
    assert "fitted to the noisy counts" in str(dirdp.statement(release))


def test_posteriors_are_around_what_is_fitted(release):
    analysis = dirdp.analyse(release, 300, random_seed=1)
    assert np.all(analysis["sample_stats"]["effective_draws"] > 60)
    assert "Hamiltonian" in analysis.attrs["method"]
    estimates = dirdp.estimate(release, [0.95])
    assert all("effective sample size" in one for one in estimates.conditions)
    for name in ("p_a", "p_b", "p_c"):
        drawn, found = analysis["posterior"][name], estimates.tables[name]
        assert analysis["latent_counts"][name].dims == drawn.dims
        assert np.all(analysis["latent_counts"][name].sum(drawn.dims[2:]) == 500)
        low, high = found.share_intervals[0].T
        fitted = release["posterior"][name].values.ravel()
        assert np.mean((low <= fitted) & (fitted <= high)) > 0.8
        np.testing.assert_allclose(drawn.mean(("chain", "draw")).values.ravel(), found.share_means, atol=0.1)
    with pytest.raises(ArgumentError, match="sums of effects"):
        dirdp.estimate(release, prior=1.0)
    with pytest.raises(ArgumentError, match="product over cells"):
        dirdp.releases.analyst_model(release)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_nothing_tells_the_counts_of_neighbours_apart_by_more_than_the_plan_says(adjacency):
    """Of a network of two variables: exact distributions of all that is published, for all neighbours of one record."""
    two = {"a": ["x", "y"], "b": ["p", "q"]}
    model = dirdp.bayesian_network({"a": list("xy"), "b": list("pp")}, {"a": [], "b": ["a"]}, categories=two)
    target, mechanism = dirdp.ApproxDP(epsilon=3.0, delta=0.01), Marginals(noise="gaussian")
    plan = dirdp.plan(target, model, mechanism=mechanism, adjacency=adjacency)
    parts = [one.noise for planned in plan.parts for one in planned.mechanism.noisy_marginals]

    def published(cell):
        """The marginals {a}, {b} and {a, b} of a record, without noise."""
        cells = np.zeros((2, 2)) if cell is None else np.eye(4)[cell].reshape(2, 2)
        return [cells.sum(axis=1), cells.sum(axis=0), cells.ravel()]

    changes = [
        [before - after for before, after in zip(published(cell), published(other), strict=True)]
        for cell, other in itertools.product(range(4), [None] if adjacency == "add-remove" else range(4))
    ]
    for epsilon in (0.0, 0.5, 3.0):
        reached = max(exact_delta(parts, change, epsilon) for change in changes)
        bound = plan.composition.delta(epsilon)
        assert 0.97 * bound < reached <= bound + 1e-15


def test_pure_privacy_has_noise_that_adds_up_to_the_public_number(network, edited):
    release = planned_sample(PURE, network, **MARGINALS)
    for name in NETWORK:
        group = release[f"mechanism/p_{name}"]
        assert group.attrs["mechanism"] == "ZeroSumMarginalsMechanism"
        assert all(group[noisy].sum() == 500 for noisy in group.data_vars if noisy.startswith("noisy_counts"))
    assert dirdp.verify(release)
    with pytest.raises(ReleaseError, match="do not add up"):
        dirdp.verify(edited(release, (("output", "p_b", "noisy_counts_1", 0), lambda count: count + 1)))


def test_a_private_number_of_records(network):
    def noise(**options):
        plan = dirdp.plan(TARGET, network, **MARGINALS, adjacency="add-remove", **options)
        return {sd for part in plan.parts for sd in part.mechanism.noise_sds}

    assert len(noise()) == 1 < len(noise(n_records=10**5))
    for kind in ("gaussian", "geometric"):
        release = dirdp.sample(TARGET, network, mechanism=Marginals(noise=kind), adjacency="add-remove")
        assert dirdp.verify(release)
        assert release["mechanism/p_c"].attrs["mechanism"] == "MarginalsMechanism"


def tables_of(*tables):
    """A table of the shape of each, over dims with two labels, and the number of records in each row."""
    with pm.Model(coords={"a": [0, 1], "b": [0, 1]}) as model:
        for number, (dims, n) in enumerate(tables):
            p = pm.Dirichlet(f"p_{number}", np.ones((2,) * len(dims)), dims=tuple(dims))
            rows = [n] * 2 if len(dims) > 1 else n
            pm.Multinomial(f"n_{number}", n=rows, p=p, observed=np.full((2,) * len(dims), n // 2))
    return model


def survey():
    with pm.Model(coords={"person": range(30), "item": ["i", "j"]}) as model:
        rate = pm.Beta("rate", 1, 1, dims="item")
        pm.Bernoulli("answer", p=rate, observed=np.ones((30, 2), dtype=int), dims=("person", "item"))
    return model


def test_a_survey_of_people_with_an_answer_to_each_item():
    """The marginal over all items has two records of a person, and the table one in each of two rows."""
    weighed = Marginals(noise="gaussian", weights={("item", "rate_outcome"): 1})
    plan = dirdp.plan(TARGET, survey(), unit="person", mechanism=weighed)
    mechanism = plan.parts[0].mechanism
    adds = [mechanism.contributed.in_marginal(mechanism.shape, axes) for axes in mechanism.marginals]
    assert adds == [(2, 1), (1, 2)]
    # The squares of the shifts: 2 * 2 ** 2 for the sums, and 2 in each of two rows.
    one = dirdp.plan(TARGET, survey(), contribution=1, mechanism=weighed).parts[0].mechanism
    assert mechanism.noise_sds[0] == pytest.approx(math.sqrt((8 + 4) / (2 + 2)) * one.noise_sds[0], rel=1e-3)
    # Noise that adds up to 0 is for records that lie anywhere.
    geometric = planned_sample(PURE, survey(), unit="person", **MARGINALS)
    assert geometric["mechanism/rate"].attrs["mechanism"] == "MarginalsMechanism"
    assert dirdp.verify(geometric)
    assert "person" in str(dirdp.report(geometric, full=True))
    assert np.all(dirdp.estimate(geometric).tables["rate"].share_sds > 0)


OTHER_SIZES = [("a", 20), ("b", 30)]
REFUSED = [
    (lambda: tables_of(("a", 20), ("a", 20)), {}, UnsupportedModelError, "both hold"),
    (lambda: tables_of(*OTHER_SIZES), {"public": ["n_0"]}, UnsupportedModelError, "different numbers"),
    (lambda: tables_of(("ab", 4), ("ba", 4)), {}, UnsupportedModelError, "in a cycle"),
    (lambda: tables_of(*OTHER_SIZES), {"disjoint": [["p_0"], ["p_1"]]}, UnsupportedModelError, "groups of disjoint"),
    (lambda: tables_of(("aa", 4)), {}, UnsupportedModelError, "same name"),
    (survey, {"contribution": 2, "released_draws": 2}, ArgumentError, "released_draws out"),
    (survey, {"contribution": 2, "weights": {"rate": 2}}, ArgumentError, "weights divide"),
]


@pytest.mark.parametrize(("build", "said", "error", "message"), REFUSED)
def test_what_cannot_be_measured_is_refused(build, said, error, message):
    with pytest.raises(error, match=message):
        dirdp.plan(TARGET, build(), **MARGINALS, **said)


def test_marginals_are_for_models_and_a_guarantee_that_their_noise_has():
    with pytest.raises(UnattainableError, match="geometric"):
        dirdp.plan(PURE, survey(), contribution=2, mechanism=Marginals(noise="gaussian"))
    with pytest.raises(ArgumentError, match="models only"):
        dirdp.expected_error(TARGET, prior=[1, 1], n_records=50, **MARGINALS)


def test_a_family_of_too_many_cells_is_named_before_anything_is_read_or_charged(monkeypatch):
    ledger, data = dirdp.Ledger(dirdp.ApproxDP(epsilon=2.0, delta=1e-4)), {"a": [0, 1], "b": [0, 1]}
    model = dirdp.bayesian_network(data, {"a": [], "b": ["a"]}, categories={"a": range(400), "b": range(300)})
    monkeypatch.setattr(release_module, "count_readings", None)
    with pytest.raises(ArgumentError, match=r"'p_b' has 120000 cells.* at most 100000\. Give 'b' fewer parents"):
        planned_sample(TARGET, model, ledger=ledger, **MARGINALS)
    assert not ledger.entries()
    with pytest.raises(ArgumentError, match="1000000000000 cells"):
        dirdp.bayesian_network({}, {"a": [], "b": ["a"]}, categories={"a": range(10**6), "b": range(10**6)})
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((100, 100, 10)))
        pm.Multinomial("x", n=0, p=p, observed=np.zeros((100, 100, 10), dtype=int))
    assert dirdp.plan(TARGET, model, **MARGINALS).parts


def test_a_plan_of_marginals_states_one_estimate(plan, tmp_path, text_of_facts):
    with pytest.raises(ArgumentError, match="a single estimate"):
        replace(plan, released_draws=2)
    (tmp_path / "plan.json").write_text(text_of_facts(plan.facts | {"released_draws": 2}), encoding="utf-8")
    with pytest.raises(DirdpError, match="a single estimate"):
        dirdp.load(tmp_path / "plan.json")
