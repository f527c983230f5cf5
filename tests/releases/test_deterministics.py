"""Which Deterministics stand beside a release or in a private model: each is a way to carry data out of a model."""

import json
import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph

import pymc_dirdp as dirdp
from pymc_dirdp.errors import LeftOutWarning
from tests.planned import one_row
from tests.releases.any_models import PRIVATE, N, answers, codes

PURE = dirdp.PureDP(epsilon=1.0)
CLS = np.repeat([0, 1, 2], 100)
HAIR = [108, 286, 71, 127]
ADD_REMOVE = {"levels": {"which": 2}, "public": ["weights"]} | PRIVATE


def with_formulas(formulas, **options):
    """A release of a model with Deterministics, and the model. Its size is public unless the options differ."""
    with one_row(HAIR) as model:
        for name, formula in formulas.items():
            pm.Deterministic(name, formula(model["p"]))
        pm.Deterministic("odds", model["p"] / (1 - model["p"]), dims="hair")
    return dirdp.sample(PURE, model, mechanism="geometric", **options), model


def beside(tree):
    return set(tree["posterior"].data_vars) - {"p"}, json.loads(tree["posterior"].attrs.get("left_out", "[]"))


class Fails(pt.Op):
    itypes = (pt.dvector,)
    otypes = (pt.dscalar,)

    def perform(self, node, inputs, outputs):
        raise RuntimeError("no")


X = pt.dvector()
# Arrays that a formula holds, what could hold one without showing it, and names that no file can hold.
CARRIERS = {
    "residual": lambda p: np.array(HAIR) - 592 * p,
    "by record": lambda p: p[CLS],
    "in a matrix": lambda p: p[CLS.reshape(3, 100)],
    "one hot": lambda p: pt.dot(np.eye(3)[CLS], p[:3]),
    "counted": lambda p: (p[:3] * np.bincount(CLS)).sum() / 300,
    "in a column": lambda p: p[CLS[:, None]],
    "as a mask": lambda p: pt.switch(CLS == 1, p[0], p[1]),
    "hidden behind an operation": lambda p: p * pt.exp(pt.as_tensor(np.log(HAIR))),
    "in a graph of its own": lambda p: OpFromGraph([X], [(X * np.array(HAIR)).sum()])(p),
    "in the step of a scan": lambda p: pytensor.scan(
        lambda q: (q * np.array(HAIR)).sum(), sequences=[p], return_updates=False
    ),
    "in a function": lambda p: pytensor.wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])(lambda v: v * HAIR)(p),
    "one entry for each person": lambda p: pt.stack([p[int(k)] for k in CLS]),
    "the sum over people": lambda p: sum(p[int(k)] for k in CLS[:20]),
    "one number for each person": lambda p: pt.stack([p[0] * int(k) for k in CLS[:20]]),
    "shared": lambda p: p * pytensor.shared(np.array(HAIR, dtype=float)),
    "the observed variable": lambda p: pm.modelcontext(None)["x"] - p,
    **{name: lambda p: 1 - p for name in ("a\nb", "a\\b", "a\x1b[2Jb", "draw")},
}


def test_no_array_stands_beside_the_draws():
    release, model = with_formulas(CARRIERS)
    assert beside(release) == ({"odds"}, list(CARRIERS))
    said = " ".join(str(dirdp.report(release, full=True)).split())
    assert all(repr(name) in said for name in CARRIERS)
    assert beside(dirdp.analyse(release, 10, model=model)) == ({"odds"}, list(CARRIERS))


def test_no_array_inside_of_an_operation_comes_along_with_a_private_model():
    _, model = with_formulas(
        {name: CARRIERS[name] for name in ("in a graph of its own", "in the step of a scan", "in a function")}
    )
    private = dirdp.private_model(PURE, model, contribution=1)
    assert [formula.name for formula in private.deterministics] == ["odds"]


def test_the_values_are_those_of_the_formula_at_the_draws_and_not_in_the_text():
    """Oracle: NumPy; and PyMC computes what was left out from the release."""
    formulas = {"largest": lambda p: (p / (1 - p)).max(), "score": lambda p: pt.dot(p, np.array([1.0, 2.0, 3.0, 5.0]))}
    release, model = with_formulas(formulas)
    for tree in (release, dirdp.analyse(release, 25, model=model)):
        p, posterior = tree["posterior"]["p"].values, tree["posterior"]
        np.testing.assert_allclose(posterior["odds"].values, p / (1 - p), rtol=1e-12)
        np.testing.assert_allclose(posterior["largest"].values, (p / (1 - p)).max(axis=-1), rtol=1e-12)
        assert posterior["odds"].dims == ("chain", "draw", "hair")
        assert list(posterior["odds"]["hair"].values) == ["black", "brown", "red", "blond"]
        assert beside(tree) == ({"odds", "largest"}, ["score"])
    found = pm.compute_deterministics(release["posterior"], model=model, progressbar=False)
    np.testing.assert_allclose(found["score"].values, release["posterior"]["p"].values @ [1, 2, 3, 5])
    assert "odds" not in str(release["release"]["text"].values)
    assert dirdp.verify(release)
    (view,) = (check for check in dirdp.verify(release).checks if check.name == "view")
    assert "but for 'largest', 'odds'" in view.sentence
    release["posterior"]["p"].values[...] = 0.25
    assert not dirdp.verify(release)


def test_no_number_that_may_come_from_a_private_number_of_people():
    numbers = (592, 1 / 592, 286 / 592, 592j)
    formulas = {f"{number}": lambda p, number=number: number * p for number in numbers}
    third = {"third": lambda p: p[2]}
    private, _ = with_formulas(formulas | third, adjacency="add-remove")
    assert beside(private) == ({"odds", "third"}, list(formulas))
    assert beside(with_formulas(formulas | third)[0]) == ({"odds", "third", *formulas}, [])


def test_a_formula_with_a_few_numbers_comes_along():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones((2, 2)))
        pm.Multinomial("y", n=[30, 30], p=p, observed=[[10, 20], [15, 15]])
        chance = (p[0, 0] + p[0, 1]) * (p[0, 0] + p[1, 0]) + (p[1, 0] + p[1, 1]) * (p[0, 1] + p[1, 1])
        pm.Deterministic("kappa", (p[0, 0] + p[1, 1] - chance) / (1 - chance))
        pm.Deterministic("entropy", -(p * pt.log(p)).sum(axis=-1))
        for n in (12, 13):
            pm.Deterministic(f"{n} entries", pt.add(*(p[0, 0] for _ in range(n))))
    release = dirdp.sample(PURE, model, mechanism="geometric")
    assert beside(release) == ({"kappa", "entropy", "12 entries"}, ["13 entries"])


@pytest.mark.parametrize("n_people", [5, 6])
def test_what_is_left_out_does_not_depend_on_the_number_of_people(n_people):
    with pm.Model(coords={"record": range(n_people)}) as model:
        p = pm.Dirichlet("p", a=np.ones(3))
        pm.Categorical("cls", p=p, observed=np.arange(n_people) % 3, dims="record")
        pm.Deterministic("d", pt.dot(p[np.array([0, 1, 2, 0, 1])], np.ones(5)))
        pm.Deterministic("six", 6 * p[0])
        pm.Deterministic("each", pt.zeros(model.dim_lengths["record"]) + p[0], dims="record")
    assert beside(dirdp.sample(PURE, model, mechanism="geometric")) == ({"six"}, ["d", "each"])


def test_a_deterministic_that_fails_does_not_lose_the_release():
    ledger = dirdp.Ledger(PURE)
    with one_row(HAIR) as model:
        p = model["p"]
        model.add_coord("c\nd", [0, 1])
        pm.Deterministic("fails", Fails()(p))
        pm.Deterministic("singular", pt.linalg.inv(0 * pt.outer(p, p)))
        pm.Deterministic("dim", p[:2], dims="c\nd")
        pm.Deterministic("odds", p / (1 - p), dims="hair")
    release = dirdp.sample(PURE, model, ledger=ledger, mechanism="geometric")
    assert beside(release) == ({"odds"}, ["fails", "singular", "dim"])
    assert len(ledger.entries()) == 1


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
        (ADD_REMOVE, {"population"}),
    ],
)
def test_deterministics_of_public_weights_stay_with_their_data(stated, present):
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
