"""The expected error of a fit, before any data are seen, beside the error of real fits."""

import itertools

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.releases import expected_fit
from pymc_dirdp.releases.expected_fit import fit_errors
from pymc_dirdp.releases.measured import axes_of
from pymc_dirdp.releases.predicting import simulated_network

CATEGORIES = {"a": ["x", "y", "z"], "b": ["no", "yes"]}
N = 3000


def planned(epsilon, **options):
    data = {"a": ["x"] * N, "b": ["no"] * N}
    model = dirdp.bayesian_network(data, {"a": [], "b": ["a"]}, categories=CATEGORIES)
    target = dirdp.ApproxDP(epsilon=epsilon, delta=1e-6)
    return model, dirdp.plan(target, model, mechanism="marginals", **options)


def found(plan, n_records=N):
    tables = {part.table.name: part.table for part in plan.parts}
    return fit_errors(tables, {part.table.name: part.mechanism for part in plan.parts}, n_records, public=True)


def test_less_noise_and_more_records_have_smaller_errors():
    errors = [found(planned(epsilon)[1]) for epsilon in (0.1, 1.0, 10.0)]
    for table in ("p_a", "p_b"):
        shares = [each[table].share for each in errors]
        assert shares == sorted(shares, reverse=True)
        assert 0 < shares[-1] < 0.03
        assert all(each[table].kl > 0 for each in errors)
    assert found(planned(1.0)[1], 10**6)["p_b"].share < 0.5 * errors[1]["p_b"].share


@pytest.mark.thorough
def test_the_error_is_that_of_real_releases():
    """Networks are drawn, records are made of them, released and fitted by the public functions."""
    plan, rng = planned(1.0)[1], np.random.default_rng(5)
    axes = {part.table.name: axes_of(part.table) for part in plan.parts}
    cells = np.array(list(itertools.product("xyz", ["no", "yes"])))
    squares = {"p_a": [], "p_b": []}
    for _ in range(20):
        truth = simulated_network(axes, N, rng)
        data = np.repeat(cells, truth.counts["p_b"].astype(int).ravel(), axis=0)
        frame = {"a": data[:, 0], "b": data[:, 1]}
        model = dirdp.bayesian_network(frame, {"a": [], "b": ["a"]}, categories=CATEGORIES)
        release = dirdp.sample(plan, model)
        rows = truth.counts["p_b"].sum(axis=1) / N
        for name, weights in (("p_a", np.ones(())), ("p_b", rows)):
            off = release["posterior"][name].values[0, 0] - truth.shares[name]
            squares[name].append(np.sum(weights * np.mean(off**2, axis=-1)))
    for name, each in squares.items():
        assert found(plan)[name].share == pytest.approx(np.sqrt(np.mean(each)), rel=0.5)


def test_the_report_the_statement_and_the_plan_say_it():
    model, plan = planned(1.0)
    low, high = sorted(error.share for error in found(plan).values())
    expected = f"a share is typically off by {low:.2g} to {high:.2g}, by table, in made-up networks"
    release = dirdp.sample(plan, model)
    for one in (plan, release):
        assert dict(dict(dirdp.report(one).sections)["Expected error, without the data"])["of the fit"] == expected
    assert expected in " ".join(str(dirdp.statement(release)).split())
    assert dirdp.verify(release)


def test_nothing_is_said_of_large_networks_no_records_and_a_private_number(monkeypatch):
    model, plan = planned(1.0)
    assert found(plan, 0) == {}
    private = dirdp.sample(planned(1.0, adjacency="add-remove")[1], model)
    assert "of the fit" not in str(dirdp.report(private))
    assert "of the fit" in str(dirdp.report(planned(1.0, adjacency="add-remove", n_records=N)[1]))
    monkeypatch.setattr(expected_fit, "_MOST_CELLS", 5)
    assert found(plan) == {}
    assert "of the fit" not in str(dirdp.report(dirdp.sample(plan, model)))
