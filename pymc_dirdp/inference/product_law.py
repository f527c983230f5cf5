"""Counts given an output: a Dirichlet-multinomial prior, reweighted by one likelihood a cell."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from pymc_dirdp.checks import integer, positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.number_laws import LogWeight, NumberLaws
from pymc_dirdp.inference.tilted import TiltedCells, solved
from pymc_dirdp.numerics.quadrature import _log_gamma_ratio

__all__ = ["ProductLaw"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ProductLaw:
    """The law of one row of counts given an output whose likelihood is a product over cells.

    A priori the shares are `p ~ Dirichlet(alpha)` and the counts `x ~ Multinomial(total, p)`. The output has the
    likelihood `exp(log_factor) * prod_i exp(log_likelihood(x_i, i))`. Then `p | x` is `Dirichlet(alpha + x)` whatever
    was put out, and `P(x | output)` is proportional to a product of one weight for each cell (Theory, section 16).

    Parameters
    ----------
    alpha : array, shape (d,)
        Prior of whoever concludes; positive. It need not be the prior of the mechanism.
    total : int
        Number of records, known.
    log_likelihood : callable
        `log_likelihood(counts, cells)` takes a real array of counts and a whole array of cells, which broadcast
        against each other, and returns the log-likelihood of each, elementwise; `-inf` where the output is impossible.
        With `smooth` it is also asked between whole counts. Log-likelihoods of several outputs add up.
    least : int
        The promised least count of every cell, `min_count`.
    smooth : bool
        False if the log-likelihood is known at whole counts only; then all are looked at.
    log_factor : float
        Logarithm of the factor of the likelihood that depends on the total alone. It matters for the evidence only.
    log_shares : array, shape (d,), optional
        Logarithms of the shares, if they are known. Then `x ~ Multinomial(total, shares)` and `alpha` says nothing. One
        may be `-inf`: that cell is empty.
    near : ProductLaw, optional
        The same law but for other known shares, all positive. It spares some of the work.

    Examples
    --------
    Two-sided geometric noise of scale 2 on three counts with a total of 20:

    >>> z = np.array([3.0, 12.0, 8.0])
    >>> law = ProductLaw(alpha=[1, 1, 1], total=20, log_likelihood=lambda counts, cells: -np.abs(z[cells] - counts) / 2)
    >>> law.means.round(2)
    array([ 2.44, 10.77,  6.79])
    """

    alpha: Array
    total: int
    log_likelihood: LogWeight = field(repr=False)
    least: int = 0
    smooth: bool = True
    log_factor: float = 0.0
    log_shares: Array | None = field(default=None, repr=False)
    near: "ProductLaw | None" = field(default=None, repr=False)

    def __post_init__(self) -> None:
        alpha = positive_array(alpha=self.alpha, fewest=1)
        if alpha.ndim != 1:
            raise ArgumentError(
                f"Expected alpha to be one row, got shape {alpha.shape}. Give each row a law of its own."
            )
        object.__setattr__(self, "alpha", alpha)
        object.__setattr__(self, "total", integer(0, total=self.total))
        object.__setattr__(self, "least", integer(0, least=self.least))
        if self.total < self.least * len(alpha):
            raise ArgumentError(
                f"Expected total >= least * d = {self.least * len(alpha)}, because every cell holds `least` records."
            )

    def at(self, total: int, log_factor: float = 0.0) -> "ProductLaw":
        """The same output for another total."""
        return replace(self, total=total, log_factor=log_factor)

    @property
    def most(self) -> int:
        """The largest count that a cell can have."""
        return self.total - self.least * (len(self.alpha) - 1)

    def log_weight(self, counts: Array, cells: Integers) -> Array:
        """`log Gamma(x + alpha_i) - log x! + log L_i(x)`, or `x log p_i - log x! + log L_i(x)` for known shares."""
        return np.asarray(self.log_prior_weight(counts, cells) + self.log_likelihood(counts, cells), dtype=np.float64)

    def log_prior_weight(self, counts: Array, cells: Integers) -> Array:
        """The same without the likelihood."""
        if self.log_shares is None:
            return _log_gamma_ratio(counts, self.alpha[cells])  # type: ignore[arg-type]  # It broadcasts.
        with np.errstate(invalid="ignore"):
            known: Array = np.where(counts == 0, 0.0, counts * self.log_shares[cells]) - gammaln(counts + 1)
        return known

    def cells(self) -> NumberLaws:
        """Independent cells with the weights of this law, not tilted yet."""
        if self.near is not None and self.log_shares is not None and self.near.log_shares is not None:
            return self.near._settled.shifted(self.log_weight, self.log_shares - self.near.log_shares)
        return NumberLaws(self.log_weight, len(self.alpha), self.least, self.most, smooth=self.smooth)

    @cached_property
    def _settled(self) -> NumberLaws:
        """The cells after they were solved; what was done to them to find the sum is not part of them."""
        cells = self.cells()
        solved(cells, self.total)
        return cells

    @cached_property
    def tilted(self) -> TiltedCells:
        """Independent cells whose law given their total is this law."""
        return solved(self.cells(), self.total)

    def log_normaliser(self, totals: ArrayLike) -> Array:
        """Logarithm of what products of weights are multiplied by to be a prior times the likelihood."""
        if self.log_shares is not None:
            return np.asarray(gammaln(np.asarray(totals, dtype=np.float64) + 1))
        concentration = self.alpha.sum()
        # total! Gamma(a0) / Gamma(total + a0), without the cancellation of the two large terms.
        ratio = _log_gamma_ratio(np.asarray(totals, dtype=np.float64), concentration)
        return np.asarray(gammaln(concentration) - ratio - gammaln(self.alpha).sum())

    @property
    def log_evidence(self) -> float:
        """Logarithm of the probability (or density) of the output under the prior, the counts summed out."""
        return float(self.log_normaliser(self.total)) + self.log_factor + self.tilted.log_sum_of_products

    @property
    def means(self) -> Array:
        """Expected counts given the output, shape (d,)."""
        return self.tilted.marginals.means

    @property
    def variances(self) -> Array:
        """Variances of the counts given the output, shape (d,)."""
        return self.tilted.marginals.variances
