"""Tables of shares given noisy marginals of the records: log-linear models of a network, or of one table by itself.

1. Tables are the softmax of sums of effects: over the values of a variable given its parents, or over all cells.
2. Marginals of a network follow from its tables by variable elimination: a plan of products of two tables and of sums.
3. A marginal is measured with the noise, and has the variance of the sample, fixed at the tables found before.
4. Derivatives go through the same steps, forwards and backwards, so second derivatives are products with vectors.
5. Newton's method finds the mode; the curvature there says how many effects are known, and how likely the model is.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from string import ascii_letters
from typing import final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.effects import Effects
from pymc_dirdp.inference.measurements import Family, Measurement
from pymc_dirdp.numerics.minima import inverse_diagonal, log_determinant, minimised, solved

MOST_CELLS = 10**7
"""A table that elimination needs on the way holds no more cells than that."""

Axes = tuple[str, ...]


class EliminationError(ArgumentError):
    """The marginals of a network cannot be computed, because a table on the way would be too large."""


@dataclass(frozen=True)
class _Step:
    """The product of some tables, by their numbers, summed over all axes but those of the outcome."""

    inputs: tuple[int, ...]
    axes: Axes


@final
class NetworkMarginals:
    """How marginals of a network follow from its tables, as products of two tables and sums, planned once.

    Parameters
    ----------
    families : sequence of Family
        Of a network: each variable has one family, and parents have theirs.
    wanted : sequence of tuple of str
        The variables of each marginal.
    whole : bool, default False
        Whether each table is that of all its variables together, instead of the last one given the others.

    Raises
    ------
    EliminationError
        If a table on the way would have more than 10**7 cells.

    Notes
    -----
    For each marginal that is part of no table made so far, the tables of its variables and of their ancestors are
    multiplied. The variables that are not wanted are summed out, one after the other; next comes the one whose factors
    together have the fewest cells. Derivatives go through the same steps: forwards for a change of the tables,
    backwards for the slope in each cell.

    Examples
    --------
    >>> families = [Family("p_a", ("a",), (2,)), Family("p_b", ("a", "b"), (2, 2))]
    >>> tables = [np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.3, 0.7]])]
    >>> marginals = NetworkMarginals(families, [("b",)])
    >>> marginals.values(marginals.run(tables))
    [array([0.6, 0.4])]
    """

    def __init__(self, families: Sequence[Family], wanted: Sequence[Axes], *, whole: bool = False) -> None:
        self._sizes = {axis: size for family in families for axis, size in zip(family.axes, family.shape, strict=True)}
        self._families = {family.variable: family for family in families}
        self._number = {family.variable: i for i, family in enumerate(families)}
        self._axes: list[Axes] = [family.axes for family in families]
        self._steps: list[_Step] = []
        # Tables of probabilities of some variables together, by their number.
        self._joint: dict[int, frozenset[str]] = {
            i: frozenset(family.axes) for i, family in enumerate(families) if whole or not family.parents
        }
        # The largest marginals come first, so that the others are sums of them.
        made: dict[Axes, int] = {}
        for axes in sorted({*wanted}, key=lambda axes: (-len(axes), axes)):
            made[axes] = self._marginal(axes)
        self._wanted = [made[axes] for axes in wanted]

    def run(self, tables: Sequence[Array]) -> list[Array]:
        """All tables that the steps make, after those that are given."""
        made = list(tables)
        for step in self._steps:
            made.append(self._product(step.axes, *((made[i], self._axes[i]) for i in step.inputs)))
        return made

    def values(self, made: Sequence[Array]) -> list[Array]:
        """The wanted marginals among the tables of :meth:`run` or :meth:`changes`."""
        return [made[i] for i in self._wanted]

    def changes(self, made: Sequence[Array], tables: Sequence[Array]) -> list[Array]:
        """The derivative of all tables of :meth:`run` along a change of the given ones.

        The changes may have further axes before those of the tables.
        """
        directions = list(tables)
        for step in self._steps:
            directions.append(self._changed(step, made, directions))
        return directions

    def slopes(self, made: Sequence[Array], of_wanted: Sequence[Array]) -> list[Array]:
        """The slope in each cell of each table of :meth:`run`, from the slopes in the cells of the wanted marginals."""
        slopes = self._seeded(of_wanted, len(made))
        for place, step in self._backwards():
            for i, input_ in enumerate(step.inputs):
                slopes[input_] = slopes[input_] + self._back(step, i, slopes[place], made)
        return slopes

    def slope_changes(
        self, made: Sequence[Array], directions: Sequence[Array], slopes: Sequence[Array], of_wanted: Sequence[Array]
    ) -> list[Array]:
        """The derivative of :meth:`slopes` along the change `directions`.

        It follows from that of the slopes in the wanted marginals.
        """
        changes = self._seeded(of_wanted, len(made))
        for place, step in self._backwards():
            for i, input_ in enumerate(step.inputs):
                changes[input_] = changes[input_] + self._back(step, i, changes[place], made)
                if len(step.inputs) == 2:
                    changes[input_] = changes[input_] + self._back(step, i, slopes[place], directions)
        return changes

    def _backwards(self) -> list[tuple[int, _Step]]:
        first = len(self._axes) - len(self._steps)
        return list(enumerate(self._steps, start=first))[::-1]

    def _seeded(self, of_wanted: Sequence[Array], tables: int) -> list[Array]:
        # There may be axes of several directions before those of the tables, also of tables that no marginal depends
        # on.
        wanted = zip(self._wanted, of_wanted, strict=True)
        several = {slope.shape[: slope.ndim - len(self._axes[i])] for i, slope in wanted}
        slopes = [np.zeros((*max(several, default=()), *self._shape(self._axes[i]))) for i in range(tables)]
        for i, slope in zip(self._wanted, of_wanted, strict=True):
            slopes[i] = slopes[i] + slope
        return slopes

    def _shape(self, axes: Axes) -> tuple[int, ...]:
        return tuple(self._sizes[axis] for axis in axes)

    def _changed(self, step: _Step, made: Sequence[Array], directions: Sequence[Array]) -> Array:
        given = [self._axes[i] for i in step.inputs]
        if len(given) == 1:
            return self._product(step.axes, (directions[step.inputs[0]], given[0]))
        a, b = step.inputs
        first = self._product(step.axes, (directions[a], given[0]), (made[b], given[1]))
        return first + self._product(step.axes, (made[a], given[0]), (directions[b], given[1]))

    def _back(self, step: _Step, i: int, slope: Array, others: Sequence[Array]) -> Array:
        """The part of one input in the slope of what a step makes; of length 1 along axes that do not matter."""
        own = self._axes[step.inputs[i]]
        if len(step.inputs) == 2:
            other = step.inputs[1 - i]
            return self._product(own, (slope, step.axes), (others[other], self._axes[other]))
        # Every cell that was added up has the slope of the sum.
        rest = tuple(axis for axis in own if axis in step.axes)
        turned = slope if rest == step.axes else self._product(rest, (slope, step.axes))
        places = tuple(place - len(own) for place, axis in enumerate(own) if axis not in step.axes)
        return np.expand_dims(turned, places)

    def _product(self, axes: Axes, *factors: tuple[Array, Axes]) -> Array:
        tables, own = zip(*factors, strict=True)
        summed: Array = np.einsum(_spelled(axes, *own), *tables)
        return summed

    # What follows makes the plan.

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
        # A family that is wanted whole is its parents' marginal times its own table.
        for family in self._families.values():
            if family.parents and set(family.axes) == set(axes):
                return self._step((self._marginal(family.parents), self._number[family.variable]), axes)
        factors = self._factors(set(axes))
        others = {axis for number in factors for axis in self._axes[number]} - set(axes)
        while others:
            variable = min(sorted(others), key=lambda name: self._cells(self._with(name, factors)))
            others.remove(variable)
            own = self._with(variable, factors)
            factors = [number for number in factors if number not in own]
            factors.append(self._multiplied(own, without=variable))
        return self._multiplied(factors, axes=axes)

    def _factors(self, variables: set[str]) -> list[int]:
        """The tables of some variables and of all their ancestors."""
        found: set[str] = set()
        waiting = set(variables)
        while waiting:
            variable = waiting.pop()
            found.add(variable)
            waiting |= set(self._families[variable].parents) - found
        return sorted(self._number[variable] for variable in found)

    def _with(self, variable: str, factors: Sequence[int]) -> list[int]:
        return [number for number in factors if variable in self._axes[number]]

    def _cells(self, factors: Sequence[int]) -> int:
        return math.prod(self._shape(tuple({axis for number in factors for axis in self._axes[number]})))

    def _multiplied(self, factors: Sequence[int], *, axes: Axes | None = None, without: str | None = None) -> int:
        """The product of factors, of which the last product sums a variable out or has the wanted order of axes."""
        # The smallest ones are multiplied first.
        left = sorted(factors, key=lambda number: (self._cells([number]), number))
        product = left.pop(0)
        while left:
            other = left.pop(0)
            together = tuple(dict.fromkeys((*self._axes[product], *self._axes[other])))
            last = not left
            rest = tuple(axis for axis in together if not (last and axis == without))
            product = self._step((product, other), axes if last and axes is not None else rest)
        if axes is not None and self._axes[product] != axes:
            product = self._step((product,), axes)
        if without in self._axes[product]:
            product = self._step((product,), tuple(axis for axis in self._axes[product] if axis != without))
        return product

    def _step(self, inputs: tuple[int, ...], axes: Axes) -> int:
        # A sum needs no more room than the table that there is already.
        if len(inputs) > 1 and self._cells(inputs) > MOST_CELLS:
            raise EliminationError(
                f"The marginal of {', '.join(map(repr, axes))} needs a product of {self._cells(inputs)} cells, and at "
                f"most {MOST_CELLS} are computed. Take consistency='tables', which needs no marginals of the whole "
                "network, or a structure with fewer parents."
            )
        self._steps.append(_Step(inputs, axes))
        self._axes.append(axes)
        return len(self._axes) - 1


@final
class LogLinearPosterior:
    """Log-linear models of tables, given noisy marginals.

    The shares of a table are the softmax of a sum of effects, one for each subset of its axes, whose coordinates are
    `Normal(0, scale**2)` with a scale for each group of effects: over the values of a variable given its parents, or
    over all combinations of values. A measured marginal is `Normal(N * marginal, variance + N * marginal)`, where the
    second variance, that of the sample of N records, is fixed at the tables given to :meth:`reweighted`, and left out
    before.

    All coordinates are in one vector here, divided by their scales.

    Parameters
    ----------
    families : sequence of Family
        Of a network: each variable has one family, and parents have theirs.
    measurements : sequence of Measurement
        Of variables of the network.
    n_records : float
    whole : bool, default False
        Whether each table is that of all its variables together, instead of the last one given the others.

    Raises
    ------
    EliminationError
        If a table on the way to the marginals would be too large.

    References
    ----------
    MacKay (1992), Bayesian interpolation, Neural Computation 4, 415-447, for the number of well-determined parameters.
    """

    def __init__(
        self,
        families: Sequence[Family],
        measurements: Sequence[Measurement],
        n_records: float,
        *,
        whole: bool = False,
    ) -> None:
        self._families = list(families)
        self._measurements = list(measurements)
        self._n_records, self._whole = n_records, whole
        self._marginals = NetworkMarginals(families, [one.axes for one in measurements], whole=whole)
        self.effects = [Effects(family.shape) for family in families]
        # The axes of a softmax, for each table.
        self._axes = [tuple(range(-len(family.shape) if whole else -1, 0)) for family in families]
        self._ends = np.cumsum([effects.groups.size for effects in self.effects])[:-1]
        self._weights = [np.full(one.noisy.shape, 1 / one.variance) for one in measurements]

    def coordinates(self, tables: Mapping[str, Array]) -> list[Array]:
        """The coordinates of tables of positive shares, by name."""
        return [
            effects.coordinates(np.log(tables[family.name]))
            for effects, family in zip(self.effects, self._families, strict=True)
        ]

    def tables(self, coordinates: Sequence[Array]) -> dict[str, Array]:
        """The shares with these coordinates, by name of the family. There may be axes before those of the tables."""
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
            directions = self._centred(p, self._logits(self._scaled(v, scales)))
            all_changes = self._marginals.changes(made, directions)
            of_wanted = self._weighted([self._n_records * one for one in self._marginals.values(all_changes)])
            if gauss_newton:
                back = self._marginals.slopes(made, of_wanted)[: len(p)]
                return np.asarray(v + self._through_softmax(p, back, scales))
            back = self._marginals.slope_changes(made, all_changes, slopes, of_wanted)[: len(p)]
            through = self._through_softmax(p, back, scales)
            # The softmax itself changes, too.
            of_logits = [
                dq * (slope - np.sum(q * slope, axes, keepdims=True)) - q * np.sum(dq * slope, axes, keepdims=True)
                for q, dq, slope, axes in zip(p, directions, slopes[: len(p)], self._axes, strict=True)
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
    ) -> list[Array]:
        """Draws from the normal distribution around the mode that has the Gauss-Newton curvature.

        For each table the coordinates of all draws, along the first axis. They come in pairs, as far above the mode as
        below it.
        """
        of_each = self._of_each(scales)
        x, half = _divided(mode, of_each), draws // 2
        p = self._shares(self._scaled(x, of_each))
        made = self._marginals.run(p)
        noise = [rng.standard_normal((half, *w.shape)) / np.sqrt(w) for w in self._weights]
        slopes = self._marginals.slopes(made, self._weighted(noise))[: len(p)]
        pulled = self._through_softmax(p, slopes, of_each) + rng.standard_normal((half, x.size))
        off = solved(self.curvature(x, of_each, gauss_newton=True), pulled)
        return self._scaled(x + np.concatenate([off, -off]), of_each)

    def known(self, mode: Sequence[Array], scales: Sequence[Array]) -> list[Array]:
        """How many coordinates of each group the marginals tell, for each table: the trace of `I - 1/H`, by groups.

        H is the Gauss-Newton curvature at the mode.
        """
        of_each = self._of_each(scales)
        x = _divided(mode, of_each)
        variances = self._tables(inverse_diagonal(self.curvature(x, of_each, gauss_newton=True), x.size))
        sizes = [effects.sums(np.ones(effects.shape)) for effects in self.effects]
        return [
            np.clip(size - effects.sums(own), 0.0, size)
            for size, effects, own in zip(sizes, self.effects, variances, strict=True)
        ]

    def log_evidence(self, mode: Sequence[Array], scales: Sequence[Array]) -> float:
        """The Laplace approximation of the marginal likelihood, as a logarithm, up to a constant of the weights."""
        of_each = self._of_each(scales)
        x = _divided(mode, of_each)
        curved = self.curvature(x, of_each, gauss_newton=True)
        return -self.objective(x, of_each)[0] - log_determinant(curved, x.size) / 2

    def _of_each(self, scales: Sequence[Array]) -> list[Array]:
        found = [own[effects.groups] for own, effects in zip(scales, self.effects, strict=True)]
        for table, axes in zip(found, self._axes, strict=True):
            # What is the same for all values of a softmax does not change its shares.
            table.reshape(-1, math.prod(table.shape[axes[0] :]))[:, 0] = 0.0
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
        for logits, axes in zip(self._logits(coordinates), self._axes, strict=True):
            p = np.exp(logits - logits.max(axes, keepdims=True))
            shares.append(p / p.sum(axes, keepdims=True))
        return shares

    def _centred(self, p: Sequence[Array], values: Sequence[Array]) -> list[Array]:
        """The derivative of a softmax, which is symmetric: forwards for logits, and backwards for slopes."""
        each = zip(p, values, self._axes, strict=True)
        return [q * (value - np.sum(q * value, axes, keepdims=True)) for q, value, axes in each]

    def _residuals(self, made: Sequence[Array]) -> list[Array]:
        marginals = self._marginals.values(made)
        return [
            self._n_records * marginal - one.noisy for marginal, one in zip(marginals, self._measurements, strict=True)
        ]

    def _weighted(self, residuals: Sequence[Array]) -> list[Array]:
        return [self._n_records * w * r for w, r in zip(self._weights, residuals, strict=True)]

    def _through_softmax(self, p: Sequence[Array], slopes: Sequence[Array], scales: Sequence[Array]) -> Array:
        return self._transposed(self._centred(p, slopes), scales)

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


def _divided(coordinates: Sequence[Array], scales: Sequence[Array]) -> Array:
    return np.concatenate(
        [
            np.divide(table, own, out=np.zeros(own.shape), where=own > 0).ravel()
            for table, own in zip(coordinates, scales, strict=True)
        ]
    )


@cache
def _spelled(axes: Axes, *factors: Axes) -> str:
    """A product of tables, summed over all axes but some, as NumPy spells it; there may be other axes before."""
    letters: dict[str, str] = {}
    for axis in chain(*factors):
        letters.setdefault(axis, ascii_letters[len(letters)])
    given = ",".join("..." + "".join(letters[axis] for axis in own) for own in factors)
    return f"{given}->...{''.join(letters[axis] for axis in axes)}"
