"""Plans in files: they come back as they went, and what was edited is refused before anything is charged."""

import copy
import json
import math
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def hair_model(n=592, labels=("black", "brown", "red", "blond"), prior=1.0):
    with pm.Model(coords={"hair": labels}) as model:
        p = pm.Dirichlet("p", a=np.full(4, prior), dims="hair")
        pm.Multinomial("students", n=n, p=p, observed=[108, 286, 71, n - 465])
    return model


def two_tables(labels=("a", "b", "c")):
    with pm.Model(coords={"k": labels, "row": [1, 2]}) as model:
        p = pm.Dirichlet("p", a=[[1, 1, 0.1], [1, 2, 3]], dims=("row", "k"))
        pm.Multinomial("x", n=[30, 20], p=p, observed=[[10, 12, 8], [0, 20, 0]])
        rate = pm.Beta("rate", 1, 1)
        pm.Binomial("z", n=50, p=rate, observed=5)
    return model


def people_model():
    with pm.Model(coords={"person": range(40), "item": ["a", "b", "c"], "yes": [0, 1]}) as model:
        p = pm.Dirichlet("p", a=np.ones((3, 2)), dims=("item", "yes"))
        pm.Categorical("answer", p=p, observed=np.zeros((40, 3), int), dims=("person", "item"))
    return model


def people_and_others():
    with people_model() as model:
        pm.Binomial("visits", n=9, p=pm.Beta("rate", 1, 1), observed=4)
    return model


def viewed_model():
    """A likelihood that sees a part of its table, and one whose rows are chosen by codes."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.ones((3, 2)))
        pm.Multinomial("x", n=20, p=p[1], observed=[15, 5])
        q = pm.Dirichlet("q", a=np.ones((2, 3)))
        c = pm.Data("c", [0, 1, 1, 0])
        pm.Categorical("y", p=q[c], observed=[0, 1, 2, 0])
    return model


def seen_in_another_order():
    """Two likelihoods see one row each, the second one from the last category to the first."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.ones((2, 3)))
        pm.Multinomial("first", n=30, p=p[0], observed=[10, 12, 8])
        pm.Multinomial("second", n=20, p=p[1][::-1], observed=[0, 15, 5])
    return model


NOISY = [dirdp.PureDP(epsilon=1.0), dirdp.ZeroCDP(rho=0.1), dirdp.TruncatedCDP(rho=0.1, omega=math.inf)]
PLANNED = {
    "hair": (hair_model, TARGET, {}),
    "renyi": (
        hair_model,
        dirdp.RenyiDP(order=3, epsilon=0.2),
        {"mechanism": Dirichlet(strategy="temper"), "released_draws": 3},
    ),
    "auto": (two_tables, TARGET, {"mechanism": "auto", "objective": "estimate"}),
    "disjoint": (two_tables, TARGET, {"disjoint": [["p"], ["rate"]], "weights": {"p": 2}}),
    "min_count": (hair_model, TARGET, {"min_count": 2, "mechanism": Dirichlet(strategy="inflate")}),
    "add-remove": (
        two_tables,
        TARGET,
        {"adjacency": "add-remove", "n_records": {"p": 60}, "mechanism": Dirichlet(strategy="temper")},
    ),
    "several": (two_tables, TARGET, {"contribution": 3}),
    "views": (viewed_model, TARGET, {"contribution": 1, "public": ["y"]}),
    "another order": (seen_in_another_order, TARGET, {"public": ["second"]}),
    "people": (people_model, TARGET, {"unit": "person"}),
    "at most": (people_model, TARGET, {"unit": "person", "contribution": 3, "n_records": 100}),
    "at most, and others": (
        people_and_others,
        TARGET,
        {"unit": "person", "contribution": 3, "n_records": 100, "disjoint": [["answer"], ["visits"]]},
    ),
    "gaussian": (hair_model, NOISY[1], {"mechanism": "gaussian"}),
    "omega": (hair_model, NOISY[2], {"mechanism": "gaussian"}),
    "geometric": (hair_model, NOISY[0], {"mechanism": "geometric"}),
    "geometric, private N": (
        hair_model,
        NOISY[0],
        {"mechanism": "geometric", "adjacency": "add-remove", "n_records": 9, "contribution": 2},
    ),
}


def without_the_time(release):
    release["posterior"].attrs.pop("created_at", None)
    return release


@pytest.mark.thorough
@pytest.mark.parametrize("name", PLANNED)
def test_a_plan_comes_back_from_a_file_and_draws_the_same(name, tmp_path):
    make, guarantee, options = PLANNED[name]
    model = make()
    plan = dirdp.plan(guarantee, model, **options)
    dirdp.save(plan, tmp_path / "plan.json")
    again = dirdp.load(tmp_path / "plan.json")
    assert again.digest == plan.digest
    assert str(dirdp.report(again, full=True)) == str(dirdp.report(plan, full=True))
    assert [part.mechanism for part in again.parts] == [part.mechanism for part in plan.parts]
    assert again.privacy_unit == plan.privacy_unit
    with pytest.warns(dirdp.errors.SeededReleaseWarning):
        drawn, other = (without_the_time(dirdp.sample(one, make(), random_seed=1)) for one in (plan, again))
    assert drawn.identical(other)
    dirdp.save(again, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "plan.json").read_bytes()


def test_a_beta_has_the_dims_of_its_rows_in_a_file(tmp_path):
    """Its two outcomes are an axis of its prior, and no dim."""
    with pm.Model(coords={"arm": ["a", "b"]}) as model:
        rate = pm.Beta("rate", 1, 2, dims="arm")
        pm.Binomial("yes", n=[10, 20], p=rate, observed=[4, 5], dims="arm")
    plan = dirdp.plan(dirdp.PureDP(epsilon=1.0), model, mechanism="geometric")
    dirdp.save(plan, tmp_path / "plan.json")
    again = dirdp.load(tmp_path / "plan.json")
    assert again.digest == plan.digest
    assert again.parts[0].table.dims == ("arm",)
    assert again.parts[0].table.shape == (2, 2)


def test_a_plan_for_rows_that_are_observed_apart_is_drawn(tmp_path):
    """Found by the thorough tests: its mechanism is for a record in each row, and the plan was refused for that."""
    model = seen_in_another_order()
    plan = dirdp.plan(TARGET, model, public=["second"])
    dirdp.save(plan, tmp_path / "plan.json")
    assert dirdp.verify(dirdp.sample(dirdp.load(tmp_path / "plan.json"), model))
    assert "a record stays in its row; a person may have a record in each row of p" in plan.protected
    assert "the number of records, 50, also of each row, is public" in " ".join(str(dirdp.report(plan)).split())


@pytest.mark.parametrize("said", [None, 1, 3])
def test_rows_in_which_a_record_stays_are_not_called_rows_among_which_it_moves(said, tmp_path, text_of_facts):
    """An attack: noise that publishes the number of records of each row, in a plan that protects moves between rows."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.ones((2, 3)))
        pm.Multinomial("x", n=[30, 20], p=p, observed=[[10, 12, 8], [0, 15, 5]])
    options = {"contribution": 1 if said is None else said, "mechanism": "geometric"}
    facts = json.loads(json.dumps(dirdp.plan(dirdp.PureDP(epsilon=9.0), model, **options).facts))
    (table,) = facts["tables"]
    assert table["one_person_adds"]["axes"] == ["any"]
    facts["people"]["contribution"], table["one_person_adds"]["axes"], table["totals"] = said, ["each"], [30, 20]
    (tmp_path / "plan.json").write_text(text_of_facts(facts), encoding="utf-8")
    with pytest.raises(dirdp.DirdpError, match="line" if said is None else "other records of a person"):
        dirdp.load(tmp_path / "plan.json")


def test_a_unit_holds_no_fewer_records_in_a_table_than_its_bound(tmp_path, text_of_facts):
    """An attack: noise for three records in a plan for people with four, and words that follow from the table."""
    options = {"unit": "person", "n_records": 100, "mechanism": "geometric"}
    three, four = (dirdp.plan(TARGET, people_model(), contribution=m, **options).facts for m in (3, 4))
    facts = json.loads(json.dumps(three))
    facts["people"]["contribution"] = four["people"]["contribution"]
    (tmp_path / "plan.json").write_text(text_of_facts(facts), encoding="utf-8")
    with pytest.raises(dirdp.DirdpError, match="other records of a person"):
        dirdp.load(tmp_path / "plan.json")


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    chosen = dirdp.plan(TARGET, two_tables(), mechanism="auto", disjoint=[["p"], ["rate"]])
    # The first table is drawn, whatever would be better, so that there is an r to change.
    drawn = dirdp.plan(TARGET, two_tables(), disjoint=[["p"], ["rate"]])
    parts = (replace(drawn.parts[0], choice=chosen.parts[0].choice), chosen.parts[1])
    dirdp.save(replace(chosen, parts=parts), path)
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.fixture
def edited(facts, tmp_path, text_of_facts):
    """A copy of the facts, and a function that writes them with the digest that belongs to them."""

    def write(changed):
        changed.pop("digest", None)
        path = tmp_path / "edited.json"
        path.write_text(text_of_facts(changed), encoding="utf-8")
        return path

    return copy.deepcopy(facts), write


def test_a_change_without_a_new_digest(facts, tmp_path, text_of_facts):
    path = tmp_path / "plan.json"
    other = {key: value for key, value in facts.items() if key != "digest"} | {"version": 2}
    path.write_text(text_of_facts(other), encoding="utf-8")
    with pytest.raises(dirdp.errors.ArgumentError, match="another version of the format than 1"):
        dirdp.load(path)
    for key, value in (
        ("released_draws", 2),
        ("statement", "nothing"),
        ("library_version", "9"),
        ("new", 1),
        ("digest", "00"),
    ):
        path.write_text(json.dumps({**facts, key: value}), encoding="utf-8")
        with pytest.raises(dirdp.errors.ArgumentError, match="changed after it was written: its digest does not match"):
            dirdp.load(path)
    path.write_text(json.dumps({key: value for key, value in facts.items() if key != "digest"}), encoding="utf-8")
    with pytest.raises(dirdp.errors.ArgumentError, match="digest"):
        dirdp.load(path)


def test_a_weaker_plan_with_a_digest_of_its_own(edited):
    """The guarantee is decided again on the exact curves: a number of the file makes it no weaker than it says."""
    changed, write = edited
    changed["tables"][0]["parameters"]["r"] *= 1.001
    with pytest.raises(dirdp.errors.UnattainableError, match="does not satisfy"):
        dirdp.load(write(changed))
    changed["tables"][0]["parameters"]["r"] /= 1.01
    assert dirdp.report(dirdp.load(write(changed)), full=True).title == "Plan of a private posterior draw of p, rate"


FORGED = {
    "assumptions": [[]],
    "statement": ["(0.1, 1e-06)-differential privacy"],
    "protected": ["everybody"],
    "guarantee.kind": ["Guarantee"],
    "guarantee.epsilon": [-1, "inf", True],
    "released_draws": [0, -1, 1.5, 10**7, "1"],
    "min_count": [1e9, None],
    "adjacency": ["add-remove"],
    "groups": [[], [["p"]], [["p", "other"], ["rate"]]],
    "people.others": [1],
    "people.n_units": ["many"],
    "people.unit": [[["x"]]],
    "people.more": [1],
    "tables": [[]],
    "tables.0.name": ["a/b", "a\nb", 5, "rate"],
    "tables.0.family": ["beta", "gamma"],
    "tables.0.dims": [["row"], "rk"],
    "tables.0.labels.k": [["a", "b"], [{"time": "soon"}, "b", "c"], ["a", None, "c"], [1, "b", "c"]],
    "tables.0.labels.z": [["a"]],
    "tables.0.prior": [
        [[1, 1], [1, 1]],
        [[1, 1, 1], [1, 1]],
        [[1, 1, 10**400], [1, 1, 1]],
        [[1, 1, -1], [1, 1, 1]],
        "1",
    ],
    "tables.0.n_records": [-1, 2**60, 1.5],
    "tables.0.mechanism": ["Mechanism", "os.system"],
    "tables.0.one_person_adds.records": [0],
    "tables.0.one_person_adds.axes": [["own", "own"]],
    "tables.0.parameters.r": [-1, 1e300],
    "tables.0.parameters.alpha": [[1, 1]],
    "tables.0.parameters.more": [1],
    "tables.0.observed.0.kind": ["poisson"],
    "tables.0.observed.0.rows": [[-1]],
    "tables.0.chosen_from.expected_kl": [[["dirichlet", -1]], [["dirichlet"]]],
    "tables.0.chosen_from": [[]],
}


@pytest.mark.parametrize("place", FORGED)
def test_a_forged_fact_is_refused_when_it_is_read(edited, place):
    facts, write = edited
    *path, last = place.split(".")
    for value in FORGED[place]:
        changed = copy.deepcopy(facts)
        node = changed
        for step in path:
            node = node[int(step) if step.isdigit() else step]
        node[last] = value
        with pytest.raises(dirdp.DirdpError, match=r"The plan (is damaged|does not satisfy)"):
            dirdp.load(write(changed))


def test_a_beta_of_three_categories_is_no_table(edited):
    changed, write = edited
    changed["tables"][0] |= {"family": "beta", "dims": None, "labels": {}}
    with pytest.raises(dirdp.DirdpError, match="a Beta and has more than two categories"):
        dirdp.load(write(changed))


def test_a_plan_for_another_model(tmp_path):
    dirdp.save(dirdp.plan(TARGET, hair_model()), tmp_path / "plan.json")
    plan = dirdp.load(tmp_path / "plan.json")
    ledger = dirdp.Ledger(TARGET)
    others = [two_tables(), people_model(), hair_model(n=593), hair_model(prior=2.0), hair_model(labels=list("abcd"))]
    for other in others:
        with pytest.raises(dirdp.DirdpError, match=r"not the one that was planned|is not a dim|unit="):
            dirdp.sample(plan, other, ledger=ledger)
    assert ledger.entries() == ()
