"""Log-linear models of tables of shares, given noisy marginals of the records.

1. A table is the softmax of a sum of effects, over all cells or over the values of a variable given its parents.
2. Marginals follow from tables by a planned list of sums. :mod:`pymc_dirdp.networks.joint_fit` also uses products.
3. A measured marginal has the variance of the noise plus that of the sample, which is fixed at the previous tables.
4. Derivatives use the same steps forwards and backwards, so second derivatives are products with vectors.
5. Newton's method finds the mode. The curvature there yields the number of well-determined effects and the evidence.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from string import ascii_letters
from typing import ClassVar, final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import InternalError
from pymc_dirdp.inference.effects import Effects
from pymc_dirdp.inference.measurements import Family, Measurement
from pymc_dirdp.numerics.minima import inverse_diagonal, log_determinant, minimised, solve

Axes = tuple[str, ...]


@dataclass(frozen=True)
class _Step:
    """The product of one or two tables, by their numbers, summed over all axes but those of the result."""

    inputs: tuple[int, ...]
    axes: Axes


class Marginals:
    """The sums that yield marginals from tables of all their variables, planned once.

    Parameters
    ----------
    families : sequence of Family
        The families of the tables.
    axes_of_marginals : sequence of tuple of str
        The variables of each marginal, all of them in one table.

    Attributes
    ----------
    given_parents : bool
        Whether a table is that of its last variable given the others.

    Notes
    -----
    Derivatives use the same steps, forwards for a change of the tables and backwards for the slope in each cell.

    Examples
    --------
    >>> marginals = Marginals([Family("p", ("a", "b"), (2, 2))], [("b",)])
    >>> marginals.values(marginals.run([np.array([[0.5, 0.2], [0.1, 0.2]])]))
    [array([0.6, 0.4])]
    """

    given_parents: ClassVar[bool] = False

    def __init__(self, families: Sequence[Family], axes_of_marginals: Sequence[Axes]) -> None:
        self.families = list(families)
        self._sizes = {axis: size for family in families for axis, size in zip(family.axes, family.shape, strict=True)}
        self._axes: list[Axes] = [family.axes for family in families]
        self._steps: list[_Step] = []
        # The variables of each joint table, by its number.
        self._joint = {
            i: frozenset(family.axes)
            for i, family in enumerate(families)
            if not (self.given_parents and family.parents)
        }
        # The largest marginals come first, so that the others are sums of them.
        place_of: dict[Axes, int] = {}
        for axes in sorted({*axes_of_marginals}, key=lambda axes: (-len(axes), axes)):
            place_of[axes] = self._marginal(axes)
        self._places = [place_of[axes] for axes in axes_of_marginals]

    def run(self, tables: Sequence[Array]) -> list[Array]:
        """The input tables, followed by the results of all steps."""
        results = list(tables)
        for step in self._steps:
            results.append(self._product(step.axes, *((results[i], self._axes[i]) for i in step.inputs)))
        return results

    def values(self, results: Sequence[Array]) -> list[Array]:
        """The marginals among the tables of :meth:`run` or :meth:`changes`."""
        return [results[i] for i in self._places]

    def changes(self, results: Sequence[Array], tables: Sequence[Array]) -> list[Array]:
        """The derivative of all tables of :meth:`run` along a change of the input tables.

        The changes may have further axes before those of the tables.
        """
        directions = list(tables)
        for step in self._steps:
            directions.append(self._changed(step, results, directions))
        return directions

    def slopes(self, results: Sequence[Array], of_marginals: Sequence[Array]) -> list[Array]:
        """The slope in each cell of each table of :meth:`run`, from the slopes in the cells of the marginals."""
        slopes = self._seeded(of_marginals, len(results))
        for place, step in self._backwards():
            for i, input_ in enumerate(step.inputs):
                slopes[input_] = slopes[input_] + self._back(step, i, slopes[place], results)
        return slopes

    def slope_changes(
        self,
        results: Sequence[Array],
        directions: Sequence[Array],
        slopes: Sequence[Array],
        of_marginals: Sequence[Array],
    ) -> list[Array]:
        """The derivative of :meth:`slopes` along `directions`, from the derivative of the slopes in the marginals."""
        changes = self._seeded(of_marginals, len(results))
        for place, step in self._backwards():
            for i, input_ in enumerate(step.inputs):
                changes[input_] = changes[input_] + self._back(step, i, changes[place], results)
                if len(step.inputs) == 2:
                    changes[input_] = changes[input_] + self._back(step, i, slopes[place], directions)
        return changes

    def _backwards(self) -> list[tuple[int, _Step]]:
        first = len(self._axes) - len(self._steps)
        return list(enumerate(self._steps, start=first))[::-1]

    def _seeded(self, of_marginals: Sequence[Array], tables: int) -> list[Array]:
        # Axes of several directions may precede those of the tables, also in tables that no marginal depends on.
        seeds = zip(self._places, of_marginals, strict=True)
        several = {slope.shape[: slope.ndim - len(self._axes[i])] for i, slope in seeds}
        slopes = [np.zeros((*max(several, default=()), *self._shape(self._axes[i]))) for i in range(tables)]
        for i, slope in zip(self._places, of_marginals, strict=True):
            slopes[i] = slopes[i] + slope
        return slopes

    def _shape(self, axes: Axes) -> tuple[int, ...]:
        return tuple(self._sizes[axis] for axis in axes)

    def _changed(self, step: _Step, results: Sequence[Array], directions: Sequence[Array]) -> Array:
        input_axes = [self._axes[i] for i in step.inputs]
        if len(input_axes) == 1:
            return self._product(step.axes, (directions[step.inputs[0]], input_axes[0]))
        a, b = step.inputs
        first = self._product(step.axes, (directions[a], input_axes[0]), (results[b], input_axes[1]))
        return first + self._product(step.axes, (results[a], input_axes[0]), (directions[b], input_axes[1]))

    def _back(self, step: _Step, i: int, slope: Array, others: Sequence[Array]) -> Array:
        """The slope in one input of a step. It has length 1 along axes that do not matter."""
        input_axes = self._axes[step.inputs[i]]
        if len(step.inputs) == 2:
            second = step.inputs[1 - i]
            return self._product(input_axes, (slope, step.axes), (others[second], self._axes[second]))
        # Each term of a sum has the slope of the sum.
        rest = tuple(axis for axis in input_axes if axis in step.axes)
        turned = slope if rest == step.axes else self._product(rest, (slope, step.axes))
        places = tuple(place - len(input_axes) for place, axis in enumerate(input_axes) if axis not in step.axes)
        return np.expand_dims(turned, places)

    def _product(self, axes: Axes, *factors: tuple[Array, Axes]) -> Array:
        tables, axes_of_factors = zip(*factors, strict=True)
        summed: Array = np.einsum(_spelled(axes, *axes_of_factors), *tables)
        return summed

    def _marginal(self, axes: Axes) -> int:
        """The number of the marginal of these variables."""
        around = [number for number, variables in self._joint.items() if variables >= set(axes)]
        if around:
            number = min(around, key=lambda number: math.prod(self._shape(self._axes[number])))
            return number if self._axes[number] == axes else self._step((number,), axes)
        number = self._eliminated(axes)
        self._joint[number] = frozenset(axes)
        return number

    def _eliminated(self, axes: Axes) -> int:
        """The number of the marginal of variables that no table has together."""
        raise InternalError(f"No table has all variables of the marginal {axes}. Please report this.")

    def _step(self, inputs: tuple[int, ...], axes: Axes) -> int:
        self._steps.append(_Step(inputs, axes))
        self._axes.append(axes)
        return len(self._axes) - 1


@final
class LogLinearPosterior:
    """Log-linear models of tables, given noisy marginals.

    The shares of a table are the softmax of a sum of effects, one for each subset of its axes. The softmax is over the
    values of a variable given its parents, or over all combinations of values. The coordinates of an effect are
    `Normal(0, scale**2)` with a scale for each group. A measured marginal is
    `Normal(N * marginal, variance + N * marginal)`. The second variance is that of the sample of N records.
    :meth:`reweighted` fixes it, and it is left out before.

    One vector has all coordinates of all tables. The functions that are minimised take coordinates divided by their
    scales.

    Parameters
    ----------
    marginals : Marginals
        The marginals of the measurements, in their order.
    measurements : sequence of Measurement
    n_records : float

    References
    ----------
    MacKay (1992), Bayesian interpolation, Neural Computation 4, 415-447, for the number of well-determined parameters.
    """

    def __init__(self, marginals: Marginals, measurements: Sequence[Measurement], n_records: float) -> None:
        self._marginals, self._measurements, self._n_records = marginals, list(measurements), n_records
        self._families = marginals.families
        self.effects = [Effects(family.shape) for family in self._families]
        # The axes of a softmax, for each table.
        self._axes = [
            tuple(range(-1 if marginals.given_parents else -len(family.shape), 0)) for family in self._families
        ]
        self._ends = np.cumsum([effects.groups.size for effects in self.effects])[:-1]
        self._weights = [np.full(measurement.noisy.shape, 1 / measurement.variance) for measurement in measurements]

    def coordinates(self, tables: Mapping[str, Array]) -> Array:
        """The coordinates of tables of positive shares, by name."""
        families = zip(self.effects, self._families, strict=True)
        return _joined([effects.coordinates(np.log(tables[family.name])) for effects, family in families])

    def tables(self, coordinates: Array) -> dict[str, Array]:
        """The shares with these coordinates, by name of the family. Further axes may precede those of the tables."""
        return dict(zip((family.name for family in self._families), self._shares(coordinates), strict=True))

    def reweighted(self, coordinates: Array) -> None:
        """Fix the variance of the sample at the marginals with these coordinates."""
        expected = self._marginals.values(self._marginals.run(self._shares(coordinates)))
        self._weights = [
            1 / (measurement.variance + self._n_records * marginal)
            for measurement, marginal in zip(self._measurements, expected, strict=True)
        ]

    def objective(self, x: Array, scales: Array) -> tuple[float, Array]:
        """Negative log-posterior up to a constant, and its gradient.

        Parameters
        ----------
        x : array, shape (cells of all tables,)
        scales : array
            The scale of each coordinate.
        """
        p = self._shares(scales * x)
        results = self._marginals.run(p)
        residuals = self._residuals(results)
        value = sum(0.5 * float(np.sum(w * r**2)) for w, r in zip(self._weights, residuals, strict=True))
        slopes = self._marginals.slopes(results, self._weighted(residuals))
        return value + 0.5 * float(x @ x), x + scales * self._through_softmax(p, slopes)

    def curvature(self, x: Array, scales: Array, gauss_newton: bool = False) -> Callable[[Array], Array]:
        """The product of the second derivatives of the objective with a vector, or with each row of a matrix.

        Parameters
        ----------
        x, scales
            As in :meth:`objective`.
        gauss_newton : bool, default False
            Leave out the part that depends on the residuals. The rest is positive definite.
        """
        p = self._shares(scales * x)
        results = self._marginals.run(p)
        slopes = self._marginals.slopes(results, self._weighted(self._residuals(results)))

        def product(v: Array) -> Array:
            directions = self._centred(p, self._logits(scales * v))
            all_changes = self._marginals.changes(results, directions)
            of_marginals = self._weighted([self._n_records * change for change in self._marginals.values(all_changes)])
            if gauss_newton:
                return np.asarray(v + scales * self._through_softmax(p, self._marginals.slopes(results, of_marginals)))
            back = self._marginals.slope_changes(results, all_changes, slopes, of_marginals)
            # The derivative of the softmax changes, too.
            of_logits = [
                dq * (slope - np.sum(q * slope, axes, keepdims=True)) - q * np.sum(dq * slope, axes, keepdims=True)
                for q, dq, slope, axes in zip(p, directions, slopes, self._axes, strict=False)
            ]
            return np.asarray(v + scales * self._through_softmax(p, back) + scales * self._transposed(of_logits))

        return product

    def mode(self, start: Array, scales: Sequence[Array], close: float) -> Array:
        """The coordinates at the mode, given the scale of each group of each table.

        The search ends when the norm of the gradient, in coordinates divided by their scales, is at most `close`.
        """
        of_each = self._of_each(scales)
        return of_each * minimised(
            lambda x: self.objective(x, of_each),
            lambda x, positive: self.curvature(x, of_each, positive),
            _divided(start, of_each),
            close,
        )

    def spread(self, mode: Array, scales: Sequence[Array], rng: np.random.Generator, draws: int) -> Array:
        """Draws from the normal distribution around the mode with the Gauss-Newton curvature, along the first axis.

        They come in antithetic pairs.
        """
        of_each = self._of_each(scales)
        x, half = _divided(mode, of_each), draws // 2
        p = self._shares(of_each * x)
        noise = [rng.standard_normal((half, *w.shape)) / np.sqrt(w) for w in self._weights]
        slopes = self._marginals.slopes(self._marginals.run(p), self._weighted(noise))
        pulled = of_each * self._through_softmax(p, slopes) + rng.standard_normal((half, x.size))
        off = solve(self.curvature(x, of_each, gauss_newton=True), pulled)
        return np.asarray(of_each * (x + np.concatenate([off, -off])))

    def known(self, mode: Array, scales: Sequence[Array]) -> list[Array]:
        """Number of well-determined coordinates of each group, for each table: the trace of `I - 1/H`, by groups.

        H is the Gauss-Newton curvature at the mode.
        """
        of_each = self._of_each(scales)
        curved = self.curvature(_divided(mode, of_each), of_each, gauss_newton=True)
        variances = self.sums(inverse_diagonal(curved, mode.size))
        sizes = self.sums(np.ones(mode.size))
        return [np.clip(size - variance, 0.0, size) for size, variance in zip(sizes, variances, strict=True)]

    def sums(self, values: Array) -> list[Array]:
        """The sum over the coordinates of each group, for each table."""
        return [effects.sums(table) for effects, table in zip(self.effects, self._tables(values), strict=True)]

    def log_evidence(self, mode: Array, scales: Sequence[Array]) -> float:
        """The Laplace approximation of the marginal likelihood, as a logarithm, up to a constant of the weights."""
        of_each = self._of_each(scales)
        x = _divided(mode, of_each)
        curved = self.curvature(x, of_each, gauss_newton=True)
        return -self.objective(x, of_each)[0] - log_determinant(curved, x.size) / 2

    def _of_each(self, scales: Sequence[Array]) -> Array:
        tables = [
            scales_of_family[effects.groups] for scales_of_family, effects in zip(scales, self.effects, strict=True)
        ]
        for table, axes in zip(tables, self._axes, strict=True):
            # A constant along the values of a softmax does not change its shares.
            table.reshape(-1, math.prod(table.shape[axes[0] :]))[:, 0] = 0.0
        return _joined(tables)

    def _tables(self, x: Array) -> list[Array]:
        parts = np.split(x, self._ends, axis=-1)
        return [part.reshape(*x.shape[:-1], *family.shape) for part, family in zip(parts, self._families, strict=True)]

    def _logits(self, coordinates: Array) -> list[Array]:
        return [effects.logits(table) for effects, table in zip(self.effects, self._tables(coordinates), strict=True)]

    def _shares(self, coordinates: Array) -> list[Array]:
        shares = []
        for logits, axes in zip(self._logits(coordinates), self._axes, strict=True):
            p = np.exp(logits - logits.max(axes, keepdims=True))
            shares.append(p / p.sum(axes, keepdims=True))
        return shares

    def _centred(self, p: Sequence[Array], values: Sequence[Array]) -> list[Array]:
        """The derivative of a softmax, which is symmetric: forwards for logits, and backwards for slopes."""
        families = zip(p, values, self._axes, strict=False)
        return [q * (value - np.sum(q * value, axes, keepdims=True)) for q, value, axes in families]

    def _residuals(self, results: Sequence[Array]) -> list[Array]:
        marginals = self._marginals.values(results)
        return [
            self._n_records * marginal - measurement.noisy
            for marginal, measurement in zip(marginals, self._measurements, strict=True)
        ]

    def _weighted(self, residuals: Sequence[Array]) -> list[Array]:
        return [self._n_records * w * r for w, r in zip(self._weights, residuals, strict=True)]

    def _through_softmax(self, p: Sequence[Array], slopes: Sequence[Array]) -> Array:
        """The slope in each coordinate, from the slope in each cell of the tables, which come first."""
        return self._transposed(self._centred(p, slopes))

    def _transposed(self, of_logits: Sequence[Array]) -> Array:
        families = zip(self.effects, of_logits, strict=True)
        before = of_logits[0].ndim - len(self._families[0].shape)
        return _joined([effects.transposed(slope) for effects, slope in families], before)


def _joined(tables: Sequence[Array], before: int = 0) -> Array:
    """All tables side by side as a vector, for each index of the axes before those of the tables."""
    return np.concatenate([table.reshape(*table.shape[:before], -1) for table in tables], axis=-1)


def _divided(coordinates: Array, scales: Array) -> Array:
    return np.divide(coordinates, scales, out=np.zeros(scales.shape), where=scales > 0)


@cache
def _spelled(axes: Axes, *factors: Axes) -> str:
    """The subscripts of `numpy.einsum` for a product of tables, summed over all axes but `axes`."""
    letters: dict[str, str] = {}
    for axis in chain(*factors):
        letters.setdefault(axis, ascii_letters[len(letters)])
    inputs = ",".join("..." + "".join(letters[axis] for axis in input_axes) for input_axes in factors)
    return f"{inputs}->...{''.join(letters[axis] for axis in axes)}"
