"""What a person can add to a table: what is allowed, and how it is counted."""

import pytest

from pymc_dirdp.checks import MAX_RECORDS
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.people import Contribution


def test_every_count_that_is_allowed_is_a_double_of_its_own():
    assert Contribution(MAX_RECORDS).records == MAX_RECORDS == 2**53
    assert float(MAX_RECORDS) != float(MAX_RECORDS - 1)
    assert float(MAX_RECORDS) == float(MAX_RECORDS + 1)
    with pytest.raises(ArgumentError, match="at most 2\\*\\*53"):
        Contribution(MAX_RECORDS + 1)
    with pytest.raises(ArgumentError, match="records"):
        Contribution(0)


def test_blocks_and_records_are_counted_along_the_axes_of_each_entry():
    survey = Contribution(2, ("each", "own", "any"))
    assert survey.blocks((5, 7, 11, 3)) == 5
    assert survey.total((5, 7, 11, 3)) == 10
    with pytest.raises(ArgumentError, match="each of 2 row axes"):
        survey.fitted((5, 7, 3))
