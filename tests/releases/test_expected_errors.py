"""The expected errors of a release are those of its plan, and stand in the group `utility`."""

import math
from dataclasses import asdict

import numpy as np
import pandas as pd
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.planning.estimate_error import estimate_error
from pymc_dirdp.planning.expected_kl import a_priori_kl
from pymc_dirdp.releases.expected_errors import ExpectedErrors, expected_errors
from pymc_dirdp.releases.opened import open_release
from tests.planned import planned_sample

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
PRIVATE = {"adjacency": "add-remove", "mechanism": "geometric"}


def two_tables():
    with pm.Model(coords={"hair": ["black", "brown", "red"]}) as model:
        p = pm.Dirichlet("p", a=np.ones(3), dims="hair")
        pm.Multinomial("x", n=60, p=p, observed=[30, 20, 10])
        rate = pm.Beta("rate", 1, 1)
        pm.Binomial("z", n=60, p=rate, observed=5)
    return model


def one_category():
    with pm.Model() as model:
        for name, size in (("p", 1), ("q", 3)):
            pm.Multinomial(f"x_{name}", n=60, p=pm.Dirichlet(name, a=np.ones(size)), observed=np.full(size, 60 // size))
    return model


def network():
    frame = pd.DataFrame({"class": ["cat", "hen"] * 20, "legs": [4, 2] * 20})
    return dirdp.naive_bayes(frame[["legs"]], frame["class"], categories={"class": ["cat", "hen"], "legs": [2, 4]})


# What is known of each: a draw has no noise to plan an estimate with but the closed forms, and a table of noisy counts
# no tempered draw.
FITTED = {"n_records", "estimate_kl", "share_error"}
NOISE = FITTED | {"smallest_share"}
DRAW = NOISE | {"draw_error", "effective_records", "expected_kl_posterior", "expected_kl_estimate"}
CASES = {
    "draw": (two_tables, {"sampler": "exact"}, DRAW | {"grid_weight", "grid_variance"}),
    "fast draw": (two_tables, {"sampler": "fast"}, DRAW),
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
    assert ("note" in utility.attrs) == (case == "private number")
    # By public numbers only: those of the plan are the same.
    assert expected_errors(stored.plan) == stored.errors


def test_a_table_of_noise_has_the_error_of_its_mechanism():
    plan = dirdp.plan(APPROX, two_tables(), mechanism="geometric")
    errors = expected_errors(plan)
    for part in plan.parts:
        right = estimate_error(part.mechanism, part.table.prior, 60, public=True, totals=part.totals, draws=1)
        assert errors[part.table.name].estimate_kl == right.kl
        assert errors[part.table.name].share_error == right.share
        assert errors[part.table.name].n_records == 60


def test_a_draw_has_both_divergences_of_its_mechanism():
    plan = dirdp.plan(APPROX, two_tables())
    errors = expected_errors(plan)
    for part in plan.parts:
        right, own = a_priori_kl(part.mechanism, part.table.prior, 60), errors[part.table.name]
        assert (own.expected_kl_posterior, own.expected_kl_estimate) == (right.posterior, right.estimate)
        assert own.expected_kl_posterior != own.expected_kl_estimate
        assert 0 < own.effective_records < 60


def test_a_table_of_one_category_has_no_records_that_count():
    errors = expected_errors(dirdp.plan(APPROX, one_category()))
    assert errors["p"].effective_records is None
    assert errors["p"].grid_weight is None
    assert errors["q"].effective_records > 0
