"""The posterior of one table given noisy marginals: Hamiltonian draws around Laplace's approximation, without PyMC.

1. Counts of the cells are `mu = N p` and a normal sample; marginals of them have normal noise. With the variance of the
   sample fixed, the log-likelihood is the quadratic `h mu - mu W mu / 2`, with one cells-by-cells matrix for all
   marginals.
2. `p` is the softmax of effects. Those of one subset of the axes are normal with a scale of their own, which the data
   decide; the scale is integrated out, which leaves a Student distribution. Gauss-Newton steps find the mode and the
   curvature there: Laplace's approximation.
3. In the coordinates in which that is standard normal, 200 walkers start from it and move together, by Hamiltonian
   Monte Carlo with few steps. Importance weights would do for some ten cells: of 30 cells 2000 draws are worth 36.
4. The variance of the sample is taken from the mean of the walkers, and they move on.
5. Given the shares, counts are normal with known moments; they are rounded at random so that they add up.
"""

import math
from collections.abc import Callable
from functools import cached_property
from typing import final

import numpy as np
from scipy.special import softmax

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.effects import Effects
from pymc_dirdp.inference.estimates import Draws, Estimate, summarised
from pymc_dirdp.inference.measurements import number_of_records
from pymc_dirdp.inference.observed_table import Beliefs, ObservedTable
from pymc_dirdp.inference.table_fit import proper_rows

MOST_CELLS = 1000
"""A table with more cells has no posterior here: steps take cells squared, and the mode cells cubed."""

type _Slopes = Callable[[Array], tuple[Array, Array]]


@final
class MarginalPosterior:
    """Shares and counts of a table given the noisy marginals of a release that share variables with it.

    The shares of all cells together are the softmax of a sum of effects, one for each subset of the axes. The
    coordinates of the effects of a subset are normal with a common unknown scale: before anything is known its square
    is 1.64 times 2 over a chi-square variable with 2 degrees of freedom. 1.64 is the variance of the logits of rows
    that are uniform a priori, of which each effect has a part; `alpha` of the model is not used. Noise and sample are
    normal. A private number of records has a uniform prior.

    Parameters
    ----------
    seen : ObservedTable
        A table with measurements.
    beliefs : Beliefs
        None of them fits here.

    Raises
    ------
    ArgumentError
        If the table has more than 1,000 cells, or a prior is passed.

    References
    ----------
    Neal (2011), MCMC using Hamiltonian dynamics, Handbook of Markov Chain Monte Carlo, chapter 5. Wilson et al. (2020),
    Efficiently sampling functions from Gaussian process posteriors, for Matheron's rule, by which counts are drawn.
    """

    log_evidence = math.nan

    def __init__(self, seen: ObservedTable, beliefs: Beliefs) -> None:
        if any(one is not None for one in (beliefs.prior, beliefs.n_prior, beliefs.row_prior)):
            raise ArgumentError(
                f"The shares of {seen.name!r} are sums of effects, because it was released by marginals, and the "
                "prior of the number of records is uniform. Leave out prior, n_prior and row_prior."
            )
        self._shape = seen.prior.shape
        self._cells = cells = seen.prior.size
        if cells > MOST_CELLS:
            raise ArgumentError(
                f"{seen.name!r} has {cells} cells, and intervals are computed for {MOST_CELLS} at most. "
                "dirdp.fit(release) is an estimate without them."
            )
        self._is_public = seen.n_records is not None
        known = seen.n_records
        self._n_records = float(number_of_records(seen.measurements) if known is None else known)
        axes = tuple(dim for dim, _ in seen.cell_labels)
        # All that the marginals say: the precisions of sums of cells, and the noisy sums times their precisions.
        self._precision, self._weighted_counts = np.zeros((cells, cells)), np.zeros(cells)
        index = dict(zip(axes, np.indices(self._shape).reshape(len(axes), -1), strict=True))
        for measurement in seen.measurements:
            if (own := measurement.onto(axes)) is not None:
                to = np.ravel_multi_index(tuple(index[axis] for axis in own.axes), own.noisy.shape)
                # Noise of no more variance is nearly always 0.
                variance = max(own.variance, 1e-2)
                self._precision += (to[:, None] == to) / variance
                self._weighted_counts += own.noisy.ravel()[to] / variance
        effects = Effects(self._shape)
        # The constant changes no share.
        self._functions = effects.logits(np.eye(cells).reshape(cells, *self._shape)).reshape(cells, cells)[1:]
        self._group = effects.groups.ravel()[1:] - 1
        self._in_group = np.eye(len(effects.orders) - 1)[self._group]
        # Logits of Dirichlet(1) rows vary by pi**2 / 6, in effects of many axes as much as in those of few. With scales
        # that fell with their number and 4 degrees of freedom, 95 % intervals covered 80 % of such shares behind noise.
        freedom = 2.0
        self._spread, self._size = freedom * math.pi**2 / 6, freedom + self._in_group.sum(axis=0)

    def draw(self, draws: int, rng: np.random.Generator) -> Draws:
        """Draws of counts and shares, in arrays of shape `(draws, *shape)`; those of one walker follow one another."""
        mode, _, form = self._mode
        walkers = 200
        # Steep sides of the density are far from the middle, and a walker that starts there would stay.
        places, acceptance = 0.5 * rng.standard_normal((walkers, len(mode))), []
        # In 20 shapes of tables the correlation of draws 10 moves apart is at most .4.
        for moves in (40, 20):
            # What the sample adds to the noise follows from the shares that the walkers have found.
            centre = _Centre(mode, self._curvature(mode, form)[0])
            places, _ = _hamiltonian_steps(centre.of(self._slopes(form)), places, moves, rng)
            expected = self._expected(centre(places)).mean(axis=0)
            form = self._form(expected)
        centre = _Centre(mode, self._curvature(mode, form)[0])
        found = []
        slopes = centre.of(self._slopes(form))
        for _ in range(math.ceil(draws / walkers)):
            places, accepted = _hamiltonian_steps(slopes, places, 2, rng)
            acceptance.append(accepted)
            found.append(centre(places))
        expected = self._expected(np.stack(found, axis=1))
        worth = _worth(expected / expected.sum(axis=-1, keepdims=True))
        expected = expected.reshape(-1, self._cells)[:draws]
        counts = self._counts(expected, form, rng).reshape(draws, *self._shape)
        shares = proper_rows(expected.reshape(draws, *self._shape))
        return Draws(counts, shares, float(np.mean(acceptance)), worth)

    @cached_property
    def _draws(self) -> Draws:
        """The 4,000 draws that estimates are averages of, from random numbers of their own."""
        return self.draw(4_000, np.random.default_rng(1))

    def estimate(self, prob: list[float]) -> Estimate:
        """Means, standard deviations and central intervals of shares and counts, from 4,000 draws."""
        drawn = self._draws
        worth, few_records = drawn.effective or 0.0, 5
        sparse = int(np.sum(drawn.counts.mean(axis=0) < few_records))
        caveats = [f"averages over {len(drawn.shares)} draws that are worth {worth:.0f}"]
        if worth < 400:
            caveats.append("too few to trust the ends of its intervals")
        if sparse:
            caveats.append(f"{sparse} of {self._cells} cells with fewer than {few_records} records rest on the prior")
        return summarised(drawn, None, prob, self.log_evidence, "; ".join(caveats))

    def _form(self, expected: Array) -> tuple[Array, Array]:
        """The log-likelihood `h mu - mu W mu / 2` of expected counts, with the variance of the sample at some: h, W."""
        correction = np.eye(self._cells) - self._precision @ self._gain(expected)
        return correction @ self._weighted_counts, correction @ self._precision

    def _gain(self, expected: Array) -> Array:
        """`S (I + A S)^-1`, with the covariance S of the sample and the precision A of what is measured."""
        root = np.sqrt(expected)
        unit = root / max(float(np.linalg.norm(root)), 1e-300)
        half = root[:, None] * (np.eye(self._cells) - np.outer(unit, unit))
        inner = np.eye(self._cells) + half.T @ self._precision @ half
        return np.asarray(half @ np.linalg.solve(inner, half.T))

    def _expected(self, x: Array) -> Array:
        """Expected counts at some coordinates; shares where there are no records."""
        shares = softmax(x[..., : self._cells - 1] @ self._functions, axis=-1)
        records = max(self._n_records, 1e-9) if self._is_public else np.exp(x[..., -1:])
        return np.asarray(records * shares)

    def _slopes(self, form: tuple[Array, Array]) -> _Slopes:
        """The logarithm of the posterior density and its gradient, at each row."""
        h, curved = form

        def slopes(x: Array) -> tuple[Array, Array]:
            effects = x[:, : self._cells - 1]
            expected = self._expected(x)
            squares = self._spread + effects**2 @ self._in_group
            pulled = expected @ curved
            value = np.sum(expected * (h - 0.5 * pulled), axis=1) - 0.5 * np.log(squares / self._spread) @ self._size
            slope = expected * (h - pulled)
            records, total = (each.sum(axis=1, keepdims=True) for each in (expected, slope))
            slope -= expected * (total / records)
            gradient = slope @ self._functions.T - (self._size / squares)[:, self._group] * effects
            if self._is_public:
                return value, gradient
            # The prior of the number of records is uniform, and that of its logarithm is not.
            return value + x[:, -1], np.concatenate([gradient, total + 1], axis=1)

        return slopes

    def _curvature(self, x: Array, form: tuple[Array, Array]) -> tuple[Array, Array]:
        """The Gauss-Newton matrix at a point, and the precision of the prior there."""
        effects, expected = x[: self._cells - 1], self._expected(x)
        weights = (self._size / (self._spread + effects**2 @ self._in_group))[self._group]
        changes = (self._functions - self._functions @ expected[:, None] / expected.sum()) * expected
        if not self._is_public:
            # At the mode the slope of the likelihood along the logarithm is -1, and this is what it adds.
            changes, weights = np.vstack([changes, expected]), np.append(weights, 1.0)
        return np.diag(weights) + changes @ form[1] @ changes.T, weights

    @cached_property
    def _mode(self) -> tuple[Array, Array, tuple[Array, Array]]:
        """The coordinates at which the gradient vanishes with the variance of the sample taken from there."""
        x = np.zeros(self._cells - 1 + (not self._is_public))
        if not self._is_public:
            x[-1] = math.log(max(self._n_records, 1.0))
        for _ in range(200):
            form = self._form(self._expected(x))
            slopes = self._slopes(form)
            (value,), (gradient,) = slopes(x[None])
            curvature, _ = self._curvature(x, form)
            step = np.linalg.solve(curvature, gradient)
            gain = float(gradient @ step)
            if gain < 1e-6:
                break
            for halves in range(40):
                there = x + 0.5**halves * step
                if slopes(there[None])[0][0] >= value + 1e-4 * 0.5**halves * gain:
                    break
            x = there
        return x, curvature, form

    def _counts(self, expected: Array, form: tuple[Array, Array], rng: np.random.Generator) -> Integers:
        """Counts given their expectations, one table each: normal, and rounded at random to whole records."""
        root = np.sqrt(expected)
        sample = root * rng.standard_normal(expected.shape)
        total = expected.sum(axis=1, keepdims=True)
        sample -= expected * sample.sum(axis=1, keepdims=True) / total
        values, vectors = np.linalg.eigh(self._precision)
        noise = (rng.standard_normal(expected.shape) * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        # What was measured, less the same of a joint draw, moves the draw to what it is given the measurements.
        off = self._weighted_counts - noise - (expected + sample) @ self._precision
        correction = np.eye(self._cells) - self._precision @ self._gain(expected.mean(axis=0))
        pulled = off @ correction.T
        pulled -= np.sum(expected * pulled, axis=1, keepdims=True) / total
        counts = np.maximum(expected + sample + expected * pulled, 0.0)
        records = np.rint(self._n_records if self._is_public else total)
        counts *= records / np.maximum(counts.sum(axis=1, keepdims=True), 1e-300)
        ends = np.floor(np.cumsum(counts, axis=1) + rng.random((len(counts), 1)) * (1 - 1e-12))
        ends[:, -1:] = records
        return np.diff(np.minimum(ends, records), axis=1, prepend=0.0).astype(np.int64)


@final
class _Centre:
    """Coordinates in which a normal distribution is the standard one."""

    def __init__(self, mode: Array, curvature: Array) -> None:
        self._mode, self._inverse = mode, np.linalg.inv(np.linalg.cholesky(curvature))

    def __call__(self, places: Array) -> Array:
        return np.asarray(self._mode + places @ self._inverse)

    def of(self, slopes: _Slopes) -> _Slopes:
        """A density and its gradient in these coordinates."""

        def centred(places: Array) -> tuple[Array, Array]:
            value, gradient = slopes(self(places))
            return value, gradient @ self._inverse.T

        return centred


def _hamiltonian_steps(
    slopes: _Slopes, places: Array, moves: int, rng: np.random.Generator, *, longest: float = 0.3, steps: int = 8
) -> tuple[Array, float]:
    """The walkers after some moves of Hamiltonian Monte Carlo, and the share of the moves that were accepted."""
    (value, gradient), accepted = slopes(places), 0.0
    for _ in range(moves):
        speed = rng.standard_normal(places.shape)
        energy = value - 0.5 * np.sum(speed**2, axis=1)
        step = longest * rng.uniform(0.1, 1.0, (len(places), 1))
        there, at, slope = places, value, gradient
        for _ in range(steps):
            speed = speed + 0.5 * step * slope
            there = there + step * speed
            at, slope = slopes(there)
            speed = speed + 0.5 * step * slope
        taken = np.log(rng.random(len(places))) < at - 0.5 * np.sum(speed**2, axis=1) - energy
        accepted += float(taken.mean()) / moves
        places, gradient = np.where(taken[:, None], there, places), np.where(taken[:, None], slope, gradient)
        value = np.where(taken, at, value)
    return places, accepted


def _worth(values: Array) -> float:
    """How many independent draws those of independent walkers are worth, shape `(walkers, draws, cells)`, at least."""
    within = values.reshape(-1, values.shape[-1]).var(axis=0)
    between = values.mean(axis=1).var(axis=0, ddof=1)
    known = within > 0
    worth = np.divide(len(values) * within, between, out=np.full(within.shape, np.inf), where=between > 0)
    return float(min(worth[known].min(initial=np.inf), values.shape[0] * values.shape[1]))
