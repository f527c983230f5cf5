"""The conjugate tables that a model holds, and which of their cells each record feeds. No observed value is read."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.graph.basic import Constant
from pytensor.graph.replace import clone_replace
from pytensor.tensor.elemwise import Elemwise

from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.models.cells import CellMap, Cells, Codes, Numbering, UnreadableError
from pymc_dirdp.models.graph import (
    Node,
    evaluate,
    is_random,
    lower_dims,
    operation,
    origin,
    parameters,
    root_of,
    stored_array,
    value_ancestors,
)
from pymc_dirdp.models.likelihoods import (
    Kind,
    batch_shape,
    broadcast_prior,
    checked_family,
    family_of,
    kind_of,
    prior_of,
    probability_of,
    refuse_uncertain_prior,
    stored_observations,
    trials_parameter,
    unroll_chains,
)
from pymc_dirdp.models.refusals import join_names, refusal
from pymc_dirdp.models.shares import read_index_map
from pymc_dirdp.models.table import Family, Likelihood, Table, View
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.signatures import user_facing


@user_facing
def tables(model: pm.Model | None = None, *, public: Collection[str] | bool = ()) -> tuple[Table, ...]:
    """The conjugate tables that a PyMC model holds, in the model's order.

    No observed value is read; where a prior is integrated out, the number of rows is the shape of the observations.

    Parameters
    ----------
    model : pymc.Model, optional
        By default the model on the context stack. A nested model stands for its root model.
    public : collection of str, or True, default ()
        The `pm.Data` in priors that anybody may know; True for all of them. Names of observed variables are allowed,
        and have no effect here.

    Returns
    -------
    tuple of Table
        At least one table.

    Raises
    ------
    UnsupportedModelError
        If the model holds anything for which the posterior is not known to be a product of Dirichlet or Beta
        distributions of prior plus counts. The error names the variable, the reason and a way out.
    ArgumentError
        If there is no model, or a prior is not positive.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> [(table.name, table.dims) for table in dirdp.tables(model)]
    [('p', ('hair',))]
    """
    model = root_model(model)
    for potential in model.potentials:
        raise refusal("potential", potential.name)
    for rv in model.observed_RVs:
        if family_of(rv) is not None:
            raise refusal("observed parameter", rv.name)
    # PyMC replaces a masked variable by *_observed, *_unobserved and a Deterministic of the variable's own name. This
    # comes before the priors, because a missing value is a free variable whose own message would mislead.
    computed = {deterministic.name for deterministic in model.deterministics}
    for rv in model.free_RVs:
        whole = str(rv.name).removesuffix("_unobserved")
        if whole != rv.name and whole in computed:
            raise refusal("missing values", whole)
    known = [str(variable.name) for variable in (*model.data_vars, *model.observed_RVs)]
    public = known if public is True else public or ()
    for name in public:
        one_of(known, **{"name in public": name})
    families = {str(rv.name): checked_family(rv, model, public) for rv in model.free_RVs}
    followers: dict[str, list[Likelihood]] = {name: [] for name in families}
    integrated: dict[str, Kind] = {}
    for rv in model.observed_RVs:
        kind = kind_of(rv)
        stored_observations(rv, model)
        if kind.trials is not None and any(map(is_random, value_ancestors(trials_parameter(rv, kind)))):
            raise refusal("random trials", rv.name)
        if kind.probability is None:
            integrated[str(rv.name)] = kind
            continue
        for name, likelihood in _route(rv, kind, model)[0].items():
            followers[name].append(likelihood)
    for name, likelihoods in followers.items():
        if not likelihoods:
            raise refusal("no child", name)
    model_tables = []
    for name, rv in model.named_vars.items():
        if name in integrated:
            model_tables.append(_integrated_table(rv, integrated[name], model, public))
        elif name in families:
            model_tables.append(_table(name, families[name], prior_of(rv), name, followers[name], model))
    if not model_tables:
        raise refusal("nothing", model.name or "model")
    if all(table.n_categories == 1 for table in model_tables):
        raise refusal("one category", model_tables[0].name)
    return tuple(model_tables)


def root_model(model: pm.Model | None) -> pm.Model:
    """The model that was passed or is on the context stack; for a nested one, its root model."""
    if isinstance(model, Guarantee):
        raise ArgumentError(
            f"Expected a PyMC model, got the guarantee {type(model).__name__}. The guarantee comes first, then the "
            "model."
        )
    if not isinstance(model, pm.Model | None):
        raise ArgumentError(
            f"Expected a PyMC model, got {type_name(model)}. Pass the model as `model=`, or make the call inside "
            "`with model:`."
        )
    try:
        nested = pm.modelcontext(model)
    except TypeError:
        raise ArgumentError(
            "Expected a PyMC model, got none. Pass it as `model=`, or make the call inside `with model:`."
        ) from None
    return unroll_chains(lower_dims(nested.root))


def _integrated_table(observed: Node, kind: Kind, model: pm.Model, public: Collection[str]) -> Table:
    """The table of a likelihood whose parameter is integrated out: every observation has its own row."""
    name = f"{observed.name}_p"
    if name in model.named_vars:
        raise refusal("name taken", observed.name, released=name)
    arguments = tuple(parameters(observed)[1][position] for position in kind.prior)
    for argument in arguments:
        refuse_uncertain_prior(str(observed.name), argument, model, public)
    batch = batch_shape(observed, kind, model)
    prior = broadcast_prior(str(observed.name), kind.family, map(evaluate, arguments), batch)
    likelihood = Likelihood(str(observed.name), kind.name, tuple(range(len(batch))))
    return _table(name, kind.family, prior, str(observed.name), [likelihood], model)


def _table(
    name: str, family: Family, prior: NDArray[Any], labelled_by: str, likelihoods: Iterable[Likelihood], model: pm.Model
) -> Table:
    """The table, with the dims and coords of the variable `labelled_by`."""
    dims = model.named_vars_to_dims.get(labelled_by)
    dims = None if dims is None else tuple(dims)
    coords = {dim: model.coords[dim] for dim in dims or () if dim is not None}
    released_shape = prior.shape if family == "dirichlet" else prior.shape[:-1]
    for dim, length in zip(dims or (), released_shape, strict=dims is not None):
        labels = coords.get(dim)
        if labels is not None and len(labels) != length:
            raise refusal("labels", labelled_by, dim=dim)
    return Table(name, family, prior, dims, coords, tuple(likelihoods))


@dataclass(frozen=True, eq=False)
class Parent:
    """An array of codes, and the data that it is computed from, record by record.

    Attributes
    ----------
    name : str
        The name of the array, or a description if it has none.
    index : Variable
        The codes, or truth values, as a formula of stored arrays.
    stored : tuple of Variable
        These arrays. Each entry of one determines one code.
    places : tuple of int
        For each axis of these arrays, the axis of `index` that it follows. Other axes of `index` have length 1.
    on : tuple of (int or None)
        For each axis of these arrays, the axis of the observations that it follows; None for an axis of length 1.
    truth : bool
        Whether `index` holds truth values.
    """

    name: str
    index: Node
    stored: tuple[Node, ...]
    places: tuple[int, ...]
    on: tuple[int | None, ...]
    truth: bool

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes of the observations that it follows."""
        return tuple(axis for axis in self.on if axis is not None)

    def lengths(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of one of these arrays where the observations have this batch shape."""
        return tuple(1 if axis is None else shape[axis] for axis in self.on)


# How released variables reach a likelihood: which cell of which table each of its records feeds.


def parents_of(observed: Node, kind: Kind, model: pm.Model) -> tuple[Parent, ...]:
    """The codes that choose the rows of an observed variable of a model whose tables have been found."""
    return () if kind.probability is None else _route(observed, kind, model)[1]


def _route(observed: Node, kind: Kind, model: pm.Model) -> tuple[dict[str, Likelihood], tuple[Parent, ...]]:
    """How a variable's records feed each table, by name, and the codes that choose rows.

    There is a parent for each None in the `rows` of a likelihood. The `kind` has a probability, which is read as an
    index map of released variables.

    Raises
    ------
    UnsupportedModelError
        If the posterior is not known to be a product of Dirichlet or Beta distributions.
    """
    probability = probability_of(observed, kind)
    reached = set(value_ancestors(probability))
    used = {str(rv.name): rv for rv in model.free_RVs if rv in reached and family_of(rv) is not None}
    if not used:
        but = f" but {operation(origin(probability)[0])}" if is_random(origin(probability)[0]) else ""
        raise refusal("no parameter", observed.name, but=but)
    numbering = Numbering(tuple(used), tuple(prior_of(rv).shape for rv in used.values()))
    maps = {}
    for name, rv in used.items():
        cells = numbering.of_table(name)
        # A Beta variable is the probability of success, the first of its two cells.
        cells = cells[..., 0] if family_of(rv) == "beta" else cells
        maps[rv] = CellMap(cells, tuple(range(cells.ndim)), cells.ndim)
    try:
        index_map = read_index_map(probability, maps, numbering)
        cells, axes = _counted(index_map, observed, kind, numbering, used)
    except UnreadableError as error:
        raise refusal("formula", observed.name, names=join_names(sorted(used)), why=str(error)) from None
    fed = numbering.names_in(cells)
    cells, axes = _without(cells, axes, [k for k, n in enumerate(cells.shape[:-1]) if n > 1 and _is_idle(cells, k)])
    whole = _arranged(cells, axes, numbering.of_table(fed[0])) if len(fed) == 1 else None
    if whole is None:
        cells, axes = _without(cells, axes, [k for k, n in enumerate(cells.shape[:-1]) if n == 1])
        _refuse_repeated_rows(cells, axes, observed, numbering)
    else:
        axes = whole
    # The axes of the probability are the last batch axes of the observations.
    before = observed.type.ndim - kind.core - (probability.type.ndim - (kind.family == "dirichlet"))
    parents = []
    for codes in (axis for axis in axes if isinstance(axis, Codes)):
        on = tuple(None if axis is None else axis + before for axis in codes.on)
        parent = _parent_of(replace(codes, on=on), model)
        if parent is None:
            description = codes.index.name or ("an array" if codes.index.owner is None else "a formula")
            raise refusal("computed codes", observed.name, names=join_names(fed), parent=description)
        parents.append(parent)
    rows = tuple(None if isinstance(axis, Codes) else axis + before for axis in axes)
    names = tuple(parent.name for parent in parents)
    likelihoods = {}
    chosen = [k for k, axis in enumerate(axes) if isinstance(axis, Codes)]
    for name, start, stop in numbering.ranges():
        if name in fed:
            inside = (cells >= start) & (cells < stop)
            # Whether codes decide if a record belongs to this table.
            by_codes = any(np.any(inside[..., 0] != inside[..., 0].take([0], axis=k)) for k in chosen)
            view = None if whole is not None else View(np.where(inside, cells - start, -1), by_codes)
            likelihoods[name] = Likelihood(str(observed.name), kind.name, rows, names, view)
    return likelihoods, tuple(parents)


def _is_idle(cells: Cells, axis: int) -> bool:
    """Whether every entry along an axis is the same cell."""
    return bool(np.all(cells == cells.take([0], axis=axis)))


def _without(
    cells: Cells, axes: tuple[int | Codes, ...], idle: Collection[int]
) -> tuple[Cells, tuple[int | Codes, ...]]:
    """The cells without axes along which they do not change."""
    first = cells[tuple(0 if k in idle else slice(None) for k in range(cells.ndim))]
    return first, tuple(axis for k, axis in enumerate(axes) if k not in idle)


def _arranged(cells: Cells, axes: tuple[int | Codes, ...], table: Cells) -> tuple[int | Codes, ...] | None:
    """What decides each row axis of a table; None if these are not the cells of the table."""
    single = [axis for axis, n in zip(axes, cells.shape, strict=False) if n == 1]
    longer = iter(axis for axis, n in zip(axes, cells.shape, strict=False) if n > 1)
    # Axes of length 1 are those of the table in their order, or follow from the form of the formula.
    missing = table.shape[:-1].count(1)
    if not np.array_equal(cells.squeeze(), table.squeeze()) or missing not in (0, len(single)):
        return None
    return tuple(single.pop(0) if n == 1 else next(longer) for n in table.shape[:-1])


def _counted(
    index_map: CellMap, observed: Node, kind: Kind, numbering: Numbering, used: Mapping[str, Node]
) -> tuple[Cells, tuple[int | Codes, ...]]:
    """The cells in which a likelihood counts, outcomes last, and what decides all other axes."""
    names, op_name = join_names(numbering.names_in(index_map.cells)), operation(observed)
    d = numbering.categories(index_map.cells)
    if kind.family == "beta":
        if np.any(d != 2):
            raise refusal("one of many", observed.name, names=names, categories=int(d.max()), operation=op_name)
        return np.stack([index_map.cells, numbering.others(index_map.cells)], axis=-1), index_map.axes
    last = index_map.ndim - 1
    family = family_of(used[numbering.names_in(index_map.cells)[0]])
    mixed = refusal("mixed rows", observed.name, names=names, family=str(family).capitalize(), operation=op_name)
    lines = index_map.last(last)
    whole = numbering.are_rows(lines)
    if index_map.chosen_along(last) or (not whole and _is_idle(lines, lines.ndim - 1)):
        raise mixed if family == "beta" else refusal("last axis", observed.name, names=names)
    if not whole:
        first = numbering.row_of(lines)
        taken, categories = lines.shape[-1], int(d.flat[0])
        distinct = all(len(set(line)) == taken for line in lines.reshape(-1, taken).tolist())
        if np.all(first == first[..., :1]) and distinct:
            facts = {"names": names, "taken": taken, "categories": categories}
            raise refusal("some categories", observed.name, **facts)
        raise mixed
    return lines, tuple(axis for axis in index_map.axes if axis != last)


def _refuse_repeated_rows(cells: Cells, axes: tuple[int | Codes, ...], observed: Node, numbering: Numbering) -> None:
    """Refuse rows that only some positions share, because the model itself would then say who is in which row."""
    rows = numbering.row_of(cells[..., 0])
    by_position = [k for k, axis in enumerate(axes) if not isinstance(axis, Codes)]
    lengths = [rows.shape[k] for k in by_position]
    position = np.arange(int(np.prod(lengths))).reshape(
        [n if k in by_position else 1 for k, n in enumerate(rows.shape)]
    )
    pairs = np.stack([rows.ravel(), np.broadcast_to(position, rows.shape).ravel()])
    if np.unique(pairs, axis=1).shape[1] > np.unique(rows).size:
        raise refusal("repeated rows", observed.name, names=join_names(numbering.names_in(cells)))


def _parent_of(codes: Codes, model: pm.Model) -> Parent | None:
    """The parent behind codes; None if they are computed from anything but data, or from several records each."""
    index = codes.index
    observed = index in model.observed_RVs
    known = {rv: model.rvs_to_values[rv] for rv in model.observed_RVs}
    values = known.get(index, index)
    # PyMC casts a `pm.Data` of floats that is observed; elsewhere a cast may change the codes.
    array = stored_array(values, through_rounding=observed)
    if array is not None:
        formula, leaves = array, [(array, tuple(range(array.type.ndim)))]
    else:
        (formula,) = clone_replace([values], known)
        leaves_or_none = list(_leaves(formula, tuple(range(formula.type.ndim))))
        arrays = [leaf for leaf in leaves_or_none if leaf is not None]
        if len(arrays) < len(leaves_or_none):
            return None
        # A constant with one entry is a number of the formula, or the code of a single record.
        leaves = [leaf for leaf in arrays if not isinstance(leaf[0], Constant) or np.size(leaf[0].data) > 1] or arrays
    places = {place for _, place in leaves}
    if len(places) != 1 or places == {()}:
        return None
    (place,) = places
    on = tuple(codes.on[k] for k in place)
    if all(axis is None for axis in on):
        return None
    stored = tuple(dict.fromkeys(leaf for leaf, _ in leaves))
    named = [str(root.name) for leaf in stored if (root := root_of(leaf)) is not None and root.name]
    name = str(index.name or " and ".join(dict.fromkeys(named)) or "an array")
    return Parent(name, formula, stored, place, on, codes.truth)


def _leaves(node: Node, place: tuple[int, ...]) -> Iterator[tuple[Node, tuple[int, ...]] | None]:
    """The stored arrays behind a formula and the axes on which they lie; None for what is not computed entry by entry.

    `place` has the axis of the formula on which each axis of the node lies.
    """
    source, axes = origin(node)
    place = tuple(place[axis] for axis in axes)
    if isinstance(source, Constant) and source.type.ndim == 0:
        return
    if root_of(source) is not None:
        yield source, place
    elif source.owner is not None and isinstance(source.owner.op, Elemwise):
        for part in source.owner.inputs:
            yield from _leaves(part, place)
    else:
        yield None
