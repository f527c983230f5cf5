"""Reads a formula over released variables as an index map: each entry is one of their cells, or it is refused.

The rules are those of arithmetic that hold at every value of the variables: what is taken out of a table, put together,
reordered, taken from 1, or divided by a sum that is 1, is still a share. Everything else is `UnreadableError`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from pytensor import scalar as ps
from pytensor.compile.ops import ViewOp
from pytensor.graph.basic import Constant
from pytensor.tensor.basic import Alloc, Join, MakeVector, TensorFromScalar
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Sum
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.special import LogSoftmax, Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, unflatten_index_variables

from pymc_dirdp.models.cells import (
    CellMap,
    Codes,
    Numbering,
    UnreadableError,
    aligned,
    full_cells,
    indexed,
    public_value,
    slices_along,
)
from pymc_dirdp.models.graph import Node, evaluate, formula, values_read


@dataclass(frozen=True, eq=False)
class _Number:
    """A tensor whose entries are all the same public number."""

    value: float


@dataclass(frozen=True, eq=False)
class _Shares:
    """A tensor of shares, or of a function of them: `minus` is the negative share, `odds` is share / (1 - share)."""

    map: CellMap
    form: Literal["share", "minus", "log", "odds", "log-odds"] = "share"


_Value = _Number | _Shares


def reading_of(variable: Node, parameters: Mapping[Node, CellMap], numbering: Numbering) -> CellMap:
    """The index map of a tensor.

    Parameters
    ----------
    variable : Variable
        What to read.
    parameters : mapping of Variable to CellMap
        The released variables and their cells. Of a Beta, these are the cells of success.
    numbering : Numbering
        The tables of these cells.

    Raises
    ------
    UnreadableError
        If an entry is anything but a share.
    """
    value = _Reader(parameters, numbering).read(variable)
    if isinstance(value, _Number):
        raise UnreadableError("is a number that no released variable changes")
    return _plain(value)


def _plain(value: _Value) -> CellMap:
    if isinstance(value, _Number):
        raise UnreadableError("puts numbers in the place of shares")
    if value.form != "share":
        raise UnreadableError(f"is the {value.form} of a share" if value.form != "minus" else "is a negative share")
    return value.map


class _Reader:
    def __init__(self, parameters: Mapping[Node, CellMap], numbering: Numbering) -> None:
        self._known: dict[Node, _Value] = {node: _Shares(cells) for node, cells in parameters.items()}
        self._parameters = set(parameters)
        self._numbering = numbering

    def read(self, node: Node) -> _Value:
        if node not in self._known:
            value = self._read(node)
            # No public array that a model makes of its shares may have more entries than this.
            if isinstance(value, _Shares) and value.map.cells.size > 10**7:
                raise UnreadableError("is repeated too often")
            self._known[node] = value
        return self._known[node]

    def _read(self, node: Node) -> _Value:
        if not self._parameters & set(values_read(node)):
            return _number(node)
        op: Any = node.owner.op
        if (move := _MOVES.get(type(op))) is not None:
            value = self.copied(node)
            return value if isinstance(value, _Number) else replace(value, map=move(value.map, node))
        rule = _RULES.get(type(op.scalar_op if isinstance(op, Elemwise) else op))
        if rule is None:
            raise UnreadableError(f"is {formula(node)} of shares, which is no share")
        return rule(self, node)

    def copied(self, node: Node) -> _Value:
        return self.read(node.owner.inputs[0])

    def cast(self, node: Node) -> _Value:
        if not str(node.type.dtype).startswith("float"):
            raise UnreadableError("is rounded to integers")
        return self.copied(node)

    def joined(self, node: Node) -> _Value:
        op = node.owner.op
        # An older PyTensor has the axis as the first input.
        parts = list(node.owner.inputs)
        axis = op.axis if hasattr(op, "axis") else int(public_value(parts.pop(0))[0])
        return self._together([self.read(part) for part in parts], parts, axis % node.type.ndim)

    def stacked(self, node: Node) -> _Value:
        parts = node.owner.inputs
        values = [self.read(part) for part in parts]
        # Each is a single number, taken as a vector of one entry.
        vectors = [one if isinstance(one, _Number) else replace(one, map=replace(one.map, ndim=1)) for one in values]
        return self._together(vectors, parts, 0)

    def _together(self, values: list[_Value], parts: list[Node], axis: int) -> _Value:
        forms = {value.form for value in values if isinstance(value, _Shares)}
        if len(forms) > 1 or any(isinstance(value, _Number) for value in values):
            raise UnreadableError("puts shares and other numbers together")
        maps = [value.map for value in values if isinstance(value, _Shares)]
        slices = [one for map_, part in zip(maps, parts, strict=True) for one in slices_along(map_, part, axis)]
        arrays, axes = aligned(slices)
        return _Shares(CellMap(np.stack(arrays, axis=-1), (*axes, axis), maps[0].ndim), next(iter(forms)))

    def switched(self, node: Node) -> _Value:
        condition, *branches = node.owner.inputs
        if self._parameters & set(values_read(condition)):
            raise UnreadableError("is chosen by a condition on shares")
        yes, no = (self.read(branch) for branch in branches)
        if isinstance(yes, _Number) or isinstance(no, _Number) or yes.form != no.form:
            raise UnreadableError("is a share for some records and a number for others")
        (first, second), axes = aligned([no.map, yes.map])
        on = tuple(None if length == 1 else axis for axis, length in enumerate(condition.type.shape))
        return replace(
            yes, map=CellMap(np.stack([first, second]), (Codes(condition, on, truth=True), *axes), yes.map.ndim)
        )

    # Arithmetic

    def added(self, node: Node) -> _Value:
        values = [self.read(part) for part in node.owner.inputs]
        shares = all(isinstance(value, _Shares) and value.form == "share" for value in values)
        reason = "is a sum of categories, which is no cell" if shares else "adds a number to a share"
        return self._sum([(1, value) for value in values], reason)

    def subtracted(self, node: Node) -> _Value:
        first, second = map(self.read, node.owner.inputs)
        return self._sum([(1, first), (-1, second)], "is a difference that is no share")

    def negated(self, node: Node) -> _Value:
        return self._sum([(-1, self.copied(node))], "is a negative logarithm or odds of a share")

    def multiplied(self, node: Node) -> _Value:
        values = [self.read(part) for part in node.owner.inputs]
        shares = [value for value in values if isinstance(value, _Shares)]
        number = float(np.prod([value.value for value in values if isinstance(value, _Number)]))
        if len(shares) > 1:
            raise UnreadableError("is a product, which is no share")
        terms: list[tuple[float, _Value]] = [(number, share) for share in shares]
        return self._sum(terms or [(1.0, _Number(number))], "is a product, which is no share")

    def _sum(self, terms: Sequence[tuple[float, _Value]], reason: str) -> _Value:
        """The sum of some values, each times a number; the reason says what it is where it is no share."""
        number = sum(factor * value.value for factor, value in terms if isinstance(value, _Number))
        shares = [(factor, value) for factor, value in terms if isinstance(value, _Shares)]
        if not shares:
            return _Number(number)
        factor, value = shares[0]
        if len(shares) == 1:
            if (factor, number) == (1, 0):
                return value
            sign = -factor if value.form == "minus" else factor
            if value.form in ("share", "minus") and (sign, number) in ((1, 0), (-1, 0)):
                return replace(value, form="share" if sign == 1 else "minus")
            if value.form in ("share", "minus") and (sign, number) == (-1, 1):
                return self._rest(value)
            if (value.form, factor, number) == ("log-odds", -1, 0):
                return replace(self._rest(value), form="log-odds")
        elif number == 0:
            forms = [(factor, value.form) for factor, value in shares]
            if forms == [(1, "share"), (1, "share")] and self._are_the_rest(value, shares[1][1]):
                return _Number(1.0)
            if forms == [(1, "log"), (-1, "log")] and self._are_the_rest(value, shares[1][1]):
                return replace(value, form="log-odds")
        raise UnreadableError(reason)

    def divided(self, node: Node) -> _Value:
        above, below = map(self.read, node.owner.inputs)
        if isinstance(below, _Number):
            if below.value == 1:
                return above
        elif isinstance(above, _Shares) and above.form == below.form == "share" and self._are_the_rest(above, below):
            return replace(above, form="odds")
        raise UnreadableError("is a ratio, which is no share")

    def summed(self, node: Node) -> _Value:
        value, axes = self.copied(node), node.owner.op.axis
        map_ = _plain(value)
        axes = tuple(range(map_.ndim)) if axes is None else axes
        if len(axes) == 1 and self._are_whole(map_, axes[0]):
            return _Number(1.0)
        raise UnreadableError("is a sum of categories, which is no cell")

    # Logarithms and odds

    def logarithm(self, node: Node) -> _Value:
        return _changed(self.copied(node), {"share": "log", "odds": "log-odds"}, "is a logarithm of more than a share")

    def logarithm_beside_1(self, node: Node) -> _Value:
        value = self.copied(node)
        if isinstance(value, _Shares) and value.form == "minus":
            return replace(self._rest(value), form="log")
        raise UnreadableError("is a logarithm of more than a share")

    def exponential(self, node: Node) -> _Value:
        return _changed(self.copied(node), {"log": "share", "log-odds": "odds"}, "is an exponential of a share")

    def logistic(self, node: Node) -> _Value:
        reason = "is a logistic function of something that is no log-odds of a share"
        return _changed(self.copied(node), {"log-odds": "share"}, reason)

    def softmax(self, node: Node) -> _Value:
        value, given = self.copied(node), node.owner.op.axis
        if isinstance(value, _Shares) and value.form == "log":
            # All axes, one or several: only a softmax along one gives back the shares of a row.
            every = tuple(range(value.map.ndim))
            axes = every if given is None else (given,) if isinstance(given, int) else tuple(given)
            if len(axes) == 1 and self._are_whole(value.map, axes[0] % value.map.ndim):
                return value if isinstance(node.owner.op, LogSoftmax) else replace(value, form="share")
        raise UnreadableError("is a softmax of something that is no logarithm of whole rows of shares")

    def _rest(self, value: _Shares) -> _Shares:
        """The other share of each row."""
        other = self._numbering.others(value.map.cells)
        return _Shares(CellMap(other, value.map.axes, value.map.ndim))

    def _are_whole(self, map_: CellMap, axis: int) -> bool:
        """Whether the entries along an axis are all categories of a row."""
        by_position = map_.place(axis) is not None and not map_.chosen_along(axis)
        return by_position and self._numbering.are_rows(map_.last(axis))

    def _are_the_rest(self, first: _Shares, second: _Shares) -> bool:
        """Whether both shares add up to 1 everywhere."""
        (one, other), _ = aligned([first.map, second.map])
        two = np.all(self._numbering.categories(one) == 2)
        return bool(two and np.array_equal(self._numbering.others(one), other))


def _changed(value: _Value, forms: Mapping[str, str], reason: str) -> _Shares:
    if isinstance(value, _Number) or value.form not in forms:
        raise UnreadableError(reason)
    return replace(value, form=forms[value.form])  # type: ignore[arg-type]


def _number(node: Node) -> _Number:
    """A public number, or an array of equal ones."""
    if any(not isinstance(leaf, Constant) for leaf in values_read(node) if leaf.owner is None):
        raise UnreadableError("is computed from shares and data")
    values = evaluate(node)
    if values.size == 0 or values.dtype.kind not in "biuf" or np.any(values != values.flat[0]):
        raise UnreadableError("is computed from shares and an array of numbers")
    return _Number(float(values.flat[0]))


# What moves entries without changing them.


def _shuffled(map_: CellMap, node: Node) -> CellMap:
    order = node.owner.op.new_order
    return map_.renumbered({old: new for new, old in enumerate(order) if old != "x"}, len(order))


def _reshaped(map_: CellMap, node: Node) -> CellMap:
    source, shape = node.owner.inputs
    if map_.codes:
        raise UnreadableError("is reshaped after codes have chosen its rows")
    cells = full_cells(map_, source).reshape([int(n) for n in public_value(shape)])
    return CellMap(cells, tuple(range(cells.ndim)), cells.ndim)


def _repeated(map_: CellMap, node: Node) -> CellMap:
    # A tensor repeats itself along axes that nothing follows, so only the number of axes is new.
    source, added = node.owner.inputs[0], node.type.ndim - map_.ndim
    lengths = source.type.shape
    remaining = {axis: axis + added for axis in range(map_.ndim) if lengths[axis] != 1 or map_.chosen_along(axis)}
    return map_.renumbered(remaining, node.type.ndim)


def _indexed(map_: CellMap, node: Node) -> CellMap:
    return indexed(map_, unflatten_index_variables(node.owner.inputs[1:], node.owner.op.idx_list), node.type.ndim)


_MOVES: dict[type, Callable[[CellMap, Node], CellMap]] = {
    DimShuffle: _shuffled,
    Reshape: _reshaped,
    Alloc: _repeated,
    Subtensor: _indexed,
    AdvancedSubtensor: _indexed,
}

_RULES: dict[type, Callable[[_Reader, Node], _Value]] = {
    ViewOp: _Reader.copied,
    SpecifyShape: _Reader.copied,
    TensorFromScalar: _Reader.copied,
    Join: _Reader.joined,
    MakeVector: _Reader.stacked,
    Sum: _Reader.summed,
    Softmax: _Reader.softmax,
    LogSoftmax: _Reader.softmax,
    ps.Identity: _Reader.copied,
    ps.Cast: _Reader.cast,
    ps.Switch: _Reader.switched,
    ps.Add: _Reader.added,
    ps.Sub: _Reader.subtracted,
    ps.Neg: _Reader.negated,
    ps.Mul: _Reader.multiplied,
    ps.TrueDiv: _Reader.divided,
    ps.Log: _Reader.logarithm,
    ps.Log1p: _Reader.logarithm_beside_1,
    ps.Exp: _Reader.exponential,
    ps.Sigmoid: _Reader.logistic,
}
