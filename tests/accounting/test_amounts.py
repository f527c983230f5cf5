"""Sums of decimal numbers: exact, or an error."""

from decimal import Decimal, Inexact

import pytest

from pymc_dirdp.accounting.entries import EXACT, Amount, Totals, as_decimal


def test_a_sum_of_doubles_of_every_size_is_exact():
    numbers = [1.7e308, 5e-324, 0.1, 2.5]
    total = Decimal(0)
    for number in numbers:
        total = EXACT.add(total, as_decimal(number))
    for number in numbers:
        total = EXACT.subtract(total, as_decimal(number))
    assert total == 0


def test_what_cannot_be_exact_is_an_error_and_not_rounded():
    with pytest.raises(Inexact):
        EXACT.add(Decimal("1e900"), Decimal("1e-900"))


@pytest.mark.parametrize(
    ("spent", "limit", "share", "within"),
    [(0.5, 2.0, 0.25, True), (2.0, 2.0, 1, True), (3.0, 2.0, 1.5, False), (0.0, 0.0, 0, True), (5e-324, 0.0, 1, False)],
)
def test_shares_of_a_limit_and_what_is_left(spent, limit, share, within):
    amount = Amount("epsilon", as_decimal(spent), as_decimal(limit))
    assert amount.share == share
    assert amount.within is within
    assert amount.left == as_decimal(limit) - as_decimal(spent)


def test_a_number_that_one_release_lacks_has_no_sum():
    totals = Totals().plus([{"epsilon": 0.1, "delta": 0.0}, {"epsilon": 0.2}], adaptive=True)
    assert totals.sum("epsilon") == as_decimal(0.3)
    assert totals.sum("delta") is None
    assert Totals().sum("delta") == 0
