"""Ordinary models of discrete data, as people write them.

Each function makes a model and what to say about it. The data are drawn anew in each. `likelihood_by_hand` sums over
all tables that a release may stand for, with probabilities that PyMC says for each record.
"""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.replace import graph_replace
from scipy.special import gammaln, logsumexp
from scipy.stats import poisson

from pymc_dirdp.models.graph import compile_plain

N = 60
YEARS = np.arange(5.0)
CASES = [3, 0, 4, 9, 20]
PAIRS = [[2, 0, 0], [0, 2, 0], [0, 0, 2], [1, 1, 0], [1, 0, 1], [0, 1, 1]]
TRIPLES = [[a, b, c] for a in (0, 1) for b in (0, 1) for c in (0, 1)]


def rng():
    return np.random.default_rng(7)


def codes(k):
    return rng().integers(k, size=N)


def answers(k):
    return np.random.default_rng(8).integers(k, size=N)


def ordered(name, *mean):
    """Cut points that increase."""
    return pm.Normal(name, list(mean), 1, transform=pm.distributions.transforms.ordered, initval=list(mean))


def softmax(logits):
    return pt.special.softmax(logits, axis=-1)


def log_rate(x):
    return pm.math.exp(pm.Normal("a") + pm.Normal("b") * x)


def hierarchical_logit():
    group = pm.Data("group", codes(3))
    mean, spread = pm.Normal("mean", 0, 1), pm.HalfNormal("spread", 1)
    pm.Bernoulli("y", logit_p=pm.Normal("effect", mean, spread, shape=3)[group], observed=answers(2))


def ordered_logit():
    region, cuts = pm.Data("region", codes(3)), ordered("cuts", -1, 0, 1)
    pm.OrderedLogistic("y", eta=pm.Normal("slope", shape=3)[region], cutpoints=cuts, observed=answers(4))


def two_predictors():
    x, z = pm.Data("x", codes(2)), pm.Data("z", codes(3)[::-1])
    pm.Bernoulli("y", logit_p=pm.Normal("a") + pm.Normal("b") * x + pm.Normal("c") * z, observed=answers(2))


def design_matrix():
    X = pm.Data("X", np.stack([np.ones(N), codes(2)], axis=1))
    pm.Bernoulli("y", logit_p=X @ pm.Normal("b", shape=2), observed=answers(2))


def probit_without_covariates():
    pm.Bernoulli("y", p=pm.math.invprobit(pm.Normal("a")), observed=answers(2))


def successes_of_groups():
    pm.modelcontext(None).add_coord("group", list("abc"))
    effect = pm.Normal("effect", pm.Normal("mean"), 1, dims="group")
    pm.Binomial("y", n=[20, 30, 25], logit_p=effect, observed=[3, 9, 20], dims="group")


def log_linear_table():
    p = softmax(pm.Normal("row", shape=(3, 1)) * pm.Normal("column", shape=4))
    pm.Multinomial("y", n=[30, 30, 40], p=p, observed=[[10, 5, 5, 10]] * 2 + [[10] * 4])


def latent_class():
    share, yes = pm.Beta("share", 2, 2), pm.Beta("yes", 2, 2, shape=(2, 3))

    def logp(value, share, yes):
        each = (value[..., None, :] * pt.log(yes) + (1 - value[..., None, :]) * pt.log1p(-yes)).sum(axis=-1)
        return pt.logaddexp(pt.log(share) + each[..., 0], pt.log1p(-share) + each[..., 1])

    triples = rng().integers(2, size=(N, 3))
    pm.CustomDist("y", share, yes, logp=logp, signature="(),(a,b)->(b)", dtype="int64", observed=triples)


def capped_counts():
    pm.Censored("y", pm.Poisson.dist(log_rate(pm.Data("x", codes(2)))), lower=0, upper=4, observed=answers(5))


def beta_binomial(n, observed):
    pm.BetaBinomial("y", n=n, alpha=pm.Gamma("a", 2, 1), beta=pm.Gamma("b", 2, 1), observed=observed)


def zero_inflated_cases():
    pm.ZeroInflatedPoisson("y", psi=pm.Beta("psi", 2, 2), mu=pm.Gamma("mu", 2, 1), observed=[3, 0, 4, 0, 2])


def observed_with_dims():
    """The dim of the observations is not that of the covariate, and has no coordinates."""
    logit, y = pm.Normal("effect", shape=3)[pm.Data("group", codes(3))], pm.Data("data", answers(2), dims="answer")
    pm.Bernoulli("y", logit_p=logit, observed=y, dims="answer")


def mixture():
    p = pm.math.invlogit(pm.Normal("effect", shape=3)[pm.Data("group", codes(3))])
    components = [pm.Binomial.dist(n=5, p=p), pm.Binomial.dist(n=5, p=0.5)]
    pm.Mixture("y", w=[0.3, 0.7], comp_dists=components, observed=pm.Data("data", answers(6)))


def two_answers():
    ability = pm.Normal("ability")
    pm.Bernoulli("y", logit_p=ability, observed=answers(2))
    pm.Categorical("z", p=softmax(ability * np.arange(3.0)), observed=answers(3))


def items_of_private_groups():
    group, ability = pm.Data("group", codes(3)), pm.Normal("ability", shape=3)
    pm.Bernoulli("first", logit_p=ability[group], observed=answers(2))
    pm.Categorical("second", p=softmax(ability[group][:, None] * np.arange(3.0)), observed=answers(3))


def pairs_of_choices():
    liked = pt.stack([pm.Normal("first"), pm.Normal("second"), 0.0])
    pm.Multinomial("y", n=2, p=softmax(liked), observed=np.array(PAIRS)[answers(6)])


def overdispersed_table():
    pm.DirichletMultinomial("y", n=[20, 30], a=pm.Gamma("a", 2, 1, shape=3), observed=[[5, 5, 10], [10, 10, 10]])


PRIVATE = {"adjacency": "add-remove"}
OF_TRIALS = {"contribution": 1, "public": ["y"]}
ACCEPTED = {
    "hierarchical_logit": (hierarchical_logit, {"public": ["group"]}),
    "constant_codes": (
        lambda: pm.Bernoulli("y", logit_p=pm.Normal("effect", shape=3)[codes(3)], observed=answers(2)),
        {"public": True},
    ),
    "ordered_logit": (ordered_logit, {"levels": {"region": 3}} | PRIVATE),
    "two_private_predictors": (two_predictors, {"levels": {"x": 2, "z": 3}}),
    "one_of_two_private": (two_predictors, {"public": ["x"], "levels": {"z": 3}}),
    "design_matrix": (design_matrix, {"public": ["X"]}),
    "probit_without_covariates": (probit_without_covariates, {}),
    "successes_of_one_group": (
        lambda: pm.Binomial("y", n=90, p=pm.Beta("a", 2, 2) * pm.Beta("b", 2, 2), observed=30),
        {"contribution": 1},
    ),
    "successes_of_groups": (successes_of_groups, OF_TRIALS),
    "successes_of_private_groups": (successes_of_groups, {"contribution": 1} | PRIVATE),
    "scores": (lambda: pm.Binomial("y", n=4, p=pm.Beta("p", 2, 2) ** 2, observed=answers(5)), {"unit": 0}),
    "log_linear_table": (log_linear_table, OF_TRIALS),
    "latent_class": (latent_class, {"support": {"y": TRIPLES}}),
    "capped_counts": (capped_counts, {"public": ["x"]}),
    "beta_binomial_scores": (lambda: beta_binomial(5, answers(6)), {"unit": 0}),
    "cases": (lambda: pm.Poisson("y", log_rate(YEARS), observed=CASES), {"count_variables": ["y"]}),
    "observed_with_dims": (observed_with_dims, {"public": True}),
    "observed_with_dims, add-remove": (observed_with_dims, {"levels": {"group": 3}} | PRIVATE),
    "mixture": (mixture, {"public": ["group"]}),
    "zero_inflated_cases": (zero_inflated_cases, {"count_variables": ["y"]}),
    "bounded_counts": (lambda: beta_binomial([20, 30], [4, 9]), {"count_variables": ["y"]}),
    "two_answers": (two_answers, {"mechanism": "geometric"}),
    "items_of_private_groups": (items_of_private_groups, {"levels": {"group": 3}, "jointly": [["first", "second"]]}),
    "pairs_of_choices": (pairs_of_choices, {"unit": 0, "support": {"y": PAIRS}}),
    "overdispersed_successes": (lambda: beta_binomial([3, 4], [2, 4]), {"contribution": 1} | PRIVATE),
    "overdispersed_table": (overdispersed_table, OF_TRIALS),
}


def of_pymc(rv, model, values):
    """PyMC's log-probability of each observation, as a function of the observations."""
    places = {free: free.type() for free in model.free_RVs}
    value = rv.type()
    logp = pm.logp(graph_replace([rv], places, strict=False)[0], value, warn_rvs=False)
    given = [np.asarray(values[free.name], dtype=place.dtype) for free, place in places.items()]
    function = compile_plain([*places.values(), value], logp)
    return lambda observed: np.asarray(function(*given, np.asarray(observed, dtype=value.dtype)))


def shares_by_hand(one, model, values):
    """The probability of each outcome in each row, and the number of people in each row."""
    rvs = [rv for rv in model.observed_RVs if rv.name in one.name.split("_")]
    each = [of_pymc(rv, model, values) for rv in rvs]
    if one.kind == "trials":
        counts = one.reading.counts()
        n, value = counts.sum(axis=1), model.rvs_to_values[rvs[0]].eval()
        # If all trials have one outcome, the probability of that is its power.
        if value.ndim and rvs[0].owner.op.ndim_supp:
            all_one = [each[0](n[:, None] * np.eye(len(one.labels))[k]) for k in range(len(one.labels))]
        else:
            all_one = [each[0]((k == 0) * n.reshape(value.shape)) for k in range(2)]
        return np.exp(np.stack([np.ravel(logs) / n for logs in all_one], axis=1)), n
    rows, _ = one.reading.cells()
    p = np.full((len(one.rows), len(one.labels)), np.nan)
    for k, label in enumerate(one.labels):
        numbers = np.array(str(label).split(","), dtype=int)
        shapes = [[N if size is None else size for size in rv.type.shape] for rv in rvs]
        parts = numbers[:, None] if len(rvs) > 1 else [numbers if rvs[0].owner.op.ndim_supp else numbers[0]]
        logs = sum(of(np.broadcast_to(part, shape)) for of, part, shape in zip(each, parts, shapes, strict=True))
        p[rows, k] = np.exp(logs)
        assert np.allclose(p[rows, k], np.exp(logs), rtol=1e-12)
    return p, np.bincount(rows, minlength=len(p))


def sum_over_tables(weights, n, noisy, noise):
    """All tables of n people in one row, cell after cell."""
    x, total = np.arange(n + 1.0), np.where(np.arange(n + 1) == 0, 0.0, -np.inf)
    for weight, z in zip(weights, noisy, strict=True):
        cell = x * np.log(weight) - gammaln(x + 1) + noise(z - x)
        total = np.array([logsumexp(total[: i + 1] + cell[: i + 1][::-1]) for i in range(n + 1)])
    return total[n] + gammaln(n + 1)


def likelihood_by_hand(found, stored, values):
    """The logarithm of the probability of all noisy counts of a release, given values of the free variables."""
    total = 0.0
    for one, part in zip(found.outcomes, stored.plan.parts, strict=True):
        noise, noisy = part.mechanism.noise.log_pmf, stored.release.output[part.table.name].values[0]
        if one.kind == "counts":
            rv = found.model[one.name]
            logp = of_pymc(rv, found.model, values)
            shape = rv.shape.eval()
            logs = np.array([np.ravel(logp(np.full(shape, x))) for x in range(250)])
            shown = np.ravel(noisy)[: logs.shape[1]]
            total += logsumexp(logs + noise(shown - np.arange(250)[:, None]), axis=0).sum()
            continue
        p, n = shares_by_hand(one, found.model, values)
        if f"{one.name}_expected" in values:
            mu, x = (values[f"{one.name}_expected"][:, None] * p).ravel(), np.arange(600)[:, None]
            total += logsumexp(poisson.logpmf(x, mu) + noise(noisy.ravel() - x), axis=0).sum()
            continue
        if f"{one.name}_shares" in values:
            p, n = (values[f"{one.name}_shares"][:, None] * p).reshape(1, -1), [n.sum()]
        rows = zip(p, n, noisy.reshape(p.shape), strict=True)
        total += sum(sum_over_tables(weights, int(numbers), z, noise) for weights, numbers, z in rows)
    return total
