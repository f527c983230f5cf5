"""The counts and shares of several tables given one joint release: exact sums and draws, as a mixture over the radius.

Given the radius the tables are independent, and the posterior of each is its prior restricted to a ball around its
noisy counts. :mod:`pymc_dirdp.inference.joint_rows` computes the sums over these balls.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.estimates import (
    Draws,
    Estimate,
    KnownRows,
    RowWithUncertainTotal,
    draw_shares,
    estimate_of_rows,
    given_total,
    listed,
    summarised,
    with_drawn_quantiles,
)
from pymc_dirdp.inference.joint_rows import backwards, drawn, summed
from pymc_dirdp.inference.numbers import CUT, ImpossibleError, impossible
from pymc_dirdp.inference.observed_table import Beliefs, ObservedTable, OfTotal, number_of, prior_of
from pymc_dirdp.inference.tree import Pmf
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.outputs import BlockLikelihood, JointLikelihoods
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio


@final
class RadialPosterior:
    """The prior of one table by its distance from the noisy counts.

    Parameters
    ----------
    block : BlockLikelihood
        The table's part of a joint release.
    prior, log_shares, log_numbers
        Those of this table, see :class:`JointTables`.
    most_norm : int, default 1500
        Largest norm of the sums, which then take some seconds for several cells. Two cells whose noise sums to 0 have
        no such limit.
    most_log_points : float, default 600
        Largest logarithm of the number of noise vectors. Beyond it the sums overflow.

    Raises
    ------
    ArgumentError
        If the prior does not fit, or the sums are too long.
    ImpossibleError
        If no counts can have led to the output.
    """

    def __init__(
        self,
        block: BlockLikelihood,
        prior: ArrayLike,
        log_shares: Array | None,
        log_numbers: OfTotal | None,
        *,
        most_norm: int = 1500,
        most_log_points: float = 600.0,
    ) -> None:
        alpha, most, zero_sum = positive_array(prior=prior, min_entries=1), int(block.limits.max()), block.ball.zero_sum
        if alpha.shape != block.noisy.shape:
            raise ArgumentError(f"Expected a prior of shape {block.noisy.shape}, got {alpha.shape}.")
        is_pair = alpha.size == 2 and zero_sum
        if most > (most_norm := 2**20 if is_pair else most_norm):
            raise ArgumentError(
                f"Ask for a larger epsilon: the noise may be as large as {most}, and at most {most_norm} is computed."
            )
        if not is_pair and block.ball.log_points(most) > most_log_points:
            raise ArgumentError(
                f"A table of {alpha.size} cells with joint noise up to {most} has too many possible counts to sum "
                "over. Pass mechanism='geometric'."
            )
        noisy = np.rint(block.noisy).astype(np.int64)
        if not np.array_equal(noisy, block.noisy) or (zero_sum and noisy.sum() < 0):
            raise ArgumentError("Expected integers that add up to a number of records.")
        self.alpha, self.noisy, self.limits, self.zero_sum, self._reach = alpha, noisy, block.limits, zero_sum, most
        known, start = log_shares is not None, np.maximum(noisy, 0).astype(np.float64)
        # A cell of probability 0 is empty, and no count is negative.
        lost = np.where(np.isneginf(log_shares), start, 0).sum() if log_shares is not None else 0
        gained = float(np.maximum(-noisy, 0).sum())
        if max(gained, lost) > most:
            raise impossible()
        log_totals, constant = self._log_totals(known, log_numbers)
        possible = np.flatnonzero(log_totals > -np.inf)
        if len(possible) == 0:
            raise impossible()
        if log_shares is None:
            parameters = alpha
            starts = _log_gamma_ratio(start, alpha) - gammaln(alpha)  # type: ignore[arg-type]
        else:
            parameters = np.maximum(log_shares, -1e4)
            starts = start * parameters - gammaln(start + 1)
        # For the scales, impossible totals between possible ones are interpolated, and all others are very unlikely.
        change = np.arange(len(log_totals))
        outside = np.maximum(np.maximum(possible[0] - change, change - possible[-1]), 0)
        near = np.interp(change, possible, log_totals[possible]) - 1e6 * outside
        *self._lists, values, a, b, scale = summed()(
            np.array(parameters, dtype=np.float64), known, noisy.astype(np.float64), most, near, zero_sum
        )
        _, gains, losses = self._ends
        self._sums = values[0] if zero_sum else values[gains, losses]
        self._scales = a * gains + b * losses + (scale + starts.sum() + constant) + log_totals[most + self._changes]
        self._sums[(gains < gained) | (losses < lost)] = 0.0
        with np.errstate(divide="ignore", invalid="ignore"):
            self._log_prior = np.where(self._sums > 0, np.log(self._sums) + self._scales, -np.inf)
        self._log_sums = np.logaddexp.accumulate(self._log_prior)

    def _log_totals(self, known: bool, log_numbers: OfTotal | None) -> tuple[Array, float]:
        """For each change of the total, the logarithm of its weight less a constant; and the constant."""
        change = np.arange(-self._reach, self._reach + 1)
        totals = self.noisy.sum() + change
        counts, size = np.maximum(totals, 0).astype(np.float64), float(self.alpha.sum())
        # Sums of logarithms are more accurate than differences of log-factorials of large numbers.
        constant = gammaln((counts[self._reach] if self.zero_sum else counts[0]) + 1) if known else gammaln(size)
        logs = np.append(0.0, np.log(np.maximum(counts[1:], 1)).cumsum()) if known else -_log_gamma_ratio(counts, size)
        if self.zero_sum:
            return np.where(change == 0, 0.0 if known else logs, -np.inf), constant
        if log_numbers is not None:
            logs = logs + log_numbers(counts)
        return np.where(totals >= 0, logs, -np.inf), constant

    @cached_property
    def _ends(self) -> tuple[Integers, Integers, Integers]:
        """The norms, gains and losses of all noise, by rising norm. The three are equal if the noise sums to 0."""
        norms = np.arange(self._reach + 1)
        if self.zero_sum:
            return norms, norms, norms
        norm_of_end = np.repeat(norms, norms + 1)
        gains = np.arange(len(norm_of_end)) - (norms * (norms + 1) // 2)[norm_of_end]
        return norm_of_end, gains, norm_of_end - gains

    @property
    def _changes(self) -> Integers:
        """Differences of the total from that of the noisy counts."""
        _, gains, losses = self._ends
        return gains - losses

    @cached_property
    def log_inside(self) -> Array:
        """The logarithm of the prior of all counts up to each norm."""
        last = np.searchsorted(self._ends[0], np.arange(self._reach + 1), side="right") - 1
        return np.asarray(self._log_sums[last])

    def weights(self, log_reach: Array) -> Array:
        """The weight of each pair of gains and losses, given the logarithm of the weight of each norm."""
        return np.exp(self._log_prior + log_reach[self._ends[0]])

    def totals(self, weights: Array) -> Pmf:
        """The distribution of the number of records."""
        masses = np.bincount(self._reach + self._changes, weights, minlength=2 * self._reach + 1)
        possible = np.flatnonzero(masses)
        low, high = possible[0], possible[-1] + 1
        return Pmf(int(self.noisy.sum()) - self._reach + int(low), masses[low:high] / masses.sum())

    def cell_pmfs(self, weights: Array, total: Pmf) -> list[Pmf]:
        """:meth:`Group.child_pmfs` of the cells, given these weights of gains and losses."""
        places = np.clip(self.noisy.sum() + self._changes - total.low, 0, total.values.shape[-1] - 1)
        return self.marginals(weights, total.values[:, places] / np.maximum(total.values[0], 1e-300)[places])

    def marginals(self, weights: Array, functions_of_total: Array | None = None) -> list[Pmf]:
        """For each cell, the probabilities of its counts, given these weights of gains and losses.

        The weight of a count is its weight in the cell times the derivative of the sum in it.

        Parameters
        ----------
        weights : array
            From :meth:`weights`.
        functions_of_total : array, shape (k, ends), optional
            Returns the expectations of these functions of the total for each count instead, shape (k, counts).
        """
        functions = np.ones((1, len(weights))) if functions_of_total is None else functions_of_total
        by_cell = np.stack([self._marginals(weights / weights.sum() * function) for function in functions], axis=1)
        pmfs = []
        for masses, noisy in zip(by_cell, self.noisy.tolist(), strict=True):
            possible = masses[:, max(self._reach - noisy, 0) :]
            pmfs.append(Pmf(max(noisy - self._reach, 0), possible[0] if functions_of_total is None else possible))
        return pmfs

    def _marginals(self, weights: Array) -> Array:
        """The weights of the changes -S to S of each cell."""
        size, (_, gains, losses) = self._reach + 1, self._ends
        over = np.zeros((1 if self.zero_sum else size, size))
        over[0 if self.zero_sum else gains, losses] = weights / np.where(self._sums > 0, self._sums, 1.0)
        up, down = self._lists[:2]
        of_up, of_down = backwards()(*self._lists, over)
        return np.concatenate([(down * of_down)[:, ::-1], (up * of_up)[:, 1:]], axis=1)

    def draw(self, limits: Integers, rng: np.random.Generator) -> Integers:
        """Draw one table for each limit of the norm, shape `(draws, d)`."""
        norms, gains, losses = self._ends
        below = np.log1p(-rng.random(len(limits))) + self.log_inside[limits]
        last = np.searchsorted(norms, limits, side="right") - 1
        ends = np.minimum(np.searchsorted(self._log_sums, below), last)
        uniforms = rng.random((len(ends), 2 * len(self.alpha)))
        changes: Integers = drawn()(*self._lists, gains[ends], losses[ends], uniforms)
        return self.noisy + changes


@final
class JointTables:
    """The counts and shares of tables given one output with joint noise.

    A priori the shares of each table are `p ~ Dirichlet(prior)` and its counts `x ~ Multinomial(total, p)`. If the
    noise sums to 0, the totals are those of the noisy counts. Otherwise the total has a uniform prior, or
    `log_numbers`.

    Parameters
    ----------
    likelihoods : JointLikelihoods
        From :meth:`pymc_dirdp.mechanisms.joint.JointNoise.joint_likelihoods`.
    priors : sequence of array_like
        Prior of the shares of each table, positive.
    log_shares : sequence of array, optional
        Logarithms of the shares of each table, if they are known. The priors are then ignored.
    log_numbers : callable, optional
        Returns the log-prior of each total in an array, if totals are private.

    Raises
    ------
    ArgumentError
        If a prior does not fit its table, or no counts can have led to the output.

    Notes
    -----
    The cost is `O(d S**3)` for a table of d cells and noise up to S, and `O(S)` for two cells with a public total. All
    terms are positive.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms.joint import JointNoise
    >>> seen = JointNoise([2, 2], 1.0, zero_sum=True).joint_likelihoods([18, 2, -1, 21])
    >>> [means.round(1).tolist() for means in JointTables(seen, [[1, 1], [1, 1]]).count_means]
    [[17.6, 2.4], [0.8, 19.2]]
    """

    def __init__(
        self,
        likelihoods: JointLikelihoods,
        priors: Sequence[ArrayLike],
        log_shares: Sequence[Array] | None = None,
        log_numbers: OfTotal | None = None,
    ) -> None:
        if len(priors) != len(likelihoods.blocks):
            raise ArgumentError(f"Expected priors for {len(likelihoods.blocks)} tables, got {len(priors)}.")
        known = [None] * len(priors) if log_shares is None else log_shares
        blocks = zip(likelihoods.blocks, priors, known, strict=True)
        self._tables = [RadialPosterior(block, prior, shares, log_numbers) for block, prior, shares in blocks]
        self._inside = [table.log_inside[table.limits] for table in self._tables]
        self._logs = likelihoods.log_weights + np.sum(self._inside, axis=0)
        if np.all(self._logs == -np.inf):
            raise impossible()

    @property
    def log_inside(self) -> Array:
        """For each radius, the logarithm of the prior probability of all counts that it allows."""
        return np.asarray(np.sum(self._inside, axis=0))

    @property
    def log_evidence(self) -> float:
        """Logarithm of the probability of the output, counts and shares summed out."""
        return float(np.logaddexp.reduce(self._logs))

    @cached_property
    def radius_probabilities(self) -> Array:
        """The probability of each radius given the output, in the order of the likelihoods."""
        return np.asarray(np.exp(self._logs - np.logaddexp.reduce(self._logs)))

    @cached_property
    def _weights(self) -> list[Array]:
        """The posterior weights of the noise of each table by its ends."""
        weights = []
        for table, inside in zip(self._tables, self._inside, strict=True):
            # The weight of a shell sums over the radii that reach it the posterior over the prior probability.
            possible = inside > -np.inf
            reach = np.full(len(table.log_inside), -np.inf)
            logs = self._logs[possible] - np.logaddexp.reduce(self._logs) - inside[possible]
            np.logaddexp.at(reach, table.limits[possible], logs)
            weights.append(table.weights(np.logaddexp.accumulate(reach[::-1])[::-1]))
        return weights

    @cached_property
    def count_probabilities(self) -> list[list[Pmf]]:
        """For each cell of each table, the probabilities of its counts: exact sums."""
        return [table.marginals(weights) for table, weights in zip(self._tables, self._weights, strict=True)]

    @cached_property
    def rows(self) -> list[KnownRows | RowWithUncertainTotal]:
        """The tables as rows, for summaries. If totals are private, rows have no quantiles of shares."""
        rows: list[KnownRows | RowWithUncertainTotal] = []
        for table, weights, cells in zip(self._tables, self._weights, self.count_probabilities, strict=True):
            total = table.totals(weights)
            if table.zero_sum:
                rows.append(KnownRows(table.alpha[None], np.array([total.low]), listed(cells)[0].trimmed(CUT)))
            else:
                whole = Pmf(total.low, total.values[None])
                cells = table.cell_pmfs(weights, given_total(table.alpha, whole))
                rows.append(RowWithUncertainTotal(table.alpha, [listed(cells)]))
        return rows

    @property
    def count_means(self) -> list[Array]:
        """Expected counts of each table: exact sums."""
        return [np.array([cell.values @ cell.numbers for cell in cells]) for cells in self.count_probabilities]

    def counts(self, draws: int, rng: np.random.Generator, uniforms: Array | None = None) -> list[Integers]:
        """Independent draws of the counts of all tables, which share the radius in each draw.

        Pass `uniforms`, one for each draw, if other tables share the radius, too: inversion yields the same radius.
        """
        sums = np.cumsum(self.radius_probabilities)
        levels = sums[-1] * (rng.random(draws) if uniforms is None else uniforms)
        radii = np.minimum(np.searchsorted(sums, levels, side="right"), len(sums) - 1)
        return [table.draw(table.limits[radii], rng) for table in self._tables]


def given_all_others(
    mechanisms: Sequence[Mechanism], outputs: Sequence[Array], priors: Sequence[Array]
) -> list[JointLikelihoods]:
    """The likelihood of each table given the outputs of all other tables that share its noise, counts summed out.

    Parameters
    ----------
    mechanisms : sequence of Mechanism
        All mechanisms that share the noise.
    outputs : sequence of array
        The noisy counts of each table.
    priors : sequence of array
        The prior of each table's shares in the likelihoods of the other tables.
    """
    alone = []
    for mechanism, output in zip(mechanisms, outputs, strict=True):
        likelihood = mechanism.joint_rows(output)
        assert likelihood is not None
        alone.append(likelihood)
    inside = [
        JointTables(likelihood, of_blocks(prior, likelihood)).log_inside
        for likelihood, prior in zip(alone, priors, strict=True)
    ]
    # The weights of the radius without any table: those of `alone` include the noise vectors of the other tables.
    weights = mechanisms[0].shared_noise.radius_log_weights
    # Sums before and after each table, because an infinity cannot be subtracted from the sum of all.
    before = np.cumsum([np.zeros_like(weights), *inside[:-1]], axis=0)
    after = np.cumsum([np.zeros_like(weights), *inside[:0:-1]], axis=0)[::-1]
    return [
        replace(likelihood, log_weights=weights + forward + backward)
        for likelihood, forward, backward in zip(alone, before, after, strict=True)
    ]


def of_blocks(prior: Array, likelihoods: JointLikelihoods) -> list[Array]:
    """The prior of the cells of each block. It divides the records of a block among its rows."""
    return list(prior.reshape(len(likelihoods.blocks), -1))


@final
class JointPosterior:
    """The counts and shares of a table whose noise is part of a joint noise, with the methods of `TablePosterior`.

    Parameters
    ----------
    output : ObservedTable
    likelihoods : JointLikelihoods
        Those of the rows.
    beliefs : Beliefs
        The analyst's priors of private totals.
    """

    def __init__(self, output: ObservedTable, likelihoods: JointLikelihoods, beliefs: Beliefs) -> None:
        self.prior = prior_of(output, beliefs.prior)
        self._is_divided = self.prior.size > len(likelihoods.blocks) * self.prior.shape[-1]
        if beliefs.row_prior is not None:
            raise ArgumentError(
                f"Leave row_prior out: under joint noise the prior of {output.name!r} already divides its records "
                "among rows, or each row has its own number of records."
            )
        self._likelihoods, self._is_private = likelihoods, not likelihoods.blocks[0].ball.zero_sum
        number, log_prior = number_of(output, beliefs.n_prior)
        total = sum(number for _, number in output.blocks)
        if not self._is_private and number != total:
            raise output.damaged(f"the noisy counts sum to {total} records, and not to the number that was passed")
        if log_prior is None and self._is_private:
            if len(likelihoods.blocks) > 1:
                raise ArgumentError(
                    f"Use ZeroSumJointTableMechanism, or adjacency='add-remove': the total of {output.name!r} is "
                    "public, but the numbers of records of its rows are private."
                )
            log_prior = lambda totals: np.where(totals == number, 0.0, -np.inf)  # noqa: E731
        # The sums also ask for numbers above the largest one.
        self._log_numbers: OfTotal | None = log_prior and (
            lambda totals: np.where(totals <= number, log_prior(np.minimum(totals, number)), -np.inf)
        )
        self._tables = self._posterior_of_tables(None)

    @property
    def log_evidence(self) -> float:
        """Logarithm of the probability of the output, counts and shares summed out."""
        return self._tables.log_evidence

    @property
    def count_means(self) -> Array:
        """Expected counts, in the shape of the table: exact sums."""
        return np.stack(self._tables.count_means).reshape(self.prior.shape)

    def with_shares(self, log_shares: Array) -> "JointPosterior":
        """The distribution of the counts if the shares are known, see :meth:`TablePosterior.with_shares`."""
        if self._is_divided:
            raise ArgumentError(
                "Plan with mechanism='geometric', or release the table as one row: under joint noise the likelihood of "
                "the shares of several rows needs the number of records of each row."
            )
        posterior = copy.copy(self)
        posterior._tables = self._posterior_of_tables(of_blocks(log_shares, self._likelihoods))
        return posterior

    def _posterior_of_tables(self, log_shares: list[Array] | None) -> JointTables:
        likelihoods = self._likelihoods
        return JointTables(likelihoods, of_blocks(self.prior, likelihoods), log_shares, self._log_numbers)

    def likelihood(self, log_shares: Array) -> tuple[float, Array]:
        """Log-likelihood of known shares and its gradient, see :meth:`TablePosterior.likelihood`."""
        try:
            posterior = self.with_shares(log_shares)
        except ImpossibleError:
            return -np.inf, np.zeros(self.prior.shape)
        return posterior.log_evidence, posterior.count_means

    def counts(self, draws: int, rng: np.random.Generator, uniforms: Array | None = None) -> Integers:
        """Independent draws of the counts, shape `(draws, *shape)`."""
        counts = np.stack(self._tables.counts(draws, rng, uniforms), axis=1)
        return counts.reshape(draws, *self.prior.shape)

    def draw(self, draws: int, rng: np.random.Generator, uniforms: Array | None = None) -> Draws:
        """Independent draws of counts and shares, in arrays of shape `(draws, *shape)`.

        Pass the same `uniforms` to all tables that share a noise, so that they have the same radius in each draw.
        """
        counts = self.counts(draws, rng, uniforms)
        return Draws(counts, draw_shares(counts, self.prior, rng))

    def estimate(self, prob: list[float], *, draws: int = 20_000, seed: int = 20261124) -> Estimate:
        """Means, standard deviations and central intervals of shares and counts, cell by cell in the order of rows.

        If rows share their records, averages over exact draws replace the sums over the totals of rows. If totals are
        private, the quantiles of shares are those of draws.
        """
        if self._is_divided:
            averaged = self.draw(draws, np.random.default_rng(seed))
            return replace(
                summarised(averaged, self.prior, prob, self.log_evidence), count_means=self.count_means.ravel()
            )
        summary = estimate_of_rows(self._tables.rows, prob, self.log_evidence)
        if not self._is_private:
            return summary
        return with_drawn_quantiles(summary, self.draw)
