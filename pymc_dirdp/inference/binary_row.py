"""The output of one row of two cells and a public total, as a function of its shares: one sum."""

from typing import final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from pymc_dirdp.inference.product_law import ProductLaw

__all__ = ["BinaryRow"]

Array = NDArray[np.float64]


@final
class BinaryRow:
    """The likelihood of known shares of two cells.

    It is a sum over the counts of one cell whose terms are those of a binomial distribution, each times a number that
    does not depend on the shares.

    Parameters
    ----------
    law : ProductLaw
        Of a row of two cells. Its prior is not used.

    Examples
    --------
    >>> z = np.array([3.0, 17.0])
    >>> law = ProductLaw(alpha=[1, 1], total=20, log_likelihood=lambda counts, cells: -np.abs(z[cells] - counts))
    >>> log_likelihood, means = BinaryRow(law).given(np.log([0.5, 0.5]))
    >>> means.round(2)
    array([ 3.73, 16.27])
    """

    def __init__(self, law: ProductLaw) -> None:
        first = np.arange(law.least, law.most + 1, dtype=np.float64)
        counts = np.stack([first, law.total - first])
        said = law.log_likelihood(counts, np.array([[0], [1]]))
        logs = gammaln(law.total + 1) + law.log_factor + (said - gammaln(counts + 1)).sum(axis=0)
        possible = logs > -np.inf
        self._counts, self._logs = counts[:, possible], logs[possible]

    def given(self, log_shares: Array) -> tuple[float, Array]:
        """The logarithm of the likelihood and the expected counts, its gradient; `-inf` and zeros if it is impossible.

        Parameters
        ----------
        log_shares : array, shape (2,)
            Logarithms of the shares; one may be `-inf`, so that its cell is empty.
        """
        terms = self._logs
        for counts, logarithm in zip(self._counts, log_shares.tolist(), strict=True):
            # No records in a cell whose share is 0: the product would be no number.
            terms = terms + (np.where(counts == 0, 0.0, -np.inf) if logarithm == -np.inf else counts * logarithm)
        largest = terms.max(initial=-np.inf)
        if largest == -np.inf:
            return -np.inf, np.zeros(2)
        weights = np.exp(terms - largest)
        total = weights.sum()
        return float(largest + np.log(total)), self._counts @ weights / total
