"""The tree that shows a release, as `pm.sample` returns one: a function of its text, and of nothing else.

The same text has the same tree everywhere: draws given noisy counts take their random numbers from a
generator that the digest of the output seeds. They are public, because they follow from what is published.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import xarray as xr

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.inference.measurements import Family, Measurement
from pymc_dirdp.inference.network_fit import fit_tables
from pymc_dirdp.mechanisms.outputs import Marginals, NoisyTable, Output
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.models.table import Table, dim_name
from pymc_dirdp.releases.description import cell_dims, described, labels, sparse_described
from pymc_dirdp.releases.grammar import digest
from pymc_dirdp.releases.noise_posterior import draws_given, draws_together, number_prior
from pymc_dirdp.releases.plan_types import Plan
from pymc_dirdp.releases.text import Deterministic, LeftOut, Release, SparseRelease
from pymc_dirdp.releases.wording import ESTIMATE

__all__ = [
    "TEXT_GROUP",
    "fitted_shares",
    "measurements_of_table",
    "posterior_group",
    "refuse_dims",
    "shares_fitted",
    "tree_of",
    "values_of",
    "view",
]

TEXT_GROUP = "release"
"""The group of a tree that holds the text, in a variable of the name `text`."""


def view(release: Release | SparseRelease) -> xr.DataTree:
    """The tree of a release, with its text in the group `release`."""
    if isinstance(release, SparseRelease):
        groups, marks = sparse_described(release), _marks(release)
    else:
        groups = described(release.plan, release.plan.composition, sampler=release.sampler, source=release.randomness)
        drawn = _drawn(release, groups)
        values, failed = values_of(release.deterministics, drawn)
        marks = _marks(release, failed)
        dims = {one.name: one.dims for one in release.deterministics}
        groups = {"/posterior": posterior_group(values, release.plan, dims, marks), **groups}
    # As it is: a text in an array is copied twice by xarray, and it may be long.
    text = xr.Dataset({"text": xr.Variable((), np.array(release.text, dtype=object), fastpath=True)})
    tree = tree_of({**groups, f"/{TEXT_GROUP}": text})
    tree.attrs = marks
    return tree


def _drawn(release: Release, groups: dict[str, xr.Dataset]) -> dict[str, Array]:
    """The draws of all tables; noisy counts, and what draws from them rest on, go into the groups."""
    plan, public = release.plan, release.plan.reading.sizes_are_public
    # Only noisy counts leave anything to be drawn, and a digest of a million rows takes a while.
    seed = int(digest(release.said["output"]), 16) if plan.publishing(NoisyTable) else 0
    rng = np.random.default_rng(seed)
    fitted = shares_fitted(
        {part.table.name: part.table for part in plan.parts},
        {part.table.name: part.mechanism for part in plan.parts},
        release.output,
        plan.parts[0].n_records if public else None,
    )
    together = draws_together(plan, release.output, plan.draws, rng)
    drawn: dict[str, Array] = {}
    for part in plan.parts:
        name, mechanism, dims = part.table.name, part.mechanism, cell_dims(part.table)
        group, output = groups[f"/mechanism/{name}"], release.output[name]
        group.update(output.variables(dims))
        values = fitted[name][None] if name in fitted else output.shares(mechanism)
        if values is None:
            n_prior = number_prior(part, output.values[0], public=public)
            if n_prior is not None:
                group.attrs |= {"least_records": n_prior[0], "most_records": n_prior[-1]}
            if name in together:
                values = together[name]
            else:
                values = draws_given(part, output.values[0], plan.draws, rng, n_prior=n_prior)
        # A Beta variable is the probability of success, the first of its two categories.
        drawn[name] = values[..., 0] if part.table.family == "beta" else values
    return drawn


def values_of(
    deterministics: tuple[Deterministic, ...], drawn: dict[str, Array]
) -> tuple[dict[str, Array], tuple[LeftOut, ...]]:
    """The draws and what follows from them. A Deterministic that fails at these draws is left out without an error."""
    values, failed = dict(drawn), []
    for one in deterministics:
        try:
            value = one.expression.evaluate(drawn)
        except (ArithmeticError, LookupError, ValueError):
            failed.append(LeftOut(one.name, "fails"))
        else:
            values[one.name] = value
    return values, tuple(failed)


def _marks(release: Release | SparseRelease, failed: tuple[LeftOut, ...] = ()) -> dict[str, str]:
    """The attributes of the tree and of its draws."""
    about = release.plan if isinstance(release, Release) else release
    adjacency = release.plan.adjacency if isinstance(release, Release) else release.mechanism.adjacency
    marks = {
        "inference_library": "pymc_dirdp",
        "inference_library_version": about.library_version,
        "guarantee": str(about.guarantee),
        "adjacency": adjacency,
    }
    if isinstance(release, Release):
        marks["plan_digest"] = release.plan.digest
        if release.plan.publishing(Marginals):
            marks["estimate"] = ESTIMATE
        if left_out := (*release.left_out, *failed):
            # It is written as JSON, because a name may hold any character.
            marks["left_out"] = json.dumps({one.name: str(one) for one in left_out})
    if release.is_seeded:
        marks["reproducible"] = "not private"
    return marks


type Dims = tuple[str | None, ...] | None


def posterior_group(
    values: Mapping[str, Array], chosen: Plan, dims_of: Mapping[str, Dims], marks: dict[str, str]
) -> xr.Dataset:
    """Draws of tables and Deterministics, by name, in arrays of shape `(draws, ...)`, as `pm.sample` returns them.

    `dims_of` has the dims of each Deterministic.
    """
    named = dict(dims_of)
    coords: dict[str, Sequence[Any]] = {}
    for part in chosen.parts:
        named[part.table.name] = part.table.dims
        coords |= labels(part.table)
    variables = {}
    used: dict[str, Sequence[Any]] = {"chain": [0], "draw": range(len(next(iter(values.values()))))}
    for name, value in values.items():
        axes = named.get(name) or (None,) * (value.ndim - 1)
        dims = [dim_name(name, i, dim) for i, dim in enumerate(axes)]
        variables[name] = (["chain", "draw", *dims], value[None])
        # ArviZ numbers the entries of a dim without labels.
        used |= {dim: coords.get(dim, range(size)) for dim, size in zip(dims, value.shape[1:], strict=True)}
    # ArviZ's own function for this copies the labels of all variables for each of them.
    return xr.Dataset(variables, used, marks)


def refuse_dims(tried: Mapping[str, Array], chosen: Plan, dims_of: Mapping[str, Dims]) -> None:
    """Refuse dims that do not fit, before anything is spent: a public draw is put together like the release."""
    tables = [part.table.name for part in chosen.parts]
    for last, name in enumerate(tried):
        if name in tables[:-1]:
            continue
        values = dict(list(tried.items())[: last + 1])
        try:
            fits = set(posterior_group(values, chosen, dims_of, {}).data_vars) == set(values)
        except Exception:
            fits = False
        if not fits and name in tables:
            raise UnsupportedModelError(
                f"The names and dims of {', '.join(map(repr, tables))} do not fit into one release. Rename dims, or "
                "declare as many labels as a dim has entries."
            )
        if not fits:
            raise ArgumentError(
                f"The Deterministic {name!r} has a name or dims that do not fit its shape or the other variables of "
                "the release, so nothing was drawn. Declare dims as long as it is, or leave it out by var_names=[...]."
            )


# xarray compares each group with those above it, and looks through all labels of a group again for each of its dims: a
# second for a thousand tables with dims of their own. This is what it calls once it has compared.
_PUT: Final = "_set_node_data"


def tree_of(groups: Mapping[str, xr.Dataset]) -> xr.DataTree:
    """The tree that `xarray.DataTree.from_dict` makes of groups below an empty root.

    Nothing stands above or below a group of the first level that is alone, so it is put in without being compared.
    Where a version of xarray has no such function, the tree is the same and takes longer.

    Parameters
    ----------
    groups : mapping of str to Dataset
        By their paths, such as `"/posterior"` or `"/mechanism/p"`; none is the root.

    Returns
    -------
    tree : xarray.DataTree
    """
    shared = {path.split("/")[1] for path in groups if path.count("/") > 1}
    alone = {path for path in groups if path.count("/") == 1 and path[1:] not in shared and hasattr(xr.DataTree, _PUT)}
    tree = xr.DataTree.from_dict({path: xr.Dataset() if path in alone else one for path, one in groups.items()})
    for path in alone:
        getattr(tree[path], _PUT)(groups[path].copy(deep=False))
    return tree


def measurements_of_table(
    name: str, dims: tuple[str, ...], mechanism: TableMechanism, output: Output
) -> tuple[Family, list[Measurement]]:
    """One table and the noisy counts that were published of it.

    Parameters
    ----------
    name : str
    dims : tuple of str
        The names of the axes of the table.
    mechanism : TableMechanism
    output : Output
        What it published.
    """
    found = output.measured(mechanism)
    if not found:
        raise ArgumentError(
            f"The release holds no noisy counts of {name!r}, so nothing is fitted to it. dirdp.analyse(release) draws "
            "from the posterior given it."
        )
    measurements = [Measurement(tuple(dims[axis] for axis in axes), noisy, variance) for axes, noisy, variance in found]
    return Family(name, dims, mechanism.shape), measurements


def shares_fitted(
    tables: Mapping[str, Table],
    mechanisms: Mapping[str, TableMechanism],
    outputs: Mapping[str, Output],
    n_records: float | None,
) -> dict[str, Array]:
    """The shares of the tables of which marginals were published, fitted to the marginals of all of them.

    Parameters
    ----------
    tables : mapping of str to Table
    mechanisms : mapping of str to TableMechanism
        Of the same tables, or of more.
    outputs : mapping of str to Output
        What the mechanism of each table published.
    n_records : float or None
        The number of records; None if it is private.
    """
    chosen = {
        name: (tuple(cell_dims(table)), mechanisms[name], outputs[name])
        for name, table in tables.items()
        if mechanisms[name].output_kind is Marginals
    }
    return fitted_shares(chosen, n_records)


def fitted_shares(
    published: Mapping[str, tuple[tuple[str, ...], TableMechanism, Output]], n_records: float | None
) -> dict[str, Array]:
    """The shares of some tables, fitted to what was published of all of them.

    Parameters
    ----------
    published : mapping of str to tuple of (tuple of str, TableMechanism, Output)
        For each table the names of its axes, its mechanism, and the output of that.
    n_records : float or None
        The number of records; None if it is private.
    """
    if not published:
        return {}
    found = [measurements_of_table(name, *one) for name, one in published.items()]
    return fit_tables([family for family, _ in found], [each for _, own in found for each in own], n_records)
