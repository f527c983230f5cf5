"""Curves of one kind for every mechanism: what they are asked, they answer or refuse."""

import math

import numpy as np
import pytest

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import epsilon_at
from pymc_dirdp.privacy.dominating_pairs import DominatingPair
from pymc_dirdp.privacy.guarantees import ApproxDP

PAIR = DominatingPair(1.0, math.inf, 0.1)


@pytest.mark.parametrize("other", ["epsilon", 1.0, None, ApproxDP])
def test_what_is_no_guarantee_is_refused(other):
    with pytest.raises(ArgumentError, match="guarantee"):
        PAIR.satisfies(other)


@pytest.mark.parametrize(
    "curves",
    [
        PAIR,
        Composition(((PAIR, 3),)),
    ],
)
def test_best_orders_of_several_deltas_are_those_of_each_and_no_other_order_is_better(curves):
    deltas = np.array([[1e-3, 1e-6], [1e-12, 0.5]])
    orders = curves.best_order(deltas)
    assert orders.shape == deltas.shape
    others = 1 + np.geomspace(1e-4, 1e6, 300)
    divergences = curves.renyi(others)
    for delta, order in zip(deltas.ravel().tolist(), orders.ravel().tolist(), strict=True):
        assert curves.best_order(delta) == pytest.approx(order, rel=1e-5)
        least = epsilon_at(order, curves.renyi(order), delta)
        for other, divergence in zip(others.tolist(), divergences.tolist(), strict=True):
            assert least <= epsilon_at(other, divergence, delta) * (1 + 1e-9)
