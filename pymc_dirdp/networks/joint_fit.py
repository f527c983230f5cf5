"""All tables of a network fitted together, so that they agree with every noisy marginal of the records.

Marginals of a network follow from its tables by variable elimination: a plan of products of two tables and of sums.
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
"""A table that elimination needs on the way holds no more cells than that."""


class EliminationError(ArgumentError):
    """The marginals of a network cannot be computed, because a table on the way would be too large."""


@final
class NetworkMarginals(Marginals):
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
    together have the fewest cells.

    Examples
    --------
    >>> families = [Family("p_a", ("a",), (2,)), Family("p_b", ("a", "b"), (2, 2))]
    >>> tables = [np.array([0.5, 0.5]), np.array([[0.9, 0.1], [0.3, 0.7]])]
    >>> marginals = NetworkMarginals(families, [("b",)])
    >>> marginals.values(marginals.run(tables))
    [array([0.6, 0.4])]
    """

    given_parents: ClassVar[bool] = True

    def __init__(self, families: Sequence[Family], wanted: Sequence[Axes]) -> None:
        self._number = {family.variable: i for i, family in enumerate(families)}
        super().__init__(families, wanted)

    @override
    def _eliminated(self, axes: Axes) -> int:
        # A family that is wanted whole is its parents' marginal times its own table.
        for family in self.families:
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
            waiting |= set(self.families[self._number[variable]].parents) - found
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

    @override
    def _step(self, inputs: tuple[int, ...], axes: Axes) -> int:
        # A sum needs no more room than the table that there is already.
        if len(inputs) > 1 and self._cells(inputs) > MAX_CELLS:
            raise EliminationError(
                f"The marginal of {', '.join(map(repr, axes))} needs a product of {self._cells(inputs)} cells, and at "
                f"most {MAX_CELLS} are computed. Take consistency='tables', which needs no marginals of the whole "
                "network, or a structure with fewer parents."
            )
        return super()._step(inputs, axes)


def fit_jointly(
    families: Sequence[Family], measurements: Sequence[Measurement], n_records: float | None, bar: Bar = QUIET
) -> dict[str, Array]:
    """The shares of each variable given its parents, fitted together so that they agree with every noisy marginal.

    As :func:`pymc_dirdp.inference.table_fit.fit_tables`, from whose tables it starts, but each measurement
    is compared with the marginal of the whole network. So what is measured of a variable's children says something of
    the variable. Effects have the scales that `fit_tables` finds for them, and the same mean takes the place of the
    mode where noise hides most.

    Parameters
    ----------
    families : sequence of Family
        Of a network: each variable has one family, and parents have theirs.
    measurements, n_records, bar
        As for `fit_tables`. The bar counts two steps more than for `fit_tables`.

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
    marginals = NetworkMarginals(ordered, [one.axes for one in measurements])
    posterior = LogLinearPosterior(marginals, measurements, n)
    start, found = fitted(ordered, measurements, n, bar)
    mode = posterior.coordinates(start)
    scales = [found[family.name] for family in families]
    for close in (ROUGH, CLOSE):
        # The variance of the sample is that of the tables so far.
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
    families: Sequence[Family], shares: Mapping[str, Array], wanted: Sequence[Family]
) -> dict[str, Array]:
    """The shares of each variable given other parents than those of its own table, as marginals of a network.

    Parameters
    ----------
    families : sequence of Family
        Of the network.
    shares : mapping of str to array
        By name of the family, in its shape.
    wanted : sequence of Family
        Of variables of the network.

    Examples
    --------
    >>> families = [Family("p_a", ("a",), (2,)), Family("p_b", ("a", "b"), (2, 2))]
    >>> shares = {"p_a": np.array([0.5, 0.5]), "p_b": np.array([[0.9, 0.1], [0.3, 0.7]])}
    >>> shares_given_parents(families, shares, [Family("p_b", ("b",), (2,))])["p_b"]
    array([0.6, 0.4])
    """
    marginals = NetworkMarginals(families, [family.axes for family in wanted])
    values = marginals.values(marginals.run([shares[family.name] for family in families]))
    return {family.name: proper_rows(table) for family, table in zip(wanted, values, strict=True)}


def with_co_parents(
    families: Sequence[Family], measurements: Sequence[Measurement], n_records: float, *, most_cells: int = 10_000
) -> list[Family]:
    """Families of the same variables, in which parents of one variable may depend on each other, too.

    In a network, parents of one variable that no arc joins are independent given their own parents. The records'
    parents are not, and a marginal that holds both says so. So from the last variable to the first, of any two of its
    parents that were measured together the later one is given the earlier as a parent. The network then holds what was
    measured, and what it says of a variable given its own parents follows as a marginal. Where the noise of a count of
    both has a standard deviation above the average count, it hides how they depend on each other, and they stay as they
    are.

    Parameters
    ----------
    families : sequence of Family
        Of a network: each variable has one family, and parents have theirs.
    measurements : sequence of Measurement
    n_records : float
    most_cells : int
        No family is given more cells: the fit takes a second for so many.

    Returns
    -------
    families : list of Family
        In the same order. A family has its own parents first.

    References
    ----------
    Lauritzen and Spiegelhalter (1988), Local computations with probabilities on graphical structures, Journal of the
    Royal Statistical Society B 50, 157-224, who join parents in this way.

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
        together = sorted(parents[variable], key=order.index)
        for place, later in enumerate(together):
            for earlier in together[:place]:
                cells = math.prod(sizes[axis] for axis in (earlier, later, *parents[later]))
                if earlier in parents[later] or cells > most_cells or 1 in (sizes[earlier], sizes[later]):
                    continue
                noise = [one.onto((earlier, later)) for one in measurements if {earlier, later} <= set(one.axes)]
                average = n_records / (sizes[earlier] * sizes[later])
                if any(one is not None and one.variance <= average**2 for one in noise):
                    parents[later].append(earlier)
    every = {family.name: (*parents[family.variable], family.variable) for family in families}
    return [Family(name, axes, tuple(sizes[axis] for axis in axes)) for name, axes in every.items()]
