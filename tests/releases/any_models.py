"""Forty-two ordinary models of discrete data, as people write them: those that are accepted, and those that are not.

Each function makes a model and what to say about it. The data are drawn anew in each.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

N = 60
ACCEPTED, REFUSED = {}, {}


def rng():
    return np.random.default_rng(7)


def accepted(**said):
    def kept(make):
        ACCEPTED[make.__name__] = (make, said)
        return make

    return kept


def refused(match, **said):
    """What the refusal says, and what is said about the model."""

    def kept(make):
        REFUSED[make.__name__] = (make, match, said)
        return make

    return kept


def codes(k):
    """A covariate."""
    return rng().integers(k, size=N)


def answers(k):
    """What is observed."""
    return np.random.default_rng(8).integers(k, size=N)


@accepted(public=["group"])
def hierarchical_logit():
    group = pm.Data("group", codes(3))
    mean, spread = pm.Normal("mean", 0, 1), pm.HalfNormal("spread", 1)
    effect = pm.Normal("effect", mean, spread, shape=3)
    pm.Bernoulli("y", logit_p=effect[group], observed=answers(2))


@accepted(public=["group"])
def not_centred():
    group = pm.Data("group", codes(3))
    offset, spread = pm.Normal("offset", shape=3), pm.HalfNormal("spread", 1)
    effect = pm.Deterministic("effect", offset * spread)
    pm.Bernoulli("y", logit_p=effect[group], observed=answers(2))


@accepted(public=True)
def constant_codes():
    effect = pm.Normal("effect", shape=3)
    pm.Bernoulli("y", logit_p=effect[codes(3)], observed=answers(2))


@accepted(public=["region"])
def ordered_logit():
    region = pm.Data("region", codes(3))
    cuts = pm.Normal("cuts", [-1, 0, 1], 1, transform=pm.distributions.transforms.ordered, initval=[-1, 0, 1])
    slope = pm.Normal("slope", shape=3)
    pm.OrderedLogistic("y", eta=slope[region], cutpoints=cuts, observed=answers(4))


@accepted(levels={"region": 3})
def ordered_logit_private_region():
    ordered_logit()


@accepted(levels={"region": 3}, adjacency="add-remove")
def ordered_logit_private_everything():
    ordered_logit()


@accepted(public=["x"])
def ordered_probit():
    x = pm.Data("x", codes(3) - 1.0)
    cuts = pm.Normal("cuts", [-1, 1], 1, transform=pm.distributions.transforms.ordered, initval=[-1, 1])
    pm.OrderedProbit("y", eta=pm.Normal("slope") * x, cutpoints=cuts, observed=answers(3))


@accepted(public=["x", "z"])
def two_predictors():
    x, z = pm.Data("x", codes(2)), pm.Data("z", codes(3))
    pm.Bernoulli("y", logit_p=pm.Normal("a") + pm.Normal("b") * x + pm.Normal("c") * z, observed=answers(2))


@accepted(levels={"x": 2, "z": 3})
def two_private_predictors():
    two_predictors()


@accepted(public=["x"], levels={"z": 3})
def one_of_two_private():
    two_predictors()


@accepted(public=["X"])
def design_matrix():
    X = pm.Data("X", np.stack([np.ones(N), codes(2)], axis=1))
    pm.Bernoulli("y", logit_p=X @ pm.Normal("b", shape=2), observed=answers(2))


@accepted(public=["X"])
def softmax_regression():
    X = pm.Data("X", np.stack([np.ones(N), codes(2)], axis=1))
    pm.Categorical("y", p=pt.special.softmax(X @ pm.Normal("b", shape=(2, 3)), axis=-1), observed=answers(3))


@accepted()
def probit_without_covariates():
    pm.Bernoulli("y", p=pm.math.invprobit(pm.Normal("a")), observed=answers(2))


@accepted()
def test_without_a_gold_standard():
    prevalence, sensitivity, specificity = pm.Beta("prevalence", 1, 3), pm.Beta("se", 9, 1), pm.Beta("sp", 9, 1)
    pm.Bernoulli("y", p=prevalence * sensitivity + (1 - prevalence) * (1 - specificity), observed=answers(2))


@accepted(unit="trial")
def successes_of_one_group():
    pm.Binomial("y", n=90, p=pm.Beta("a", 2, 2) * pm.Beta("b", 2, 2), observed=30)


@accepted(unit="trial", public=["y"])
def successes_of_groups():
    mean = pm.Normal("mean")
    pm.Binomial("y", n=[20, 30, 25], logit_p=pm.Normal("e", mean, 1, shape=3), observed=[3, 9, 20])


@accepted(unit="trial", adjacency="add-remove")
def successes_of_private_groups():
    successes_of_groups()


@accepted(unit="record")
def scores():
    pm.Binomial("y", n=4, p=pm.Beta("p", 2, 2) ** 2, observed=answers(5))


@accepted(unit="trial", public=["y"])
def log_linear_table():
    effects = pm.Normal("row", shape=(3, 1)) * pm.Normal("column", shape=4)
    pm.Multinomial(
        "y", n=[30, 30, 40], p=pt.special.softmax(effects, axis=-1), observed=[[10, 5, 5, 10]] * 2 + [[10] * 4]
    )


@accepted()
def latent_class():
    share, yes = pm.Beta("share", 2, 2), pm.Beta("yes", 2, 2, shape=(2, 3))

    def logp(value, share, yes):
        each = (value[..., None, :] * pt.log(yes) + (1 - value[..., None, :]) * pt.log1p(-yes)).sum(axis=-1)
        return pt.logaddexp(pt.log(share) + each[..., 0], pt.log1p(-share) + each[..., 1])

    triples = rng().integers(2, size=(N, 3))
    pm.CustomDist("y", share, yes, logp=logp, signature="(),(a,b)->(b)", dtype="int64", observed=triples)


ACCEPTED["latent_class"][1]["support"] = {"y": [[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)]}


@accepted()
def zero_inflated_binomial():
    pm.ZeroInflatedBinomial("y", psi=pm.Beta("psi", 2, 2), n=5, p=pm.Beta("p", 2, 2), observed=answers(6))


@accepted(public=["x"])
def zero_inflated_with_covariate():
    x = pm.Data("x", codes(2))
    p = pm.math.invlogit(pm.Normal("a") + pm.Normal("b") * x)
    pm.ZeroInflatedBinomial("y", psi=pm.Beta("psi", 2, 2), n=5, p=p, observed=answers(6))


@accepted()
def mixture_of_binomials():
    p = pm.Beta("p", [2, 5], [5, 2], shape=2)
    pm.Mixture("y", w=pm.Dirichlet("w", [1, 1]), comp_dists=pm.Binomial.dist(n=5, p=p), observed=answers(6))


@accepted(public=["x"])
def capped_counts():
    x = pm.Data("x", codes(2))
    rate = pm.math.exp(pm.Normal("a") + pm.Normal("b") * x)
    pm.Censored("y", pm.Poisson.dist(rate), lower=0, upper=4, observed=answers(5))


@accepted()
def beta_binomial_scores():
    pm.BetaBinomial("y", n=5, alpha=pm.Gamma("a", 2, 1), beta=pm.Gamma("b", 2, 1), observed=answers(6))


@accepted()
def uniform_digits():
    tilt = pm.Normal("tilt")
    pm.Categorical("y", p=pt.special.softmax(tilt * np.arange(5.0)), observed=answers(5))


@accepted(counts=["y"])
def cases():
    pm.Poisson("y", pm.math.exp(pm.Normal("a") + pm.Normal("b") * np.arange(5.0)), observed=[3, 0, 4, 9, 20])


@accepted(counts=["y"])
def overdispersed_cases():
    mu = pm.math.exp(pm.Normal("a") + pm.Normal("b") * np.arange(5.0))
    pm.NegativeBinomial("y", mu=mu, alpha=pm.Gamma("alpha", 2, 1), observed=[3, 0, 4, 9, 20])


@accepted(counts=["y"])
def zero_inflated_cases():
    pm.ZeroInflatedPoisson("y", psi=pm.Beta("psi", 2, 2), mu=pm.Gamma("mu", 2, 1), observed=[3, 0, 4, 0, 2])


@accepted(counts=["y"])
def capture_recapture():
    size, p = pm.Gamma("size", 2, 0.02), pm.Beta("p", 2, 2, shape=3)
    seen = np.array([[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)][1:])
    pm.Poisson("y", size * pt.prod(pt.where(seen == 1, p, 1 - p), axis=1), observed=[9, 7, 3, 8, 2, 1, 1])


@accepted(counts=["y"])
def bounded_counts():
    pm.BetaBinomial("y", n=[20, 30], alpha=pm.Gamma("a", 2, 1), beta=pm.Gamma("b", 2, 1), observed=[4, 9])


@accepted()
def two_answers():
    ability = pm.Normal("ability")
    pm.Bernoulli("y", logit_p=ability, observed=answers(2))
    pm.Categorical("z", p=pt.special.softmax(ability * np.arange(3.0)), observed=answers(3))


@accepted(levels={"group": 3}, jointly=[["first", "second"]])
def items_of_private_groups():
    group, ability = pm.Data("group", codes(3)), pm.Normal("ability", shape=3)
    pm.Bernoulli("first", logit_p=ability[group], observed=answers(2))
    pm.Categorical("second", p=pt.special.softmax(ability[group][:, None] * np.arange(3.0), -1), observed=answers(3))


@refused("jointly=", levels={"group": 3})
def items_apart():
    items_of_private_groups()


@refused("pm.Multinomial", unit="trial")
def overdispersed_table():
    pm.DirichletMultinomial("y", n=[20, 30], a=pm.Gamma("a", 2, 1, shape=3), observed=[[5, 5, 10], [10, 10, 10]])


@refused("real numbers")
def real_outcomes():
    pm.Normal("y", pm.Normal("mu"), 1, observed=np.ones(N))


@refused("counts=")
def counts_without_a_cap():
    pm.Poisson("y", pm.Gamma("rate", 2, 1), observed=answers(4))


@refused("discrete free variable")
def hidden_state():
    state = pm.Bernoulli("state", 0.5)
    pm.Bernoulli("y", p=pt.where(state, 0.2, 0.7), observed=answers(2))


@refused("effect of single persons", public=True)
def person_effects():
    pm.Bernoulli("y", logit_p=pm.Normal("u", shape=N), observed=answers(2))


@refused("is a Potential")
def potentials():
    p = pm.Beta("p", 1, 1)
    pm.Potential("weights", pt.log(p) * 3)
    pm.Bernoulli("y", p=p * 0.9, observed=answers(2))


@refused("depends on a random variable")
def chained():
    first = pm.Bernoulli("first", pm.Beta("p", 1, 1), observed=answers(2))
    pm.Bernoulli("y", p=pt.where(first, pm.Beta("q", 1, 1), 0.5), observed=answers(2))


@refused("missing values")
def missing():
    pm.Bernoulli("y", p=pm.Beta("p", 1, 1) * 0.9, observed=np.ma.masked_array(answers(2), mask=np.arange(N) == 3))
