"""Groups of disjoint people: each observed variable stands in one of them at most."""

import numpy as np
import pymc as pm
import pytest

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.privacy_unit_args import stated
from pymc_dirdp.models.resolve_privacy_unit import read
from pymc_dirdp.models.tables import tables
from pymc_dirdp.privacy.people import adjacency_named


def reading(model, relation="replace-one", **said):
    nothing = {"unit": None, "contribution": None, "public_n": (), "disjoint": None}
    return read(tables(model), model, stated(**nothing | said), adjacency_named(relation))


def three_tables():
    with pm.Model() as model:
        for name, counts in {"a": [1, 2], "b": [3, 1], "c": [2, 6]}.items():
            pm.Multinomial(f"y_{name}", n=sum(counts), p=pm.Dirichlet(name, np.ones(2)), observed=counts)
    return model


@pytest.mark.parametrize("disjoint", [[["a"], ["b", "a"]], [["a", "b"], ["y_b"]]])
def test_a_table_in_two_groups_is_refused_by_either_name(disjoint):
    with pytest.raises(ArgumentError, match="stands in two groups of disjoint"):
        reading(three_tables(), disjoint=disjoint)


@pytest.mark.parametrize("relation", ["add-remove"])
def test_a_refusal_under_add_remove_says_nothing_of_the_private_number_of_trials(relation):
    """Two likelihoods of one parameter are refused with a number to start from, which must not be that of the data."""

    def refused(trials):
        with pm.Model() as model:
            p = pm.Dirichlet("p", np.ones(2))
            for name in ("first", "second"):
                pm.Multinomial(name, n=trials, p=p, observed=[trials, 0])
        with pytest.raises(Exception, match="is used twice") as caught:
            reading(model, relation)
        return str(caught.value)

    assert refused(7) == refused(1234)
