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
from pymc_dirdp.errors import ArgumentError, DataError, ReleaseError, UnsupportedModelError
from pymc_dirdp.releases.opened import open_release
from tests.planned import read_people

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


def read(model, **said):
    """Whose records a plan protects, and how many records of a person there are in each table."""
    found = read_people(model, "add-remove", **said).reading
    return found, [contribution.records for _, contribution in found.contributions]


def test_the_plan_protects_the_unit_that_was_counted():
    found, contributed = read(model_of(n=counted()))
    assert contributed == [3]
    assert "every patient (a column of the records; at most 3 records of each, chosen at random" in found.protected
    assert "how many of them there are is private, and so is the number of records" in found.protected
    by_hand, same = read(model_of(n=np.asarray(counted())), contribution=3)
    assert (same, "patient" in by_hand.protected) == (contributed, False)
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
    with pytest.raises(ArgumentError, match=message):
        dirdp.plan(GUARANTEE, model_of(**observed()), **planning)


def test_what_else_knows_the_unit():
    table = counted(variables=("ward", "ill"))
    with pm.Model() as free:
        pm.Multinomial("n", n=600, p=pm.Dirichlet("p_n", np.ones(3)))
    models = [model_of(n=counts) for counts in (table[0], table.sum(axis=0), counted().astype(float))]
    for model in (*models, model_of(n=counted()).copy(), pm.observe(free, {"n": counted()})):
        assert read(model)[1] == [3]
    assert read(model_of(n=counted(), m=np.array([4, 5])), contribution=4)[1] == [4, 4]
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        for name in ("monday", "tuesday"):
            counts = counted(2)
            pm.Multinomial(name, n=counts.sum(), p=p, observed=counts)
    assert read(model)[1] == [4]
    # Found by attack: one cell was a plain number, so a plan for a Binomial of it took each record for a person.
    counts = counted(2, ["ward"])
    with pm.Model() as model:
        pm.Binomial("k", n=counts.sum(), p=pm.Beta("q", 1, 1), observed=counts[0])
    assert read(model)[1] == [2]


def test_a_plan_is_that_of_a_model_with_the_same_people():
    model, plain = model_of(n=counted()), model_of(n=np.asarray(counted()))
    plan = dirdp.plan(GUARANTEE, model, **ADD_REMOVE)
    other = dirdp.plan(GUARANTEE, plain, contribution=3, **ADD_REMOVE)
    assert plan.parts[0].mechanism == other.parts[0].mechanism
    for one, another in ((plan, plain), (other, model)):
        with pytest.raises(UnsupportedModelError, match="whose records they are"):
            dirdp.sample(one, another)
    four = dirdp.plan(GUARANTEE, model_of(n=counted(4)), **ADD_REMOVE)
    assert dirdp.sample(four, model).posterior.sizes["draw"] == 1  # What is protected is more than it has to be.
    with pytest.raises(ArgumentError, match="less than the 4"):
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
        with pytest.raises(ReleaseError):
            dirdp.verify(edited(release, (("plan", "people", "counted"), wrong)))


def test_a_network_is_planned_for_its_units():
    structure = {"ward": [], "ill": ["ward"]}
    model = dirdp.bayesian_network(RECORDS, structure, categories=CATEGORIES, unit="patient", contribution=2)
    found, contributed = read(model)
    assert contributed == [2, 2]
    assert "every patient" in found.protected
    with pytest.raises(ArgumentError, match="add-remove"):
        dirdp.plan(GUARANTEE, model)
    counts = [model.rvs_to_values[variable].eval() for variable in model.observed_RVs]
    np.testing.assert_array_equal(counts[0], counts[1].sum(axis=1))
    per_patient = np.unique(RECORDS["patient"], return_counts=True)[1]
    assert counts[0].sum() == np.minimum(per_patient, 2).sum()
    bayes = read_people(dirdp.naive_bayes(RECORDS, "ill", categories=CATEGORIES, unit="patient", contribution=1))
    assert bayes.n_records(bayes.tables[0]) == len(per_patient)


# Forms of counts that know the unit, that were computed, and that have lost it.
FORMS = {
    "a copy": (lambda counts: counts.copy(), "known"),
    "a deep copy": (copy.deepcopy, "known"),
    "from a pickle": (lambda counts: pickle.loads(pickle.dumps(counts)), "known"),
    "a view": (lambda counts: counts.view(), "known"),
    "a slice": (lambda counts: counts[:], "known"),
    "as any array": (np.asanyarray, "known"),
    "a constant": (pytensor.tensor.constant, "known"),
    "computed": (lambda counts: counts * 1, "computed"),
    "taken": (lambda counts: counts.take([0, 1, 2]), "computed"),
    "a copy by NumPy": (lambda counts: np.array(counts, subok=True), "computed"),
    "pm.Data": (lambda counts: pm.Data("data", counts), "lost"),
    "pm.Data of doubles": (lambda counts: pm.Data("data", np.asarray(counts, dtype=float)), "lost"),
    "shared": (pytensor.shared, "lost"),
    "xarray": (xr.DataArray, "lost"),
    "a column of pandas": (lambda counts: pd.DataFrame({"n": counts})["n"], "lost"),
    "Polars": (lambda counts: pl.Series(np.asarray(counts)).to_numpy(), "lost"),
    "NumPy": (np.asarray, "lost"),
    "NumPy, in 32 bits": (lambda counts: np.asarray(counts, dtype=np.int32), "lost"),
    "a plain view": (lambda counts: counts.view(np.ndarray), "lost"),
    "one by one": (lambda counts: np.fromiter(counts, dtype=int), "lost"),
    "a list": (lambda counts: counts.tolist(), "lost"),
    "a list of cells": (list, "lost"),
    "turned round": (lambda counts: np.asarray(counts)[::-1], "lost"),
}
OF_LOST = "same numbers as counts of at most 3 records of each 'patient'"


def multinomial(counts, form):
    """A model of counts in another form. The counts live as long as their caller has them."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("answers", n=int(np.asarray(counts).sum()), p=p, observed=form(counts))
    return model


@pytest.mark.parametrize("called", FORMS)
def test_forms_of_counts(called):
    """Found by attack: the plan said that every record is another person's."""
    form, becomes = FORMS[called]
    counts = counted()
    model = multinomial(counts, form)
    if becomes == "known":
        assert "every patient" in read(model)[0].protected
    elif becomes == "computed":
        with pytest.raises(ArgumentError, match="computed from counts of at most 3 records of each 'pat"):
            read(model)
    else:
        with pytest.raises(DataError, match=OF_LOST) as found:
            dirdp.plan(GUARANTEE, model, **NOISY)
        assert "has been charged" not in str(found.value)
        assert not any(str(number) in str(found.value) for number in np.asarray(counts))
        assert read(model, contribution=3)[1] == [3]


NOISY = ADD_REMOVE | {"mechanism": "geometric"}
VERBS = {
    "sample": lambda model, **said: dirdp.sample(GUARANTEE, model, **NOISY, **said),
    "sample by a plan": lambda model, ledger, **said: dirdp.sample(
        dirdp.plan(GUARANTEE, multinomial(np.array([300, 300, 200]), list), **said, **NOISY), model, ledger=ledger
    ),
    "private_model": lambda model, **said: dirdp.private_model(
        GUARANTEE, model, adjacency="add-remove", mechanism="geometric", **{"contribution": 1} | said
    ),
}


@pytest.mark.parametrize("verb", VERBS)
def test_counts_that_have_lost_the_unit_are_refused_after_the_charge(verb):
    counts, ledger = counted(), dirdp.Ledger(GUARANTEE, adjacency="add-remove")
    model = multinomial(counts, list)
    with pytest.raises(DataError, match=f"(?s){OF_LOST}.*has been charged"):
        VERBS[verb](model, ledger=ledger)
    assert len(ledger.entries()) == 1
    # The way out.
    VERBS[verb](model, ledger=None, contribution=3)


def test_numbers_of_other_people_are_released_as_what_they_are():
    counts, single = counted(), counted(1)
    # A bound of one record loses nothing.
    for numbers, said in ((counts, {"contribution": 1}), (np.asarray(counts) + [1, 0, 0], {}), (single, {})):
        dirdp.sample(dirdp.plan(GUARANTEE, model := multinomial(numbers, np.asarray), **NOISY, **said), model)


def test_a_sum_and_the_counts_of_one_category_in_each_row_have_lost_the_unit_too():
    counts = counted(variables=("ward", "ill"))
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1, shape=2)
        pm.Binomial("ill", n=np.asarray(counts).sum(axis=1), p=p, observed=np.asarray(counts)[:, 0])
    for one in (multinomial(np.asarray(counts).sum(axis=0), list), model):
        with pytest.raises(DataError, match="at most 3 records of each 'patient'"):
            dirdp.plan(GUARANTEE, one, **NOISY)
