"""The tree that shows a release, as `pm.sample` returns one: a function of its text, and of nothing else.

The same text has the same tree, whoever makes it: draws given noisy counts take their random numbers from a generator
that the digest of the output seeds. They are public, because they follow from what is published.
"""

import json

import numpy as np
import xarray as xr

from pymc_dirdp.arrays import Array
from pymc_dirdp.mechanisms.outputs import Marginals
from pymc_dirdp.releases.aware import draws_given, draws_of_data, draws_together, number_prior
from pymc_dirdp.releases.cell_dims import cell_dims
from pymc_dirdp.releases.comes_along import Deterministic, LeftOut
from pymc_dirdp.releases.description import described, sparse_described
from pymc_dirdp.releases.fitted import shares_fitted
from pymc_dirdp.releases.grammar import digest
from pymc_dirdp.releases.planned import Plan, PlannedTable
from pymc_dirdp.releases.posterior import posterior_group
from pymc_dirdp.releases.text import Release, SparseRelease
from pymc_dirdp.releases.trees import tree_of
from pymc_dirdp.releases.wording import ESTIMATE

__all__ = ["TEXT_GROUP", "values_of", "view"]

TEXT_GROUP = "release"
"""The group of a tree that holds the text, in a variable of the name `text`."""


def view(release: Release | SparseRelease) -> xr.DataTree:
    """The tree of a release, with its text in the group `release`."""
    if isinstance(release, SparseRelease):
        groups, marks = sparse_described(release), _marks(release)
    else:
        groups = described(release.plan, release.plan.composition, sampler=release.sampler, source=release.randomness)
        for name, how in release.postprocess.items():
            groups[f"/mechanism/{name}"].attrs["postprocess"] = how
        drawn = _drawn(release, groups)
        values, failed = values_of(release.deterministics, drawn)
        marks = _marks(release, failed)
        dims = {one.name: one.dims for one in release.deterministics}
        groups = {"/posterior": posterior_group(values, release.plan, dims, marks), **groups}
    text = xr.Dataset({"text": ((), np.array(release.text, dtype=object))})
    tree = tree_of({**groups, f"/{TEXT_GROUP}": text})
    tree.attrs = marks
    return tree


def _drawn(release: Release, groups: dict[str, xr.Dataset]) -> dict[str, Array]:
    """The draws of all tables; noisy counts, and what draws from them rest on, go into the groups."""
    plan, public = release.plan, release.plan.reading.sizes_are_public
    rng = np.random.default_rng(int(digest(release.facts["output"]), 16))
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
        values = together.get(name, fitted[name][None] if name in fitted else output.shares(mechanism))
        if values is None:
            values = _given_published(part, output.values[0], plan, group, rng)
        # A Beta variable is the probability of success, the first of its two categories.
        drawn[name] = values[..., 0] if part.table.family == "beta" else values
    return drawn


def _given_published(
    part: PlannedTable, published: Array, plan: Plan, group: xr.Dataset, rng: np.random.Generator
) -> Array:
    """Draws given a noisy table; the attributes of its group say what they rest on."""
    n_prior = number_prior(part, published, public=plan.reading.sizes_are_public)
    if n_prior is not None:
        group.attrs |= {"least_records": n_prior[0], "most_records": n_prior[-1]}
    if "postprocess" in group.attrs:
        return draws_of_data(part, published, plan.draws, rng, how=group.attrs["postprocess"])
    return draws_given(part, published, plan.draws, rng, n_prior=n_prior)


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
