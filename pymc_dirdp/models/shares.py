"""Reads a formula of released variables by its values: each entry is one of their cells, or the formula is refused.

1. Inputs replace the variables, and the codes that choose between shares, which are data. The rest must not read data.
2. The variables get made-up shares that all differ, and the codes get each value that they could have. An entry with
   the value of the same cell at 16 random points is that cell. For analytic formulas one point is enough, with
   probability 1. Others, such as a maximum or a limit, differ in the middle or near the corners.
3. Random codes, on axes of other lengths, confirm the result.

This needs no knowledge of the operations, and no record is read.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor import scalar as ps
from pytensor.compile.ops import FromFunctionOp
from pytensor.graph.basic import Constant
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.basic import Alloc
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.shape import Reshape, Shape, Shape_i, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, unflatten_index_variables

from pymc_dirdp.models.cells import CellMap, Cells, Codes, Numbering, UnreadableError
from pymc_dirdp.models.graph import FAILURES, Node, compile_plain, evaluate, formula, is_random, origin, rebuild

Shares = NDArray[np.float64]
"""Made-up shares of cells."""


def read_index_map(variable: Node, parameters: Mapping[Node, CellMap], numbering: Numbering) -> CellMap:
    """The index map of a tensor.

    Parameters
    ----------
    variable : Variable
        The tensor.
    parameters : mapping of Variable to CellMap
        The released variables and their cells. For a Beta, these are the cells of success.
    numbering : Numbering
        The tables of these cells.

    Raises
    ------
    UnreadableError
        If an entry is anything but a share.
    """
    if variable in parameters:
        return parameters[variable]
    points = _made_up_shares(numbering)
    inputs = [[point[map_.cells] for map_ in parameters.values()] for point in points]
    return _Values(_Template(variable, [*parameters]), inputs, points).read()


def _made_up_shares(numbering: Numbering) -> list[Shares]:
    """Shares of all cells at some points, from the middle of their rows to near the corners."""
    rng, points = np.random.default_rng(0), []
    first = [rng.integers(shape[-1], size=shape[:-1]) for shape in numbering.shapes]
    for k in range(16):
        rows = []
        for start, shape in zip(first, numbering.shapes, strict=True):
            d = shape[-1]
            drawn = rng.dirichlet(np.ones(d), shape[:-1])
            if k % 2:
                # Each category in turn has nearly all. The others are large compared with 1e-16, the error of 1 - p.
                is_most = (start[..., None] + k // 2) % d == np.arange(d)
                drawn = np.where(is_most, 1.0, 1e-10 * (drawn + 1))
            # A single category has share 1 in each row, which would not identify the row.
            rows.append(drawn / drawn.sum(axis=-1, keepdims=True) if d > 1 else rng.uniform(size=shape))
        points.append(np.concatenate([row.ravel() for row in rows]))
    return points


_CUT = "is sliced, reordered or concatenated along an axis whose rows are chosen by codes"


def _made_up_shapes(variable: Node, parameters: list[Node]) -> dict[Node, Node]:
    """Replacements for the shapes of arrays that are not shares, with lengths that do not depend on data.

    Lengths in the type of an array are a part of the model. Other lengths that are equal remain equal.
    """
    shapes: dict[Node, Node] = {}
    lengths: dict[int, int] = {}
    for node in ancestors([variable], blockers=parameters):
        op: Any = node.owner and node.owner.op
        if not isinstance(op, Shape | Shape_i) or set(parameters) & set(ancestors(node.owner.inputs)):
            continue
        (array,) = node.owner.inputs
        try:
            actual = evaluate(array.shape)
        except FAILURES:
            raise UnreadableError("has a shape that depends on data") from None
        shape = [
            lengths.setdefault(int(n), 1009 + len(lengths)) if known is None else known
            for n, known in zip(actual, array.type.shape, strict=True)
        ]
        shapes[node] = pt.constant(shape if isinstance(op, Shape) else shape[op.i], dtype="int64")
    return shapes


class _Template:
    """A formula with inputs instead of the released variables and of codes.

    Attributes
    ----------
    formula_name : str
        The modeller's name of the formula.
    codes : list of (Variable, bool)
        Arrays of codes, and whether their truth values choose.
    """

    def __init__(self, variable: Node, parameters: list[Node]) -> None:
        self.formula_name = formula(origin(variable)[0])
        self.codes: list[tuple[Node, bool]] = []
        # In double precision, which PyMC's own numbers may not have.
        self._shares: list[Node] = [pt.tensor(dtype="float64", shape=rv.type.shape) for rv in parameters]
        self._inputs: list[Node] = []
        # For each array of codes, the arrays and axes along which it chooses.
        self._along: list[list[tuple[Any, int]]] = []
        self._functions: dict[tuple[tuple[int | None, ...], ...], Callable[..., Any]] = {}
        # Observed variables choose like data, although shares determine their distribution.
        memo = {node: node for node in ancestors([variable]) if is_random(node)}
        self._shapes = _made_up_shapes(variable, parameters)
        with_shapes = memo | self._shapes
        memo.update(zip(parameters, self._shares, strict=True))
        try:
            rebuild([variable], with_shapes, lambda _, entries: entries)
            variable = with_shapes.get(variable, variable)
            rebuild([variable], memo, self._with_inputs)
        except FAILURES:
            raise UnreadableError(f"is {self.formula_name} of shares, which is not a share") from None
        self._formula = memo.get(variable, variable)
        self._refuse_data()

    def _with_inputs(self, node: Any, entries: list[Node]) -> list[Node] | Node:
        """The inputs of an operation, with codes replaced. The input replaces a cast to another float."""
        of_shares = [new is not old for new, old in zip(entries, node.inputs, strict=True)]
        inner = node.op.scalar_op if isinstance(node.op, Elemwise) else node.op
        if not any(of_shares):
            return entries
        if isinstance(inner, SpecifyShape):
            return entries[0]
        if isinstance(inner, ps.Cast) and str(node.outputs[0].type.dtype).startswith("float"):
            return entries[0]
        if isinstance(inner, ps.Switch):
            if of_shares[0]:
                raise UnreadableError("is chosen by a condition on shares")
            return [self._input(entries[0], None), *entries[1:]]
        if isinstance(inner, AdvancedSubtensor):
            indices = unflatten_index_variables(entries[1:], inner.idx_list)
            arrays = {i: axis for axis, i in enumerate(indices) if not isinstance(i, slice) and i.type.ndim}
            if any(index.type.dtype == "bool" for index in arrays):
                raise UnreadableError("is chosen by a mask, which selects rows by position")
            if any(of_shares[1:]):
                raise UnreadableError("is chosen by a function of shares")
            source = entries[0]
            return [source, *(self._input(i, (source, arrays[i])) if i in arrays else i for i in entries[1:])]
        return entries

    def _input(self, index: Node, along: tuple[Node, int] | None) -> Node:
        """The input that replaces codes."""
        key = (index, along is None)
        if key not in self.codes:
            self.codes.append(key)
            self._inputs.append(pt.tensor(dtype="bool" if along is None else "int64", shape=index.type.shape))
            self._along.append([])
        place = self.codes.index(key)
        if along is not None:
            self._along[place].append(along)
        return self._inputs[place]

    def _refuse_data(self) -> None:
        """Refuse formulas that read data other than codes, because the index map would reveal them.

        A single number, and the shape of an array as the shape of another one, are a part of the model.
        """
        waiting, visited = [(self._formula, False)], set[tuple[Node, bool]]()
        while waiting:
            node, is_shape = waiting.pop()
            if (node, is_shape) in visited or node in self._shares or node in self._inputs:
                continue
            visited.add((node, is_shape))
            if node in self._shapes.values() and not is_shape:
                raise UnreadableError("is computed from shares and the length of data")
            if node.owner is not None and not is_random(node):
                op = node.owner.op
                if not type(op).__module__.startswith("pytensor.") or isinstance(op, HasInnerGraph | FromFunctionOp):
                    raise UnreadableError("is computed by an operation that may hold data")
                first = 1 if isinstance(op, Reshape | Alloc) else len(node.owner.inputs)
                if not isinstance(op, Shape | Shape_i):
                    waiting += [(entry, is_shape or i >= first) for i, entry in enumerate(node.owner.inputs)]
            elif not isinstance(node, Constant):
                raise UnreadableError("is computed from shares and data")
            elif not is_shape and math.prod(getattr(node.data, "shape", ())) > 1:
                raise UnreadableError("is computed from shares and an array of numbers")

    def evaluate(
        self, codes: Sequence[NDArray[np.int64]], points: Sequence[Sequence[Shares]]
    ) -> tuple[list[Shares], list[set[int]]]:
        """The values of the formula at points; and for all codes, the lengths of the axes along which they choose.

        Raises
        ------
        UnreadableError
            If it has no values for codes of these shapes.
        """
        shapes = tuple(tuple(1 if n == 1 else None for n in array.shape) for array in codes)
        try:
            if shapes not in self._functions:
                inputs = [pt.tensor(dtype=i.type.dtype, shape=s) for i, s in zip(self._inputs, shapes, strict=True)]
                memo: dict[Node, Node] = dict(zip(self._inputs, inputs, strict=True))
                lengths = [pt.stack([array.shape[axis] for array, axis in along] or [2]) for along in self._along]
                rebuild([self._formula, *lengths], memo, lambda _, entries: entries)
                self._functions[shapes] = compile_plain(
                    [*self._shares, *inputs], [memo.get(graph, graph) for graph in (self._formula, *lengths)]
                )
            arrays = [array.astype(i.type.dtype) for array, i in zip(codes, self._inputs, strict=True)]
            with np.errstate(all="ignore"):
                results = [self._functions[shapes](*point, *arrays) for point in points]
        except FAILURES:
            raise UnreadableError("has a shape that depends on data") from None
        return [np.asarray(values) for values, *_ in results], [set(map(int, lengths)) for lengths in results[0][1:]]


class _Values:
    """The cell behind each entry of a formula, by codes and by position.

    An axis of the formula whose length is that of codes is *free*: combinations of codes can be laid along it. Other
    axes along which codes lie have fixed lengths, as where `switch` chooses between two vectors.
    """

    def __init__(self, template: _Template, inputs: list[list[Shares]], points: list[Shares]) -> None:
        self._template, self._inputs, self._points = template, inputs, points
        self._by_share = np.argsort(points[0])
        (values,), lengths = template.evaluate(self._first_codes(), inputs[:1])
        self._lengths = values.shape
        if any(len(choices) > 1 for choices in lengths):
            raise UnreadableError("combines shares whose shapes do not fit")
        self._levels = [choices.pop() for choices in lengths]
        self._codes = [
            Codes(index, tuple(self._followed(k, axis) for axis in range(index.type.ndim)), truth)
            for k, (index, truth) in enumerate(template.codes)
        ]
        if any(len(set(codes.followed)) < len(codes.followed) for codes in self._codes):
            raise UnreadableError(_CUT)
        self._free = {axis for codes in self._codes for axis in codes.followed if self._lengths[axis] == 1}

    def read(self) -> CellMap:
        """The index map."""
        if 0 in self._lengths:
            raise UnreadableError("has no entry")
        # Codes are laid along the first free axis that they follow; without one, they are tried in turn.
        places = [next((axis for axis in array.followed if axis in self._free), None) for array in self._codes]
        along = {axis: [k for k, place in enumerate(places) if place == axis] for axis in (None, *self._free)}
        axes, shape = list[int | Codes](), list[int]()
        for axis, length in ((None, 0), *enumerate(self._lengths)):
            axes += [self._codes[k] for k in along[axis]] if axis in along else [cast(int, axis)]
            shape += [self._levels[k] for k in along[axis]] if axis in along else [length]
        turns = math.prod(self._levels[k] for k in along[None])
        if math.prod(shape) > 10**7 or turns > 10**4:
            raise UnreadableError("is repeated too often")
        codes, cells = self._first_codes(), list[Cells]()
        for axis in self._free:
            for k, values in zip(along[axis], self._combinations(along[axis]), strict=True):
                codes[k] = values.reshape([-1 if followed == axis else 1 for followed in self._codes[k].on])
        for turn in self._combinations(along[None]).T:
            for k, code in zip(along[None], turn, strict=True):
                codes[k] = np.full_like(codes[k], code)
            cells.append(self._cells(self._template.evaluate(codes, self._inputs)[0]))
        if math.prod(shape) != turns * cells[0].size:
            raise UnreadableError(_CUT)
        map_ = CellMap(np.stack(cells).reshape(shape), tuple(axes), len(self._lengths))
        self._confirm(map_)
        return _in_order(map_)

    def _combinations(self, codes: list[int]) -> Cells:
        """All combinations of some codes, shape (codes, combinations)."""
        levels = [self._levels[k] for k in codes]
        return np.indices(levels).reshape(len(codes), math.prod(levels))

    def _first_codes(self) -> list[Cells]:
        return [np.zeros((1,) * index.type.ndim, dtype=np.int64) for index, _ in self._template.codes]

    def _followed(self, place: int, axis: int) -> int | None:
        """The axis of the formula that an axis of codes follows; None for an axis of length 1 of a condition."""
        index, truth = self._template.codes[place]
        # Other axes of a condition only give it its shape. The axis of a single record is the first.
        candidates = [k for k, n in enumerate(index.type.shape) if n != 1] or [0]
        if truth and axis not in candidates:
            return None
        for length in dict.fromkeys((2, *(n for n in self._lengths if n > 1))):
            codes = self._first_codes()
            codes[place] = np.zeros([length if k == axis else 1 for k in range(index.type.ndim)], dtype=np.int64)
            try:
                (values,), _ = self._template.evaluate(codes, self._inputs[:1])
            except UnreadableError:
                continue
            longer = [k for k, (old, new) in enumerate(zip(self._lengths, values.shape, strict=True)) if new != old]
            if longer:
                if self._lengths[longer[0]] != 1:
                    break
                return longer[0]
            # Where the first entry has another code, the formula differs at the first position of an axis.
            for level in range(1, self._levels[place]):
                codes[place].flat[0] = level
                (others,), _ = self._template.evaluate(codes, self._inputs[:1])
                if not np.allclose(values, others, rtol=1e-9, atol=1e-14):
                    differs = np.atleast_1d(~np.isclose(values, others, rtol=1e-9, atol=1e-14))
                    differ = [np.unique(positions).tolist() for positions in np.nonzero(differs)]
                    along = [k for k, n in enumerate(self._lengths) if n == length and differ[k] == [0]]
                    if len(along) == 1:
                        return along[0]
                    break
        raise UnreadableError(_CUT)

    def _cells(self, values: list[Shares]) -> Cells:
        """The cell that each entry is at all points."""
        known = self._points[0][self._by_share]
        above = np.searchsorted(known, values[0]).clip(0, len(known) - 1)
        below = (above - 1).clip(0)
        is_below = np.abs(values[0] - known[below]) < np.abs(values[0] - known[above])
        cells: Cells = self._by_share[np.where(is_below, below, above)]
        if not self._are_cells(values, cells):
            raise UnreadableError(f"is {self._template.formula_name} of shares, which is not a share")
        return cells

    def _are_cells(self, values: list[Shares], cells: Cells) -> bool:
        pairs = ((array, point[cells]) for array, point in zip(values, self._points, strict=False))
        return all(
            array.shape == share.shape and bool(np.all(np.abs(array - share) <= 1e-9 * share + 1e-14))
            for array, share in pairs
        )

    def _confirm(self, map_: CellMap) -> None:
        """Compare with the values for codes whose entries are drawn independently."""
        rng = np.random.default_rng(2)
        lengths = [101 if axis in self._free else n for axis, n in enumerate(self._lengths)]
        # A formula may read single entries of codes, which by chance are those that were laid along an axis.
        for _ in range(16):
            codes = {
                array: rng.integers(levels, size=[1 if axis is None else lengths[axis] for axis in array.on])
                for array, levels in zip(self._codes, self._levels, strict=True)
            }
            places = []
            for axis in map_.axes:
                values, on = (codes[axis], axis.on) if isinstance(axis, Codes) else (np.arange(lengths[axis]), (axis,))
                followed = [k for k in on if k is not None]
                values = values.reshape([n for n, k in zip(values.shape, on, strict=True) if k is not None])
                others = tuple(k for k in range(map_.ndim) if k not in followed)
                places.append(np.expand_dims(values.transpose(np.argsort(followed)), others))
            cells = np.broadcast_to(map_.cells[tuple(places)], lengths)
            results, choices = self._template.evaluate(list(codes.values()), self._inputs[:1])
            # Codes that choose between records have as many choices as there are records.
            if not self._are_cells(results, cells) or choices != [{levels} for levels in self._levels]:
                raise UnreadableError(_CUT)


def _in_order(map_: CellMap) -> CellMap:
    """The map with its axes in the order of its table, where the last has the smallest steps between cells."""
    longer = [k for k, n in enumerate(map_.cells.shape) if n > 1]
    steps = {k: abs(int(map_.cells.take(1, axis=k).flat[0] - map_.cells.flat[0])) for k in longer}
    in_order = iter(sorted(longer, key=lambda k: -steps[k]))
    order = [next(in_order) if k in steps else k for k in range(map_.cells.ndim)]
    return CellMap(map_.cells.transpose(order), tuple(map_.axes[k] for k in order), map_.ndim)
