"""How accurate a release is expected to be, in words: a priori, by public numbers only."""

from collections.abc import Callable, Iterator

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.mechanisms.outputs import Marginals
from pymc_dirdp.planning.draw_error import draw_share_error, smallest_share
from pymc_dirdp.releases.opened import Opened, ReleasedTable

__all__ = ["expected_errors", "in_range", "typical_errors"]

type Lines = tuple[tuple[str, str], ...]


def typical_errors(stored: Opened, utility: xr.Dataset) -> Lines:
    """How far a share is typically off, in the estimate or the mean, and in a draw that is itself the release."""
    by_table = ", by table" * (len(stored.tables) > 1)
    if stored.is_estimate:
        # Tables of one category have no error, and large networks are not simulated.
        fitted = [part.table.name for part in stored.plan.publishing(Marginals)]
        known = utility["share_error"].sel(table=fitted).values
        if not np.all(np.isfinite(known)):
            return ()
        return (("of the fit", f"a share is typically off by {in_range(known, 2)}{by_table}, in made-up networks"),)
    of_draws = _of_tables(stored, utility, lambda table, n: draw_share_error(table.mechanism, table.prior, round(n)))
    # Where nothing is inferred from the output, the error is that of the posterior which was released.
    known_distribution = [table.mechanism.has_inference for table in stored.tables.values()]
    of_means: Array = utility["share_error"].values
    errors: dict[str, Array] = {
        "of dirdp.estimate": np.where(known_distribution, of_means, np.nan),
        "of the mean": np.where(known_distribution, np.nan, of_means),
        "of the draw": of_draws,
    }
    return tuple(
        (label, f"a share is typically off by {in_range(known, 2)}{by_table}")
        for label, values in errors.items()
        if (known := values[np.isfinite(values)]).size
    )


def expected_errors(stored: Opened, utility: xr.Dataset) -> Lines:
    """The typical errors first, and then the numbers for those who plan."""
    if "note" in utility.attrs:
        return (("typical error", str(utility.attrs["note"])),)
    return (*typical_errors(stored, utility), *_details(stored, utility), *_grid(utility))


def _details(stored: Opened, utility: xr.Dataset) -> Iterator[tuple[str, str]]:
    n, effective = utility["n_records"].values, utility["effective_records"].values
    by_table = ", by table" * (len(n) > 1)
    least = _of_tables(stored, utility, lambda table, n: smallest_share(table.mechanism, table.prior.shape, n))
    # Noise that is nearly always 0 hides nothing.
    if (known := least[np.isfinite(least) & (least > 0)]).size:
        yield (
            "smallest share",
            f"below {in_range(known, 2)}{by_table}, of the records of its row, a cell may be taken for an empty one "
            "that shows the prior alone",
        )
    yield "records", f"{in_range(n)} ({utility.attrs['records']})"
    if (drawn := effective[np.isfinite(effective)]).size:
        yield "effective records", f"r N = {in_range(drawn)}"
    posterior, estimate = utility["expected_kl_posterior"].values, utility["expected_kl_estimate"].values
    if np.all(np.isfinite(posterior)):
        all_tables = ", all tables" * (len(n) > 1)
        yield "KL of posteriors", f"{posterior.sum():.4g} nats expected, private from yours{all_tables}"
    if np.all(np.isfinite(estimate)):
        yield "KL of the draw", f"{in_range(estimate)} nats expected, from the frequencies{by_table}"
    of_estimates = utility["estimate_kl"].values
    if np.all(np.isfinite(of_estimates)):
        yield "KL of the estimate", f"{in_range(of_estimates, 3)} nats expected, from the shares{by_table}"


def _of_tables(stored: Opened, utility: xr.Dataset, error: Callable[[ReleasedTable, float], float | None]) -> Array:
    """A number for each table; NaN where it is not known. A file may hold numbers of which nothing can be computed."""
    known = []
    with np.errstate(all="ignore"):
        for table, n in zip(stored.tables.values(), utility["n_records"].values.tolist(), strict=True):
            value = error(table, n) if n > 0 else None
            known.append(np.nan if value is None else value)
    return np.array(known)


def _grid(utility: xr.Dataset) -> Iterator[tuple[str, str]]:
    """What the grid of an exact draw adds, if there is one."""
    weight, variance = utility["grid_weight"].values, utility["grid_variance"].values
    # A file may hold one of them alone.
    if np.any(np.isfinite(weight)) and np.any(np.isfinite(variance)):
        yield (
            "grid",
            f"adds at most {100 * float(np.nanmax(variance)):.2g} % to the variance of a draw, and draws it to the "
            f"middle by {100 * float(np.nanmax(weight)):.2g} %",
        )


def in_range(values: NDArray[np.float64], digits: int = 5) -> str:
    """The least and the largest of some numbers, or one number if they are equal."""
    low, high = f"{values.min():.{digits}g}", f"{values.max():.{digits}g}"
    return low if low == high else f"{low} to {high}"
