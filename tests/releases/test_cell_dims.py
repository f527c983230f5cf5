"""The names of the axes of a table of counts."""

import pymc as pm

import pymc_dirdp as dirdp
from pymc_dirdp.releases.cell_dims import cell_dims, renamed


def test_a_dim_has_another_name_than_a_variable_of_the_group():
    assert renamed("hair") == "hair"
    for taken in ("prior", "noisy_counts", "noisy_counts_0_1"):
        assert renamed(taken) != taken


def test_both_outcomes_of_a_beta_are_an_axis():
    with pm.Model(coords={"group": ["g", "h"]}) as model:
        rate = pm.Beta("rate", 1, 1, dims="group")
        pm.Binomial("wins", n=[3, 4], p=rate, observed=[1, 2], dims="group")
    (table,) = dirdp.tables(model)
    assert cell_dims(table) == ["group", "rate_outcome"]
