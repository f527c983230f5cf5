"""Every refusal of a model, and its way out, applied as it is written: the second model is released."""

import re
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.models.refusals import REFUSALS
from tests.planned import planned_sample

from .markov import categorical, markov_chain

TARGET = dirdp.ApproxDP(epsilon=3, delta=1e-3)
YES = np.array([1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 0, 1])
CODES = np.array([0, 2, 1, 1, 0, 2, 2, 0, 1, 0, 1, 2])
N = len(YES)
PEOPLE = {"person": range(N)}


class Case(NamedTuple):
    """What is refused and what is written in its place; what is said to `sample` for either; words of the refusal."""

    refused: object
    instead: object
    said: dict
    said_instead: dict
    words: str


CASES: dict[str, list[Case]] = {}


def case(key, refused, instead=None, said=None, said_instead=None, words=""):
    then = said or {} if said_instead is None else said_instead
    CASES.setdefault(key, []).append(Case(refused, instead or refused, said or {}, then, words))


def beta(name="b", **options):
    return pm.Beta(name, 1, 1, **options)


def simplex(*shape, name="p"):
    return pm.Dirichlet(name, np.ones(shape))


def tossed(p, name="y", **options):
    return pm.Bernoulli(name, p=p, observed=YES, **options)


def coded(p, name="y", **options):
    return pm.Categorical(name, p=p, observed=CODES, **options)


# What else a model holds

case("nothing", lambda: None, lambda: tossed(beta()))
case(
    "potential",
    lambda: (tossed(b := beta()), pm.Potential("squared", 2 * pm.math.log(b))),
    lambda: tossed(pm.Beta("b", 1 + 2, 1)),
    words="'squared'",
)
case("observed parameter", lambda: tossed(beta(observed=0.5)), lambda: tossed(beta()), words="'b'")
case("no child", lambda: (tossed(beta()), beta("c")), lambda: (tossed(beta()), tossed(beta("c"), "z")), words="'c'")
case(
    "name taken",
    lambda: (tossed(beta("y_p"), "z"), pm.BetaBinomial("y", n=N, alpha=1, beta=1, observed=1)),
    lambda: (tossed(beta("other"), "z"), pm.BetaBinomial("y", n=N, alpha=1, beta=1, observed=1)),
)


def missing(values, categories=3):
    pm.Categorical("y", p=simplex(categories), observed=values)


case(
    "missing values",
    lambda: missing(np.ma.masked_values([0, -1, 2], -1)),
    lambda: missing([0, 2]),
    said_instead={"adjacency": "add-remove", "n_records": 2},
)

# Variables that are not released


def predicted(**given):
    b = beta()
    tossed(b)
    pm.Binomial("future", n=10, p=b, **given)


case(
    "unobserved prediction",
    predicted,
    lambda: predicted(observed=3),
    said_instead={"contribution": 11},
    words="'future'",
)


def parent(**given):
    cls = pm.Categorical("class", p=simplex(3, name="share") if given else [0.2, 0.3, 0.5], shape=N, **given)
    tossed(beta(shape=3)[cls])


case("hidden parent", parent, lambda: parent(observed=CODES), said_instead={"unit": 0}, words="'class'")
case(
    "hyperparameter",
    lambda: coded(pm.Dirichlet("p", pm.Gamma("scale", 1, 1) * np.ones(3))),
    lambda: coded(pm.Dirichlet("p", 2.0 * np.ones(3))),
    words="'scale'",
)
case(
    "hyperparameter",
    lambda: pm.BetaBinomial("y", n=9, alpha=pm.HalfNormal("scale"), beta=1, observed=3),
    lambda: pm.BetaBinomial("y", n=9, alpha=2.0, beta=1, observed=3),
    words="'scale'",
)


def measured():
    spread = pm.HalfNormal("spread")
    return pm.Normal("z", pm.Normal("mean", 0, spread), 1, observed=[0.5, -1.0])


case("other parameter", lambda: (tossed(beta()), measured()), lambda: tossed(beta()))
case("other variable", lambda: (tossed(beta()), pm.Normal("noise")), lambda: tossed(beta()), words="'noise'")
case("uniform bounds", lambda: tossed(pm.Uniform("b", 0.1, 1)), lambda: tossed(pm.Uniform("b", 0, 1)), words="'b'")
ORDERED = {"transform": pm.distributions.transforms.ordered, "initval": [0.2, 0.4]}
case(
    "transform",
    lambda: pm.Bernoulli("y", p=beta(shape=2, **ORDERED), observed=[0, 1]),
    lambda: pm.Bernoulli("y", p=beta(shape=2), observed=[0, 1]),
    words="'b'",
)

# Priors

case(
    "random prior",
    lambda: (coded(p := simplex(3)), coded(pm.Dirichlet("q", 10 * p), "z")),
    lambda: (coded(simplex(3)), coded(pm.Dirichlet("q", [3.0, 4.0, 3.0]), "z")),
    words="'q'",
)
case("prior of data", lambda: tossed(pm.Beta("b", pm.Data("a", 2.0), 1)), lambda: tossed(pm.Beta("b", 2.0, 1)))
case("prior of data", lambda: tossed(pm.Beta("b", pm.Data("a", 2.0), 1)), said_instead={"public": ["a"]})
case(
    "prior of records",
    lambda: pm.Bernoulli("y", p=pm.Beta("b", 1 + (x := pm.Data("x", YES)).sum(), 1), observed=x),
    lambda: pm.Bernoulli("y", p=pm.Beta("b", 8, 1), observed=pm.Data("x", YES)),
    said={"public": ["x"]},
    said_instead={},
    words="'b'",
)
case("free input", lambda: tossed(pm.Beta("b", 1, pt.dscalar("beta"))), lambda: tossed(pm.Beta("b", 1, 2)), words="'b'")
case(
    "prior shape",
    lambda: pm.BetaBinomial("y", n=3, alpha=[1.0, 2.0], beta=1, observed=pm.Data("data", [1, 1, 1])),
    lambda: pm.BetaBinomial("y", n=3, alpha=[1.0, 2.0, 1.0], beta=1, observed=pm.Data("data", [1, 1, 1])),
    said_instead={"contribution": 1},
)
case(
    "one category",
    lambda: pm.Multinomial("y", n=3, p=pm.Dirichlet("p", [1.0]), observed=[3]),
    lambda: pm.Multinomial("y", n=3, p=pm.Dirichlet("p", [1.0, 1.0]), observed=[3, 0]),
    words="'p'",
)


def labelled(labels):
    pm.modelcontext(None).add_coord("answer", labels)
    coded(pm.Dirichlet("p", np.ones(3), dims="answer"))


case("labels", lambda: labelled(["a", "b"]), lambda: labelled(["a", "b", "c"]), words="'p'")

# Likelihoods

# Two successes after 1 and after 3 trials.
case(
    "unbounded trials",
    lambda: pm.Geometric("y", p=beta(), observed=[1, 3]),
    lambda: pm.Bernoulli("y", p=beta(), observed=[1, 0, 0, 1]),
    said_instead={"contribution": 3},
)
case(
    "hidden component",
    lambda: pm.Mixture("y", w=simplex(2), comp_dists=[pm.Bernoulli.dist(0.2), pm.Bernoulli.dist(0.7)], observed=YES),
    lambda: tossed(beta(shape=2)[tossed(simplex(2)[1], "component")]),
    said_instead={"unit": 0},
)
case(
    "hidden values",
    lambda: pm.Censored("y", pm.Binomial.dist(n=5, p=beta()), lower=1, upper=3, observed=[1, 2]),
    lambda: pm.Binomial("y", n=5, p=beta(), observed=[0, 2]),
    said_instead={"contribution": 5},
)
case("not conjugate", lambda: pm.Poisson("y", mu=beta(), observed=YES), lambda: tossed(beta()))
case(
    "total size",
    lambda: tossed(beta(), total_size=100),
    lambda: tossed(beta()),
)


def transformed(**options):
    model = pm.modelcontext(None)
    model.register_rv(pm.Binomial.dist(n=3, p=beta()), "y", observed=1, **options)


# PyMC offers no `transform=` for discrete variables, but its lower level has one.
case("transformed observations", lambda: transformed(transform=pm.distributions.transforms.log), transformed)
case(
    "computed observations",
    lambda: pm.Bernoulli("y", p=beta(), observed=pm.Data("x", YES)[[0, 1]]),
    lambda: pm.Bernoulli("y", p=beta(), observed=pm.Data("x", YES)[:2]),
)
case(
    "random trials",
    lambda: pm.Binomial("y", n=pt.round(9 * (b := beta())).astype(int), p=b, observed=1),
    lambda: pm.Binomial("y", n=9, p=beta(), observed=1),
)

# Probabilities

case(
    "no parameter",
    lambda: (tossed(beta()), pm.Bernoulli("z", p=0.5, observed=YES)),
    lambda: (tossed(beta()), pm.Bernoulli("z", p=beta("c"), observed=YES)),
    words="'z'",
)
case("formula", lambda: tossed(pm.math.invlogit(beta())), lambda: tossed(1 - beta()))
case(
    "some categories",
    lambda: pm.Categorical("y", p=simplex(3)[:2], observed=YES),
    lambda: pm.Categorical("y", p=simplex(2), observed=YES),
)
case(
    "mixed rows",
    lambda: pm.Categorical("y", p=beta(shape=2), observed=YES),
    lambda: pm.Categorical("y", p=simplex(2), observed=YES),
)
case(
    "last axis",
    lambda: pm.Categorical("y", p=simplex(3)[:, None], observed=np.zeros(3, int)),
    lambda: pm.Categorical("y", p=simplex(3)[None, :], observed=np.zeros(3, int)),
)
case("one of many", lambda: tossed(simplex(3)[0]), lambda: coded(simplex(3)))
case(
    "repeated rows",
    lambda: tossed(pm.math.stack([(b := beta(shape=2))[0], *[b[k] for k in YES[1:]]])),
    lambda: tossed(beta(shape=2)[YES]),
)
case(
    "computed codes",
    lambda: tossed(beta(shape=3)[pt.argsort(CODES) % 3]),
    lambda: tossed(beta(shape=3)[(pm.Data("codes", CODES) + 1) % 3]),
)
case(
    "tables by codes",
    lambda: tossed(pm.math.stack([beta(), beta("c")])[pm.Data("group", YES)]),
    lambda: tossed(beta(shape=2)[pm.Data("group", YES)]),
)
case(
    "tables by codes",
    lambda: tossed(pm.math.stack([beta(), beta("c")])[pm.Data("group", YES)]),
    said_instead={"adjacency": "add-remove", "n_records": N},
)

# People


def grid(codes=YES[:4], several=False):
    codes = np.repeat(codes[:, None], 3, axis=1) if several else codes
    p = beta(shape=2)[codes]
    pm.Bernoulli("y", p=p if several else p[:, None], observed=YES.reshape(4, 3))


case("used twice", lambda: (tossed(b := beta()), tossed(b, "z")), lambda: (tossed(beta()), tossed(beta("c"), "z")))
case(
    "used twice",
    lambda: (tossed(b := beta()), tossed(b, "z")),
    lambda: pm.Binomial("y", n=2 * N, p=beta(), observed=2 * YES.sum()),
)
case(
    "used twice",
    lambda: (tossed(b := beta()), pm.Bernoulli("z", p=b, observed=1 - YES)),
    said_instead={"disjoint": [["y"], ["z"]]},
)
case("used twice", lambda: (tossed(b := beta()), tossed(1 - b, "z")), said_instead={"contribution": 2})
case("shared codes", grid, said={"unit": (0, 1)}, said_instead={"unit": 0})
case("shared codes", grid, lambda: grid(several=True), said={"unit": (0, 1)})
case("few records", grid, said={"contribution": 2}, said_instead={"contribution": 3})
case("few records", grid, said={"contribution": 2}, said_instead={"unit": 0})


def sequence():
    x = pm.Data("x", CODES)
    pm.Categorical("y", p=simplex(3, 3)[x[:-1]], observed=x[1:])


def sequences():
    x = pm.Data("x", CODES.reshape(4, 3))
    pm.Categorical("y", p=simplex(3, 3)[x[:, :-1]], observed=x[:, 1:])


case("steps", sequence, said={"unit": 0}, said_instead={"contribution": 2})
case("steps", sequences, said={"unit": (0, 1)}, said_instead={"unit": 0})


def two_of_one_array(**groups):
    x = pm.Data("x", YES)
    pm.Bernoulli("y", p=beta(), observed=x)
    pm.Bernoulli("z", p=beta("c"), observed=x)


case("shared data", two_of_one_array, said={"disjoint": [["y"], ["z"]]}, said_instead={"disjoint": [["y", "z"]]})
case("shared data", two_of_one_array, said={"disjoint": [["y"], ["z"]]}, said_instead={"unit": None})

# Numbers that a release would publish


def funnel():
    d = pm.Data("d", np.array(7))
    pm.Binomial("visited", n=12, p=beta("visits"), observed=d)
    pm.Binomial("bought", n=d, p=beta(), observed=3)


case("trials are data", funnel, said_instead={"public": ["bought"]})
case("trials are data", funnel, said_instead={"adjacency": "add-remove", "n_records": 12})


def signed_up_and_bought(n=5):
    """Whoever signed up, of twelve, may buy."""
    pm.Binomial("signed", n=N, p=beta(), observed=5)
    pm.Binomial("bought", n=n, p=beta("c"), observed=2)


OTHERS = "'bought' has another number of records than 'signed'"
case("different numbers", signed_up_and_bought, said_instead={"public": ["bought"]}, words=OTHERS)
case("different numbers", signed_up_and_bought, said_instead={"disjoint": [["signed"], ["bought"]]}, words=OTHERS)
case("different numbers", signed_up_and_bought, said={"contribution": 1}, said_instead={"contribution": 2})
case("different numbers", signed_up_and_bought, said_instead={"adjacency": "add-remove", "n_records": N})
case(
    "different numbers",
    signed_up_and_bought,
    lambda: pm.Multinomial("answers", n=N, p=simplex(3), observed=[7, 3, 2]),
    words="one variable with a category for each outcome",
)
REMOVED = {"adjacency": "add-remove", "n_records": N}
case("row of each record", lambda: tossed(beta(shape=N)), said=REMOVED, said_instead={"adjacency": "replace-one"})


def integrated():
    pm.BetaBinomial("y", n=1, alpha=1, beta=1, observed=YES, dims="person")


case(
    "row of each person",
    integrated,
    said={**REMOVED, "unit": "person", "contribution": 1},
    said_instead={"unit": "person", "adjacency": "replace-one"},
)
case(
    "labels of people",
    lambda: tossed(pm.Beta("b", 1, 1, dims="person")[np.arange(N)], dims="person"),
    said=REMOVED,
    said_instead={"adjacency": "replace-one"},
)
case(
    "prior of a length",
    lambda: tossed(pm.Beta("b", 1, 1 / pm.modelcontext(None).dim_lengths["person"]), dims="person"),
    lambda: tossed(pm.Beta("b", 1, 1 / 10), dims="person"),
    said=REMOVED,
)


def three_steps():
    return np.stack([CODES, CODES[::-1], np.roll(CODES, 3)], axis=1)


def steps_apart():
    x, P = three_steps(), simplex(2, 3, 3, name="P")
    for step in (0, 1):
        pm.Categorical(f"step {step}", p=P[step][x[:, step]], observed=x[:, step + 1])


def steps_together(P, rows):
    x = three_steps()
    pm.Categorical("path", p=P[(*rows, x[:, :-1])], observed=x[:, 1:])


FIRST = np.full(3, 1 / 3)
case(
    "chain",
    lambda: markov_chain("path", simplex(2, 3, 3, name="P"), categorical(FIRST), three_steps(), time_varying_P=True),
    steps_apart,
    said={"unit": 0},
)
case(
    "chain",
    lambda: markov_chain("path", simplex(N, 3, 3, name="P"), categorical(FIRST), three_steps()),
    lambda: steps_together(simplex(N, 3, 3, name="P"), (np.repeat(np.arange(N)[:, None], 2, axis=1),)),
    said={"unit": 0},
)
case(
    "chain",
    lambda: markov_chain("path", simplex(3, 3, name="P"), categorical(simplex(N, 3)), three_steps()),
    lambda: (coded(simplex(N, 3)), steps_together(simplex(3, 3, name="P"), ())),
    said={"unit": 0},
)


def model_of(build):
    with pm.Model(coords=PEOPLE) as model:
        build()
    return model


def pattern(text):
    """A regular expression for a text whose names in braces have been filled in."""
    return ".*".join(re.escape(part) for part in re.split(r"\{[^}]*\}", text))


EACH = [pytest.param(key, one, id=f"{key} {i}") for key, several in CASES.items() for i, one in enumerate(several)]


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning")
@pytest.mark.parametrize(("key", "one"), EACH)
def test_what_is_refused_is_said_with_its_way_out(key, one):
    model = model_of(one.refused)
    with pytest.raises(UnsupportedModelError) as caught:
        planned_sample(TARGET, model, **one.said)
    said = str(caught.value)
    assert re.search(pattern(REFUSALS[key].reason), said), said
    assert re.search(pattern(REFUSALS[key].way_out), said)
    assert one.words in said, said
    assert key == "nothing" or any(f"'{name}'" in said for name in model.named_vars), said
    assert "{" not in said


@pytest.mark.thorough
@pytest.mark.parametrize(("key", "one"), EACH)
def test_what_is_written_in_its_place_is_released(key, one):
    release = planned_sample(TARGET, model_of(one.instead), **one.said_instead)
    assert dirdp.verify(release)


def test_every_refusal_has_a_case_and_is_a_part_of_a_sentence_or_whole_sentences():
    assert set(CASES) == set(REFUSALS)
    for one in REFUSALS.values():
        assert not one.reason.endswith(".")
        assert one.way_out[-1] in ".}"


# Arguments in each other's place


def test_swapped_arguments_are_recognised():
    model = model_of(lambda: tossed(beta()))
    for call in (dirdp.sample, dirdp.plan):
        with pytest.raises(
            ArgumentError, match=r"got the guarantee ApproxDP\. The guarantee comes first, then the model"
        ):
            call(model, TARGET)
        with pytest.raises(ArgumentError, match=r"Expected a guarantee such as .* got a Model"):
            call(model, model)
        with pytest.raises(ArgumentError, match="Expected a PyMC model, got a dict"):
            call(TARGET, {})
    with pytest.raises(ArgumentError, match=r"got a Plan\. The plan comes first, then the model"):
        dirdp.sample(model, dirdp.plan(TARGET, model))
    with pytest.raises(TypeError, match=r"^sample\(\) got an unexpected keyword argument 'tune'\. It has guarantee"):
        dirdp.sample(TARGET, model, tune=1000, chains=2)
    release = dirdp.sample(TARGET, model)
    with pytest.raises(ArgumentError, match="Expected a PyMC model, got a ReleaseTree"):
        dirdp.diagnose(model, release)
    with pytest.raises(ArgumentError, match=r"Expected a PyMC model, got none\. Pass it as `model=`"):
        dirdp.sample(TARGET)
