"""The posterior of one family's table given noisy marginals: its mode, and how many effects the marginals tell."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.inference.effects import Effects
from pymc_dirdp.inference.measurements import Family, Measurement
from pymc_dirdp.inference.modes import inverse_diagonal, log_determinant, minimised, solved

__all__ = ["FamilyPosterior"]


@dataclass(frozen=True, eq=False)
class _Marginal:
    """A measurement with axes of length 1 in the place of the axes of the family that it adds up over."""

    over: tuple[int, ...]
    noisy: Array
    variance: float


@final
class FamilyPosterior:
    """The log-linear model of the shares of all combinations of values of a family, given noisy marginals.

    The shares are `p = softmax(sum of effects)`, with an effect for each subset of the axes, whose coordinates are
    `Normal(0, scale**2)` with a scale for each group of effects. A measured marginal is
    `Normal(N * marginal of p, variance + N * marginal of p)`, where the second variance is that of the sample of N
    records. It is fixed at the shares of :meth:`reweighted`, and left out before.

    Parameters
    ----------
    family : Family
    measurements : sequence of Measurement
        Each is used through its marginal of the variables that it shares with the family.
    n_records : float

    References
    ----------
    MacKay (1992), Bayesian interpolation, Neural Computation 4, 415-447, for the number of well-determined parameters.
    """

    def __init__(self, family: Family, measurements: Sequence[Measurement], n_records: float) -> None:
        self.effects = Effects(family.shape)
        self._n_records = n_records
        self._axes = tuple(range(-len(family.shape), 0))
        self._marginals = []
        for measurement in measurements:
            if (own := measurement.onto(family.axes)) is not None:
                over = tuple(i for i, axis in zip(self._axes, family.axes, strict=True) if axis not in own.axes)
                self._marginals.append(_Marginal(over, np.expand_dims(own.noisy, over), own.variance))
        self._weights = [np.full(marginal.noisy.shape, 1 / marginal.variance) for marginal in self._marginals]

    def shares(self, coordinates: Array) -> Array:
        """The shares of all combinations of values."""
        logits = self.effects.logits(coordinates)
        p = np.exp(logits - logits.max())
        return np.asarray(p / p.sum())

    def reweighted(self, coordinates: Array) -> None:
        """Take the variance of the sample from the shares with these coordinates."""
        p = self.shares(coordinates)
        self._weights = [
            1 / (marginal.variance + self._n_records * p.sum(axis=marginal.over, keepdims=True))
            for marginal in self._marginals
        ]

    def objective(self, x: Array, scales: Array) -> tuple[float, Array]:
        """Minus the logarithm of the posterior, up to a constant, and its gradient.

        Parameters
        ----------
        x : array, shape (cells,)
            The coordinates, divided by their scales.
        scales : array, shape of the family
            That of each coordinate.
        """
        table = x.reshape(scales.shape)
        p = self.shares(scales * table)
        value, slopes = self._misfit(p)
        value += 0.5 * float(x @ x)
        change = self._n_records * p * (slopes - np.sum(p * slopes))
        return value, (table + scales * self.effects.transposed(change)).ravel()

    def curvature(self, x: Array, scales: Array, gauss_newton: bool = False) -> Callable[[Array], Array]:
        """The product of the second derivatives of the objective with a vector, or with each row of a matrix.

        Parameters
        ----------
        x, scales
            As in :meth:`objective`.
        gauss_newton : bool, default False
            Leave out the part that depends on how far the measurements are from the fit. What remains is positive
            definite.
        """
        p = self.shares(scales * x.reshape(scales.shape))
        slopes = self._misfit(p)[1]
        slopes = slopes - np.sum(p * slopes)
        n = self._n_records

        def product(v: Array) -> Array:
            tables = v.reshape(*v.shape[:-1], *scales.shape)
            logits = self.effects.logits(scales * tables)
            dp = p * (logits - self._sum(p * logits))
            change = np.zeros(tables.shape)
            for marginal, weight in zip(self._marginals, self._weights, strict=True):
                change += n * weight * dp.sum(axis=marginal.over, keepdims=True)
            change = p * (change - self._sum(p * change))
            if not gauss_newton:
                change += dp * slopes - p * self._sum(dp * slopes)
            return np.asarray((tables + n * scales * self.effects.transposed(change)).reshape(v.shape))

        return product

    def start(self) -> Array:
        """The coordinates of independent variables with the measured marginals of each."""
        logits = np.zeros(self.effects.shape)
        for axis in self._axes:
            others = tuple(i for i in self._axes if i != axis)
            counts, precision = np.zeros(1), 0.0
            for marginal in self._marginals:
                if axis not in marginal.over:
                    own = logits.shape[axis] / (marginal.variance * marginal.noisy.size)
                    counts = counts + own * marginal.noisy.sum(axis=others, keepdims=True)
                    precision += own
            if precision:
                # What the noise may have made negative is taken as one standard deviation.
                logits = logits + np.log(np.maximum(counts / precision, precision**-0.5))
        return self.effects.coordinates(logits)

    def mode(self, start: Array, scales: Array, close: float) -> Array:
        """The coordinates at the mode, given the scale of each group.

        It is found where the gradient, in coordinates divided by their scales, is no longer than `close`. Second
        derivatives from the prior alone are 1 there, so the logarithm of the posterior is about `close**2 / 2` from
        its maximum at most.
        """
        of_each = scales[self.effects.groups]
        x = np.divide(start, of_each, out=np.zeros(start.shape), where=of_each > 0)
        found = minimised(
            lambda x: self.objective(x, of_each),
            lambda x, positive: self.curvature(x, of_each, positive),
            x.ravel(),
            close,
        )
        return found.reshape(start.shape) * of_each

    def known(self, mode: Array, scales: Array) -> Array:
        """How many coordinates of each group the marginals tell: the trace of `I - 1/H`, by groups.

        H is the Gauss-Newton curvature at the mode.
        """
        of_each = scales[self.effects.groups]
        x = np.divide(mode, of_each, out=np.zeros(mode.shape), where=of_each > 0)
        variances = inverse_diagonal(self.curvature(x.ravel(), of_each, gauss_newton=True), x.size)
        sizes = self.effects.sums(np.ones(mode.shape))
        return np.clip(sizes - self.effects.sums(variances), 0.0, sizes)

    def log_evidence(self, mode: Array, scales: Array) -> float:
        """The Laplace approximation of the marginal likelihood, as a logarithm, up to a constant of the weights."""
        of_each = scales[self.effects.groups]
        x = np.divide(mode, of_each, out=np.zeros(mode.shape), where=of_each > 0).ravel()
        curved = self.curvature(x, of_each, gauss_newton=True)
        return -self.objective(x, of_each)[0] - log_determinant(curved, x.size) / 2

    def spread(self, mode: Array, scales: Array, rng: np.random.Generator, draws: int) -> Array:
        """Draws from the normal distribution around the mode that has the Gauss-Newton curvature.

        Shape `(draws, *shape)`.

        They come in pairs, as far above the mode as below it.
        """
        of_each = scales[self.effects.groups]
        x = np.divide(mode, of_each, out=np.zeros(mode.shape), where=of_each > 0).ravel()
        p, half = self.shares(mode), draws // 2
        slopes = np.zeros((half, *mode.shape))
        for marginal, weight in zip(self._marginals, self._weights, strict=True):
            slopes += np.sqrt(weight) * rng.standard_normal((half, *marginal.noisy.shape))
        change = self._n_records * p * (slopes - self._sum(p * slopes))
        pulled = (of_each * self.effects.transposed(change)).reshape(half, -1) + rng.standard_normal((half, x.size))
        off = solved(self.curvature(x, of_each, gauss_newton=True), pulled).reshape(half, *mode.shape) * of_each
        return np.concatenate([mode + off, mode - off])

    def _sum(self, table: Array) -> Array:
        found: Array = table.sum(axis=self._axes, keepdims=True)
        return found

    def _misfit(self, p: Array) -> tuple[float, Array]:
        """Half the sum of weighted squares of the residuals, and its slope in each expected count."""
        value, slopes = 0.0, np.zeros(p.shape)
        for marginal, weight in zip(self._marginals, self._weights, strict=True):
            residual = self._n_records * p.sum(axis=marginal.over, keepdims=True) - marginal.noisy
            value += 0.5 * float(np.sum(weight * residual**2))
            slopes += weight * residual
        return value, slopes
