"""The group `posterior` of a release: draws with the dims and labels of the model."""

from collections.abc import Mapping, Sequence
from typing import Any

import xarray as xr

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.models.names import dim_name
from pymc_dirdp.releases.description import labels
from pymc_dirdp.releases.planned import Plan

__all__ = ["posterior_group", "refuse_dims"]

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
