"""How released variables reach a likelihood: which cell of which table each of its records feeds."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pymc_dirdp.errors import UnsupportedModelError
from pymc_dirdp.models.cells import CellMap, Cells, Codes, Numbering, UnreadableError
from pymc_dirdp.models.codes import Parent, parent_of
from pymc_dirdp.models.graph import Node, is_random, operation, origin, values_read
from pymc_dirdp.models.likelihoods import Kind, family_of, prior_of, probability_of
from pymc_dirdp.models.refusals import refusal
from pymc_dirdp.models.shares import reading_of
from pymc_dirdp.models.table import Family, Likelihood, View

__all__ = ["Route", "parents_of", "route"]


@dataclass(frozen=True, eq=False)
class Route:
    """The way from the released variables to an observed variable.

    Attributes
    ----------
    likelihoods : tuple of (Variable, Likelihood)
        Each released variable that its records feed, and how.
    parents : tuple of Parent
        The codes that choose rows, one for each None in the `rows` of a likelihood.
    """

    likelihoods: tuple[tuple[Node, Likelihood], ...]
    parents: tuple[Parent, ...]


def parents_of(observed: Node, kind: Kind, model: pm.Model) -> tuple[Parent, ...]:
    """The codes that choose the rows of an observed variable of a model whose tables have been found."""
    if kind.probability is None:
        return ()
    reached = set(values_read(probability_of(observed, kind)))
    used = (rv for rv in model.free_RVs if rv in reached)
    families = {rv: family for rv in used if (family := family_of(rv)) is not None}
    return route(observed, kind, families, model).parents


def route(observed: Node, kind: Kind, families: Mapping[Node, Family], model: pm.Model) -> Route:
    """Read the probability of an observed variable as an index map of released variables.

    The `kind` has a probability, and `families` holds all released variables of the model.

    Raises
    ------
    UnsupportedModelError
        If the posterior is not known to be a product of Dirichlet or Beta distributions.
    """
    probability = probability_of(observed, kind)
    reached = set(values_read(probability))
    used = [rv for rv in families if rv in reached]
    if not used:
        but = f" but {operation(origin(probability)[0])}" if is_random(origin(probability)[0]) else ""
        raise refusal("no parameter", observed.name, but=but)
    numbering = Numbering(tuple(str(rv.name) for rv in used), tuple(prior_of(rv).shape for rv in used))
    try:
        read = reading_of(probability, {rv: _cells_of(rv, families[rv], numbering) for rv in used}, numbering)
        cells, axes = _counted(read, observed, kind, numbering, {str(rv.name): families[rv] for rv in used})
    except UnreadableError as error:
        reason = str(error)
    else:
        batch_ndim = probability.type.ndim - (kind.family == "dirichlet")
        renumbered = {axis: axis + observed.type.ndim - kind.core - batch_ndim for axis in range(probability.type.ndim)}
        likelihoods, parents = _routed(cells, axes, renumbered, observed, kind, numbering, model)
        return Route(tuple((rv, likelihoods[str(rv.name)]) for rv in used if str(rv.name) in likelihoods), parents)
    raise _no_route(observed, probability, used, reason)


def _cells_of(rv: Node, family: Family, numbering: Numbering) -> CellMap:
    cells = numbering.of_table(str(rv.name))
    # A Beta variable is the probability of success, the first of its two cells.
    cells = cells[..., 0] if family == "beta" else cells
    return CellMap(cells, tuple(range(cells.ndim)), cells.ndim)


def _counted(
    read: CellMap, observed: Node, kind: Kind, numbering: Numbering, families: Mapping[str, Family]
) -> tuple[Cells, tuple[int | Codes, ...]]:
    """The cells in which a likelihood counts, outcomes last, and what decides all other axes."""
    names, called = _listed(numbering.names_in(read.cells)), operation(observed)
    d = numbering.categories(read.cells)
    if kind.family == "beta":
        if np.any(d != 2):
            raise refusal("one of many", observed.name, names=names, categories=int(d.max()), operation=called)
        return np.stack([read.cells, numbering.others(read.cells)], axis=-1), read.axes
    last = read.ndim - 1
    family = families[numbering.names_in(read.cells)[0]]
    mixed = refusal("mixed rows", observed.name, names=names, family=family.capitalize(), operation=called)
    if read.place(last) is None or read.chosen_along(last):
        raise mixed if family == "beta" else refusal("last axis", observed.name, names=names)
    lines = read.last(last)
    if not numbering.are_rows(lines):
        first = numbering.row_of(lines)
        taken, categories = lines.shape[-1], int(d.flat[0])
        distinct = all(len(set(line)) == taken for line in lines.reshape(-1, taken).tolist())
        if np.all(first == first[..., :1]) and distinct:
            facts = {"names": names, "taken": taken, "categories": categories}
            raise refusal("some categories", observed.name, **facts)
        raise mixed
    return lines, tuple(axis for axis in read.axes if axis != last)


def _routed(
    cells: Cells,
    axes: tuple[int | Codes, ...],
    renumbered: dict[int, int],
    observed: Node,
    kind: Kind,
    numbering: Numbering,
    model: pm.Model,
) -> tuple[dict[str, Likelihood], tuple[Parent, ...]]:
    """The likelihood of each table, by name, and the parents. `renumbered`: from axes of the map to batch axes."""
    whole = numbering.names_in(cells)
    same = len(whole) == 1 and np.array_equal(cells, numbering.of_table(whole[0]))
    if not same:
        cells, axes = _shortened(cells, axes)
        _refuse_repeated_rows(cells, axes, observed, numbering)
    parents = []
    for codes in (axis for axis in axes if isinstance(axis, Codes)):
        parent = parent_of(codes.renumbered(renumbered), model)
        if parent is None:
            called = codes.index.name or ("an array" if codes.index.owner is None else "a formula")
            raise refusal("computed codes", observed.name, names=_listed(whole), parent=called)
        parents.append(parent)
    rows = tuple(None if isinstance(axis, Codes) else renumbered[axis] for axis in axes)
    names = tuple(parent.name for parent in parents)
    found = {}
    for name, start, stop in numbering.ranges():
        if name not in whole:
            continue
        inside = (cells >= start) & (cells < stop)
        view = None if same else View(np.where(inside, cells - start, -1), _by_codes(inside[..., 0], axes))
        found[name] = Likelihood(str(observed.name), kind.name, rows, names, view)
    return found, tuple(parents)


def _shortened(cells: Cells, axes: tuple[int | Codes, ...]) -> tuple[Cells, tuple[int | Codes, ...]]:
    """The same map without the axes along which every entry is the same cell."""
    for place in reversed(range(len(axes))):
        first = cells.take([0], axis=place)
        if np.all(cells == first):
            cells, axes = np.take(first, 0, axis=place), (*axes[:place], *axes[place + 1 :])
    return cells, axes


def _refuse_repeated_rows(cells: Cells, axes: tuple[int | Codes, ...], observed: Node, numbering: Numbering) -> None:
    """Refuse rows that some positions share and others do not. The model itself would then say who is in which row."""
    rows = numbering.row_of(cells[..., 0])
    by_position = [k for k, axis in enumerate(axes) if not isinstance(axis, Codes)]
    lengths = [rows.shape[k] for k in by_position]
    position = np.arange(int(np.prod(lengths))).reshape(
        [n if k in by_position else 1 for k, n in enumerate(rows.shape)]
    )
    pairs = np.stack([rows.ravel(), np.broadcast_to(position, rows.shape).ravel()])
    if np.unique(pairs, axis=1).shape[1] > np.unique(rows).size:
        raise refusal("repeated rows", observed.name, names=_listed(numbering.names_in(cells)))


def _by_codes(inside: NDArray[np.bool_], axes: tuple[int | Codes, ...]) -> bool:
    """Whether codes decide if a record belongs to this table."""
    chosen = [k for k, axis in enumerate(axes) if isinstance(axis, Codes)]
    return any(bool(np.any(inside != inside.take([0], axis=k))) for k in chosen)


def _no_route(observed: Node, probability: Node, used: list[Node], reason: str) -> UnsupportedModelError:
    names = _listed(sorted(str(rv.name) for rv in used))
    return refusal("formula", observed.name, names=names, why=reason)


def _listed(names: list[str]) -> str:
    return " and ".join(map(repr, names))
