"""Accuracy and privacy solved for each other."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma, xlogy

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.planning.options import TableOptions, TablePlanning
from pymc_dirdp.planning.prices import expected_error, least_guarantee, least_records, privacy_utility
from tests.oracles import dirichlet_renyi

LIKE = dirdp.ApproxDP(epsilon=1, delta=1e-6)
TABLE = {"prior": np.ones(4), "n_records": 592}


@pytest.mark.parametrize("strategy", ["algorithm-1", "temper", "inflate", "optimal"])
@pytest.mark.parametrize("objective", ["posterior", "estimate"])
def test_a_strategy_that_drops_the_prior_is_scored_without_it(strategy, objective):
    """Oracle: the closed form with the mechanism's own parameters, for each record count by hand."""
    prior, n, guarantee = np.array([0.5, 3.0]), 12, dirdp.RenyiDP(order=3, epsilon=0.5)
    # Under replace-one the number of records is public, and two categories lose less.
    options = {"prior": prior, "n_records": n, "public": ["n_records"], "objective": objective}
    options["mechanism"] = Dirichlet(strategy=strategy)
    made = dirdp.calibrate(guarantee, **options)
    first = np.arange(n + 1)
    counts = np.stack([first, n - first], axis=-1)
    private = made.r * counts + made.alpha
    if objective == "posterior":
        each = [dirichlet_renyi(1, *pair) for pair in zip(counts + prior, private, strict=True)]
    else:
        p = counts / n
        each = np.sum(xlogy(p, p) - p * digamma(private), axis=-1) + digamma(private.sum(-1))
    by_hand = stats.betabinom(n, *prior).pmf(first) @ each
    assert expected_error(guarantee, **options) == pytest.approx(by_hand, rel=1e-9)


@pytest.mark.parametrize(
    ("like", "kl", "options"),
    [
        (dirdp.ApproxDP(epsilon=1, delta=1e-6), 6.0, {"mechanism": "gaussian", "objective": "posterior"}),
        (dirdp.RenyiDP(order=3, epsilon=1), 0.02, {"mechanism": "geometric", "objective": "estimate"}),
        (dirdp.TruncatedCDP(rho=1, omega=4), 6.0, {"mechanism": "gaussian", "objective": "posterior"}),
        (dirdp.PureDP(epsilon=1), 0.004, {"mechanism": "geometric", "of": "estimate"}),
    ],
    ids=["approximate", "Rényi", "truncated", "pure"],
)
def test_the_least_guarantee_and_the_least_records_reach_the_target_and_less_does_not(like, kl, options):
    found = least_guarantee(kl, like, **TABLE, **options)
    name = "rho" if isinstance(like, dirdp.TruncatedCDP) else "epsilon"
    assert found == replace(like, **{name: getattr(found, name)})
    assert expected_error(found, **TABLE, **options) <= kl
    tighter = replace(found, **{name: 0.9 * getattr(found, name)})
    assert expected_error(tighter, **TABLE, **options) > kl
    if options.get("objective") == "estimate":
        table = {"prior": np.ones(4)} | options
        records = least_records(kl, like, **table)
        enough, fewer = (expected_error(like, n_records=n, **table) for n in (records, round(0.9 * records)))
        assert enough <= kl < fewer


def test_targets_that_nothing_reaches_are_refused():
    for kl, like, options, message in (
        (1e-9, LIKE, {"mechanism": "geometric", "objective": "estimate"}, "out of reach"),
        (6.0, dirdp.PureDP(epsilon=1), {"mechanism": "gaussian"}, "out of reach"),
        (1e30, LIKE, {"mechanism": "geometric"}, "every epsilon"),
    ):
        with pytest.raises(UnattainableError, match=message):
            least_guarantee(kl, like, **TABLE, **options)
    with pytest.raises(UnattainableError, match="any number of records"):
        least_records(0.5, dirdp.PureDP(epsilon=1), prior=[1, 1], mechanism="gaussian")
    with pytest.raises(ArgumentError, match="Unknown of"):
        expected_error(LIKE, **TABLE, of="data")


def test_the_frontier_falls_and_auto_is_what_a_plan_takes():
    grid = [dirdp.ApproxDP(epsilon=e, delta=1e-6) for e in (0.1, 1, 8)]
    frontier = privacy_utility(grid, **TABLE, mechanisms=("dirichlet", "gaussian", "geometric", "auto"))
    table = frontier.frame()
    assert np.all(np.diff(table.to_numpy(), axis=0) < 0)
    kinds = [dirdp.calibrate(guarantee, **TABLE, mechanism="auto").kind for guarantee in grid]
    assert table["auto"].tolist() == [table[kind].iloc[i] for i, kind in enumerate(kinds)]
    of_estimates = privacy_utility(grid, **TABLE, mechanisms=(*set(kinds), "dirichlet", "auto"), of="estimate").frame()
    assert np.all(of_estimates["auto"] == of_estimates.drop(columns="auto").min(axis=1))
    assert frontier.amounts == (0.1, 1, 8)
    assert str(frontier).startswith("expected KL of the private posterior from the posterior, 592 records")
    assert "<table>" in frontier._repr_html_()
    none = privacy_utility([dirdp.PureDP(epsilon=1)], **TABLE, mechanisms=("gaussian",))
    assert none.expected_kl["gaussian"] == (math.inf,)
    with pytest.raises(ArgumentError, match="at least one"):
        privacy_utility([], **TABLE)
    with pytest.raises(ArgumentError, match="mechanisms="):
        privacy_utility([LIKE], **TABLE, mechanism="geometric")
    # The typed names are those of the options.
    assert set(TablePlanning.__annotations__) == {field.name for field in fields(TableOptions)}
    # Settings are columns of their own.
    ways = ["dirichlet", *(Dirichlet(strategy=strategy) for strategy in ("temper", "inflate"))]
    found = privacy_utility([LIKE], prior=[1, 1], n_records=50, mechanisms=ways).frame()
    assert list(found.columns) == list(map(str, ways))
    assert found.iloc[0, 0] < found.iloc[0, 1:].min()
