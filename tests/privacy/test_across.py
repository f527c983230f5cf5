"""Curves of records that appear, from those of records that appear or disappear."""

import itertools

import numpy as np
import pytest
from scipy.special import gammaln, loggamma

from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.dominating_pairs import AddRemovePair, AppearingRecords, ReplaceOnePair
from pymc_dirdp.privacy.unit import AcrossGroups, _adding

ONE, TWO = AddRemovePair(0.5, 0.1), AddRemovePair(2.0, 0.4)


@pytest.mark.parametrize("order", [1.0, 2.0, 5.5])
def test_what_appears_in_members_and_parts_is_taken_from_each_of_them(order):
    one, two = (
        AppearingRecords(AddRemovePair(0.5, 0.1))._renyi(order),
        AppearingRecords(AddRemovePair(2.0, 0.4))._renyi(order),
    )
    assert _adding(Parallel((ONE, TWO)))._renyi(order) == max(one, two)
    assert _adding(Composition(((ONE, 2), (TWO, 1))))._renyi(order) == pytest.approx(2 * one + two, rel=1e-14)


@pytest.mark.parametrize("order", [1.0, 2.0, 5.5])
def test_a_move_into_a_group_of_parallel_tables_costs_the_larger_of_them(order):
    across = AcrossGroups((ONE, Parallel((ONE, TWO))))
    join = max(
        AppearingRecords(AddRemovePair(0.5, 0.1))._renyi(order), AppearingRecords(AddRemovePair(2.0, 0.4))._renyi(order)
    )
    leave = max(ONE._renyi(order), TWO._renyi(order)) + AppearingRecords(AddRemovePair(0.5, 0.1))._renyi(order)
    assert across._renyi(order) == max(ONE._renyi(order) + join, leave)


def test_parallel_members_lose_the_most_in_each_direction():
    both = Parallel((AppearingRecords(AddRemovePair(0.5, 0.1)), AppearingRecords(AddRemovePair(2.0, 0.4))))
    for order in (1.0, 3.0):
        for verb in ("_renyi", "_renyi_back"):
            assert getattr(both, verb)(order) == max(getattr(member, verb)(order) for member in both.members)
            assert getattr(Composition(((both, 3),)), verb)(order) == pytest.approx(3 * getattr(both, verb)(order))
    # Neither direction decides for the other.
    assert both._renyi(3.0) != both._renyi_back(3.0)
    # Both directions are the same for a replaced record.
    replaced = Parallel((ReplaceOnePair(1.0, 1.0, 0.1), ReplaceOnePair(0.5, 2.0, 0.1)))
    assert replaced._renyi_back(2.0) == replaced._renyi(2.0)


# The oracle inverts the moment generating function of the loss of two tables, of which one loses a record and the other
# one gains it: a ratio of Gamma functions, for each pair of data sets.


def beta_power(z, a, rest):
    """Logarithm of the mean of `y**z` for `y ~ Beta(a, rest)`."""
    return loggamma(a + z) + gammaln(a + rest) - gammaln(a) - loggamma(a + rest + z)


def changed(epsilon, left, joined, *, back):
    """Hockey-stick divergence where a record leaves a cell of one table and joins one of another; or of the way back.

    Each table is `(a, rest, r)`: the parameters of the cell without the record, of the rest of its row, and r.
    """
    (a, rest_a, r), (b, rest_b, s) = left, joined
    # log P / Q = shift + s log(y_b) - r log(y_a), where Q has the record in the first table and P in the second one.
    shift = float(-beta_power(s + 0j, b, rest_b).real + beta_power(r + 0j, a, rest_a).real)
    first = (a + r, b) if back else (a, b + s)
    sign = -1 if back else 1
    edge = (first[1] / s) if back else (first[0] / r)

    def log_integrand(z):
        moment = beta_power(-sign * z * r, first[0], rest_a) + beta_power(sign * z * s, first[1], rest_b)
        return moment + sign * z * shift - z * epsilon - np.log(z) - np.log1p(z)

    line = edge * np.linspace(0.002, 0.998, 300)
    at = line[np.argmin(log_integrand(line.astype(complex)).real)]
    step = min(at, edge - at, 1 / (r + s)) / 12
    # The integrand falls like a power, so steps grow.
    t = step * np.sinh(0.01 * np.arange(2500)) / 0.01
    values = np.exp(log_integrand(at + 1j * t)).real * np.cosh(0.01 * np.arange(2500)) * step
    return float((values.sum() - values[0] / 2) / np.pi)


def test_the_oracle_of_a_change_between_groups():
    """With much in both rows and one r it is a pair of Gamma distributions, whose curve is known in closed form."""
    full = ((0.5, 1e7, 0.1), (0.5, 1e7, 0.1))
    for back in (False, True):
        assert changed(0.3, *full, back=back) == pytest.approx(ReplaceOnePair(0.5, 0.5, 0.1).delta(0.3), rel=1e-5)


@pytest.mark.parametrize("groups", [((0.5, 0.1), (2.0, 0.4)), ((1.0, 0.2), (1.0, 0.1)), ((0.3, 0.05), (8.0, 0.6))])
def test_nobody_who_changes_between_groups_loses_more(groups):
    """All changes between two rows of three cells, with up to 60 other records in each place, in both orders."""
    across = AcrossGroups(tuple(AddRemovePair(alpha, r) for alpha, r in groups))
    counts = [(0, 0), (0, 3), (1, 0), (2, 60), (60, 1), (0, 60)]
    cells = [[(alpha + r * n, 5.0 + r * rest, r) for n, rest in counts] for alpha, r in groups]
    for epsilon in (0.05, 0.4, 1.0):
        claim = across.delta(epsilon)
        worst = max(
            changed(epsilon, left, joined, back=back)
            for pair in itertools.product(*cells)
            for left, joined in (pair, pair[::-1])
            for back in (False, True)
        )
        assert worst <= claim
        # Rows that fill up approach it.
        full = [(alpha, 1e6, r) for alpha, r in groups]
        limit = max(changed(epsilon, *pair, back=back) for pair in (full, full[::-1]) for back in (False, True))
        assert worst <= limit * (1 + 1e-6)
        assert limit * (1 - 1e-6) <= claim <= limit * 1.01
