"""The counts and shares of several tables given one joint release: exact sums and draws, as a mixture over the radius.

Given the radius the tables are independent, and each is its prior restricted to a ball around its noisy counts. What is
known of each by its distance from these is in :mod:`pymc_dirdp.inference.shells`.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.estimates import (
    Draws,
    Estimate,
    KnownRows,
    RowGiven,
    draw_shares,
    estimate_of_rows,
    given_total,
    listed,
    summarised,
)
from pymc_dirdp.inference.numbers import CUT, ImpossibleError
from pymc_dirdp.inference.observed_table import Beliefs, ObservedTable, OfTotal, number_of, prior_of
from pymc_dirdp.inference.shells import IMPOSSIBLE, Shells
from pymc_dirdp.inference.tree import Spread
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.joint import JointLikelihoods

# Draws that the summaries of rows that share their records are made from.
_SUMMARISED, _SEED = 20_000, 20261124


@final
class JointTables:
    """The counts and shares of tables given one output of a `JointMechanism`.

    A priori the shares of each table are `p ~ Dirichlet(prior)` and its counts `x ~ Multinomial(total, p)`. Where noise
    adds up to 0, the totals are those of the noisy counts; otherwise every total is as likely as another, or as
    `log_numbers` says.

    Parameters
    ----------
    likelihoods : JointLikelihoods
        From :meth:`pymc_dirdp.mechanisms.JointMechanism.joint_likelihoods`.
    priors : sequence of array_like
        Of the shares of each table, positive.
    log_shares : sequence of array, optional
        Logarithms of the shares of each table, if they are known; then the priors say nothing.
    log_numbers : callable, optional
        Logarithms of the prior weights of an array of private totals, of each table.

    Raises
    ------
    ArgumentError
        If a prior does not fit its table, or no counts can have led to the output.

    Notes
    -----
    The work is `d S**3` for a table of d cells and noise up to S, and S for two cells with a public total. All terms
    are positive.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms import ZeroSumJointMechanism
    >>> seen = ZeroSumJointMechanism([2, 2], 1.0).joint_likelihoods([18, 2, -1, 21])
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
        each = zip(likelihoods.blocks, priors, known, strict=True)
        self._tables = [Shells.of(block, prior, shares, log_numbers) for block, prior, shares in each]
        self._inside = [table.log_inside[table.limits] for table in self._tables]
        self._logs = likelihoods.log_weights + np.sum(self._inside, axis=0)
        if np.all(self._logs == -np.inf):
            raise ImpossibleError(IMPOSSIBLE)

    @property
    def log_inside(self) -> Array:
        """For each radius, the logarithm of the prior of all counts that it allows."""
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
        found = []
        for table, inside in zip(self._tables, self._inside, strict=True):
            # What a table on a shell weighs: the radii that reach it, each with its probability over its prior.
            possible = inside > -np.inf
            reach = np.full(len(table.log_inside), -np.inf)
            logs = self._logs[possible] - np.logaddexp.reduce(self._logs) - inside[possible]
            np.logaddexp.at(reach, table.limits[possible], logs)
            found.append(table.weights(np.logaddexp.accumulate(reach[::-1])[::-1]))
        return found

    @cached_property
    def count_probabilities(self) -> list[list[Spread]]:
        """For each cell of each table, the probabilities of its counts: exact sums."""
        return [table.marginals(weights) for table, weights in zip(self._tables, self._weights, strict=True)]

    @cached_property
    def rows(self) -> list[KnownRows | RowGiven]:
        """The tables as rows, for summaries. Where totals are private, these are without the quantiles of shares."""
        found: list[KnownRows | RowGiven] = []
        for table, weights, cells in zip(self._tables, self._weights, self.count_probabilities, strict=True):
            total = table.totals(weights)
            if table.zero_sum:
                found.append(KnownRows(table.alpha[None], np.array([total.low]), listed(cells)[0].trimmed(CUT)))
            else:
                whole = Spread(total.low, total.values[None])
                cells = table.given(weights, given_total(table.alpha, whole))
                found.append(RowGiven(table.alpha, [listed(cells)]))
        return found

    @property
    def count_means(self) -> list[Array]:
        """Expected counts of each table: exact sums."""
        return [np.array([cell.values @ cell.numbers for cell in cells]) for cells in self.count_probabilities]

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
        return [Draws(counts, draw_shares(counts, table.alpha, rng), 1.0) for table, counts in each]


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
        The priors of the tables' shares when another table is read.
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
class JointPosterior:
    """The counts and shares of a table whose noise is part of a joint noise, as of a `TablePosterior`.

    Parameters
    ----------
    output : ObservedTable
        Of the table.
    likelihoods : JointLikelihoods
        Of its rows.
    beliefs : Beliefs
        The analyst's priors of private totals.
    """

    def __init__(self, output: ObservedTable, likelihoods: JointLikelihoods, beliefs: Beliefs) -> None:
        self.prior = prior_of(output, beliefs.prior)
        self._is_divided = self.prior.size > len(likelihoods.blocks) * self.prior.shape[-1]
        if beliefs.row_prior is not None:
            raise ArgumentError(
                f"Leave row_prior out: under joint noise the prior of {output.name!r} already divides its records "
                "among rows, or each row has a number of its own."
            )
        self._likelihoods, self._is_private = likelihoods, not likelihoods.blocks[0].ball.zero_sum
        number, log_prior = number_of(output, beliefs.n_prior)
        total = sum(number for _, number in output.blocks)
        if not self._is_private and number != total:
            raise output.damaged(f"the noisy counts add up to {total} records, and not to the number that was passed")
        if log_prior is None and self._is_private:
            if len(likelihoods.blocks) > 1:
                raise ArgumentError(
                    f"Take ZeroSumJointTableMechanism, or adjacency='add-remove': only the total of {output.name!r} is "
                    "public, and how many records each row holds is not."
                )
            log_prior = lambda totals: np.where(totals == number, 0.0, -np.inf)  # noqa: E731
        # Numbers above the largest one are asked for, too.
        self._log_numbers: OfTotal | None = log_prior and (
            lambda totals: np.where(totals <= number, log_prior(np.minimum(totals, number)), -np.inf)
        )
        self._tables = self._given(None)

    @property
    def log_evidence(self) -> float:
        """Logarithm of the probability of the output, counts and shares summed out."""
        return self._tables.log_evidence

    @property
    def count_means(self) -> Array:
        """Expected counts, in the shape of the table: exact sums."""
        return np.stack(self._tables.count_means).reshape(self.prior.shape)

    def given(self, log_shares: Array) -> "JointPosterior":
        """The distribution of the counts if the shares are known, as of :meth:`TablePosterior.given`."""
        if self._is_divided:
            raise ArgumentError(
                "Under joint noise the likelihood of the shares of several rows needs the numbers of records of the "
                "rows. Plan with mechanism='geometric', or release the table as one row."
            )
        given = copy.copy(self)
        given._tables = self._given(of_blocks(log_shares, self._likelihoods))
        return given

    def _given(self, log_shares: list[Array] | None) -> JointTables:
        seen = self._likelihoods
        return JointTables(seen, of_blocks(self.prior, seen), log_shares, self._log_numbers)

    def likelihood(self, log_shares: Array) -> tuple[float, Array]:
        """The logarithm of the likelihood of known shares and its gradient, as of :meth:`TablePosterior.likelihood`."""
        try:
            given = self.given(log_shares)
        except ImpossibleError:
            return -np.inf, np.zeros(self.prior.shape)
        return given.log_evidence, given.count_means

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

        Where rows share their records, averages over exact draws stand for the sums over the totals of rows, and where
        totals are private, quantiles of shares are those of draws.
        """
        if self._is_divided:
            drawn = self.draw(_SUMMARISED, np.random.default_rng(_SEED))
            return replace(summarised(drawn, self.prior, prob, self.log_evidence), count_means=self.count_means.ravel())
        found = estimate_of_rows(self._tables.rows, prob, self.log_evidence)
        if not self._is_private:
            return found
        shares = self.draw(_SUMMARISED, np.random.default_rng(_SEED)).shares.reshape(_SUMMARISED, -1)
        return replace(
            found, share_quantiles=lambda ends: np.quantile(shares, ends, axis=0), caveat="averages over exact draws"
        )
