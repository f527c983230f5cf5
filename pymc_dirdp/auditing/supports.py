"""Outputs that one data set can give and the other cannot, or that are the data themselves."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.auditing.frequencies import frequency_ratio, most_telling
from pymc_dirdp.auditing.seen import Keys, Seen, Statistic, hashed

__all__ = ["repeated", "the_data"]

# So many single entries are tried at most, and so many are kept.
_TRIED, _KEPT = 32, 2
# The relative rounding of a quotient.
_CLOSE = 1e-12
# Prior parameters with which a posterior mean of the counts is sought.
_PRIORS = (0.0, 0.5, 1.0)


def repeated(x: Seen, y: Seen) -> list[Statistic]:
    """Statistics of exact values: how much commoner an output, or one of its entries, is for one of the data sets.

    Where outputs repeat, such as integers or those of a saturated generator, this finds the ones that only one
    data set gives. Continuous outputs hardly repeat, and it finds nothing.

    Parameters
    ----------
    x, y : Seen
        Outputs that are not used again to count.
    """
    whole = frequency_ratio(hashed(_bits(x)), hashed(_bits(y)))
    columns_x, columns_y = (list(_bits(sample)[:, :_TRIED].T) for sample in (x, y))
    scores = {i: frequency_ratio(columns_x[i], columns_y[i]) for i in most_telling(columns_x, columns_y, _KEPT)}

    def of_entry(outputs: Seen, i: int) -> Array:
        return scores[i](_bits(outputs)[:, i])

    return [lambda outputs: whole(hashed(_bits(outputs))), *(partial(of_entry, i=i) for i in scores)]


def _bits(outputs: Seen) -> Keys:
    return outputs.points.view(np.uint64)


def the_data(x: Array, y: Array, priors: Sequence[Array] = ()) -> Statistic:
    """Whether an output is one of the two data sets: 2 or more for x, -2 or less for y, and near 0 for most others.

    The data are sought as counts, as frequencies of the table or of its rows, and as posterior means. Single
    entries that agree with one data set and not with the other count for less than 1 in all.

    Parameters
    ----------
    x, y : array
        The two data sets.
    priors : sequence of array
        Prior parameters to try, beside 0, 1/2 and 1 in each cell.
    """
    forms = [(_form(x, how), _form(y, how)) for how in (None, *_PRIORS, *priors)]
    forms += [(x / max(x.sum(), 1.0), y / max(y.sum(), 1.0))]

    def statistic(outputs: Seen) -> Array:
        scores = np.zeros(len(outputs))
        if outputs.shape != x.shape or not x.size:
            return scores
        for of_x, of_y in forms:
            like_x, like_y = (_agrees(outputs.points, form) for form in (of_x, of_y))
            tells = ~_agrees(of_x.reshape(1, -1), of_y)[0]
            if np.any(tells):
                scores += 2.0 * like_x.all(axis=1) - 2.0 * like_y.all(axis=1)
                entries = like_x[:, tells].astype(np.float64) - like_y[:, tells]
                scores += entries.sum(axis=1) / (len(forms) * (tells.sum() + 1))
        return scores

    return statistic


def _form(counts: Array, prior: float | Array | None) -> Array:
    if prior is None:
        return counts
    smooth = counts + prior
    total = smooth.sum(axis=-1, keepdims=True)
    return np.asarray(smooth / np.where(total > 0, total, 1.0))


def _agrees(points: Array, form: Array) -> NDArray[np.bool_]:
    target = form.ravel()
    return np.asarray(np.abs(points - target) <= _CLOSE * np.abs(target))
