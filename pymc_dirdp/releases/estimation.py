"""What follows from a release, in numbers: estimates of shares and counts with their errors."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final, overload, override

import xarray as xr
from numpy.typing import ArrayLike

from pymc_dirdp.display import Tabular
from pymc_dirdp.inference.estimates import Estimate, interval_ends
from pymc_dirdp.inference.observed_table import Seen
from pymc_dirdp.inference.sparse_cells import SparsePrior
from pymc_dirdp.progress import Bar
from pymc_dirdp.releases.inference_setup import Source, inferences
from pymc_dirdp.releases.opened import sparse_release
from pymc_dirdp.releases.sparse import SparseEstimates, estimated, refuse_options

__all__ = ["Estimates", "estimate"]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Estimates(Tabular):
    """Shares and counts with their errors, cell by cell. `print` it, let a notebook show it, or take the `frame()`.

    Attributes
    ----------
    tables : dict of str to Estimate
        For each table its numbers; cells of all rows follow one another.
    cells : dict of str to tuple of str
        What the cells of each table are called.
    conditions : tuple of str
        What each table's numbers are conditional on.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> release = dirdp.sample(dirdp.ApproxDP(epsilon=0.9, delta=1e-6), model)
    >>> dirdp.estimate(release).frame().shape[0]
    4
    """

    tables: dict[str, Estimate]
    cells: dict[str, tuple[str, ...]]
    conditions: tuple[str, ...]

    def frame(self) -> Any:
        """A row for each cell: means, standard deviations, and the ends of each interval, as a `pandas.DataFrame`."""
        import pandas as pd

        return pd.DataFrame(list(self._numbers())).set_index("cell")

    def _numbers(self) -> Any:
        for name, found in self.tables.items():
            for i, cell in enumerate(self.cells[name]):
                row = {"cell": cell, "share": found.share_means[i], "share_sd": found.share_sds[i]}
                for level, (low, high) in zip(found.prob, found.share_intervals[:, i], strict=True):
                    row |= {f"share_low_{level:g}": low, f"share_high_{level:g}": high}
                row |= {"count": found.count_means[i], "count_sd": found.count_sds[i]}
                for level, (low, high) in zip(found.prob, found.count_intervals[:, i], strict=True):
                    row |= {f"count_low_{level:g}": low, f"count_high_{level:g}": high}
                yield row

    @override
    def _parts(self) -> tuple[Sequence[str], Sequence[Mapping[str, Any]], Sequence[str]]:
        rows = []
        for row in self._numbers():
            level = f"{max(next(iter(self.tables.values())).prob):g}"
            rows.append(
                {
                    "cell": row["cell"],
                    "share": f"{row['share']:.3g} ± {row['share_sd']:.2g}",
                    f"{100 * float(level):g} %": f"{row[f'share_low_{level}']:.3g} to {row[f'share_high_{level}']:.3g}",
                    "records": f"{row['count']:.4g} ± {row['count_sd']:.2g}",
                    f"{100 * float(level):g} % of records": (
                        f"{row[f'count_low_{level}']} to {row[f'count_high_{level}']}"
                    ),
                }
            )
        # The shares in a table of one category are known, and would make the error look small.
        sds = [sd for found in self.tables.values() for sd in found.share_sds.tolist() if sd > 0]
        typical = math.sqrt(sum(sd**2 for sd in sds) / max(len(sds), 1))
        return (
            ("What the release says",),
            rows,
            (
                f"Typical error: {typical:.2g} of a share.",
                "± is one standard deviation: of records by the noise, of a share by the sample, too.",
                *(f"Given {one}." for one in self.conditions),
            ),
        )


@overload
def estimate(
    release: xr.DataTree, prob: Sequence[float] = ..., *, prior: SparsePrior, progressbar: bool = ...
) -> SparseEstimates: ...


@overload
def estimate(
    release: Source | Sequence[Source],
    prob: Sequence[float] = ...,
    *,
    prior: ArrayLike | Mapping[str, ArrayLike] | None = ...,
    n_prior: int | ArrayLike | Mapping[str, int | ArrayLike] | None = ...,
    row_prior: ArrayLike | Mapping[str, ArrayLike] | None = ...,
    jointly: bool = ...,
    progressbar: bool = ...,
) -> Estimates: ...


def estimate(
    release: Source | Sequence[Source],
    prob: Sequence[float] = (0.5, 0.8, 0.95),
    *,
    prior: ArrayLike | Mapping[str, ArrayLike] | SparsePrior | None = None,
    n_prior: int | ArrayLike | Mapping[str, int | ArrayLike] | None = None,
    row_prior: ArrayLike | Mapping[str, ArrayLike] | None = None,
    jointly: bool = True,
    progressbar: bool = True,
) -> Estimates | SparseEstimates:
    """Means, standard deviations and central intervals of shares and counts given a release.

    Parameters
    ----------
    release : xarray.DataTree, MechanismOutput, or a list of them
        As for :func:`pymc_dirdp.analyse`.
    prob : sequence of float
        Probabilities of the intervals, in (0, 1). The largest is shown; `frame()` has all.
    prior, n_prior, row_prior, jointly
        As for :func:`pymc_dirdp.analyse`.

    Returns
    -------
    estimates : Estimates, or SparseEstimates of a release of a sparse table
        Exact sums, without sampling, also where the totals of rows or the number of records are private, and where
        features are taken together with their classes. Intervals of shares take most of the time, so they are computed
        when they are asked for: `print` and `frame()` do. Where both a count and the total of its row are known to some
        hundreds only, their ends are sums over some pairs of both, with an error of some thousandths of the level at
        most. Of noisy marginals they are averages over 4,000 draws: a line below the table says what these are worth,
        and how many cells rest on the prior. Functions of several cells, such as differences between groups, are those
        of the draws of :func:`pymc_dirdp.analyse`. The evidence of tables that are taken together is that of all.

    Raises
    ------
    ReleaseError, ArgumentError
        As :func:`pymc_dirdp.analyse` does.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     heads = pm.Binomial("heads", n=1000, p=p, observed=300)
    ...     release = dirdp.sample(dirdp.PureDP(epsilon=1.0), mechanism="geometric")
    >>> list(dirdp.estimate(release, prob=[0.9]).frame().columns)[:4]
    ['share', 'share_sd', 'share_low_0.9', 'share_high_0.9']
    """
    interval_ends(prob)
    sparse = sparse_release(release)
    if sparse is not None:
        refuse_options(n_prior=n_prior, row_prior=row_prior)
        return estimated(sparse, prior, prob)
    found = inferences(release, prior, n_prior, row_prior, jointly)
    with Bar(len(found.tables), "tables", shown=progressbar) as bar:
        tables = found.distributions.estimate(list(prob), bar)
    return Estimates(
        tables,
        {name: _cells(seen) for name, seen in found.tables.items()},
        tuple(
            "; ".join(filter(None, (f"{name}: {found.conditions(name)}", tables[name].caveat))) for name in found.tables
        ),
    )


def _cells(seen: Seen) -> tuple[str, ...]:
    """Such as `p[black]`, by the labels of the table of counts."""
    axes = [
        list(map(str, range(size) if labels is None else labels))
        for size, (_, labels) in zip(seen.prior.shape, seen.cell_labels, strict=True)
    ]
    return tuple(f"{seen.name}[{', '.join(labels)}]" for labels in itertools.product(*axes))
