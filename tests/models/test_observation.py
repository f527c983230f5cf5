"""The facts of an observed variable, against counting by hand."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

from pymc_dirdp.models.observation import observation
from pymc_dirdp.models.tables import tables


def observed(trials, data=None):
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        pm.Binomial("y", n=np.array(trials), p=p, observed=np.zeros(np.shape(data or trials), dtype=int))
    (table,) = tables(model)
    return observation(table, table.likelihoods[0], model)


def raw(shape):
    with pm.Model() as model:
        pm.Categorical("y", p=pm.Dirichlet("p", np.ones(2)), observed=np.zeros(shape, dtype=int))
    (table,) = tables(model)
    return observation(table, table.likelihoods[0], model)


@pytest.mark.parametrize(
    "trials", [[[5, 5], [9, 9]], [[5, 6], [9, 9]], [[5, 9], [5, 9]], [[4, 4], [4, 4]], [[1, 2], [3, 4]]]
)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1), ()])
def test_whether_trials_differ_along_axes(trials, axes):
    """Oracle: the numbers of one line along the axes, for every place on the others."""
    array = np.array(trials)
    rest = [axis for axis in range(2) if axis not in axes]
    lines = np.moveaxis(array, rest, range(len(rest))).reshape(*(array.shape[axis] for axis in rest), -1)
    differ = any(len(set(line.tolist())) > 1 for line in lines.reshape(-1, lines.shape[-1]))
    assert observed(trials).trials_differ_along(axes) == (differ and bool(axes))
    assert observed(trials).numbered == (0, 1)


def test_raw_records_have_one_trial_each():
    facts = raw((4, 3))
    assert not facts.trials_differ_along((0, 1))
    assert facts.numbered == ()
    assert (facts.most_trials, facts.one_number_of_trials) == (1, 1)
    sizes = facts.records_of((0,))
    assert sizes.dtype == np.int64
    np.testing.assert_array_equal(sizes, [3, 3, 3, 3])
    assert facts.most_in_a_block((0,)) == 3


def test_the_most_trials_are_those_of_the_largest_entry_and_none_where_there_is_no_entry():
    facts = observed([[5, 6], [9, 9]])
    assert facts.most_trials == 9
    assert facts.one_number_of_trials is None
    assert replace(facts, trials=np.empty((0, 2), dtype=np.int64)).most_trials == 0
    np.testing.assert_array_equal(facts.records_of((0,)), [11, 18])
    assert facts.most_in_a_block((0,)) == 18


@pytest.mark.parametrize(
    ("n_rows", "dims", "record_axes"),
    [
        pytest.param(2, (("g", "c"), ("g", "c")), (0,), id="two rows"),
        pytest.param(2, (None, None), (0,), id="two rows without a name"),
        pytest.param(1, (("g", "c"), ("g", "c")), (0,), id="one row of the same dim"),
        pytest.param(1, (("g", "c"), ("person", "c")), (), id="one row, and observations along another dim"),
        pytest.param(1, (None, None), (), id="one row without a name"),
    ],
)
def test_rows_that_are_followed_by_position(n_rows, dims, record_axes):
    """A single row may hold a private number of observations, unless the model says that both are along one dim."""
    coords = {"g": range(n_rows), "person": range(n_rows), "c": range(3)}
    with pm.Model(coords=coords) as model:
        p = pm.Dirichlet("p", np.ones((n_rows, 3)), dims=dims[0])
        pm.Multinomial("y", n=4, p=p, observed=np.full((n_rows, 3), [1, 1, 2]), dims=dims[1])
        q = pm.Beta("q", np.ones(n_rows), 1, dims=dims[0] and dims[0][:1])
        pm.Binomial("z", n=4, p=q, observed=np.full(n_rows, 3), dims=dims[1] and dims[1][:1])
    for table in tables(model):
        facts = observation(table, table.likelihoods[0], model)
        assert facts.record_axes == record_axes
        assert facts.summed == tuple({0} - set(record_axes))
