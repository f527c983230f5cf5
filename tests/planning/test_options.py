"""Options are checked once, and every function of the frontier takes them alike."""

import dataclasses

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.planning.options import MechanismOptions, TableOptions, TablePlanning

TARGET = dirdp.ApproxDP(epsilon=1, delta=1e-6)


def test_the_typed_names_are_those_of_the_options():
    assert set(TablePlanning.__annotations__) == {field.name for field in dataclasses.fields(TableOptions)}


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(MechanismOptions)])
def test_a_word_that_is_unknown_is_refused_everywhere(name):
    wrong = {name: "dirichle"}
    with pytest.raises(dirdp.errors.ArgumentError, match=name):
        MechanismOptions(**wrong)
    for ask in (
        lambda: dirdp.expected_error(TARGET, prior=np.ones(3), n_records=50, **wrong),
        lambda: dirdp.least_guarantee(0.1, TARGET, prior=np.ones(3), n_records=50, **wrong),
        lambda: dirdp.least_records(0.1, TARGET, prior=np.ones(3), **wrong),
        lambda: dirdp.privacy_utility([TARGET], prior=np.ones(3), n_records=50, **wrong),
    ):
        with pytest.raises(dirdp.errors.ArgumentError, match=name):
            ask()


def test_a_frontier_has_several_mechanisms():
    with pytest.raises(dirdp.errors.ArgumentError, match="mechanisms="):
        dirdp.privacy_utility([TARGET], prior=np.ones(3), n_records=50, mechanism="geometric")
