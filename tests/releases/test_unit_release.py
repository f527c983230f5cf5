"""From the model to the release for people who hold several records: the whole way, and by hand."""

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.people import Contribution

RNG = np.random.default_rng(7)
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
RENYI = dirdp.RenyiDP(order=4, epsilon=0.5)
PEOPLE = 60


def survey(items=4, categories=3, answers=None):
    with pm.Model(coords={"person": range(PEOPLE), "item": range(items)}) as model:
        theta = pm.Dirichlet("theta", np.ones((items, categories)), dims=("item", "answer"), shape=(items, categories))
        observed = RNG.integers(0, categories, (PEOPLE, items)) if answers is None else answers
        pm.Categorical("answers", p=theta, observed=observed, dims=("person", "item"))
    return model


def documents(lengths):
    lengths = np.asarray(lengths)
    words = np.stack([lengths - lengths // 2, lengths // 2], axis=1)
    with pm.Model(coords={"document": range(len(lengths)), "word": list("ab")}) as model:
        topic = pm.Dirichlet("topic", np.ones(2), dims="word")
        pm.Multinomial("words", n=lengths, p=topic, observed=words, dims=("document", "word"))
    return model


def split(answers):
    """The same survey as one variable for each item."""
    with pm.Model(coords={"person": range(PEOPLE)}) as model:
        for item, column in enumerate(answers.T):
            p = pm.Dirichlet(f"theta{item}", np.ones(3))
            pm.Categorical(f"answer{item}", p=p, observed=column, dims="person")
    return model


@pytest.mark.parametrize("target", [TARGET, RENYI])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_a_survey_matrix_is_as_private_as_its_columns(target, adjacency):
    """Finding 5: as parallel rows, a person with ten answers had delta(1) .0143 in place of 1e-6."""
    answers = RNG.integers(0, 3, (PEOPLE, 4))
    options = {"mechanism": Dirichlet(strategy="temper"), "adjacency": adjacency, "unit": "person"}
    (matrix,) = dirdp.plan(target, survey(answers=answers), **options).parts
    assert Contribution.of(matrix.mechanism.contribution) == Contribution(1, ("each",))
    columns = dirdp.plan(target, split(answers), **options)
    for part in columns.parts:
        assert part.mechanism.r == pytest.approx(matrix.mechanism.r, rel=0.02)
    # By hand: four pairs of one record.
    one = dirdp.mechanisms.DirichletMechanism(np.ones(3), matrix.mechanism.r, adjacency=adjacency)
    assert Composition(((one, 4),)).satisfies(target)
    assert not Composition(
        ((dirdp.mechanisms.DirichletMechanism(np.ones(3), 1.05 * one.r, adjacency=adjacency), 4),)
    ).satisfies(target)


def test_people_with_private_lengths():
    model = documents([5, 9, 2])
    with pytest.raises(dirdp.errors.ArgumentError, match="n_records is for"):
        dirdp.plan(TARGET, model, unit="document", public=["words"], n_records=100)
    options = {"unit": "document", "contribution": 10, "n_records": 30}
    plan = dirdp.plan(TARGET, model, **options)
    (part,) = plan.parts
    assert part.n_records == 30
    assert not plan.privacy_unit.n_records_is_public
    assert Contribution.of(part.mechanism.contribution).fitted((2,)) == Contribution(10)
    # How long they are is private, so the same plan serves other lengths.
    assert dirdp.plan(TARGET, documents([1, 1, 10]), **options) == plan
    dirdp.sample(plan, documents([1, 1, 10]))
    with pytest.raises(dirdp.errors.DataError, match="more than contribution=10"):
        dirdp.sample(plan, documents([1, 1, 11]))
    with pytest.raises(dirdp.errors.UnsupportedModelError, match="not the one that was planned"):
        dirdp.sample(plan, documents([1, 1, 2, 2]))
    assert "16" not in plan.protected


def test_a_plan_that_protects_less_than_its_reading_is_refused():
    """One table is enough: the other is protected as it was planned."""
    import dataclasses

    def model():
        with pm.Model(coords={"person": range(40), "first_item": range(2), "second_item": range(2)}) as model:
            for name in ("first", "second"):
                p = pm.Dirichlet(f"p_{name}", np.ones((2, 3)), shape=(2, 3))
                pm.Categorical(name, p=p, observed=np.arange(80).reshape(40, 2) % 3, dims=("person", f"{name}_item"))
        return model

    plan = dirdp.plan(RENYI, model(), unit="person", mechanism=Dirichlet(strategy="temper"))
    dirdp.sample(plan, model())
    first, second = plan.parts
    weaker = dataclasses.replace(
        second, mechanism=dirdp.mechanisms.DirichletMechanism(second.mechanism.alpha, second.mechanism.r), totals=()
    )
    with pytest.raises(dirdp.errors.ArgumentError, match="public numbers of records of the rows of 'p_second'"):
        dataclasses.replace(plan, parts=(first, dataclasses.replace(weaker, totals=second.totals)))
    forged = dataclasses.replace(plan, parts=(first, weaker))
    with pytest.raises(dirdp.errors.UnsupportedModelError, match="not the one that was planned"):
        dirdp.sample(forged, model())


def test_a_model_whose_number_of_trials_has_become_data_is_refused_after_the_plan():
    """The tables are the same, and so is the total; but now it comes from what is observed."""

    def model(n):
        with pm.Model() as model:
            d = pm.Data("d", np.array(100))
            pm.Binomial("visited", n=100, p=pm.Beta("a", 1, 1), observed=d)
            pm.Binomial("bought", n=d if n is None else n, p=pm.Beta("b", 1, 1), observed=5)
        return model

    plan = dirdp.plan(TARGET, model(100))
    dirdp.sample(plan, model(100))
    with pytest.raises(dirdp.errors.UnsupportedModelError, match="what is observed in 'visited'"):
        dirdp.sample(plan, model(None))


def test_fixed_groups_and_own_rows_are_stated():
    def model(n=20):
        with pm.Model() as model:
            pm.Binomial("x", n=n, p=pm.Beta("a", 1, 1), observed=7)
            pm.Binomial("y", n=30, p=pm.Beta("b", 1, 1), observed=5)
        return model

    together = dirdp.plan(TARGET, model(30))
    assert together.assumptions == ()
    (sentence,) = dirdp.plan(TARGET, model(), public=["x"]).assumptions
    assert "'x'" in sentence
    apart = dirdp.plan(TARGET, model(), disjoint=[["x"], ["y"]])
    (sentence,) = apart.assumptions
    assert "size of each group of disjoint is public, and a replaced person stays in the group" in sentence
    assert dirdp.plan(TARGET, model(), disjoint=[["x"], ["y"]], adjacency="add-remove", n_records=20).assumptions == ()
    with pm.Model(coords={"person": range(4)}) as own:
        b = pm.Beta("b", 1, 1, dims="person")
        pm.Binomial("k", n=10, p=b, observed=[1, 2, 3, 4], dims="person")
    (sentence,) = dirdp.plan(TARGET, own, unit="person").assumptions
    assert "own row" in sentence


def test_public_data_in_a_prior_are_named_with_the_guarantee():
    with pm.Model() as model:
        p = pm.Dirichlet("p", pm.Data("earlier survey", np.array([3.0, 2.0])))
        pm.Multinomial("y", n=50, p=p, observed=[20, 30])
    with pytest.raises(dirdp.errors.UnsupportedModelError, match=r"public=\['earlier survey'\]"):
        dirdp.plan(TARGET, model)
    plan = dirdp.plan(TARGET, model, public=["earlier survey"])
    assert plan.parts[0].table.prior.tolist() == [3, 2]
    release = dirdp.sample(plan, model)
    assert dirdp.verify(release)
    assert "anybody may know the data 'earlier survey' in a prior" in " ".join(
        str(dirdp.report(release, full=True)).split()
    )
    diagnosis = dirdp.diagnose(release, model, draws=100)
    assert set(diagnosis["realised"].dataset["table"].values) == {"p"}
    # A plan is one for these data: others are another prior.
    with model:
        pm.set_data({"earlier survey": np.array([3.0, 4.0])})
    with pytest.raises(dirdp.errors.UnsupportedModelError, match="not the one that was planned"):
        dirdp.sample(plan, model)
    with pytest.raises(dirdp.errors.ArgumentError, match=r"Expected public to be a list of names"):
        dirdp.plan(TARGET, model, public="earlier survey")
