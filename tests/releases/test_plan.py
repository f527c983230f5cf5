"""One target for several tables: shares, weights, draws, disjoint people, several records of a person."""

import dataclasses
import math
import re
import warnings
from typing import get_type_hints

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.releases.opened import text_of
from pymc_dirdp.releases.plan import Options, Sampling
from pymc_dirdp.texts.grammar import check_readable
from tests.planned import planned_sample


def test_names_are_read_once_also_from_an_iterator():
    options = Options(public=iter(["n"]), disjoint=iter([["a"], ["b"]]))
    assert options.unit_options.public == ("n",)
    assert options.unit_options.disjoint == (("a",), ("b",))
    assert options.unit_options is options.unit_options


RENYI = dirdp.RenyiDP(order=4, epsilon=0.6)
APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def clinic(first=(30, 12, 8), second=(20, 30), third=(5, 45)):
    with pm.Model() as model:
        pm.Multinomial("x", n=50, p=pm.Dirichlet("p", np.ones(3)), observed=first)
        pm.Multinomial("y", n=50, p=pm.Dirichlet("q", [0.5, 2.0]), observed=second)
        pm.Binomial("z", n=sum(third), p=pm.Beta("rate", 1, 1), observed=third[0])
    return model


def twice(**stated):
    """One parameter with two likelihoods."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("x", n=6, p=p, observed=[1, 2, 3])
        pm.Categorical("y", p=p, observed=[0, 0, 1])
    return dirdp.plan(APPROX, model, **stated), model


def test_budgets_are_equal_unless_weights_say_otherwise():
    equal = [part.mechanism.renyi(4) for part in dirdp.plan(RENYI, clinic()).parts]
    np.testing.assert_allclose(equal, 0.2)
    uneven = [part.mechanism.renyi(4) for part in dirdp.plan(RENYI, clinic(), weights={"q": 4}).parts]
    np.testing.assert_allclose(uneven, [0.1, 0.4, 0.1])
    approx = dirdp.plan(APPROX, clinic(), weights={"q": 4, "rate": 0.5})
    assert approx.composition.satisfies(APPROX)
    assert approx.composition.epsilon(1e-6) > 0.98


def test_weights_are_named_and_positive():
    with pytest.raises(dirdp.errors.ArgumentError, match="got a list"):
        dirdp.plan(RENYI, clinic(), weights=[1, 2, 1])
    for weight in (0, -1, math.inf, math.nan):
        with pytest.raises(dirdp.errors.ArgumentError, match=r"weights\['q'\] > 0"):
            dirdp.plan(RENYI, clinic(), weights={"q": weight})


def test_unknown_names_suggest_the_near_one():
    with pytest.raises(dirdp.errors.ArgumentError, match="Did you mean 'rate'"):
        dirdp.plan(RENYI, clinic(), weights={"rates": 1})
    with pytest.raises(dirdp.errors.ArgumentError, match="Did you mean 'rate'"):
        dirdp.plan(RENYI, clinic(), disjoint=[["rates"], ["p"]])
    with pytest.raises(dirdp.errors.ArgumentError, match="Did you mean 'rate'"):
        dirdp.plan(RENYI, clinic(), adjacency="add-remove", n_records={"rates": 50})


def test_a_table_that_is_in_no_group_is_fed_by_anybody():
    plan = dirdp.plan(RENYI, clinic(), disjoint=[["p"], ["rate"]])
    assert plan.groups == (("p", "q"), ("q", "rate"))
    assert [part.mechanism.renyi(4) for part in plan.parts] == pytest.approx([0.3, 0.3, 0.3])
    assert plan.composition.satisfies(RENYI)
    approx = dirdp.plan(APPROX, clinic(), disjoint=[["p"], ["rate"]])
    assert approx.composition.satisfies(APPROX)


def test_a_person_in_two_groups_is_a_contradiction():
    with pytest.raises(dirdp.errors.ArgumentError, match="two groups of disjoint"):
        dirdp.plan(RENYI, clinic(), disjoint=[["p", "q"], ["x"]])
    with pytest.raises(dirdp.errors.ArgumentError, match="each group of disjoint to be a list of names"):
        dirdp.plan(RENYI, clinic(), disjoint=["p", "q"])


def test_a_parameter_that_is_used_twice_needs_a_word_about_whose_records():
    with pytest.raises(dirdp.errors.UnsupportedModelError, match="'p' is used twice: 'x' and 'y'"):
        twice()
    apart, _ = twice(disjoint=[["x"], ["y"]])
    assert Contribution.of(apart.parts[0].mechanism.contribution) == Contribution()
    # The whole budget: a person feeds one of the two.
    assert apart.parts[0].mechanism.epsilon(1e-6) > 0.98
    both, model = twice(contribution=2)
    assert Contribution.of(both.parts[0].mechanism.contribution) == Contribution(2)
    assert both.composition.satisfies(APPROX)
    release = dirdp.sample(both, model)
    assert "at most 2 records" in str(dirdp.report(release, full=True))
    with pytest.raises(dirdp.errors.UnsupportedModelError, match="used twice"):
        twice(disjoint=[["x", "y"]])


@pytest.mark.thorough
def test_each_table_has_its_own_randomness():
    """The first implementation of P1 drew every feature with one seed; the noise was correlated (ERRATA P1.8)."""
    with pm.Model() as model:
        for name in "abcdefgh":
            pm.Multinomial(f"n_{name}", n=40, p=pm.Dirichlet(name, np.ones(2)), observed=[20, 20])
    with pytest.warns(dirdp.errors.SeededReleaseWarning):
        release = planned_sample(dirdp.RenyiDP(order=2, epsilon=4), model, released_draws=2000, random_seed=3)
    drawn = np.array([release["posterior"][name].values[0, :, 0] for name in "abcdefgh"])
    correlation = np.corrcoef(drawn) - np.eye(8)
    # Five standard errors of a correlation of 2000 draws.
    assert np.abs(correlation).max() < 5 / math.sqrt(2000)


def test_planning_sizes_by_table():
    plan = dirdp.plan(RENYI, clinic(), adjacency="add-remove", n_records={"p": 10, "q": 20, "rate": 30})
    assert [part.n_records for part in plan.parts] == [10, 20, 30]
    with pytest.raises(dirdp.errors.ArgumentError, match="n_records"):
        dirdp.plan(RENYI, clinic(), adjacency="add-remove", n_records={"p": 10})


@pytest.mark.parametrize(
    ("draws", "epsilon", "mechanism", "warned"),
    [
        (20, 1.0, "dirichlet", True),
        (1, 0.1, "dirichlet", False),
        (2, 20.0, "dirichlet", False),
        (20, 1.0, "geometric", False),
    ],
)
def test_many_draws_that_leave_little_of_each_record_are_warned_of(draws, epsilon, mechanism, warned):
    """Whichever way they are asked for; the warning names what to do instead and no private number."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("n", n=500, p=p, observed=[417, 60, 23])
    target = dirdp.ApproxDP(epsilon=epsilon, delta=1e-6)
    for call in (dirdp.plan, planned_sample):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = call(target, model, released_draws=draws, mechanism=mechanism)
        messages = [str(one.message) for one in caught if one.category is dirdp.errors.ManyDrawsWarning]
        assert len(messages) == warned
        if mechanism == "dirichlet":
            r = made.parts[0].mechanism.r if call is dirdp.plan else float(made["mechanism/p"]["r"])
            assert warned == (draws > 1 and r < 0.1)
        for text in messages:
            assert f"counts {r:.2g} of every record of 'p'" in text
            assert "dirdp.analyse(release)" in text
            assert "417" not in text


@pytest.mark.parametrize(
    ("n_tables", "tail"),
    [(1, ""), (3, ", 'p1' by geometric, 'p2' by geometric"), (4, ", 'p1' by geometric, 2 more tables")],
)
def test_a_plan_in_one_line(n_tables, tail):
    with pm.Model() as model:
        for k in range(n_tables):
            pm.Multinomial(f"x{k}", n=6, p=pm.Dirichlet(f"p{k}", np.ones(3)), observed=[1, 2, 3])
    plan = dirdp.plan(APPROX, model, mechanism="geometric")
    assert repr(plan) == f"Plan((1, 1e-06)-differential privacy, 'p0' by geometric{tail})"


HAIR = [108, 286, 71, 127]  # Snee (1974)
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def hair_model(n=592, prior=(1, 1, 1, 1), counts=HAIR):
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=prior)
        pm.Multinomial("students", n=n, p=p, observed=counts)
    return model


@pytest.mark.parametrize(
    "changed",
    [
        {"n": 593, "counts": [109, 286, 71, 127]},
        {"prior": (1, 1, 1, 2)},
        {"prior": (1, 1, 1), "counts": [394, 71, 127]},
    ],
)
def test_a_plan_is_for_one_model(changed):
    plan = dirdp.plan(TARGET, hair_model())
    with pytest.raises(dirdp.errors.UnsupportedModelError, match="not the one that was planned"):
        dirdp.sample(plan, hair_model(**changed))
    # Other counts are what it is for.
    assert dirdp.sample(plan, hair_model(counts=[107, 287, 71, 127])).attrs["plan_digest"] == plan.digest


def test_a_plan_beside_any_option_is_an_error_also_if_it_equals_the_default():
    """Finding 12: an add-remove plan with `adjacency="replace-one"` beside it was released without a word."""
    plan = dirdp.plan(TARGET, hair_model(), adjacency="add-remove", n_records=500)
    for field in dataclasses.fields(Options):
        name, value = field.name, field.default
        problem = f"already decides {name}" if name in get_type_hints(Sampling) else f"Call plan\\(..., {name}="
        with pytest.raises(dirdp.errors.ArgumentError, match=problem):
            dirdp.sample(plan, hair_model(), **{name: value})
    with pytest.raises(TypeError, match="unexpected keyword argument 'adjacancy'"):
        dirdp.sample(plan, hair_model(), adjacancy="replace-one")
    with pytest.raises(TypeError, match="unexpected keyword argument 'adjacancy'"):
        dirdp.sample(TARGET, hair_model(), adjacancy="replace-one")


def test_a_plan_for_another_unit():
    with pm.Model(coords={"household": range(4)}) as model:
        p = pm.Dirichlet("p", np.ones(2))
        pm.Categorical("y", p=p, observed=[0, 1, 1, 0], dims="household")
    plan = dirdp.plan(TARGET, model, unit="household")
    with pytest.raises(
        dirdp.errors.ArgumentError, match="This plan protects unit='household'; sample was asked for unit='pe"
    ):
        dirdp.sample(plan, model, unit="person")


WRONG = [
    True, np.True_, -5, 5.5, 2.0, np.int64(5), np.float32(5), 10**400, math.nan, "x", b"x", (), {},
    {"p": True}, {"p": np.int64(5)}, {1: 5}, [None], object(), np.array([1, 2]),
]  # fmt: skip


@pytest.mark.parametrize("option", [field.name for field in dataclasses.fields(Options)])
def test_what_plan_admits_is_read_again_and_all_else_is_refused_in_words(option, tmp_path):
    """N1: `592.0` and `True` were charged and saved and could not be loaded; NumPy's integers were a `TypeError`."""
    admitted = 0
    for value in WRONG:
        options = {"adjacency": "add-remove", "mechanism": "geometric"} | {option: value}
        try:
            chosen = dirdp.plan(dirdp.PureDP(epsilon=1.0), hair_model(), **options)
        except dirdp.errors.DirdpError as error:
            assert not isinstance(error, dirdp.errors.InternalError), value  # noqa: PT017
            continue
        admitted += 1
        dirdp.save(chosen, tmp_path / f"{admitted}.json")
        assert dirdp.load(tmp_path / f"{admitted}.json") == chosen
    assert admitted < len(WRONG)


def test_numbers_of_records_are_integers():
    for value in (500, 500.0, np.int64(500), np.uint8(200), {"p": np.int32(500)}):
        (part,) = dirdp.plan(TARGET, hair_model(), adjacency="add-remove", n_records=value).parts
        assert type(part.n_records) is int
    for value in (True, 1000.5, -5, "x", 2**53 + 1, {"p": -1}, {"p": True}):
        with pytest.raises(ArgumentError, match="n_records"):
            Options(adjacency="add-remove", n_records=value)


@pytest.mark.parametrize("number", [592.0, np.float64(592), "592", True])
def test_what_could_not_be_read_is_never_charged(number):
    plan = dirdp.plan(TARGET, hair_model())
    part = dataclasses.replace(plan.parts[0])
    object.__setattr__(part, "n_records", number)
    damaged = dataclasses.replace(plan)
    object.__setattr__(damaged, "parts", (part,))
    ledger = dirdp.Ledger(TARGET)
    with pytest.raises(dirdp.errors.InternalError, match=r"nothing was drawn or charged\. Please report this"):
        check_readable(damaged)
    if isinstance(number, float):
        # It is an integer again when the plan is bound to the model.
        release = dirdp.sample(damaged, hair_model(), ledger=ledger)
        assert dirdp.verify(release)
        assert '"n_records": 592,' in text_of(release)
    else:
        with pytest.raises(dirdp.DirdpError):
            dirdp.sample(damaged, hair_model(), ledger=ledger)
        assert not ledger.entries()


@pytest.mark.parametrize("mechanism", ["geometric", "dirichlet", "auto"])
def test_an_expected_error_rests_on_the_sizes_of_rows_that_are_public(mechanism):
    """They were taken for private: (1990, 10) and (1000, 1000) had one number, and one erred four times as much."""
    expected, texts = [], []
    for sizes in ([1000, 1000], [1900, 100], [1990, 10]):
        with pm.Model(coords={"arm": ["a", "b"]}):
            p = pm.Beta("p", 1, 1, dims="arm")
            pm.Binomial("conv", n=sizes, p=p, observed=[3, 3], dims="arm")
            planned = dirdp.plan(dirdp.ApproxDP(epsilon=0.5, delta=1e-6), public=["conv"], mechanism=mechanism)
        lines = dirdp.report(planned, full=True).sections[0][1]
        texts.append(dict(lines))
        (error,) = (text for _, text in lines if text.endswith("(dirdp.estimate)"))
        expected.append(float(re.search(r"off by ([.\d]+)", error)[1]))
    assert expected[0] < 0.6 * expected[1] < 0.5 * expected[2]
    assert [lines["smallest share"] for lines in texts] == list(
        dict.fromkeys(lines["smallest share"] for lines in texts)
    )
