"""The loss for the data at hand. **Everything here is confidential**: the guarantee does not cover it."""

from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import xlogy

from pymc_dirdp.checks import positive, positive_array
from pymc_dirdp.curator.confidential import Confidential
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms.base import checked_counts
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.utility.draw_error import DrawError, expected_kl
from pymc_dirdp.utility.expected_kl import dirichlet_kl

__all__ = ["RealisedError", "realised_kl"]

Array = NDArray[np.float64]


def realised_kl(counts: ArrayLike, alpha: ArrayLike, r: float) -> Confidential:
    """`E KL(x/N || y)` over `y ~ Dirichlet(r x + alpha)`, in nats, averaged over rows by size. **Confidential**.

    Parameters
    ----------
    counts : array_like of whole numbers, shape (..., d)
        The data `x`, with at least one record.
    alpha : array_like, shape (..., d)
        Prior parameters of the mechanism.
    r : float
        Its concentration.

    References
    ----------
    Theory, section 8; it is the loss that P1 minimises.
    """
    parameters = positive_array(alpha=alpha)
    x = checked_counts(counts, parameters.shape)
    sizes = x.sum(axis=-1, keepdims=True)
    if not sizes.sum() > 0:
        raise ArgumentError("The data's frequencies are undefined: there is no record.")
    u = positive(r=r) * x + parameters
    per_row = expected_kl(x / np.where(sizes > 0, sizes, 1.0), u)
    return Confidential((per_row * sizes[..., 0]).sum() / sizes.sum())


@final
class RealisedError:
    """How far the draws of a Dirichlet mechanism are from these data: for the curator, never to be published.

    Every number is a :class:`pymc_dirdp.curator.Confidential`. What may be published is the a priori version,
    :class:`pymc_dirdp.PriorExpectedKL`, or a :class:`pymc_dirdp.utility.DrawError` of assumed frequencies.

    Parameters
    ----------
    mechanism : DirichletMechanism
    counts : array_like of whole numbers, shape of `mechanism.alpha`
        The secret, with at least one record.
    prior : array_like, shape of `mechanism.alpha`
        The model's own prior.

    Examples
    --------
    >>> mechanism = DirichletMechanism([1, 1, 1, 1], 0.1)
    >>> RealisedError(mechanism, [108, 286, 71, 127], prior=[1, 1, 1, 1]).kl_posterior
    2.04... (confidential: computed from the data)
    """

    def __init__(self, mechanism: DirichletMechanism, counts: ArrayLike, *, prior: ArrayLike) -> None:
        drawn = getattr(mechanism, "tempered", None)
        if drawn is None:
            raise ArgumentError(f"Expected a DirichletMechanism, got a {type(mechanism).__name__}.")
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
        self._frequencies = (x[some] / sizes[some]).reshape(len(self._weights), -1)
        self._some = some
        self._rows = [
            DrawError(p, u)
            for p, u in zip(self._frequencies, self._private[some].reshape(self._frequencies.shape), strict=True)
        ]

    def __repr__(self) -> str:
        return "RealisedError (confidential)"

    @property
    def kl_posterior(self) -> Confidential:
        """`KL(posterior || private posterior)` in nats, summed over rows; P2's measure."""
        return Confidential(dirichlet_kl(self._posterior, self._private))

    @property
    def mean(self) -> Confidential:
        """Expected `KL(x/N || y)` over the draw, in nats, averaged over rows by size; P1's loss."""
        return realised_kl(self._counts, self._mechanism.alpha, self._mechanism.r)

    @property
    def variance(self) -> Confidential:
        """Variance of that average; rows are drawn independently."""
        return Confidential(sum(w**2 * row.variance for w, row in zip(self._weights, self._rows, strict=True)))

    @property
    def squared_hellinger(self) -> Confidential:
        """Expected squared Hellinger distance of the draw from the frequencies, averaged over rows by size."""
        rows = zip(self._weights, self._rows, strict=True)
        return Confidential(sum(w * row.squared_hellinger for w, row in rows))

    def tail(self, eta: float) -> Confidential:
        """Bound of the probability that some row misses its frequencies by more than eta nats."""
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
        q = draw[self._some].reshape(self._frequencies.shape)
        p = self._frequencies
        with np.errstate(divide="ignore"):
            divergences = (xlogy(p, p) - np.where(p > 0, p * np.log(q), 0.0)).sum(axis=1)
        return Confidential(float(self._weights @ divergences))
