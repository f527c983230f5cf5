"""Every refusal of a model, and its way out, applied as it is written: the second model is read.

Refusals of what a release would say of people are in the zoo.
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.models.observations import read_counts
from pymc_dirdp.models.refusals import REFUSALS
from tests.planned import read_people

from .small import CODES, YES, N, beta, built, categorical, coded, counted, markov_chain, simplex, tossed, tried
from .test_zoo import ZOO, says

TARGET = dirdp.ApproxDP(epsilon=3, delta=1e-3)
STEPS = np.stack([CODES, CODES[::-1], np.roll(CODES, 3)], axis=1)
SEEN = {"observed": [1, 2]}
DRAWN = {"dist": lambda b, size: pm.Binomial.dist(3, b, size=size)}
FIRST = categorical(np.full(3, 1 / 3))
ORDERED = {"transform": pm.distributions.transforms.ordered, "initval": [0.2, 0.4]}


def taken(name):
    tossed(beta(name=name), name="z")
    pm.BetaBinomial("y", n=N, alpha=1, beta=1, observed=1)


def predicted(**given):
    tossed(b := beta())
    pm.Binomial("future", n=10, p=b, **given)


def parent(**given):
    cls = pm.Categorical("class", p=simplex(3, name="share") if given else [0.2, 0.3, 0.5], shape=N, **given)
    tossed(beta(3)[cls])


def prior(of):
    return of(pm.Data("a", np.ones(3)))


def shaped(alpha):
    pm.BetaBinomial("y", n=3, alpha=alpha, beta=1, observed=pm.Data("data", [1, 1, 1]))


def labelled(labels):
    pm.modelcontext(None).add_coord("answer", labels)
    coded(pm.Dirichlet("p", np.ones(3), dims="answer"))


def mixed(*components, w):
    pm.Mixture("y", w=w, comp_dists=list(components), **SEEN)


def transformed(**options):
    pm.modelcontext(None).register_rv(pm.Binomial.dist(n=3, p=beta()), "y", observed=1, **options)


def read_off(use):
    tossed(beta(), observed=use(pm.Data("x", YES)))


class Mine(pm.Bernoulli.rv_type):
    """A subclass of a known op, which may have another likelihood."""


class MyDistribution(pm.Bernoulli):
    rv_op = Mine()


def chain(P, first=FIRST, observed=STEPS, **options):
    markov_chain("path", P, first, observed, **options)


def steps_apart():
    P = simplex(2, 3, 3, name="P")
    for step in (0, 1):
        coded(P[step][STEPS[:, step]], STEPS[:, step + 1], f"step {step}")


def steps_together(P, *rows):
    coded(P[(*rows, STEPS[:, :-1])], observed=STEPS[:, 1:])


# What is refused, with a reason by its key, and words of the refusal.
REFUSED = [
    ("nothing", lambda: None, ""),
    ("potential", lambda: (tossed(b := beta()), pm.Potential("squared", 2 * pm.math.log(b))), "'squared'"),
    ("observed parameter", lambda: tossed(beta(observed=0.5)), "'b'"),
    ("no child", lambda: (tossed(beta()), beta(name="c")), "'c'"),
    ("name taken", lambda: taken("y_p"), "'y_p'"),
    ("missing values", lambda: coded(simplex(3), np.ma.masked_values([0, -1, 2], -1)), "category of their own"),
    ("missing values", lambda: tossed(beta(), observed=[1, np.nan, 0]), "of their own"),
    ("missing values", lambda: counted(simplex(3), np.ma.masked_values([[1, 1, 1], [2, -1, -1]], -1), 3), "'y'"),
    ("unobserved prediction", lambda: predicted(observed=None), "'future'"),
    ("hidden parent", parent, "'class'"),
    ("hyperparameter", lambda: coded(pm.Dirichlet("p", pm.Gamma("scale", 1, 1) * np.ones(3))), "'scale'"),
    ("hyperparameter", lambda: shaped(pm.HalfNormal("scale")), "'scale'"),
    (
        "other parameter",
        lambda: (tossed(beta()), pm.Normal("z", 0, pm.HalfNormal("spread"), observed=[0.5])),
        "'spread'",
    ),
    ("other variable", lambda: (tossed(beta()), pm.Normal("noise")), "'noise'"),
    ("uniform bounds", lambda: tossed(pm.Uniform("b", 0.1, 1)), "'b'"),
    ("transform", lambda: tossed(beta(2, **ORDERED), observed=[0, 1]), "'b'"),
    ("random prior", lambda: (coded(p := simplex(3)), coded(pm.Dirichlet("q", 10 * p), name="z")), "'q'"),
    ("prior of data", lambda: prior(lambda a: coded(pm.Dirichlet("x", a))), "'x' has a prior"),
    ("prior of data", lambda: prior(lambda a: coded(pm.Dirichlet("x", np.ones(3) * a.shape[0] * a[0]))), "'x' has"),
    ("prior of data", lambda: prior(lambda a: tossed(beta(a[0].astype("int64"), name="x"), observed=[1])), "'x' has"),
    ("prior of data", lambda: prior(lambda a: pm.BetaBinomial("x", n=5, alpha=a[0], beta=2, observed=1)), "'x' has"),
    # No option names an array that the model does not know.
    ("prior of data", lambda: coded(pm.Dirichlet("x", pytensor.shared(np.ones(3), name="s"))), "data a pm.Data"),
    ("free input", lambda: tossed(pm.Beta("b", 1, pt.dscalar("beta"))), "'b'"),
    ("prior shape", lambda: shaped([1.0, 2.0]), "'y'"),
    ("one category", lambda: counted(simplex(1), np.array([3])), "'p'"),
    ("labels", lambda: labelled(["a", "b"]), "'p'"),
    ("unbounded trials", lambda: pm.Geometric("y", p=beta(), observed=[1, 3]), "Geometric"),
    ("unbounded trials", lambda: pm.NegativeBinomial("y", n=3, p=beta(), **SEEN), "NegBinomial"),
    ("hidden component", lambda: mixed(pm.Bernoulli.dist(0.2), pm.Bernoulli.dist(0.7), w=simplex(2)), "'y'"),
    ("hidden component", lambda: mixed(*map(pm.Poisson.dist, (1, 9)), w=pt.stack([b := beta(), 1 - b])), "'y'"),
    ("hidden component", lambda: pm.ZeroInflatedBinomial("y", psi=beta(), n=3, p=0.5, **SEEN), "'y'"),
    ("hidden values", lambda: pm.Censored("y", pm.Binomial.dist(3, beta()), lower=1, upper=3, **SEEN), "Censored"),
    ("hidden values", lambda: pm.Truncated("y", pm.Binomial.dist(3, beta()), upper=3, **SEEN), "Truncated"),
    ("not conjugate", lambda: pm.Poisson("y", mu=beta(), observed=YES), "Poisson"),
    ("not conjugate", lambda: (beta(), pm.HyperGeometric("y", N=10, k=5, n=3, **SEEN)), "HyperGeometric"),
    ("not conjugate", lambda: pm.CustomDist("y", beta(), logp=lambda x, b: pt.log(b) * x, **SEEN), "CustomDist"),
    ("not conjugate", lambda: pm.CustomDist("y", beta(), **DRAWN, **SEEN), "Custom"),
    ("not conjugate", lambda: MyDistribution("bernoulli", beta(), observed=[0, 1]), "Mine"),
    ("total size", lambda: tossed(beta(), total_size=100), "'y'"),
    ("transformed observations", lambda: transformed(transform=pm.distributions.transforms.log), "'y'"),
    ("computed observations", lambda: read_off(lambda x: x[[0, 1]]), "pm.Data"),
    ("computed observations", lambda: read_off(lambda _: pm.Minibatch(1.0 * YES, batch_size=2)), "pm.Data"),
    ("computed observations", lambda: read_off(lambda x: x[x]), "pm.Data"),
    ("computed observations", lambda: read_off(lambda x: x[None]), "pm.Data"),
    ("computed observations", lambda: chain(simplex(3, 3), observed=pt.as_tensor(STEPS) + 0), "'path'"),
    ("random trials", lambda: tried(b := beta(), pt.round(9 * b).astype(int), 1), "'y'"),
    ("no parameter", lambda: (tossed(beta()), tossed(0.5, name="z")), "'z'"),
    ("no parameter", lambda: tossed(pm.Beta.dist(1, 1)), "'y'"),
    ("no parameter", lambda: pm.OrderedLogistic("y", eta=0.0, cutpoints=[-1.0, 1.0], observed=[0, 1, 2]), "'y'"),
    ("one of many", lambda: tossed(simplex(3)[0]), "'p', which is a Dirichlet variable"),
    ("one of many", lambda: tried(simplex(3), 9, [1, 1, 1]), "'p', which is a Dirichlet variable"),
    ("mixed rows", lambda: counted(beta(2, 2)[0], np.array([1, 2])), "'b', which is a Beta variable"),
    ("mixed rows", lambda: counted(beta()[None], np.array([3])), "'b', which is a Beta variable"),
    ("mixed rows", lambda: coded(pt.stack([p := simplex(2), pt.stack([p[0], p[0]])]), np.zeros((5, 2), int)), "'p'"),
    ("formula", lambda: tossed(pm.math.invlogit(beta())), "'y'"),
    ("some categories", lambda: coded(simplex(4)[:3]), "'y'"),
    ("last axis", lambda: coded(simplex(3)[:, None], observed=np.zeros(3, int)), "'y'"),
    ("chain", lambda: chain(simplex(2, 3, 3, name="P"), time_varying_P=True), "for every step"),
    ("chain", lambda: chain(simplex(N, 3, 3, name="P")), "several matrices"),
    ("chain", lambda: chain(simplex(3, 3, name="P"), categorical(simplex(N, 3))), "states that are not from one row"),
    ("chain", lambda: chain(simplex(3, 3), pm.Binomial.dist(n=2, p=beta())), "states that are not from one row"),
]
# What is written in its place, and what is said of that.
INSTEAD = [
    (["nothing", "observed parameter", "other parameter", "other variable"], lambda: tossed(beta()), {}),
    (["not conjugate", "total size"], lambda: tossed(beta()), {}),
    (["potential"], lambda: tossed(pm.Beta("b", 1 + 2, 1)), {}),
    (["no child", "no parameter"], lambda: (tossed(beta()), tossed(beta(name="c"), name="z")), {}),
    (["name taken"], lambda: taken("other"), {}),
    (["missing values"], lambda: coded(simplex(3), observed=[0, 2]), {"adjacency": "add-remove"}),
    (["unobserved prediction"], lambda: predicted(observed=3), {"contribution": 11}),
    (["hidden parent"], lambda: parent(observed=CODES), {"unit": 0}),
    (["hyperparameter", "prior of data"], lambda: coded(pm.Dirichlet("p", 2.0 * np.ones(3))), {}),
    (["prior of data"], lambda: prior(lambda a: coded(pm.Dirichlet("x", a))), {"public": ["a"]}),
    (["hyperparameter"], lambda: shaped(2.0), {"contribution": 1}),
    (["uniform bounds"], lambda: tossed(pm.Uniform("b", 0, 1)), {}),
    (["transform"], lambda: tossed(beta(2), observed=[0, 1]), {}),
    (["random prior"], lambda: (coded(simplex(3)), coded(pm.Dirichlet("q", [3.0, 4.0, 3.0]), name="z")), {}),
    (["free input"], lambda: tossed(pm.Beta("b", 1, 2)), {}),
    (["prior shape"], lambda: shaped([1.0, 2.0, 1.0]), {"contribution": 1}),
    (["one category"], lambda: counted(simplex(2), np.array([3, 0])), {}),
    (["labels"], lambda: labelled(["a", "b", "c"]), {}),
    # Two successes after 1 and after 3 trials.
    (["unbounded trials"], lambda: tossed(beta(), observed=[1, 0, 0, 1]), {"contribution": 3}),
    (["hidden component"], lambda: tossed(beta(2)[tossed(simplex(2)[1], name="component")]), {"unit": 0}),
    (["hidden values"], lambda: tried(beta(), 3, [0, 2]), {"contribution": 3}),
    (["transformed observations"], transformed, {}),
    (["computed observations"], lambda: read_off(lambda x: x), {}),
    (["computed observations"], lambda: tossed(beta(), observed=pm.Data("x", YES)[:2]), {}),
    (["random trials"], lambda: tried(beta(), 9, 1), {}),
    (["one of many", "formula"], lambda: tossed(1 - beta()), {}),
    (["one of many", "some categories", "mixed rows"], lambda: coded(simplex(3)), {}),
    (["last axis"], lambda: coded(simplex(3)[None, :], observed=np.zeros(3, int)), {}),
    (["chain"], steps_apart, {"unit": 0}),
    (["chain"], lambda: steps_together(simplex(N, 3, 3, name="P"), np.indices((N, 2))[0]), {"unit": 0}),
    (["chain"], lambda: (coded(simplex(N, 3), name="first"), steps_together(simplex(3, 3, name="P"))), {"unit": 0}),
]


@pytest.mark.filterwarnings("ignore::pymc.exceptions.ImputationWarning", "ignore:invalid value encountered in cast")
@pytest.mark.filterwarnings("ignore:total_size not provided:UserWarning")
@pytest.mark.parametrize(
    ("key", "build", "words"), [pytest.param(*one, id=f"{one[0]} {i}") for i, one in enumerate(REFUSED)]
)
def test_what_is_refused_is_said_with_its_way_out(key, build, words):
    with pytest.raises(UnsupportedModelError) as caught:
        read_people(built(build))
    said = str(caught.value)
    assert says(key, said), said
    assert words in said, said
    assert "{" not in said


@pytest.mark.parametrize(("keys", "build", "said"), [pytest.param(*one, id=" ".join(one[0])) for one in INSTEAD])
def test_what_is_written_in_its_place_is_read(keys, build, said):
    read = read_people(built(build), **said)
    assert all(read_counts(read.observed(table)).shape == table.shape for table in read.tables)


def test_every_refusal_has_a_case_and_is_a_part_of_a_sentence_or_whole_sentences():
    of_people = {animal.expected["key"] for animal in ZOO.values() if animal.expected.get("key")}
    with_way_out = {key for keys, *_ in INSTEAD for key in keys}
    assert with_way_out <= {key for key, *_ in REFUSED}
    assert with_way_out | of_people == set(REFUSALS)
    for one in REFUSALS.values():
        assert not one.reason.endswith(".")
        assert one.way_out[-1] in ".}"


def test_swapped_arguments_are_recognised():
    model, plan = built(lambda: tossed(beta())), dirdp.plan(TARGET, built(lambda: tossed(beta())))
    for arguments, message in (
        ((model, TARGET), r"the guarantee ApproxDP\. The guarantee comes first, then the model"),
        ((model, model), r"Expected a guarantee such as .* got a Model"),
        ((TARGET, {}), "Expected a PyMC model, got a dict"),
        ((TARGET,), r"Expected a PyMC model, got none\. Pass it as `model=`"),
    ):
        for call in (dirdp.sample, dirdp.plan):
            with pytest.raises(ArgumentError, match=message):
                call(*arguments)
    with pytest.raises(ArgumentError, match=r"got a Plan\. The plan comes first, then the model"):
        dirdp.sample(model, plan)
    with pytest.raises(TypeError, match=r"^sample\(\) got an unexpected keyword argument 'tune'\. It has guarantee"):
        dirdp.sample(TARGET, model, tune=1000, chains=2)
    with pytest.raises(ArgumentError, match="Expected a PyMC model, got a ReleaseTree"):
        dirdp.diagnose(model, dirdp.sample(plan, model))
