"""Options are checked once, and every function of the frontier takes them alike."""

import dataclasses

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.planning.options import TableOptions, TablePlanning

TARGET = dirdp.ApproxDP(epsilon=1, delta=1e-6)


def test_the_typed_names_are_those_of_the_options():
    assert set(TablePlanning.__annotations__) == {field.name for field in dataclasses.fields(TableOptions)}


def test_a_frontier_has_several_mechanisms():
    with pytest.raises(dirdp.errors.ArgumentError, match="mechanisms="):
        dirdp.privacy_utility([TARGET], prior=np.ones(3), n_records=50, mechanism="geometric")
