"""A row whose total is private, and every total as likely as another: cells that are independent given one number."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import loggamma

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.numbers import Distributions, NumberDraws
from pymc_dirdp.inference.rows import RowPosterior
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio

__all__ = ["FreeTotal", "exponential_mixture"]


# Relative error of the sum of exponentials, on the logarithmic scale, and what is left out at its ends.
_ERROR = -21.0
_LEFT_OUT = 32.0
# Errors of the sums over single counts, at the rates that matter and elsewhere.
_PRECISE, _ROUGH = 1e-11, 1e-3
# Where a rate times the largest total is below that, its exponential is 1.
_FLAT = 1e-10
# Between these rates nothing is overlooked before the rule is laid.
_COARSE = 0.5
# Rates with less probability do not matter, nor do totals so many standard deviations away.
_NEGLIGIBLE, _FAR = 1e-9, 12.0
# Numbers of a distribution that are stored whole where draws are few.
_NARROW = 2048
_MANY = 10_000
_MOST_ROUNDS = 1000
# So many counts are proposed at a time.
_AT_ONCE = 2**20


def exponential_mixture(excess: float) -> float:
    """The step at which the trapezoidal rule in `log rate` makes a Beta function a sum of exponentials.

    `B(n + 1, excess)` is the integral of `exp(-(n + 1) s) (1 - exp(-s))**(excess - 1)` over rates s > 0. In `log s` it
    is smooth and falls off at both ends. So the rule is wrong by the Fourier transform at `y = 2 pi / step`, which is
    at most about `|Gamma(excess + i y)| / Gamma(excess)` of the whole (Theory, section 16).

    Examples
    --------
    >>> round(exponential_mixture(1.0), 2)
    0.41
    """
    frequency = 12.0
    while (loggamma(excess + 1j * frequency) - loggamma(excess)).real > _ERROR:
        frequency *= 1.05
    return 2 * np.pi / frequency


@dataclass(frozen=True, eq=False)
class FreeTotal:
    """The counts of one row given an output, if every total from `least_total` on is as likely as another.

    A Dirichlet-multinomial prior with a flat total weighs tables by `n! / Gamma(n + a0)` and one factor for each cell.
    Where `a0 > 1`, `n! / Gamma(n + a0)` is an integral of `t**n` with a positive weight. So given t the cells are
    independent, and t has a density that is known. No sum over tables of one total is needed.

    Parameters
    ----------
    row : RowPosterior
        The row, with the largest total that is possible. A factor of the likelihood that depends on the total alone is
        not looked at.
    least_total : int
        The least one.

    Examples
    --------
    >>> z = np.array([3.0, 12.0, 8.0])
    >>> row = RowPosterior(
    ...     alpha=[1, 1, 1], total=100, log_likelihood=lambda counts, cells: -np.abs(z[cells] - counts) / 2
    ... )
    >>> counts, _ = FreeTotal(row).draw(4000, np.random.default_rng(1))
    >>> round(counts.sum(axis=1).mean())
    22
    """

    row: RowPosterior
    least_total: int = 0

    @cached_property
    def _cells(self) -> Distributions:
        return self.row.cells()

    @cached_property
    def nodes(self) -> tuple[Array, Array]:
        """Rates `s = -log t`, rising, and their probabilities given the output."""
        excess = float(self.row.alpha.sum()) - 1
        if excess <= 0:
            # The weight of a total rises with it. No integral is needed, for draws are refused in proportion.
            return np.zeros(1), np.ones(1)
        step = exponential_mixture(excess)
        # The density rises up to the first of these rates, and falls from the last one on.
        coarse = np.arange(np.log(excess / (self.row.total + excess + 1)), np.log(2 + np.log1p(excess)), _COARSE)
        # Rates that lie far apart need rules of their own.
        rough = np.array([self._log_density(self.row.cells(), u, _ROUGH) for u in coarse.tolist()])
        near = coarse[rough > rough.max() - _LEFT_OUT]
        middle, lowest = int(coarse[np.argmax(rough)] // step), np.log(_FLAT / (self.row.total + 1))
        found = {middle: self._log_density(self._cells, middle * step, _PRECISE)}
        for sign, end in ((-1, near[0]), (1, near[-1])):
            k = middle
            while sign > 0 or k * step > lowest:
                k += sign
                found[k] = self._log_density(self._cells, k * step, _PRECISE)
                if sign * (k * step - end) > 0 and found[k] < max(found.values()) - _LEFT_OUT:
                    break
            else:
                # What is left follows a geometric series.
                found[k] -= np.log(-np.expm1(-excess * step))
        order = np.array(sorted(found))
        logs = np.array([found[k] for k in order.tolist()])
        masses = np.exp(logs - logs.max())
        return np.exp(order * step), masses / masses.sum()

    @cached_property
    def is_cut_off(self) -> bool:
        """Whether totals above the largest one, were they possible, would have any probability to speak of."""
        rates, masses = self.nodes
        self._cells.settle(-float(rates[masses > _NEGLIGIBLE][0]), tolerance=_PRECISE, short=False)
        total = self._cells.means.sum() + _FAR * np.sqrt(self._cells.variances.sum())
        return bool(total > self.row.total or (self._cells.highs >= self.row.most).any())

    def _log_density(self, cells: Distributions, u: float, tolerance: float) -> float:
        """Logarithm of the density of `u = log s` given the output, up to a constant."""
        s, excess = np.exp(u), float(self.row.alpha.sum()) - 1
        cells.settle(-s, tolerance=tolerance, short=False)
        return float(u - s + (excess - 1) * np.log(-np.expm1(-s)) + cells.log_totals.sum())

    def draw(self, draws: int, rng: np.random.Generator) -> tuple[Integers, float]:
        """Independent tables given the output, shape `(draws, d)`, and the share of proposals that was accepted."""
        rates, masses = self.nodes
        found: list[Integers] = []
        size, proposed, accepted = draws, 0, 0
        for _ in range(_MOST_ROUNDS):
            tables = self._proposed(rng.multinomial(size, masses), rates, rng)
            tables = tables[self._accepted(tables.sum(axis=1), rng)]
            found.append(tables)
            proposed, accepted = proposed + size, accepted + len(tables)
            if accepted >= draws:
                # Tables stand in the order of their rates.
                together = np.concatenate(found)
                return rng.permutation(together)[:draws], accepted / proposed
            size = min(2 * proposed * (1 + (draws - accepted) // (1 + accepted)), 1 + _AT_ONCE // self._cells.size)
        raise ArgumentError(
            "The output is too unlikely under its totals for rejection sampling. Check the output and n_records."
        )

    def _proposed(self, sizes: Integers, rates: Array, rng: np.random.Generator) -> Integers:
        tables = []
        for rate, size in zip(rates.tolist(), sizes.tolist(), strict=True):
            if size:
                self._cells.settle(-rate, tolerance=_PRECISE)
                # Whole distributions are looked up only where many draws are made from them.
                numbers = NumberDraws(self._cells, narrow=_NARROW if size < _MANY else None)
                tables.append(np.stack([numbers.draw(i, size, rng) for i in range(self._cells.size)], axis=1))
        return np.concatenate(tables)

    def _accepted(self, totals: Integers, rng: np.random.Generator) -> NDArray[np.bool_]:
        possible = (totals >= self.least_total) & (totals <= self.row.total)
        concentration = float(self.row.alpha.sum())
        if concentration >= 1:
            return possible
        # n! / Gamma(n + a0) rises with n.
        ends = np.append(np.minimum(totals, self.row.total), self.row.total).astype(np.float64)
        logs = -_log_gamma_ratio(ends, concentration)
        accepted: NDArray[np.bool_] = possible & (np.log1p(-rng.random(len(totals))) <= logs[:-1] - logs[-1])
        return accepted
