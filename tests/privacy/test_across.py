"""Curves of records that appear, from those of records that appear or disappear."""

import pytest

from pymc_dirdp.privacy.across import AcrossGroups, _adding
from pymc_dirdp.privacy.composition import Composition, Parallel
from pymc_dirdp.privacy.dominating_pairs import AddRemovePair, AppearingRecords, ReplaceOnePair

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
