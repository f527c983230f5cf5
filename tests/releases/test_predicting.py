"""Which mechanism predicts the next record best, and the expected error of a fit, over simulated models."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.registry import MEASURES, Marginals
from pymc_dirdp.releases import predicting
from pymc_dirdp.releases import release as release_module
from pymc_dirdp.releases.predicting import axes_of, expected_fit_errors, prediction_loss_of, simulated_network

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-5)
AUTO = {"mechanism": "auto", "objective": "prediction"}
PURE = dirdp.PureDP(epsilon=1.0)
SIZES = {"a": 3, "b": 4, "c": 5}
NETWORK = {"a": [], "b": ["a"], "c": ["a", "b"]}
TABLES = {f"p_{name}": tuple((axis, SIZES[axis]) for axis in (*parents, name)) for name, parents in NETWORK.items()}
FITTED = {"a": ["x", "y", "z"], "b": ["no", "yes"]}
RECORDS = 3000


def records(n, seed):
    simulated = simulated_network(TABLES, 100, np.random.default_rng(seed))
    return {name: codes[:n] for name, codes in simulated.codes.items()}


@pytest.fixture(scope="module")
def model():
    categories = {name: list(range(size)) for name, size in SIZES.items()}
    return dirdp.bayesian_network(records(400, seed=2), NETWORK, categories=categories)


@pytest.fixture(scope="module")
def plan(model):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(release_module, "count_readings", None)
        return dirdp.plan(TARGET, model, **AUTO)


@pytest.mark.thorough
def test_marginals_are_chosen_for_a_network_and_predict_better(model, plan):
    choice = plan.parts[0].choice
    assert choice.best.startswith("marginals")
    # Joint noise of so many cells takes long to read, so its error is not known.
    tables = {"dirichlet", "gaussian", "geometric"}
    assert min(choice.advantage(kind) for kind in tables) > 1.2
    assert {kind for kind, _ in choice.expected_kl} == tables | {f"marginals ({measure})" for measure in MEASURES}
    assert "next is" in str(dirdp.report(plan, full=True))
    assert dirdp.verify(dirdp.sample(plan, model))


def test_models_that_builders_made_are_planned_for_prediction_under_auto_alone(model, plan):
    """They were planned for estimates, which never looks at marginals: held-out errors of twice what was to be had."""
    assert dirdp.plan(TARGET, model, mechanism="auto") == plan
    assert dirdp.plan(PURE, model, mechanism="geometric").objective == "estimate"


def test_predictions_read_marginals_by_the_joint_fit(model, plan):
    release = dirdp.sample(plan, model)
    others = records(300, seed=5)
    joint = dirdp.fit(release, "joint")
    for function in (dirdp.log_likelihood, lambda r, x: dirdp.predict_log_proba(r, x, target="b")):
        np.testing.assert_array_equal(function(release, others), function(joint, others))
    by_table = dirdp.fit(release, "tables")
    assert not np.allclose(dirdp.log_likelihood(release, others), dirdp.log_likelihood(by_table, others))
    released = dirdp.log_likelihood(release, others, draws="released")
    np.testing.assert_allclose(released, dirdp.log_likelihood(by_table, others), atol=1e-9)


@pytest.mark.thorough
def test_a_private_number_is_planned_for_and_other_mechanisms_are_not_compared(model):
    private = AUTO | {"adjacency": "add-remove"}
    with pytest.raises(ArgumentError, match="n_records="):
        dirdp.plan(PURE, model, **private)
    assert dirdp.plan(PURE, model, **private, n_records=400).parts[0].choice.best.startswith("marginals")
    with pytest.raises(ArgumentError, match="mechanism='auto'"):
        dirdp.plan(PURE, model, mechanism="geometric", objective="prediction")
    several = dirdp.plan(PURE, model, mechanism="auto", released_draws=2)
    assert {part.mechanism.kind for part in several.parts} <= {"dirichlet", "gaussian", "geometric", "joint"}


@pytest.mark.thorough
def test_the_comparison_that_is_stated_is_the_one_that_decided(model, plan):
    judge = prediction_loss_of(TABLES, {part.table.name: part.table.prior for part in plan.parts}, 400, public=True)

    def judged(plan):
        return np.mean(list(judge({part.table.name: part.mechanism for part in plan.parts}).values()))

    stated = dict(plan.parts[0].choice.expected_kl)
    planned = {"gaussian": dirdp.plan(TARGET, model, mechanism="gaussian", objective="estimate")}
    for measure in (MEASURES[0], MEASURES[-1]):
        planned[f"marginals ({measure})"] = dirdp.plan(TARGET, model, mechanism=Marginals(measure=measure))
    for kind, chosen in planned.items():
        assert judged(chosen) == pytest.approx(stated[kind], rel=1e-12)
    assert judged(plan) == pytest.approx(min(stated.values()), rel=1e-12)


def test_simulated_records_are_those_of_the_simulated_tables():
    simulated = simulated_network(TABLES, 200_000, np.random.default_rng(0))
    for name, counts in simulated.counts.items():
        assert counts.sum() == 200_000
        totals = counts.sum(axis=-1, keepdims=True)
        spread = np.sqrt(simulated.shares[name] * (1 - simulated.shares[name]) * totals)
        assert np.all(np.abs(counts - totals * simulated.shares[name]) < 6 * spread + 6)
    # The truth loses nothing, and what is mixed with the uniform loses what it loses.
    for target in (None, "a"):
        assert simulated.lost(simulated.shares, target) == dict.fromkeys(TABLES, 0.0)
    mixed = {name: 0.5 * shares + 0.5 / shares.shape[-1] for name, shares in simulated.shares.items()}
    assert all(0 < error < math.log(2) for error in simulated.lost(mixed, None).values())
    np.testing.assert_array_equal(simulated.counts["p_b"].sum(axis=1), simulated.counts["p_a"])
    assert simulated_network(TABLES, 10**9, np.random.default_rng(0)).counts["p_a"].sum() == pytest.approx(1e9)


@pytest.mark.parametrize("target", ["a", "b"])
def test_what_a_target_loses_is_computed_from_the_whole_joint_distribution(target):
    simulated = simulated_network(TABLES, 10, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    said = {name: rng.dirichlet(np.ones(p.shape[-1]), p.shape[:-1]) for name, p in simulated.shares.items()}
    logs = []
    for tables in (simulated.shares, said):
        joint = np.einsum("a,ab,abc->abc", *(tables[f"p_{name}"] for name in "abc"))
        given = joint / joint.sum(axis="abc".index(target), keepdims=True)
        logs.append(np.log(given[tuple(simulated.codes[name] for name in "abc")]))
    expected = np.mean(logs[0] - logs[1])
    assert simulated.lost(said, target) == pytest.approx(dict.fromkeys(TABLES, expected), rel=1e-9)


def fitted_network(data):
    return dirdp.bayesian_network(data, {"a": [], "b": ["a"]}, categories=FITTED)


def fit_planned(epsilon=1.0, **options):
    model = fitted_network({"a": ["x"] * RECORDS, "b": ["no"] * RECORDS})
    return model, dirdp.plan(dirdp.ApproxDP(epsilon=epsilon, delta=1e-6), model, mechanism="marginals", **options)


def errors_in(plan, n_records=RECORDS):
    return expected_fit_errors([replace(part, n_records=n_records) for part in plan.parts], public=True)


def test_less_noise_and_more_records_have_smaller_errors():
    plan = fit_planned(0.1)[1]
    much, little, of_more = errors_in(plan), errors_in(fit_planned(10.0)[1]), errors_in(plan, 10**6)
    for table in ("p_a", "p_b"):
        assert 0 < little[table].share < min(0.03, much[table].share)
        assert 0 < little[table].kl < much[table].kl
    assert of_more["p_b"].share < 0.5 * much["p_b"].share
    assert errors_in(plan, 0) == {}


@pytest.mark.thorough
def test_the_error_is_that_of_real_releases():
    plan, rng = fit_planned()[1], np.random.default_rng(5)
    axes = {part.table.name: axes_of(part.table) for part in plan.parts}
    cells = np.array(list(itertools.product("xyz", ["no", "yes"])))
    squares = {"p_a": [], "p_b": []}
    for _ in range(12):
        truth = simulated_network(axes, RECORDS, rng)
        data = np.repeat(cells, truth.counts["p_b"].astype(int).ravel(), axis=0)
        release = dirdp.sample(plan, fitted_network({"a": data[:, 0], "b": data[:, 1]}))
        rows = truth.counts["p_b"].sum(axis=1) / RECORDS
        for name, weights in (("p_a", np.ones(())), ("p_b", rows)):
            off = release["posterior"][name].values[0, 0] - truth.shares[name]
            squares[name].append(np.sum(weights * np.mean(off**2, axis=-1)))
    for name, each in squares.items():
        assert errors_in(plan)[name].share == pytest.approx(np.sqrt(np.mean(each)), rel=0.5)


def test_the_report_the_statement_and_the_plan_say_it(monkeypatch):
    model, plan = fit_planned()
    low, high = sorted(error.share for error in errors_in(plan).values())
    expected = f"a share is typically off by {low:.2g} to {high:.2g}, by table, in made-up networks (the fit)"
    release = dirdp.sample(plan, model)
    for one in (plan, release):
        section = dict(dirdp.report(one, full=True).sections)["Expected error, without the data"]
        assert dict(section)["expected error"] == expected
    assert expected in " ".join(str(dirdp.statement(release)).split())
    private = dirdp.sample(fit_planned(adjacency="add-remove")[1], model)
    assert "(the fit)" not in str(dirdp.report(private, full=True))
    assert "(the fit)" in str(dirdp.report(fit_planned(adjacency="add-remove", n_records=RECORDS)[1], full=True))
    monkeypatch.setitem(predicting.expected_fit_errors.__kwdefaults__, "most_cells", 5)
    assert errors_in(plan) == {}
    assert "(the fit)" not in str(dirdp.report(dirdp.sample(plan, model), full=True))
