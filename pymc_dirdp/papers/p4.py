"""P4's mechanisms with the printed parameters."""

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.checks import positive, positive_array
from pymc_dirdp.papers.truncated_noise import TruncatedNoiseMechanism

# P4's mechanisms for a whole posterior, as printed, for comparison.
#
# :class:`pymc_dirdp.papers.TruncatedNoiseMechanism` and :class:`pymc_dirdp.papers.HellingerMechanism` from
# `for_guarantee` use the whole budget; the page "What the papers printed" compares their accuracy. P4's own private
# exponential mechanism is a `HellingerMechanism` with the exponent `epsilon / 4`.


def p4_lap_mech(*, epsilon: float, prior: ArrayLike, n_records: int) -> TruncatedNoiseMechanism:
    """P4's `lapMech`, with Laplace noise of the scale `d / epsilon` rounded down (section 4.1.1).

    It adds more noise than pure differential privacy with `epsilon` needs (ERRATA P4.2).

    Parameters
    ----------
    epsilon : float
        The pure epsilon that P4 intends, positive.
    prior : array_like, shape (d,)
        The prior of the model, positive.
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


def _laplace(scale: float, prior: ArrayLike, n_records: int) -> TruncatedNoiseMechanism:
    return TruncatedNoiseMechanism(positive_array(prior=prior), n_records, scale, noise_kind="laplace", total="printed")
