"""One target for several tables: shares, weights, draws, disjoint people, several records of a person."""

import copy
import dataclasses
import math
import re
import warnings
from typing import get_type_hints

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DirdpError, InternalError, ManyDrawsWarning
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.releases.opened import text_of
from pymc_dirdp.releases.plan import Options, Sampling
from pymc_dirdp.texts.grammar import check_readable
from tests.planned import hair_model
from tests.releases.kinds import network

RENYI = dirdp.RenyiDP(order=4, epsilon=0.6)
APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
WRONG = [True, -5, 5.5, 2.0, np.int64(5), 10**400, math.nan, "x", b"x", (), {}, {"p": True}, {1: 5}, [None], object()]


def clinic():
    with pm.Model() as model:
        pm.Multinomial("x", n=50, p=pm.Dirichlet("p", np.ones(3)), observed=(30, 12, 8))
        pm.Multinomial("y", n=50, p=pm.Dirichlet("q", [0.5, 2.0]), observed=(20, 30))
        pm.Binomial("z", n=50, p=pm.Beta("rate", 1, 1), observed=5)
    return model


def twice():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("x", n=6, p=p, observed=[1, 2, 3])
        pm.Categorical("y", p=p, observed=[0, 0, 1])
    return model


@pytest.mark.parametrize(
    ("said", "divergences", "groups"),
    [
        ({}, [0.2, 0.2, 0.2], (("p", "q", "rate"),)),
        ({"weights": {"q": 4}}, [0.1, 0.4, 0.1], (("p", "q", "rate"),)),
        # A table that is in no group has records of anybody.
        ({"disjoint": [["p"], ["rate"]]}, [0.3, 0.3, 0.3], (("p", "q"), ("q", "rate"))),
    ],
)
def test_budgets_are_equal_unless_weights_or_groups_say_otherwise(said, divergences, groups):
    plan = dirdp.plan(RENYI, clinic(), **said)
    assert [part.mechanism.renyi(4) for part in plan.parts] == pytest.approx(divergences)
    assert plan.groups == groups
    assert plan.composition.satisfies(RENYI)
    approx = dirdp.plan(APPROX, clinic(), **said)
    assert approx.composition.satisfies(APPROX)
    assert approx.composition.epsilon(1e-6) > 0.98


def test_a_parameter_that_is_used_twice_has_records_of_the_people_who_are_stated():
    apart = dirdp.plan(APPROX, twice(), disjoint=[["x"], ["y"]])
    assert Contribution.of(apart.parts[0].mechanism.contribution) == Contribution()
    assert apart.parts[0].mechanism.epsilon(1e-6) > 0.98
    both = dirdp.plan(APPROX, twice(), contribution=2)
    assert Contribution.of(both.parts[0].mechanism.contribution) == Contribution(2)
    assert both.composition.satisfies(APPROX)
    assert "at most 2 records" in str(dirdp.report(both, full=True))


SIZES = {"adjacency": "add-remove"}
REFUSED = [
    (clinic, {"weights": [1, 2, 1]}, "got a list"),
    *((clinic, {"weights": {"q": weight}}, r"weights\['q'\] > 0") for weight in (0, -1, math.inf, math.nan)),
    (clinic, {"weights": {"rates": 1}}, "Did you mean 'rate'"),
    (clinic, {"disjoint": [["rates"], ["p"]]}, "Did you mean 'rate'"),
    (clinic, {"disjoint": [["p", "q"], ["x"]]}, "two groups of disjoint"),
    (clinic, {"disjoint": ["p", "q"]}, "each group of disjoint to be a list of names"),
    (clinic, SIZES | {"n_records": {"rates": 50}}, "Did you mean 'rate'"),
    (clinic, SIZES | {"n_records": {"p": 10}}, "n_records"),
    (twice, {}, "'p' is used twice: 'x' and 'y'"),
    (twice, {"disjoint": [["x", "y"]]}, "used twice"),
]


@pytest.mark.parametrize(("build", "said", "match"), REFUSED)
def test_what_is_stated_wrongly(build, said, match):
    with pytest.raises(DirdpError, match=match):
        dirdp.plan(APPROX, build(), **said)


def test_names_are_read_once_also_from_an_iterator():
    options = Options(public=iter(["n"]), disjoint=iter([["a"], ["b"]]))
    assert options.unit_options.public == ("n",)
    assert options.unit_options.disjoint == (("a",), ("b",))
    assert options.unit_options is options.unit_options


@pytest.mark.parametrize(("draws", "epsilon", "warned"), [(20, 1.0, True), (1, 0.1, False), (2, 1.0, False)])
def test_many_draws_that_leave_little_of_each_record_are_warned_of(draws, epsilon, warned):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        plan = dirdp.plan(dirdp.ApproxDP(epsilon=epsilon, delta=1e-6), hair_model(), released_draws=draws)
    messages = [str(one.message) for one in caught if one.category is ManyDrawsWarning]
    r = plan.parts[0].mechanism.r
    assert len(messages) == warned == (draws > 1 and r < 0.1)
    for text in messages:
        assert f"counts {r:.2g} of every record of 'p'" in text
        assert "dirdp.analyse(release)" in text
        assert "286" not in text


def test_a_plan_in_one_line():
    plan = dirdp.plan(APPROX, network(3), mechanism="geometric")
    shown = "'p_class' by geometric, 'p_feature 0' by geometric, 2 more tables"
    assert repr(plan) == f"Plan((1, 1e-06)-differential privacy, {shown})"


def test_a_plan_beside_any_option_is_an_error_also_if_it_equals_the_default():
    """Finding 12: an add-remove plan with `adjacency="replace-one"` beside it was released without a word."""
    plan = dirdp.plan(APPROX, hair_model(), adjacency="add-remove", n_records=500)
    for field in dataclasses.fields(Options):
        name, value = field.name, field.default
        problem = f"already decides {name}" if name in get_type_hints(Sampling) else f"Call plan\\(..., {name}="
        with pytest.raises(ArgumentError, match=problem):
            dirdp.sample(plan, hair_model(), **{name: value})
    with pytest.raises(ArgumentError, match="This plan protects single records; sample was asked for unit='pe"):
        dirdp.sample(plan, hair_model(), unit="person")
    for first in (plan, APPROX):
        with pytest.raises(TypeError, match="unexpected keyword argument 'adjacancy'"):
            dirdp.sample(first, hair_model(), adjacancy="replace-one")


@pytest.mark.parametrize("option", [field.name for field in dataclasses.fields(Options)])
def test_what_plan_admits_is_read_again_and_all_else_is_refused_in_words(option, tmp_path):
    """N1: `592.0` and `True` were charged and saved and could not be loaded; NumPy's integers were a `TypeError`."""
    admitted = 0
    for value in WRONG:
        options = {"adjacency": "add-remove", "mechanism": "geometric"} | {option: value}
        try:
            chosen = dirdp.plan(dirdp.PureDP(epsilon=1.0), hair_model(), **options)
        except DirdpError as error:
            assert not isinstance(error, InternalError), value  # noqa: PT017
            continue
        admitted += 1
        dirdp.save(chosen, tmp_path / f"{admitted}.json")
        assert dirdp.load(tmp_path / f"{admitted}.json") == chosen
    assert admitted < len(WRONG)


@pytest.mark.parametrize("number", [592.0, "592", True])
def test_what_could_not_be_read_is_never_charged(number):
    plan, ledger = dirdp.plan(APPROX, hair_model()), dirdp.Ledger(APPROX)
    part, damaged = copy.copy(plan.parts[0]), copy.copy(plan)
    object.__setattr__(part, "n_records", number)
    object.__setattr__(damaged, "parts", (part,))
    with pytest.raises(InternalError, match=r"nothing was drawn or charged\. Please report this"):
        check_readable(damaged)
    if isinstance(number, float):
        assert '"n_records": 592,' in text_of(dirdp.sample(damaged, hair_model(), ledger=ledger))
    else:
        with pytest.raises(DirdpError):
            dirdp.sample(damaged, hair_model(), ledger=ledger)
        assert not ledger.entries()


@pytest.mark.parametrize("mechanism", ["geometric", "dirichlet"])
def test_an_expected_error_rests_on_the_sizes_of_rows_that_are_public(mechanism):
    """They were taken for private: (1990, 10) and (1000, 1000) had one number, and one erred four times as much."""
    expected, smallest = [], []
    for sizes in ([1000, 1000], [1900, 100], [1990, 10]):
        with pm.Model(coords={"arm": ["a", "b"]}):
            p = pm.Beta("p", 1, 1, dims="arm")
            pm.Binomial("conv", n=sizes, p=p, observed=[3, 3], dims="arm")
            planned = dirdp.plan(dirdp.ApproxDP(epsilon=0.5, delta=1e-6), public=["conv"], mechanism=mechanism)
        lines = dirdp.report(planned, full=True).sections[0][1]
        smallest.append(dict(lines)["smallest share"])
        (error,) = (text for _, text in lines if text.endswith("(dirdp.estimate)"))
        expected.append(float(re.search(r"off by ([.\d]+)", error)[1]))
    assert expected[0] < 0.6 * expected[1] < 0.5 * expected[2]
    assert len(set(smallest)) == 3
