"""Averages of shares over draws, in parts within which the tables of a network are independent."""

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.networks.drawn import DrawnTable

__all__ = ["averages"]

# Draws in one part where the class is drawn jointly with its features: enough that the products of their averages
# have errors far below the differences between classes.
_IN_A_PART = 200


def averages(tables: dict[str, DrawnTable]) -> tuple[dict[str, Array], Array]:
    """The average shares of each table in several parts, and the weights of the parts.

    The average over draws of a product of cells, one a table, is the weighted average over parts of the product of the
    averages. How the draws are divided depends on what makes the tables independent:

    * The draws of a release itself may be the same posterior draw of all tables, so every draw is a part.
    * Tables that were drawn one by one are independent, so there is one part.
    * Where the rows of all other tables are the classes of one table and add up to its counts, the tables are
      independent given the count of a class. For each class the draws are sorted by its count and divided into parts
      of 200.

    Parameters
    ----------
    tables : dict of str to DrawnTable
        All of one number of draws.

    Returns
    -------
    shares : dict of str to array, shape (parts, ...)
    weights : array, shape (parts,)
        They add up to 1.
    """
    draws = len(next(iter(tables.values())).shares)
    if not any(table.counts.size for table in tables.values()):
        return {name: table.shares for name, table in tables.items()}, np.full(draws, 1 / draws)
    classes = _classes(tables)
    if classes is None:
        return {name: table.shares.mean(axis=0)[None] for name, table in tables.items()}, np.ones(1)
    parts = np.array_split(np.arange(draws), max(1, draws // _IN_A_PART))
    # For each class its own order of the draws, in the shape `(draws, classes)`.
    orders = np.argsort(classes, axis=0, kind="stable")
    shares = {
        name: np.stack([_of_part(table.shares, orders[part]) for part in parts]) for name, table in tables.items()
    }
    return shares, np.array([len(part) / draws for part in parts])


def _of_part(shares: Array, chosen: NDArray[np.int64]) -> Array:
    """The average for each class over its own draws, whose numbers `chosen` has in the shape `(size, classes)`."""
    average: Array = shares[chosen, np.arange(chosen.shape[1])].mean(axis=0)
    return average


def _classes(tables: dict[str, DrawnTable]) -> NDArray[np.int64] | None:
    """The drawn counts of the classes, if every other table has a row for each and holds the same records."""
    roots = [table for table in tables.values() if len(table.dims) == 1]
    others = [table for table in tables.values() if len(table.dims) > 1]
    if len(roots) != 1 or not others:
        return None
    counts = roots[0].counts
    same = all(
        table.dims[:-1] == roots[0].dims and np.array_equal(table.counts.sum(axis=-1), counts) for table in others
    )
    return counts if same else None
