"""One row whose total is not known: sums over every total that matters, of the sums over its tables."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from pymc_dirdp.inference.number_laws import NumberLaws
from pymc_dirdp.inference.product_law import ProductLaw
from pymc_dirdp.inference.quantiles import Mixture, shorten
from pymc_dirdp.inference.tilted import TiltedCells, solved

__all__ = ["UnknownTotal"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# Totals with less probability are left out.
_NEGLIGIBLE = 1e-13
# A tilt serves totals up to so many standard deviations of the sum away from its own.
_NEAR = 2.0
# So many pairs of a count and a total are looked at at a time.
_AT_A_TIME = 2**18


class UnknownTotal:
    """The counts of one row given an output, mixed over the distribution of the row's total.

    Parameters
    ----------
    law : ProductLaw
        Of the row, with the largest total that it may have.
    totals : array of int, shape (m,)
        Every total that matters, rising.
    masses : array, shape (m,)
        Their probabilities given all that is known.
    """

    def __init__(self, law: ProductLaw, totals: Integers, masses: Array) -> None:
        self._law = law
        kept = masses > _NEGLIGIBLE
        self.totals, masses = totals[kept], masses[kept]
        self._log_masses = np.log(masses / masses.sum())
        self._runs = list(self._solved())
        self.counts = NumberLaws(
            self._log_weight,
            len(law.alpha),
            law.least,
            int(self.totals[-1]) - law.least * (len(law.alpha) - 1),
            smooth=law.smooth,
            noise=law.noise,
        )
        self.counts.settle(0.0)

    @property
    def mixture(self) -> Mixture:
        """The Beta distributions of the shares given each count and total."""
        laws = self.counts
        shorten(laws, int(self.totals[0]))
        parts = []
        for part in np.array_split(np.arange(len(laws.nodes)), 1 + len(laws.nodes) * len(self.totals) // _AT_A_TIME):
            joint = self._log_joint(laws.nodes[part], laws.node_law[part])
            masses = laws.masses[part, None] * np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
            node, total = np.nonzero(masses > _NEGLIGIBLE)
            parts.append((part[node], total, masses[node, total]))
        node, total, masses = (np.concatenate(values) for values in zip(*parts, strict=True))
        counts = laws.nodes[node]
        return Mixture.of_counts(self._law.alpha, counts, self.totals[total] - counts, masses, laws.node_law[node])

    def _solved(self) -> Iterator[tuple[TiltedCells, Array, slice]]:
        """Tilted cells, the logarithms of their sum's probabilities, and the run of totals that they serve."""
        first, width = 0, 0.0
        while first < len(self.totals):
            ahead = np.searchsorted(self.totals, self.totals[first] + width, side="right") - 1
            tilted = solved(self._law.cells(), int(self.totals[ahead]))
            width = min(_NEAR * float(np.sqrt(tilted.cells.variances.sum())), tilted.reach)
            near = np.abs(self.totals - tilted.total) <= width
            if not near[first]:
                # The widths differ; the first of those that are left is never passed over.
                width = 0.0
                continue
            run = slice(first, int(np.flatnonzero(near)[-1]) + 1)
            yield tilted, tilted.sums.log_sum(self.totals[run]), run
            first = run.stop

    def _log_weight(self, x: Array, cell: Integers) -> Array:
        x, cell = np.broadcast_arrays(x, cell)
        parts = np.array_split(np.arange(x.size), 1 + x.size * len(self.totals) // _AT_A_TIME)
        joint = [logsumexp(self._log_joint(x.ravel()[part], cell.ravel()[part]), axis=1) for part in parts]
        return np.concatenate(joint).reshape(x.shape)

    def _log_joint(self, x: Array, cell: Integers) -> Array:
        """Logarithms of the probabilities of counts together with each of the totals, shape `(len(x), totals)`."""
        joint = np.empty((x.size, len(self.totals)))
        for tilted, log_sum, run in self._runs:
            own = tilted.cells.log_pmf(x, cell)
            # What the other cells add up to depends on the difference of total and count.
            shifted = x[:, None] + (tilted.total - self.totals[run])
            rest = tilted.sums.log_rest(shifted, np.broadcast_to(cell[:, None], shifted.shape))
            joint[:, run] = own[:, None] + rest + (self._log_masses[run] - log_sum)
        return joint
