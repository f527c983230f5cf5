"""Formulas of shares that are read by their values: what they are, what they only nearly are, and what is not asked."""

import re

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.ops import FromFunctionOp
from pytensor.graph.op import Op
from scipy.sparse import csr_matrix

import pymc_dirdp as dirdp
from pymc_dirdp.errors import UnsupportedModelError
from pymc_dirdp.models.cells import Numbering, UnreadableError
from tests.planned import counts_of

from .small import CODES, YES, N, beta, built, simplex

RNG = np.random.default_rng(5)
GRID = RNG.integers(0, 3, (N, N))
ONE_HOT = np.eye(3)[CODES]


def zeros(shape):
    return np.zeros([N if n is None else n for n in shape], dtype=int)


def tossed(p):
    pm.Bernoulli("y", p=p, observed=zeros(p.type.shape))


def coded(p):
    pm.Categorical("y", p=p, observed=zeros(p.type.shape[:-1]))


def found(build):
    return dirdp.tables(built(build))


# What is a share at some points only.
NO_SHARES = {
    "the larger": lambda b: pt.maximum(b, 1 - b),
    "a limit from below": lambda b: pt.clip(b, 1e-7, 1),
    "a limit from above": lambda b: pt.minimum(b, 1 - 1e-7),
    "limits in the middle": lambda b: pt.clip(b, 0.01, 0.99),
    "a distance": lambda b: 0.5 + abs(b - 0.5),
    "a little more": lambda b: b + 1e-9,
    "a little less": lambda b: b * (1 - 1e-7),
    "a wave": lambda b: b + 1e-6 * pt.sin(1e6 * b),
    "chosen by itself": lambda b: pt.switch(b > 0.5, b, 1 - b),
    "rounded": lambda b: pt.round(b, mode="half_to_even"),
    "sorted": lambda b: pt.sort(pt.stack([b, 1 - b]))[0],
    "no number": lambda b: b * np.nan,
}


@pytest.mark.parametrize("called", NO_SHARES)
def test_what_is_a_share_at_some_points_only_is_refused(called):
    """Of one number and of forty; 16 points lie in the middle and near the corners."""
    for shape in ((), (40,)):
        with pytest.raises(UnsupportedModelError, match=r"is computed from 'b': it is"):
            found(lambda shape=shape: tossed(NO_SHARES[called](beta(*shape)[0] if shape else beta())))


def switched(rows):
    """Combinations of codes are tried in turn, because the second variable stands at two positions."""
    first, second = pm.Data("first", [0, 1]), pm.Data("second", [0, 1])
    tossed(pt.switch(first, beta(2, name="c"), beta(rows)[second]))


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: coded(pt.sort(simplex(3))), "which is not a share"),
        (lambda: coded(pt.maximum((p := simplex(8)), p[::-1])), "which is not a share"),
        (lambda: tossed(2 * beta(2)), "which is not a share"),
        (lambda: tossed(pm.Deterministic("d", beta(2) ** 2)), "is a power of shares"),
        (lambda: tossed(beta(2) * beta(2, name="c")), "from 'b' and 'c'.*is a product of shares"),
        (lambda: tossed(beta(2) + beta(2, name="c")), "is a sum of shares"),
        (lambda: tossed((p := simplex(3))[0] + p[1]), "is a sum of shares"),
        (lambda: coded((p := simplex(3))[:2] / (p[0] + p[1])), "is a quotient of shares"),
        (lambda: tossed((b := beta(2)) / (1 - b)), "is a quotient of shares"),
        (lambda: tossed(pt.stack([beta(2)[0], 0.5])), "which is not a share"),
        (lambda: tossed(pm.math.switch(YES, beta(), 0.5)), r"is a choice by pm\.math\.switch of shares"),
        (lambda: tossed(pt.switch(pm.Data("half", [0, 1]), beta(2), 0.5)), "which is not a share"),
        (lambda: tossed(pt.switch((b := beta(2)) > 0.5, b, beta(2, name="c"))), "condition on shares"),
        (lambda: tossed(beta(2).astype("int64")), "is computed from 'b'"),
        (lambda: pm.Bernoulli("y", logit_p=beta(), observed=YES), "is an inverse logit of shares"),
        (lambda: tossed(beta(2).mean()[None]), "is computed from 'b'"),
        (lambda: tossed(beta(2)[pytensor.shared(0, name="which")][None]), "is computed from 'b'|computed in the model"),
        (lambda: coded(pm.math.softmax(pm.math.log(simplex(3)[:2]))), "is a softmax of shares"),
        (lambda: coded(pm.math.softmax(pm.math.log(simplex(2, 2)), axis=0)), "is a softmax of shares"),
        # The first of the two axes holds the categories.
        (lambda: coded(pm.math.softmax(pm.math.log(simplex(2, 2).T), axis=(0, 1)).T), "is computed from 'p'"),
        (lambda: coded(pm.math.log_softmax(pm.math.log(simplex(2, 2)), axis=-1)), "is computed from 'p'"),
        # Codes that are used in another way than to choose a row for each record.
        (lambda: coded(simplex(3, 2, 4)[CODES, :, YES]), "categories from several rows"),
        (lambda: coded(simplex(3, 2, 4)[CODES, pt.cumsum(YES)]), "computed in the model.*a formula"),
        (lambda: coded(simplex(3, 2, 4)[CODES, pytensor.shared(0, name="base") + YES]), "computed in the model"),
        (lambda: coded(simplex(3, 2, 4)[CODES, pm.Categorical("hidden", p=[0.5, 0.5], shape=N)]), "hidden"),
        (lambda: coded(simplex(3, 4)[CODES][:-1]), "is sliced, reordered or concatenated along an axis whose rows"),
        (lambda: coded(simplex(3, 4)[CODES].reshape((N, 4))), "has a shape that depends on data"),
        (lambda: tossed(beta(3)[np.arange(3) < 2]), "chosen by a mask"),
        (lambda: tossed(beta(3)[GRID][:, ::-1]), "is sliced, reordered or concatenated"),
        (lambda: tossed(pt.diagonal(beta(3)[GRID])[:, None] * pt.ones((N, N))), "is sliced, reordered or concatenated"),
        (lambda: tossed((p := beta(3)[GRID])[pt.argsort(p[:, 0])]), "is chosen by a function of shares"),
        (lambda: tossed((b := beta(3))[GRID] / b[GRID].sum(axis=1, keepdims=True)), "is sliced, reordered or"),
        (lambda: tossed(pt.switch((p := beta(3)[GRID]) > 0.5, p, p)), "is chosen by a condition on shares"),
        (lambda: tossed(beta(3)[:0]), "it has no entry"),
        (lambda: switched(5001), "is repeated too often"),
        pytest.param(lambda: switched(501), "at several positions, but not at all", marks=pytest.mark.thorough),
    ],
)
def test_other_formulas_are_refused_with_what_they_are(build, words):
    with pytest.raises(UnsupportedModelError) as caught:
        found(build)
    assert "'y'" in str(caught.value)
    assert re.search(words, str(caught.value), flags=re.DOTALL), str(caught.value)


@pytest.mark.parametrize("array", [np.ones(N), RNG.normal(size=N)])
@pytest.mark.parametrize("use", [lambda p, x: p * x, lambda p, x: p + x - x, lambda p, x: pt.switch(x > 2, p, p * x)])
def test_numbers_of_an_array_decide_no_refusal(use, array):
    """An array that is written into a formula may be data: ones were taken for numbers, and others for arrays."""
    with pytest.raises(UnsupportedModelError, match="it is computed from shares and an array of numbers"):
        found(lambda: tossed(use(beta(), pt.constant(array))))


class Captured(Op):
    itypes = otypes = (pt.dvector,)

    def perform(self, node, inputs, outputs):
        outputs[0][0] = ONE_HOT @ inputs[0]


def scanned(p):
    rows, _ = pytensor.scan(lambda k: pt.constant(ONE_HOT)[k] @ p, sequences=[pt.arange(N)])
    return rows


def of_its_own(p):
    inside = pt.vector()
    return OpFromGraph([inside], [pt.constant(ONE_HOT) @ inside])(p)


@pytest.mark.filterwarnings("ignore:Scan return signature")
@pytest.mark.parametrize(
    "use",
    [
        lambda p: pt.constant(ONE_HOT) @ p,
        lambda p: pytensor.sparse.structured_dot(pytensor.sparse.as_sparse(csr_matrix(ONE_HOT)), p[:, None])[:, 0],
        lambda p: Captured()(p),
        lambda p: FromFunctionOp(lambda p: ONE_HOT @ p, [pt.dvector], [pt.dvector], None)(p),
        scanned,
        of_its_own,
        # The array is a shape as well as a factor.
        lambda p: (pt.ones(a := pt.constant(np.array([1, 1]))) * a)[0, 0] * p,
        lambda p: ((a := pt.constant(np.array([1, 1]))) * pt.ones(a))[0, 0] * p,
        lambda p: pytensor.shared(ONE_HOT) @ p,
        lambda p: pm.Data("hot", ONE_HOT) @ p,
        lambda p: pm.Bernoulli("hot", pm.Beta("b", 1, 1), shape=(N, 3), observed=ONE_HOT.astype(int)) @ p,
    ],
)
def test_no_array_hides_in_an_operation(use):
    """Values would be those of cells, and which cells these are would be data."""
    words = r"may hold data|shares and data|an array of numbers|no Dirichlet or Beta variable of this model as its"
    with pytest.raises(UnsupportedModelError, match=words):
        found(lambda: tossed(use(simplex(3))))


READ_AS = {
    "two axes of codes, turned round": lambda: tossed(beta(3)[GRID].T),
    "turned round, two axes of codes": lambda: tossed(beta(3)[GRID.T]),
    "a shape that is written into the formula": lambda: tossed(pt.specify_shape(beta(3)[pm.Data("c", CODES)], (N,))),
    "more rows than 8 bits can name": lambda: tossed(beta(300)[CODES.astype("int8")]),
    "more rows than 8 bits can name, all above 0": lambda: tossed(beta(300)[CODES.astype("uint8")]),
    # All codes are read at once, so 90,000 rows take one evaluation for each point.
    "many rows by two codes": lambda: coded(simplex(300, 300, 2)[CODES, CODES + 1]),
    "data": lambda: coded(simplex(3, 2)[pm.Data("group", CODES)]),
    "data that are all one code": lambda: coded(simplex(3, 2)[pm.Data("group", np.zeros(N, int))]),
    "data in turn": lambda: coded(simplex(3, 2)[pm.Data("group", np.arange(N) % 3)]),
}


@pytest.mark.parametrize("called", READ_AS)
def test_codes_choose_the_rows_as_they_are(called):
    """The index map knows the codes' array and never what is in it."""
    (table,) = found(READ_AS[called])
    (likelihood,) = table.likelihoods
    assert (set(likelihood.rows), likelihood.view) == ({None}, None)
    assert not called.startswith("data") or likelihood.parents == ("group",)


@pytest.mark.parametrize(
    "use",
    [
        lambda p, x, y: p[x, x[0]],
        lambda p, x, y: p[:, x][x, 0],
        lambda p, x, y: p[:, x][y, -1],
        lambda p, x, y: p[x, 0][y],
        lambda p, x, y: pt.stack([p[0], p[0], 1 - (1 - p[0])])[x][y, 0],
        lambda p, x, y: p[y, 0] + p[0, 0] - p[0, x][0],
    ],
)
def test_codes_of_single_records_and_records_chosen_by_codes_are_refused(use):
    """A formula in which one entry of the codes decides for all, or in which codes are numbers of records."""
    x, y = CODES, RNG.permutation(CODES)
    with pytest.raises(UnsupportedModelError):
        found(lambda: tossed(use(beta(3, 3), pm.Data("first", x), pm.Data("second", y))))


@pytest.mark.parametrize("n", [0, 1, 3])
def test_any_number_of_records_is_read_in_the_same_way(n):
    """A single record makes axes of length 1; three of them are as many as rows."""

    def build():
        p, q, is_q = simplex(3, 3), simplex(3, name="q"), pt.constant(np.resize([True, False], n))
        chosen = pt.switch(is_q[:, None], q, p[np.resize([0, 2], n)])
        pm.Categorical("y", p=chosen, observed=np.zeros(n, dtype=int))

    seen = [table.likelihoods[0] for table in found(build)]
    assert [(one.rows, len(one.parents), one.view.shape) for one in seen] == [((None, None), 2, (2, 3, 3))] * 2


LENGTHS = {
    "ones": (lambda p, g, x: p[g] * pt.ones(x.shape[0]), True),
    "a power": (lambda p, g, x: p[g] ** pt.ones(g.shape[0]), True),
    "laid out": (lambda p, g, x: pt.broadcast_to(p[0], (x.shape[0],)), True),
    "a row laid out": (lambda p, g, x: pt.broadcast_to(p[None, :], (x.shape[0], 2))[:, 0], True),
    "repeated": (lambda p, g, x: pt.tile(p[:1], x.shape[0]), True),
    "a factor": (lambda p, g, x: p[g] * x.shape[0] / 5, False),
    "whether there are several": (lambda p, g, x: p[g] * (x.shape[0] > 1), False),
    "cut": (lambda p, g, x: p[g][: x.shape[0]], False),
    "a share for each": (lambda p, g, x: p * pt.ones(x.shape[0]), False),
}


@pytest.mark.parametrize("called", LENGTHS)
def test_no_length_of_data_decides_what_is_read(called):
    """A formula may have a length of other data, and may not compute with it: it may be the number of records."""
    use, is_read = LENGTHS[called]
    for n in (1, 2, 5, 1009):

        def build(n=n):
            p = use(beta(2), pm.Data("g", np.arange(n) % 2), pm.Data("x", np.arange(n)))
            pm.Bernoulli("y", p=p, observed=np.zeros(n, dtype=int))

        if is_read:
            assert found(build)[0].shape == (2, 2)
        else:
            with pytest.raises(UnsupportedModelError, match=r"depends on data|length of data|not a share"):
                found(build)


def test_tables_of_one_category():
    with pm.Model() as model:
        pm.Categorical("x", p=simplex(3, 1)[CODES], observed=np.zeros(N, dtype=int))
        pm.Categorical("y", p=simplex(2, name="q"), observed=YES)
    assert counts_of(model)["p"].ravel().tolist() == np.bincount(CODES).tolist()


def test_rows_of_single_precision():
    with pytensor.config.change_flags(floatX="float32"), pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3, dtype="float32"), shape=(3, 3))
        pm.Categorical("y", p=p[CODES, ::-1], observed=CODES)
    assert counts_of(model)["p"].tolist() == np.diag(np.bincount(CODES))[:, ::-1].tolist()


def test_cells_are_numbered_table_after_table():
    numbering = Numbering(("p", "q"), ((2, 3), (2, 2)))
    p, q = map(numbering.of_table, numbering.names)
    assert (p.tolist(), q.tolist()) == ([[0, 1, 2], [3, 4, 5]], [[6, 7], [8, 9]])
    assert numbering.ranges() == [("p", 0, 6), ("q", 6, 10)]
    assert numbering.names_in(q) == ["q"]
    assert numbering.row_of(np.arange(10)).tolist() == [0, 0, 0, 3, 3, 3, 6, 6, 8, 8]
    assert numbering.others(q).tolist() == [[7, 6], [9, 8]]
    assert [numbering.are_rows(cells) for cells in (p[:, ::-1], q[::-1], q.T, p[:, :2])] == [True, True, False, False]
    with pytest.raises(UnreadableError, match="1 minus one of several shares"):
        numbering.others(p)
