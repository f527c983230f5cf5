"""Public formulas: each operation against PyTensor, and facts of which nothing is believed."""

import copy
import json
import subprocess
import sys
import time
from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pytensor.compile.builders import OpFromGraph

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.expressions import MOST_NUMBERS, OPERATIONS, Expression
from pymc_dirdp.models.graph import compiled_plainly
from pymc_dirdp.models.translation import translated

SHAPES = {"p": (2, 3), "rate": (2,), "share": ()}
X = pt.dmatrix()

ON_EACH_ENTRY = {
    "arithmetic": lambda p, r, s: (2 * p - s) / (1 + p) + r[:, None] // 0.3,
    "many terms": lambda p, r, s: pt.add(p, s, p, 1) * pt.mul(p, s, 3),
    "powers": lambda p, r, s: p**2 + p**s + pt.sqr(p) + pt.reciprocal(p) + pt.sqrt(p) + p**-1,
    "rest": lambda p, r, s: p % 0.2 + pt.abs(-p) + pt.sign(p - 0.3),
    "logarithms": lambda p, r, s: pt.log(p) + pt.log2(p) + pt.log10(p) + pt.log1p(p) + pm.math.logit(p),
    "exponentials": lambda p, r, s: pt.exp(p) + pt.exp2(p) + pt.expm1(p) + pm.math.invlogit(p) + pt.softplus(p),
    "roundings": lambda p, r, s: pt.floor(9 * p) + pt.ceil(9 * p) * 10 + pt.trunc(-9 * p) * 100,
    "integers": lambda p, r, s: pt.round(9 * p) + pt.round(9 * p, mode="half_away_from_zero"),
    "angles": lambda p, r, s: pt.sin(p) + pt.cos(p) + pt.tan(p) + pt.arcsin(p) + pt.arccos(p) + pt.arctan(p),
    "two angles": lambda p, r, s: pt.arctan2(p, s),
    "hyperbolic": lambda p, r, s: (
        pt.sinh(p) + pt.cosh(p) + pt.tanh(p) + pt.arcsinh(p) + pt.arccosh(1 + p) + pt.arctanh(p)
    ),
    "special": lambda p, r, s: pt.gamma(p) + pt.gammaln(p) + pt.psi(p) + pt.erf(p) + pt.erfc(p) + pt.erfinv(p),
    "probit": lambda p, r, s: pm.math.probit(p) + pm.math.invprobit(p),
    "comparisons": lambda p, r, s: pt.stack([p > s, p >= s, p < s, p <= s, pt.eq(p, p), pt.neq(p, s)]),
    "logic": lambda p, r, s: ((p > 0.1) & (p < 0.4)) | ~(p > 0.2) ^ (r[:, None] > s),
    "not finite": lambda p, r, s: pt.isnan(pt.log(p - 0.3)) | pt.isinf(1 / pt.floor(p)),
    "switch": lambda p, r, s: pt.switch(p > 0.3, 0.5, 1) + pt.where(p > s, p, 0),
    "bounds": lambda p, r, s: pt.clip(p, 0.2, s) + pt.maximum(p, 0.3) + pt.minimum(p, r[:, None]),
    "casts": lambda p, r, s: pt.cast(9 * p, "int8") + pt.cast(p > s, "float32"),
    "small integers": lambda p, r, s: pt.exp(pt.cast(9 * p, "int8")) + pt.argmax(p) / 7,
    "overflow": lambda p, r, s: pt.stack([pt.exp(1e4 * s), -pt.log(s * 0), s * 0 / (s * 0)]),
    "a float of few digits": lambda p, r, s: pt.cast(p, "float32") * 0.5,
}
ALONG_AXES = {
    "sums": lambda p, r, s: p.sum(axis=1) + p.prod(axis=-1) + p.mean(axis=1) + p.sum(),
    "sums of truth values": lambda p, r, s: (p > 0.2).sum(axis=0),
    "extremes": lambda p, r, s: p.max(axis=0) - p.min(axis=0) + pt.max(p),
    "any and all": lambda p, r, s: pt.stack([(p > 0.4).any(), (p > 0.4).all()]),
    "the largest": lambda p, r, s: pt.argmax(p, axis=-1) * 10 + pt.argmin(p, axis=1),
    "the largest of all": lambda p, r, s: pt.argmax(p),
    "the largest over two axes": lambda p, r, s: pt.argmax(
        pt.outer(p[0], p[1])[:, None] * r[None, :, None], axis=(0, 2)
    ),
    "spread": lambda p, r, s: p.std(axis=0) + p.var(axis=0),
    "running": lambda p, r, s: pt.cumsum(p, axis=1) + pt.cumprod(1 - p, axis=0),
    "running over all": lambda p, r, s: pt.cumsum(p),
    "sorted": lambda p, r, s: pt.sort(p, axis=1) + pt.argsort(p, axis=1),
    "median": lambda p, r, s: pt.median(p, axis=1),
    "softmax": lambda p, r, s: pm.math.softmax(pt.log(p), axis=-1) + pm.math.log_softmax(p, axis=0),
    "logsumexp": lambda p, r, s: pm.math.logsumexp(p, axis=1) + pm.math.logsumexp(p),
    "differences": lambda p, r, s: pt.diff(p, axis=1),
    "entropy": lambda p, r, s: -(p * pt.log(p)).sum(axis=-1),
    "xlogy": lambda p, r, s: pt.special.xlogy(p, p).sum(axis=-1),
}
SHAPED = {
    "axes": lambda p, r, s: p.T[None] + p.dimshuffle(1, "x", 0),
    "one axis less": lambda p, r, s: p[:, :1].squeeze(axis=1),
    "entries": lambda p, r, s: p[0, 1] + p[-1, -1] - p[1][0],
    "slices": lambda p, r, s: p[::-1, ::2] + p[-2:, 1:],
    "no entries": lambda p, r, s: p[:, 2:2],
    "to the length": lambda p, r, s: p[: p.shape[0] - 1, p.shape[1] // 2 :],
    "public places": lambda p, r, s: p[:, np.array([0, 2, 2, -1])],
    "pairs of places": lambda p, r, s: p[np.array([0, 1, 1]), np.array([2, 0, 1])],
    "a table of places": lambda p, r, s: p[np.array([[0, 1], [1, 1]])],
    "places apart": lambda p, r, s: p[None][np.array([0, 0]), :, np.array([[1], [2]])],
    "a place and places": lambda p, r, s: p[:, :, None][1, :, np.array([0, 0])],
    "a public mask": lambda p, r, s: p[:, np.array([True, False, True])],
    "at the largest": lambda p, r, s: p[pt.argmax(r), 1:] + p[:, pt.argmax(p, axis=1)].sum(),
    "diagonal": lambda p, r, s: pt.diag(p, 1) + pt.trace(p),
    "triangle": lambda p, r, s: pt.tril(p) + pt.eye(2, 3),
    "products": lambda p, r, s: pt.dot(p, np.array([1.0, 2.0, 3.0])) + pt.dot(r, r) + r @ p @ p.T,
    "batches of products": lambda p, r, s: pt.matmul(p[None], p.T[None]),
    "over two axes": lambda p, r, s: pt.tensordot(p, p, axes=[[0, 1], [0, 1]]) + pt.einsum("ij,kj->ik", p, p),
    "outer": lambda p, r, s: pt.outer(r, p[0]),
    "joined": lambda p, r, s: pt.concatenate([p, r[:, None], 1 - p], axis=1),
    "stacked": lambda p, r, s: pt.stack([p, p**2], axis=-1),
    "numbers stacked": lambda p, r, s: pt.stack([p[0, 0], s, r[1]]),
    "numbers and integers": lambda p, r, s: pt.as_tensor([s, 1, pt.argmax(r)]),
    "split": lambda p, r, s: pt.split(p, [1, 2], n_splits=2, axis=1)[1],
    "reshaped": lambda p, r, s: p.reshape((3, -1)) + p.flatten()[0],
    "repeated": lambda p, r, s: pt.tile(r, 3) + pt.repeat(r, 3) + pt.repeat(r, np.array([2, 4])),
    "broadcast": lambda p, r, s: pt.broadcast_to(r, (3, 2)) + pt.full((3, 2), s) + pt.zeros((3, p.shape[0])),
    "like another": lambda p, r, s: pt.ones_like(p) * s + pt.full_like(p, s),
    "rolled": lambda p, r, s: pt.roll(p, 1, axis=1),
    "a range": lambda p, r, s: pt.dot(p, pt.arange(p.shape[1])),
    "a graph of its own": lambda p, r, s: OpFromGraph([X], [X * X.sum(), X.max()])(p)[0],
    "a long sum": lambda p, r, s: sum(p[i % 2, i % 3] for i in range(300)),
    "a shared part": lambda p, r, s: (p[0] / r[0]) + (p[0] / r[0]) ** 2 + p[0] / r[0],
    "another Deterministic": lambda p, r, s: pt.identity(p.copy()),
}
FORMULAS = ON_EACH_ENTRY | ALONG_AXES | SHAPED
NOT_TRANSLATED = {
    "a scan": lambda p, r, s: pytensor.scan(lambda q: q.sum(), sequences=[p], return_updates=False),
    "a function": lambda p, r, s: pytensor.wrap_py(itypes=[pt.dmatrix], otypes=[pt.dmatrix])(lambda v: v * 2)(p),
    "a mask that is computed": lambda p, r, s: p[p > 0.2],
    "a slice that is computed": lambda p, r, s: p[0, : pt.argmax(r)],
    "linear algebra": lambda p, r, s: pt.linalg.det(p @ p.T),
    "an infinite number": lambda p, r, s: pt.switch(p > 0, p, -np.inf),
    "a complex number": lambda p, r, s: p * 2j,
    "data": lambda p, r, s: p * pytensor.shared(np.ones(3)),
    "the shape of data": lambda p, r, s: p * pytensor.shared(np.ones(3)).shape[0],
    "another random variable": lambda p, r, s: p * pm.Normal("other"),
    "its shape": lambda p, r, s: pm.Normal("another", shape=3).shape[0] * p,
    "out of range": lambda p, r, s: p[np.array([5])],
    "too large": lambda p, r, s: pt.outer(pt.repeat(p.flatten(), 1000), pt.repeat(p.flatten(), 1000)),
}


@cache
def model():
    with pm.Model() as made:
        p = pm.Dirichlet("p", np.ones((2, 3)))
        r, s = pm.Beta("rate", 1, 1, shape=2), pm.Beta("share", 1, 1)
        for name, formula in (FORMULAS | NOT_TRANSLATED).items():
            pm.Deterministic(name, formula(p, r, s))
    return made


@cache
def expression(name):
    return translated(model(), name, SHAPES)


def draws(n, seed=0):
    rng = np.random.default_rng(seed)
    return {"p": rng.dirichlet(np.ones(3), (n, 2)), "rate": rng.uniform(size=(n, 2)), "share": rng.uniform(size=n)}


@pytest.mark.parametrize("name", FORMULAS)
def test_the_value_is_that_by_pytensor(name):
    """Oracle: PyTensor evaluates the model's own graph, draw by draw."""
    function = compiled_plainly([model()[variable] for variable in SHAPES], model()[name])
    drawn = draws(7)
    expected = np.stack([function(*values) for values in zip(*drawn.values(), strict=True)])
    assert isinstance(expression(name), Expression), expression(name)
    value = expression(name).evaluate(drawn)
    assert value.dtype == expected.dtype
    assert expression(name).shape == expected.shape[1:]
    np.testing.assert_allclose(value, expected, rtol=1e-12)


@pytest.mark.parametrize("name", FORMULAS)
def test_facts_come_back_byte_for_byte(name):
    facts = expression(name).facts
    back = Expression.from_facts(json.loads(json.dumps(facts)), SHAPES)
    assert json.dumps(back.facts) == json.dumps(facts)
    assert back == expression(name)
    np.testing.assert_array_equal(back.evaluate(draws(2)), expression(name).evaluate(draws(2)))


def test_each_operation_is_among_the_formulas():
    used = {step[0] for name in FORMULAS for step in expression(name).facts}
    # Older versions of PyTensor have no operation for a logarithm of a sum of exponentials.
    assert used | {"logsumexp"} == set(OPERATIONS)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a scan", "the operation Scan"),
        ("a function", "the operation"),
        ("a mask that is computed", "its shape may differ between draws"),
        ("a slice that is computed", "computed from released variables"),
        ("linear algebra", "the operation Det"),
        ("an infinite number", "not finite"),
        ("a complex number", "complex128"),
        ("data", "the data"),
        ("the shape of data", "the shape of data"),
        ("another random variable", "the variable 'other'"),
        ("its shape", "the shape of data"),
        ("out of range", "no value at public points"),
        ("too large", "larger than a formula may be"),
    ],
)
def test_what_has_no_expression_has_a_reason(name, reason):
    assert reason in expression(name)


def test_each_step_stands_once_and_none_is_idle():
    facts = expression("a shared part").facts
    assert [step[0] for step in facts].count("true_divide") == 1
    assert [step[0] for step in facts].count("released") == 2
    assert expression("a shared part").released == (("p", (2, 3)), ("rate", (2,)))


def test_a_value_does_not_depend_on_the_other_draws():
    drawn = draws(20)
    for name in FORMULAS:
        alone = [expression(name).evaluate({one: array[[i]] for one, array in drawn.items()})[0] for i in range(20)]
        np.testing.assert_array_equal(expression(name).evaluate(drawn), alone)


def test_evaluation_needs_no_model():
    code = f"""
import json, sys
from pymc_dirdp.models.expressions import Expression
e = Expression.from_facts({expression("softmax").facts}, {{"p": (2, 3)}})
e.evaluate({{"p": [[[0.2, 0.3, 0.5], [0.1, 0.1, 0.8]]]}})
assert not {{"pytensor", "pymc", "xarray", "arviz"}} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "drawn",
    [
        {},
        {"p": np.ones((4, 3))},
        {"p": np.ones((0, 2, 3))},
        {"p": np.ones(())},
        {"p": np.full((1, 2, 3), "a")},
    ],
)
def test_draws_that_do_not_fit_are_refused(drawn):
    with pytest.raises(ArgumentError, match="draws of"):
        expression("entropy").evaluate(drawn)


P = ["released", [], {"name": "p"}]
NUMBER = ["constant", [], {"dtype": "float64", "shape": [], "values": [2.0]}]


def constant(dtype, shape, values):
    return [["constant", [], {"dtype": dtype, "shape": shape, "values": values}]]


HOSTILE = {
    "no list": None,
    "a text": "p",
    "no step": [],
    "no parts": [P, []],
    "a step too long": [[*P, 0]],
    "another operation": [P, ["eval", [0], {}]],
    "an operation that is no text": [P, [["sum"], [0], {}]],
    "a name of NumPy": [P, ["save", [0], {}]],
    "a variable that is not released": [["released", [], {"name": "q"}]],
    "no name": [["released", [], {}]],
    "itself": [P, ["exp", [1], {}]],
    "a later step": [["exp", [1], {}], P],
    "a negative place": [P, ["exp", [-1], {}]],
    "a truth value for a place": [P, NUMBER, ["power", [0, True], {}]],
    "too many arguments": [P, ["exp", [0, 0], {}]],
    "too few arguments": [P, ["add", [0], {}]],
    "another parameter": [P, ["exp", [0], {"out": 0}]],
    "an idle step": [P, NUMBER, ["exp", [0], {}]],
    "a step twice": [P, P, ["add", [0, 1], {}]],
    "another order": [NUMBER, P, ["add", [1, 0], {}]],
    "an axis too many": [P, ["sum", [0], {"axes": [2]}]],
    "an axis twice": [P, ["sum", [0], {"axes": [0, 0]}]],
    "axes in another order": [P, ["sum", [0], {"axes": [1, 0]}]],
    "a negative axis": [P, ["sort", [0], {"axis": -1}]],
    "shapes that do not fit": [P, ["axes", [0], {"order": [1, 0]}], ["add", [0, 1], {}]],
    "another number of entries": [P, ["reshape", [0], {"shape": [7]}]],
    "an unknown length": [P, ["reshape", [0], {"shape": [-1]}]],
    "no broadcast": [P, ["broadcast", [0], {"shape": [3]}]],
    "a hundred axes": [P, ["axes", [0], {"order": [0, 1, *[None] * 98]}]],
    "numbers without end": [P, ["broadcast", [0], {"shape": [MOST_NUMBERS, 2, 3]}]],
    "an empty giant": [
        P,
        ["index", [0], {"index": [[0, 0, 1], [0, 3, 1]]}],
        ["broadcast", [1], {"shape": [10**7, 0, 3]}],
    ],
    "a giant of bits": [P, ["broadcast", [0], {"shape": [10**30, 2, 3]}]],
    "an index out of range": [P, ["index", [0], {"index": [2, 0]}]],
    "a slice out of range": [P, ["index", [0], {"index": [[1, 2, 1], 0]}]],
    "a slice without steps": [P, ["index", [0], {"index": [[1, 2, 0], 0]}]],
    "an index by floats": [P, NUMBER, ["index", [0, 1], {"index": [None, 0]}]],
    "no index": [P, ["index", [0], {"index": []}]],
    "a product of numbers": [NUMBER, ["matmul", [0, 0], {}]],
    "infinity": constant("float64", [], [float("inf")]),
    "not a number": constant("float64", [], [float("nan")]),
    "a text as a number": constant("float64", [], ["1"]),
    "a nested number": constant("float64", [], [[1.0]]),
    "an integer as a float": constant("float64", [], [1]),
    "a float as an integer": constant("int64", [], [1.0]),
    "a number beyond its type": constant("int8", [], [128]),
    "digits beyond its type": constant("float32", [], [0.1]),
    "5,000 digits": constant("int64", [], [10**5000]),
    "objects": constant("object", [], [1]),
    "complex numbers": constant("complex128", [], [1.0]),
    "too few numbers": constant("float64", [2], [1.0]),
    "bits of floats": [P, ["invert", [0], {}]],
    "differences of truth values": [*constant("bool", [], [True]), ["negative", [0], {}]],
    "no largest": [*constant("float64", [0], []), ["argmax", [0], {"axes": [0]}]],
    "a power of no value": [
        *constant("int64", [], [2]),
        ["negative", [0], {}],
        ["power", [0, 1], {}],
    ],
    "ten thousand steps": [P, *(["exp", [i], {}] for i in range(10_000))],
    "arguments without end": [P, *(["add", [i] * 2000, {}] for i in range(100))],
    "a doubling": [P, *(["join", [i, i], {"axis": 0}] for i in range(40))],
    "a power of products": [
        P,
        ["broadcast", [0], {"shape": [400, 2, 3]}],
        ["reshape", [1], {"shape": [2400, 1]}],
        ["reshape", [1], {"shape": [1, 2400]}],
        ["matmul", [2, 3], {}],
        ["matmul", [4, 4], {}],
    ],
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_facts_are_refused(case):
    started = time.perf_counter()
    with pytest.raises(ArgumentError):
        Expression.from_facts(HOSTILE[case], SHAPES)
    assert time.perf_counter() - started < 2


def places(facts, path=()):
    """Every place in facts, as the keys on the way to it."""
    yield path
    parts = facts.items() if isinstance(facts, dict) else enumerate(facts) if isinstance(facts, list) else ()
    for key, part in parts:
        yield from places(part, (*path, key))


STRANGE = [
    *(None, True, False, 0, 1, 2, -1, 7, 10**7, 2**63, -(2**64), 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf")),
    *(
        "",
        "p",
        "released",
        "constant",
        "sum",
        "matmul",
        "float64",
        "int8",
        "object",
        "\ud800",
        [],
        {},
        [0],
        [[0]],
        [2, 3],
    ),
    *([10**7], [0, 3, 1], [0, 10**6, 1], [None], [1.5], {"name": "p"}, {"axes": [0]}, {"axes": []}, {1: 2}, NUMBER, P),
]


@settings(max_examples=600)
@given(st.data())
def test_edited_facts_are_refused_or_end_quickly(data):
    name = data.draw(st.sampled_from(sorted(FORMULAS)))
    facts = expression(name).facts
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from([path for path in places(facts) if path] or [()]))
        if not path:
            break
        inner = facts
        for key in path[:-1]:
            inner = inner[key]
        match data.draw(st.sampled_from(["replace", "remove", "double"])):
            case "replace":
                inner[path[-1]] = copy.deepcopy(data.draw(st.sampled_from(STRANGE)))
            case "remove":
                del inner[path[-1]]
            case "double" if isinstance(inner, list):
                inner.insert(path[-1], copy.deepcopy(inner[path[-1]]))
    started = time.perf_counter()
    try:
        edited = Expression.from_facts(facts, SHAPES)
        value = edited.evaluate(draws(2))
    except ArgumentError:
        pass
    else:
        assert value.shape == (2, *edited.shape)
        assert value.size <= 2 * MOST_NUMBERS
        assert json.dumps(edited.facts) == json.dumps(facts)
    assert time.perf_counter() - started < 2
