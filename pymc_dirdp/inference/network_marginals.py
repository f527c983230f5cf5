"""Exact marginals of a Bayesian network by variable elimination, with their derivatives."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_letters
from typing import final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.measurements import Family

__all__ = ["MOST_CELLS", "EliminationError", "NetworkMarginals"]

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

    def __init__(self, families: Sequence[Family], wanted: Sequence[Axes]) -> None:
        self._sizes = {axis: size for family in families for axis, size in zip(family.axes, family.shape, strict=True)}
        self._families = {family.variable: family for family in families}
        self._number = {family.variable: i for i, family in enumerate(families)}
        self._axes: list[Axes] = [family.axes for family in families]
        self._steps: list[_Step] = []
        # Tables of probabilities of some variables together, by their number.
        self._joint: dict[int, frozenset[str]] = {
            self._number[family.variable]: frozenset(family.axes) for family in families if not family.parents
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
        """The part of one input in the slope of what a step makes."""
        own = self._axes[step.inputs[i]]
        if len(step.inputs) == 2:
            other = step.inputs[1 - i]
            return self._product(own, (slope, step.axes), (others[other], self._axes[other]))
        # Every cell that was added up has the slope of the sum.
        rest = tuple(axis for axis in own if axis in step.axes)
        turned = self._product(rest, (slope, step.axes))
        before = turned.ndim - len(rest)
        places = tuple(before + place for place, axis in enumerate(own) if axis not in step.axes)
        return np.broadcast_to(np.expand_dims(turned, places), (*turned.shape[:before], *self._shape(own)))

    def _product(self, axes: Axes, *factors: tuple[Array, Axes]) -> Array:
        letters: dict[str, str] = {}
        for _, own in factors:
            for axis in own:
                letters.setdefault(axis, ascii_letters[len(letters)])
        given = ",".join("..." + "".join(letters[axis] for axis in own) for _, own in factors)
        summed: Array = np.einsum(f"{given}->...{''.join(letters[axis] for axis in axes)}", *(f for f, _ in factors))
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
        if self._cells(inputs) > MOST_CELLS:
            raise EliminationError(
                f"The marginal of {', '.join(map(repr, axes))} needs a product of {self._cells(inputs)} cells, and at "
                f"most {MOST_CELLS} are computed. Take consistency='tables', which needs no marginals of the whole "
                "network, or a structure with fewer parents."
            )
        self._steps.append(_Step(inputs, axes))
        self._axes.append(axes)
        return len(self._axes) - 1
