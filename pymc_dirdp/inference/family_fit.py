"""Tables of a network from noisy margins, one by one: log-linear, with shrinkage that the margins decide."""

from collections.abc import Sequence
from typing import final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.inference.family_posterior import FamilyPosterior
from pymc_dirdp.inference.margins import Family, Measurement, number_of_records
from pymc_dirdp.inference.shrinkage import Shrinkage
from pymc_dirdp.progress import QUIET, Bar

__all__ = ["MOST_ROUNDS", "fit_tables", "fitted", "rows"]

MOST_ROUNDS = 20
"""The scales are learned in so many rounds at most. They settle before; later changes would not change the tables."""

# Lengths of the gradient at which a mode counts as found: while the scales change, and at the end.
_ROUGH, _CLOSE = 0.1, 1e-3
# No share is smaller: what is 0 cannot be told from a mistake.
_LEAST = 1e-200


def fit_tables(
    families: Sequence[Family], measurements: Sequence[Measurement], n_records: float | None, bar: Bar = QUIET
) -> dict[str, Array]:
    """The shares of each variable given its parents, fitted to noisy margins of the records.

    Each family has a log-linear model of its own, of all its variables together, and is fitted to the margins of its
    variables that the measurements hold. All effects are in it. Those of one subset of the variables have one scale,
    which is learned from the measurements (empirical Bayes), and is itself shrunk to a scale that all subsets of that
    size, in all families, have in common. So an effect that the noise hides is left out, and one that it does not hide
    is not shrunk.

    Parameters
    ----------
    families : sequence of Family
    measurements : sequence of Measurement
        Of independent noise, all of the same records.
    n_records : float or None
        The number of records; None if the measurements are all that is known of it.
    bar : Bar, optional
        It counts a step for each family, in up to 20 rounds and a last one.

    Returns
    -------
    shares : dict of str to array
        By name of the family, in the family's shape; the last axis adds up to 1. They do not depend on the order of
        the parents, of the families or of the measurements, but for rounding.

    Notes
    -----
    The estimate is the mode of the posterior given the scales. The scales are those at which the Laplace approximation
    of the marginal likelihood, times a prior that counts for ten coordinates, is stationary (MacKay's fixed point).

    References
    ----------
    MacKay (1992), Bayesian interpolation, Neural Computation 4, 415-447. McKenna, Sheldon and Miklau (2019),
    Graphical-model based estimation and inference for differential privacy, for the fit without a prior.

    Examples
    --------
    >>> family = Family("p_left", ("sex", "left"), (2, 2))
    >>> noisy = Measurement(("sex", "left"), np.array([[400.0, 41.0], [359.0, 30.0]]), variance=9.0)
    >>> fit_tables([family], [noisy], n_records=830)["p_left"].round(2)
    array([[0.91, 0.09],
           [0.92, 0.08]])
    """
    n = number_of_records(measurements) if n_records is None else float(n_records)
    found, _ = fitted([family.sorted for family in families], measurements, n, bar)
    return {family.name: family.as_given(found[family.name]) for family in families}


def fitted(
    families: Sequence[Family], measurements: Sequence[Measurement], n_records: float, bar: Bar
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The shares of :func:`fit_tables` for families whose parents are sorted, and the scales of the effects by groups.

    Examples
    --------
    >>> noisy = Measurement(("sex",), np.array([40.0, 61.0]), 2.0)
    >>> shares, scales = fitted([Family("p_sex", ("sex",), (2,))], [noisy], 101, QUIET)
    >>> scales["p_sex"].shape
    (2,)
    """
    tables = {family.name: _Table(family, measurements, n_records) for family in families}
    shrinkage = Shrinkage({name: table.posterior.effects.orders for name, table in tables.items()})
    for _ in range(MOST_ROUNDS):
        for name, table in tables.items():
            table.fit(shrinkage.scales[name], _ROUGH)
            bar.advance()
        squares = {name: table.squares() for name, table in tables.items()}
        known = {name: table.known(shrinkage.scales[name]) for name, table in tables.items()}
        if shrinkage.update(squares, known):
            break
    for name, table in tables.items():
        table.fit(shrinkage.scales[name], _CLOSE)
        bar.advance()
    return {name: table.conditional() for name, table in tables.items()}, shrinkage.scales


def rows(table: Array) -> Array:
    """The table with rows that add up to 1, and without shares that underflow.

    Examples
    --------
    >>> rows(np.array([[0.2, 0.2], [0.5, 0.0]]))
    array([[5.e-001, 5.e-001],
           [1.e+000, 2.e-200]])
    """
    positive = np.maximum(table, _LEAST)
    return np.asarray(positive / positive.sum(axis=-1, keepdims=True))


@final
class _Table:
    """One family, and the coordinates of its table as far as they are found."""

    def __init__(self, family: Family, measurements: Sequence[Measurement], n_records: float) -> None:
        self.posterior = FamilyPosterior(family, measurements, n_records)
        self._coordinates = self.posterior.start()
        self.posterior.reweighted(self._coordinates)

    def fit(self, scales: Array, close: float) -> None:
        """Move to the mode given the scales of the groups, and take the variance of the sample from there."""
        self._coordinates = self.posterior.mode(self._coordinates, scales, close)
        self.posterior.reweighted(self._coordinates)

    def squares(self) -> Array:
        """The sum of the squared coordinates of each group."""
        return self.posterior.effects.sums(self._coordinates**2)

    def known(self, scales: Array) -> Array:
        """How many coordinates of each group the margins tell."""
        return self.posterior.known(self._coordinates, scales)

    def conditional(self) -> Array:
        """The shares of the variable given its parents."""
        return rows(self.posterior.shares(self._coordinates))
