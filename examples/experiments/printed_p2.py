"""P2's statements as printed: conversions, numbers of records, and the largest error of a published histogram."""

import math

import numpy as np
from numpy.typing import ArrayLike
from printed_p1 import probabilities
from scipy.special import polygamma

from pymc_dirdp.checks import integer, open_unit_interval, positive, positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.numerics.roots import last_safe, log_ratio_to_budget
from pymc_dirdp.papers import p2_theorem_1
from pymc_dirdp.privacy.guarantees import ApproxDP, TruncatedCDP


def p2_lemma_1(*, rho: float, omega: float, delta: float) -> ApproxDP:
    """The epsilon that truncated concentrated differential privacy implies, as printed (P2 Lemma 1).

    `rho + 2 sqrt(rho log(1 / delta))` where `log(1 / delta) <= (omega - 1)**2 rho`, and
    `rho omega + log(1 / delta) / (omega - 1)` elsewhere.

    Parameters
    ----------
    rho : float
        Positive.
    omega : float
        Above 1; it may be infinite.
    delta : float
        In (0, 1).

    Returns
    -------
    guarantee : ApproxDP
        It holds. :func:`pymc_dirdp.privacy.convert` gives a smaller epsilon.

    Examples
    --------
    >>> print(p2_lemma_1(rho=0.1, omega=20.0, delta=1e-6))
    (2.45079, 1e-06)-differential privacy
    """
    guarantee = TruncatedCDP(rho=rho, omega=omega)
    log_inverse = -math.log(open_unit_interval(delta=delta))
    above = guarantee.omega - 1
    if log_inverse <= above**2 * guarantee.rho:
        epsilon = guarantee.rho + 2 * math.sqrt(guarantee.rho * log_inverse)
    else:
        epsilon = guarantee.rho * guarantee.omega + log_inverse / above
    return ApproxDP(epsilon=epsilon, delta=delta)


def p2_theorem_1_prior(
    *, rho: float, gamma: float, r: float = 1.0, delta_2_squared: float = 2.0, delta_inf: float = 1.0
) -> float:
    """P2's own calibration: the smallest prior parameter for which P2 Theorem 1 guarantees this `rho`.

    P2 uses it in section 4.1, where its `rho` lacks the factor 1/2 (ERRATA P2.2), and in Appendix C, with `gamma = 2`.

    Parameters
    ----------
    rho : float
        The target, positive. The guarantee ends at `omega = gamma / (r * delta_inf) + 1`.
    gamma : float
        Positive.
    r, delta_2_squared, delta_inf
        Same as in :func:`pymc_dirdp.papers.p2_theorem_1`.

    Returns
    -------
    alpha_min : float
        For counts, :func:`pymc_dirdp.calibrate` with `strategy="inflate"` needs a smaller one.

    Examples
    --------
    >>> [round(p2_theorem_1_prior(rho=rho, gamma=2.0), 2) for rho in (0.01, 0.1, 1.0)]
    [102.5, 12.49, 3.43]
    """
    rho, gamma = positive(rho=rho), positive(gamma=gamma)
    sensitivities = {"r": r, "delta_2_squared": delta_2_squared, "delta_inf": delta_inf}
    scale = positive(r=r) ** 2 * positive(delta_2_squared=delta_2_squared) / 2
    positive(delta_inf=delta_inf)
    above = last_safe(lambda x: log_ratio_to_budget(scale * float(polygamma(1, x)), rho), factor=0.5)
    alpha = gamma + above
    # The sum is rounded, and near gamma the theorem looks at what is left of it.
    while alpha <= gamma or p2_theorem_1(gamma=gamma, alpha_min=alpha, **sensitivities).rho > rho:
        alpha = math.nextafter(alpha, math.inf)
    return alpha


def p2_theorem_3(*, p: ArrayLike, n_records: int, alpha: ArrayLike, inflated: ArrayLike) -> float:
    """Bound of the expected `KL(Dirichlet(x + alpha) || Dirichlet(x + inflated))` over `x ~ Multinomial(n_records, p)`.

    `sum (inflated - alpha)**2 / p / (n_records + 1)` (P2 Theorem 3), in nats.

    Parameters
    ----------
    p : array_like, shape (d,)
        True probabilities, positive, with sum 1.
    n_records : int
        At least 0.
    alpha, inflated : array_like, shape (d,)
        `inflated >= alpha >= 1`.

    Examples
    --------
    >>> round(p2_theorem_3(p=[0.2, 0.3, 0.5], n_records=1000, alpha=[1, 1, 1], inflated=[9, 9, 9]), 4)
    0.6607
    """
    shares = probabilities("p", positive_array(p=p))
    first, second = positive_array(alpha=alpha), positive_array(inflated=inflated)
    if not first.shape == second.shape == shares.shape:
        raise ArgumentError(
            f"Expected p, alpha and inflated of equal shape, got {shares.shape}, {first.shape} and {second.shape}."
        )
    if np.any(first < 1) or np.any(second < first):
        raise ArgumentError("P2 Theorem 3 needs inflated >= alpha >= 1 in every cell.")
    return float(((second - first) ** 2 / shares).sum() / (integer(0, n_records=n_records) + 1))


def p2_theorem_4(*, probability: float, effective_records: float, alpha: ArrayLike) -> float:
    """The error that the largest error of a frequency exceeds with at most this probability (P2 Theorem 4).

    `sqrt(log(2 d / probability) / (2 (n + a + 1))) + a / (n + a)` with n the effective sample size and a the sum of
    alpha.

    Parameters
    ----------
    probability : float
        In (0, 1).
    effective_records : float
        Number of records, times `r` if the mechanism has one; positive.
    alpha : array_like, shape (d,)
        Prior parameters of the mechanism.

    Examples
    --------
    >>> round(p2_theorem_4(probability=0.05, effective_records=1000, alpha=[1, 1, 1]), 4)
    0.0518
    """
    n, total = positive(effective_records=effective_records), float(positive_array(alpha=alpha).sum())
    spread = math.log(2 * np.size(alpha) / open_unit_interval(probability=probability)) / (2 * (n + total + 1))
    return math.sqrt(spread) + total / (n + total)


# P2 section 4.2: the largest error of a published histogram, for a Dirichlet draw and for Gaussian noise.
#
# The bounds hold. What P2 infers from them, that the draw wins where there are no more records than categories, is
# true of Gaussian noise as it comes only: `examples/experiments/p2_figure_2.py` has the comparison with noise that is
# clipped and normalised, and with no data at all.


def p2_sample_size(
    *, accuracy: float, probability: float, rho: float, gamma: float, d: int, delta_2_squared: float = 2.0
) -> int:
    """The number of records from which on P2 Theorem 4 guarantees this accuracy, with its constants.

    The prior is flat, and P2's own for `rho` (:func:`p2_theorem_1_prior`, with `r = 1`). Equations
    14 and 15 give the order of this number (:func:`p2_equation_14`).

    Parameters
    ----------
    accuracy : float
        The largest error of a frequency, in (0, 1).
    probability : float
        That of a larger error, in (0, 1).
    rho, gamma : float
        Positive.
    d : int
        Number of categories, at least 2.
    delta_2_squared : float
        Squared l2 sensitivity; 2 for counts under replace-one.

    Examples
    --------
    >>> p2_sample_size(accuracy=0.05, probability=0.05, rho=0.1, gamma=1.0, d=10)
    4547
    """
    accuracy, probability = open_unit_interval(accuracy=accuracy), open_unit_interval(probability=probability)
    alpha = np.full(integer(2, d=d), p2_theorem_1_prior(rho=rho, gamma=gamma, delta_2_squared=delta_2_squared))

    def enough(n: int) -> bool:
        return p2_theorem_4(probability=probability, effective_records=n, alpha=alpha) <= accuracy

    most = 1
    while not enough(most):
        most *= 2
    least = most // 2
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (least, middle) if enough(middle) else (middle, most)
    return most


def p2_equation_14(
    *, accuracy: float, probability: float, rho: float, gamma: float, d: int, delta_2_squared: float = 2.0
) -> float:
    """What stands inside the order symbol of P2's equations 14 and 15.

    `log(2 d / probability) / accuracy**2 + d / accuracy * (spread + gamma)`, where the spread is
    `delta_2_squared / (2 rho)` if P2's prior exceeds gamma by more than 1 (equation 14), and its root if not (15). The
    arguments are the same as in :func:`p2_sample_size`, which is at most 4 times as large.

    Examples
    --------
    >>> round(p2_equation_14(accuracy=0.05, probability=0.05, rho=0.1, gamma=1.0, d=10))
    4597
    """
    accuracy = open_unit_interval(accuracy=accuracy)
    high = p2_theorem_1_prior(rho=rho, gamma=gamma, delta_2_squared=delta_2_squared) - gamma > 1
    spread = delta_2_squared / (2 * rho)
    categories = integer(2, d=d)
    noise = math.log(2 * categories / open_unit_interval(probability=probability)) / accuracy**2
    return noise + categories / accuracy * ((spread if high else math.sqrt(spread)) + gamma)


def p2_equation_16(*, probability: float, n_records: int, rho: float, d: int, delta_2_squared: float = 2.0) -> float:
    """The error that Gaussian noise on frequencies exceeds somewhere with at most this probability.

    `sqrt(log(2 d / probability) delta_2_squared / rho) / n_records`, for noise that keeps `rho`-zCDP.

    Parameters
    ----------
    probability : float
        In (0, 1).
    n_records : int
        At least 1.
    rho : float
        Positive.
    d : int
        Number of categories, at least 2.
    delta_2_squared : float
        Squared l2 sensitivity; 2 for counts under replace-one.

    Examples
    --------
    >>> round(p2_equation_16(probability=0.05, n_records=1000, rho=0.1, d=10), 4)
    0.0109
    """
    logarithm = math.log(2 * integer(2, d=d) / open_unit_interval(probability=probability))
    return math.sqrt(logarithm * positive(delta_2_squared=delta_2_squared) / positive(rho=rho)) / integer(
        1, n_records=n_records
    )


def p2_equation_16_sample_size(
    *, accuracy: float, probability: float, rho: float, d: int, delta_2_squared: float = 2.0
) -> int:
    """The number of records from which on :func:`p2_equation_16` is at most `accuracy`.

    P2's equation 17 says that it is smaller than what a Dirichlet draw needs. It compares two upper bounds.

    Examples
    --------
    >>> p2_equation_16_sample_size(accuracy=0.05, probability=0.05, rho=0.1, d=10)
    219
    """
    of_one = p2_equation_16(probability=probability, n_records=1, rho=rho, d=d, delta_2_squared=delta_2_squared)
    return math.ceil(of_one / open_unit_interval(accuracy=accuracy))
