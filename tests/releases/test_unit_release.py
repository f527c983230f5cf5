"""From the model to the release for people who hold several records: the whole way, and by hand."""

from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.people import Contribution

PURE, RENYI = dirdp.PureDP(epsilon=1.0), dirdp.RenyiDP(order=4, epsilon=0.5)
ANSWERS = np.random.default_rng(7).integers(0, 3, (60, 4))
OTHER = "not the one that was planned"


def plan_noise(model, **options):
    return dirdp.plan(PURE, model, mechanism="geometric", **options)


def documents(lengths):
    lengths = np.asarray(lengths)
    words = np.stack([lengths - lengths // 2, lengths // 2], axis=1)
    with pm.Model(coords={"document": range(len(lengths)), "word": list("ab")}) as model:
        topic = pm.Dirichlet("topic", np.ones(2), dims="word")
        pm.Multinomial("words", n=lengths, p=topic, observed=words, dims=("document", "word"))
    return model


def surveys(answers, **coords):
    """A variable of each matrix of answers, or of each column."""
    with pm.Model(coords={"person": range(60)} | coords) as model:
        for i, (dim, observed) in enumerate(answers):
            shape = (*observed.shape[1:], 3)
            p = pm.Dirichlet(f"p{i}", np.ones(shape), shape=shape)
            pm.Categorical(f"answer{i}", p=p, observed=observed, dims=("person", dim) if dim else "person")
    return model


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_a_survey_matrix_is_as_private_as_its_columns(adjacency):
    """Finding 5: as parallel rows, a person with ten answers had delta(1) .0143 in place of 1e-6."""
    options = {"mechanism": Dirichlet(strategy="temper"), "adjacency": adjacency, "unit": "person"}
    (matrix,) = dirdp.plan(RENYI, surveys([("item", ANSWERS)], item=range(4)), **options).parts
    assert Contribution.of(matrix.mechanism.contribution) == Contribution(1, ("each",))
    for part in dirdp.plan(RENYI, surveys([(None, column) for column in ANSWERS.T]), **options).parts:
        assert part.mechanism.r == pytest.approx(matrix.mechanism.r, rel=0.02)
    # By hand: four pairs of one record.
    for more, enough in ((1.0, True), (1.05, False)):
        one = dirdp.mechanisms.DirichletMechanism(np.ones(3), more * matrix.mechanism.r, adjacency=adjacency)
        assert Composition(((one, 4),)).satisfies(RENYI) == enough


def test_people_with_private_lengths():
    model = documents([5, 9, 2])
    with pytest.raises(ArgumentError, match="n_records is for"):
        plan_noise(model, unit="document", public=["words"], n_records=100)
    options = {"unit": "document", "contribution": 10, "n_records": 30}
    plan = plan_noise(model, **options)
    (part,) = plan.parts
    assert part.n_records == 30
    assert not plan.privacy_unit.n_records_is_public
    assert Contribution.of(part.mechanism.contribution).fitted((2,)) == Contribution(10)
    # How long they are is private, so the same plan serves other lengths.
    assert plan_noise(documents([1, 1, 10]), **options) == plan
    dirdp.sample(plan, documents([1, 1, 10]))
    with pytest.raises(dirdp.errors.DataError, match="more than contribution=10"):
        dirdp.sample(plan, documents([1, 1, 11]))
    with pytest.raises(UnsupportedModelError, match=OTHER):
        dirdp.sample(plan, documents([1, 1, 2, 2]))
    assert "16" not in plan.protected


def test_a_plan_that_protects_less_than_its_reading_is_refused():
    """One table is enough: the other is protected as it was planned."""
    model = surveys([("first", ANSWERS[:, :2]), ("second", ANSWERS[:, 2:])], first=range(2), second=range(2))
    plan = dirdp.plan(RENYI, model, unit="person", mechanism=Dirichlet(strategy="temper"))
    dirdp.sample(plan, model)
    first, second = plan.parts
    mechanism = dirdp.mechanisms.DirichletMechanism(second.mechanism.alpha, second.mechanism.r)
    with pytest.raises(ArgumentError, match="public numbers of records of the rows of 'p1'"):
        replace(plan, parts=(first, replace(second, mechanism=mechanism)))
    forged = replace(plan, parts=(first, replace(second, mechanism=mechanism, totals=())))
    with pytest.raises(UnsupportedModelError, match=OTHER):
        dirdp.sample(forged, model)


def test_a_model_whose_number_of_trials_has_become_data_is_refused_after_the_plan():
    """The tables are the same, and so is the total; but now it comes from what is observed."""

    def model(n):
        with pm.Model() as model:
            d = pm.Data("d", np.array(100))
            pm.Binomial("visited", n=100, p=pm.Beta("a", 1, 1), observed=d)
            pm.Binomial("bought", n=d if n is None else n, p=pm.Beta("b", 1, 1), observed=5)
        return model

    plan = plan_noise(model(100))
    dirdp.sample(plan, model(100))
    with pytest.raises(UnsupportedModelError, match="what is observed in 'visited'"):
        dirdp.sample(plan, model(None))


def test_fixed_groups_and_own_rows_are_stated():
    def model(n=20):
        with pm.Model() as model:
            pm.Binomial("x", n=n, p=pm.Beta("a", 1, 1), observed=7)
            pm.Binomial("y", n=30, p=pm.Beta("b", 1, 1), observed=5)
        return model

    with pm.Model(coords={"person": range(4)}) as own:
        b = pm.Beta("b", 1, 1, dims="person")
        pm.Binomial("k", n=10, p=b, observed=[1, 2, 3, 4], dims="person")
    groups = {"disjoint": [["x"], ["y"]]}
    fixed = "size of each group of disjoint is public, and a replaced person stays in the group"
    cases = [
        (model(30), {}, None),
        (model(), {"public": ["x"]}, "'x'"),
        (model(), groups, fixed),
        (model(), groups | {"adjacency": "add-remove", "n_records": 20}, None),
        (own, {"unit": "person"}, "own row"),
    ]
    for given, options, said in cases:
        assumptions = plan_noise(given, **options).assumptions
        assert len(assumptions) == (said is not None)
        assert all(said in sentence for sentence in assumptions)


def test_public_data_in_a_prior_are_named_with_the_guarantee():
    with pm.Model() as model:
        p = pm.Dirichlet("p", pm.Data("earlier survey", np.array([3.0, 2.0])))
        pm.Multinomial("y", n=50, p=p, observed=[20, 30])
    with pytest.raises(UnsupportedModelError, match=r"public=\['earlier survey'\]"):
        plan_noise(model)
    with pytest.raises(ArgumentError, match=r"Expected public to be a list of names"):
        plan_noise(model, public="earlier survey")
    plan = plan_noise(model, public=["earlier survey"])
    assert plan.parts[0].table.prior.tolist() == [3, 2]
    release = dirdp.sample(plan, model)
    assert dirdp.verify(release)
    said = " ".join(str(dirdp.report(release, full=True)).split())
    assert "anybody may know the data 'earlier survey' in a prior" in said
    diagnosis = dirdp.diagnose(release, model, draws=100)
    assert set(diagnosis["realised"].dataset["table"].values) == {"p"}
    # A plan is one for these data: others are another prior.
    with model:
        pm.set_data({"earlier survey": np.array([3.0, 4.0])})
    with pytest.raises(UnsupportedModelError, match=OTHER):
        dirdp.sample(plan, model)
