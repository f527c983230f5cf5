"""The counts and shares of several tables given one joint release: exact sums and draws, as a mixture over the radius.

Given the radius the tables are independent, and each is its prior restricted to a ball around its noisy counts. The
priors of all tables on the shells of their balls follow from sums over cells, one after the other, whose state is what
the cells have gained and lost so far. As noise adds up to 0, a table is on a shell where both are the shell's norm.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, final, override

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.beliefs import Beliefs, prior_of
from pymc_dirdp.inference.estimates import Estimate, KnownCounts, RowGiven, estimate_of_rows, summarised
from pymc_dirdp.inference.number_laws import ImpossibleError
from pymc_dirdp.inference.posterior import Draws, draw_shares
from pymc_dirdp.inference.seen import Seen
from pymc_dirdp.inference.tree import Spread
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.joint import BlockLikelihood, JointLikelihoods
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio

__all__ = ["JointLaw", "JointTables", "SharedNoise", "of_blocks"]

_IMPOSSIBLE = "No counts can have led to this output. Check the output and its mechanism."
# Draws that the summaries of rows that share their records are made from.
_SUMMARISED, _SEED = 20_000, 20261124
# Products of sums over more lists than exp of this are no doubles.
_MOST_LOG_POINTS = 600.0
# So many numbers at a time are looked at for draws.
_AT_ONCE = 10**7


@final
class JointTables:
    """The counts and shares of tables of public sizes given one output of a `ZeroSumJointMechanism`.

    A priori the shares of each table are `p ~ Dirichlet(prior)` and its counts `x ~ Multinomial(total, p)`. The totals
    are those of the noisy counts.

    Parameters
    ----------
    likelihoods : JointLikelihoods
        From :meth:`pymc_dirdp.mechanisms.ZeroSumJointMechanism.joint_likelihoods`.
    priors : sequence of array_like
        Of the shares of each table, positive.
    log_shares : sequence of array, optional
        Logarithms of the shares of each table, if they are known; then the priors say nothing.

    Raises
    ------
    ArgumentError
        If totals are private, a prior does not fit its table, or no counts can have led to the output.

    Notes
    -----
    The work is `d S**3` for a table of d cells and noise up to S, and S for two cells. All terms are positive.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms import ZeroSumJointMechanism
    >>> seen = ZeroSumJointMechanism([2, 2], 1.0).joint_likelihoods([18, 2, -1, 21])
    >>> [means.round(1).tolist() for means in JointTables(seen, [[1, 1], [1, 1]]).count_means]
    [[17.6, 2.4], [0.8, 19.2]]
    """

    def __init__(
        self, likelihoods: JointLikelihoods, priors: Sequence[ArrayLike], log_shares: Sequence[Array] | None = None
    ) -> None:
        if not all(block.ball.zero_sum for block in likelihoods.blocks):
            raise ArgumentError("Expected the output of a ZeroSumJointMechanism: the numbers of records are public.")
        if len(priors) != len(likelihoods.blocks):
            raise ArgumentError(f"Expected priors for {len(likelihoods.blocks)} tables, got {len(priors)}.")
        known = [None] * len(priors) if log_shares is None else log_shares
        each = zip(likelihoods.blocks, priors, known, strict=True)
        self._tables = [_Table.of(block, prior, shares) for block, prior, shares in each]
        self._inside = [table.log_inside[table.limits] for table in self._tables]
        self._logs = likelihoods.log_weights + np.sum(self._inside, axis=0)
        if np.all(self._logs == -np.inf):
            raise ImpossibleError(_IMPOSSIBLE)

    @property
    def log_inside(self) -> Array:
        """For each radius, the logarithm of the prior of all counts that it allows, with the noisy counts' factors."""
        return np.asarray(np.sum(self._inside, axis=0) + sum(table.log_normaliser for table in self._tables))

    @property
    def log_evidence(self) -> float:
        """Logarithm of the probability of the output, counts and shares summed out."""
        return float(np.logaddexp.reduce(self._logs)) + sum(table.log_normaliser for table in self._tables)

    @cached_property
    def radius_probabilities(self) -> Array:
        """The probability of each radius given the output, in the order of the likelihoods."""
        return np.asarray(np.exp(self._logs - np.logaddexp.reduce(self._logs)))

    @cached_property
    def count_probabilities(self) -> list[list[tuple[Integers, Array]]]:
        """For each cell of each table, the counts that are possible and their probabilities: exact sums."""
        found = []
        for table, inside in zip(self._tables, self._inside, strict=True):
            # What a table on a shell weighs: the radii that reach it, each with its probability over its prior.
            possible = inside > -np.inf
            reach = np.full(len(table.log_inside), -np.inf)
            logs = self._logs[possible] - np.logaddexp.reduce(self._logs) - inside[possible]
            np.logaddexp.at(reach, table.limits[possible], logs)
            found.append(table.marginals(np.logaddexp.accumulate(reach[::-1])[::-1]))
        return found

    @property
    def count_means(self) -> list[Array]:
        """Expected counts of each table: exact sums."""
        return [np.array([x @ p for x, p in cells]) for cells in self.count_probabilities]

    def counts(self, draws: int, rng: np.random.Generator, uniforms: Array | None = None) -> list[Integers]:
        """Independent draws of the counts, one of each table for each draw, which share the radius.

        It is found by inversion of `uniforms`, one for each draw, where other tables share it, too.
        """
        sums = np.cumsum(self.radius_probabilities)
        drawn = rng.random(draws) if uniforms is None else uniforms
        radii = np.minimum(np.searchsorted(sums, drawn * sums[-1], side="right"), len(sums) - 1)
        return [table.draw(table.limits[radii], rng) for table in self._tables]

    def draw(self, draws: int, rng: np.random.Generator) -> list[Draws]:
        """The same with draws of the shares."""
        each = zip(self._tables, self.counts(draws, rng), strict=True)
        return [Draws(counts, draw_shares(counts, table.prior, rng), 1.0) for table, counts in each]


@final
@dataclass(frozen=True, eq=False)
class SharedNoise:
    """The outputs of several tables that share one noise: what they say of its latent radius, they say of each other.

    Attributes
    ----------
    mechanisms : tuple of Mechanism
        All those that share it.
    outputs : tuple of array
        The noisy counts of each table.
    priors : tuple of array
        Those that the tables' shares have for whoever reads another table.
    """

    mechanisms: tuple[Mechanism, ...]
    outputs: tuple[Array, ...]
    priors: tuple[Array, ...]

    @cached_property
    def likelihoods(self) -> list[JointLikelihoods]:
        """For each table the likelihood of its output given those of all others, whose counts are summed over."""
        alone = []
        for mechanism, output in zip(self.mechanisms, self.outputs, strict=True):
            seen = mechanism.joint_rows(output)
            assert seen is not None
            alone.append(seen)
        each = zip(alone, self.priors, strict=True)
        inside = [JointTables(seen, of_blocks(prior, seen)).log_inside for seen, prior in each]
        # The same weights without any table: those of one table alone have the lists of all others.
        shared = self.mechanisms[0].shared_noise
        assert shared is not None
        weights = shared.radius_log_weights
        # Sums before each table and after it, as no infinity can be taken away from a sum again.
        before = np.cumsum([np.zeros_like(weights), *inside[:-1]], axis=0)
        after = np.cumsum([np.zeros_like(weights), *inside[:0:-1]], axis=0)[::-1]
        return [
            replace(seen, log_weights=weights + one + other)
            for seen, one, other in zip(alone, before, after, strict=True)
        ]


def of_blocks(prior: Array, seen: JointLikelihoods) -> list[Array]:
    """The prior of the cells of each block. All rows of a block share its records as the sums of their priors say."""
    return list(prior.reshape(len(seen.blocks), -1))


@final
class JointLaw:
    """The counts and shares of a table whose noise is part of a joint noise, as of a `TableLaw`.

    Parameters
    ----------
    output : Seen
        Of the table.
    likelihoods : JointLikelihoods
        Of its rows.
    beliefs : Beliefs
        Of anyone who infers.
    """

    def __init__(self, output: Seen, likelihoods: JointLikelihoods, beliefs: Beliefs) -> None:
        self.prior = prior_of(output, beliefs.prior)
        self._is_divided = self.prior.size > len(likelihoods.blocks) * self.prior.shape[-1]
        if beliefs.row_prior is not None or beliefs.n_prior is not None:
            which = "the table" if self._is_divided else "each row"
            raise ArgumentError(
                f"The output of {output.name!r} tells how many records {which} holds, and under joint noise the rows "
                "of a table share its records as the sums of their priors say, so there is nothing that row_prior or "
                "n_prior could say. Leave them out."
            )
        told = sum(total for _, total in output.blocks)
        if output.n_records != told:
            raise output.damaged(f"the noisy counts add up to {told} records, and not to the number that was passed")
        self._likelihoods = likelihoods
        self._tables = JointTables(likelihoods, of_blocks(self.prior, likelihoods))

    @property
    def log_evidence(self) -> float:
        """Logarithm of the probability of the output, counts and shares summed out."""
        return self._tables.log_evidence

    @property
    def count_means(self) -> Array:
        """Expected counts, in the shape of the table: exact sums."""
        return np.stack(self._tables.count_means).reshape(self.prior.shape)

    def given(self, log_shares: Array) -> "JointLaw":
        """The distribution of the counts if the shares are known, as of :meth:`TableLaw.given`."""
        if self._is_divided:
            raise ArgumentError(
                "Under joint noise the likelihood of the shares of several rows needs the numbers of records of the "
                "rows. Plan with mechanism='geometric', or release the table as one row."
            )
        law, known = copy.copy(self), of_blocks(log_shares, self._likelihoods)
        law._tables = JointTables(self._likelihoods, of_blocks(self.prior, self._likelihoods), known)
        return law

    def likelihood(self, log_shares: Array) -> tuple[float, Array]:
        """The logarithm of the likelihood of known shares and its gradient, as of :meth:`TableLaw.likelihood`."""
        try:
            law = self.given(log_shares)
        except ImpossibleError:
            return -np.inf, np.zeros(self.prior.shape)
        return law.log_evidence, law.count_means

    def counts(self, draws: int, rng: np.random.Generator, uniforms: Array | None = None) -> tuple[Integers, float]:
        """Independent draws of the counts, shape `(draws, *shape)`, none of them refused."""
        found = np.stack(self._tables.counts(draws, rng, uniforms), axis=1)
        return found.reshape(draws, *self.prior.shape), 1.0

    def draw(self, draws: int, rng: np.random.Generator, uniforms: Array | None = None) -> Draws:
        """Independent draws of counts and shares, in arrays of shape `(draws, *shape)`.

        Tables that share a noise are drawn together by the same `uniforms`, in each draw with the same radius.
        """
        counts, _ = self.counts(draws, rng, uniforms)
        return Draws(counts, draw_shares(counts, self.prior, rng), 1.0)

    def estimate(self, prob: list[float]) -> Estimate:
        """Means, standard deviations and central intervals of shares and counts, cell by cell in the order of rows.

        Where rows share their records, averages over exact draws stand for the sums over the totals of rows.
        """
        if self._is_divided:
            drawn = self.draw(_SUMMARISED, np.random.default_rng(_SEED))
            return replace(summarised(drawn, self.prior, prob, self.log_evidence), count_means=self.count_means.ravel())
        rows = []
        priors = of_blocks(self.prior, self._likelihoods)
        for alpha, cells in zip(priors, self._tables.count_probabilities, strict=True):
            total = round(sum(float(x @ p) for x, p in cells))
            counts = KnownCounts([Spread(int(x[0]), p) for x, p in cells])
            rows.append(RowGiven(alpha, counts, Spread(total, np.ones((1, 1)))))
        return estimate_of_rows(rows, prob, self.log_evidence)


@dataclass(frozen=True, eq=False)
class _Table:
    """The prior of one table by how far it is from its noisy counts.

    Attributes
    ----------
    prior : array, shape (d,)
    noisy, limits : arrays of int
        As in a :class:`BlockLikelihood`.
    log_normaliser : float
        What products of weights are multiplied by to be a prior, as a logarithm.
    weights : array, shape (d, 2 S + 1)
        Of each cell, for changes from -S to S of its noisy count.
    log_scales : array, shape (S + 1,)
        What their products were divided by at each norm, as a logarithm.
    """

    most_norm: ClassVar[int] = 1500
    """States are gains and losses up to this, which takes some seconds for several cells."""

    prior: Array
    noisy: Integers
    limits: Integers
    log_normaliser: float
    weights: Array
    log_scales: Array

    @classmethod
    def of(cls, block: BlockLikelihood, prior: ArrayLike, log_shares: Array | None) -> "_Table":
        alpha, most = positive_array(prior=prior), int(block.limits.max())
        if alpha.shape != block.noisy.shape:
            raise ArgumentError(f"Expected a prior of shape {block.noisy.shape}, got {alpha.shape}.")
        kind = _Pair if alpha.size == 2 else cls
        if most > kind.most_norm:
            raise ArgumentError(
                f"The noise may be as large as {most}, and sums go up to {kind.most_norm}. Ask for a larger epsilon."
            )
        if alpha.size > 2 and block.ball.log_points(most) > _MOST_LOG_POINTS:
            raise ArgumentError(
                f"A table of {alpha.size} cells with joint noise up to {most} has too many possible counts for sums. "
                "Take mechanism='geometric'."
            )
        noisy = np.rint(block.noisy).astype(np.int64)
        if not np.array_equal(noisy, block.noisy) or noisy.sum() < 0:
            raise ArgumentError("Expected integers that add up to a number of records.")
        # The least change after which a count is possible.
        first = np.maximum(-noisy, 0)[:, None]
        if first.sum() > most:
            raise ImpossibleError(_IMPOSSIBLE)
        change = np.arange(-most, most + 1)
        counts = np.maximum(noisy[:, None] + change, 0).astype(np.float64)
        if log_shares is None:
            logs = _log_gamma_ratio(counts, alpha[:, None])  # type: ignore[arg-type]  # It broadcasts.
            total, size = float(noisy.sum()), float(alpha.sum())
            normaliser = gammaln(size) - _log_gamma_ratio(np.array([total]), size)[0] - gammaln(alpha).sum()
        else:
            with np.errstate(invalid="ignore"):
                logs = np.where(counts == 0, 0.0, counts * log_shares[:, None]) - gammaln(counts + 1)
            normaliser = gammaln(float(noisy.sum()) + 1)
        logs = np.where(noisy[:, None] + change >= 0, logs, -np.inf)
        base = np.take_along_axis(logs, first + most, axis=1)
        # A share of 0 leaves its cell empty. Then there is one weight, which is compared with none.
        usual = base > -np.inf
        base = np.where(usual, base, 0.0)
        # On a shell all gains add up to its norm, and so do all losses. So a power of each is free, and with these no
        # weight is above 1.
        gain, loss = (
            float(np.max((logs - base)[allowed] / np.abs(change - first)[allowed], initial=-np.inf))
            for allowed in (usual & (change > first), usual & (change < first) & (logs > -np.inf))
        )
        gain, loss = (slope if np.isfinite(slope) else 0.0 for slope in (gain, loss))
        weights = np.exp(logs - base - gain * (np.maximum(change, 0) - first) - loss * np.maximum(-change, 0))
        scales = base.sum() - gain * first.sum() + (gain + loss) * np.arange(most + 1)
        return kind(alpha, noisy, block.limits, float(normaliser), weights, scales)

    @property
    def _reach(self) -> int:
        return len(self.log_scales) - 1

    def _steps(self, cell: int) -> tuple[Array, float, Array]:
        """Matrices that add a gain of a cell, or a loss, to all states, and the weight of no change."""
        s, weights = self._reach, self.weights[cell]
        difference = np.subtract.outer(np.arange(s + 1), np.arange(s + 1))
        later = difference > 0
        gain = np.where(later, weights[np.where(later, s + difference, s)], 0.0)
        loss = np.where(later, weights[np.where(later, s - difference, s)], 0.0)
        return gain, float(weights[s]), loss

    @cached_property
    def _states(self) -> list[Array]:
        """Sums over the first cells but the last one, by their gains (rows) and losses (columns)."""
        s = self._reach
        state = np.zeros((s + 1, s + 1))
        # The first cell either gains or loses.
        state[:, 0], state[0, :] = self.weights[0, s:], self.weights[0, s::-1]
        states = [state]
        for cell in range(1, len(self.prior) - 1):
            gain, none, loss = self._steps(cell)
            states.append(gain @ states[-1] + none * states[-1] + states[-1] @ loss.T)
        return states

    @cached_property
    def _on_shells(self) -> Array:
        """The prior of all counts at each norm, but for `log_scales` and `log_normaliser`."""
        gain, none, loss = self._steps(len(self.prior) - 1)
        last = self._states[-1]
        return np.asarray(np.sum(gain * last.T, axis=1) + none * np.diag(last) + np.sum(last * loss, axis=1))

    @cached_property
    def log_inside(self) -> Array:
        """The logarithm of the prior of all counts up to each norm, but for `log_normaliser`."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.logaddexp.accumulate(np.log(self._on_shells) + self.log_scales))

    def marginals(self, log_reach: Array) -> list[tuple[Integers, Array]]:
        """For each cell its counts and their probabilities, if a table on a shell has this weight: the sums backwards.

        The weight of a count is that of its cell times what all other cells add, which is the derivative of the sum.
        """
        reach = np.exp(np.where(self._on_shells > 0, log_reach + self.log_scales, -np.inf))
        s, found = self._reach, []
        after = np.diag(reach)
        for cell in range(len(self.prior) - 1, 0, -1):
            before = self._states[cell - 1]
            gains = _diagonals(after @ before.T)
            losses = _diagonals(after.T @ before)
            share = np.concatenate([losses[:0:-1], [float(np.sum(after * before))], gains[1:]])
            found.append(self._possible(cell, self.weights[cell] * share))
            gain, none, loss = self._steps(cell)
            after = gain.T @ after + none * after + after @ loss
        found.append(self._possible(0, self.weights[0] * np.concatenate([after[0, s:0:-1], after[:, 0]])))
        return found[::-1]

    def _possible(self, cell: int, weights: Array) -> tuple[Integers, Array]:
        counts = self.noisy[cell] + np.arange(-self._reach, self._reach + 1)
        return counts[counts >= 0], weights[counts >= 0] / weights.sum()

    def draw(self, limits: Integers, rng: np.random.Generator) -> Integers:
        """One table for each limit of the norm, shape `(draws, d)`."""
        some = max(_AT_ONCE // self.weights.shape[1], 1)
        parts = [self._draw(limits[start : start + some], rng) for start in range(0, len(limits), some)]
        return np.concatenate(parts)

    def _norms(self, limits: Integers, rng: np.random.Generator) -> Integers:
        found = np.searchsorted(self.log_inside, np.log1p(-rng.random(len(limits))) + self.log_inside[limits])
        return np.minimum(found, limits)

    def _draw(self, limits: Integers, rng: np.random.Generator) -> Integers:
        s, d, draws = self._reach, len(self.prior), len(limits)
        gains = self._norms(limits, rng)
        losses = gains
        changes = np.zeros((draws, d), dtype=np.int64)
        step = np.arange(1, s + 1)
        for cell in range(d - 1, 0, -1):
            state, weights = self._states[cell - 1], self.weights[cell]
            up = np.where(step <= gains[:, None], state[np.maximum(gains[:, None] - step, 0), losses[:, None]], 0.0)
            down = np.where(step <= losses[:, None], state[gains[:, None], np.maximum(losses[:, None] - step, 0)], 0.0)
            share = np.concatenate([down[:, ::-1], state[gains, losses][:, None], up], axis=1) * weights
            change = _chosen(share, rng) - s
            gains, losses = gains - np.maximum(change, 0), losses - np.maximum(-change, 0)
            changes[:, cell] = change
        changes[:, 0] = gains - losses
        return self.noisy + changes


@final
@dataclass(frozen=True, eq=False)
class _Pair(_Table):
    """A table of two cells: what one gains the other loses, so the sums are those of one list."""

    most_norm: ClassVar[int] = 2**20

    @property
    def _products(self) -> Array:
        """The weights of both cells for changes from -S to S of the first."""
        return np.asarray(self.weights[0] * self.weights[1, ::-1])

    @property
    @override
    def _on_shells(self) -> Array:
        s, products = self._reach, self._products
        return np.concatenate([products[s : s + 1], products[s + 1 :] + products[s - 1 :: -1][:s]])

    @override
    def marginals(self, log_reach: Array) -> list[tuple[Integers, Array]]:
        reach = np.exp(np.where(self._on_shells > 0, log_reach + self.log_scales, -np.inf))
        weights = self._products * np.concatenate([reach[:0:-1], reach])
        return [self._possible(0, weights), self._possible(1, weights[::-1])]

    @override
    def draw(self, limits: Integers, rng: np.random.Generator) -> Integers:
        norms, products = self._norms(limits, rng), self._products
        more, less = products[self._reach + norms], products[self._reach - norms]
        change = np.where((more + less) * rng.random(len(limits)) < more, norms, -norms)
        return np.asarray(self.noisy + np.stack([change, -change], axis=-1))


def _diagonals(square: Array) -> Array:
    """Sums of the main diagonal and of each one below it."""
    return np.array([np.trace(square, -k) for k in range(len(square))])


def _chosen(weights: Array, rng: np.random.Generator) -> Integers:
    """A column of each row, with a probability in proportion to its weight."""
    sums = np.cumsum(weights, axis=1)
    return np.sum(sums < (1 - rng.random((len(sums), 1))) * sums[:, -1:], axis=1)
