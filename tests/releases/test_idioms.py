"""Private models have the Deterministics that are public, whatever the number of records is."""

import warnings

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import LeftOutWarning
from tests.releases.any_models import PRIVATE, N, answers, codes

PURE = dirdp.PureDP(epsilon=1.0)


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


ADD_REMOVE = {"levels": {"which": 2}, "public": ["weights"]} | PRIVATE


@pytest.mark.filterwarnings("default::pymc_dirdp.errors.LeftOutWarning")
@pytest.mark.parametrize(
    ("stated", "present"),
    [
        ({"public": ["which", "weights", "sizes"]}, {"population"}),
        ({"public": ["which"]}, set()),
        ({"public": True}, {"population"}),
        (ADD_REMOVE, {"population"}),
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


def of_records(n):
    """Of one record the formula stayed, so that it had the record, and showed that there is one."""
    with pm.Model() as model:
        p, y = pm.Beta("p", 1, 1), np.arange(n) % 2
        pm.Bernoulli("y", p=p, observed=y)
        pm.Deterministic("sum", (p * y).sum())
        pm.Deterministic("twice", 2 * p)
        pm.Deterministic("flat", pm.math.stack([[p, 1 - p]]).ravel())
    return model


def with_a_length(observed):
    """`pt.ones(2)` was taken for an array of records where there are two of them."""

    def build(n):
        with pm.Model() as model:
            effect = pm.Normal("effect", shape=2) * pt.ones(2)
            logit = effect[pm.Data("which", np.arange(n) % 2)]
            pm.Bernoulli("y", logit_p=logit, observed=observed("answers", np.arange(n) % 2))
        return model

    return build


@pytest.mark.parametrize(
    ("build", "stated", "left_out", "stay"),
    [
        (poststratified, ADD_REMOVE, "'fitted', 'written', 'mean'", ["population"]),
        (of_records, PRIVATE, "no Deterministic 'sum', which", ["twice", "flat"]),
        (with_a_length(lambda _, y: y), {"levels": {"which": 2}} | PRIVATE, "", []),
        (with_a_length(pm.Data), {"levels": {"which": 2}} | PRIVATE, "", []),
    ],
    ids=["weights", "records", "array", "pm.Data"],
)
def test_a_private_number_decides_neither_what_stays_nor_the_warning(build, stated, left_out, stay):
    """Found by attacks, for as many records as there are weights, and for one."""
    texts = set()
    for n in (1, 2, 3):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            private = dirdp.private_model(PURE, build(n), **stated)
        messages = [str(warning.message) for warning in caught if warning.category is LeftOutWarning]
        texts.add((*messages, *sorted(private.named_vars)))
        assert left_out in "".join(messages)
        assert [formula.name for formula in private.deterministics] == stay
    assert len(texts) == 1
