"""The posterior of all tables of a network together, given noisy marginals of its records."""

from collections.abc import Callable, Mapping, Sequence
from typing import final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.inference.effects import Effects
from pymc_dirdp.inference.measurements import Family, Measurement
from pymc_dirdp.inference.modes import minimised, solved
from pymc_dirdp.inference.network_marginals import NetworkMarginals

__all__ = ["NetworkPosterior"]


@final
class NetworkPosterior:
    """The log-linear model of all tables of a network, given noisy marginals of the whole.

    The shares of a variable given its parents are the softmax, over its values, of a sum of effects, one for each
    subset of the parents, whose coordinates are `Normal(0, scale**2)` with a scale for each group of effects. A
    measured marginal is `Normal(N * marginal of the network, variance + N * marginal)`, where the second
    variance, that of the sample of N records, is fixed at the tables given to :meth:`reweighted`, and left out before.

    All coordinates are in one vector here, divided by their scales.

    Parameters
    ----------
    families : sequence of Family
        Of a network: each variable has one family, and parents have theirs.
    measurements : sequence of Measurement
        Of variables of the network.
    n_records : float

    Raises
    ------
    EliminationError
        If a table on the way to the marginals would be too large.
    """

    def __init__(self, families: Sequence[Family], measurements: Sequence[Measurement], n_records: float) -> None:
        self._families = list(families)
        self._measurements = list(measurements)
        self._n_records = n_records
        self._marginals = NetworkMarginals(families, [one.axes for one in measurements])
        self.effects = [Effects(family.shape) for family in families]
        self._ends = np.cumsum([effects.groups.size for effects in self.effects])[:-1]
        self._weights = [np.full(one.noisy.shape, 1 / one.variance) for one in measurements]

    def coordinates(self, tables: Mapping[str, Array]) -> list[Array]:
        """The coordinates of tables of positive shares, by name."""
        return [
            effects.coordinates(np.log(tables[family.name]))
            for effects, family in zip(self.effects, self._families, strict=True)
        ]

    def tables(self, coordinates: Sequence[Array]) -> dict[str, Array]:
        """The shares with these coordinates, by name of the family."""
        return dict(zip((family.name for family in self._families), self._shares(coordinates), strict=True))

    def reweighted(self, coordinates: Sequence[Array]) -> None:
        """Take the variance of the sample from the marginals with these coordinates."""
        expected = self._marginals.values(self._marginals.run(self._shares(coordinates)))
        self._weights = [
            1 / (one.variance + self._n_records * marginal)
            for one, marginal in zip(self._measurements, expected, strict=True)
        ]

    def objective(self, x: Array, scales: Sequence[Array]) -> tuple[float, Array]:
        """Minus the logarithm of the posterior, up to a constant, and its gradient.

        Parameters
        ----------
        x : array, shape (cells of all tables,)
        scales : sequence of array
            That of each coordinate of each table.
        """
        p = self._shares(self._scaled(x, scales))
        made = self._marginals.run(p)
        residuals = self._residuals(made)
        value = sum(0.5 * float(np.sum(w * r**2)) for w, r in zip(self._weights, residuals, strict=True))
        slopes = self._marginals.slopes(made, self._weighted(residuals))
        gradient = self._through_softmax(p, slopes[: len(p)], scales)
        return value + 0.5 * float(x @ x), x + gradient

    def curvature(self, x: Array, scales: Sequence[Array], gauss_newton: bool = False) -> Callable[[Array], Array]:
        """The product of the second derivatives of the objective with a vector, or with each row of a matrix.

        Parameters
        ----------
        x, scales
            As in :meth:`objective`.
        gauss_newton : bool, default False
            Leave out the part that depends on how far the measurements are from the fit. What remains is positive
            definite.
        """
        p = self._shares(self._scaled(x, scales))
        made = self._marginals.run(p)
        slopes = self._marginals.slopes(made, self._weighted(self._residuals(made)))

        def product(v: Array) -> Array:
            directions = [
                q * (logits - _averaged(q, logits))
                for q, logits in zip(p, self._logits(self._scaled(v, scales)), strict=True)
            ]
            all_changes = self._marginals.changes(made, directions)
            of_wanted = self._weighted([self._n_records * one for one in self._marginals.values(all_changes)])
            if gauss_newton:
                back = self._marginals.slopes(made, of_wanted)[: len(p)]
                return np.asarray(v + self._through_softmax(p, back, scales))
            back = self._marginals.slope_changes(made, all_changes, slopes, of_wanted)[: len(p)]
            through = self._through_softmax(p, back, scales)
            # The softmax itself changes, too.
            of_logits = [
                dq * (slope - _averaged(q, slope)) - q * _averaged(dq, slope)
                for q, dq, slope in zip(p, directions, slopes, strict=False)
            ]
            return np.asarray(v + through + self._transposed(of_logits, scales))

        return product

    def mode(self, start: Sequence[Array], scales: Sequence[Array], close: float) -> list[Array]:
        """The coordinates at the mode, given the scale of each group of each table.

        It is found where the gradient, in coordinates divided by their scales, is no longer than `close`.
        """
        of_each = self._of_each(scales)
        found = minimised(
            lambda x: self.objective(x, of_each),
            lambda x, positive: self.curvature(x, of_each, positive),
            _divided(start, of_each),
            close,
        )
        return self._scaled(found, of_each)

    def spread(
        self, mode: Sequence[Array], scales: Sequence[Array], rng: np.random.Generator, draws: int
    ) -> list[list[Array]]:
        """Draws from the normal distribution around the mode that has the Gauss-Newton curvature.

        Coordinates for each draw.

        They come in pairs, as far above the mode as below it.
        """
        of_each = self._of_each(scales)
        x, half = _divided(mode, of_each), draws // 2
        p = self._shares(self._scaled(x, of_each))
        made = self._marginals.run(p)
        noise = [rng.standard_normal((half, *w.shape)) / np.sqrt(w) for w in self._weights]
        slopes = self._marginals.slopes(made, self._weighted(noise))[: len(p)]
        pulled = self._through_softmax(p, slopes, of_each) + rng.standard_normal((half, x.size))
        off = solved(self.curvature(x, of_each, gauss_newton=True), pulled)
        return [self._scaled(x + one, of_each) for one in (*off, *-off)]

    def _of_each(self, scales: Sequence[Array]) -> list[Array]:
        found = [own[effects.groups] for own, effects in zip(scales, self.effects, strict=True)]
        for table in found:
            # What is the same for all values of the variable does not change its shares.
            table[..., 0] = 0.0
        return found

    def _tables(self, x: Array) -> list[Array]:
        parts = np.split(x, self._ends, axis=-1)
        return [part.reshape(*x.shape[:-1], *family.shape) for part, family in zip(parts, self._families, strict=True)]

    def _scaled(self, x: Array, scales: Sequence[Array]) -> list[Array]:
        return [own * table for own, table in zip(scales, self._tables(x), strict=True)]

    def _logits(self, coordinates: Sequence[Array]) -> list[Array]:
        return [effects.logits(table) for effects, table in zip(self.effects, coordinates, strict=True)]

    def _shares(self, coordinates: Sequence[Array]) -> list[Array]:
        shares = []
        for logits in self._logits(coordinates):
            p = np.exp(logits - logits.max(axis=-1, keepdims=True))
            shares.append(p / p.sum(axis=-1, keepdims=True))
        return shares

    def _residuals(self, made: Sequence[Array]) -> list[Array]:
        marginals = self._marginals.values(made)
        return [
            self._n_records * marginal - one.noisy for marginal, one in zip(marginals, self._measurements, strict=True)
        ]

    def _weighted(self, residuals: Sequence[Array]) -> list[Array]:
        return [self._n_records * w * r for w, r in zip(self._weights, residuals, strict=True)]

    def _through_softmax(self, p: Sequence[Array], slopes: Sequence[Array], scales: Sequence[Array]) -> Array:
        of_logits = [q * (slope - _averaged(q, slope)) for q, slope in zip(p, slopes, strict=True)]
        return self._transposed(of_logits, scales)

    def _transposed(self, of_logits: Sequence[Array], scales: Sequence[Array]) -> Array:
        found = [
            own * effects.transposed(slope) for own, effects, slope in zip(scales, self.effects, of_logits, strict=True)
        ]
        return np.concatenate(
            [
                table.reshape(*table.shape[: table.ndim - own.ndim], -1)
                for table, own in zip(found, scales, strict=True)
            ],
            axis=-1,
        )


def _averaged(p: Array, values: Array) -> Array:
    found: Array = np.sum(p * values, axis=-1, keepdims=True)
    return found


def _divided(coordinates: Sequence[Array], scales: Sequence[Array]) -> Array:
    return np.concatenate(
        [
            np.divide(table, own, out=np.zeros(own.shape), where=own > 0).ravel()
            for table, own in zip(coordinates, scales, strict=True)
        ]
    )
