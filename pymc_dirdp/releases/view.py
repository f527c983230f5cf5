"""The tree of a release, in the form that `pm.sample` returns. It is a function of the text alone.

The group `posterior` has the draws, `mechanism` the prior, the noisy counts and the parameters of each mechanism,
`privacy` the guarantee and `utility` the expected errors. Slow results are computed on first use.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from typing import Any, Final, override

import numpy as np
import xarray as xr
from xarray.core.indexing import LazilyIndexedArray, MemoryCachedArray

from pymc_dirdp.accounting.entries import Receipt
from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import DirdpError, UnsupportedModelError
from pymc_dirdp.privacy.people import adjacency_by_name
from pymc_dirdp.releases.axes import PUBLIC_TOTALS, cell_dims, cell_labels, share_dims, share_labels
from pymc_dirdp.releases.deferred import Deferred
from pymc_dirdp.releases.expected_errors import ExpectedErrors
from pymc_dirdp.releases.opened import TEXT_GROUP, LoadedRelease, ReleasedTable, from_text
from pymc_dirdp.releases.plan_types import Plan, PlannedTable, PublicPlan
from pymc_dirdp.releases.wording import ESTIMATE, NO_NUMBER, records_word


class ReleaseTree(xr.DataTree):
    """The tree of a release. A notebook shows its report, with the groups of xarray folded below it.

    Examples
    --------
    >>> "Groups of this xarray.DataTree" in ReleaseTree()._repr_html_()  # It has no release to show.
    False
    """

    __slots__ = ()

    @override
    def _repr_html_(self) -> str:
        groups: str = super()._repr_html_()  # type: ignore[no-untyped-call]
        if self.parent is not None or TEXT_GROUP not in self.children:
            return groups
        from pymc_dirdp.releases.report import report  # It imports this module.

        try:
            page = report(self)._repr_html_()
        except DirdpError:
            return groups  # It was edited, and is not a valid release.
        return f"{page}<details><summary>Groups of this xarray.DataTree</summary>{groups}</details>"


LEFT_OUT = "left_out"
"""The attribute of draws with the names of missing Deterministics, as a JSON list. It is not in the text."""
# The proofs about a draw, by sampler.
ARITHMETIC = {
    "exact": "integers: the release has the proved distribution, and nothing was rounded on the way from the counts",
    "fast": "floating point, rounded to a public grid: the guarantee is proved for the ideal distribution, and nothing "
    "is proved of the last bits of this draw",
}


def view(stored: LoadedRelease) -> xr.DataTree:
    """A new tree of a release, with its text in the group `release`."""
    release = stored.release
    assert release is not None
    marks = release_marks(stored.plan, release.entry, reproducible=stored.reproducible)
    if stored.is_estimate:
        marks["estimate"] = ESTIMATE
    tree = tree_of(
        {
            "/posterior": posterior_group(_draws(stored, release.text), stored.plan, marks),
            **{f"/mechanism/{name}": _mechanism(table) for name, table in stored.tables.items()},
            "/privacy": privacy_group(stored.plan, stored.curves.pure_epsilon),
            "/utility": _utility(stored, release.text),
            f"/{TEXT_GROUP}": text_group(release.text),
        },
        ReleaseTree,
    )
    tree.attrs = marks
    return tree


def text_group(text: str) -> xr.Dataset:
    """The group with the text of a release."""
    # The fast path of xarray does not copy the text, which may be long.
    return xr.Dataset({"text": xr.Variable((), np.array(text, dtype=object), fastpath=True)})


def _draws(stored: LoadedRelease, text: str) -> dict[str, xr.Variable]:
    """The draws of each table, with the dims of the variable. Draws given noisy counts are computed on first use."""
    variables = {}
    for name, table in stored.tables.items():
        dims = ["chain", "draw", *share_dims(table.part.table)]
        shape = (1, stored.plan.released_draws, *table.part.table.released_shape)
        if table.output.shares is None:
            variables[name] = deferred(text, dims, shape, _draws_of(name))
        else:
            variables[name] = xr.Variable(dims, np.array(table.draws).reshape(shape))
    return variables


def deferred(
    text: str, dims: list[str], shape: tuple[int, ...], compute: Callable[[Any], Array], *, printed: bool = True
) -> xr.Variable:
    """A variable of the release with this text, which is computed on first use. Trees store little but their texts.

    Parameters
    ----------
    text : str
    dims : list of str
    shape : tuple of int
    compute : callable
        A function of the loaded release.
    printed : bool
        Whether `print` shows the values; otherwise it shows the shape alone.
    """
    array = Deferred(lambda: compute(from_text(text)), shape, np.dtype(np.float64), source=text)
    return xr.Variable(dims, MemoryCachedArray(array) if printed else LazilyIndexedArray(array))


def _draws_of(name: str) -> Callable[[LoadedRelease], Array]:
    return lambda stored: stored.draws[name]


def release_marks(plan: PublicPlan, entry: Receipt | None, *, reproducible: bool) -> dict[str, Any]:
    """The attributes of the tree of any release."""
    marks = {
        "inference_library": "pymc_dirdp",
        "inference_library_version": plan.library_version,
        "guarantee": str(plan.guarantee),
        "adjacency": plan.adjacency,
        "plan_digest": plan.digest,
    }
    if entry is not None:
        marks["ledger_head"] = entry.head
    if reproducible:
        marks["reproducible"] = "not private"
    return marks


def posterior_group(variables: Mapping[str, xr.Variable], plan: Plan, marks: dict[str, str]) -> xr.Dataset:
    """The draws of tables by name, with the dims `chain`, `draw` and those of the shares."""
    coords: dict[str, Any] = {"chain": [0], "draw": range(next(iter(variables.values())).sizes["draw"])}
    for part in plan.parts:
        coords |= dict(share_labels(part.table))
    # The function of ArviZ for this copies all labels for each variable.
    return xr.Dataset(dict(variables), coords, marks)


def try_view(plan: Plan) -> None:
    """Refuse names and dims that do not fit into a tree, before anything is charged. No data are used."""
    stored = LoadedRelease(plan)
    for part in plan.parts:
        mechanism_group(part, stored)
    privacy_group(plan, stored.curves.pure_epsilon)
    # The center of the simplex in every row.
    middle = {
        part.table.name: xr.Variable(
            ["chain", "draw", *share_dims(part.table)],
            np.full((1, 1, *part.table.released_shape), 1 / part.table.n_categories),
        )
        for part in plan.parts
    }
    try:
        fits = set(posterior_group(middle, plan, {}).data_vars) == set(middle)
    except ValueError:
        fits = False
    if not fits:
        raise UnsupportedModelError(
            f"The names and dims of {', '.join(map(repr, middle))} do not fit into one release. Rename dims, or "
            "declare as many labels as a dim has entries."
        )


def _mechanism(table: ReleasedTable) -> xr.Dataset:
    """The prior, the parameters of the mechanism and its noisy counts."""
    dims = cell_dims(table.part.table)
    dataset = mechanism_group(table.part, table.stored)
    if table.output.shares is None:
        published = table.output.published
        axes_by_name = table.mechanism.published_axes
        dataset.update(
            {name: ([dims[axis] for axis in axes], np.array(published[name])) for name, axes in axes_by_name.items()}
        )
        if (possible := table.possible_records) is not None:
            dataset.attrs |= {"least_records": possible[0], "most_records": possible[-1]}
    return dataset


def mechanism_group(part: PlannedTable, stored: LoadedRelease) -> xr.Dataset:
    """The prior of a table and the parameters of its mechanism."""
    table, mechanism, plan, release = part.table, part.mechanism, stored.plan, stored.release
    dims, sampler = cell_dims(table), plan.sampler
    attrs: dict[str, str | float] = {
        "mechanism": type(mechanism).__name__,
        "family": table.family,
        # As JSON, because a name may contain any character.
        "observed": json.dumps([likelihood.name for likelihood in table.likelihoods]),
        "adjacency": mechanism.adjacency,
        "strategy": plan.strategy,
        "objective": plan.objective,
        "sampler": sampler,
        "arithmetic": ARITHMETIC[sampler],
        "randomness": "" if release is None else release.randomness,
        "contribution": mechanism.contributed.to_json(),
    }
    variables: dict[str, Any] = {"prior": (dims, table.prior.copy())}
    for fact in mechanism.facts:
        value = getattr(mechanism, fact.field)
        if fact.optional and value is None:
            continue
        if fact.is_variable:
            variables[fact.name] = (dims, value.copy()) if fact.kind == "table" else ((), value)
        else:
            attrs[fact.name] = json.dumps(value) if fact.kind == "list" else value
    if part.totals:
        axes = plan.privacy_unit.public_axes(table.name)
        totals = np.reshape(np.array(part.totals, dtype=np.float64), [table.shape[axis] for axis in axes])
        variables[PUBLIC_TOTALS] = ([dims[axis] for axis in axes], totals)
    if (steps := mechanism.steps(sampler, part.n_records)) is not None:
        attrs["steps"] = steps
    if part.choice is not None:
        attrs |= {"chosen_from": json.dumps(part.choice.expected_kl)}
    coords = {dim: labels for dim, labels in cell_labels(table) if labels is not None}
    return xr.Dataset(variables, coords, attrs)


def privacy_group(plan: Plan, pure_epsilon: float) -> xr.Dataset:
    """The guarantee, unit of privacy and assumptions; :func:`pymc_dirdp.interop.as_mechanism` returns the curves."""
    return xr.Dataset(
        attrs={
            "guarantee": type(plan.guarantee).__name__,
            **asdict(plan.guarantee),
            "statement": str(plan.guarantee),
            "adjacency": adjacency_by_name(plan.adjacency).name,
            "neighbours": plan.privacy_unit.neighbours,
            "unit": plan.unit_label,
            "protected": plan.protected,
            "assumptions": json.dumps(plan.assumptions),
            "min_count": plan.min_count,
            "contribution": plan.contribution,
            "groups": json.dumps(plan.groups),
            "released_draws": plan.released_draws,
            **({"pure_epsilon": pure_epsilon} if math.isfinite(pure_epsilon) else {}),
            **({"choices": json.dumps([choice.facts for choice in plan.after])} if plan.after else {}),
        }
    )


def _utility(stored: LoadedRelease, text: str) -> xr.Dataset:
    """The expected errors of each table; NaN if they are unknown."""
    names = list(stored.tables)
    dataset = xr.Dataset(
        {
            number.name: deferred(text, ["table"], (len(names),), _error_of(number.name))
            for number in fields(ExpectedErrors)
        },
        {"table": names},
        {"records": records_word(stored.plan.privacy_unit)},
    )
    if any(part.n_records is None for part in stored.plan.parts):
        dataset.attrs["note"] = NO_NUMBER
    return dataset


def _error_of(number: str) -> Callable[[LoadedRelease], Array]:
    return lambda stored: np.array([getattr(error, number) for error in stored.errors.values()], dtype=np.float64)


# xarray compares each group with its parents, and reads all labels of a group for each of its dims. That takes a second
# for a thousand tables with different dims. This private function adds a group without a comparison.
_PUT: Final = "_set_node_data"


def tree_of(groups: Mapping[str, xr.Dataset], kind: type[xr.DataTree] = xr.DataTree) -> xr.DataTree:
    """The tree that `xarray.DataTree.from_dict` makes of groups below an empty root.

    Groups of the first level without children need no comparison. If a version of xarray lacks the private function,
    the tree is the same and takes longer.

    Parameters
    ----------
    groups : mapping of str to Dataset
        The groups by their paths, such as `"/posterior"` or `"/mechanism/p"`. None is the root.
    kind : type
        The class of the tree.

    Returns
    -------
    tree : xarray.DataTree
    """
    shared = {path.split("/")[1] for path in groups if path.count("/") > 1}
    lone = {path for path in groups if path.count("/") == 1 and path[1:] not in shared and hasattr(xr.DataTree, _PUT)}
    tree = kind.from_dict({path: xr.Dataset() if path in lone else group for path, group in groups.items()})
    for path in lone:
        getattr(tree[path], _PUT)(groups[path].copy(deep=False))
    return tree
