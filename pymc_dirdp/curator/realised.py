"""Errors of draws on the data themselves, and what privacy cost."""

from typing import final

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.special import xlogy

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import checked_counts, positive, positive_array
from pymc_dirdp.curator.confidential import Confidential
from pymc_dirdp.curator.estimated import Distribution, simplex
from pymc_dirdp.errors import ArgumentError, DataError, type_name
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.planning.draw_error import DrawError, expected_kl
from pymc_dirdp.planning.expected_kl import dirichlet_kl, dirichlet_kl_rows
from pymc_dirdp.sampling.fast import dirichlet

__all__ = ["RealisedError", "kl_of_draws", "kl_of_rows", "realised", "realised_by_row", "realised_kl"]

# The error for the data at hand. **Everything here is confidential**: the guarantee does not cover it.


def realised_kl(counts: ArrayLike, alpha: ArrayLike, r: float) -> Confidential:
    """`E KL(x/N || y)` over `y ~ Dirichlet(r x + alpha)`, in nats, averaged over rows by size. **Confidential**.

    Parameters
    ----------
    counts : array_like of integers, shape (..., d)
        The data `x`, with at least one record.
    alpha : array_like, shape (..., d)
        Prior parameters of the mechanism, positive.
    r : float
        The concentration of the mechanism, positive.

    References
    ----------
    Theory, section 8. P1 minimises this error.
    """
    parameters = positive_array(alpha=alpha)
    x = checked_counts(counts, parameters.shape)
    sizes = x.sum(axis=-1, keepdims=True)
    if not sizes.sum() > 0:
        raise ArgumentError("The data's frequencies are undefined: there is no record.")
    u = positive(r=r) * x + parameters
    per_row = expected_kl(x / np.where(sizes > 0, sizes, 1.0), u)
    return Confidential((per_row * sizes[..., 0]).sum() / sizes.sum())


def kl_of_rows(counts: Array, y: Array) -> Array:
    """`KL(x/N || y)` of each row, from shape `(draws, *table.shape)` to `(draws, *rows)`; NaN for an empty row."""
    sizes = counts.sum(axis=-1, keepdims=True)
    p = counts / np.where(sizes > 0, sizes, np.nan)
    return np.asarray((xlogy(p, p) - xlogy(p, y)).sum(axis=-1))


def kl_of_draws(counts: Array, y: Array) -> Array:
    """`KL(x/N || y)` of each draw, averaged over rows by size; NaN if there is no record."""
    sizes = counts.sum(axis=-1)
    if not sizes.sum() > 0:
        return np.full(len(y), np.nan)
    per_row = np.where(sizes > 0, kl_of_rows(counts, y), 0.0)
    return np.asarray((per_row * sizes).reshape(len(y), -1).sum(axis=-1) / sizes.sum())


@final
class RealisedError:
    """How far the draws of a Dirichlet mechanism are from these data: for the curator, never to be published.

    Every number is a :class:`pymc_dirdp.curator.Confidential`. What may be published is the a priori version,
    :class:`pymc_dirdp.planning.PriorExpectedKL`, or a :class:`pymc_dirdp.planning.DrawError` of assumed frequencies.

    Parameters
    ----------
    mechanism : DirichletMechanism
        The mechanism that draws.
    counts : array_like of integers, shape of `mechanism.alpha`
        The data, which are secret, with at least one record.
    prior : array_like, shape of `mechanism.alpha`
        The model's own prior parameters.

    Examples
    --------
    >>> mechanism = DirichletMechanism([1, 1, 1, 1], 0.1)
    >>> RealisedError(mechanism, [108, 286, 71, 127], prior=[1, 1, 1, 1]).kl_posterior
    2.04... (confidential: computed from the data)
    """

    def __init__(self, mechanism: DirichletMechanism, counts: ArrayLike, *, prior: ArrayLike) -> None:
        if getattr(mechanism, "tempered", None) is None:
            raise ArgumentError(f"Expected a DirichletMechanism, got {type_name(mechanism)}.")
        x = checked_counts(counts, mechanism.alpha.shape)
        if not x.sum() > 0:
            raise DataError("The data's frequencies are undefined: there is no record.")
        self._mechanism, self._counts = mechanism, x
        self._posterior = x + np.asarray(prior, dtype=np.float64)
        self._private = mechanism.concentration(counts)
        sizes = x.sum(axis=-1, keepdims=True)
        # A row without records has no frequencies, and no weight.
        some = sizes[..., 0] > 0
        self._weights = (sizes[some] / x.sum()).ravel()
        frequencies = (x[some] / sizes[some]).reshape(len(self._weights), -1)
        parameters = self._private[some].reshape(frequencies.shape)
        self._rows = [DrawError(p, u) for p, u in zip(frequencies, parameters, strict=True)]

    def __repr__(self) -> str:
        return "RealisedError (confidential)"

    @property
    def kl_posterior(self) -> Confidential:
        """`KL(posterior || private posterior)` in nats, summed over rows; P2's measure."""
        return Confidential(dirichlet_kl(self._posterior, self._private))

    @property
    def mean(self) -> Confidential:
        """Expected `KL(x/N || y)` over the draw, in nats, averaged over rows by size; P1's measure."""
        return realised_kl(self._counts, self._mechanism.alpha, self._mechanism.r)

    @property
    def variance(self) -> Confidential:
        """Variance over the draw of the error of which `mean` is the expectation; rows are drawn independently."""
        return Confidential(sum(w**2 * row.variance for w, row in zip(self._weights, self._rows, strict=True)))

    @property
    def squared_hellinger(self) -> Confidential:
        """Expected squared Hellinger distance of the draw from the frequencies, averaged over rows by size."""
        rows = zip(self._weights, self._rows, strict=True)
        return Confidential(sum(w * row.squared_hellinger for w, row in rows))

    def tail(self, eta: float) -> Confidential:
        """Upper bound of the probability that some row misses its frequencies by more than `eta` nats."""
        return Confidential(min(1.0, sum(row.tail(eta) for row in self._rows)))

    def of_draw(self, y: ArrayLike) -> Confidential:
        """`KL(x/N || y)` of one released draw, in nats, averaged over rows by size.

        Parameters
        ----------
        y : array_like, shape of `mechanism.alpha`
            The draw; for a Beta variable with its complement.
        """
        draw = np.asarray(y, dtype=np.float64)
        if draw.shape != self._posterior.shape:
            raise ArgumentError(f"Expected one draw of shape {self._posterior.shape}, got {draw.shape}.")
        return Confidential(kl_of_draws(self._counts, draw[np.newaxis])[0])


# The errors of a release, measured on the data themselves, beside what was expected without them. All is secret.


# How many draws and data sets rank a realised error: a rank is then accurate to about 0.02.
_REPLICATES = 500


def realised(
    own: tuple[Distribution, ...], private: tuple[Distribution, ...], release: xr.DataTree, rng: np.random.Generator
) -> xr.Dataset:
    """Errors by table, in nats, and their ranks: the share of a reference whose error is smaller.

    `kl_release` is `KL(x/N || y)` of each released draw, averaged over rows by size. Its reference is the private
    posterior given these data. `kl_posterior` is the divergence of the private posterior from the user's own, summed
    over rows. Its reference is data sets of the same row sizes that the model's prior produces.
    """
    names = [distribution.table.name for distribution in own]
    errors = [_errors(mine, theirs, release, rng) for mine, theirs in zip(own, private, strict=True)]
    columns = {
        name: (("table", "draw") if np.ndim(errors[0][name]) else ("table",), np.array([row[name] for row in errors]))
        for name in errors[0]
    }
    utility = release.children["utility"].to_dataset().sel(table=names)
    columns["kl_release_expected"] = (("table",), utility["expected_kl_estimate"].values)
    columns["kl_posterior_expected"] = (("table",), utility["expected_kl_posterior"].values)
    return xr.Dataset(columns, coords={"table": names, "draw": release["posterior"]["draw"].values})


def realised_by_row(own: Distribution, private: Distribution, release: xr.DataTree) -> xr.Dataset:
    """The errors of each row of a table; `kl_release` is NaN for a row without records."""
    rows = own.cells.isel({own.cells.dims[-1]: 0}, drop=True)
    drawn = rows.expand_dims(draw=release["posterior"]["draw"])
    return xr.Dataset(
        {
            "kl_release": drawn.copy(data=kl_of_rows(own.counts, _released(own, release))),
            "kl_posterior": rows.copy(data=dirichlet_kl_rows(own.concentration, private.concentration)),
        }
    )


def _errors(
    own: Distribution, private: Distribution, release: xr.DataTree, rng: np.random.Generator
) -> dict[str, float | Array]:
    counts = own.counts
    sizes = counts.sum(axis=-1)
    p = dirichlet(own.prior, _REPLICATES, rng)
    possible = rng.multinomial(sizes.astype(np.int64), p / p.sum(axis=-1, keepdims=True))
    error = float(dirichlet_kl_rows(own.concentration, private.concentration).sum())
    others = dirichlet_kl_rows(possible + own.prior, private.power * possible + private.prior)
    reference = others.reshape(_REPLICATES, -1).sum(axis=-1)
    released = kl_of_draws(counts, _released(own, release))
    fresh = kl_of_draws(counts, dirichlet(private.concentration, _REPLICATES, rng))
    some = bool(sizes.sum() > 0)
    return {
        "kl_release": released,
        "kl_release_mean": realised_kl(counts, private.prior, private.power).value if some else np.nan,
        "kl_release_rank": (fresh < released[:, None]).mean(axis=-1) if some else np.full(released.shape, np.nan),
        "kl_posterior": error,
        "kl_posterior_rank": float(np.mean(reference < error)),
    }


def _released(distribution: Distribution, release: xr.DataTree) -> Array:
    return simplex(distribution.table, release.children["posterior"].to_dataset()[distribution.table.name].values[0])
