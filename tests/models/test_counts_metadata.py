"""What counts know of people reaches the plan, the report and the file."""

import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pymc as pm
import pytensor
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.releases.opened import open_release

GUARANTEE = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
RNG = np.random.default_rng(9)
RECORDS = {
    "patient": [f"p{i}" for i in RNG.integers(0, 300, 2000)],
    "ward": RNG.choice(["north", "south"], 2000),
    "ill": RNG.choice(["yes", "no", "unsure"], 2000),
}
CATEGORIES = {"ward": ["north", "south"], "ill": ["yes", "no", "unsure"]}
ADD_REMOVE = {"adjacency": "add-remove", "n_records": 800}


def counted(contribution=3, variables=("ill",), **options):
    options = {"unit": "patient", "contribution": contribution} | options
    return dirdp.count(RECORDS, list(variables), categories=CATEGORIES, **options)


def model_of(**observed):
    with pm.Model() as model:
        for name, counts in observed.items():
            p = pm.Dirichlet(f"p_{name}", np.ones(counts.shape))
            pm.Multinomial(name, n=np.asarray(counts).sum(axis=-1), p=p, observed=counts)
    return model


def contributed(plan):
    return [part.mechanism.contributed.records for part in plan.parts]


def test_the_plan_protects_the_unit_that_was_counted():
    plan = dirdp.plan(GUARANTEE, model_of(n=counted()), **ADD_REMOVE)
    assert contributed(plan) == [3]
    assert "every patient (a column of the records; at most 3 records of each, chosen at random" in plan.protected
    assert "how many of them there are is private, and so is the number of records" in plan.protected
    by_hand = dirdp.plan(GUARANTEE, model_of(n=np.asarray(counted())), contribution=3, **ADD_REMOVE)
    assert plan.parts[0].mechanism == by_hand.parts[0].mechanism
    assert "patient" not in by_hand.protected
    # The number of records is private, unless it is the number of units.
    single = counted(1)
    plan = dirdp.plan(GUARANTEE, model_of(n=single))
    assert plan.parts[0].n_records == single.sum() == len(set(RECORDS["patient"]))
    assert "how many of them there are is public" in plan.protected


@pytest.mark.parametrize(
    ("observed", "planning", "message"),
    [
        (lambda: {"n": counted()}, {}, r"adjacency=\"add-remove\".*3 records of each 'patient'"),
        (lambda: {"n": counted(1) + counted(1)}, {}, "2 records of each 'patient'"),
        (lambda: {"n": counted()}, ADD_REMOVE | {"contribution": 2}, "contribution=2 is less than the 3"),
        (lambda: {"n": counted()}, ADD_REMOVE | {"unit": 0}, "both define the unit"),
        (lambda: {"n": 2 * counted()}, ADD_REMOVE, "computed from counts of at most 3"),
        (lambda: {"n": counted()[[0, 0, 1, 2]]}, ADD_REMOVE, "computed from counts of at most 3"),
        (lambda: {"n": np.stack([counted(), counted()])}, ADD_REMOVE, "computed from counts of at most 3"),
        (lambda: {"n": counted(), "m": counted(unit="ward")}, ADD_REMOVE, "of each 'ward'"),
        (lambda: {"n": counted(), "m": np.array([4, 5])}, ADD_REMOVE, "but 'm' has none"),
        (lambda: {"n": counted(1)}, {"public": ["n"]}, "with unit='patient' of counts a person's records may lie"),
    ],
)
def test_contradictions(observed, planning, message):
    with pytest.raises(dirdp.errors.ArgumentError, match=message):
        dirdp.plan(GUARANTEE, model_of(**observed()), **planning)


def test_another_table_needs_a_word():
    model = model_of(n=counted(), m=np.array([4, 5]))
    assert contributed(dirdp.plan(GUARANTEE, model, contribution=4, **ADD_REMOVE)) == [4, 4]


def test_parts_and_sums_of_counts_are_as_bounded_as_they_are():
    table = counted(variables=("ward", "ill"))
    for counts in (table[0], table.sum(axis=0), counted().astype(float)):
        assert contributed(dirdp.plan(GUARANTEE, model_of(n=counts), **ADD_REMOVE)) == [3]


def test_one_cell_knows_the_unit_and_two_arrays_of_one_table_add_up():
    """Found by attack: one cell was a plain number, so a plan for a Binomial of it took each record for a person."""
    counts = counted(2, ["ward"])
    with pm.Model() as model:
        pm.Binomial("k", n=counts.sum(), p=pm.Beta("q", 1, 1), observed=counts[0])
    assert contributed(dirdp.plan(GUARANTEE, model, **ADD_REMOVE)) == [2]
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        for name in ("monday", "tuesday"):
            counts = counted(2)
            pm.Multinomial(name, n=counts.sum(), p=p, observed=counts)
    assert contributed(dirdp.plan(GUARANTEE, model, **ADD_REMOVE)) == [4]


def test_the_knowledge_survives_copies_of_the_model():
    with pm.Model() as free:
        pm.Multinomial("n", n=600, p=pm.Dirichlet("p_n", np.ones(3)))
    for other in (model_of(n=counted()).copy(), pm.observe(free, {"n": counted()})):
        assert contributed(dirdp.plan(GUARANTEE, other, **ADD_REMOVE)) == [3]


def test_a_plan_is_that_of_a_model_with_the_same_people():
    model, plain = model_of(n=counted()), model_of(n=np.asarray(counted()))
    plan = dirdp.plan(GUARANTEE, model, **ADD_REMOVE)
    with pytest.raises(dirdp.errors.UnsupportedModelError, match="whose records they are"):
        dirdp.sample(plan, plain)
    other = dirdp.plan(GUARANTEE, plain, contribution=3, **ADD_REMOVE)
    with pytest.raises(dirdp.errors.UnsupportedModelError, match="whose records they are"):
        dirdp.sample(other, model)
    four = dirdp.plan(GUARANTEE, model_of(n=counted(4)), **ADD_REMOVE)
    assert dirdp.sample(four, model).posterior.sizes["draw"] == 1  # What is protected is more than it has to be.
    with pytest.raises(dirdp.errors.ArgumentError, match="less than the 4"):
        dirdp.sample(plan, model_of(n=counted(4)))


def test_report_file_and_verification_say_it(tmp_path, edited):
    plan = dirdp.plan(GUARANTEE, model_of(n=counted()), **ADD_REMOVE)
    dirdp.save(plan, tmp_path / "plan.json")
    release = dirdp.sample(dirdp.load(tmp_path / "plan.json"), model_of(n=counted()))
    release.to_netcdf(tmp_path / "release.nc")
    with xr.open_datatree(tmp_path / "release.nc") as per_patient:
        assert dirdp.verify(per_patient)
        assert "every patient" in str(dirdp.report(per_patient, full=True))
        assert "the records of one patient are in the data" in str(dirdp.statement(per_patient))
        assert open_release(per_patient).plan.adjacency == "add-remove"
    for wrong in (7, ["patient"]):
        with pytest.raises(dirdp.errors.ReleaseError):
            dirdp.verify(edited(release, (("plan", "people", "counted"), wrong)))


def test_a_network_is_planned_for_its_units():
    structure = {"ward": [], "ill": ["ward"]}
    model = dirdp.bayesian_network(RECORDS, structure, categories=CATEGORIES, unit="patient", contribution=2)
    plan = dirdp.plan(GUARANTEE, model, **ADD_REMOVE)
    assert contributed(plan) == [2, 2]
    assert "every patient" in plan.protected
    with pytest.raises(dirdp.errors.ArgumentError, match="add-remove"):
        dirdp.plan(GUARANTEE, model)
    counts = [model.rvs_to_values[variable].eval() for variable in model.observed_RVs]
    np.testing.assert_array_equal(counts[0], counts[1].sum(axis=1))
    per_patient = np.unique(RECORDS["patient"], return_counts=True)[1]
    assert counts[0].sum() == np.minimum(per_patient, 2).sum()
    bayes = dirdp.naive_bayes(RECORDS, "ill", categories=CATEGORIES, unit="patient", contribution=1)
    assert dirdp.plan(GUARANTEE, bayes).parts[0].n_records == len(per_patient)
    with pytest.raises(dirdp.errors.ArgumentError, match="Leave counts= out"):
        dirdp.bayesian_network(
            RECORDS | {"k": [1] * 2000}, structure, categories=CATEGORIES, counts="k", unit="patient", contribution=2
        )


# What may be observed in the place of counts: forms that know the unit, and forms that have lost it.

BOUNDED = {
    "a copy": lambda counts: counts.copy(),
    "a deep copy": copy.deepcopy,
    "from a pickle": lambda counts: pickle.loads(pickle.dumps(counts)),
    "a view": lambda counts: counts.view(),
    "a slice": lambda counts: counts[:],
    "as any array": np.asanyarray,
    "a constant": pytensor.tensor.constant,
}
REFUSED = {
    "computed": lambda counts: counts * 1,
    "taken": lambda counts: counts.take([0, 1, 2]),
    "a copy by NumPy": lambda counts: np.array(counts, subok=True),
}
LOST = {
    "pm.Data": lambda counts: pm.Data("data", counts),
    "pm.Data of doubles": lambda counts: pm.Data("data", np.asarray(counts, dtype=float)),
    "shared": pytensor.shared,
    "xarray": xr.DataArray,
    "a column of pandas": lambda counts: pd.DataFrame({"n": counts})["n"],
    "Polars": lambda counts: pl.Series(np.asarray(counts)).to_numpy(),
    "NumPy": np.asarray,
    "NumPy, in 32 bits": lambda counts: np.asarray(counts, dtype=np.int32),
    "a plain view": lambda counts: counts.view(np.ndarray),
    "one by one": lambda counts: np.fromiter(counts, dtype=int),
    "a list": lambda counts: counts.tolist(),
    "a list of cells": list,
    "turned round": lambda counts: np.asarray(counts)[::-1],
}


def multinomial(counts, form):
    """A model of counts in another form. The counts live as long as their caller has them."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("answers", n=int(np.asarray(counts).sum()), p=p, observed=form(counts))
    return model


WITHOUT_N = {"adjacency": "add-remove", "mechanism": "geometric"}
VERBS = {
    "plan": lambda model, ledger, **said: dirdp.plan(GUARANTEE, model, **said, **WITHOUT_N, n_records=800),
    "sample": lambda model, ledger, **said: dirdp.sample(
        GUARANTEE, model, ledger=ledger, **said, **WITHOUT_N, n_records=800
    ),
    "sample by a plan": lambda model, ledger, **said: dirdp.sample(
        dirdp.plan(GUARANTEE, multinomial(np.array([300, 300, 200]), list), **said, **WITHOUT_N, n_records=800),
        model,
        ledger=ledger,
    ),
    "private_model": lambda model, ledger, **said: dirdp.private_model(
        GUARANTEE, model, ledger=ledger, **{"contribution": 1} | said, **WITHOUT_N
    ),
    "plan of any model": lambda model, ledger, **said: dirdp.plan(
        GUARANTEE, model, any_model=True, **{"contribution": 1} | said, **WITHOUT_N
    ),
}


@pytest.mark.parametrize("form", BOUNDED.values(), ids=BOUNDED)
def test_forms_that_know_the_unit(form):
    counts = counted()
    assert "every patient" in dirdp.plan(GUARANTEE, multinomial(counts, form), **ADD_REMOVE).protected


@pytest.mark.parametrize("form", REFUSED.values(), ids=REFUSED)
def test_forms_that_were_computed(form):
    counts = counted()
    with pytest.raises(dirdp.errors.ArgumentError, match="computed from counts of at most 3 records of each 'patient'"):
        dirdp.plan(GUARANTEE, multinomial(counts, form), **ADD_REMOVE)


# Every form for the plan, and two for every verb.
FORMS = [
    pytest.param(form, verb, id=f"{name} {verb}")
    for name, form in LOST.items()
    for verb in VERBS
    if verb == "plan" or name in ("a list", "NumPy")
]


@pytest.mark.parametrize(("form", "verb"), FORMS)
def test_forms_that_have_lost_the_unit_are_refused_after_the_charge(form, verb):
    """Found by attack: the plan said that every record is another person's."""
    counts, ledger = counted(), dirdp.Ledger(GUARANTEE, adjacency="add-remove")
    model = multinomial(counts, form)
    with pytest.raises(
        dirdp.errors.DataError, match="same numbers as counts of at most 3 records of each 'pat"
    ) as found:
        VERBS[verb](model, ledger)
    charged = not verb.startswith("plan")
    assert len(ledger.entries()) == charged
    assert ("has been charged" in str(found.value)) == charged
    assert not any(str(number) in str(found.value) for number in np.asarray(counts))
    # The way out.
    VERBS[verb](model, None, contribution=3)


@pytest.mark.parametrize("verb", ["plan", "sample"])
def test_numbers_of_other_people_are_released_as_what_they_are(verb):
    counts = counted()
    model = multinomial(counts, LOST["NumPy"])
    VERBS[verb](model, None, contribution=1)
    other = np.asarray(counts) + [1, 0, 0]
    VERBS[verb](multinomial(other, list), None)
    # A bound of one record loses nothing.
    single = counted(1)
    VERBS[verb](multinomial(single, LOST["NumPy"]), None)


def test_a_sum_and_the_counts_of_one_category_in_each_row_have_lost_the_unit_too():
    counts = counted(variables=("ward", "ill"))
    with pytest.raises(dirdp.errors.DataError, match="at most 3 records of each 'patient'"):
        VERBS["plan"](multinomial(np.asarray(counts).sum(axis=0), list), None)
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1, shape=2)
        pm.Binomial("ill", n=np.asarray(counts).sum(axis=1), p=p, observed=np.asarray(counts)[:, 0])
    with pytest.raises(dirdp.errors.DataError, match="'ill' has the same numbers"):
        VERBS["plan"](model, None)
