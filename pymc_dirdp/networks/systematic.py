"""Systematic sampling of categories: as many records have each as are expected."""

import numpy as np

from pymc_dirdp.arrays import Array, Integers


def systematic(row: Integers, shares: Array, rng: np.random.Generator) -> Integers:
    """For each record a category from the shares of its row, with counts that hardly vary.

    Each record has its category with exactly the probability of its row. Records are put in the order of their rows,
    and at random within a row. Then the first category is given to one record whenever the sum of the probabilities so
    far passes an integer plus one uniform number, and so on with each further category and the records that are
    left. So the records of a row, and of rows that follow each other, that have a category are as many as expected, up
    to one for each category before it.

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
    left = rng.permutation(len(row))
    left = left[np.argsort(row[left], kind="stable")]
    codes = np.full(len(row), categories - 1, dtype=np.int64)
    # The share of all categories that are still to come, for each row.
    to_come = np.cumsum(shares[:, ::-1], axis=1)[:, ::-1]
    for category in range(categories - 1):
        own, rest = shares[row[left], category], to_come[row[left], category]
        probability = np.divide(own, rest, out=np.zeros(len(left)), where=rest > 0)
        passed = np.floor(np.cumsum(probability) + rng.random())
        taken = np.diff(passed, prepend=0.0) > 0
        codes[left[taken]] = category
        left = left[~taken]
    return codes
