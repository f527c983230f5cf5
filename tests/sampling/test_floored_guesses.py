"""Guesses against mpmath: they only make exact draws quick, and this says how good they are."""

import math

import numpy as np
import pytest
from mpmath import exp, gammainc, mpf, workdps

from pymc_dirdp.sampling.floored import guesses


@pytest.mark.parametrize(
    ("a", "floor", "ceiling", "error"),
    [
        (1e-3, 1e-3, math.inf, 1e-11),
        (16.5, 8.0, math.inf, 1e-11),
        (2000.0, 8.0, math.inf, 1e-11),
        (0.5, 1e4, math.inf, 1e-11),
        (9000.0, 1e4, math.inf, 1e-11),
        (3.0, 900.0, 905.0, 1e-11),
        (5.0, 2.0, 6.0, 1e-11),
        (5000.0, 2.0, 40.0, 1e-4),
    ],
)
def test_the_tail_at_a_guess_is_the_number_it_was_made_from(a, floor, ceiling, error):
    u = np.array([[1e-6], [0.01], [0.5], [0.99], [1 - 1e-6]])
    logs = guesses(u, np.array([a]), floor, ceiling)
    with workdps(60):

        def mass(x):
            return -gammainc(a, 0, x) if ceiling < a else gammainc(a, x)

        beyond = mass(mpf(ceiling)) if ceiling < math.inf else 0
        for wanted, w in zip(u.ravel(), logs.ravel(), strict=True):
            tail = (mass(floor * exp(mpf(float(w)))) - beyond) / (mass(mpf(floor)) - beyond)
            assert abs(tail - wanted) < error


def test_a_guess_is_finite_where_doubles_give_up():
    u = np.array([[0.0, 1.0, 1e-300, 2.0**-65] * 2])
    a = np.array([1e-300, 1e-300, 1e300, 5.0, 2.0**53, 1e17, 1e-3, 1e7])
    for floor, ceiling in [(1e-3, math.inf), (1e4, math.inf), (1e4, 1.0001e4), (8.0, 40.0)]:
        assert np.all(np.isfinite(guesses(u, a, floor, ceiling)))
