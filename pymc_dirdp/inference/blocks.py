"""The distribution of a table whose output tells how many records each of several blocks of rows holds."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.beliefs import Beliefs
from pymc_dirdp.inference.estimates import Estimate
from pymc_dirdp.inference.joint_tables import JointLaw
from pymc_dirdp.inference.posterior import Draws
from pymc_dirdp.inference.seen import Labels, Seen
from pymc_dirdp.inference.table_law import TableLaw
from pymc_dirdp.mechanisms.row_likelihood import RowLikelihood

__all__ = ["BlockLaws", "law_of", "rows_are_divided"]

Array = NDArray[np.float64]


def law_of(seen: Seen, beliefs: Beliefs) -> "TableLaw | BlockLaws | JointLaw":
    """The distribution of a table given its output: in one piece, or by blocks whose numbers of records are known."""
    if seen.joint_rows is not None:
        return JointLaw(seen, seen.joint_rows, beliefs)
    return BlockLaws(seen, beliefs) if len(seen.blocks) > 1 else TableLaw(seen, beliefs)


def rows_are_divided(seen: Seen) -> bool:
    """Whether some rows share a number of records in a way that nothing tells."""
    sizes = [len(rows) for rows, _ in seen.blocks] or [seen.prior.size // seen.prior.shape[-1]]
    return max(sizes) > 1


@final
@dataclass(frozen=True, eq=False)
class _Block:
    """Some rows of a table, with a number of records of their own."""

    whole: Seen
    rows: NDArray[np.intp]
    n_records: int

    @property
    def prior(self) -> Array:
        return self.whole.prior.reshape(-1, self.whole.prior.shape[-1])[self.rows]

    @property
    def possible_records(self) -> None:
        return None

    @property
    def blocks(self) -> list[tuple[NDArray[np.intp], int]]:
        return []

    @property
    def name(self) -> str:
        return self.whole.name

    @property
    def least(self) -> int:
        return self.whole.least

    @property
    def family(self) -> str:
        return self.whole.family

    @property
    def share_labels(self) -> Labels:
        return self.whole.share_labels

    @property
    def cell_labels(self) -> Labels:
        return self.whole.cell_labels

    @property
    def mechanism_names(self) -> tuple[str, ...]:
        return self.whole.mechanism_names

    @property
    def observed(self) -> Sequence[tuple[Array, Labels]]:
        return self.whole.observed

    def row_likelihoods(self) -> list[list[RowLikelihood]]:
        of_all = self.whole.row_likelihoods()
        return [of_all[row] for row in self.rows.tolist()]

    @property
    def cell_noise(self) -> None:
        """Some rows are no table of their own here."""
        return None

    @property
    def joint_rows(self) -> None:
        """Blocks of rows are of outputs whose rows are independent."""
        return None

    def damaged(self, problem: str) -> Exception:
        return self.whole.damaged(problem)


@final
class BlockLaws:
    """Blocks of rows with known numbers of records are independent given the output, so each has a law of its own.

    Parameters and errors are those of :class:`~pymc_dirdp.inference.table_law.TableLaw`.
    """

    def __init__(self, output: Seen, beliefs: Beliefs) -> None:
        # The whole table checks the shapes of the beliefs.
        self.prior = TableLaw(output, beliefs).prior
        self._rows = [rows for rows, _ in output.blocks]
        if beliefs.row_prior is not None and not rows_are_divided(output):
            raise ArgumentError(
                f"The output of {output.name!r} tells how many records each row holds, so there is nothing that "
                "row_prior could say. Leave it out."
            )
        alphas = self.prior.reshape(-1, output.prior.shape[-1])
        shares = None if beliefs.row_prior is None else np.ravel(beliefs.row_prior)
        self._laws = [
            TableLaw(
                _Block(output, rows, total),
                Beliefs(prior=alphas[rows], row_prior=None if shares is None else shares[rows]),
            )
            for rows, total in output.blocks
        ]

    @cached_property
    def log_evidence(self) -> float:
        """Logarithm of the probability of the output, counts and shares summed out."""
        return float(sum(law.log_evidence for law in self._laws))

    def given(self, log_shares: Array) -> "BlockLaws":
        """The distribution of the counts if the shares are known, as of :meth:`TableLaw.given`."""
        law = copy.copy(self)
        law.__dict__.pop("log_evidence", None)
        rows = log_shares.reshape(-1, self.prior.shape[-1])
        law._laws = [each.given(rows[of]) for each, of in zip(self._laws, self._rows, strict=True)]
        return law

    def likelihood(self, log_shares: Array) -> tuple[float, Array]:
        """The logarithm of the likelihood of known shares and its gradient, as of :meth:`TableLaw.likelihood`."""
        rows = log_shares.reshape(-1, self.prior.shape[-1])
        found = [law.likelihood(rows[of]) for law, of in zip(self._laws, self._rows, strict=True)]
        value = float(sum(each for each, _ in found))
        if value == -np.inf:
            return value, np.zeros(self.prior.shape)
        return value, self._joined([means.ravel() for _, means in found], 0).reshape(self.prior.shape)

    @property
    def count_means(self) -> Array:
        """Expected counts, in the shape of the table: exact sums."""
        return self._joined([law.count_means.ravel() for law in self._laws], 0).reshape(self.prior.shape)

    def counts(self, draws: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], float]:
        """Independent draws of the counts, shape `(draws, *shape)`, and the share of proposals that was accepted."""
        drawn = [law.counts(draws, rng) for law in self._laws]
        joined = self._joined([counts.reshape(draws, -1) for counts, _ in drawn], 1)
        return joined.reshape(draws, *self.prior.shape), min(acceptance for _, acceptance in drawn)

    def draw(self, draws: int, rng: np.random.Generator) -> Draws:
        """Independent draws of counts and shares, in arrays of shape `(draws, *shape)`."""
        drawn = [law.draw(draws, rng) for law in self._laws]
        shape = (draws, *self.prior.shape)
        counts = self._joined([part.counts.reshape(draws, -1) for part in drawn], 1).reshape(shape)
        shares = self._joined([part.shares.reshape(draws, -1) for part in drawn], 1).reshape(shape)
        return Draws(counts, shares, min(part.acceptance for part in drawn))

    def estimate(self, prob: list[float]) -> Estimate:
        """Means, standard deviations and central intervals of shares and counts, cell by cell in the order of rows."""
        found = [law.estimate(prob) for law in self._laws]
        return Estimate(
            share_means=self._joined([part.share_means for part in found], 0),
            share_sds=self._joined([part.share_sds for part in found], 0),
            count_means=self._joined([part.count_means for part in found], 0),
            count_sds=self._joined([part.count_sds for part in found], 0),
            prob=found[0].prob,
            count_intervals=self._joined([part.count_intervals for part in found], 1),
            log_evidence=self.log_evidence,
            share_quantiles=lambda ends: self._joined([part.share_quantiles(ends) for part in found], 1),
        )

    def _joined[Number: np.generic](self, parts: list[NDArray[Number]], axis: int) -> NDArray[Number]:
        """Values of the cells of each part along an axis, put into the order of the whole table."""
        d = self.prior.shape[-1]
        cells = [(rows[:, None] * d + np.arange(d)).ravel() for rows in self._rows]
        return np.take(np.concatenate(parts, axis=axis), np.argsort(np.concatenate(cells)), axis=axis)
