"""The law of a table whose output tells how many records each of several blocks of rows holds."""

from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.estimates import Estimate
from pymc_dirdp.inference.posterior import Draws
from pymc_dirdp.inference.table_law import Beliefs, TableLaw
from pymc_dirdp.stored.outputs import Output

__all__ = ["BlockLaws", "law_of"]

Array = NDArray[np.float64]


def law_of(output: Output, beliefs: Beliefs) -> "TableLaw | BlockLaws":
    """The law of a table given its output: in one piece, or by blocks whose numbers of records are known."""
    return BlockLaws(output, beliefs) if len(output.blocks) > 1 else TableLaw(output, beliefs)


@final
class BlockLaws:
    """Blocks of rows with known numbers of records are independent given the output, so each has a law of its own.

    Parameters and errors are those of :class:`~pymc_dirdp.inference.table_law.TableLaw`.
    """

    def __init__(self, output: Output, beliefs: Beliefs) -> None:
        # The whole table checks the shapes of the beliefs.
        self.prior = TableLaw(output, beliefs).prior
        self._rows = [rows for rows, _ in output.blocks]
        if beliefs.row_prior is not None and not output.rows_are_divided:
            raise ArgumentError(
                f"The output of {output.name!r} tells how many records each row holds, so there is nothing that "
                "row_prior could say. Leave it out."
            )
        alphas = self.prior.reshape(-1, output.prior.shape[-1])
        shares = None if beliefs.row_prior is None else np.ravel(beliefs.row_prior)
        self._laws = [
            TableLaw(part, Beliefs(prior=alphas[rows], row_prior=None if shares is None else shares[rows]))
            for part, rows in zip(output.parts(), self._rows, strict=True)
        ]
        self.is_exact = all(law.is_exact for law in self._laws)

    @cached_property
    def log_evidence(self) -> float:
        """Logarithm of the probability of what was put out, counts and shares summed out."""
        return float(sum(law.log_evidence for law in self._laws))

    def draw(self, draws: int, rng: np.random.Generator) -> Draws:
        """Independent draws of counts and shares, in arrays of shape `(draws, *shape)`."""
        drawn = [law.draw(draws, rng) for law in self._laws]
        shape = (draws, *self.prior.shape)
        counts = self._joined([part.counts.reshape(draws, -1) for part in drawn], 1).reshape(shape)
        shares = self._joined([part.shares.reshape(draws, -1) for part in drawn], 1).reshape(shape)
        return Draws(counts, shares, min(part.acceptance for part in drawn))

    def estimate(self, prob: list[float], rng: np.random.Generator) -> Estimate:
        """Means, standard deviations and central intervals of shares and counts, cell by cell in the order of rows."""
        found = [law.estimate(prob, rng) for law in self._laws]
        return Estimate(
            share_means=self._joined([part.share_means for part in found], 0),
            share_sds=self._joined([part.share_sds for part in found], 0),
            count_means=self._joined([part.count_means for part in found], 0),
            count_sds=self._joined([part.count_sds for part in found], 0),
            prob=found[0].prob,
            share_intervals=self._joined([part.share_intervals for part in found], 1),
            count_intervals=self._joined([part.count_intervals for part in found], 1),
            log_evidence=self.log_evidence,
        )

    def _joined[Number: np.generic](self, parts: list[NDArray[Number]], axis: int) -> NDArray[Number]:
        """Values of the cells of each part along an axis, put into the order of the whole table."""
        d = self.prior.shape[-1]
        cells = [(rows[:, None] * d + np.arange(d)).ravel() for rows in self._rows]
        return np.take(np.concatenate(parts, axis=axis), np.argsort(np.concatenate(cells)), axis=axis)
