"""A function that takes long, as polynomials on panels."""

import numpy as np
import pytest

from pymc_dirdp.inference.free_total import Panels


class Counted:
    def __init__(self, function):
        self.function, self.points = function, []

    def __call__(self, x):
        self.points.extend(x.tolist())
        return self.function(x)


@pytest.mark.parametrize(
    "function",
    [np.sin, lambda u: u - 500 * np.exp(u), lambda u: -np.logaddexp(0, 40 * (u - 0.3)), lambda u: 1e8 * np.exp(-u)],
)
def test_values_are_those_of_the_function(function):
    panels = Panels(Counted(function), width=1.0, least_width=1e-3)
    u = np.linspace(-3.7, 4.2, 4001)
    np.testing.assert_allclose([panels(x) for x in u], function(u), rtol=3e-14, atol=1e-9)


def test_a_panel_is_made_where_it_is_needed_and_once():
    function = Counted(np.sin)
    panels = Panels(function, width=0.5, least_width=1e-3)
    for x in (2.1, 2.2, 2.4999, 2.0):
        panels(x)
    assert len(function.points) == 16
    assert (min(function.points), max(function.points)) == pytest.approx((2, 2.5), abs=0.01)


def test_the_function_is_taken_itself_beside_a_kink():
    function = Counted(lambda x: np.abs(x - 0.3))
    panels = Panels(function, width=1.0, least_width=0.01)
    x = np.linspace(0, 0.999, 500)
    np.testing.assert_allclose([panels(one) for one in x], np.abs(x - 0.3), atol=1e-9)
    # Of the narrowest panels one or two hold the kink.
    assert 1 <= np.isin(x, function.points).sum() < 12
