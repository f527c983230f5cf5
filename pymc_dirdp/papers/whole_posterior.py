"""P4's mechanisms for a whole posterior, as printed, for comparison.

:class:`pymc_dirdp.mechanisms.TruncatedNoiseMechanism` and :class:`pymc_dirdp.mechanisms.HellingerMechanism`, made by
`for_guarantee`, lose what is guaranteed and no less; the page "What the papers printed" says where each is the more
accurate. P4's own private exponential mechanism is a `HellingerMechanism` with the exponent `epsilon / 4`.
"""

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.checks import checked_counts, positive, positive_array
from pymc_dirdp.mechanisms.hellinger import HellingerMechanism
from pymc_dirdp.mechanisms.hellinger_laws import HellingerLaws
from pymc_dirdp.mechanisms.truncated_noise import TruncatedNoiseMechanism

__all__ = ["p4_ilap_mech", "p4_lap_mech", "p4_local_distance", "p4_local_loss"]


def p4_lap_mech(*, epsilon: float, prior: ArrayLike, n_records: int) -> TruncatedNoiseMechanism:
    """P4's `lapMech`: Laplace noise rounded down with the scale `d / epsilon` (section 4.1.1).

    It adds more noise than pure differential privacy with `epsilon` needs (ERRATA P4.2).

    Parameters
    ----------
    epsilon : float
        The pure guarantee that P4 means it to have, positive.
    prior : array_like, shape (d,)
        The model's own prior, positive.
    n_records : int
        Number of records, public, at least 1.

    Examples
    --------
    >>> p4_lap_mech(epsilon=1.0, prior=[1, 1], n_records=100).pure_epsilon
    0.5
    """
    return _laplace(np.size(prior) / positive(epsilon=epsilon), prior, n_records)


def p4_ilap_mech(*, epsilon: float, prior: ArrayLike, n_records: int) -> TruncatedNoiseMechanism:
    """P4's `ilapMech`, whose scale is `1 / epsilon` for two categories and `2 / epsilon` for more (section 4.1.2).

    The arguments are the same as in :func:`p4_lap_mech`.

    Examples
    --------
    >>> p4_ilap_mech(epsilon=1.0, prior=[1, 1], n_records=15_000).expected_distance([7500, 7500])
    0.00624...
    """
    return _laplace((1 if np.size(prior) == 2 else 2) / positive(epsilon=epsilon), prior, n_records)


def p4_local_distance(counts: ArrayLike, *, prior: ArrayLike, exponent: float) -> float:
    """Expected Hellinger distance under P4's exponential mechanism with the *local* sensitivity (section 4.2.2).

    That mechanism is not private: the exponent depends on the data set, and with it the distribution of every output.
    So no function here releases an output of it.

    Parameters
    ----------
    counts : array_like of whole numbers, shape (d,)
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
    law, distances = _local(prior, int(whole.sum()), exponent).log_law(whole, exponent)
    return float(np.exp(law) @ distances)


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


def _laplace(scale: float, prior: ArrayLike, n_records: int) -> TruncatedNoiseMechanism:
    return TruncatedNoiseMechanism(positive_array(prior=prior), n_records, scale, noise_kind="laplace", total="printed")


def _local(prior: ArrayLike, n_records: int, exponent: float) -> HellingerLaws:
    checked = HellingerMechanism(positive_array(prior=prior), n_records, exponent)
    return HellingerLaws(checked.prior, checked.n_records, "local", checked.smoothness)
