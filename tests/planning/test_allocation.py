"""Shares of a budget, and what a mechanism stands for beside others."""

import math

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.planning.allocation import allocate, composed, whole_share

PRIORS = {"a": np.ones(3), "b": np.full(4, 0.5)}
TOGETHER = [("a", "b")]


def tempered(name, share):
    return dirdp.calibrate(share, prior=PRIORS[name], strategy="temper")


@pytest.mark.parametrize("guarantee", [dirdp.ZeroCDP(rho=0.5), dirdp.PureDP(epsilon=0.5)])
def test_the_share_of_noise_is_its_own_loss(guarantee):
    """Under these it was the whole guarantee, so that tables were compared as if each had all of it."""
    made = GeometricMechanism(np.ones(3), 9.0)
    share = whole_share(made, guarantee, 2)
    assert share == guarantee.with_budget(2 * made.loss(guarantee)[0])
    assert share.budget < guarantee.budget


def test_the_share_of_a_draw_is_finite_at_some_order():
    made = dirdp.mechanisms.DirichletMechanism([0.1, 0.1], 1.0)
    share = whole_share(made, dirdp.ApproxDP(epsilon=1, delta=1e-6), 3)
    assert share.epsilon == 3 * made.renyi(share.order)
    assert math.isfinite(share.epsilon)


@pytest.mark.parametrize(
    "guarantee",
    [
        dirdp.RenyiDP(order=3, epsilon=1),
        dirdp.TruncatedCDP(rho=0.1, omega=5),
        dirdp.ApproxDP(epsilon=1, delta=1e-6),
    ],
)
def test_tables_keep_a_guarantee_together_and_leave_little(guarantee):
    made = allocate(guarantee, tempered, weights={"a": 1, "b": 2}, groups=TOGETHER, draws=2)
    curves = composed(made, TOGETHER, 2)
    assert curves.satisfies(guarantee)
    assert not curves.satisfies(guarantee.with_budget(0.97 * guarantee.budget))


def test_a_guarantee_that_all_posteriors_keep_gives_them_back():
    def optimal(name, share):
        return dirdp.calibrate(share, prior=PRIORS[name] + 50, n_records=100)

    loose = dirdp.ApproxDP(epsilon=20, delta=1e-3)
    made = allocate(loose, optimal, weights={"a": 1, "b": 1}, groups=TOGETHER, draws=2)
    assert all(mechanism.r == 1 for mechanism in made.values())
    assert all(np.array_equal(mechanism.alpha, PRIORS[name] + 50) for name, mechanism in made.items())


def test_a_guarantee_that_nothing_keeps_is_refused():
    with pytest.raises(dirdp.UnattainableError, match="so tight"):
        allocate(dirdp.ApproxDP(epsilon=0, delta=1e-150), tempered, weights={"a": 1, "b": 1}, groups=TOGETHER, draws=2)
