"""Tables of a network from noisy marginals: log-linear, with shrinkage that the marginals decide.

1. The table of each variable with its parents is fitted by itself: the mode of its effects given their scales.
2. The scales are learned from the modes, and the modes are found again, until the scales have settled.
3. A Bayes factor says of each table how likely it is that the variable depends on its parents at all. The scales of
   effects that make it depend are multiplied by the root of that probability.
4. Together, the tables go on from there until they agree with every marginal of the whole network.
5. Where noise hides most, shares are averaged over the normal distribution around the mode.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.inference.effects import Effects, Shrinkage, probabilities_of
from pymc_dirdp.inference.measurements import Family, Measurement, number_of_records
from pymc_dirdp.inference.network_posterior import NetworkMarginals, NetworkPosterior
from pymc_dirdp.numerics.minima import inverse_diagonal, log_determinant, minimised, solved
from pymc_dirdp.progress import QUIET, Bar

__all__ = [
    "MOST_ROUNDS",
    "FamilyPosterior",
    "fit_jointly",
    "fit_tables",
    "fitted",
    "noise_hides",
    "shares_given_parents",
]


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


MOST_ROUNDS = 20
"""The scales are learned in so many rounds at most. They settle before; later changes would not change the tables."""

# It makes the draws around the mode the same each time.
_SEED = 1
# Shares are averaged over so many draws, or fewer that hold so many numbers together.
_DRAWS, _LEAST_DRAWS, _MOST_NUMBERS = 1024, 64, 4 * 10**6
# Noise of one cell hides most if it is more than one record in so many.
_HIDES = 5.0
# Lengths of the gradient at which a mode counts as found: while the scales change, and at the end.
_ROUGH, _CLOSE = 0.1, 1e-3
# No share is smaller: a share of 0 may be a mistake.
_LEAST = 1e-200


def fit_tables(
    families: Sequence[Family], measurements: Sequence[Measurement], n_records: float | None, bar: Bar = QUIET
) -> dict[str, Array]:
    """The shares of each variable given its parents, fitted to noisy marginals of the records.

    Each family has a log-linear model of its own, of all its variables together, and is fitted to the marginals of its
    variables that the measurements hold. All effects are in it. Those of one subset of the variables have one scale,
    which is learned from the measurements (empirical Bayes), and is itself shrunk to a scale that all subsets of that
    size, in all families, have in common. So an effect that the noise hides is left out, and one that it does not hide
    is not shrunk. All effects by which a variable depends on its parents are shrunk once more where the measurements
    hardly say that it depends on them at all, so that a classifier falls back on the frequencies of its classes.

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
    counts for ten coordinates, is stationary (MacKay's fixed point). The probability that a variable depends on its
    parents is that of :func:`pymc_dirdp.inference.effects.probabilities_of`, from Laplace approximations of the
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
    tables, scales = _fitted([family.sorted for family in families], measurements, n, bar)
    rng = np.random.default_rng(_SEED) if noise_hides(measurements, n) else None
    found = {
        name: table.conditional() if rng is None else table.mean(scales[name], rng) for name, table in tables.items()
    }
    return {family.name: family.as_given(found[family.name]) for family in families}


def fit_jointly(
    families: Sequence[Family], measurements: Sequence[Measurement], n_records: float | None, bar: Bar = QUIET
) -> dict[str, Array]:
    """The shares of each variable given its parents, fitted together so that they agree with every noisy marginal.

    As :func:`fit_tables`, from whose tables it starts, but each measurement is compared with the marginal of the whole
    network. So what is measured of a variable's children says something of the variable.
    Effects have the scales that `fit_tables` finds for them, and the same mean takes the place of the mode where noise
    hides most.

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
    posterior = NetworkPosterior(ordered, measurements, n)
    start, found = fitted(ordered, measurements, n, bar)
    mode = posterior.coordinates(start)
    scales = [found[family.name] for family in families]
    for close in (_ROUGH, _CLOSE):
        # The variance of the sample is that of the tables so far.
        posterior.reweighted(mode)
        mode = posterior.mode(mode, scales, close)
        bar.advance()
    if noise_hides(measurements, n):
        draws = posterior.spread(mode, scales, np.random.default_rng(_SEED), _draws_of(sum(one.size for one in mode)))
        each = [posterior.tables(coordinates) for coordinates in draws]
        tables = {family.name: np.mean([one[family.name] for one in each], axis=0) for family in families}
    else:
        tables = posterior.tables(mode)
    return {family.name: family.as_given(_rows(tables[family.name])) for family in families}


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
    return {family.name: _rows(table) for family, table in zip(wanted, values, strict=True)}


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


def _draws_of(cells: int) -> int:
    """How many draws around the mode shares are averaged over, in tables of so many cells."""
    return 2 * (min(_DRAWS, max(_LEAST_DRAWS, _MOST_NUMBERS // cells)) // 2)


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
    scales = shrinkage.scales
    for name, table in tables.items():
        table.fit(scales[name], _ROUGH)
    log_odds = {family.name: tables[family.name].log_odds(scales[family.name]) for family in families if family.parents}
    probabilities = dict(zip(log_odds, probabilities_of(list(log_odds.values())), strict=True))
    for name, probability in probabilities.items():
        depends = tables[name].posterior.effects.of_several
        scales[name] = scales[name] * np.where(depends, math.sqrt(probability), 1.0)
    for name, table in tables.items():
        table.fit(scales[name], _CLOSE)
        bar.advance()
    return tables, scales


def _rows(table: Array) -> Array:
    """The table with rows that add up to 1, and without shares that underflow."""
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

    def log_odds(self, scales: Array) -> float:
        """The logarithm of the Bayes factor of a variable that depends on its parents against one that does not."""
        depends = self.posterior.effects.of_several
        scales_without = np.where(depends, 0.0, scales)
        start = np.where(depends[self.posterior.effects.groups], 0.0, self._coordinates)
        without = self.posterior.mode(start, scales_without, _ROUGH)
        evidence = self.posterior.log_evidence
        return evidence(self._coordinates, scales) - evidence(without, scales_without)

    def squares(self) -> Array:
        """The sum of the squared coordinates of each group."""
        return self.posterior.effects.sums(self._coordinates**2)

    def known(self, scales: Array) -> Array:
        """How many coordinates of each group the marginals tell."""
        return self.posterior.known(self._coordinates, scales)

    def conditional(self) -> Array:
        """The shares of the variable given its parents."""
        return _rows(self.posterior.shares(self._coordinates))

    def mean(self, scales: Array, rng: np.random.Generator) -> Array:
        """The shares of the variable given its parents, from the mean of all shares over draws around the mode."""
        draws = self.posterior.spread(self._coordinates, scales, rng, _draws_of(self._coordinates.size))
        return _rows(sum((self.posterior.shares(each) for each in draws), np.zeros(self._coordinates.shape)))
