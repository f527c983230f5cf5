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
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.inference.estimates import interval_ends
from pymc_dirdp.inference.sparse_law import CountLaw, SparseLaw, SparsePrior
from pymc_dirdp.releases.library import library_version
from pymc_dirdp.releases.text import SparseRelease
from pymc_dirdp.sampling.entropy import Seed, generator

__all__ = ["SparseEstimates", "drawn", "estimated", "refuse_options"]

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


def estimated(release: SparseRelease, prior: Any, prob: Sequence[float]) -> SparseEstimates:
    """Means, standard deviations and central intervals of the counts of listed cells, and of all others.

    They are exact sums, without sampling. A cell that is not listed is known to have a noisy count below the threshold,
    and is told by that.
    """
    levels = tuple(interval_ends(prob) and prob)
    law = _law(release, prior)
    values, place = np.unique(release.output.noisy, return_inverse=True)
    # One law at a time, because all of them may be too large for the memory.
    rows = [_summary(law.given(z), levels) for z in values.tolist()]
    numbers = np.array([row for row, _ in rows]).reshape(-1, 3)[place]
    ends = np.array([ends for _, ends in rows], dtype=np.int64).reshape(-1, len(levels), 2)[place]
    variance = float((numbers[:, 1] ** 2).sum()) + law.n_others * law.other.variance
    return SparseEstimates(
        cells=tuple(release.names(release.output.cells)),
        noisy_counts=release.output.noisy,
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


def drawn(release: SparseRelease, prior: Any, draws: int, random_seed: Seed) -> xr.DataTree:
    """Independent draws of the counts of listed cells, and of the number of records in all others."""
    draws = integer(1, draws=draws)
    law = _law(release, prior)
    counts, others = law.draw(draws, generator(random_seed))
    axes, cells = ("chain", "draw"), ("listed", release.output.cells)
    latent = xr.Dataset(
        {
            "count": ((*axes, "listed"), counts[None]),
            "others": (axes, others[None]),
            "total": (axes, (counts.sum(axis=1) + others)[None]),
        },
        {"chain": [0], "draw": np.arange(draws), "cell": cells},
    )
    seen = xr.Dataset({"noisy_count": ("listed", release.output.noisy)}, {"cell": cells})
    tree = xr.DataTree.from_dict({"/latent_counts": latent, "/observed_data": seen})
    tree.attrs = {
        "inference_library": "pymc_dirdp",
        "inference_library_version": library_version(),
        "method": "exact independent draws given what was published",
        "conditional_on": _condition(law),
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


def _summary(law: CountLaw, levels: Sequence[float]) -> tuple[list[float], list[tuple[int, int]]]:
    return [law.mean, math.sqrt(law.variance), law.occupied], [law.interval(level) for level in levels]


def _law(release: SparseRelease, prior: Any) -> SparseLaw:
    if not isinstance(prior, SparsePrior):
        raise ArgumentError(
            "A release of a sparse table has no prior of its own. Say what you expect: "
            "prior=dirdp.sparse.SparsePrior(n_records=5000, n_occupied=100), how many records in how many cells."
        )
    if not release.mechanism.satisfies(release.guarantee):
        raise ReleaseError(
            f"{release.guarantee} does not follow from the release, so nothing is inferred from it. See dirdp.verify."
        )
    return SparseLaw(release.mechanism, release.output.noisy, prior.over(release.mechanism.n_cells))


def _condition(law: SparseLaw) -> str:
    prior = law.prior
    return (
        f"a prior by which about {prior.n_records:g} records are in about {prior.n_occupied:g} of {prior.n_cells} "
        "cells (Dirichlet shares, and a negative binomial number of records)"
    )
