"""Formulas of shares that are read by their values: what they are, what they only nearly are, and what is not asked."""

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
from pymc_dirdp.models.cells import CellMap, Codes, Numbering, UnreadableError
from pymc_dirdp.models.graph import compile_plain
from pymc_dirdp.models.observations import find_observations, read_counts
from pymc_dirdp.models.shares import read_index_map

N = 60
RNG = np.random.default_rng(5)
YES, CODES = RNG.integers(0, 2, N), RNG.integers(0, 3, N)

SHARES = {
    "a logarithm and back": lambda b: pt.exp(pt.log(b)),
    "log-odds and back": lambda b: pt.sigmoid(pt.log(b) - pt.log1p(-b)),
    "a root and its square": lambda b: pt.sqrt(b) ** 2,
    "1 taken away and added": lambda b: (b - 1) + 1,
    "a number times itself": lambda b: 0.25 * b * 4,
    "a share of both": lambda b: b / (b + (1 - b)),
    "what is left of 1": lambda b: 1 - (1 - b),
    "in another precision": lambda b: b.astype("float32").astype("float64"),
    "sums over an axis": lambda b: pt.stack([b, 1 - b, b]).sum(axis=0) - 1,
    "a matrix product": lambda b: pt.dot(pt.stack([b, 1 - b]), pt.stack([pt.ones(()), pt.zeros(())])),
}
NO_SHARES = {
    "the larger": lambda b: pt.maximum(b, 1 - b),
    "the smaller": lambda b: pt.minimum(b, 1 - b),
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


@pytest.mark.parametrize("called", SHARES)
def test_what_is_a_share_at_every_point_is_that_share(called):
    with pm.Model() as model:
        pm.Bernoulli("y", p=SHARES[called](pm.Beta("b", 1, 1)), observed=YES)
    (table,) = dirdp.tables(model)
    assert read_counts(find_observations([table], model)).tolist() == [YES.sum(), N - YES.sum()]


@pytest.mark.parametrize("called", NO_SHARES)
def test_what_is_a_share_at_some_points_only_is_refused(called):
    """Of one number and of two; 16 points lie in the middle and near the corners."""
    for shape in ((), (2,), (40,)):
        with pm.Model() as model:
            b = pm.Beta("b", 1, 1, shape=shape)
            p = NO_SHARES[called](b[0] if shape else b)
            pm.Bernoulli("y", p=p, observed=YES)
        with pytest.raises(UnsupportedModelError, match=r"is computed from 'b': it is"):
            dirdp.tables(model)


@pytest.mark.parametrize("d", [2, 3, 5, 8])
@pytest.mark.parametrize("order", [lambda p: pt.sort(p), lambda p: pt.maximum(p, p[::-1]), lambda p: pt.cumsum(p)])
def test_order_statistics_of_a_row_are_no_shares(d, order):
    with pm.Model() as model:
        pm.Categorical("y", p=order(pm.Dirichlet("p", np.ones(d))), observed=YES)
    with pytest.raises(UnsupportedModelError, match="which is not a share"):
        dirdp.tables(model)


# No value of an array decides anything


@pytest.mark.parametrize("array", [np.ones(N), np.r_[np.ones(N - 1), 2.0], RNG.normal(size=N)])
@pytest.mark.parametrize("use", [lambda p, x: p * x, lambda p, x: p + x - x, lambda p, x: pt.switch(x > 2, p, p * x)])
def test_numbers_of_an_array_decide_no_refusal(use, array):
    """An array that is written into a formula may be data: ones were taken for numbers, and others for arrays."""
    with pm.Model() as model:
        pm.Bernoulli("y", p=use(pm.Beta("b", 1, 1), pt.constant(array)), observed=YES)
    with pytest.raises(UnsupportedModelError, match="it is computed from shares and an array of numbers"):
        dirdp.tables(model)


ONE_HOT = np.eye(3)[CODES]


class Captured(Op):
    """Somebody's own operation."""

    itypes = otypes = (pt.dvector,)

    def perform(self, node, inputs, outputs):
        outputs[0][0] = ONE_HOT @ inputs[0]


def scanned(p):
    rows, _ = pytensor.scan(lambda k: pt.constant(ONE_HOT)[k] @ p, sequences=[pt.arange(N)])
    return rows


def of_its_own(p):
    inside = pt.vector()
    return OpFromGraph([inside], [pt.constant(ONE_HOT) @ inside])(p)


def beside_a_shape(p):
    """The array is a shape as well as a factor."""
    array = pt.constant(np.array([1, 1]))
    return (pt.ones(array) * array)[0, 0] * p


def before_a_shape(p):
    array = pt.constant(np.array([1, 1]))
    return (array * pt.ones(array))[0, 0] * p


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
        beside_a_shape,
        before_a_shape,
        lambda p: pytensor.shared(ONE_HOT) @ p,
        lambda p: pm.Data("hot", ONE_HOT) @ p,
        lambda p: pm.Bernoulli("hot", pm.Beta("b", 1, 1), shape=(N, 3), observed=ONE_HOT.astype(int)) @ p,
    ],
)
def test_no_array_hides_in_an_operation(use):
    """Values would be those of cells, and which cells these are would be data."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pm.Bernoulli("y", p=use(p), observed=YES)
    words = r"may hold data|shares and data|an array of numbers|no Dirichlet or Beta variable of this model as its"
    with pytest.raises(UnsupportedModelError, match=words):
        dirdp.tables(model)


@pytest.mark.parametrize("codes", [CODES, np.zeros(N, int), np.arange(N) % 3])
def test_no_code_is_looked_at(codes):
    """The index map knows the codes' array and never what is in it."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(2), shape=(3, 2))
        pm.Categorical("y", p=p[pm.Data("group", codes)], observed=YES)
    (table,) = dirdp.tables(model)
    (likelihood,) = table.likelihoods
    assert (likelihood.rows, likelihood.parents, likelihood.view) == ((None,), ("group",), None)


# Shapes


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int64"])
def test_codes_of_few_bits_for_more_rows_than_they_can_name(dtype):
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1, shape=300)
        pm.Bernoulli("y", p=p[CODES.astype(dtype)], observed=YES)
    (table,) = dirdp.tables(model)
    assert read_counts(find_observations([table], model)).sum() == N
    # Also the rows that no code of this type can name are read.
    assert table.likelihoods[0].view is None


def test_a_shape_that_is_written_into_a_formula_is_no_other_number_of_records():
    with pm.Model() as model:
        p = pm.Beta("p", 1, 1, shape=3)
        pm.Bernoulli("y", p=pt.specify_shape(p[pm.Data("codes", CODES)], (N,)), observed=YES)
    (table,) = dirdp.tables(model)
    assert table.likelihoods[0].rows == (None,)


GRID = RNG.integers(0, 3, (N, N))


@pytest.mark.parametrize(
    ("use", "words"),
    [
        (lambda p: p[GRID][:, ::-1], "is sliced, reordered or concatenated"),
        (lambda p: p[GRID].T, None),
        (lambda p: p[GRID.T], None),
        (lambda p: p[GRID].ravel(), "is sliced, reordered or concatenated"),
        (lambda p: pt.roll(p[GRID], 1, axis=1), "is sliced, reordered or concatenated"),
        (lambda p: pt.diagonal(p[GRID])[:, None] * pt.ones((N, N)), "is sliced, reordered or concatenated"),
        (lambda p: p[GRID][pt.argsort(p[GRID][:, 0])], "is chosen by a function of shares"),
        (lambda p: p[GRID] / p[GRID].sum(axis=1, keepdims=True), "is sliced, reordered or concatenated"),
        (lambda p: pt.switch(p[GRID] > 0.5, p[GRID], p[GRID]), "is chosen by a condition on shares"),
    ],
)
def test_codes_of_two_axes_stay_where_they_are(use, words):
    with pm.Model() as model:
        p = use(pm.Beta("p", 1, 1, shape=3))
        pm.Bernoulli("y", p=p, observed=np.resize(YES, (N, N) if p.type.ndim == 2 else N * N))
    if words is None:
        (table,) = dirdp.tables(model)
        assert table.likelihoods[0].rows == (None,)
    else:
        with pytest.raises(UnsupportedModelError, match=words):
            dirdp.tables(model)


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
    x, y = (pm.draw(pm.Categorical.dist(np.ones(3) / 3), N, random_seed=seed) for seed in (1, 2))
    with pm.Model() as model:
        p = use(pm.Beta("p", 1, 1, shape=(3, 3)), pm.Data("x", x), pm.Data("y", y))
        pm.Bernoulli("z", p=p, observed=np.resize(YES, (N, 3) if p.type.ndim == 2 else N))
    with pytest.raises(UnsupportedModelError):
        dirdp.tables(model)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
def test_any_number_of_records_is_read_in_the_same_way(n):
    """A single record makes axes of length 1; three of them are as many as rows."""
    maps = []
    with pm.Model() as model:
        p, q = pm.Dirichlet("p", np.ones(3), shape=(3, 3)), pm.Dirichlet("q", np.ones(3))
        is_q = pt.constant(np.resize([True, False], n))
        chosen = pt.switch(is_q[:, None], q, p[np.resize([0, 2], n)])
        pm.Categorical("y", p=chosen, observed=np.zeros(n, dtype=int))
    for table in dirdp.tables(model):
        (likelihood,) = table.likelihoods
        maps.append((likelihood.rows, len(likelihood.parents), likelihood.view.shape))
    assert maps == [((None, None), 2, (2, 3, 3))] * 2


LENGTHS = {
    "ones": (lambda p, g, x: p[g] * pt.ones(x.shape[0]), True),
    "ones as long as the codes": (lambda p, g, x: p[g] * pt.ones(g.shape[0]), True),
    "a power": (lambda p, g, x: p[g] ** pt.ones(x.shape[0]), True),
    "laid out": (lambda p, g, x: pt.broadcast_to(p[0], (x.shape[0],)), True),
    "a row laid out": (lambda p, g, x: pt.broadcast_to(p[None, :], (x.shape[0], 2))[:, 0], True),
    "repeated": (lambda p, g, x: pt.tile(p[:1], x.shape[0]), True),
    "a factor": (lambda p, g, x: p[g] * x.shape[0] / 5, False),
    "whether there are several": (lambda p, g, x: p[g] * (x.shape[0] > 1), False),
    "cut": (lambda p, g, x: p[g][: x.shape[0]], False),
    "a share for each": (lambda p, g, x: p * pt.ones(x.shape[0]), False),
}


@pytest.mark.parametrize("called", LENGTHS)
@pytest.mark.parametrize("n", [1, 2, 3, 5, 1009])
def test_no_length_of_data_decides_what_is_read(called, n):
    """A formula may have a length of other data, and may not compute with it: it may be the number of records."""
    use, is_read = LENGTHS[called]
    with pm.Model() as model:
        p = use(pm.Beta("p", 1, 1, shape=2), pm.Data("g", np.arange(n) % 2), pm.Data("x", np.arange(n)))
        pm.Bernoulli("y", p=p, observed=np.zeros(n, dtype=int))
    if is_read:
        assert dirdp.tables(model)[0].shape == (2, 2)
        return
    with pytest.raises(UnsupportedModelError, match=r"depends on data|length of data|not a share"):
        dirdp.tables(model)


def test_a_formula_without_entries_is_refused():
    with pm.Model() as model:
        pm.Bernoulli("y", p=pm.Beta("b", 1, 1, shape=3)[:0], observed=np.zeros(0, dtype=int))
    with pytest.raises(UnsupportedModelError, match="it has no entry"):
        dirdp.tables(model)


def test_tables_of_one_category():
    """Their shares are all 1, so values do not tell their rows apart."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(1), shape=(3, 1))
        pm.Categorical("x", p=p[CODES], observed=np.zeros(N, dtype=int))
        pm.Categorical("y", p=pm.Dirichlet("q", np.ones(2)), observed=YES)
    table = dirdp.tables(model)[0]
    assert read_counts(find_observations([table], model)).ravel().tolist() == np.bincount(CODES).tolist()


def test_rows_of_single_precision():
    with pytensor.config.change_flags(floatX="float32"), pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3, dtype="float32"), shape=(3, 3))
        pm.Categorical("y", p=p[CODES, ::-1], observed=CODES)
    (table,) = dirdp.tables(model)
    assert read_counts(find_observations([table], model)).tolist() == np.diag(np.bincount(CODES))[:, ::-1].tolist()


def test_many_rows():
    """All codes at once, so 90,000 rows take one evaluation for each point."""
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(2), shape=(300, 300, 2))
        pm.Categorical("y", p=p[CODES, CODES + 1, ::-1], observed=YES)
    (table,) = dirdp.tables(model)
    assert table.likelihoods[0].rows == (None, None)


# Random formulas, against their values for codes of other lengths


def random_formula(rng):
    """A formula of up to four moves, which may or may not be a share, its variables and its codes."""
    p, q = pt.tensor3("p", shape=(2, 3, 4)), pt.matrix("q", shape=(3, 2))
    codes = [pt.lvector(f"x{k}") for k in range(3)]
    node = [p, q, p[:, :, 1:3], pt.concatenate([p[0, :, :2], q], axis=0)][rng.integers(4)]
    moves = []
    for _ in range(rng.integers(1, 5)):
        x = codes[rng.integers(3)]
        kind = rng.integers(13)
        axis = int(rng.integers(max(node.type.ndim, 1)))
        moves.append((int(kind), axis))
        if kind <= 3 and node.type.ndim:
            node = node[(slice(None),) * axis + (x,)]
        elif kind == 4 and node.type.ndim > 1:
            node = node[x, codes[rng.integers(3)]]
        elif kind == 5:
            node = node.dimshuffle(rng.permutation(node.type.ndim).tolist())
        elif kind == 6 and node.type.ndim:
            node = node[(slice(None),) * axis + (slice(None, None, -1),)]
        elif kind == 7 and node.type.ndim:
            node = node[(slice(None),) * axis + (int(rng.integers(-2, 2)),)]
        elif kind == 8:
            node = pt.stack([node, node, 1 - (1 - node)], axis=axis)
        elif kind == 9 and node.type.ndim:
            node = pt.switch(
                pt.eq(x, 1).dimshuffle(*["x"] * axis, 0, *["x"] * (node.type.ndim - 1 - axis)), node, 1 - node
            )
        elif kind == 10:
            node = pt.exp(pt.log(node))
        elif kind == 11 and node.type.ndim:
            node = pt.roll(node, 1, axis=axis)
        elif kind == 12 and node.type.ndim:
            node = node[(slice(None),) * axis + (slice(0, 2),)]
    return node, [p, q], codes, moves


def predicted(map_, shares, codes, shape):
    """The values of a tensor by its index map, entry by entry."""
    found = np.empty(shape)
    for place in np.ndindex(shape):
        where = []
        for axis in map_.axes:
            if isinstance(axis, Codes):
                at = [0 if k is None else place[k] for k in axis.on]
                entry = codes[axis.index][tuple(at)]
                where.append(int(bool(entry)) if axis.truth else int(entry))
            else:
                where.append(place[axis])
        found[place] = shares[map_.cells[tuple(where)]]
    return found


def test_random_formulas_are_read_as_what_they_are_or_refused():
    """Oracle: their values, evaluated by PyTensor for codes of a length that the reader never saw."""
    rng, read, refused = np.random.default_rng(11), 0, 0
    numbering = Numbering(("p", "q"), ((2, 3, 4), (3, 2)))
    for _ in range(400):
        node, variables, codes, moves = random_formula(rng)
        maps = {}
        for variable in variables:
            cells = numbering.of_table(variable.name)
            maps[variable] = CellMap(cells, tuple(range(cells.ndim)), cells.ndim)
        try:
            map_ = read_index_map(node, maps, numbering)
        except UnreadableError:
            refused += 1
            continue
        read += 1
        rows = [rng.dirichlet(np.ones(4), (2, 3)), rng.dirichlet(np.ones(2), 3)]
        shares = np.concatenate([row.ravel() for row in rows])
        indices = {axis.index: None for axis in map_.codes}
        outputs = compile_plain([*variables, *codes], [node, *indices])
        for length in (5, 6, 2, 3, 4):
            given = [rng.integers(0, 2, length) for _ in codes]
            try:
                value, *found = outputs(*rows, *given)
            except ValueError:
                # Such as a condition along an axis that has a length of its own.
                continue
            by_index = dict(zip(indices, found, strict=True))
            np.testing.assert_allclose(value, predicted(map_, shares, by_index, value.shape), 1e-12, err_msg=moves)
    assert min(read, refused) > 80
