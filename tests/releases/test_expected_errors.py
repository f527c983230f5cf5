"""The expected errors of a release are those of its plan, and stand in the group `utility`; names of axes."""

import math
from dataclasses import asdict

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.planning.draw_error import draw_share_error, smallest_share
from pymc_dirdp.planning.estimate_error import estimate_error
from pymc_dirdp.planning.expected_kl import a_priori_kl
from pymc_dirdp.releases.axes import cell_dims, divided, free_dim_name, joined
from pymc_dirdp.releases.expected_errors import ExpectedErrors, expected_errors
from pymc_dirdp.releases.opened import open_release
from pymc_dirdp.sampling.exact import grid_share
from tests.planned import one_row, planned_sample
from tests.releases.kinds import network

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
PRIVATE = {"adjacency": "add-remove", "mechanism": "geometric"}


def two_tables():
    with one_row() as model:
        pm.Binomial("z", n=60, p=pm.Beta("rate", 1, 1), observed=5)
    return model


# What is known of each: a draw has no noise to plan an estimate with but the closed forms, and a table of noisy counts
# no tempered draw.
FITTED = {"n_records", "estimate_kl", "share_error"}
NOISE = FITTED | {"smallest_share"}
DRAW = NOISE | {"draw_error", "effective_records", "expected_kl_posterior", "expected_kl_estimate"}
PLANNED_DRAW = {"adjacency": "add-remove", "mechanism": Dirichlet(strategy="inflate")}
CASES = {
    "draw": (two_tables, {"sampler": "exact"}, DRAW | {"grid_weight", "grid_variance"}),
    "fast draw": (two_tables, {"sampler": "fast"}, DRAW),
    "draw of a private number": (one_row, PLANNED_DRAW, set()),
    "noise": (two_tables, {"mechanism": "geometric"}, NOISE),
    "private number": (two_tables, PRIVATE, set()),
    "planned number": (two_tables, PRIVATE | {"n_records": 60}, NOISE),
    "marginals": (network, {"mechanism": "marginals"}, FITTED),
}


@pytest.mark.parametrize("case", CASES)
def test_the_group_utility_says_what_is_expected(case):
    model, options, known = CASES[case]
    release = planned_sample(APPROX, model(), **options)
    stored, utility = open_release(release), release["utility"].to_dataset()
    assert set(stored.errors) == set(utility["table"].values.tolist()) == set(stored.tables)
    assert set(utility.data_vars) == set(asdict(ExpectedErrors()))
    for name, errors in stored.errors.items():
        facts = asdict(errors)
        assert {number for number, value in facts.items() if value is not None} == known, name
        for number, value in facts.items():
            shown = float(utility[number].sel(table=name))
            assert math.isnan(shown) if value is None else shown == value
            assert value is None or (math.isfinite(value) and value >= 0)
    assert ("note" in utility.attrs) == (not known)
    assert expected_errors(stored.plan) == stored.errors


@pytest.mark.parametrize("mechanism", ["geometric", "dirichlet"])
def test_a_table_has_the_errors_of_its_mechanism(mechanism):
    plan = dirdp.plan(APPROX, one_row(), mechanism=mechanism)
    own, said = expected_errors(plan)["p"], " ".join(str(dirdp.report(plan, full=True)).split())
    (part,) = plan.parts
    assert own.n_records == 60
    assert own.smallest_share == smallest_share(part.mechanism, (3,), 60)
    assert f"a share is typically off by {own.share_error:.2g} (dirdp.estimate)" in said
    if mechanism == "geometric":
        right = estimate_error(part.mechanism, np.ones(3), 60, public=True, totals=part.totals, draws=1)
        assert (own.estimate_kl, own.share_error) == (right.kl, right.share)
        return
    right = a_priori_kl(part.mechanism, np.ones(3), 60)
    assert (own.expected_kl_posterior, own.expected_kl_estimate) == (right.posterior, right.estimate)
    assert right.posterior != right.estimate
    assert 0 < own.effective_records < 60
    assert own.draw_error == draw_share_error(part.mechanism, np.ones(3), 60)
    tempered, steps = part.mechanism.tempered, part.mechanism.steps(plan.sampler, 60)
    grid = grid_share(tempered.alpha, tempered.r, 60, steps=steps)
    assert (own.grid_weight, own.grid_variance) == (grid.weight, grid.variance)
    assert grid.weight != grid.variance
    assert f"a share is typically off by {own.draw_error:.2g} (the draw)" in said


def test_axes_have_names_of_their_own():
    """No dim has the name of a variable of its group, and both outcomes of a Beta are an axis."""
    assert free_dim_name("hair") == "hair"
    for taken in ("prior", "noisy_counts", "noisy_counts_0_1"):
        assert free_dim_name(taken) != taken
    with pm.Model(coords={"group": ["g", "h"]}) as model:
        pm.Binomial("wins", n=[3, 4], p=pm.Beta("rate", 1, 1, dims="group"), observed=[1, 2], dims="group")
    (table,) = dirdp.tables(model)
    assert cell_dims(table) == ["group", "rate_outcome"]


def test_variables_that_share_an_axis_are_divided_again():
    for labels in (["a", "b and c"], ["a & b", "c and d"], ["x"], [1, 2]):
        name, axis = joined({"one": labels, "two": ["u", "v"], "three": ["w"]})
        texts = [str(label) for label in labels]
        assert divided(name, axis) == [("one", texts), ("two", ["u", "v"]), ("three", ["w"])]
    assert joined({"one": ["a and b & c | d", "e"], "two": ["f", "g"]}) is None
    assert joined({"one": ["a", "b"]}) == ("one", ["a", "b"])
    four = ["f and no", "m and no", "f and yes", "m and yes"]
    for labels in (["f and no", "f and yes", "m and no"], four, ["f", "m"], [1, 2]):
        assert divided("sex and left", labels) == [("sex and left", labels)]
    for name in ("sex", "sex and sex"):
        assert divided(name, four[::2]) == [(name, four[::2])]
