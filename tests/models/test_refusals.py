"""Every refusal of a model, and its way out, applied as it is written: the second model is read.

Refusals of what a release would say of people are in the zoo.
"""

from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.models.observations import read_counts
from pymc_dirdp.models.refusals import REFUSALS
from tests.planned import read_people

from .markov import categorical, markov_chain
from .small import CODES, YES, N, beta, built, coded, simplex, tossed, tried
from .test_zoo import ZOO, says

TARGET = dirdp.ApproxDP(epsilon=3, delta=1e-3)
STEPS = np.stack([CODES, CODES[::-1], np.roll(CODES, 3)], axis=1)
SEEN = {"observed": [1, 2]}


class Case(NamedTuple):
    """What is refused, what is written in its place if anything, what is said of that one, and words of the refusal."""

    refused: object
    instead: object
    said_instead: dict
    words: str


CASES: dict[str, list[Case]] = {}


def case(key, refused, instead=None, words="", **said_instead):
    CASES.setdefault(key, []).append(Case(refused, instead, said_instead, words))


# What else a model holds

case("nothing", lambda: None, lambda: tossed(beta()))
case(
    "potential",
    lambda: (tossed(b := beta()), pm.Potential("squared", 2 * pm.math.log(b))),
    lambda: tossed(pm.Beta("b", 1 + 2, 1)),
    words="'squared'",
)
case("observed parameter", lambda: tossed(beta(observed=0.5)), lambda: tossed(beta()), words="'b'")
case(
    "no child",
    lambda: (tossed(beta()), beta(name="c")),
    lambda: (tossed(beta()), tossed(beta(name="c"), name="z")),
    words="'c'",
)


def taken(name):
    tossed(beta(name=name), name="z")
    pm.BetaBinomial("y", n=N, alpha=1, beta=1, observed=1)


case("name taken", lambda: taken("y_p"), lambda: taken("other"))
case(
    "missing values",
    lambda: coded(simplex(3), observed=np.ma.masked_values([0, -1, 2], -1)),
    lambda: coded(simplex(3), observed=[0, 2]),
    adjacency="add-remove",
)
case("missing values", lambda: tossed(beta(), observed=[1, np.nan, 0]), words="of their own")
case(
    "missing values",
    lambda: pm.Multinomial("y", n=3, p=simplex(3), observed=np.ma.masked_values([[1, 1, 1], [2, -1, -1]], -1)),
)

# Variables that are not released


def predicted(**given):
    tossed(b := beta())
    pm.Binomial("future", n=10, p=b, **given)


def parent(**given):
    cls = pm.Categorical("class", p=simplex(3, name="share") if given else [0.2, 0.3, 0.5], shape=N, **given)
    tossed(beta(3)[cls])


case(
    "unobserved prediction",
    lambda: predicted(observed=None),
    lambda: predicted(observed=3),
    words="'future'",
    contribution=11,
)
case("hidden parent", parent, lambda: parent(observed=CODES), words="'class'", unit=0)
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
    lambda: tossed(beta(2, **ORDERED), observed=[0, 1]),
    lambda: tossed(beta(2), observed=[0, 1]),
    words="'b'",
)

# Priors

case(
    "random prior",
    lambda: (coded(p := simplex(3)), coded(pm.Dirichlet("q", 10 * p), name="z")),
    lambda: (coded(simplex(3)), coded(pm.Dirichlet("q", [3.0, 4.0, 3.0]), name="z")),
    words="'q'",
)
for prior in (
    lambda a: coded(pm.Dirichlet("x", a)),
    lambda a: coded(pm.Dirichlet("x", np.ones(3) * a.shape[0] * a[0])),
    lambda a: tossed(beta(a[0].astype("int64"), name="x"), observed=[1]),
    lambda a: pm.BetaBinomial("x", n=5, alpha=a[0], beta=2, observed=1),
):
    case("prior of data", lambda prior=prior: prior(pm.Data("a", np.ones(3))), words="'x' has a prior")
case("free input", lambda: tossed(pm.Beta("b", 1, pt.dscalar("beta"))), lambda: tossed(pm.Beta("b", 1, 2)), words="'b'")
case(
    "prior shape",
    lambda: pm.BetaBinomial("y", n=3, alpha=[1.0, 2.0], beta=1, observed=pm.Data("data", [1, 1, 1])),
    lambda: pm.BetaBinomial("y", n=3, alpha=[1.0, 2.0, 1.0], beta=1, observed=pm.Data("data", [1, 1, 1])),
    contribution=1,
)
case(
    "one category",
    lambda: pm.Multinomial("y", n=3, p=simplex(1), observed=[3]),
    lambda: pm.Multinomial("y", n=3, p=simplex(2), observed=[3, 0]),
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
    lambda: tossed(beta(), observed=[1, 0, 0, 1]),
    contribution=3,
)
case(
    "hidden component",
    lambda: pm.Mixture("y", w=simplex(2), comp_dists=[pm.Bernoulli.dist(0.2), pm.Bernoulli.dist(0.7)], observed=YES),
    lambda: tossed(beta(2)[tossed(simplex(2)[1], name="component")]),
    unit=0,
)
case(
    "hidden component",
    lambda: pm.Mixture("y", w=pt.stack([b := beta(), 1 - b]), comp_dists=pm.Poisson.dist([1, 9]), **SEEN),
)
case("hidden component", lambda: pm.ZeroInflatedBinomial("y", psi=beta(), n=3, p=0.5, **SEEN))
case(
    "hidden values",
    lambda: pm.Censored("y", pm.Binomial.dist(n=5, p=beta()), lower=1, upper=3, observed=[1, 2]),
    lambda: tried(beta(), 9, [0, 2]),
    words="Censored",
    contribution=9,
)
case("hidden values", lambda: pm.Truncated("y", pm.Binomial.dist(n=5, p=beta()), upper=3, **SEEN), words="Truncated")


class Mine(pm.Bernoulli.rv_type):
    """A subclass of a known op, which may have another likelihood."""


class MyDistribution(pm.Discrete):
    rv_op = Mine()

    @classmethod
    def dist(cls, p, **kwargs):
        return super().dist([p], **kwargs)

    def logp(value, p):  # noqa: N805 (PyMC calls it so)
        return value * pt.log(p)


def drawn(b, size):
    return pm.Binomial.dist(3, b, size=size)


case("not conjugate", lambda: pm.Poisson("y", mu=beta(), observed=YES), lambda: tossed(beta()), words="Poisson")
case("unbounded trials", lambda: pm.NegativeBinomial("y", n=3, p=beta(), **SEEN), words="NegBinomial")
case("not conjugate", lambda: (beta(), pm.HyperGeometric("y", N=10, k=5, n=3, **SEEN)), words="HyperGeometric")
case("not conjugate", lambda: pm.CustomDist("y", beta(), logp=lambda x, b: pt.log(b) * x, **SEEN), words="CustomDist")
case("not conjugate", lambda: pm.CustomDist("y", beta(), dist=drawn, **SEEN), words="Custom")
case("not conjugate", lambda: MyDistribution("bernoulli", beta(), observed=[0, 1]), words="Mine")
case("total size", lambda: tossed(beta(), total_size=100), lambda: tossed(beta()))


def transformed(**options):
    pm.modelcontext(None).register_rv(pm.Binomial.dist(n=3, p=beta()), "y", observed=1, **options)


# PyMC offers no `transform=` for discrete variables, but its lower level has one.
case("transformed observations", lambda: transformed(transform=pm.distributions.transforms.log), lambda: transformed())
case(
    "computed observations",
    lambda: tossed(beta(), observed=pm.Data("x", YES)[[0, 1]]),
    lambda: tossed(beta(), observed=pm.Data("x", YES)[:2]),
)
for use in (
    lambda data: pm.Minibatch(1.0 * YES, batch_size=2),
    lambda data: data * 2,
    lambda data: data[data],
    lambda data: data[None],
):
    case("computed observations", lambda use=use: tossed(beta(), observed=use(pm.Data("x", YES))), words="pm.Data")
case(
    "random trials",
    lambda: pm.Binomial("y", n=pt.round(9 * (b := beta())).astype(int), p=b, observed=1),
    lambda: tried(beta(), 9, 1),
)

# Probabilities

case(
    "no parameter",
    lambda: (tossed(beta()), tossed(0.5, name="z")),
    lambda: (tossed(beta()), tossed(beta(name="c"), name="z")),
    words="'z'",
)
case("no parameter", lambda: tossed(pm.Beta.dist(1, 1)))
case("no parameter", lambda: pm.OrderedLogistic("y", eta=0.0, cutpoints=[-1.0, 1.0], observed=[0, 1, 2]))
case("one of many", lambda: tried(simplex(3), 9, [1, 1, 1]), words="'p', which is a Dirichlet variable")
case(
    "mixed rows",
    lambda: pm.Multinomial("y", n=3, p=beta(2, 2)[0], observed=[1, 2]),
    words="'b', which is a Beta",
)
case("mixed rows", lambda: pm.Multinomial("y", n=3, p=beta()[None], observed=[3]), words="'b', which is a Beta")
case("formula", lambda: tossed(pm.math.invlogit(beta())), lambda: tossed(1 - beta()))
case("some categories", lambda: coded(simplex(4)[:3]), lambda: coded(simplex(3)))
case(
    "last axis",
    lambda: coded(simplex(3)[:, None], observed=np.zeros(3, int)),
    lambda: coded(simplex(3)[None, :], observed=np.zeros(3, int)),
)
case("one of many", lambda: tossed(simplex(3)[0]), lambda: coded(simplex(3)))


def steps_apart():
    P = simplex(2, 3, 3, name="P")
    for step in (0, 1):
        coded(P[step][STEPS[:, step]], STEPS[:, step + 1], f"step {step}")


def steps_together(P, *rows):
    coded(P[(*rows, STEPS[:, :-1])], observed=STEPS[:, 1:])


FIRST = categorical(np.full(3, 1 / 3))
case(
    "chain",
    lambda: markov_chain("path", simplex(2, 3, 3, name="P"), FIRST, STEPS, time_varying_P=True),
    steps_apart,
    words="for every step",
    unit=0,
)
case(
    "chain",
    lambda: markov_chain("path", simplex(N, 3, 3, name="P"), FIRST, STEPS),
    lambda: steps_together(simplex(N, 3, 3, name="P"), np.repeat(np.arange(N)[:, None], 2, axis=1)),
    words="several matrices",
    unit=0,
)
case(
    "chain",
    lambda: markov_chain("path", simplex(3, 3, name="P"), categorical(simplex(N, 3)), STEPS),
    lambda: (coded(simplex(N, 3), name="first"), steps_together(simplex(3, 3, name="P"))),
    words="first states that are not from one row",
    unit=0,
)
case(
    "chain",
    lambda: markov_chain("path", simplex(3, 3), pm.Binomial.dist(n=2, p=beta()), STEPS),
    words="first states that are not from one row",
)
case("computed observations", lambda: markov_chain("path", simplex(3, 3), FIRST, pt.as_tensor(STEPS) + 0))


EACH = [pytest.param(key, one, id=f"{key} {i}") for key, several in CASES.items() for i, one in enumerate(several)]


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning", "ignore:invalid value encountered in cast")
@pytest.mark.filterwarnings("ignore:total_size not provided:UserWarning")
@pytest.mark.parametrize(("key", "one"), EACH)
def test_what_is_refused_is_said_with_its_way_out_which_is_read(key, one):
    model = built(one.refused)
    with pytest.raises(UnsupportedModelError) as caught:
        read_people(model)
    said = str(caught.value)
    assert says(key, said), said
    assert one.words in said, said
    assert key == "nothing" or any(f"'{name}'" in said for name in model.named_vars), said
    assert "{" not in said
    if one.instead is not None:
        read = read_people(built(one.instead), **one.said_instead)
        assert all(read_counts(read.observed(table)).shape == table.shape for table in read.tables)


def test_every_refusal_has_a_case_and_is_a_part_of_a_sentence_or_whole_sentences():
    said = {key for key, several in CASES.items() if any(one.instead for one in several)}
    said |= {animal.expected["key"] for animal in ZOO.values() if animal.expected.get("key")}
    assert said == set(REFUSALS)
    for one in REFUSALS.values():
        assert not one.reason.endswith(".")
        assert one.way_out[-1] in ".}"


def test_swapped_arguments_are_recognised():
    model, plan = built(lambda: tossed(beta())), dirdp.plan(TARGET, built(lambda: tossed(beta())))
    for call in (dirdp.sample, dirdp.plan):
        with pytest.raises(ArgumentError, match=r"the guarantee ApproxDP\. The guarantee comes first, then the model"):
            call(model, TARGET)
        with pytest.raises(ArgumentError, match=r"Expected a guarantee such as .* got a Model"):
            call(model, model)
        with pytest.raises(ArgumentError, match="Expected a PyMC model, got a dict"):
            call(TARGET, {})
    with pytest.raises(ArgumentError, match=r"got a Plan\. The plan comes first, then the model"):
        dirdp.sample(model, plan)
    with pytest.raises(TypeError, match=r"^sample\(\) got an unexpected keyword argument 'tune'\. It has guarantee"):
        dirdp.sample(TARGET, model, tune=1000, chains=2)
    with pytest.raises(ArgumentError, match="Expected a PyMC model, got a ReleaseTree"):
        dirdp.diagnose(model, dirdp.sample(plan, model))
    with pytest.raises(ArgumentError, match=r"Expected a PyMC model, got none\. Pass it as `model=`"):
        dirdp.sample(TARGET)
