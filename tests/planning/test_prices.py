"""Accuracy and privacy solved for each other."""

import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import digamma, gammaln, xlogy

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.planning.prices import expected_error, least_guarantee, least_records, privacy_utility

LIKE = [
    dirdp.ApproxDP(epsilon=1, delta=1e-6),
    dirdp.RenyiDP(order=3, epsilon=1),
    dirdp.TruncatedCDP(rho=1, omega=4),
    dirdp.ZeroCDP(rho=1),
    dirdp.PureDP(epsilon=1),
]
TABLE = {"prior": np.ones(4), "n_records": 592}


def dirichlet_kl(a, b):
    """Divergence of Dirichlet(b) from Dirichlet(a) in nats, row by row."""
    total = gammaln(a.sum(-1)) - gammaln(b.sum(-1)) + np.sum(gammaln(b) - gammaln(a), axis=-1)
    return total + np.sum((a - b) * (digamma(a) - digamma(a.sum(-1))[:, None]), axis=-1)


@pytest.mark.parametrize("strategy", ["algorithm-1", "temper", "inflate", "optimal"])
@pytest.mark.parametrize("objective", ["posterior", "estimate"])
def test_a_strategy_that_drops_the_prior_is_scored_without_it(strategy, objective):
    """Oracle: the closed form with the mechanism's own parameters, for each record count by hand."""
    prior, n, guarantee = np.array([0.5, 3.0]), 12, dirdp.RenyiDP(order=3, epsilon=0.5)
    # Under replace-one the number of records is public, and two categories lose less.
    known = {"n_records": n, "public": ["n_records"]}
    made = dirdp.calibrate(guarantee, prior=prior, **known, mechanism=Dirichlet(strategy=strategy), objective=objective)
    first = np.arange(n + 1)
    counts = np.stack([first, n - first], axis=-1)
    private = made.r * counts + made.alpha
    each = (
        dirichlet_kl(counts + prior, private)
        if objective == "posterior"
        else np.sum(xlogy(counts / n, counts / n) - counts / n * digamma(private), axis=-1) + digamma(private.sum(-1))
    )
    by_hand = stats.betabinom(n, *prior).pmf(first) @ each
    options = {"prior": prior, **known, "mechanism": Dirichlet(strategy=strategy), "objective": objective}
    assert expected_error(guarantee, **options) == pytest.approx(by_hand, rel=1e-9)


IMPOSSIBLE = {dirdp.PureDP: {"dirichlet", "gaussian"}, dirdp.ZeroCDP: {"dirichlet"}}


@pytest.mark.parametrize(
    ("mechanism", "objective"),
    [
        pytest.param("dirichlet", "posterior", marks=pytest.mark.slow),
        ("gaussian", "posterior"),
        ("geometric", "estimate"),
    ],
)
@pytest.mark.parametrize("like", LIKE, ids=lambda like: type(like).__name__)
@pytest.mark.thorough
def test_the_least_guarantee_reaches_the_target_and_a_tighter_one_does_not(like, mechanism, objective):
    options = {**TABLE, "mechanism": mechanism, "objective": objective}
    kl = 0.02 if objective == "estimate" else 6.0
    if mechanism in IMPOSSIBLE.get(type(like), ()):
        with pytest.raises(UnattainableError, match="out of reach"):
            least_guarantee(kl, like, **options)
        return
    found = least_guarantee(kl, like, **options)
    assert type(found) is type(like)
    name = "rho" if isinstance(like, dirdp.TruncatedCDP | dirdp.ZeroCDP) else "epsilon"
    equal = {field: value for field, value in vars(like).items() if field != name}
    assert {field: value for field, value in vars(found).items() if field != name} == equal
    assert expected_error(found, **options) <= kl
    tighter = type(found)(**equal, **{name: getattr(found, name) * 0.98})
    assert expected_error(tighter, **options) > kl


@pytest.mark.thorough
def test_targets_for_an_estimate():
    like, options = LIKE[0], {"prior": np.ones(4), "mechanism": "geometric", "of": "estimate"}
    found = least_guarantee(0.004, like, n_records=592, **options)
    assert expected_error(found, n_records=592, **options) <= 0.004
    tighter = dirdp.ApproxDP(epsilon=0.9 * found.epsilon, delta=found.delta)
    assert expected_error(tighter, n_records=592, **options) > 0.004
    records = least_records(0.004, like, **options)
    assert expected_error(like, n_records=records, **options) <= 0.004
    assert expected_error(like, n_records=round(0.9 * records), **options) > 0.004
    frontier = privacy_utility([like], prior=np.ones(4), n_records=592, mechanisms=["geometric", "auto"], of="estimate")
    assert frontier.expected_kl["geometric"] == frontier.expected_kl["auto"]
    assert "the estimate from the shares" in str(frontier)


def test_targets_that_nothing_reaches_are_refused():
    with pytest.raises(UnattainableError, match="out of reach"):
        least_guarantee(1e-9, LIKE[0], **TABLE, mechanism="geometric", objective="estimate")
    with pytest.raises(UnattainableError, match="every epsilon"):
        least_guarantee(1e30, LIKE[0], **TABLE, mechanism="geometric")
    with pytest.raises(UnattainableError, match="any number of records"):
        least_records(0.5, dirdp.PureDP(epsilon=1), prior=[1, 1], mechanism="gaussian")
    with pytest.raises(ArgumentError, match="mechanism"):
        least_guarantee(1.0, LIKE[0], **TABLE, mechanism="gauss")
    with pytest.raises(ArgumentError, match="guarantee"):
        least_guarantee(1.0, "epsilon", **TABLE)
    with pytest.raises(ArgumentError, match="Unknown of"):
        expected_error(LIKE[0], **TABLE, of="data")


@pytest.mark.thorough
def test_least_records():
    guarantee, kl, prior = LIKE[0], 0.02, np.ones((2, 2))
    n = least_records(kl, guarantee, prior=prior, objective="estimate")
    assert expected_error(guarantee, prior=prior, n_records=n, objective="estimate") <= kl
    assert expected_error(guarantee, prior=prior, n_records=int(0.95 * n), objective="estimate") > kl


def test_the_frontier_falls_and_auto_is_what_a_plan_takes():
    grid = [dirdp.ApproxDP(epsilon=e, delta=1e-6) for e in (0.1, 0.5, 2, 8)]
    frontier = privacy_utility(grid, **TABLE, mechanisms=("dirichlet", "gaussian", "geometric", "auto"))
    table = frontier.frame()
    assert np.all(np.diff(table.to_numpy(), axis=0) < 0)
    kinds = [dirdp.calibrate(guarantee, **TABLE, mechanism="auto").kind for guarantee in grid]
    assert table["auto"].tolist() == [table[kind].iloc[i] for i, kind in enumerate(kinds)]
    of_estimates = privacy_utility(grid, **TABLE, mechanisms=(*set(kinds), "dirichlet", "auto"), of="estimate").frame()
    assert np.all(of_estimates["auto"] == of_estimates.drop(columns="auto").min(axis=1))
    assert frontier.amounts == (0.1, 0.5, 2, 8)
    assert str(frontier).startswith("expected KL of the private posterior from the posterior, 592 records")
    assert "<table>" in frontier._repr_html_()
    none = privacy_utility([dirdp.PureDP(epsilon=1)], **TABLE, mechanisms=("gaussian",))
    assert none.expected_kl["gaussian"] == (math.inf,)
    with pytest.raises(ArgumentError, match="at least one"):
        privacy_utility([], **TABLE)


def test_settings_are_columns_of_their_own():
    ways = ["dirichlet", *(Dirichlet(strategy=strategy) for strategy in ("temper", "inflate"))]
    found = dirdp.privacy_utility([LIKE[0]], prior=[1, 1], n_records=50, mechanisms=ways)
    assert list(found.frame().columns) == list(map(str, ways))
    best, *others = (errors[0] for errors in found.expected_kl.values())
    assert best < min(others)
