"""A release of a sparse table as plain, checked facts, from a tree or a file that anybody may have written."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, final

import numpy as np

from pymc_dirdp.arrays import Integers
from pymc_dirdp.checks import MOST_RECORDS
from pymc_dirdp.errors import ArgumentError, ReleaseError, shown, type_name
from pymc_dirdp.mechanisms.sparse import SparseGeometricMechanism
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.stored.release import stated_guarantee
from pymc_dirdp.stored.table import stored_adjacency
from pymc_dirdp.stored.untrusted import Group, group_at, refuse_others

__all__ = ["SPARSE_GROUPS", "StoredSparse", "is_sparse", "read_sparse"]

SPARSE_GROUPS = ("noisy_counts", "mechanism", "privacy")
_MOST_LISTED = 10**8
# As many digits as 2**63 has.
_MOST_DIGITS = 19
_ATTRIBUTES = {
    "/": {"inference_library", "inference_library_version", "guarantee", "adjacency", "reproducible"},
    "noisy_counts": set(),
    "mechanism": {"mechanism", "scale", "threshold", "n_cells", "adjacency", "contribution", "sampler", "arithmetic"}
    | {"randomness"},
    "privacy": {"guarantee", "statement", "adjacency", "neighbours", "unit", "contribution", "pure_epsilon"},
    "categories": {"variables"},
}


@final
@dataclass(frozen=True, eq=False)
class StoredSparse:
    """A release of a sparse table.

    Attributes
    ----------
    guarantee : Guarantee
        The stated guarantee. Whether it follows is another question.
    mechanism : SparseGeometricMechanism
    cells, noisy : array of int64, shape (k,)
        The cells that are listed, in order, and their noisy counts.
    categories : dict of str to list
        The labels of each variable, if the cells are those of variables; empty otherwise.
    reproducible : bool
        Whether anything says that a seed was used.
    privacy : Group
        The group of the promise.
    group : Group
        The group of the mechanism.
    root : Group
    """

    guarantee: Guarantee
    mechanism: SparseGeometricMechanism
    cells: Integers
    noisy: Integers
    categories: dict[str, list[Any]]
    reproducible: bool
    privacy: Group
    group: Group
    root: Group

    def names(self, cells: Integers) -> list[Any]:
        """What cells are called: their numbers, or the tuples of their labels."""
        if not self.categories:
            return list(cells.tolist())
        shape = tuple(map(len, self.categories.values()))
        codes = np.unravel_index(cells, shape)
        columns = [[labels[i] for i in code] for labels, code in zip(self.categories.values(), codes, strict=True)]
        return list(zip(*columns, strict=True))


def is_sparse(tree: Any) -> bool:
    """Whether a tree claims to be a release of a sparse table."""
    children = getattr(tree, "children", None)
    return isinstance(children, Mapping) and "noisy_counts" in children


def read_sparse(release: Any) -> StoredSparse:
    """The checked facts of a release from :func:`pymc_dirdp.release_sparse`, or from a file.

    Raises
    ------
    ReleaseError
        If it is no such release, is damaged, or holds more than such a release does.
    """
    refuse_others(release)
    if not is_sparse(release):
        raise ReleaseError(f"Expected a release from pymc_dirdp.release_sparse, got {type_name(release)} without one.")
    root = Group("/", release.to_dataset())
    root.check_attributes()
    listed, made, privacy = (group_at(release, name) for name in SPARSE_GROUPS)
    labelled = group_at(release, "categories") if "categories" in release.children else None
    _refuse_more(release, [root, listed, made, privacy, *([] if labelled is None else [labelled])])
    mechanism = _mechanism(made)
    categories = {} if labelled is None else _categories(labelled, mechanism.n_cells)
    cells, noisy = _whole(listed, "cell"), _whole(listed, "noisy_count")
    if cells.shape != noisy.shape:
        raise listed.damaged("there is not one noisy count for each cell")
    if cells.size and (cells[0] < 0 or cells[-1] >= mechanism.n_cells or not np.all(cells[1:] > cells[:-1])):
        raise listed.damaged("the cells are not those of the table, in order and each once")
    if cells.size and (noisy.min() < mechanism.threshold or noisy.max() > MOST_RECORDS):
        raise listed.damaged("a noisy count is below the threshold, or above 2**53")
    for name in ("statement", "neighbours", "unit", "adjacency"):
        privacy.text(name)
    privacy.whole("contribution", 1, MOST_RECORDS)
    privacy.number("pure_epsilon")
    return StoredSparse(
        guarantee=stated_guarantee(privacy),
        mechanism=mechanism,
        cells=cells,
        noisy=noisy,
        categories=categories,
        reproducible="reproducible" in root or made.text("randomness") == "seed",
        privacy=privacy,
        group=made,
        root=root,
    )


def _refuse_more(release: Any, groups: list[Group]) -> None:
    """Refuse whatever such a release does not hold: no guarantee covers it."""
    if set(release.children) > {*SPARSE_GROUPS, "categories"} or any(
        child.children for child in release.children.values()
    ):
        raise ReleaseError("The file holds groups that no release of a sparse table has, and no guarantee covers them.")
    for group in groups:
        variables = {str(name) for name in group.dataset.variables}
        allowed = {"cell", "noisy_count"} if group.path == "noisy_counts" else set()
        promised = set(group.dataset.attrs) - _ATTRIBUTES[group.path]
        promised |= {name for variable in group.dataset.variables.values() for name in variable.attrs}
        if group.path == "privacy" and "guarantee" in group:
            promised -= {field.name for field in fields(stated_guarantee(group))}
        if group.path == "categories":
            allowed = variables
        if more := sorted(map(str, (variables - allowed) | promised)):
            raise group.damaged(f"{shown(more[0])} is not part of such a release")


def _mechanism(group: Group) -> SparseGeometricMechanism:
    if group.text("mechanism") != SparseGeometricMechanism.__name__:
        raise group.damaged(f"the mechanism {shown(group.text('mechanism'))} is unknown")
    digits = group.text("n_cells")
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MOST_DIGITS):
        raise group.damaged("n_cells is not a whole number")
    for name in ("sampler", "arithmetic", "randomness"):
        group.text(name)
    try:
        mechanism = SparseGeometricMechanism(
            int(digits),
            group.whole("threshold", 1, MOST_RECORDS),
            group.number("scale"),
            adjacency=stored_adjacency(group),
            contribution=group.whole("contribution", 1, MOST_RECORDS),
        )
    except (ArgumentError, ArithmeticError) as error:
        raise group.damaged(f"there is no such mechanism ({error})") from error
    if mechanism.scale != group.number("scale"):
        raise group.damaged("the scale is not one that is drawn with")
    return mechanism


def _whole(group: Group, name: str) -> Integers:
    """The variable of that name, as whole numbers."""
    if name not in group.dataset.variables:
        raise group.damaged(f"the variable {name!r} is missing")
    variable = group.dataset[name]
    if variable.dtype.kind != "i" or variable.ndim != 1 or variable.size > _MOST_LISTED:
        raise group.damaged(f"the variable {name!r} is no list of whole numbers")
    try:
        return np.asarray(variable.values, dtype=np.int64)
    except (OSError, RuntimeError, ValueError) as error:
        raise group.damaged(f"the variable {name!r} cannot be read") from error


def _categories(group: Group, n_cells: int) -> dict[str, list[Any]]:
    names, size, categories = group.names("variables"), 1, {}
    for name in names:
        if name not in group.dataset.variables or group.dataset[name].ndim != 1:
            raise group.damaged(f"the labels of {shown(name)} are missing")
        labels = group.dataset[name].values.tolist()
        size *= len(labels)
        categories[name] = labels
        if len(set(labels)) < len(labels):
            raise group.damaged(f"two labels of {shown(name)} are the same")
    if size != n_cells or set(names) != {str(name) for name in group.dataset.variables} or len(set(names)) < len(names):
        raise group.damaged("the labels are not those of so many cells")
    return categories
