"""A joint fit of all tables of a network, so that they agree with every noisy marginal of the records.

Variable elimination computes marginals of a network from its tables, as products of two tables and sums.
"""

import math
from collections.abc import Mapping, Sequence
from graphlib import TopologicalSorter
from typing import ClassVar, final, override

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.log_linear import Axes, LogLinearPosterior, Marginals
from pymc_dirdp.inference.measurements import Family, Measurement, number_of_records
from pymc_dirdp.inference.table_fit import CLOSE, ROUGH, draws_of, fitted, noise_dominates, proper_rows
from pymc_dirdp.progress import QUIET, Bar

MAX_CELLS = 10**7
"""Maximum number of cells of an intermediate table of the elimination."""


class EliminationError(ArgumentError):
    """The marginals of a network cannot be computed, because an intermediate table would be too large."""


@final
class NetworkMarginals(Marginals):
    """A reusable plan that computes marginals of a network from its tables, as products of two tables and sums.

    Parameters
    ----------
    families : sequence of Family
        The families of a network: one for each variable, including parents.
    axes_of_marginals : sequence of tuple of str
        The variables of each marginal.

    Raises
    ------
    EliminationError
        If an intermediate table would have more than 10**7 cells.

    Notes
    -----
    A marginal that is not part of an earlier table is computed from the tables of its variables and of their ancestors.
    All other variables are summed out one by one, in the order of the number of cells of the product of their factors.

    Examples
    --------
    >>> families = [Family("p_a", ("a",), (2,)), Family("p_b", ("a", "b"), (2, 2))]
    >>> tables = [np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.3, 0.7]])]
    >>> marginals = NetworkMarginals(families, [("b",)])
    >>> marginals.values(marginals.run(tables))
    [array([0.6, 0.4])]
    """

    given_parents: ClassVar[bool] = True

    def __init__(self, families: Sequence[Family], axes_of_marginals: Sequence[Axes]) -> None:
        self._number = {family.variable: i for i, family in enumerate(families)}
        super().__init__(families, axes_of_marginals)

    @override
    def _eliminated(self, axes: Axes) -> int:
        # The marginal of a whole family is the marginal of its parents times its table.
        for family in self.families:
            if family.parents and set(family.axes) == set(axes):
                return self._step((self._marginal(family.parents), self._number[family.variable]), axes)
        factors = self._factors(set(axes))
        others = {axis for number in factors for axis in self._axes[number]} - set(axes)
        while others:
            variable = min(sorted(others), key=lambda name: self._cells(self._with(name, factors)))
            others.remove(variable)
            selection = self._with(variable, factors)
            factors = [number for number in factors if number not in selection]
            factors.append(self._multiply(selection, without=variable))
        return self._multiply(factors, axes=axes)

    def _factors(self, variables: set[str]) -> list[int]:
        """The tables of these variables and of all their ancestors."""
        ancestors: set[str] = set()
        queue = set(variables)
        while queue:
            variable = queue.pop()
            ancestors.add(variable)
            queue |= set(self.families[self._number[variable]].parents) - ancestors
        return sorted(self._number[variable] for variable in ancestors)

    def _with(self, variable: str, factors: Sequence[int]) -> list[int]:
        return [number for number in factors if variable in self._axes[number]]

    def _cells(self, factors: Sequence[int]) -> int:
        return math.prod(self._shape(tuple({axis for number in factors for axis in self._axes[number]})))

    def _multiply(self, factors: Sequence[int], *, axes: Axes | None = None, without: str | None = None) -> int:
        """The product of factors. The last step sums out the variable `without`, or has the order of `axes`."""
        # Small factors first.
        queue = sorted(factors, key=lambda number: (self._cells([number]), number))
        product = queue.pop(0)
        while queue:
            factor = queue.pop(0)
            union = tuple(dict.fromkeys((*self._axes[product], *self._axes[factor])))
            is_last = not queue
            output_axes = tuple(axis for axis in union if not (is_last and axis == without))
            product = self._step((product, factor), axes if is_last and axes is not None else output_axes)
        if axes is not None and self._axes[product] != axes:
            product = self._step((product,), axes)
        if without in self._axes[product]:
            product = self._step((product,), tuple(axis for axis in self._axes[product] if axis != without))
        return product

    @override
    def _step(self, inputs: tuple[int, ...], axes: Axes) -> int:
        # A sum is no larger than its input.
        if len(inputs) > 1 and self._cells(inputs) > MAX_CELLS:
            raise EliminationError(
                f"The marginal of {', '.join(map(repr, axes))} needs a product of {self._cells(inputs)} cells, and the "
                f"limit is {MAX_CELLS}. Pass consistency='tables', which needs no marginals of the whole network, or "
                "use a structure with fewer parents."
            )
        return super()._step(inputs, axes)


def fit_jointly(
    families: Sequence[Family], measurements: Sequence[Measurement], n_records: float | None, bar: Bar = QUIET
) -> dict[str, Array]:
    """The shares of each variable given its parents, fitted jointly so that they agree with every noisy marginal.

    The fit starts from :func:`pymc_dirdp.inference.table_fit.fit_tables`, and compares each measurement with the
    marginal of the whole network. So measurements of the children of a variable are informative about the variable.
    Effects have the scales of `fit_tables`, and if noise dominates, the same mean replaces the mode.

    Parameters
    ----------
    families : sequence of Family
        The families of a network: one for each variable, including parents.
    measurements, n_records, bar
        As for `fit_tables`. The bar has two more steps than for `fit_tables`.

    Raises
    ------
    EliminationError
        If the marginals of the network need a table of more than 10**7 cells.

    Examples
    --------
    >>> families = [Family("p_sex", ("sex",), (2,)), Family("p_left", ("sex", "left"), (2, 2))]
    >>> noisy = Measurement(("sex", "left"), np.array([[400.0, 41.0], [359.0, 30.0]]), variance=9.0)
    >>> fit_jointly(families, [noisy], n_records=830)["p_sex"].round(2)
    array([0.53, 0.47])
    """
    n = number_of_records(measurements) if n_records is None else float(n_records)
    ordered = [family.sorted for family in families]
    marginals = NetworkMarginals(ordered, [measurement.axes for measurement in measurements])
    posterior = LogLinearPosterior(marginals, measurements, n)
    start, scales_of = fitted(ordered, measurements, n, bar)
    mode = posterior.coordinates(start)
    scales = [scales_of[family.name] for family in families]
    for close in (ROUGH, CLOSE):
        # The sampling variance at the current tables.
        posterior.reweighted(mode)
        mode = posterior.mode(mode, scales, close)
        bar.advance()
    if noise_dominates(measurements, n):
        draws = posterior.spread(mode, scales, np.random.default_rng(1), draws_of(mode.size))
        tables = {name: shares.mean(axis=0) for name, shares in posterior.tables(draws).items()}
    else:
        tables = posterior.tables(mode)
    return {family.name: family.as_given(proper_rows(tables[family.name])) for family in families}


def shares_given_parents(
    families: Sequence[Family], shares: Mapping[str, Array], other_families: Sequence[Family]
) -> dict[str, Array]:
    """The shares of each variable given other parents than in its table, computed from marginals of a network.

    Parameters
    ----------
    families : sequence of Family
        The families of the network.
    shares : mapping of str to array
        The shares of each family, by its name and in its shape.
    other_families : sequence of Family
        Variables of the network with other parents.

    Examples
    --------
    >>> families = [Family("p_a", ("a",), (2,)), Family("p_b", ("a", "b"), (2, 2))]
    >>> shares = {"p_a": np.array([0.5, 0.5]), "p_b": np.array([[0.9, 0.1], [0.3, 0.7]])}
    >>> shares_given_parents(families, shares, [Family("p_b", ("b",), (2,))])["p_b"]
    array([0.6, 0.4])
    """
    marginals = NetworkMarginals(families, [family.axes for family in other_families])
    values = marginals.values(marginals.run([shares[family.name] for family in families]))
    return {family.name: proper_rows(table) for family, table in zip(other_families, values, strict=True)}


def with_co_parents(
    families: Sequence[Family], measurements: Sequence[Measurement], n_records: float, *, max_cells: int = 10_000
) -> list[Family]:
    """Families of the same variables, in which parents of one variable may also depend on each other.

    A network assumes that unconnected parents of one variable are independent given their own parents. Records may
    contradict this, and a marginal that includes both shows it. So from the last variable to the first, for any two of
    its parents that were measured together, the earlier parent becomes a parent of the later one. The network can then
    represent the measurement, and the shares of a variable given its original parents are a marginal. Pairs are not
    connected if the noise of their counts has a standard deviation above the average count, which hides the dependence.

    Parameters
    ----------
    families : sequence of Family
        The families of a network: one for each variable, including parents.
    measurements : sequence of Measurement
    n_records : float
    max_cells : int
        The maximum number of cells of a family with new parents, which a fit takes about a second for.

    Returns
    -------
    families : list of Family
        In the same order. The original parents of a family come first.

    References
    ----------
    Lauritzen and Spiegelhalter (1988), Local computations with probabilities on graphical structures, Journal of the
    Royal Statistical Society B 50, 157-224, for edges between parents.

    Examples
    --------
    >>> families = [Family("p_a", ("a",), (2,)), Family("p_b", ("b",), (2,)), Family("p_c", ("a", "b", "c"), (2, 2, 2))]
    >>> measured = [Measurement(("a", "b", "c"), np.ones((2, 2, 2)), 1.0)]
    >>> [family.axes for family in with_co_parents(families, measured, n_records=8)]
    [('a',), ('a', 'b'), ('a', 'b', 'c')]
    """
    sizes = {axis: size for family in families for axis, size in zip(family.axes, family.shape, strict=True)}
    parents = {family.variable: list(family.parents) for family in families}
    order = list(TopologicalSorter({name: sorted(parents[name]) for name in sorted(parents)}).static_order())
    for variable in reversed(order):
        ordered = sorted(parents[variable], key=order.index)
        for place, later in enumerate(ordered):
            for earlier in ordered[:place]:
                cells = math.prod(sizes[axis] for axis in (earlier, later, *parents[later]))
                if earlier in parents[later] or cells > max_cells or 1 in (sizes[earlier], sizes[later]):
                    continue
                pairs = [m.onto((earlier, later)) for m in measurements if {earlier, later} <= set(m.axes)]
                average = n_records / (sizes[earlier] * sizes[later])
                if any(pair is not None and pair.variance <= average**2 for pair in pairs):
                    parents[later].append(earlier)
    all_axes = {family.name: (*parents[family.variable], family.variable) for family in families}
    return [Family(name, axes, tuple(sizes[axis] for axis in axes)) for name, axes in all_axes.items()]
