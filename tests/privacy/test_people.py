"""Neighbouring relations against every neighbour of small data sets, and what a person can add to a table."""

import itertools

import numpy as np
import pytest

from pymc_dirdp.checks import MAX_RECORDS
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.people import ADJACENCIES, Contribution, adjacency_by_name
from tests.oracles import neighbours, tables_of


@pytest.mark.parametrize("name", ADJACENCIES)
def test_sensitivities_are_those_of_all_neighbours(name):
    relation = adjacency_by_name(name)
    tables = itertools.chain.from_iterable(tables_of((3,), n) for n in range(4))
    changes = np.array([x - y for x in tables for y in neighbours(x, name)])
    assert relation.delta_2_squared == (changes**2).sum(axis=1).max()
    assert relation.delta_1 == np.abs(changes).sum(axis=1).max()
    assert relation.delta_inf == np.abs(changes).max()
    assert relation.records_are_public == bool(np.all(changes.sum(axis=1) == 0))
    assert ("public" in relation.statement) == relation.records_are_public


def test_every_count_that_is_allowed_is_a_double_of_its_own():
    assert Contribution(MAX_RECORDS).records == MAX_RECORDS == 2**53
    assert float(MAX_RECORDS - 1) != float(MAX_RECORDS) == float(MAX_RECORDS + 1)
    for records in (0, MAX_RECORDS + 1, 10**20, 10**400):
        with pytest.raises(ArgumentError, match="records"):
            Contribution(records)


def test_blocks_and_records_are_counted_along_the_axes_of_each_entry():
    survey = Contribution(2, ("each", "own", "any"))
    assert survey.blocks((5, 7, 11, 3)) == 5
    assert survey.total((5, 7, 11, 3)) == 10
    with pytest.raises(ArgumentError, match="each of 2 row axes"):
        survey.fitted((5, 7, 3))
