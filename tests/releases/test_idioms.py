"""A private model does not depend on the idiom in which a model is written, and keeps what is public of it."""

import itertools
import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import LeftOutWarning
from pymc_dirdp.models.model_options import ModelOptions
from pymc_dirdp.releases.model_tables import read_model
from tests.releases.any_models import N, answers, codes

PURE = dirdp.PureDP(epsilon=1.0)


def _softmax(effect):
    return pt.special.softmax(effect[:, None] * np.arange(3.0), axis=-1)


def _custom(value, logit):
    yes, no = -pt.softplus(-logit), -pt.softplus(logit)
    return pt.switch(pt.eq(value, 1), yes, pt.switch(pt.eq(value, 0), no, -np.inf))


def _mixture(effect):
    return [pm.Binomial.dist(n=5, p=pm.math.invlogit(effect)), pm.Binomial.dist(n=5, p=0.5)]


ONE_OF_THREE = np.eye(3, dtype=int)
# The number of values, and the observed variable given an effect of each record.
FAMILIES = {
    "Bernoulli": (2, lambda effect, **kw: pm.Bernoulli("y", logit_p=effect, **kw)),
    "Binomial": (5, lambda effect, **kw: pm.Binomial("y", n=4, p=pm.math.invlogit(effect), **kw)),
    "Categorical": (3, lambda effect, **kw: pm.Categorical("y", p=_softmax(effect), **kw)),
    "OrderedLogistic": (
        4,
        lambda effect, **kw: pm.OrderedLogistic("y", eta=effect, cutpoints=[-1.0, 0.0, 1.0], compute_p=False, **kw),
    ),
    "BetaBinomial": (6, lambda effect, **kw: pm.BetaBinomial("y", n=5, alpha=pm.math.exp(effect), beta=2.0, **kw)),
    "ZeroInflated": (
        6,
        lambda effect, **kw: pm.ZeroInflatedBinomial("y", psi=0.7, n=5, p=pm.math.invlogit(effect), **kw),
    ),
    "Multinomial": (3, lambda effect, **kw: pm.Multinomial("y", n=1, p=_softmax(effect), **kw)),
    "CustomDist": (2, lambda effect, **kw: pm.CustomDist("y", effect, logp=_custom, dtype="int64", **kw)),
    "Censored": (
        5,
        lambda effect, **kw: pm.Censored("y", pm.Poisson.dist(pm.math.exp(effect)), lower=0, upper=4, **kw),
    ),
    "Mixture": (6, lambda effect, **kw: pm.Mixture("y", w=[0.3, 0.7], comp_dists=_mixture(effect), **kw)),
}
OBSERVED = ("an array", "pm.Data", "pm.Data with dims", "shape=", "pm.Data with dims of its own")
STATED = {
    "public": {"public": True},
    "levels": {"levels": {"group": 3}},
    "add-remove": {"levels": {"group": 3}, "adjacency": "add-remove", "public": True},
}


def observed(way, values):
    """The arguments of an observed variable, written in one of several ways."""
    if way == "an array":
        return {"observed": values}
    if way == "shape=":
        return {"observed": values, "shape": values.shape}
    if way == "pm.Data":
        return {"observed": pm.Data("answers", values)}
    dims = ("record" if way == "pm.Data with dims" else "answer", *["category"] * (values.ndim - 1))
    return {"observed": pm.Data("answers", values, dims=dims), "dims": dims}


def model_of(family, way, covariate):
    k, make = FAMILIES[family]
    values = ONE_OF_THREE[answers(3)] if family == "Multinomial" else answers(k)
    with pm.Model(coords={"record": range(N), "category": range(3)}) as model:
        group = pm.Data("group", codes(3)) if covariate == "pm.Data" else codes(3)
        make(pm.Normal("effect", shape=3)[group], **observed(way, values))
    return model


def outcomes_at_points(model, **stated):
    """Log-probabilities of all outcomes in all rows at three points, and the counts."""
    read = read_model(model, ModelOptions(**stated))
    (table,) = read.outcomes
    return np.stack(read.inputs.at_points(table.log_p)), table.reading.counts(), (table.rows, table.labels)


@pytest.mark.parametrize(
    "stated", ["public", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("levels", "add-remove"))]
)
@pytest.mark.parametrize("family", FAMILIES)
def test_the_idiom_of_observations_and_covariates_changes_nothing(family, stated):
    """The log-probabilities of the rows and their counts, which is all that the likelihood of noisy counts reads."""
    options = dict(STATED[stated])
    if family in ("Binomial", "BetaBinomial", "Multinomial"):
        options["unit"] = 0
    if family == "Multinomial":
        options["support"] = {"y": ONE_OF_THREE.tolist()}
    expected, counts, _ = outcomes_at_points(model_of(family, "an array", "pm.Data"), **options)
    # A private covariate is a pm.Data, which has a name.
    covariates = ("an array", "pm.Data") if stated == "public" else ("pm.Data",)
    # Which way it is does not depend on the family.
    ways = OBSERVED if family == "Bernoulli" else OBSERVED[-1:]
    for way, covariate in itertools.product(ways, covariates):
        found, own, _ = outcomes_at_points(model_of(family, way, covariate), **options)
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12, err_msg=f"{way}, {covariate}")
        assert np.array_equal(own, counts)


# Deterministics.


def poststratified(n=N):
    with pm.Model(coords={"region": ["north", "south"], "stratum": ["a", "b"]}) as model:
        which, weights = pm.Data("which", codes(2)[:n]), pm.Data("weights", [0.3, 0.7], dims="stratum")
        effect = pm.Normal("effect", dims="region")
        pm.Deterministic("population", (weights * pm.math.invlogit(effect)).sum())
        pm.Deterministic("fitted", effect[which])
        pm.Deterministic("written", (np.array([0.3, 0.7]) * effect).sum())
        pm.Deterministic("mean", pm.Data("sizes", np.arange(n) * 1.0).mean() * effect[0])
        pm.Bernoulli("y", logit_p=effect[which], observed=answers(2)[:n])
    return model


@pytest.mark.filterwarnings("default::pymc_dirdp.errors.LeftOutWarning")
@pytest.mark.parametrize(
    ("stated", "present"),
    [
        ({"public": ["which", "weights", "sizes"]}, {"population"}),
        ({"public": ["which"]}, set()),
        ({"public": True}, {"population"}),
        ({"levels": {"which": 2}, "public": ["weights"], "adjacency": "add-remove"}, {"population"}),
    ],
)
def test_deterministics_of_public_weights_stay_with_their_data(stated, present):
    """A poststratification is there after `pm.sample`, and what is left out is named with the way to keep it."""
    with pytest.warns(LeftOutWarning, match=r"'fitted', 'written', 'mean'.*public=") as caught:
        private = dirdp.private_model(PURE, poststratified(), **stated)
    assert {formula.name for formula in private.deterministics} == present
    assert {array.name for array in private.data_vars} == ({"weights"} if present else set())
    assert ("'population'" in str(caught[-1].message)) is not bool(present)
    assert "which" not in private.named_vars
    if present:
        effect = np.array([0.4, -1.0])
        value = private["population"].eval({private["effect"]: effect})
        assert value == pytest.approx(np.dot([0.3, 0.7], 1 / (1 + np.exp(-effect))), rel=1e-12)
        assert private.named_vars_to_dims["weights"] == ("stratum",)


@pytest.mark.filterwarnings("default::pymc_dirdp.errors.LeftOutWarning")
def test_the_warning_tells_nothing_of_the_number_of_records():
    """Under add-remove: for a record more, and for as many records as there are weights."""
    texts = set()
    for n in (1, 2, 3, 10, 11):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            stated = {"levels": {"which": 2}, "public": ["weights"], "adjacency": "add-remove"}
            private = dirdp.private_model(PURE, poststratified(n), **stated)
        left_out = [str(warning.message) for warning in caught if warning.category is LeftOutWarning]
        texts.add((*left_out, *sorted(private.named_vars)))
    assert len(texts) == 1


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_deterministic_of_records_is_left_out_however_many_there_are(n):
    """Found by an attack: of one record the formula stayed, so that it held the record, and told that there is one."""
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1)
        y = np.arange(n) % 2
        pm.Bernoulli("y", p=p, observed=y)
        pm.Deterministic("sum", (p * y).sum())
        pm.Deterministic("twice", 2 * p)
        pm.Deterministic("flat", pm.math.stack([[p, 1 - p]]).ravel())
    with pytest.warns(LeftOutWarning, match="no Deterministic 'sum', which"):
        private = dirdp.private_model(dirdp.PureDP(epsilon=1.0), model, adjacency="add-remove")
    assert [formula.name for formula in private.deterministics] == ["twice", "flat"]


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("observed", [np.asarray, lambda y: pm.Data("answers", y)], ids=["array", "pm.Data"])
def test_a_length_in_the_model_is_not_taken_for_the_number_of_records(n, observed):
    """Found by an attack: `pt.ones(2)` was taken for an array of records where there are two of them."""
    with pm.Model() as model:
        x = pm.Data("x", np.arange(n) % 2)
        effect = pm.Normal("effect", shape=2) * pt.ones(2)
        pm.Bernoulli("y", logit_p=effect[x], observed=observed(np.arange(n) % 2))
    private = dirdp.private_model(dirdp.PureDP(epsilon=1.0), model, levels={"x": 2}, adjacency="add-remove")
    assert [rv.name for rv in private.observed_RVs] == ["y"]
