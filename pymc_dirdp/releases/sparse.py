"""Tables with far more cells than records: cells whose noisy counts pass a threshold, and what follows from them."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final, override

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

from pymc_dirdp.accounting.budget import check_ledger_type
from pymc_dirdp.accounting.store import Receipt
from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import integer, one_line
from pymc_dirdp.counting.columns import Categories, Frame, checked_categories, column_of, encode, index_of
from pymc_dirdp.counting.counts import SparseCounts, live_bound
from pymc_dirdp.display import Tabular, uncertain
from pymc_dirdp.errors import ArgumentError, DataError, ReleaseError
from pymc_dirdp.inference.estimates import interval_ends
from pymc_dirdp.inference.quantiles import count_quantiles
from pymc_dirdp.inference.sparse_cells import SparsePosterior, SparsePrior, occupied
from pymc_dirdp.mechanisms.outputs import Cells
from pymc_dirdp.mechanisms.sparse import SparseGeometricMechanism
from pymc_dirdp.models.table import plain_labels
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.choices import refuse_unpaid_bins
from pymc_dirdp.releases.grammar import library_version, refuse_unreadable
from pymc_dirdp.releases.ledger_charge import Sealed
from pymc_dirdp.releases.opened import shown_tree
from pymc_dirdp.releases.text import SparseRelease, check_variable
from pymc_dirdp.releases.wording import warn_of_seed
from pymc_dirdp.sampling.bits import Seed, generator, randomness
from pymc_dirdp.signatures import user_facing

if TYPE_CHECKING:
    from pymc_dirdp.accounting.ledger import Ledger

__all__ = ["SparseEstimates", "drawn", "estimated", "refuse_options", "release_sparse"]

_RECORD = "record"


@user_facing
def release_sparse(
    guarantee: Guarantee,
    cells: ArrayLike | Frame | SparseCounts,
    counts: ArrayLike | None = None,
    n_cells: int | None = None,
    *,
    threshold: int,
    categories: Categories | None = None,
    adjacency: str = "replace-one",
    unit: str | None = None,
    contribution: int | None = None,
    random_seed: Seed = None,
    ledger: "Ledger | None" = None,
) -> xr.DataTree:
    """List the cells of a huge table whose noisy counts pass a public threshold, with a guarantee.

    The table may have 10**10 cells, of which few hold a record. Every cell gets geometric noise, also the empty ones;
    those whose noisy count is at least `threshold` are listed. The list has exactly the distribution that it would have
    if the whole table had been drawn, but only the cells that hold records and those that are listed are ever looked
    at.

    Parameters
    ----------
    guarantee : Guarantee
        What the list guarantees.
    cells : SparseCounts, array_like of int, data frame, or mapping of str to array
        What :func:`count_sparse` found, which knows all but the threshold and the adjacency. Or the cells that hold
        records, each once: their numbers from 0 to ``n_cells - 1``, or, with `categories`, the columns of their labels,
        such as those of ``frame.groupby(names).size().reset_index()``. Secret.
    counts : array_like of integers, optional
        How many records each of them holds. Secret. Without it each entry of `cells` is one record, and they are
        counted here.
    n_cells : int, optional
        Number of cells of the whole table, from 2 to 2**63 - 1; with `categories` it follows.
    threshold : int
        The least noisy count that is listed, at least 1, chosen without the data: see :func:`least_threshold`.
    categories : mapping of str to sequence, optional
        The variables whose combinations are the cells, each with all values that it could take, as for :func:`count`.
        They are public, so they must not be read off the data.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one unit can change. Under `"add-remove"` the noise is half as large.
    unit : str, optional
        Whom the guarantee is about, in a word, such as `"patient"`; `"record"` unless the cells know the unit.
    contribution : int, optional
        The largest number of records of one unit in the table, which you guarantee; above 1 name the unit. It is 1
        unless the cells know it.
    random_seed : int, SeedSequence, Generator or None, default None
        None takes entropy from the operating system. A seed makes the list reproducible, hence **not private**.
    ledger : Ledger, optional
        The ledger that records the release before the counts are looked at.

    Returns
    -------
    release : xarray.DataTree
        It may be published and saved by :func:`pymc_dirdp.save`. Group `noisy_counts` holds `cell` and `noisy_count` of
        each listed cell; `mechanism` the scale, the threshold and `n_cells`, as a text; `privacy` the guarantee;
        `categories` the labels, if there are any. :func:`estimate` and :func:`analyse` read it, given a
        :class:`SparsePrior`; :func:`report` says what it guarantees, and :func:`verify` checks it.

    Raises
    ------
    ArgumentError
        If the threshold is below 1, or more than a million empty cells would be listed on average; the message names a
        threshold that works. If the table has no declared number of cells.
    DataError
        If a cell is outside of the table or named twice, or a count is no integer from 0 on. The message shows no
        cell and no count. The ledger was charged then.
    BudgetError, LedgerError
        If the ledger refuses the release or cannot be written. Nothing was drawn then.

    Warns
    -----
    SeededReleaseWarning
        If `random_seed` is given.

    Notes
    -----
    To list exactly the cells that hold records, without a threshold, is not private for any noise: a cell that only one
    person is in would be listed or not.

    The running time is proportional to the number of cells that hold records plus the number that is listed.

    References
    ----------
    Cormode, Procopiuc, Srivastava and Tran (2012), Differentially private summaries for sparse data,
    https://doi.org/10.1145/2274576.2274608; the page of proofs on sparse tables.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> guarantee = dirdp.ApproxDP(epsilon=1, delta=1e-6)
    >>> threshold = dirdp.sparse.least_threshold(guarantee, 10**10)
    >>> release = dirdp.sparse.release_sparse(guarantee, [7, 123_456_789], [1000, 3], 10**10, threshold=threshold)
    >>> 7 in release["noisy_counts"]["cell"].values
    True
    """
    check_ledger_type(ledger)
    _refuse_twice(cells, counts=counts, n_cells=n_cells, categories=categories, unit=unit, contribution=contribution)
    whom, most = _protected(cells, unit=unit, contribution=contribution)
    labels = _checked_labels(cells, n_cells, categories)
    refuse_unpaid_bins((labels or {}).values())
    size = math.prod(map(len, labels.values())) if labels is not None else integer(2, n_cells=n_cells)
    mechanism = SparseGeometricMechanism.for_guarantee(
        guarantee, n_cells=size, threshold=threshold, adjacency=adjacency, contribution=most
    )
    if random_seed is not None:
        warn_of_seed()
    source = randomness(random_seed, sampler="exact")

    def listing(receipt: Receipt | None, listed: Cells) -> SparseRelease:
        return SparseRelease(guarantee, mechanism, whom, labels, source, receipt, listed, library_version())

    none = np.zeros(0, dtype=np.int64)
    refuse_unreadable(listing(None, Cells(none, none)))
    sealed, receipt = Sealed((cells, counts), ledger), None
    del cells, counts
    if ledger is not None:
        entry = ledger.spend(
            guarantee,
            what=f"the cells of a table of {size} with a noisy count of at least {mechanism.threshold}",
            mechanism=mechanism,
            adjacency=mechanism.adjacency,
            unit=whom,
            contribution=most,
        )
        receipt = ledger.receipt(entry)
    listed, noisy = sealed.read(
        lambda table: mechanism.release(*_counted(*table, labels, contribution), random_seed=random_seed),
        receipt,
        None if random_seed is not None else (size, whom, *(labels or ())),
    )
    return shown_tree(listing(receipt, Cells(listed, noisy)))


def _refuse_twice(cells: Any, **given: object) -> None:
    if isinstance(cells, SparseCounts) and any(value is not None for value in given.values()):
        raise ArgumentError(
            "What count_sparse found knows its counts, categories, unit and contribution. Leave these arguments "
            "out, or pass its cells and counts, and say whose they are: release_sparse(guarantee, found.cells, "
            "found.counts, n_cells, unit=..., contribution=...)."
        )


def _protected(cells: Any, *, unit: str | None, contribution: int | None) -> tuple[str, int]:
    """Whom the guarantee is about, and how many records of the table are theirs at most."""
    bound = cells.bound if isinstance(cells, SparseCounts) else None
    if bound is not None:
        return bound.unit, bound.records
    unit, contribution = _RECORD if unit is None else unit, 1 if contribution is None else contribution
    if unit == _RECORD and contribution != 1:
        raise ArgumentError(
            "With contribution= above 1 the guarantee is about somebody who has several records: say who, as in "
            "unit='patient'."
        )
    return one_line(unit=unit).strip(), contribution


def _checked_labels(cells: Any, n_cells: int | None, categories: Categories | None) -> dict[str, list[Any]] | None:
    """The labels of each variable; None if cells are numbers. Public arguments alone are looked at."""
    if isinstance(cells, SparseCounts):
        categories = cells.categories
    if (n_cells is None) == (categories is None):
        raise ArgumentError(
            "Say what the whole table is, without looking at the data: n_cells= if cells are numbers, or categories= "
            "if they have labels."
        )
    if categories is None:
        return None
    labels = checked_categories(list(categories), categories)
    for name in labels:
        check_variable(name, labels[name])
        if not isinstance(cells, SparseCounts):
            column_of(cells, name)
    return {name: plain_labels(values) for name, values in labels.items()}


def _counted(cells: Any, counts: Any, labels: dict[str, list[Any]] | None, contribution: int | None) -> tuple[Any, Any]:
    """The numbers of the cells that hold records, and how many these are. **Secret**."""
    if isinstance(cells, SparseCounts):
        return cells.cells, cells.counts
    numbers = cells if labels is None else _numbered(cells, labels)
    if counts is not None:
        column = cells if labels is None else column_of(cells, next(iter(labels)))
        mine, its = index_of(column), index_of(counts)
        if mine is not None and its is not None and not mine.equals(its):
            raise DataError("The cells and the counts have different indexes, and they are matched by position.")
        bound = None
        # What is no array of numbers is refused by the mechanism.
        with suppress(OverflowError, TypeError, ValueError):
            bound = None if contribution is not None else live_bound(np.asarray(counts))
        if bound is not None and bound.records > 1:
            raise bound.lost("counts=")
        return numbers, counts
    try:
        array = np.asarray(numbers)
    except (OverflowError, TypeError, ValueError):
        return numbers, []
    return np.unique(array, return_counts=True) if array.ndim == 1 and array.dtype.kind in "iu" else (numbers, [])


def _numbered(cells: Frame, labels: dict[str, list[Any]]) -> Integers:
    codes = encode(cells, list(labels), labels)
    return np.ravel_multi_index(tuple(codes.values()), tuple(map(len, labels.values()))).astype(np.int64)


# So many cells are shown; the frame has all.
_SHOWN = 20


@final
@dataclass(frozen=True, eq=False, repr=False)
class SparseEstimates(Tabular):
    """Counts with their errors: of each listed cell, of any other cell, and of all together.

    `print` it, let a notebook show it, or take the `frame()`, which has a row for each listed cell.

    Attributes
    ----------
    cells : tuple
        The listed cells: their numbers, or tuples of labels.
    noisy_counts : array of int64, shape (k,)
    means, sds : array, shape (k,)
        Means and standard deviations of the counts.
    occupied : array, shape (k,)
        The probability that the cell holds a record.
    prob : tuple of float
        Probabilities of the intervals.
    intervals : array of int64, shape (len(prob), k, 2)
        Central intervals of the counts, both ends included; they hold at least the stated probability.
    other_mean, other_occupied : float
        The mean count of each cell that is not listed, and the probability that it holds a record.
    total_mean, total_sd : float
        Of the number of records in all cells.
    condition : str
        What the numbers are conditional on.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> release = dirdp.sparse.release_sparse(dirdp.PureDP(epsilon=1), [3], [9000], 10**9, threshold=50)
    >>> prior = dirdp.sparse.SparsePrior(n_records=10_000, n_occupied=20)
    >>> dirdp.estimate(release, prior=prior).frame().loc[3, "occupied"] > 0.99
    np.True_
    """

    cells: tuple[Any, ...]
    noisy_counts: Integers
    means: Array
    sds: Array
    occupied: Array
    prob: tuple[float, ...]
    intervals: Integers
    other_mean: float
    other_occupied: float
    total_mean: float
    total_sd: float
    condition: str

    @override
    def frame(self) -> Any:
        """A row for each listed cell, as a `pandas.DataFrame` whose index is the cell."""
        import pandas as pd

        columns = {"noisy_count": self.noisy_counts, "count": self.means, "count_sd": self.sds}
        for level, ends in zip(self.prob, self.intervals, strict=True):
            columns |= {f"count_low_{level:g}": ends[:, 0], f"count_high_{level:g}": ends[:, 1]}
        return pd.DataFrame(
            columns | {"occupied": self.occupied}, index=pd.Index(list(self.cells), name="cell", tupleize_cols=False)
        )

    @override
    def _parts(self) -> tuple[Sequence[str], Sequence[Mapping[str, Any]], Sequence[str]]:
        level = int(np.argmax(self.prob))
        largest = np.argsort(-self.noisy_counts, kind="stable")[:_SHOWN]
        rows: list[Mapping[str, Any]] = [
            {
                "cell": str(self.cells[i]),
                "noisy": str(self.noisy_counts[i]),
                "records": records,
                f"{100 * self.prob[level]:g} %": interval,
                "holds any": f"{self.occupied[i]:.3g}",
            }
            for i in largest
            for records, interval in [uncertain(self.means[i], self.sds[i], *self.intervals[level, i])]
        ]
        rows.append(
            {
                "cell": "any other",
                "noisy": "",
                "records": f"{self.other_mean:.2g}",
                f"{100 * self.prob[level]:g} %": "",
                "holds any": f"{self.other_occupied:.2g}",
            }
        )
        more = len(self.cells) - len(largest)
        together, _ = uncertain(self.total_mean, self.total_sd, self.total_mean, self.total_mean)
        return (
            ("What the list says",),
            rows,
            (
                *((f"{more} more cells are listed; frame() has all.",) if more else ()),
                f"All cells together: {together} records.",
                f"Given {self.condition}.",
            ),
        )


def estimated(release: SparseRelease, prior: Any, prob: Sequence[float]) -> SparseEstimates:
    """Means, standard deviations and central intervals of the counts of listed cells, and of all others.

    They are exact sums, without sampling. A cell that is not listed is known to have a noisy count below the threshold,
    and is recognised by that.
    """
    _, ends = interval_ends(prob)
    distribution = _distribution(release, prior)
    # Cells with the same noisy count have the same distribution; the threshold stands for them where none is listed.
    values, place = np.unique(release.output.noisy, return_inverse=True)
    listed = distribution.given(values if len(values) else np.array([release.mechanism.threshold]))
    means, variances = listed.means[place], listed.variances[place]
    intervals = np.stack(np.split(count_quantiles(listed, ends)[:, place], 2), axis=-1)
    return SparseEstimates(
        cells=tuple(release.names(release.output.cells)),
        noisy_counts=release.output.noisy,
        means=means,
        sds=np.sqrt(variances),
        occupied=occupied(listed)[place],
        prob=tuple(prob),
        intervals=intervals,
        other_mean=float(distribution.other.means[0]),
        other_occupied=float(occupied(distribution.other)[0]),
        total_mean=float(means.sum() + distribution.n_others * distribution.other.means[0]),
        total_sd=math.sqrt(variances.sum() + distribution.n_others * distribution.other.variances[0]),
        condition=_condition(distribution),
    )


def drawn(release: SparseRelease, prior: Any, draws: int, chains: int, random_seed: Seed) -> xr.DataTree:
    """Independent draws of the counts of listed cells, and of the number of records in all others."""
    distribution = _distribution(release, prior)
    counts, others = distribution.draw(chains * draws, generator(random_seed))
    counts, others = counts.reshape(chains, draws, -1), others.reshape(chains, draws)
    axes, cells = ("chain", "draw"), ("listed", release.output.cells)
    latent = xr.Dataset(
        {
            "count": ((*axes, "listed"), counts),
            "others": (axes, others),
            "total": (axes, counts.sum(axis=2) + others),
        },
        {"chain": np.arange(chains), "draw": np.arange(draws), "cell": cells},
    )
    seen = xr.Dataset({"noisy_count": ("listed", release.output.noisy)}, {"cell": cells})
    tree = xr.DataTree.from_dict({"/latent_counts": latent, "/observed_data": seen})
    tree.attrs = {
        "inference_library": "pymc_dirdp",
        "inference_library_version": library_version(),
        "method": "exact independent draws given what was published",
        "conditional_on": _condition(distribution),
        **({"reproducible": "not private"} if release.is_seeded else {}),
    }
    return tree


def refuse_options(**given: object) -> None:
    """Refuse what has no meaning for a list of cells."""
    if others := [name for name, value in given.items() if value is not None]:
        raise ArgumentError(
            f"{others[0]} is for tables of a model. What you expect of a sparse table is said by "
            "prior=dirdp.sparse.SparsePrior(n_records=..., n_occupied=...)."
        )


def _distribution(release: SparseRelease, prior: Any) -> SparsePosterior:
    if not isinstance(prior, SparsePrior):
        raise ArgumentError(
            "A release of a sparse table has no prior of its own. Say what you expect: "
            "prior=dirdp.sparse.SparsePrior(n_records=5000, n_occupied=100), how many records in how many cells."
        )
    if not release.mechanism.satisfies(release.guarantee):
        raise ReleaseError(
            f"{release.guarantee} does not follow from the release, so nothing is inferred from it. See dirdp.verify."
        )
    return SparsePosterior(release.mechanism, release.output.noisy, prior.over(release.mechanism.n_cells))


def _condition(distribution: SparsePosterior) -> str:
    prior = distribution.prior
    return (
        f"a prior by which about {prior.n_records:g} records are in about {prior.n_occupied:g} of {prior.n_cells} "
        "cells (Dirichlet shares, and a negative binomial number of records)"
    )
