"""The posterior of one table given noisy marginals: Hamiltonian draws around Laplace's approximation, without PyMC.

1. The counts of the cells are `mu = N p` plus a normal sampling error, and the marginals have normal noise. For a fixed
   sampling variance the log-likelihood is the quadratic `h mu - mu W mu / 2`, with one cells-by-cells matrix for all
   marginals.
2. `p` is the softmax of effects. The effects of one subset of the axes are normal with an unknown scale. The scale is
   integrated out, which gives a Student distribution. Gauss-Newton steps find the mode and its curvature, which give
   Laplace's approximation.
3. In coordinates in which the approximation is standard normal, 200 walkers start from it and run in parallel, by
   Hamiltonian Monte Carlo with few steps. Importance sampling would suffice for about ten cells only: for 30 cells the
   effective sample size of 2000 draws is 36.
4. The sampling variance is updated from the mean of the walkers, and they continue.
5. Given the shares, counts are normal with known moments; they are rounded at random to integers that add up.
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

MAX_CELLS = 1000
"""Maximum number of cells of a table: a step takes cells squared operations, and the mode cells cubed."""

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
    table : ObservedTable
        A table with measurements.
    beliefs : Beliefs
        Must be empty.

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

    def __init__(self, table: ObservedTable, beliefs: Beliefs) -> None:
        if any(belief is not None for belief in (beliefs.prior, beliefs.n_prior, beliefs.row_prior)):
            raise ArgumentError(
                f"The shares of {table.name!r} are sums of effects, because it was released by marginals, and the "
                "prior of the number of records is uniform. Leave out prior, n_prior and row_prior."
            )
        self._shape = table.prior.shape
        self._cells = cells = table.prior.size
        if cells > MAX_CELLS:
            raise ArgumentError(
                f"{table.name!r} has {cells} cells, and intervals are available for at most {MAX_CELLS}. "
                "dirdp.fit(release) returns an estimate without intervals."
            )
        self._is_public = table.n_records is not None
        known = table.n_records
        self._n_records = float(number_of_records(table.measurements) if known is None else known)
        axes = tuple(dim for dim, _ in table.cell_labels)
        # Sufficient statistics: the precisions of sums of cells, and the noisy sums times their precisions.
        self._precision, self._weighted_counts = np.zeros((cells, cells)), np.zeros(cells)
        index = dict(zip(axes, np.indices(self._shape).reshape(len(axes), -1), strict=True))
        for measurement in table.measurements:
            if (marginal := measurement.onto(axes)) is not None:
                cell_of = np.ravel_multi_index(tuple(index[axis] for axis in marginal.axes), marginal.noisy.shape)
                # Noise with a smaller variance is nearly always 0.
                variance = max(marginal.variance, 1e-2)
                self._precision += (cell_of[:, None] == cell_of) / variance
                self._weighted_counts += marginal.noisy.ravel()[cell_of] / variance
        effects = Effects(self._shape)
        # The constant does not change the shares.
        self._functions = effects.logits(np.eye(cells).reshape(cells, *self._shape)).reshape(cells, cells)[1:]
        self._group = effects.groups.ravel()[1:] - 1
        self._in_group = np.eye(len(effects.orders) - 1)[self._group]
        # Logits of Dirichlet(1) rows have variance pi**2 / 6, in effects of many axes as in those of few. With scales
        # that decreased with the number of axes and 4 degrees of freedom, 95 % intervals covered 80 % of such shares.
        freedom = 2.0
        self._spread, self._size = freedom * math.pi**2 / 6, freedom + self._in_group.sum(axis=0)

    def draw(self, draws: int, rng: np.random.Generator) -> Draws:
        """Draws of counts and shares, in arrays of shape `(draws, *shape)`; draws of one walker are consecutive."""
        mode, _, form = self._mode
        walkers = 200
        # A walker that starts far from the mode, where the density is steep, would not move.
        places, acceptance = 0.5 * rng.standard_normal((walkers, len(mode))), []
        # For 20 table shapes the autocorrelation at lag 10 is at most 0.4.
        for moves in (40, 20):
            # Update the sampling variance from the shares of the walkers.
            centre = _Centre(mode, self._curvature(mode, form)[0])
            places, _ = _hamiltonian_steps(centre.of(self._slopes(form)), places, moves, rng)
            expected = self._expected(centre(places)).mean(axis=0)
            form = self._form(expected)
        centre = _Centre(mode, self._curvature(mode, form)[0])
        chain = []
        slopes = centre.of(self._slopes(form))
        for _ in range(math.ceil(draws / walkers)):
            places, accepted = _hamiltonian_steps(slopes, places, 2, rng)
            acceptance.append(accepted)
            chain.append(centre(places))
        expected = self._expected(np.stack(chain, axis=1))
        worth = _effective_sample_size(expected / expected.sum(axis=-1, keepdims=True))
        expected = expected.reshape(-1, self._cells)[:draws]
        counts = self._counts(expected, form, rng).reshape(draws, *self._shape)
        shares = proper_rows(expected.reshape(draws, *self._shape))
        return Draws(counts, shares, float(np.mean(acceptance)), worth)

    @cached_property
    def _draws(self) -> Draws:
        """The 4,000 draws for estimates, from a fixed seed."""
        return self.draw(4_000, np.random.default_rng(1))

    def estimate(self, prob: list[float]) -> Estimate:
        """Means, standard deviations and central intervals of shares and counts, from 4,000 draws."""
        drawn = self._draws
        worth, few_records = drawn.effective or 0.0, 5
        sparse = int(np.sum(drawn.counts.mean(axis=0) < few_records))
        caveats = [f"averages over {len(drawn.shares)} draws, effective sample size {worth:.0f}"]
        if worth < 400:
            caveats.append("which is too small for reliable interval ends")
        if sparse:
            caveats.append(
                f"{sparse} of {self._cells} cells with fewer than {few_records} records depend mostly on the prior"
            )
        return summarised(drawn, None, prob, self.log_evidence, "; ".join(caveats))

    def _form(self, expected: Array) -> tuple[Array, Array]:
        """The log-likelihood `h mu - mu W mu / 2`, with the sampling variance at these expected counts: h, W."""
        correction = np.eye(self._cells) - self._precision @ self._gain(expected)
        return correction @ self._weighted_counts, correction @ self._precision

    def _gain(self, expected: Array) -> Array:
        """`S (I + A S)^-1`, with the sampling covariance S and the precision A of the measurements."""
        root = np.sqrt(expected)
        unit = root / max(float(np.linalg.norm(root)), 1e-300)
        half = root[:, None] * (np.eye(self._cells) - np.outer(unit, unit))
        inner = np.eye(self._cells) + half.T @ self._precision @ half
        return np.asarray(half @ np.linalg.solve(inner, half.T))

    def _expected(self, x: Array) -> Array:
        """Expected counts at some coordinates; shares if there are no records."""
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
            records, total = (values.sum(axis=1, keepdims=True) for values in (expected, slope))
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
            # At the mode the derivative of the likelihood in the logarithm is -1, which adds this term.
            changes, weights = np.vstack([changes, expected]), np.append(weights, 1.0)
        return np.diag(weights) + changes @ form[1] @ changes.T, weights

    @cached_property
    def _mode(self) -> tuple[Array, Array, tuple[Array, Array]]:
        """The mode: the gradient is 0 with the sampling variance at the mode itself."""
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
                proposal = x + 0.5**halves * step
                if slopes(proposal[None])[0][0] >= value + 1e-4 * 0.5**halves * gain:
                    break
            x = proposal
        return x, curvature, form

    def _counts(self, expected: Array, form: tuple[Array, Array], rng: np.random.Generator) -> Integers:
        """Counts given their expectations, one table each: normal, and rounded at random to integers."""
        root = np.sqrt(expected)
        sample = root * rng.standard_normal(expected.shape)
        total = expected.sum(axis=1, keepdims=True)
        sample -= expected * sample.sum(axis=1, keepdims=True) / total
        values, vectors = np.linalg.eigh(self._precision)
        noise = (rng.standard_normal(expected.shape) * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
        # Matheron's rule: condition a joint draw on the measurements by their difference.
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
    """Coordinates in which a normal distribution is standard normal."""

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
    """The walkers after some steps of Hamiltonian Monte Carlo, and the acceptance rate."""
    (value, gradient), accepted = slopes(places), 0.0
    for _ in range(moves):
        speed = rng.standard_normal(places.shape)
        energy = value - 0.5 * np.sum(speed**2, axis=1)
        step = longest * rng.uniform(0.1, 1.0, (len(places), 1))
        proposal, new_value, slope = places, value, gradient
        for _ in range(steps):
            speed = speed + 0.5 * step * slope
            proposal = proposal + step * speed
            new_value, slope = slopes(proposal)
            speed = speed + 0.5 * step * slope
        taken = np.log(rng.random(len(places))) < new_value - 0.5 * np.sum(speed**2, axis=1) - energy
        accepted += float(taken.mean()) / moves
        places, gradient = np.where(taken[:, None], proposal, places), np.where(taken[:, None], slope, gradient)
        value = np.where(taken, new_value, value)
    return places, accepted


def _effective_sample_size(values: Array) -> float:
    """The smallest effective sample size over cells, for draws of shape `(walkers, draws, cells)`."""
    within = values.reshape(-1, values.shape[-1]).var(axis=0)
    between = values.mean(axis=1).var(axis=0, ddof=1)
    known = within > 0
    worth = np.divide(len(values) * within, between, out=np.full(within.shape, np.inf), where=between > 0)
    return float(min(worth[known].min(initial=np.inf), values.shape[0] * values.shape[1]))
