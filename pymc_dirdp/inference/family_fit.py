"""Tables of a network from noisy marginals, one by one: log-linear, with shrinkage that the marginals decide."""

import math
from collections.abc import Sequence
from typing import final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.inference.family_posterior import FamilyPosterior
from pymc_dirdp.inference.margins import Family, Measurement, number_of_records
from pymc_dirdp.inference.shrinkage import Shrinkage
from pymc_dirdp.progress import QUIET, Bar

__all__ = ["MOST_ROUNDS", "SEED", "draws_of", "fit_tables", "fitted", "noise_hides", "rows"]

MOST_ROUNDS = 20
"""The scales are learned in so many rounds at most. They settle before; later changes would not change the tables."""

SEED = 1
"""It makes the draws around the mode the same each time."""

# Shares are averaged over so many draws, or fewer that hold so many numbers together.
_DRAWS, _LEAST_DRAWS, _MOST_NUMBERS = 2048, 64, 4 * 10**6
# Noise of one cell hides most if it is more than one record in so many.
_HIDES = 5.0
# Lengths of the gradient at which a mode counts as found: while the scales change, and at the end.
_ROUGH, _CLOSE = 0.1, 1e-3
# No share is smaller: what is 0 cannot be told from a mistake.
_LEAST = 1e-200


def fit_tables(
    families: Sequence[Family], measurements: Sequence[Measurement], n_records: float | None, bar: Bar = QUIET
) -> dict[str, Array]:
    """The shares of each variable given its parents, fitted to noisy marginals of the records.

    Each family has a log-linear model of its own, of all its variables together, and is fitted to the marginals of its
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
    The estimate is the mode of the posterior given the scales. Where the noise of a cell is more than a fifth of all
    records, it is the mean of the shares over the normal distribution around the mode: there the mode of the logits is
    far too sure. The scales are those at which the Laplace approximation of the marginal likelihood, times a prior that
    counts for ten coordinates, is stationary (MacKay's fixed point).

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
    tables, scales = _fitted([family.sorted for family in families], measurements, n, bar)
    rng = np.random.default_rng(SEED) if noise_hides(measurements, n) else None
    found = {
        name: table.conditional() if rng is None else table.mean(scales[name], rng) for name, table in tables.items()
    }
    return {family.name: family.as_given(found[family.name]) for family in families}


def draws_of(cells: int) -> int:
    """How many draws around the mode shares are averaged over, in tables of so many cells.

    Examples
    --------
    >>> draws_of(100), draws_of(10**6)
    (2048, 64)
    """
    return 2 * (min(_DRAWS, max(_LEAST_DRAWS, _MOST_NUMBERS // cells)) // 2)


def noise_hides(measurements: Sequence[Measurement], n_records: float) -> bool:
    """Whether the noise of a cell is typically more than a fifth of all records.

    Examples
    --------
    >>> noise_hides([Measurement(("sex",), np.array([40.0, 61.0]), 2.0)], 101)
    False
    """
    return n_records < _HIDES * math.sqrt(np.median([one.variance for one in measurements]))


def fitted(
    families: Sequence[Family], measurements: Sequence[Measurement], n_records: float, bar: Bar
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The shares at the modes for families whose parents are sorted, and the scales of the effects by groups.

    Examples
    --------
    >>> noisy = Measurement(("sex",), np.array([40.0, 61.0]), 2.0)
    >>> shares, scales = fitted([Family("p_sex", ("sex",), (2,))], [noisy], 101, QUIET)
    >>> scales["p_sex"].shape
    (2,)
    """
    tables, scales = _fitted(families, measurements, n_records, bar)
    return {name: table.conditional() for name, table in tables.items()}, scales


def _fitted(
    families: Sequence[Family], measurements: Sequence[Measurement], n_records: float, bar: Bar
) -> tuple[dict[str, "_Table"], dict[str, Array]]:
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
    return tables, shrinkage.scales


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
        """How many coordinates of each group the marginals tell."""
        return self.posterior.known(self._coordinates, scales)

    def conditional(self) -> Array:
        """The shares of the variable given its parents."""
        return rows(self.posterior.shares(self._coordinates))

    def mean(self, scales: Array, rng: np.random.Generator) -> Array:
        """The shares of the variable given its parents, from the mean of all shares over draws around the mode."""
        draws = self.posterior.spread(self._coordinates, scales, rng, draws_of(self._coordinates.size))
        return rows(sum((self.posterior.shares(each) for each in draws), np.zeros(self._coordinates.shape)))
