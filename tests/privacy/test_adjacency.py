"""Neighbouring relations and their sensitivities, against every neighbour of small data sets."""

import dataclasses
import itertools

import numpy as np
import pytest

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.people import ADJACENCIES, adjacency_by_name

CELLS = 3


def neighbours(relation, x):
    """As the statements say it: one record moves, or one appears or disappears."""
    one = np.eye(CELLS, dtype=int)
    for cell in range(CELLS):
        if relation == "add-remove":
            yield x + one[cell]
        if x[cell] > 0 and relation == "add-remove":
            yield x - one[cell]
        if x[cell] > 0 and relation == "replace-one":
            yield from (x - one[cell] + one[other] for other in range(CELLS))


def distances(relation):
    for x in itertools.product(range(3), repeat=CELLS):
        for y in neighbours(relation, np.array(x)):
            yield x - y


@pytest.mark.parametrize("name", ["replace-one", "add-remove"])
def test_sensitivities_are_those_of_all_neighbours(name):
    relation = adjacency_by_name(name)
    changes = np.array(list(distances(name)))
    assert relation.delta_2_squared == (changes**2).sum(axis=1).max()
    assert relation.delta_1 == np.abs(changes).sum(axis=1).max()
    assert relation.delta_inf == np.abs(changes).max()


@pytest.mark.parametrize("name", ["replace-one", "add-remove"])
def test_the_number_of_records_is_public_where_no_neighbour_changes_it(name):
    changes = np.array(list(distances(name)))
    assert adjacency_by_name(name).records_are_public == bool(np.all(changes.sum(axis=1) == 0))
    assert ("public" in adjacency_by_name(name).statement) == adjacency_by_name(name).records_are_public


def test_relations_are_found_by_their_own_name_and_frozen():
    assert list(ADJACENCIES) == ["replace-one", "add-remove"]
    assert all(ADJACENCIES[name].name == name for name in ADJACENCIES)
    with pytest.raises(dataclasses.FrozenInstanceError):
        adjacency_by_name("add-remove").delta_inf = 0.5


@pytest.mark.parametrize(("wrong", "near"), [("replace_one", "replace-one"), ("Add-Remove", "add-remove")])
def test_a_wrong_name_suggests_the_near_one(wrong, near):
    with pytest.raises(ArgumentError, match=f"Unknown adjacency '{wrong}'.*Did you mean '{near}'"):
        adjacency_by_name(wrong)
