"""The marginals of a whole model that are measured: which models they are for, and the mechanism of each table."""

import math
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter

from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.models.labels import dim_name, outcome_dim
from pymc_dirdp.models.protected import Reading
from pymc_dirdp.models.table import Table
from pymc_dirdp.planning.margins import Axes, Protected, by_table, chosen_noise, margins_of
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.releases.choices import losses_of
from pymc_dirdp.releases.options import Options

__all__ = ["axes_of", "measured"]

# Shares are fitted to tables of this many cells, and no larger ones: the fit of such a table takes minutes.
_MOST_CELLS = 10**5
_OTHERWISE = "Or take mechanism='gaussian', which releases each table by itself."


def measured(
    guarantee: Guarantee,
    tables: Mapping[str, Table],
    sizes: Mapping[str, int | None],
    reading: Reading,
    wanted: Options,
) -> dict[str, TableMechanism]:
    """The mechanism of each table, with the marginals that are measured of it.

    Parameters
    ----------
    guarantee : Guarantee
        What all of them together have to keep.
    tables : mapping of str to Table
        Those with two categories and more.
    sizes : mapping of str to int or None
        The public number of records of each, or that to plan for.
    reading : Reading
    wanted : Options

    Raises
    ------
    UnsupportedModelError
        If the tables are not tables of the same records, each of a variable given its parents.
    ArgumentError
        If an option does not fit, or a table is too large.
    UnattainableError
        If no noise keeps the guarantee.
    """
    if wanted.draws != 1:
        raise ArgumentError(
            "mechanism='marginals' publishes noisy marginals, and one estimate that is fitted to them, so draws stays "
            "1. Whatever is computed from the marginals costs nothing more."
        )
    axes = {name: axes_of(table) for name, table in tables.items()}
    _refuse_large(axes)
    _refuse_unordered(axes)
    people = Protected(
        wanted.adjacency,
        _records(reading, tables),
        reading.sizes_are_public,
        losses_of(wanted.choices),
        {name: table.prior.shape for name, table in tables.items()},
    )
    margins = margins_of(axes, wanted.measure)
    noise, parameters = chosen_noise(
        guarantee,
        margins,
        people,
        noise=wanted.noise,
        weights=wanted.weights,
        n_records=_size(sizes, tables, reading),
    )
    return dict(by_table(margins, noise, parameters, people, {name: table.prior for name, table in tables.items()}))


def axes_of(table: Table) -> Axes:
    """The name and the length of each axis of a table, that of the outcomes of a Beta included."""
    dims = table.dims or (None,) * (len(table.shape) - (table.family == "beta"))
    names = [dim_name(table.name, axis, dim) for axis, dim in enumerate(dims)]
    names += [outcome_dim(table.name)] * (table.family == "beta")
    if len(set(names)) < len(names):
        raise UnsupportedModelError(
            f"Two axes of {table.name!r} have the same name, so its marginals are not told apart. Give each axis its "
            f"own dim. {_OTHERWISE}"
        )
    return tuple(zip(names, table.shape, strict=True))


def _refuse_large(tables: Mapping[str, Axes]) -> None:
    for name, axes in tables.items():
        cells = math.prod(length for _, length in axes)
        if cells > _MOST_CELLS:
            raise ArgumentError(
                f"The table {name!r} has {cells} cells, and shares are fitted to at most {_MOST_CELLS}. Give "
                f"{axes[-1][0]!r} fewer parents, or variables fewer categories."
            )


def _refuse_unordered(tables: Mapping[str, Axes]) -> None:
    """Refuse tables that are not those of one network: each variable has one table, and parents come first."""
    own: dict[str, str] = {}
    for name, axes in tables.items():
        if (other := own.setdefault(axes[-1][0], name)) != name:
            raise UnsupportedModelError(
                f"{other!r} and {name!r} both hold shares of {axes[-1][0]!r}, so they are not tables of the same "
                f"records. Make them models of their own, or give their last axes different dims. {_OTHERWISE}"
            )
    try:
        TopologicalSorter({axes[-1][0]: {name for name, _ in axes[:-1]} for axes in tables.values()}).prepare()
    except CycleError as error:
        cycle = " -> ".join(reversed(error.args[1]))
        raise UnsupportedModelError(
            f"The tables depend on each other in a circle: {cycle}. Take one of these axes out. {_OTHERWISE}"
        ) from None


def _records(reading: Reading, tables: Mapping[str, Table]) -> dict[str, Contribution]:
    """How many records one person holds in each table at most, and in which rows."""
    if len(reading.groups) > 1:
        raise UnsupportedModelError(
            "The groups of disjoint hold different people, so a marginal of one table says nothing of another. Release "
            f"each group as a model of its own. {_OTHERWISE}"
        )
    return {name: reading.contribution(name) for name in tables}


def _size(sizes: Mapping[str, int | None], tables: Mapping[str, Table], reading: Reading) -> int | None:
    """The one number of records of all tables; None if it is private and nobody said what to plan for."""
    numbers = {sizes[name] for name in tables}
    if len(numbers) > 1 and reading.sizes_are_public:
        raise UnsupportedModelError(
            f"The tables {', '.join(map(repr, tables))} hold different numbers of records, so they are not tables of "
            f"the same people. Release them as models of their own. {_OTHERWISE}"
        )
    known = [number for number in numbers if number is not None]
    return max(known) if known else None
