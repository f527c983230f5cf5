"""What follows from a release of a sparse table: estimates and exact draws of the counts of listed and other cells."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final, override

import numpy as np
import xarray as xr

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import integer
from pymc_dirdp.display import Tabular
from pymc_dirdp.errors import ReleaseError
from pymc_dirdp.inference.estimates import interval_ends
from pymc_dirdp.inference.sparse_law import CountLaw, SparseLaw, SparsePrior
from pymc_dirdp.releases.library import library_version
from pymc_dirdp.releases.opened import opened_sparse
from pymc_dirdp.releases.text import SparseRelease
from pymc_dirdp.sampling.entropy import Seed, generator

__all__ = ["SparseEstimates", "analyse_sparse", "estimate_sparse"]

# So many cells are shown; the frame has all.
_SHOWN = 20


@final
@dataclass(frozen=True, eq=False)
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
    >>> dirdp.sparse.estimate_sparse(release, n_records=10_000, n_occupied=20).frame().loc[3, "occupied"] > 0.99
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
    def _told(self) -> tuple[Sequence[str], Sequence[Mapping[str, Any]], Sequence[str]]:
        level = int(np.argmax(self.prob))
        largest = np.argsort(-self.noisy_counts, kind="stable")[:_SHOWN]
        rows: list[Mapping[str, Any]] = [
            {
                "cell": str(self.cells[i]),
                "noisy": str(self.noisy_counts[i]),
                "records": f"{self.means[i]:.4g} ± {self.sds[i]:.2g}",
                f"{100 * self.prob[level]:g} %": f"{self.intervals[level, i, 0]} to {self.intervals[level, i, 1]}",
                "holds any": f"{self.occupied[i]:.3g}",
            }
            for i in largest
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
        return (
            ("What the list says",),
            rows,
            (
                *((f"{more} more cells are listed; frame() has all.",) if more else ()),
                f"All cells together: {self.total_mean:.4g} ± {self.total_sd:.2g} records.",
                f"Given {self.condition}.",
            ),
        )


def estimate_sparse(
    release: xr.DataTree, prob: Sequence[float] = (0.5, 0.8, 0.95), *, n_records: float, n_occupied: float
) -> SparseEstimates:
    """Means, standard deviations and central intervals of the counts of listed cells, and of all others.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`release_sparse`, also from a file, see :func:`pymc_dirdp.load`.
    prob : sequence of float
        Probabilities of the intervals, in (0, 1).
    n_records, n_occupied : float
        Your prior: how many records you expect in the whole table, and in how many cells. Shares are
        `Dirichlet(a, ..., a)`, with the small a at which so many cells hold a record on average, and the number of
        records is negative binomial with shape ``a * n_cells``. Then the counts are independent.

    Returns
    -------
    estimates : SparseEstimates
        Exact sums, without sampling. A cell that is not listed is known to have a noisy count below the threshold, and
        is told by that.

    Raises
    ------
    ReleaseError
        If it is no release of a sparse table, is damaged, or contradicts itself.
    ArgumentError
        If `n_occupied` is not below `n_records` and the number of cells, or the prior contradicts the list so much that
        nothing can be computed.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> release = dirdp.sparse.release_sparse(dirdp.PureDP(epsilon=1), [3], [9000], 10**9, threshold=50)
    >>> found = dirdp.sparse.estimate_sparse(release, n_records=10_000, n_occupied=20)
    >>> bool(abs(found.means[found.cells.index(3)] - 9000) < 60)
    True
    """
    levels = tuple(interval_ends(prob) and prob)
    stored, law = _law(release, n_records, n_occupied)
    values, place = np.unique(stored.output.noisy, return_inverse=True)
    # One law at a time, because all of them may be too large for the memory.
    rows = [_summary(law.given(z), levels) for z in values.tolist()]
    numbers = np.array([row for row, _ in rows]).reshape(-1, 3)[place]
    ends = np.array([ends for _, ends in rows], dtype=np.int64).reshape(-1, len(levels), 2)[place]
    variance = float((numbers[:, 1] ** 2).sum()) + law.n_others * law.other.variance
    return SparseEstimates(
        cells=tuple(stored.names(stored.output.cells)),
        noisy_counts=stored.output.noisy,
        means=numbers[:, 0],
        sds=numbers[:, 1],
        occupied=numbers[:, 2],
        prob=levels,
        intervals=np.moveaxis(ends, 1, 0),
        other_mean=law.other.mean,
        other_occupied=law.other.occupied,
        total_mean=float(numbers[:, 0].sum()) + law.n_others * law.other.mean,
        total_sd=math.sqrt(variance),
        condition=_condition(law),
    )


def analyse_sparse(
    release: xr.DataTree, draws: int = 4000, *, n_records: float, n_occupied: float, random_seed: Seed = None
) -> xr.DataTree:
    """Independent draws of the counts of listed cells, and of the number of records in all others.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`release_sparse`, also from a file, see :func:`pymc_dirdp.load`.
    draws : int, default 4000
        How many. The result holds so many numbers for each listed cell.
    n_records, n_occupied : float
        Your prior, as for :func:`estimate_sparse`.
    random_seed : int, SeedSequence, Generator or None
        Harmless here: what is drawn from is public.

    Returns
    -------
    analysis : xarray.DataTree
        `latent_counts` holds `count` of each listed cell, with the dims chain, draw and listed; `others`, the number of
        records in all cells that are not listed; and `total`. `observed_data` holds the list.

    Raises
    ------
    ReleaseError, ArgumentError
        As :func:`estimate_sparse` does.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> release = dirdp.sparse.release_sparse(dirdp.PureDP(epsilon=1), [3], [9000], 10**9, threshold=50)
    >>> found = dirdp.sparse.analyse_sparse(release, draws=100, n_records=10_000, n_occupied=20)
    >>> found["latent_counts"]["total"].shape
    (1, 100)
    """
    draws = integer(1, draws=draws)
    stored, law = _law(release, n_records, n_occupied)
    counts, others = law.draw(draws, generator(random_seed))
    axes = ("chain", "draw")
    latent = xr.Dataset(
        {
            "count": ((*axes, "listed"), counts[None]),
            "others": (axes, others[None]),
            "total": (axes, (counts.sum(axis=1) + others)[None]),
        },
        {"chain": [0], "draw": np.arange(draws), "cell": ("listed", stored.output.cells)},
    )
    seen = xr.Dataset({"noisy_count": ("listed", stored.output.noisy)}, {"cell": ("listed", stored.output.cells)})
    tree = xr.DataTree.from_dict({"/latent_counts": latent, "/observed_data": seen})
    tree.attrs = {
        "inference_library": "pymc_dirdp",
        "inference_library_version": library_version(),
        "method": "exact independent draws given what was published",
        "conditional_on": _condition(law),
        **({"reproducible": "not private"} if stored.is_seeded else {}),
    }
    return tree


def _summary(law: CountLaw, levels: Sequence[float]) -> tuple[list[float], list[tuple[int, int]]]:
    return [law.mean, math.sqrt(law.variance), law.occupied], [law.interval(level) for level in levels]


def _law(release: Any, n_records: float, n_occupied: float) -> tuple[SparseRelease, SparseLaw]:
    stored = opened_sparse(release)
    if not stored.mechanism.satisfies(stored.guarantee):
        raise ReleaseError(
            f"{stored.guarantee} does not follow from the release, so nothing is inferred from it. See dirdp.verify."
        )
    prior = SparsePrior(stored.mechanism.n_cells, n_records, n_occupied)
    return stored, SparseLaw(stored.mechanism, stored.output.noisy, prior)


def _condition(law: SparseLaw) -> str:
    prior = law.prior
    return (
        f"a prior by which about {prior.n_records:g} records are in about {prior.n_occupied:g} of {prior.n_cells} "
        "cells (Dirichlet shares, and a negative binomial number of records)"
    )
