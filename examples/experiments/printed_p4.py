"""P4's sensitivities, and what its mechanism with the local one loses."""

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import integer, positive, positive_array
from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.papers import HellingerMechanism
from pymc_dirdp.papers.hellinger_distributions import (
    HellingerDistributions,
    global_sensitivity,
    local_sensitivities,
    smooth_sensitivities,
)
from pymc_dirdp.sampling.drawing import checked_counts

# P4's sensitivities: how much a posterior moves, in Hellinger distance, if one record is replaced.
#
# The local and the smooth sensitivity are properties of a data set: of private data they are **confidential**. The
# smooth one is only safe inside its mechanism, :class:`pymc_dirdp.papers.HellingerMechanism`.


# Sensitivities of two cells are listed, up to so many; so are the steps of more cells.
_MOST_LISTED = 10_000_000
# All pairs of numbers of records that two cells lose are listed, up to so many in each: 9e6 pairs.
_FARTHEST = 3_000


def p4_local_sensitivity(counts: ArrayLike, *, prior: ArrayLike) -> float:
    """The largest Hellinger distance of the posterior from that of a neighbour (P4 section 4.2.2). **Confidential**.

    P4 asks how much the distance to a third posterior changes at most. By the triangle inequality that is the same; in
    print it compares a data set with itself (ERRATA P4.7).

    Parameters
    ----------
    counts : array_like of integers, shape (d,)
        One record at least.
    prior : array_like, shape (d,)
        The model's own prior, positive.

    Examples
    --------
    >>> round(p4_local_sensitivity([50, 50], prior=[1, 1]), 4)
    0.0703
    """
    parameters, whole = _checked(counts, prior)
    return float(local_sensitivities(parameters, whole[None])[0])


def p4_global_sensitivity(*, prior: ArrayLike, n_records: int) -> float:
    """The largest local sensitivity of all data sets of `n_records` records (P4 section 4.2.1). It is public.

    Parameters
    ----------
    prior : array_like, shape (d,)
        The model's own prior, positive.
    n_records : int
        Public, at least 1; with two categories at most 10,000,000.

    Raises
    ------
    UnattainableError
        If two categories have more records.

    Examples
    --------
    >>> round(p4_global_sensitivity(prior=[1, 1], n_records=100), 4)
    0.3389
    """
    parameters, n = _row(prior), integer(1, n_records=n_records)
    if len(parameters) == 2:
        _refuse_many(n)
    return global_sensitivity(parameters, n)


def p4_smooth_sensitivity(counts: ArrayLike, *, prior: ArrayLike, smoothness: float = 1.0) -> float:
    """The least upper bound of the local one whose inverse moves by at most `smoothness` (Definition 3).

    It is **confidential**, as the counts are.

    Parameters
    ----------
    counts, prior
        Same as in :func:`p4_local_sensitivity`.
    smoothness : float, default 1
        P4's gamma, positive. P4 takes 1, which is a poor choice (ERRATA P4.3).

    Raises
    ------
    UnattainableError
        If there are three or more categories and the smoothness is so small that data sets count which differ in more
        than 3000 records of two cells; or if there are more than 10,000,000 records.

    Examples
    --------
    >>> round(p4_smooth_sensitivity([50, 50], prior=[1, 1], smoothness=0.1), 4)
    0.1274
    """
    (parameters, whole), gamma = _checked(counts, prior), positive(smoothness=smoothness)
    _refuse_many(int(whole.sum()) if len(parameters) == 2 else int(whole.max()))
    local = float(local_sensitivities(parameters, whole[None])[0])
    # A data set that differs in more records than this does not decide.
    reach = min(float(whole.max()), 1 / (local * gamma))
    if len(parameters) > 2 and reach > _FARTHEST:
        raise UnattainableError(
            "With three or more categories, this many records and this smoothness, too many data sets have to be "
            "looked at. Raise the smoothness."
        )
    return float(smooth_sensitivities(parameters, whole[None], gamma)[0])


def _refuse_many(listed: int) -> None:
    if listed > _MOST_LISTED:
        raise UnattainableError(
            f"These sensitivities are listed for every number of records in a cell, up to {_MOST_LISTED}. Take fewer "
            "records: the global sensitivity hardly depends on how many there are."
        )


def _row(prior: ArrayLike) -> Array:
    parameters = positive_array(prior=prior)
    if parameters.ndim != 1:
        raise ArgumentError(f"P4's posteriors are of one row: expected prior of shape (d,), got {parameters.shape}.")
    return parameters


def _checked(counts: ArrayLike, prior: ArrayLike) -> tuple[Array, Integers]:
    parameters = _row(prior)
    whole = checked_counts(counts, parameters.shape).astype(np.int64)
    if not whole.any():
        raise DataError("There are no records, so no record can be replaced: the data set has no neighbour.")
    return parameters, whole


def p4_local_distance(counts: ArrayLike, *, prior: ArrayLike, exponent: float) -> float:
    """Expected Hellinger distance under P4's exponential mechanism with the *local* sensitivity (section 4.2.2).

    That mechanism is not private: the exponent depends on the data set, and with it the distribution of every output.
    So no function here releases an output of it.

    Parameters
    ----------
    counts : array_like of integers, shape (d,)
        Made-up data.
    prior : array_like, shape (d,)
        The model's own prior, positive.
    exponent : float
        Positive; P4 sets it to `epsilon / 2`.

    Examples
    --------
    >>> p4_local_distance([50, 50], prior=[1, 1], exponent=0.5)
    0.155...
    """
    whole = checked_counts(counts, np.shape(prior)).astype(np.int64)
    distribution, distances = _local(prior, int(whole.sum()), exponent).log_distribution(whole, exponent)
    return float(np.exp(distribution) @ distances)


def p4_local_loss(*, prior: ArrayLike, n_records: int, exponent: float) -> float:
    """The largest loss of any neighbours under P4's mechanism with the local sensitivity. It is not a guarantee.

    A bound for one number of records does not hold for another (ERRATA P4.12). The arguments are the same as in
    :func:`p4_local_distance`.

    Examples
    --------
    >>> p4_local_loss(prior=[0.1, 0.1], n_records=300, exponent=0.5)  # P4 means it to be 1
    1.036...
    """
    return _local(prior, n_records, exponent).worst(exponent)[0]


def _local(prior: ArrayLike, n_records: int, exponent: float) -> HellingerDistributions:
    checked = HellingerMechanism(positive_array(prior=prior), n_records, exponent)
    return HellingerDistributions(checked.prior, checked.n_records, "local", checked.smoothness)
