"""The tree that shows a release, as `pm.sample` returns one: a function of its text, and of nothing else.

The same text has the same tree everywhere: draws given noisy counts take their random numbers from a
generator that the digest of the output seeds. They are exact draws from the posterior given what is published, so
everybody may repeat them with :func:`pymc_dirdp.analyse`, for as many draws.

How the records divide among the rows is drawn, too, where the noisy table leaves it open. A priori the rows share them
as `Dirichlet(sums of the prior of each row)`, so that all cells of the table have one Dirichlet prior. The sums over
totals that any other prior takes could need minutes where noise is wide.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import MOST_RECORDS
from pymc_dirdp.errors import ArgumentError, UnattainableError, UnsupportedModelError
from pymc_dirdp.inference.estimates import draw_shares
from pymc_dirdp.inference.joint_tables import JointTables, SharedNoise, of_blocks
from pymc_dirdp.inference.measurements import Family, Measurement
from pymc_dirdp.inference.numbers import TooManyNumbersError
from pymc_dirdp.inference.rows import KnownTotals, RowPosterior
from pymc_dirdp.inference.table_fit import fit_tables
from pymc_dirdp.inference.tables import CountTree
from pymc_dirdp.mechanisms.outputs import Marginals, NoisyTable, Output
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.models.table import Table, dim_name
from pymc_dirdp.releases.description import cell_dims, described, labels
from pymc_dirdp.releases.plan_types import Plan, PlannedTable
from pymc_dirdp.releases.text import Release
from pymc_dirdp.releases.wording import ESTIMATE
from pymc_dirdp.texts.grammar import digest


def number_prior(part: PlannedTable, published: Array, *, public: bool) -> range | None:
    """The numbers of records that the draws take for as likely as one another; None where the number is public."""
    return None if public else part.mechanism.possible_records(published)


def shared_noises(plan: Plan, output: Mapping[str, Output]) -> dict[str, tuple[SharedNoise, int]]:
    """The outputs of the tables that share a noise with a table, by its name, and its place among them."""
    found: dict[str, tuple[SharedNoise, int]] = {}
    for parts in plan.together:
        noise = SharedNoise(
            tuple(part.mechanism for part in parts),
            tuple(output[part.table.name].values[0] for part in parts),
            tuple(part.table.prior for part in parts),
        )
        found |= {part.table.name: (noise, i) for i, part in enumerate(parts)}
    return found


def draws_together(plan: Plan, output: Mapping[str, Output], draws: int, rng: np.random.Generator) -> dict[str, Array]:
    """Independent draws of the shares of all tables that share a noise, given all of their noisy tables.

    Other arguments are those of :func:`draws_given`.
    """
    found: dict[str, Array] = {}
    for parts in plan.together:
        tables = [part.table for part in parts]
        noise, _ = shared_noises(plan, output)[tables[0].name]
        uniforms = rng.random(draws)
        for table, seen in zip(tables, noise.likelihoods, strict=True):
            counts = JointTables(seen, of_blocks(table.prior, seen)).counts(draws, rng, uniforms)
            found[table.name] = draw_shares(np.stack(counts, axis=1).reshape(draws, *table.shape), table.prior, rng)
    return found


def draws_given(
    part: PlannedTable, published: Array, draws: int, rng: np.random.Generator, *, n_prior: range | None
) -> Array:
    """Independent draws of the shares given a noisy table, shape `(draws, *shape)`.

    Parameters
    ----------
    part : PlannedTable
    published : array, shape of the table
        The noisy counts.
    draws : int
    rng : numpy.random.Generator
        Public in effect: anyone who sees the draws may come to know its state. No noise may have come from it.
    n_prior : range or None
        From :func:`number_prior`.
    """
    if (together := part.mechanism.joint_rows(published)) is not None:
        of_rows = np.stack(JointTables(together, of_blocks(part.table.prior, together)).counts(draws, rng), axis=1)
        return draw_shares(of_rows.reshape(draws, *part.table.shape), part.table.prior, rng)
    prior = part.table.prior
    if n_prior is not None:
        counts = _private_number(part, published, n_prior).counts(draws, rng)
        return draw_shares(counts.reshape(draws, *prior.shape), prior, rng)
    rows, known = _known_numbers(part, published)
    counts = np.empty((draws, prior.size // prior.shape[-1], prior.shape[-1]), dtype=np.int64)
    counts[:, rows] = known.draw(draws, rng).reshape(draws, -1, prior.shape[-1])
    return draw_shares(counts.reshape(draws, *prior.shape), prior, rng)


def _private_number(part: PlannedTable, published: Array, n_prior: range) -> CountTree:
    """All cells of a table whose number of records is private, below that number."""
    row = _distribution(part, part.table.prior, published, n_prior[-1])

    def log_prior(totals: Array) -> Array:
        return np.where(totals >= n_prior[0], 0.0, -np.inf)

    return CountTree([row], [np.zeros_like], n_prior[-1], log_prior, None).summable


def _known_numbers(part: PlannedTable, published: Array) -> tuple[NDArray[np.intp], KnownTotals]:
    """The cells of rows that hold a known number of records together, taken as one row; and the numbers of the rows."""
    known = _known_totals(part)
    together = [_distribution_of_rows(part, published, rows, total) for rows, total in known]
    return np.concatenate([rows for rows, _ in known]), KnownTotals.summable(together)


def try_distribution(part: PlannedTable, *, public: bool) -> None:
    """Raise the error about a table that exact draws are not for, before any count is read.

    Raises
    ------
    ArgumentError
        If the table is too large, or its noise too wide for so many cells.
    UnattainableError
        If the noise is so wide that noisy counts may add up to more records than any table holds.
    """
    # Any noisy table will do: how much work there is depends on the size of the table and the number of records.
    prior, n_records = part.table.prior, part.n_records or 0
    each, more = divmod(n_records, prior.size)
    planned = (each + (np.arange(prior.size) < more)).astype(np.float64).reshape(prior.shape)
    if (together := part.mechanism.joint_rows(planned)) is not None:
        JointTables(together, of_blocks(prior, together))
        return
    possible = number_prior(part, planned, public=public)
    # The noisy total lies so far from the true one, and the true one from that again. No draws of cells are refused for
    # their total as long as both together stay below the largest.
    if possible is not None and possible[-1] > MOST_RECORDS // 2:
        raise UnattainableError(
            f"{part.mechanism.in_short} in {part.table.name!r} hides any number of records, so the release would tell "
            "nothing. Loosen the guarantee."
        )
    _distribution(part, prior, planned, n_records if possible is None else possible[-1])
    if possible is not None:
        _refusing(part, lambda: _private_number(part, planned, possible).counts(1, np.random.default_rng(0)))
    else:
        # Blocks are equally large, and no noise is wider in one of them.
        rows, total = max(_known_totals(part), key=lambda block: block[1])
        _refusing(part, KnownTotals([_distribution_of_rows(part, planned, rows, total)]).check)


def _refusing(part: PlannedTable, check: Callable[[], object]) -> None:
    """Turn the error about too many numbers into one about the table."""
    try:
        check()
    except TooManyNumbersError as error:
        raise ArgumentError(
            f"Use mechanism='dirichlet', or loosen the guarantee: {part.table.prior.size} cells with "
            f"{part.mechanism.in_short} in {part.table.name!r} are too many to draw their posterior."
        ) from error


def _known_totals(part: PlannedTable) -> list[tuple[NDArray[np.intp], int]]:
    """Rows, by number, and how many records they hold together, which is public."""
    rows = part.mechanism.contributed.rows_by_entry(part.table.shape)
    return list(zip(rows, part.totals or (part.n_records or 0,), strict=True))


def _distribution_of_rows(part: PlannedTable, published: Array, rows: NDArray[np.intp], total: int) -> RowPosterior:
    """The cells of the rows with these numbers, which hold so many records together."""
    of_rows, noisy = (table.reshape(-1, table.shape[-1])[rows] for table in (part.table.prior, published))
    return _distribution(part, of_rows, noisy, total)


def _distribution(part: PlannedTable, prior: Array, published: Array, most: int) -> RowPosterior:
    """The cells of some rows given their noisy counts, taken as one row of at most so many records."""
    # The noise is the same in all cells.
    (row,) = part.mechanism.row_likelihoods(published.reshape(1, -1))
    # Counts that are looked at one by one where a likelihood follows no smooth curve.
    if not row.smooth and most * published.size > 10**7:
        raise ArgumentError(
            f"No posterior can be drawn given the noisy counts of {part.table.name!r}: {most} records in "
            f"{published.size} cells are too many to evaluate one by one. Set smooth_noise = True in the class of the "
            "noise of "
            f"{type(part.mechanism).__name__} if its distribution follows a smooth curve between integers."
        )
    return RowPosterior(
        alpha=prior.ravel(),
        total=most,
        log_likelihood=row.of_cells,
        least=math.ceil(part.mechanism.min_count or 0),
        smooth=row.smooth,
    )


TEXT_GROUP = "release"
"""The group of a tree that holds the text, in a variable of the name `text`."""
LEFT_OUT = "left_out"
"""The attribute of draws with the names of the Deterministics that are not among them, a JSON list. No text has it."""


def view(release: Release) -> xr.DataTree:
    """The tree of a release, with its text in the group `release`."""
    groups = described(release.plan, release.plan.composition, sampler=release.sampler, source=release.randomness)
    marks = _marks(release)
    groups = {"/posterior": posterior_group(_drawn(release, groups), release.plan, marks), **groups}
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
        name, dims = part.table.name, cell_dims(part.table)
        group, output = groups[f"/mechanism/{name}"], release.output[name]
        if output.shares is None:
            axes_by_name = part.mechanism.published_axes
            group.update({n: ([dims[axis] for axis in axes], output.published[n]) for n, axes in axes_by_name.items()})
        values = fitted[name][None] if name in fitted else output.shares
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


def _marks(release: Release) -> dict[str, str]:
    """The attributes of the tree and of its draws."""
    about = release.plan
    marks = {
        "inference_library": "pymc_dirdp",
        "inference_library_version": about.library_version,
        "guarantee": str(about.guarantee),
        "adjacency": about.adjacency,
        "plan_digest": about.digest,
    }
    if about.publishing(Marginals):
        marks["estimate"] = ESTIMATE
    if release.entry is not None:
        marks["ledger_head"] = release.entry.head
    if release.is_seeded:
        marks["reproducible"] = "not private"
    return marks


def posterior_group(values: Mapping[str, Array], chosen: Plan, marks: dict[str, str]) -> xr.Dataset:
    """Draws of tables, by name, in arrays of shape `(draws, ...)`, as `pm.sample` returns them."""
    coords: dict[str, Sequence[Any]] = {}
    for part in chosen.parts:
        coords |= labels(part.table)
    variables = {}
    used: dict[str, Sequence[Any]] = {"chain": [0], "draw": range(len(next(iter(values.values()))))}
    for part in chosen.parts:
        name, value = part.table.name, values[part.table.name]
        axes = part.table.dims or (None,) * (value.ndim - 1)
        dims = [dim_name(name, i, dim) for i, dim in enumerate(axes)]
        variables[name] = (["chain", "draw", *dims], value[None])
        # ArviZ numbers the entries of a dim without labels.
        used |= {dim: coords.get(dim, range(size)) for dim, size in zip(dims, value.shape[1:], strict=True)}
    # ArviZ's own function for this copies the labels of all variables for each of them.
    return xr.Dataset(variables, used, marks)


def refuse_dims(chosen: Plan) -> None:
    """Refuse dims that do not fit, before anything is spent: a public draw is put together like the release."""
    # The middle of the simplex in every row.
    middle = {
        part.table.name: np.full((1, *part.table.released_shape), 1 / part.table.n_categories) for part in chosen.parts
    }
    try:
        fits = set(posterior_group(middle, chosen, {}).data_vars) == set(middle)
    except ValueError:
        fits = False
    if not fits:
        raise UnsupportedModelError(
            f"The names and dims of {', '.join(map(repr, middle))} do not fit into one release. Rename dims, or "
            "declare as many labels as a dim has entries."
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
    found = mechanism.measured(output)
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
