"""Systematic sampling of categories: their counts are close to the expected counts."""

import numpy as np

from pymc_dirdp.arrays import Array, Integers


def systematic(row: Integers, shares: Array, rng: np.random.Generator) -> Integers:
    """Draw a category for each record from the shares of its row, with counts that hardly vary.

    The probability of each category of a record is exactly its share in the row. Records are sorted by row, in random
    order within a row. For the first category, probabilities are summed along the records, and a record gets the
    category if the sum passes an integer plus one uniform number there. The same follows for each further category and
    the remaining records. The count of a category in a row, or in consecutive rows, differs from its expectation by at
    most one, and one more for each category before it.

    Parameters
    ----------
    row : array of int, shape (n,)
    shares : array, shape (rows, categories)
    rng : numpy.random.Generator

    Returns
    -------
    codes : array of int, shape (n,)

    References
    ----------
    Madow (1949), On the theory of systematic sampling II, Annals of Mathematical Statistics 20, 333-354.

    Examples
    --------
    >>> codes = systematic(np.zeros(1000, dtype=int), np.array([[0.25, 0.75]]), np.random.default_rng(0))
    >>> np.bincount(codes)
    array([250, 750])
    """
    categories = shares.shape[1]
    records = rng.permutation(len(row))
    records = records[np.argsort(row[records], kind="stable")]
    codes = np.full(len(row), categories - 1, dtype=np.int64)
    # The share of this and all later categories, for each row.
    tails = np.cumsum(shares[:, ::-1], axis=1)[:, ::-1]
    for category in range(categories - 1):
        share, tail = shares[row[records], category], tails[row[records], category]
        probability = np.divide(share, tail, out=np.zeros(len(records)), where=tail > 0)
        steps = np.floor(np.cumsum(probability) + rng.random())
        has_category = np.diff(steps, prepend=0.0) > 0
        codes[records[has_category]] = category
        records = records[~has_category]
    return codes
