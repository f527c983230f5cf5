"""Public numbers hold no data, which is found in a time that does not explode with the number of tables."""

import numpy as np
import pymc as pm
import pytest

from pymc_dirdp import ApproxDP, Ledger, plan, private_model, report, sample, statement
from pymc_dirdp.errors import DataError, DirdpError, UnsupportedModelError
from pymc_dirdp.models import public
from pymc_dirdp.releases import release_of
from tests.planned import planned_sample

TARGET = ApproxDP(epsilon=100, delta=1e-6)


@pytest.mark.parametrize("rows", [False, True])
def test_the_counts_of_a_table_are_looked_at_once(rows, monkeypatch):
    """Not once for each other table, as before: 500 tables took two minutes."""
    looked_at = []
    read = public.read_counts

    def counting(observations):
        looked_at.append(observations[0].table.name)
        return read(observations)

    monkeypatch.setattr(public, "read_counts", counting)
    with pm.Model() as model:
        for i in range(12):
            p = pm.Dirichlet(f"p{i}", a=np.ones(3) if not rows else np.ones((2, 3)))
            seen = np.array([[40 - i, 30, 30 + i], [50 - i, 25, 25 + i]])
            n = np.array([100, 100]) if rows else 100
            pm.Multinomial(f"x{i}", n=n, p=p, observed=seen if rows else seen[0])
    plan(TARGET, model, adjacency="replace-one", contribution=1)
    # One number may agree by chance, so it is compared with nothing.
    assert len(looked_at) == (12 if rows else 0)


def test_data_are_still_found_behind_many_tables():
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        for i in range(5):
            p = pm.Dirichlet(f"p{i}", a=np.ones(3))
            pm.Multinomial(f"x{i}", n=100, p=p, observed=rng.multinomial(100, [0.2, 0.3, 0.5]))
        asked = pm.Beta("asked", 1, 1, shape=4)
        pm.Binomial("answers", n=[50, 50, 50, 50], p=asked, observed=[17, 23, 31, 29])
        yes = pm.Beta("yes", 1, 1, shape=4)
        pm.Binomial("hits", n=[17, 23, 31, 29], p=yes, observed=[3, 4, 5, 6])
    with pytest.raises(UnsupportedModelError, match="answers"):
        plan(TARGET, model)


REFUSED = "under add-remove the shape of the release would show"
PEOPLE = {"person": ["Ann", "Bob", "Cy"], "answer": range(3)}
COUNTS = [[5, 5, 10], [3, 7, 10], [8, 8, 4]]


def of_people(relation, model, **said):
    return plan(TARGET, model, mechanism="geometric", adjacency=relation, **said)


def refused(words, model, **said):
    with pytest.raises(UnsupportedModelError, match=words):
        of_people("add-remove", model, **said)


@pytest.mark.parametrize("counted", [True, False], ids=["unit", "records"])
@pytest.mark.parametrize("dim", ["person", None, "visit"])
def test_the_label_of_a_single_person_stays_private(dim, counted):
    """Found by attack: the labels of people were refused where there are several, and published where there is one."""
    with pm.Model(coords={"person": ["Ann"], "visit": [0], "answer": range(3)}) as model:
        p = pm.Dirichlet("p", a=np.ones((1, 3)), dims=("person", "answer"))
        if counted:
            pm.Multinomial("x", n=20, p=p, observed=[[5, 5, 10]], dims=dim and (dim, "answer"))
        else:
            pm.Categorical("x", p=p, observed=[1], dims=dim)
    stated = {"unit": dim or 0} if counted else {}
    assert of_people("replace-one", model, **stated).parts[0].table.coords["person"] == ("Ann",)
    if dim == "visit":
        # The row is then no person's: it would serve several people as well.
        assert of_people("add-remove", model, **stated).parts[0].table.coords["person"] == ("Ann",)
    else:
        refused(REFUSED, model, **stated)


@pytest.mark.parametrize("stored", [True, False])
def test_the_number_of_records_of_a_single_person_stays_private(stored):
    """Found by attack: a number for each of them was refused where there are several, and stated where there is one."""
    for n, is_refused in ((20, False), (np.array(20), False), ([20], True), (np.array([20.0]), True)):
        with pm.Model(coords=PEOPLE | {"person": ["Ann"]}) as model:
            p = pm.Dirichlet("p", a=np.ones(3), dims="answer")
            n = pm.Data("n", n) if stored else n
            pm.Multinomial("x", n=n, p=p, observed=COUNTS[:1], dims=("person", "answer"))
        assert of_people("replace-one", model, unit="person").contribution == 20
        if is_refused:
            refused("has a number for each person", model, unit="person")
        else:
            assert of_people("add-remove", model, unit="person").contribution == 20


@pytest.mark.parametrize("unit", ["person", 0])
def test_labels_of_people_behind_codes_stay_private_however_the_unit_is_named(unit):
    """Found by attack: `unit=0` released the labels that `unit="person"` refused."""
    for rows in (lambda p: p[np.arange(3)], lambda p: p[pm.Data("who", [0, 1, 2])], lambda p: p[::-1]):
        with pm.Model(coords=PEOPLE) as model:
            p = pm.Dirichlet("p", a=np.ones((3, 3)), dims=("person", "answer"))
            pm.Multinomial("x", n=20, p=rows(p), observed=COUNTS, dims=("person", "answer"))
        refused(REFUSED, model, unit=unit)
    with pm.Model(coords=PEOPLE) as model:
        p = pm.Dirichlet("p", a=np.ones(3) / model.dim_lengths["person"], dims="answer")
        pm.Multinomial("x", n=20, p=p, observed=COUNTS, dims=("person", "answer"))
    refused("prior that depends on the number of observations", model, unit=unit)


def test_a_single_row_without_a_label_is_that_of_all_people():
    """It would serve several people as well, and tells no name."""
    with pm.Model() as model:
        pm.Multinomial("x", n=20, p=pm.Dirichlet("p", a=np.ones((1, 3))), observed=COUNTS[:1])
    assert of_people("add-remove", model, unit=0).parts[0].table.shape == (1, 3)


@pytest.mark.parametrize("rows", [lambda p: p, lambda p: p[::-1]])
def test_a_single_label_of_people_stays_private_where_its_row_stands_along_another_axis(rows):
    """Found by attack: the row of the only person stands where the visits are, so it was taken for nobody's."""
    with pm.Model(coords={"person": ["Ann"], "visit": range(2), "answer": range(3)}) as model:
        p = pm.Dirichlet("p", a=np.ones((1, 3)), dims=("person", "answer"))
        pm.Categorical("x", p=rows(p), observed=[[0, 2]], dims=("person", "visit"))
    for stated in ({"contribution": 2}, {"unit": 0}, {"unit": "person"}):
        refused(REFUSED, model, **stated)


# Funnels of single numbers: 230 of 1000 signed up, and 41 of these bought. 230 and 770 are protected.

SIGNED, BOUGHT = np.repeat([1, 0], [230, 770]), np.repeat([1, 0], [41, 189])


def rate(name, **options):
    return pm.Beta(f"p_{name}", 1, 1, **options)


def shares(name, *shape):
    return pm.Dirichlet(f"p_{name}", np.ones(shape))


# Of two rows, the second adds up to the same numbers for both variables.
FAMILIES = {
    "binomial": lambda name, n, k: pm.Binomial(name, n=n, p=rate(name), observed=k),
    "of data": lambda name, n, k: pm.Binomial(
        name, n=pm.Data(f"n_{name}", n), p=rate(name), observed=pm.Data(f"k_{name}", k)
    ),
    "beta binomial": lambda name, n, k: pm.BetaBinomial(name, n=n, alpha=1, beta=1, observed=k),
    "multinomial": lambda name, n, k: pm.Multinomial(name, n=n, p=shares(name, 2), observed=[k, n - k]),
    "dirichlet": lambda name, n, k: pm.DirichletMultinomial(name, n=n, a=np.ones(3), observed=[k, n - k, 0]),
    "categorical": lambda name, n, k: pm.Categorical(name, p=shares(name, 2), observed=np.repeat([1, 0], [k, n - k])),
    "bernoulli": lambda name, n, k: pm.Bernoulli(name, p=rate(name), observed=np.repeat([True, False], [k, n - k])),
    "two rows": lambda name, n, k: pm.Binomial(name, n=[n, 30], p=rate(name, shape=2), observed=[k, 20]),
    "rows of shares": lambda name, n, k: pm.Multinomial(
        name, n=[n, 30], p=shares(name, 2, 2), observed=[[k, n - k], [20, 10]]
    ),
}
binomial, categorical = FAMILIES["binomial"], FAMILIES["categorical"]


def funnel(first, second, n=230):
    with pm.Model() as model:
        first("signed", 1000, 230)
        second("bought", n, 41)
    return model


def of_any_model(model, **said):
    """What has to be said of these models anyway."""
    data = [str(data.name) for data in model.data_vars if data.name.startswith("n_")]
    return {"public": [*data, *said.pop("public", ())], "contribution": 1, **said}


SAID = {"mechanism": "geometric"}
VERBS = {
    "plan": lambda model, ledger, **said: plan(TARGET, model, **SAID, **said),
    "sample": lambda model, ledger, **said: sample(TARGET, model, ledger=ledger, **SAID, **said),
    "private_model": lambda model, ledger, **said: private_model(
        TARGET, model, ledger=ledger, **SAID, **of_any_model(model, **said)
    ),
    "plan of any model": lambda model, ledger, **said: plan(
        TARGET, model, any_model=True, **SAID, **of_any_model(model, **said)
    ),
}
DIFFERENT = "'bought' has another number of records than 'signed'. This number would be published"


# Every family for the plan, which all verbs make first, and two for the others; the count itself, and any number.
ASKED = [
    (name, number, verb)
    for name in FAMILIES
    for number in (230, 400)
    for verb in VERBS
    if verb == "plan" or (name, number) in {("binomial", 230), ("two rows", 230)}
]


@pytest.mark.parametrize(("name", "number", "verb"), ASKED)
def test_a_number_of_records_that_may_be_a_count_is_asked_for(name, number, verb):
    """Found by attack: 230 stood in the report as a public number, at any epsilon. It is asked for whatever it is."""
    model, ledger = funnel(FAMILIES[name], FAMILIES[name], number), Ledger(TARGET)
    if name == "two rows" and verb not in ("plan", "sample"):
        # There the sizes of rows are asked for first, one variable after the other.
        with pytest.raises(UnsupportedModelError, match="has a number of trials for each of several rows"):
            VERBS[verb](model, ledger, public=["signed"])
        return
    with pytest.raises(UnsupportedModelError, match=DIFFERENT) as found:
        VERBS[verb](model, ledger)
    assert ledger.entries() == ()
    assert not any(str(count) in str(found.value) for count in (230, 770, 400, 1000, 41))


@pytest.mark.parametrize("second", [binomial, categorical])
def test_one_record_of_each_person_says_nothing_of_the_numbers(second):
    ledger = Ledger(TARGET)
    with pytest.raises(UnsupportedModelError, match=DIFFERENT):
        VERBS["sample"](funnel(binomial, second), ledger, contribution=1)
    assert ledger.entries() == ()


@pytest.mark.parametrize(("family", "verb"), [(categorical, "sample"), (binomial, "private_model")])
def test_what_is_said_of_different_numbers_stands_in_the_report(family, verb):
    with pm.Model() as model:
        family("signed", 40, 23)
        family("bought", 23, 4)

    def texts(**said):
        if verb == "sample":
            tree = planned_sample(TARGET, model, **SAID, **said)
        else:
            tree = release_of(VERBS[verb](model, None, **said))
        return " ".join(f"{report(tree)}{statement(tree)}{tree['privacy'].attrs['protected']}".split())

    text = texts(public=["bought"])
    assert "with at most one record in each of" in text
    assert "person, with one record in each of" not in text
    assert "one record in each of" not in texts(disjoint=[["signed"], ["bought"]])
    assert "at most 2" in texts(contribution=2)


def test_equal_numbers_are_not_asked_for():
    """Also where one of them agrees with a count by chance."""
    with pm.Model() as model:
        for name, yes in {"a": 10, "b": 3, "c": 0}.items():
            binomial(name, 10, yes)
        pm.Categorical("d", p=pm.Dirichlet("share", [10, 1, 3]), observed=[0] * 10)
    assert "one record in each of" in str(plan(TARGET, model).protected)
    VERBS["sample"](model, None)


@pytest.mark.parametrize("said", [{}, {"public": ["signed"]}, {"public": ["bought"]}, {"public": ["signed", "bought"]}])
def test_two_variables_of_those_who_were_counted_do_not_outvote_the_first(said):
    with pm.Model() as model:
        for name, n, yes in (("bought", 230, 41), ("returned", 230, 7), ("signed", 1000, 230)):
            binomial(name, n, yes)
    with pytest.raises(UnsupportedModelError, match=r"(bought|returned).*may be a count of what 'signed' observes"):
        plan(TARGET, model, **said)
    assert plan(TARGET, model, public=["bought", "returned"]).parts[0].n_records == 230


def test_variables_that_anybody_may_feed_are_compared_with_each_group():
    with pm.Model() as model:
        for name, n, yes in (("bought", 230, 41), ("north", 1000, 230), ("south", 230, 7)):
            binomial(name, n, yes)
    with pytest.raises(UnsupportedModelError, match=r"(?s)'bought' .*public=\[\"bought\"\]"):
        plan(TARGET, model, disjoint=[["north"], ["south"]])
    assert plan(TARGET, model, disjoint=[["north"], ["south", "bought"]]).contribution == 1


def test_the_number_of_a_child_is_that_of_its_parent():
    """Words of documents are more than documents, by a number that the model states."""
    with pm.Model() as model:
        topic = pm.Categorical("topic", p=shares("topic", 2), observed=SIGNED[:40])
        pm.Multinomial("words", n=5, p=shares("words", 2, 3)[topic], observed=np.tile([2, 2, 1], (40, 1)))
    for contribution in (5, 1):
        assert plan(TARGET, model, contribution=contribution, **SAID).contribution == contribution


def test_people_along_a_numbered_axis_are_as_many_in_all_variables():
    with pm.Model() as model:
        pm.Bernoulli("signed", p=rate("signed"), observed=SIGNED)
        pm.Bernoulli("bought", p=rate("bought"), observed=BOUGHT)
    with pytest.raises(UnsupportedModelError, match=DIFFERENT):
        plan(TARGET, model, unit=0)
    assert plan(TARGET, model, unit=0, disjoint=[["signed"], ["bought"]]).contribution == 1


# Arrays that are written into a model, and hold counts.

ANSWERS = np.array([[310, 250, 440], [120, 700, 180], [90, 205, 705]])


def survey(prior):
    pm.Multinomial("answers", n=[1000] * 3, p=pm.Dirichlet("p", prior), observed=ANSWERS)


def other_survey(prior):
    survey(np.ones((3, 3)))
    pm.Binomial("hits", n=[500, 1500, 1000], p=pm.Beta("q", prior, 1), observed=[100, 400, 7])


def regression(knots):
    p = pm.math.softmax(pm.Normal("effect", np.zeros(3), 1) + pm.math.log(np.array(knots)))
    pm.Multinomial("answers", n=1000, p=p, observed=ANSWERS[0])


def categories_of_a_prior(mean):
    effect = pm.Normal("effect", mean, 1)
    pm.Multinomial("answers", n=1000, p=pm.math.softmax(effect / 100), observed=ANSWERS[0])


@pytest.mark.parametrize(
    ("build", "array", "verb"),
    [
        (survey, ANSWERS, "sample"),
        (survey, ANSWERS + 0.5, "sample"),
        (other_survey, ANSWERS[:, 0], "sample"),
        (other_survey, 1000 - ANSWERS[:, 0], "sample"),
        (categories_of_a_prior, ANSWERS[0] - 250.0, "private_model"),
        (regression, ANSWERS[0] + 1, "private_model"),
    ],
)
def test_arrays_of_counts_are_refused_after_the_charge(build, array, verb):
    ledger = Ledger(TARGET)

    def model(numbers):
        with pm.Model() as built:
            build(numbers)
        return built

    with pytest.raises(DataError, match=r"holds counts of .*ledger has been charged") as found:
        VERBS[verb](model(array), ledger)
    assert len(ledger.entries()) == 1
    assert not any(str(number) in str(found.value) for number in ANSWERS.ravel())
    # Whatever an array holds, a plan is made before anybody looks at counts.
    VERBS["plan" if verb == "sample" else "plan of any model"](model(array), None)
    # Numbers of another study.
    VERBS[verb](model(2 * array + 1), None)


def test_numbers_that_agree_by_chance_are_no_reason_for_a_refusal():
    for prior, seen in (([1, 1, 1], [400, 400, 400]), ([2, 3, 1], [2, 3, 1]), ([3, 5, 2], [2, 4, 1])):
        with pm.Model() as model:
            pm.Multinomial("x", n=sum(seen), p=pm.Dirichlet("p", prior), observed=seen)
        VERBS["sample"](model, None)
    with pm.Model() as model:
        pm.Binomial("x", n=[60, 90, 120], p=pm.Beta("p", 1, 1, shape=3), observed=[60, 90, 120])
    VERBS["sample"](model, None)
    # Rows of chance are no stages.
    with pm.Model() as model:
        pm.Binomial("two", n=[9, 3], p=rate("two", shape=2), observed=[3, 1])
        pm.Binomial("other", n=[4, 4, 4], p=rate("other", shape=3), observed=[4, 4, 4])
    VERBS["sample"](model, None)


@pytest.mark.parametrize("form", ["Binomial", "Multinomial", "for each arm", "pm.Data", "those who left"])
def test_the_stages_of_a_funnel_in_one_variable_are_refused_after_the_charge(form):
    """The total of 1271 would be published, and with the first number what is observed in the first stage."""
    n, yes = np.array([1000, 230, 41]), np.array([230, 41, 7])
    with pm.Model() as model:
        if form == "Multinomial":
            pm.Multinomial("stage", n=n, p=shares("stage", 3, 2), observed=np.stack([yes, n - yes], axis=1))
        elif form == "for each arm":
            n, yes = np.stack([n, n], axis=1), np.stack([yes, yes], axis=1)
            pm.Binomial("stage", n=n, p=rate("stage", shape=(3, 2)), observed=yes)
        elif form == "pm.Data":
            pm.Binomial("stage", n=pm.Data("n", n), p=rate("stage", shape=3), observed=pm.Data("yes", yes))
        else:
            pm.Binomial("stage", n=n, p=rate("stage", shape=3), observed=yes if form == "Binomial" else n - yes)
    ledger = Ledger(TARGET)
    with pytest.raises(DataError, match=r"count what is observed in the rows before.*ledger has been charged"):
        VERBS["sample"](model, ledger)
    assert len(ledger.entries()) == 1
    VERBS["sample"](model, None, public=["stage"])
    VERBS["sample"](model, None, adjacency="add-remove", n_records=1000)


# All that anybody may know, at once.


def public_of(model, **said):
    return plan(TARGET, model, mechanism="geometric", **said).privacy_unit.options.public


def test_all_is_public_that_changes_something():
    with pm.Model() as model:
        prior = pm.Data("earlier", np.ones(3))
        pm.Binomial("bought", n=[30, 40], p=rate("bought", shape=2), observed=[3, 9])
        pm.Multinomial("hair", n=70, p=pm.Dirichlet("p", prior), observed=[20, 20, 30])
        pm.Bernoulli("y", p=rate("y", shape=2)[pm.Data("codes", np.zeros(70, int))], observed=np.ones(70, int))
    assert public_of(model, public=True) == ("bought", "earlier")
    chosen = plan(TARGET, model, mechanism="geometric", public=True)
    assert chosen == plan(TARGET, model, mechanism="geometric", public=["bought", "earlier"])
    assert "anybody may know the data 'earlier' in a prior" in chosen.assumptions
    sample(TARGET, model, mechanism="geometric", public=True)
    for idle in ("hair", "codes", "p"):
        with pytest.raises(DirdpError, match="public"):
            plan(TARGET, model, public=["earlier", idle])


@pytest.mark.parametrize("said", [{"unit": 0}, {"contribution": 3}, {"unit": 0, "contribution": 30, "n_records": 100}])
def test_all_is_public_with_any_unit(said):
    with pm.Model() as model:
        FAMILIES["two rows"]("signed", 24, 6)
        pm.Binomial("bought", n=[6, 20], p=rate("bought", shape=2), observed=[4, 5])
    names = public_of(model, public=True, **said)
    assert public_of(model, public=list(names), **said) == names


def test_different_numbers_are_public_if_all_is():
    assert public_of(funnel(binomial, categorical), public=True) == ("signed", "bought")
    with pytest.raises(UnsupportedModelError, match=DIFFERENT):
        plan(TARGET, funnel(binomial, categorical), public=False)
