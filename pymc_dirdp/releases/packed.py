"""The flat form of a release, which a file holds: one group for all tables, whatever their number.

.. code-block:: text

    mechanism   table | a column for each word and number of a table's mechanism
    cells       piece: table, name, dims, shape, above_prior | cell: values
    posterior   piece: name, dims, shape | chain, draw, cell: values
    labels      the labels of dims that are texts or whole numbers, end to end
    others      draws that are no doubles, such as truth values
    other_labels    labels that are times, or numbers of other kinds

Everything else stands in the file as in the tree. An array that is the prior plus one number is that number alone.
"""

import numbers
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ReleaseError, shown
from pymc_dirdp.releases.flat import Labels, Piece, UnlikeOthersError, joined, separated, texts
from pymc_dirdp.releases.trees import tree_of
from pymc_dirdp.stored.untrusted import Group, group_at

__all__ = ["FORMAT", "packed", "unpacked"]

FORMAT, _VERSION = "pymc_dirdp release", 1
_DRAWS = ("chain", "draw")
_OF_THE_FORM = {"mechanism", "cells", "posterior", "labels", "others", "other_labels"}
_PIECES = {"name", "dims", "shape", "values"}


def packed(release: xr.DataTree) -> xr.DataTree:
    """The flat form of a release.

    Raises
    ------
    UnlikeOthersError
        If it holds what no release does, so that the flat form would lose something.
    """
    groups = {node.path: node.to_dataset(inherit=False) for node in release.subtree}
    posterior, tables = groups.pop("/posterior"), {}
    for path in [path for path in groups if path.startswith("/mechanism/")]:
        tables[path.removeprefix("/mechanism/")] = groups.pop(path)
    labels = Labels()
    groups["/mechanism"] = _columns(tables).assign_attrs(groups["/mechanism"].attrs)
    groups["/cells"] = _cells(tables, labels)
    groups |= dict(_drawn(posterior, labels))
    groups |= dict(labels.groups())
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = {**release.attrs, "format": FORMAT, "format_version": _VERSION}
    try:
        same = unpacked(tree).identical(release)
    except ReleaseError as error:
        raise UnlikeOthersError(str(error)) from error
    if not same:
        raise UnlikeOthersError("something that the flat form does not return as it was")
    return tree


def unpacked(tree: xr.DataTree) -> xr.DataTree:
    """A release from its flat form, which may come from anybody.

    Raises
    ------
    ReleaseError
        If the flat form is damaged or holds anything that a release would lose.
    """
    root = Group("/", tree.to_dataset(inherit=False))
    root.check_attributes()
    if root.text("format") != FORMAT or root.number("format_version") != _VERSION:
        raise ReleaseError(
            f"The file has another format than version {_VERSION} of {FORMAT!r}, which this library reads. Ask whoever "
            "published it for one, or read it with the version of the library that wrote it."
        )
    flat = {str(name): group_at(tree, str(name)) for name in tree.children if name in _OF_THE_FORM}
    if missing := sorted({"mechanism", "cells", "posterior"} - set(flat)):
        raise ReleaseError(f"The file is damaged: it lacks the groups {', '.join(missing)}.")
    for name in flat:
        if tree.children[name].children:
            raise flat[name].damaged("there are further groups, which no release has")
    labels = Labels.read(flat)
    used: set[str] = set()
    groups = {
        "/posterior": _as_drawn(flat["posterior"], flat.get("others"), labels, used),
        "/mechanism": xr.Dataset(attrs=flat["mechanism"].dataset.attrs),
    }
    groups |= {f"/mechanism/{name}": table for name, table in _as_tables(flat, labels, used).items()}
    groups |= {
        node.path: node.to_dataset(inherit=False)
        for node in tree.subtree
        if node.path != "/" and node.path.split("/", 2)[1] not in _OF_THE_FORM
    }
    if unused := set(labels.of) - used:
        raise ReleaseError(f"The file is damaged: it labels {shown(min(unused))}, which is no dim of what it holds.")
    try:
        release = tree_of(groups)
    except (KeyError, TypeError, ValueError) as error:
        raise ReleaseError("The file is damaged: its names are none that variables and groups can have.") from error
    attributes = root.dataset.attrs.items()
    release.attrs = {name: value for name, value in attributes if name not in ("format", "format_version")}
    return release


def _columns(tables: Mapping[str, xr.Dataset]) -> xr.Dataset:
    """A column for each attribute and each single number of the tables; where a table has none, it is empty."""
    columns: dict[str, Any] = {}
    for name in dict.fromkeys(name for table in tables.values() for name in table.attrs):
        columns[str(name)] = _column([table.attrs.get(name) for table in tables.values()])
    singles = {name: None for table in tables.values() for name, one in table.data_vars.items() if not one.dims}
    for name in map(str, singles):
        if name in columns or name == "table":
            raise UnlikeOthersError(f"two things of the name {name!r}")
        values = [table[name].item() if name in table.data_vars else None for table in tables.values()]
        columns[name] = ("table", _numbers(values), {"kind": "variable"})
    return xr.Dataset(columns, {"table": texts(tables)})


def _column(values: list[Any]) -> tuple[str, Any, dict[str, str]]:
    given = [value for value in values if value is not None]
    if all(isinstance(value, str) for value in given):
        return "table", texts(value or "" for value in values), {"kind": "text"}
    whole = all(isinstance(value, numbers.Integral) for value in given)
    return "table", _numbers(values), {"kind": "whole" if whole else "number"}


def _numbers(values: list[Any]) -> Array:
    if not all(value is None or (isinstance(value, numbers.Real) and not isinstance(value, bool)) for value in values):
        raise UnlikeOthersError("a value that is no number")
    return np.array([np.nan if value is None else float(value) for value in values])


def _cells(tables: Mapping[str, xr.Dataset], labels: Labels) -> xr.Dataset:
    """The arrays of all tables."""
    pieces, owners, above = [], [], []
    for owner, table in tables.items():
        _note(table, labels)
        prior = table.get("prior")
        for name, array in table.data_vars.items():
            if not array.dims:
                continue
            step = np.nan
            if prior is not None and name != "prior" and array.dims == prior.dims:
                step = _above(prior.values, array.values)
            values = array.values if np.isnan(step) else None
            pieces.append(Piece(str(name), tuple(map(str, array.dims)), array.shape, values))
            owners.append(owner)
            above.append(step)
    return xr.Dataset({"table": ("piece", texts(owners)), "above_prior": ("piece", above), **joined(pieces)})


def _above(prior: Array, values: Array) -> float:
    """The number that gives these values, to the last bit, when it is added to the prior; NaN if there is none."""
    step = float(values.flat[0]) - float(prior.flat[0])
    # The difference is rounded, so that its sum with the prior may be off by the last bit.
    for one in (step, np.nextafter(step, np.inf), np.nextafter(step, -np.inf)):
        if np.array_equal(prior + one, values):
            return float(one)
    return np.nan


def _note(dataset: xr.Dataset, labels: Labels) -> None:
    for name, coord in dataset.coords.items():
        if coord.dims != (name,):
            raise UnlikeOthersError(f"labels {name!r} of no single dim")
        labels.add(str(name), coord.values)


def _drawn(posterior: xr.Dataset, labels: Labels) -> dict[str, xr.Dataset]:
    """The draws of all variables, and apart from them those that are no doubles."""
    pieces, other = [], {}
    # The data set itself looks through all its labels for each variable that it is asked for.
    for name in posterior.data_vars:
        array = posterior.variables[name]
        if array.dims[:2] == _DRAWS and array.dtype == np.float64:
            pieces.append(Piece(str(name), tuple(map(str, array.dims[2:])), array.shape[2:], array.values))
        else:
            other[name] = array
    for name in posterior.coords:
        coord = posterior.variables[name]
        if coord.dims != (name,):
            raise UnlikeOthersError(f"labels {name!r} of no single dim")
        # ArviZ numbers the entries of a dim without labels, and so does whoever reads the file.
        numbered = coord.dtype == np.int64 and np.array_equal(coord.values, np.arange(coord.size))
        if name not in _DRAWS and not (numbered and name not in labels.of):
            labels.add(str(name), coord.values)
    if not pieces:
        raise UnlikeOthersError("no draws")
    coords = {name: posterior.coords[name].variable for name in _DRAWS if name in posterior.coords}
    groups = {"/posterior": xr.Dataset(joined(pieces, _DRAWS), coords, posterior.attrs)}
    return groups | ({"/others": xr.Dataset(other)} if other else {})


def _as_drawn(group: Group, others: Group | None, labels: Labels, used: set[str]) -> xr.Dataset:
    group.exactly(_PIECES, coords=set(_DRAWS), attributes=None)
    pieces = separated(group, leading=_DRAWS)
    variables: dict[str, Any] = {piece.name: ((*_DRAWS, *piece.dims), piece.values) for piece in pieces}
    if len(variables) < len(pieces):
        raise group.damaged("a variable was drawn twice")
    if others is not None:
        others.exactly(None, coords=set(), attributes=set())
        if again := set(others.dataset.data_vars) & set(variables):
            raise others.damaged(f"{shown(min(map(str, again)))} was drawn twice")
        variables |= {str(name): one.variable for name, one in others.dataset.data_vars.items()}
    coords: dict[str, Any] = dict(group.dataset.coords)
    sizes = {dim: length for piece in pieces for dim, length in zip(piece.dims, piece.shape, strict=True)}
    if others is not None:
        sizes |= {str(dim): length for dim, length in others.dataset.sizes.items()}
    for dim, length in sizes.items():
        if dim not in _DRAWS:
            coords[dim] = labels.of.get(dim, np.arange(length))
            used.add(dim)
    return _dataset(group, variables, coords, group.dataset.attrs)


def _as_tables(flat: Mapping[str, Group], labels: Labels, used: set[str]) -> dict[str, xr.Dataset]:
    """The group of each table, by name."""
    group, cells = flat["mechanism"], flat["cells"]
    group.exactly(None, coords={"table"}, attributes=None, of_variables={"kind"})
    cells.exactly({*_PIECES, "table", "above_prior"}, coords=set(), attributes=set())
    names = group.words("table", "table")
    if len(set(names)) < len(names):
        raise group.damaged("two tables have the same name")
    if wrong := [name for name in names if not name or "/" in name or name in (".", "..")]:
        raise group.damaged(f"{shown(wrong[0])} is no name of a table")
    variables: dict[str, dict[str, Any]] = {name: {} for name in names}
    attributes: dict[str, dict[str, Any]] = {name: {} for name in names}
    for column in map(str, group.dataset.data_vars):
        kind, values = _read_column(group, column)
        for name, value in zip(names, values, strict=True):
            if value is not None:
                (variables if kind == "variable" else attributes)[name][column] = value
    above = cells.any_array("above_prior")
    if cells.dataset["above_prior"].dims != ("piece",) or np.any(np.isinf(above)):
        raise cells.damaged("'above_prior' is no list of numbers")
    owners = cells.words("table", "piece")
    for owner, piece, step in zip(owners, separated(cells, held=np.isnan(above).tolist()), above.tolist(), strict=True):
        if owner not in variables or piece.name in variables[owner] or not piece.dims:
            raise cells.damaged(f"an array belongs to {shown(owner)}, which is no such table, or has it already")
        array = piece.values
        if array is None:
            dims, prior = variables[owner].get("prior", ((), None))
            if dims != piece.dims or prior is None or prior.shape != piece.shape:
                raise cells.damaged(f"{shown(piece.name)} of {shown(owner)} is above a prior that is not there")
            array = prior + step
        variables[owner][piece.name] = (piece.dims, array)
    found = {}
    for name in names:
        arrays = [given for given in variables[name].values() if isinstance(given, tuple)]
        dims = dict.fromkeys(dim for own, _ in arrays for dim in own)
        used.update(dims)
        coords = {dim: labels.of[dim] for dim in dims if dim in labels.of}
        found[name] = _dataset(group, variables[name], coords, attributes[name])
    return found


def _read_column(group: Group, name: str) -> tuple[str, list[Any]]:
    """What a column holds of each table: an attribute or a variable, or None."""
    kind = Group(f"{group.path}/{name}", group.dataset[name]).text("kind")
    if kind == "text":
        return kind, [word or None for word in group.words(name, "table")]
    values = group.any_array(name)
    if kind not in ("whole", "number", "variable") or group.dataset[name].dims != ("table",):
        raise group.damaged(f"{shown(name)} is no column of numbers or texts")
    if kind != "whole":
        return kind, [None if np.isnan(value) else value for value in values.tolist()]
    if np.any(np.isinf(values)) or np.any(values[~np.isnan(values)] % 1):
        raise group.damaged(f"{shown(name)} is no column of whole numbers")
    return kind, [None if np.isnan(value) else int(value) for value in values.tolist()]


def _dataset(group: Group, variables: Mapping[str, Any], coords: Mapping[str, Any], attrs: Any) -> xr.Dataset:
    try:
        return xr.Dataset(variables, coords, attrs)
    except (TypeError, ValueError) as error:
        raise group.damaged("arrays, dims and labels do not fit together") from error
