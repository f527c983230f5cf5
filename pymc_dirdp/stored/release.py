"""A release as plain, checked facts. Only this file reads what a tree or a file says about itself.

A file may come from anybody. What is read here has the right kind, shape and range, and the tables, their groups and
the draws fit together; otherwise there is one error, :class:`pymc_dirdp.errors.ReleaseError`. Whether the *statements*
of a release follow from its numbers is another question, see :mod:`pymc_dirdp.stored.curves` and
:func:`pymc_dirdp.releases.verification.verify`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, final

import numpy as np

from pymc_dirdp.checks import MOST_RECORDS
from pymc_dirdp.errors import ArgumentError, ReleaseError, shown, type_name
from pymc_dirdp.planning.allocation import composed
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import KINDS, Guarantee
from pymc_dirdp.stored.choice import PrivateChoice
from pymc_dirdp.stored.choices import choices_of, followed_by
from pymc_dirdp.stored.draws import Drawn, drawn_tables, stored_labels
from pymc_dirdp.stored.table import StoredTable, stored_adjacency, stored_table
from pymc_dirdp.stored.untrusted import Group, group_at, refuse_others

__all__ = ["A_PRIORI", "CURVES", "MOST_DRAWS", "Stored", "read", "stated_guarantee"]

_GROUPS = ("posterior", "mechanism", "privacy", "utility")
# No release has more draws than this; the curve of so many could take for ever.
MOST_DRAWS = 10**6
# The curves that a release holds, each with its arguments; the largest number of arguments, and their ranges.
CURVES = {"renyi_divergence": "order", "delta": "epsilon", "epsilon_at": "delta_at", "best_order_at": "delta_at"}
_MOST_POINTS = 1000
_RANGES = {"order": (1.0, math.inf), "epsilon": (0.0, math.inf), "delta_at": (1e-300, 1.0)}
A_PRIORI = (
    "n_records",
    "effective_records",
    "expected_kl_posterior",
    "expected_kl_estimate",
    "estimate_kl",
    "share_error",
    "grid_weight",
    "grid_variance",
)


@final
@dataclass(frozen=True, eq=False)
class Stored:
    """A whole release.

    Attributes
    ----------
    guarantee : Guarantee
        The stated guarantee. Whether it follows is another question.
    adjacency : str
        The adjacency that the promise names; each table names its own.
    contribution : int
        The largest number of records of one person in a table that the promise names.
    min_count : float
        The least count of a cell that the promise names.
    groups : tuple of tuple of str
        The names of tables that one person's records may feed together.
    draws : int
        How many draws the guarantee covers.
    tables : dict of str to StoredTable
    reproducible : bool
        Whether anything says that a seed was used.
    privacy : Group
        The group of the promise.
    choices : tuple of Structure or Bins
        What was chosen from the same records before; the guarantee covers it, too.
    """

    guarantee: Guarantee
    adjacency: str
    contribution: int
    min_count: float
    groups: tuple[tuple[str, ...], ...]
    draws: int
    tables: dict[str, StoredTable]
    reproducible: bool
    privacy: Group
    choices: tuple[PrivateChoice, ...] = ()

    @property
    def is_estimate(self) -> bool:
        """Whether the shares are one estimate, fitted to what is published of all tables, and no draw."""
        return any(table.mechanism.fits_all_tables for table in self.tables.values())

    @cached_property
    def curves(self) -> PrivacyCurves:
        """The privacy curves of all tables and draws together, from the numbers alone."""
        tables = composed({name: table.mechanism for name, table in self.tables.items()}, self.groups, self.draws)
        return followed_by(self.choices, tables)

    @cached_property
    def pure_epsilon(self) -> float:
        """The largest loss of what the samplers put out; for an urn it is finite, other than for what it draws from."""
        drawn = {name: table.mechanism.as_drawn(table.steps) for name, table in self.tables.items()}
        return followed_by(self.choices, composed(drawn, self.groups, self.draws)).pure_epsilon


def read(release: Any, *, drawn: bool = True) -> Stored:
    """The checked facts of a release from :func:`pymc_dirdp.sample` or from a file.

    With `drawn` the draws are checked too. A plan that is described like a release has none.

    Raises
    ------
    ReleaseError
        If it is no release, or damaged: something is missing, of the wrong kind, or does not fit the rest.
    """
    refuse_others(release)
    children = getattr(release, "children", None)
    if not isinstance(children, Mapping):
        raise ReleaseError(
            f"Expected a release from pymc_dirdp.sample, an xarray.DataTree, got {type_name(release)}. A file is "
            'opened first, by pymc_dirdp.load("release.nc").'
        )
    if "noisy_counts" in children:
        raise ReleaseError(
            "This is a release of a sparse table. Use estimate_sparse or analyse_sparse, with your prior of it."
        )
    if missing := sorted(set(_GROUPS) - set(children)):
        raise ReleaseError(f"Expected a release from pymc_dirdp.sample; it lacks the groups {', '.join(missing)}.")
    root = Group("/", release.to_dataset())
    root.check_attributes()
    privacy, posterior = group_at(release, "privacy"), group_at(release, "posterior")
    if not children["mechanism"].children:
        raise ReleaseError("Expected a release from pymc_dirdp.sample; it holds no table.")
    utility = group_at(release, "utility")
    names = _tables_in_order(utility, tuple(children["mechanism"].children))
    tables = {name: stored_table(group_at(release, "mechanism", name)) for name in names}
    if len({table.group.text("adjacency") for table in tables.values()}) > 1:
        raise ReleaseError("The release is damaged: its tables are for different adjacencies, which do not compose.")
    choices = _choices(privacy)
    stored = Stored(
        guarantee=stated_guarantee(privacy),
        adjacency=stored_adjacency(privacy),
        contribution=privacy.whole("contribution", 1, MOST_RECORDS),
        min_count=privacy.number("min_count"),
        groups=_groups(privacy, tuple(tables)),
        draws=privacy.whole("draws", 1, MOST_DRAWS),
        tables=tables,
        reproducible=any("reproducible" in group for group in (root, posterior))
        or any(table.group.dataset.attrs.get("randomness") == "seed" for table in tables.values())
        or any(choice.reproducible for choice in choices),
        privacy=privacy,
        choices=choices,
    )
    for name in ("statement", "neighbours", "unit", "protected"):
        privacy.text(name)
    privacy.names("assumptions")
    if "pure_epsilon" in privacy:
        privacy.number("pure_epsilon")
    _check_curves(privacy)
    _check_utility(utility, tuple(tables))
    if drawn:
        _check_drawn(release, stored)
    return stored


def stated_guarantee(privacy: Group) -> Guarantee:
    """The guarantee that the group of a promise states."""
    name = privacy.text("guarantee")
    if name not in KINDS:
        raise privacy.damaged(f"the guarantee {shown(name)} is unknown")
    kind = KINDS[name]
    stated = {field.name: privacy.number(field.name) for field in fields(kind)}
    try:
        return kind(**stated)
    except ArgumentError as error:
        raise privacy.damaged(f"the guarantee promises nothing ({error})") from error


def _choices(privacy: Group) -> tuple[PrivateChoice, ...]:
    """What was chosen before, for the same people."""
    if "choices" not in privacy:
        return ()
    try:
        found = choices_of(privacy.json("choices"))
        for choice in found:
            choice.refuse_other_people(stored_adjacency(privacy), privacy.text("unit"))
    except ArgumentError as error:
        raise privacy.damaged(f"what was chosen before is wrong ({shown(str(error))})") from None
    return found


def _groups(privacy: Group, tables: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The groups of tables. Every table is in one, and in several if its records may be anybody's."""
    lists = privacy.json("groups")
    if not isinstance(lists, list) or not lists:
        raise privacy.damaged("the attribute 'groups' lists no groups of tables")
    groups = tuple(privacy.texts("groups", group) for group in lists)
    for group in groups:
        if not group or len(set(group)) < len(group):
            raise privacy.damaged("a group of tables is empty, or names a table twice")
        if unknown := set(group) - set(tables):
            raise privacy.damaged(f"'groups' names {shown(min(unknown))}, and there is no such table")
    if left_out := set(tables) - set().union(*groups):
        raise privacy.damaged(f"the table {shown(min(left_out))} is in none of the groups, so its loss would not count")
    return groups


def _check_curves(privacy: Group) -> None:
    """Refuse a curve that has not one value for each of its arguments, or arguments out of range."""
    for name, over in CURVES.items():
        arguments, values = privacy.array(over), privacy.array(name)
        if arguments.ndim != 1 or values.shape != arguments.shape or len(values) > _MOST_POINTS:
            raise privacy.damaged(f"{name!r} is no curve over {over!r}")
        least, below = _RANGES[over]
        if not np.all((arguments >= least) & (arguments < below)):
            raise privacy.damaged(f"{over!r} holds what no curve is a function of")


def _tables_in_order(utility: Group, tables: tuple[str, ...]) -> tuple[str, ...]:
    """The tables in the order of the model. A store may return its groups in another order, as Zarr does."""
    coords = utility.dataset.coords
    names = coords["table"].values.tolist() if "table" in coords and coords["table"].ndim == 1 else []
    if not all(isinstance(name, str) for name in names) or sorted(names) != sorted(tables):
        raise utility.damaged("the tables are not those of the release")
    return tuple(names)


def _check_utility(utility: Group, tables: tuple[str, ...]) -> None:
    utility.text("records")
    if "note" in utility:
        utility.text("note")
    for name in A_PRIORI:
        if utility.any_array(name).shape != (len(tables),):
            raise utility.damaged(f"{name!r} is not one number for each table")
    records = utility.any_array("n_records")
    if not np.all(np.isnan(records) | ((records >= 0) & (records <= MOST_RECORDS) & (records == np.floor(records)))):
        raise utility.damaged("a number of records is not whole, or is too large")


def _check_drawn(release: Any, stored: Stored) -> None:
    for name, drawn in drawn_tables(release).items():
        table = stored.tables[name]
        cells = table.prior.shape[:-1] if drawn.family == "beta" else table.prior.shape
        n_draws = drawn.values.shape[0] * drawn.values.shape[1]
        if drawn.values.shape[2:] != cells:
            raise table.group.damaged("the draw has another shape than the prior")
        for (dim, labels), (there, others) in zip(drawn.labels, stored_labels(table.group, "prior"), strict=False):
            # A dim that has the name of a number of the mechanism gets a longer name in its group, and ArviZ numbers
            # the entries of a dim without labels.
            if there not in (dim, f"{dim}_labels") or (others is not None and labels != others):
                raise table.group.damaged(f"the draw has other dims than the prior, or other labels along {shown(dim)}")
        if table.mechanism.publishes is not None:
            # The guarantee is about the noisy counts, and everybody may draw from them as often as they like.
            _check_published(table)
            continue
        if table.mechanism.beside is not None:
            _check_beside(table, drawn, table.mechanism.beside)
        if n_draws != stored.draws:
            raise stored.privacy.damaged(
                f"'draws' is {stored.draws}, and the table {shown(name)} was drawn {n_draws} times: each draw loses"
            )


def _check_published(table: StoredTable) -> None:
    """Refuse noisy counts that are not one finite number for each cell, with the axes of the table that they keep."""
    dims = table.group.dataset["prior"].dims
    for name, axes in table.mechanism.published_axes.items():
        noisy = table.group.array(name)
        if noisy.shape != tuple(table.prior.shape[axis] for axis in axes) or not np.all(np.isfinite(noisy)):
            raise table.group.damaged("the noisy counts are not one finite number for each cell")
        if table.group.dataset[name].dims != tuple(dims[axis] for axis in axes):
            raise table.group.damaged(f"{name!r} has other dims than the prior")


def _check_beside(table: StoredTable, drawn: Drawn, name: str) -> None:
    """Refuse draws that are not the shares of what is published beside them."""
    beside = table.group.array(name)
    n_draws = drawn.values.shape[0] * drawn.values.shape[1]
    if beside.shape != (n_draws, *table.prior.shape) or not np.all(np.isfinite(beside) & (beside > 0)):
        raise table.group.damaged(f"{name!r} is not one positive number for each cell of each draw")
    of_draws = table.mechanism.shares_of(beside)
    shares = drawn.values.reshape(n_draws, *drawn.values.shape[2:])
    if not np.allclose(shares, of_draws[..., 0] if drawn.family == "beta" else of_draws, rtol=1e-9, atol=0):
        raise table.group.damaged(f"the draws are not the shares of {name!r}")
