"""Plans in files: they come back as they went, and what was edited is refused before anything is charged."""

import copy
import json
import pickle
from dataclasses import replace

import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DirdpError, UnattainableError, UnsupportedModelError
from tests.planned import hair_model, three_questions, two_tables
from tests.releases.kinds import APPROX, NOISE, OF_PEOPLE, PURE, seen_in_another_order


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
    facts = json.loads(json.dumps(dirdp.plan(APPROX, three_questions(), **OF_PEOPLE, **NOISE).facts))
    facts["people"]["contribution"] = 4
    with pytest.raises(DirdpError, match="other records of a person"):
        dirdp.load(written(facts))


@pytest.fixture(scope="module")
def plan_facts():
    chosen = dirdp.plan(APPROX, two_tables(), mechanism="auto", disjoint=[["p"], ["rate"]])
    # The first table is drawn, whatever would be better, so that there is an r to change.
    drawn = dirdp.plan(APPROX, two_tables(), disjoint=[["p"], ["rate"]])
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
    facts["tables"][0]["parameters"]["r"] *= 1.001
    with pytest.raises(UnattainableError, match="does not satisfy"):
        dirdp.load(written(facts))
    facts["tables"][0]["parameters"]["r"] /= 1.01
    assert dirdp.report(dirdp.load(written(facts)), full=True).title == "Plan of a private posterior draw of p, rate"


FORGED = {
    "assumptions": [[], ["the moon is full"]],
    "statement": ["(0.1, 1e-06)-differential privacy"],
    "protected": ["everybody"],
    "guarantee.epsilon": [-1, "inf", True],
    "released_draws": [0, -1, 1.5, 10**7, "1"],
    "min_count": [1e9, None],
    "strategy": ["best"],
    "adjacency": ["add-remove"],
    "groups": [[], [["p"]], [["p", "other"], ["rate"]]],
    "people.others": [1],
    "people.n_units": ["many"],
    "people.unit": [[["x"]]],
    "tables.0.name": ["a/b", "a\nb", 5, "rate"],
    "tables.0.family": ["beta", "gamma"],
    "tables.0.dims": [["where"], "wh"],
    "tables.0.labels.hair": [["a", "b"], [{"time": "soon"}, "b", "c"], ["a", None, "c"], [1, "b", "c"]],
    "tables.0.prior": ["1", [[1, 1], [1, 1]], *([[1, 1, *last], [1, 1, 1]] for last in ([], [10**400], [-1]))],
    "tables.0.n_records": [-1, 2**60, 1.5],
    "tables.0.one_person_adds.records": [0],
    "tables.0.one_person_adds.axes": [["own", "own"]],
    "tables.0.parameters.r": [-1, 1e300],
    "tables.0.parameters.alpha": [[1, 1]],
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
        with pytest.raises(DirdpError, match=r"The plan (is damaged|does not satisfy)") as caught:
            dirdp.load(written(changed))
        assert "table 2" not in str(caught.value) or place == "adjacency"


@pytest.fixture(scope="module")
def plan():
    return dirdp.plan(APPROX, two_tables(), min_count=2)


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
    apart = dirdp.plan(APPROX, two_tables(), disjoint=[["p"], ["rate"]])
    assert apart.assumptions
    with pytest.raises(UnsupportedModelError, match="not the one that was planned"):
        dirdp.sample(replace(apart, groups=(("p", "rate"),)), two_tables())
    with pytest.raises(TypeError, match="assumptions"):
        replace(apart, assumptions=())


def test_a_release_names_the_version_that_drew_it(plan):
    release = dirdp.sample(replace(plan, library_version="0.0.1"), two_tables())
    assert release.attrs["inference_library_version"] == plan.library_version


def test_a_plan_is_for_one_model():
    plan, ledger = dirdp.plan(APPROX, hair_model()), dirdp.Ledger(APPROX)
    others = [
        *(two_tables(), three_questions(), hair_model((109, 286, 71, 127)), hair_model(prior=(1, 1, 1, 2))),
        *(hair_model(labels=tuple("abcd")), hair_model((394, 71, 127))),
    ]
    for other in others:
        with pytest.raises(DirdpError, match=r"not the one that was planned|is not a dim|unit="):
            dirdp.sample(plan, other, ledger=ledger)
    assert ledger.entries() == ()
    assert dirdp.sample(plan, hair_model((107, 287, 71, 127))).attrs["plan_digest"] == plan.digest
