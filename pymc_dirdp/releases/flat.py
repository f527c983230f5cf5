"""Many small arrays end to end in one, and the labels of many dims likewise, as the flat form of a release holds them.

A file of netCDF takes milliseconds for every array and every dim, and more for each the more there are.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import shown
from pymc_dirdp.stored.untrusted import Group

__all__ = ["Labels", "Piece", "UnlikeOthersError", "joined", "separated", "texts"]

_MOST_CELLS = 10**8
# The kinds of labels that stand end to end; each other dim keeps its own variable.
_KINDS = {"text": "U", "whole": "i"}


class UnlikeOthersError(Exception):
    """What is to be written is nothing that the flat form holds."""


@final
@dataclass(frozen=True, eq=False)
class Piece:
    """One array among those that stand end to end.

    Attributes
    ----------
    name : str
    dims : tuple of str
        Those after the leading ones, which all arrays share.
    shape : tuple of int
        The lengths along these dims.
    values : array or None
        With the leading axes in front; None if nothing of it is held, because it follows from others.
    """

    name: str
    dims: tuple[str, ...]
    shape: tuple[int, ...]
    values: Array | None


def texts(values: Iterable[str]) -> NDArray[np.str_]:
    """Texts as an array."""
    return np.array(list(values), dtype=np.str_)


def joined(pieces: Sequence[Piece], leading: tuple[str, ...] = ()) -> dict[str, tuple[Any, Any]]:
    """The variables that hold arrays end to end: name, dims and shape of each `piece`, and `values` along `cell`."""
    held = [piece.values for piece in pieces if piece.values is not None]
    if any(values.dtype != np.float64 for values in held):
        raise UnlikeOthersError("an array that is not of doubles")
    flat = [values.reshape(*values.shape[: len(leading)], -1) for values in held]
    return {
        "name": ("piece", texts(piece.name for piece in pieces)),
        "dims": ("piece", texts(json.dumps(piece.dims, ensure_ascii=False) for piece in pieces)),
        "shape": ("piece", texts(json.dumps(piece.shape) for piece in pieces)),
        "values": ((*leading, "cell"), np.concatenate(flat, axis=-1)),
    }


def separated(group: Group, *, held: Sequence[bool] | None = None, leading: tuple[str, ...] = ()) -> list[Piece]:
    """The arrays that a group of a file holds end to end, checked.

    Parameters
    ----------
    group : Group
    held : sequence of bool, optional
        Which of the pieces have cells; all by default.
    leading : tuple of str
        The dims that all arrays share.

    Raises
    ------
    ReleaseError
        If the pieces do not make up the cells exactly.
    """
    names, dims, shapes = (group.words(name, "piece") for name in ("name", "dims", "shape"))
    values = group.array("values")
    if group.dataset["values"].dims != (*leading, "cell"):
        raise group.damaged("the cells do not stand end to end")
    described = [_described(group, *of) for of in zip(names, dims, shapes, strict=True)]
    has_cells = [True] * len(described) if held is None else held
    sizes = [math.prod(one.shape) * has for one, has in zip(described, has_cells, strict=True)]
    if sum(sizes) != values.shape[-1]:
        raise group.damaged("the shapes of its arrays do not make up the number of its cells")
    found, start = [], 0
    for one, size, has in zip(described, sizes, has_cells, strict=True):
        # A copy: each array owns its numbers, as after a file of its own.
        own = values[..., start : start + size].reshape(*values.shape[:-1], *one.shape).copy() if has else None
        found.append(Piece(one.name, one.dims, one.shape, own))
        start += size
    return found


def _described(group: Group, name: str, dims: str, shape: str) -> Piece:
    axes, lengths = group.parsed("dims", dims), group.parsed("shape", shape)
    named = group.texts("dims", axes)
    if not isinstance(lengths, list) or not all(
        type(length) is int and 0 < length <= _MOST_CELLS for length in lengths
    ):
        raise group.damaged(f"{shown(shape)} is no shape of an array")
    if len(lengths) != len(named) or len(set(named)) < len(named) or "" in named or math.prod(lengths) > _MOST_CELLS:
        raise group.damaged(f"the dims {shown(dims)} and the shape {shown(shape)} are not those of an array")
    return Piece(name, named, tuple(lengths), None)


@final
@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of dims, each of which has the same wherever it stands.

    Attributes
    ----------
    of : dict of str to array
    """

    of: dict[str, NDArray[Any]] = field(default_factory=dict)

    def add(self, dim: str, labels: NDArray[Any]) -> None:
        """Note the labels of a dim, which may have been noted before."""
        plain = texts(labels.tolist()) if _is_text(labels) else labels
        before = self.of.setdefault(dim, plain)
        if before.dtype.kind != plain.dtype.kind or not np.array_equal(before, plain):
            raise UnlikeOthersError(f"two dims {dim!r} with other labels")

    def groups(self) -> Iterator[tuple[str, xr.Dataset]]:
        """The groups of a file that hold them."""
        flat: dict[str, Any] = {}
        other: dict[str, NDArray[Any]] = dict(self.of)
        for kind, code in _KINDS.items():
            of_kind = {dim: labels for dim, labels in other.items() if _stands_with(labels, code)}
            if of_kind:
                flat[f"{kind}_dim"] = (f"{kind}_dims", texts(of_kind))
                flat[f"{kind}_length"] = (f"{kind}_dims", np.array([labels.size for labels in of_kind.values()]))
                flat[f"{kind}_label"] = (f"{kind}_labels", np.concatenate(list(of_kind.values())))
            other = {dim: labels for dim, labels in other.items() if dim not in of_kind}
        if flat:
            yield "/labels", xr.Dataset(flat)
        if other:
            yield "/other_labels", xr.Dataset(coords=other)

    @classmethod
    def read(cls, groups: Mapping[str, Group]) -> "Labels":
        """The labels that such groups hold, checked."""
        found = cls()
        if (flat := groups.get("labels")) is not None:
            parts = {kind: {f"{kind}_{part}" for part in ("dim", "length", "label")} for kind in _KINDS}
            flat.exactly(set().union(*parts.values()), coords=set(), attributes=set())
            for kind, names in parts.items():
                if not names.isdisjoint(flat.dataset.variables):
                    found._read_flat(flat, kind)
        if (other := groups.get("other_labels")) is not None:
            for dim, labels in other.dataset.coords.items():
                if labels.dims != (dim,) or dim in found.of:
                    raise other.damaged(f"{shown(dim)} does not label one dim")
                found.of[str(dim)] = labels.values
            other.exactly(set(), coords=set(found.of), attributes=set())
        return found

    def _read_flat(self, group: Group, kind: str) -> None:
        dims = group.words(f"{kind}_dim", f"{kind}_dims")
        lengths = group.whole_numbers(f"{kind}_length", f"{kind}_dims")
        label = f"{kind}_label"
        labels: NDArray[Any]
        if kind == "text":
            # A file returns texts of any length as objects.
            labels = np.array([*group.words(label, f"{kind}_labels"), None], dtype=object)[:-1]
        else:
            labels = group.whole_numbers(label, f"{kind}_labels")
        ends = np.cumsum(lengths)
        if np.any((lengths < 1) | (lengths > labels.size)) or ends[-1] != labels.size:
            raise group.damaged(f"the numbers of labels in {label!r} are not those of its dims")
        if len(set(dims)) < len(dims) or set(dims) & set(self.of):
            raise group.damaged("a dim has labels twice")
        self.of.update(zip(dims, np.split(labels, ends[:-1]), strict=True))


def _is_text(labels: NDArray[Any]) -> bool:
    return labels.dtype.kind in "OT" and all(isinstance(label, str) for label in labels.tolist())


def _stands_with(labels: NDArray[Any], code: str) -> bool:
    return labels.dtype.kind == code and (code == "U" or labels.dtype == np.int64)
