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
from pymc_dirdp.releases.predicting import _shares, axes_of, expected_fit_errors, prediction_loss_of, simulated_network

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-5)
AUTO = {"mechanism": "auto", "objective": "prediction"}
SIZES = {"a": 3, "b": 4, "c": 5}
NETWORK = {"a": [], "b": ["a"], "c": ["a", "b"]}


def network(n=400, seed=2):
    """Records of tables without interactions: the logits of a variable are sums of effects of its parents."""
    rng, records = np.random.default_rng(3), np.random.default_rng(seed)
    codes = {}
    for name, parents in NETWORK.items():
        logits = rng.normal(0, 1.5, SIZES[name]) + np.zeros((n, SIZES[name]))
        for parent in parents:
            logits = logits + rng.normal(0, 0.7, (SIZES[parent], SIZES[name]))[codes[parent]]
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        codes[name] = (shares.cumsum(axis=1) < records.random((n, 1))).sum(axis=1)
    categories = {name: list(range(size)) for name, size in SIZES.items()}
    return codes, dirdp.bayesian_network(codes, NETWORK, categories=categories)


@pytest.fixture(scope="module")
def model():
    return network()[1]


@pytest.fixture(scope="module")
def plan(model):
    # No count is read for the choice.
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
    assert dirdp.plan(TARGET, model, mechanism="dirichlet").objective == "estimate"


def test_predictions_read_marginals_by_the_joint_fit(model, plan):
    release = dirdp.sample(plan, model)
    others, _ = network(300, seed=5)
    joint = dirdp.fit(release, "joint")
    for function in (dirdp.log_likelihood, lambda r, x: dirdp.predict_log_proba(r, x, target="b")):
        np.testing.assert_array_equal(function(release, others), function(joint, others))
    by_table = dirdp.fit(release, "tables")
    assert not np.allclose(dirdp.log_likelihood(release, others), dirdp.log_likelihood(by_table, others))
    released = dirdp.log_likelihood(release, others, draws="released")
    np.testing.assert_allclose(released, dirdp.log_likelihood(by_table, others), atol=1e-9)


@pytest.mark.thorough
def test_a_private_number_is_planned_for(model):
    with pytest.raises(ArgumentError, match="n_records="):
        dirdp.plan(TARGET, model, **AUTO, adjacency="add-remove")
    plan = dirdp.plan(TARGET, model, **AUTO, adjacency="add-remove", n_records=400)
    assert plan.parts[0].choice.best.startswith("marginals")


def test_prediction_is_how_auto_compares(model):
    with pytest.raises(ArgumentError, match="mechanism='auto'"):
        dirdp.plan(TARGET, model, mechanism="geometric", objective="prediction")


@pytest.mark.thorough
def test_the_comparison_that_is_stated_is_the_one_that_decided(model, plan):
    """Each candidate is planned by its name, and judged again: the same errors, and the least was taken."""
    axes = {part.table.name: axes_of(part.table) for part in plan.parts}
    judge = prediction_loss_of(axes, {part.table.name: part.table.prior for part in plan.parts}, 400, public=True)

    def judged(mechanism, **options):
        chosen = dirdp.plan(TARGET, model, mechanism=mechanism, **options)
        return np.mean(list(judge({part.table.name: part.mechanism for part in chosen.parts}).values()))

    stated = dict(plan.parts[0].choice.expected_kl)
    for kind, error in stated.items():
        name, _, measure = kind.partition(" ")
        mechanism = Marginals(measure=measure.strip("()")) if measure else name
        assert judged(mechanism, **({} if measure else {"objective": "estimate"})) == pytest.approx(error, rel=1e-12)
    mechanisms = {part.table.name: part.mechanism for part in plan.parts}
    assert np.mean(list(judge(mechanisms).values())) == pytest.approx(min(stated.values()), rel=1e-12)


def test_marginals_that_cannot_be_planned_are_left_out(model):
    """Several draws have no marginals."""
    several = dirdp.plan(TARGET, model, mechanism="auto", released_draws=2)
    assert {part.mechanism.kind for part in several.parts} <= {"dirichlet", "gaussian", "geometric", "joint"}


def test_made_up_tables_have_effects_that_fall_with_their_order():
    """Variances of contrasts: 2 ** 2 for the variable, .5 ** 2 with a parent, .2 ** 2 with two."""
    rng = np.random.default_rng(1)
    logits = np.log([_shares((3, 4, 2), rng) for _ in range(4000)])
    difference = logits[..., 1] - logits[..., 0]
    together = difference.mean(axis=(1, 2))
    of_parent = difference.mean(axis=2) - together[:, None]
    rest = difference - difference.mean(axis=2, keepdims=True) - difference.mean(axis=1, keepdims=True)
    rest = rest + together[:, None, None]
    # The difference of two values has twice the variance of an effect, whose values have nearly that of a coordinate.
    sds = [np.sqrt(np.mean(np.square(values))) for values in (together, of_parent, rest)]
    assert sds[0] > 3 * sds[1] > 6 * sds[2] > 0


def test_simulated_records_are_those_of_the_simulated_tables(model):
    axes = {table.name: axes_of(table) for table in dirdp.tables(model)}
    simulated = simulated_network(axes, 200_000, np.random.default_rng(0))
    for name, counts in simulated.counts.items():
        assert counts.sum() == 200_000
        totals = counts.sum(axis=-1, keepdims=True)
        spread = np.sqrt(simulated.shares[name] * (1 - simulated.shares[name]) * totals)
        assert np.all(np.abs(counts - totals * simulated.shares[name]) < 6 * spread + 6)
        # The truth loses nothing, and what is mixed with the uniform loses what it loses.
    assert simulated.lost(simulated.shares, None) == dict.fromkeys(axes, 0.0)
    assert simulated.lost(simulated.shares, "a") == dict.fromkeys(axes, 0.0)
    mixed = {name: 0.5 * shares + 0.5 / shares.shape[-1] for name, shares in simulated.shares.items()}
    assert all(0 < error < math.log(2) for error in simulated.lost(mixed, None).values())
    # The parents of a table are those of the others.
    np.testing.assert_array_equal(simulated.counts["p_b"].sum(axis=1), simulated.counts["p_a"])


@pytest.mark.parametrize("target", ["a", "b"])
def test_what_a_target_loses_is_computed_from_the_whole_joint_distribution(model, target):
    axes = {table.name: axes_of(table) for table in dirdp.tables(model)}
    simulated = simulated_network(axes, 10, np.random.default_rng(0))
    rng = np.random.default_rng(1)
    said = {name: rng.dirichlet(np.ones(p.shape[-1]), p.shape[:-1]) for name, p in simulated.shares.items()}
    logs = []
    for tables in (simulated.shares, said):
        joint = np.einsum("a,ab,abc->abc", *(tables[f"p_{name}"] for name in "abc"))
        given = joint / joint.sum(axis="abc".index(target), keepdims=True)
        logs.append(np.log(given[tuple(simulated.codes[name] for name in "abc")]))
    expected = np.mean(logs[0] - logs[1])
    assert simulated.lost(said, target) == pytest.approx(dict.fromkeys(axes, expected), rel=1e-9)


def test_many_records_are_simulated_from_fewer(model):
    axes = {table.name: axes_of(table) for table in dirdp.tables(model)}
    simulated = simulated_network(axes, 10**9, np.random.default_rng(0))
    assert simulated.counts["p_a"].sum() == pytest.approx(1e9)


FITTED = {"a": ["x", "y", "z"], "b": ["no", "yes"]}
RECORDS = 3000


def fit_planned(epsilon, **options):
    data = {"a": ["x"] * RECORDS, "b": ["no"] * RECORDS}
    model = dirdp.bayesian_network(data, {"a": [], "b": ["a"]}, categories=FITTED)
    target = dirdp.ApproxDP(epsilon=epsilon, delta=1e-6)
    return model, dirdp.plan(target, model, mechanism="marginals", **options)


def errors_in(plan, n_records=RECORDS):
    return expected_fit_errors([replace(part, n_records=n_records) for part in plan.parts], public=True)


def test_less_noise_and_more_records_have_smaller_errors():
    errors = [errors_in(fit_planned(epsilon)[1]) for epsilon in (0.1, 1.0, 10.0)]
    for table in ("p_a", "p_b"):
        shares = [each[table].share for each in errors]
        assert shares == sorted(shares, reverse=True)
        assert 0 < shares[-1] < 0.03
        assert all(each[table].kl > 0 for each in errors)
    assert errors_in(fit_planned(1.0)[1], 10**6)["p_b"].share < 0.5 * errors[1]["p_b"].share


@pytest.mark.thorough
def test_the_error_is_that_of_real_releases():
    """Networks are drawn, records are made of them, released and fitted by the public functions."""
    plan, rng = fit_planned(1.0)[1], np.random.default_rng(5)
    axes = {part.table.name: axes_of(part.table) for part in plan.parts}
    cells = np.array(list(itertools.product("xyz", ["no", "yes"])))
    squares = {"p_a": [], "p_b": []}
    for _ in range(20):
        truth = simulated_network(axes, RECORDS, rng)
        data = np.repeat(cells, truth.counts["p_b"].astype(int).ravel(), axis=0)
        frame = {"a": data[:, 0], "b": data[:, 1]}
        model = dirdp.bayesian_network(frame, {"a": [], "b": ["a"]}, categories=FITTED)
        release = dirdp.sample(plan, model)
        rows = truth.counts["p_b"].sum(axis=1) / RECORDS
        for name, weights in (("p_a", np.ones(())), ("p_b", rows)):
            off = release["posterior"][name].values[0, 0] - truth.shares[name]
            squares[name].append(np.sum(weights * np.mean(off**2, axis=-1)))
    for name, each in squares.items():
        assert errors_in(plan)[name].share == pytest.approx(np.sqrt(np.mean(each)), rel=0.5)


def test_the_report_the_statement_and_the_plan_say_it():
    model, plan = fit_planned(1.0)
    low, high = sorted(error.share for error in errors_in(plan).values())
    expected = f"a share is typically off by {low:.2g} to {high:.2g}, by table, in made-up networks (the fit)"
    release = dirdp.sample(plan, model)
    for one in (plan, release):
        assert (
            dict(dict(dirdp.report(one, full=True).sections)["Expected error, without the data"])["expected error"]
            == expected
        )
    assert expected in " ".join(str(dirdp.statement(release)).split())
    assert dirdp.verify(release)


def test_nothing_is_said_of_large_networks_no_records_and_a_private_number(monkeypatch):
    model, plan = fit_planned(1.0)
    assert errors_in(plan, 0) == {}
    private = dirdp.sample(fit_planned(1.0, adjacency="add-remove")[1], model)
    assert "(the fit)" not in str(dirdp.report(private, full=True))
    assert "(the fit)" in str(dirdp.report(fit_planned(1.0, adjacency="add-remove", n_records=RECORDS)[1], full=True))
    monkeypatch.setitem(predicting.expected_fit_errors.__kwdefaults__, "most_cells", 5)
    assert errors_in(plan) == {}
    assert "(the fit)" not in str(dirdp.report(dirdp.sample(plan, model), full=True))
