"""Conditional probability tables from noisy marginals: log-linear models with empirical Bayes shrinkage.

1. The table of each variable with its parents is fitted separately: the mode of its effects given their scales.
2. Scales are updated from the modes, and modes from the scales, until the scales converge.
3. A Bayes factor gives the probability that the variable depends on its parents at all. The scales of the effects of
   this dependence are multiplied by the square root of the probability.
4. If the noise dominates, shares are averaged over the normal approximation around the mode.

:mod:`pymc_dirdp.networks.joint_fit` starts from these fits to fit all tables of a network jointly.
"""

import math
from collections.abc import Sequence
from typing import final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.inference.effects import Shrinkage, probabilities_of
from pymc_dirdp.inference.log_linear import LogLinearPosterior, Marginals
from pymc_dirdp.inference.measurements import Family, Measurement, number_of_records
from pymc_dirdp.progress import QUIET, Bar

MAX_ROUNDS = 20
"""Maximum number of updates of the scales. They converge earlier; later updates would not change the tables."""

# Tolerances for the norm of the gradient at a mode: while the scales change, and at the end.
ROUGH, CLOSE = 0.1, 1e-3


def fit_tables(
    families: Sequence[Family], measurements: Sequence[Measurement], n_records: float | None, bar: Bar = QUIET
) -> dict[str, Array]:
    """The shares of each variable given its parents, fitted to noisy marginals of the records.

    Each family has a saturated log-linear model of all its variables, fitted to the measured marginals of these
    variables. The effects of one subset of the variables have one scale, estimated from the measurements (empirical
    Bayes) and shrunk to a common scale of all subsets of that size in all families. So an effect that is hidden by the
    noise is shrunk to 0, and a clear effect is hardly shrunk. All effects by which a variable depends on its parents
    are shrunk further if there is little evidence of a dependence, so that a classifier falls back on the frequencies
    of its classes.

    Parameters
    ----------
    families : sequence of Family
    measurements : sequence of Measurement
        Measurements of the same records with independent noise.
    n_records : float or None
        The number of records; None if it is private and estimated from the measurements.
    bar : Bar, optional
        Progress bar with a step for each family, in up to 20 rounds and a final one.

    Returns
    -------
    shares : dict of str to array
        Shares by name of the family, in the family's shape; the last axis adds up to 1. Up to rounding they do not
        depend on the order of the parents, the families or the measurements.

    Notes
    -----
    The estimate is the mode of the posterior given the scales. Where the noise of a cell is more than a fifth of all
    records, it is the mean of the shares over the normal distribution around the mode: there the mode of the logits is
    overconfident. The scales are those at which the Laplace approximation of the marginal likelihood, times a prior
    that counts for ten coordinates, is stationary (MacKay's fixed point). The probability that a variable depends on
    its parents is that of :func:`pymc_dirdp.inference.effects.probabilities_of`, from Laplace approximations of the
    marginal likelihood with these effects and without them. Multiplying their variance by it gives them the variance of
    the mixture of both.

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
    # A fixed seed makes the estimate reproducible.
    rng = np.random.default_rng(1) if noise_dominates(measurements, n) else None
    tables, _ = fitted([family.sorted for family in families], measurements, n, bar, rng)
    return {family.name: family.as_given(tables[family.name]) for family in families}


def noise_dominates(measurements: Sequence[Measurement], n_records: float) -> bool:
    """Whether the noise of a cell is typically more than a fifth of all records.

    Examples
    --------
    >>> noise_dominates([Measurement(("sex",), np.array([40.0, 61.0]), 2.0)], 101)
    False
    """
    return n_records < 5 * math.sqrt(np.median([measurement.variance for measurement in measurements]))


def fitted(
    families: Sequence[Family],
    measurements: Sequence[Measurement],
    n_records: float,
    bar: Bar,
    rng: np.random.Generator | None = None,
) -> tuple[dict[str, Array], dict[str, Array]]:
    """The shares for families with sorted parents, and the scales of the effects by groups.

    The shares are those at the modes, or their means over draws around the modes if a generator is passed.

    Examples
    --------
    >>> noisy = Measurement(("sex",), np.array([40.0, 61.0]), 2.0)
    >>> shares, scales = fitted([Family("p_sex", ("sex",), (2,))], [noisy], 101, QUIET)
    >>> scales["p_sex"].shape
    (2,)
    """
    tables = {family.name: _Table(family, measurements, n_records) for family in families}
    shrinkage = Shrinkage({name: table.effects.orders for name, table in tables.items()})
    for _ in range(MAX_ROUNDS):
        for name, table in tables.items():
            table.fit(shrinkage.scales[name], ROUGH)
            bar.advance()
        squares = {name: table.squares() for name, table in tables.items()}
        known = {name: table.known(shrinkage.scales[name]) for name, table in tables.items()}
        if shrinkage.update(squares, known):
            break
    scales = shrinkage.scales
    for name, table in tables.items():
        table.fit(scales[name], ROUGH)
    log_odds = {family.name: tables[family.name].log_odds(scales[family.name]) for family in families if family.parents}
    probabilities = dict(zip(log_odds, probabilities_of(list(log_odds.values())), strict=True))
    for name, probability in probabilities.items():
        depends = tables[name].effects.of_several
        scales[name] = scales[name] * np.where(depends, math.sqrt(probability), 1.0)
    for name, table in tables.items():
        table.fit(scales[name], CLOSE)
        bar.advance()
    shares = {
        name: table.conditional() if rng is None else table.mean(scales[name], rng) for name, table in tables.items()
    }
    return shares, scales


def draws_of(cells: int, most_numbers: int = 4 * 10**6) -> int:
    """The number of draws around the mode for a table with this number of cells: 64 to 1,024."""
    return 2 * (min(1024, max(64, most_numbers // cells)) // 2)


def proper_rows(table: Array) -> Array:
    """Normalise the rows of a table, without shares that underflow."""
    # A share of 0 would rule out an event that may be possible.
    positive = np.maximum(table, 1e-200)
    return np.asarray(positive / positive.sum(axis=-1, keepdims=True))


@final
class _Table:
    """The table of one family, and its current coordinates."""

    def __init__(self, family: Family, measurements: Sequence[Measurement], n_records: float) -> None:
        marginals = [
            marginal
            for marginal in (measurement.onto(family.axes) for measurement in measurements)
            if marginal is not None
        ]
        self._posterior = LogLinearPosterior(
            Marginals([family], [marginal.axes for marginal in marginals]), marginals, n_records
        )
        (self.effects,) = self._posterior.effects
        self._coordinates = self.effects.coordinates(independent_logits(family, marginals)).ravel()
        self._posterior.reweighted(self._coordinates)

    def fit(self, scales: Array, close: float) -> None:
        """Update the mode given the scales of the groups, with the sampling variance at the mode."""
        self._coordinates = self._posterior.mode(self._coordinates, [scales], close)
        self._posterior.reweighted(self._coordinates)

    def log_odds(self, scales: Array) -> float:
        """The log Bayes factor of dependence on the parents against independence."""
        depends = self.effects.of_several
        scales_without = [np.where(depends, 0.0, scales)]
        start = np.where(depends[self.effects.groups.ravel()], 0.0, self._coordinates)
        without = self._posterior.mode(start, scales_without, ROUGH)
        evidence = self._posterior.log_evidence
        return evidence(self._coordinates, [scales]) - evidence(without, scales_without)

    def squares(self) -> Array:
        """The sum of the squared coordinates of each group."""
        return self._posterior.sums(self._coordinates**2)[0]

    def known(self, scales: Array) -> Array:
        """The effective number of coordinates of each group that the marginals determine."""
        return self._posterior.known(self._coordinates, [scales])[0]

    def conditional(self) -> Array:
        """The shares of the variable given its parents."""
        return proper_rows(*self._posterior.tables(self._coordinates).values())

    def mean(self, scales: Array, rng: np.random.Generator) -> Array:
        """The shares of the variable given its parents, from the mean over draws around the mode."""
        draws = self._posterior.spread(self._coordinates, [scales], rng, draws_of(self._coordinates.size))
        (shares,) = self._posterior.tables(draws).values()
        return proper_rows(shares.mean(axis=0))


def independent_logits(family: Family, measurements: Sequence[Measurement]) -> Array:
    """The logits of a table of independent variables with the measured marginals of each.

    Examples
    --------
    >>> noisy = Measurement(("sex",), np.array([25.0, 75.0]), 2.0)
    >>> np.exp(independent_logits(Family("p_left", ("sex", "left"), (2, 2)), [noisy])).round().tolist()
    [[25.0, 25.0], [75.0, 75.0]]
    """
    logits = np.zeros(family.shape)
    for place, axis in enumerate(family.axes):
        marginals = [
            marginal for marginal in (measurement.onto([axis]) for measurement in measurements) if marginal is not None
        ]
        if marginals:
            precision = sum(1 / marginal.variance for marginal in marginals)
            counts = np.sum([marginal.noisy / marginal.variance for marginal in marginals], axis=0) / precision
            # Counts that may be negative are raised to one standard deviation.
            along = np.log(np.maximum(counts, precision**-0.5))
            logits += np.expand_dims(along, tuple(i for i in range(logits.ndim) if i != place))
    return logits
