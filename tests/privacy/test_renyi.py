"""Divergences of Gamma distributions at orders and parameters where one of their terms is no double."""

import math

import mpmath
import pytest

from pymc_dirdp.privacy.divergences import renyi_add, renyi_remove


def exact(order, a, r):
    """Oracle: the closed form with 400 digits, for records that appear."""
    with mpmath.workdps(400):
        order, a, r = map(mpmath.mpf, (order, a, r))
        terms = (order - 1) * mpmath.loggamma(a) - order * mpmath.loggamma(a + r) + mpmath.loggamma(a + order * r)
        return float(terms / (order - 1))


@pytest.mark.parametrize("order", [1e150, 1e280, 1e300])
@pytest.mark.parametrize("a", [1e-100, 1.0, 1e10, 1e100])
@pytest.mark.parametrize("r", [1e-100, 1.0, 1e10])
def test_a_divergence_of_a_huge_order_is_a_number_and_not_below_the_truth(order, a, r):
    found = renyi_add(order, a, r)
    assert not math.isnan(found)
    assert found >= exact(order, a, r) * (1 - 1e-11)


@pytest.mark.parametrize("order", [2.0, 1e10, 1e16, 1e18, 1e20, 1e25])
@pytest.mark.parametrize(("a", "r"), [(1.0, 1e-17), (1e3, 1e-14), (1e-3, 1e-20), (0.3, 1e-12)])
def test_a_concentration_that_is_lost_against_the_prior_still_counts_at_large_orders(order, a, r):
    """The direction was once read off `a + r > a`, and the divergence came out a hundred times too small."""
    assert renyi_add(order, a, r) == pytest.approx(exact(order, a, r), rel=1e-11, abs=0)


@pytest.mark.parametrize(("a", "r"), [(0.5, 0.1), (3.0, 2.0), (1e-3, 1e-3), (50.0, 0.01)])
def test_at_order_one_it_is_the_limit_of_the_orders_above(a, r):
    """Oracle: the Kullback-Leibler divergence in closed form."""
    with mpmath.workdps(50):
        low, more = mpmath.mpf(a), mpmath.mpf(r)
        rise = mpmath.loggamma(low + more) - mpmath.loggamma(low)
        up, down = more * mpmath.digamma(low + more) - rise, rise - more * mpmath.digamma(low)
    assert renyi_add(1.0, a, r) == pytest.approx(float(up), rel=1e-10, abs=0)
    assert renyi_remove(1.0, a, r) == pytest.approx(float(down), rel=1e-10, abs=0)
    assert renyi_add(1.0, a, r) == pytest.approx(renyi_add(1 + 1e-9, a, r), rel=1e-7, abs=0)


def removing(order, a, r):
    """Oracle: the closed form with 60 digits, for records that disappear; infinite from the pole on."""
    with mpmath.workdps(60):
        order, a, r = map(mpmath.mpf, (order, a, r))
        if order == 1:
            return float(mpmath.loggamma(a + r) - mpmath.loggamma(a) - r * mpmath.digamma(a))
        left = a - (order - 1) * r
        if left <= 0:
            return math.inf
        terms = mpmath.loggamma(left) + (order - 1) * mpmath.loggamma(a + r) - order * mpmath.loggamma(a)
        return float(terms / (order - 1))


@pytest.mark.parametrize(("a", "r"), [(1.6e-6, 5.6e5), (1e-3, 1e3), (0.3, 1e-6), (2.0, 0.7), (1e5, 3e4), (1e-6, 1e-8)])
def test_next_to_its_pole_a_divergence_keeps_its_digits(a, r):
    """At a = 1.6e-6, r = 5.6e5 and order 1 it was once 1.9e-5 too small, because `a - (order - 1) r` was rounded."""
    orders = {1.0, 1 + a / r}
    for share in (0.5, 1e-3, 1e-9, 1e-13):
        orders |= {1 + a / r * (1 - share), 1 + a / r * (1 + share), 1 + a / r * share}
    for order in sorted(orders):
        assert renyi_remove(order, a, r) == pytest.approx(removing(order, a, r), rel=5e-12)
