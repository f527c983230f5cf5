"""The facts of mechanisms that choose."""

import pytest

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.quantiles import QuantilesMechanism
from pymc_dirdp.mechanisms.tree import TreeMechanism

MECHANISMS = [
    QuantilesMechanism(3, n_candidates=9, scale=8.1, adjacency="add-remove", contribution=2),
    TreeMechanism((2, 3), 8.1, 10.3, "geometric"),
]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_facts_are_the_arguments(mechanism):
    facts = mechanism.facts
    assert type(mechanism).from_facts(facts) == mechanism
    assert type(mechanism)(**facts) == mechanism
    assert not any(isinstance(value, tuple) for value in facts.values())


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_other_facts_are_refused(mechanism):
    facts = mechanism.facts
    short = facts | {"scale": 8.1}  # It is rounded up, so no file holds this number.
    for wrong in ({}, None, 3, "scale", facts | {"more": 1}, {**facts, "adjacency": 3}, short):
        with pytest.raises(ArgumentError):
            type(mechanism).from_facts(wrong)
    for name in facts:
        if name not in ("noise", "adjacency", "contribution"):
            with pytest.raises(ArgumentError):
                type(mechanism).from_facts({key: value for key, value in facts.items() if key != name})
