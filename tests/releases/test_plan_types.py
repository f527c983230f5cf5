"""Plans in files: they come back as they went, and what was edited is refused before anything is charged."""

import copy
import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DirdpError, UnattainableError, UnsupportedModelError
from pymc_dirdp.mechanisms.registry import Dirichlet, Marginals
from tests.planned import hair_model, three_questions, two_tables

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
PURE = dirdp.PureDP(epsilon=1.0)
NOISE = {"mechanism": "geometric"}


def people_and_others():
    with three_questions() as model:
        pm.Binomial("visits", n=9, p=pm.Beta("rate", 1, 1), observed=4)
    return model


def viewed_model():
    """A likelihood that sees a part of its table, and one whose rows are chosen by codes."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=[[1, 1], [0.5, 2], [1, 1]])
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


def rates_of_arms():
    """The two outcomes of a Beta are an axis of its prior, and no dim."""
    with pm.Model(coords={"arm": ["a", "b"]}) as model:
        rate = pm.Beta("rate", 1, 2, dims="arm")
        pm.Binomial("yes", n=[10, 20], p=rate, observed=[4, 5], dims="arm")
    return model


def network():
    records, categories = {"legs": [4, 2] * 20}, {"class": ["cat", "hen"], "legs": [2, 4]}
    return dirdp.naive_bayes(records, ["cat", "hen"] * 20, categories=categories)


PRIVATE = {"adjacency": "add-remove"}
OF_PEOPLE = {"unit": "person", "contribution": 3, "n_records": 100}
PLANNED = {
    "renyi": (
        hair_model,
        dirdp.RenyiDP(order=3, epsilon=0.2),
        {"mechanism": Dirichlet(strategy="temper"), "released_draws": 3},
    ),
    "auto": (hair_model, TARGET, {"mechanism": "auto", "objective": "estimate"}),
    "min_count": (hair_model, TARGET, {"min_count": 2, "mechanism": Dirichlet(strategy="inflate")}),
    "add-remove": (two_tables, PURE, PRIVATE | NOISE | {"n_records": {"p": 60}, "weights": {"p": 2}}),
    "views": (viewed_model, PURE, {"contribution": 1, "public": ["y"]} | NOISE),
    "another order": (seen_in_another_order, TARGET, {"public": ["second"]}),
    "at most, and others": (people_and_others, PURE, OF_PEOPLE | NOISE | {"disjoint": [["answer"], ["visits"]]}),
    "omega": (hair_model, dirdp.TruncatedCDP(rho=0.1, omega=math.inf), {"mechanism": "gaussian"}),
    "several": (hair_model, PURE, PRIVATE | NOISE | {"n_records": 9, "contribution": 2}),
    "marginals": (network, TARGET, {"contribution": 2, "mechanism": Marginals(weights={("class", "legs"): 3})}),
    "rows of a Beta": (rates_of_arms, PURE, NOISE),
}


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
@pytest.mark.parametrize("name", PLANNED)
def test_a_plan_comes_back_from_a_file_and_draws_the_same(name, tmp_path):
    make, guarantee, options = PLANNED[name]
    plan = dirdp.plan(guarantee, make(), **options)
    dirdp.save(plan, tmp_path / "plan.json")
    again = dirdp.load(tmp_path / "plan.json")
    assert again.digest == plan.digest
    assert str(dirdp.report(again, full=True)) == str(dirdp.report(plan, full=True))
    for one, other in zip(again.parts, plan.parts, strict=True):
        assert (one.mechanism, one.table.dims) == (other.mechanism, other.table.dims)
    assert again.privacy_unit == plan.privacy_unit
    drawn, other = (dirdp.sample(one, make(), random_seed=1) for one in (plan, again))
    assert drawn["posterior"].to_dataset().drop_attrs().identical(other["posterior"].to_dataset().drop_attrs())
    dirdp.save(again, tmp_path / "again.json")
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "plan.json").read_bytes()


@pytest.fixture
def written(tmp_path, text_of_facts):
    """A function that writes facts with the digest that belongs to them, and gives the path."""

    def write(facts):
        facts.pop("digest", None)
        path = tmp_path / "edited.json"
        path.write_text(text_of_facts(facts), encoding="utf-8")
        return path

    return write


def test_public_numbers_of_rows_add_up(written):
    plan = dirdp.plan(PURE, seen_in_another_order(), public=["second"], **NOISE)
    assert "a record stays in its row; a person may have a record in each row of p" in plan.protected
    facts = json.loads(json.dumps(plan.facts))
    assert facts["tables"][0]["totals"] == [30, 20]
    facts["tables"][0]["totals"] = [31, 20]
    with pytest.raises(DirdpError, match="add up to that of the table"):
        dirdp.load(written(facts))


@pytest.mark.parametrize("said", [None, 1, 3])
def test_rows_in_which_a_record_stays_are_not_called_rows_among_which_it_moves(said, written):
    """An attack: noise that publishes the number of records of each row, in a plan that protects moves between rows."""
    options = {"contribution": 1 if said is None else said, "disjoint": [["p"], ["rate"]]} | NOISE
    facts = json.loads(json.dumps(dirdp.plan(dirdp.PureDP(epsilon=9.0), two_tables(), **options).facts))
    table = facts["tables"][0]
    assert table["one_person_adds"]["axes"] == ["any"]
    facts["people"]["contribution"], table["one_person_adds"]["axes"], table["totals"] = said, ["each"], [30, 20]
    with pytest.raises(DirdpError, match="line" if said is None else "other records of a person"):
        dirdp.load(written(facts))


def test_a_unit_has_no_fewer_records_in_a_table_than_its_bound(written):
    """An attack: noise for three records in a plan for people with four, and words that follow from the table."""
    facts = json.loads(json.dumps(dirdp.plan(TARGET, three_questions(), **OF_PEOPLE, **NOISE).facts))
    facts["people"]["contribution"] = 4
    with pytest.raises(DirdpError, match="other records of a person"):
        dirdp.load(written(facts))


@pytest.fixture(scope="module")
def plan_facts():
    chosen = dirdp.plan(TARGET, two_tables(), mechanism="auto", disjoint=[["p"], ["rate"]])
    # The first table is drawn, whatever would be better, so that there is an r to change.
    drawn = dirdp.plan(TARGET, two_tables(), disjoint=[["p"], ["rate"]])
    parts = (replace(drawn.parts[0], choice=chosen.parts[0].choice), chosen.parts[1])
    return json.loads(json.dumps(replace(chosen, parts=parts).facts))


@pytest.fixture
def facts(plan_facts):
    return copy.deepcopy(plan_facts)


def test_a_change_without_a_new_digest(facts, written):
    with pytest.raises(ArgumentError, match="another version of the format than 1"):
        dirdp.load(written(facts | {"version": 2}))
    path = written(facts)
    path.write_text(path.read_text(encoding="utf-8").replace('"released_draws": 1', '"released_draws": 2'), "utf-8")
    with pytest.raises(ArgumentError, match="changed after it was written: its digest does not match"):
        dirdp.load(path)


def test_a_weaker_plan_with_a_digest_of_its_own(facts, written):
    """The guarantee is decided again on the exact curves: a number of the file makes it no weaker than it says."""
    facts["tables"][0]["parameters"]["r"] *= 1.001
    with pytest.raises(UnattainableError, match="does not satisfy"):
        dirdp.load(written(facts))
    facts["tables"][0]["parameters"]["r"] /= 1.01
    assert dirdp.report(dirdp.load(written(facts)), full=True).title == "Plan of a private posterior draw of p, rate"


FORGED = {
    "assumptions": [[], ["the moon is full"]],
    "statement": ["(0.1, 1e-06)-differential privacy"],
    "protected": ["everybody"],
    "guarantee.kind": ["Guarantee"],
    "guarantee.epsilon": [-1, "inf", True],
    "released_draws": [0, -1, 1.5, 10**7, "1"],
    "min_count": [1e9, None],
    "strategy": ["best"],
    "objective": ["fame"],
    "adjacency": ["add-remove"],
    "groups": [[], [["p"]], [["p", "other"], ["rate"]]],
    "people.others": [1],
    "people.n_units": ["many"],
    "people.unit": [[["x"]]],
    "people.more": [1],
    "tables": [[]],
    "tables.0.name": ["a/b", "a\nb", 5, "rate"],
    "tables.0.family": ["beta", "gamma"],
    "tables.0.dims": [["where"], "wh"],
    "tables.0.labels.hair": [["a", "b"], [{"time": "soon"}, "b", "c"], ["a", None, "c"], [1, "b", "c"]],
    "tables.0.labels.z": [["a"]],
    "tables.0.prior": ["1", [[1, 1], [1, 1]], *([[1, 1, *last], [1, 1, 1]] for last in ([], [10**400], [-1]))],
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
    "tables.0.chosen_from": [[], {"expected_kl": []}],
}


@pytest.mark.parametrize("place", FORGED)
def test_a_forged_fact_is_refused_when_it_is_read(plan_facts, written, place):
    *path, last = place.split(".")
    for value in FORGED[place]:
        changed = copy.deepcopy(plan_facts)
        node = changed
        for step in path:
            node = node[int(step) if step.isdigit() else step]
        node[last] = value
        with pytest.raises(DirdpError, match=r"The plan (is damaged|does not satisfy)"):
            dirdp.load(written(changed))


# Plans that are changed in memory, or are of another model.


@pytest.fixture(scope="module")
def plan():
    return dirdp.plan(TARGET, two_tables(), min_count=2)


def with_foreign_curves(plan):
    """Found by attack: a plan keeps what its mechanisms have computed, which may be another's."""
    original = plan.parts[0].mechanism
    assert original.epsilon(1e-6) < 1
    stronger = replace(original, r=5.0)
    stronger.__dict__["_curves"] = original.__dict__["_curves"]
    assert stronger.epsilon(1e-6) == original.epsilon(1e-6)
    assert copy.copy(stronger).epsilon(1e-6) > 1
    return {"parts": (replace(plan.parts[0], mechanism=stronger), plan.parts[1])}


WEAKER, OTHER = (UnattainableError, "does not satisfy"), (UnsupportedModelError, "not the one that was planned")
CHANGED = [
    # Found by attack: -1 draws lose less than nothing, and were charged as that.
    *(({"released_draws": draws}, ArgumentError, "draws") for draws in (0, -1, 1.5, True)),
    ({"released_draws": 2}, *WEAKER),
    # Found by attack: the release and the ledger would have guaranteed without them.
    ({"min_count": 0.0}, ArgumentError, "assume"),
    (with_foreign_curves, *WEAKER),
    ({"others": True}, *OTHER),
    (
        lambda plan: {"unit_options": replace(plan.unit_options, adjacency="add-remove")},
        ArgumentError,
        "what its mechanisms assume",
    ),
]


@pytest.mark.parametrize(("changes", "error", "match"), CHANGED)
def test_a_changed_plan_is_refused_before_anything_is_charged_or_drawn(plan, changes, error, match):
    """A plan that is made so is none, nor one that is changed behind its back."""
    changes = changes(plan) if callable(changes) else changes
    ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=5.0, delta=1e-4))
    with pytest.raises(error, match=match):
        dirdp.sample(pickle.loads(pickle.dumps(replace(plan, **changes))), two_tables(), ledger=ledger)
    edited = copy.copy(plan)
    for name, value in changes.items():
        object.__setattr__(edited, name, value)
    with pytest.raises(error, match=match):
        dirdp.sample(pickle.loads(pickle.dumps(edited)), two_tables(), ledger=ledger)
    assert ledger.entries() == ()
    assert ledger._verified().startswith("0:")


def test_assumptions_follow_from_what_a_plan_states():
    apart = dirdp.plan(TARGET, two_tables(), disjoint=[["p"], ["rate"]])
    assert apart.assumptions
    with pytest.raises(UnsupportedModelError, match="not the one that was planned"):
        dirdp.sample(replace(apart, groups=(("p", "rate"),)), two_tables())
    with pytest.raises(TypeError, match="assumptions"):
        replace(apart, assumptions=())


def test_a_release_names_the_version_that_drew_it(plan):
    release = dirdp.sample(replace(plan, library_version="0.0.1"), two_tables())
    assert release.attrs["inference_library_version"] == plan.library_version


def test_a_plan_is_for_one_model():
    plan, ledger = dirdp.plan(TARGET, hair_model()), dirdp.Ledger(TARGET)
    others = [
        *(two_tables(), three_questions(), hair_model((109, 286, 71, 127)), hair_model(prior=(1, 1, 1, 2))),
        *(hair_model(labels=tuple("abcd")), hair_model((394, 71, 127))),
    ]
    for other in others:
        with pytest.raises(DirdpError, match=r"not the one that was planned|is not a dim|unit="):
            dirdp.sample(plan, other, ledger=ledger)
    assert ledger.entries() == ()
    # Other counts are what it is for.
    assert dirdp.sample(plan, hair_model((107, 287, 71, 127))).attrs["plan_digest"] == plan.digest
