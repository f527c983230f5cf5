"""P2 section 4.2: the largest error of a published histogram, for a Dirichlet draw and for Gaussian noise.

The bounds hold. What P2 infers from them, that the draw wins where there are no more records than categories, is
true of Gaussian noise as it comes only: :func:`p2_figure_2` has the comparison with noise that is clipped and
normalised, and with no data at all.
"""

import math

import numpy as np

from pymc_dirdp.checks import integer, open_unit_interval, positive
from pymc_dirdp.mechanisms.postprocess import frequencies
from pymc_dirdp.papers.accuracy import p2_theorem_4
from pymc_dirdp.papers.privacy import p2_theorem_1_prior
from pymc_dirdp.sampling.fast import dirichlet

__all__ = ["p2_equation_14", "p2_equation_16", "p2_equation_16_sample_size", "p2_figure_2", "p2_sample_size"]

# The frequencies of Figure 2 are drawn from a flat Dirichlet law with this parameter.
_EVENNESS = 5.0


def p2_sample_size(
    *, accuracy: float, probability: float, rho: float, gamma: float, d: int, delta_2_squared: float = 2.0
) -> int:
    """The number of records from which on P2 Theorem 4 guarantees this accuracy, with its constants.

    The prior is flat, and P2's own for `rho` (:func:`pymc_dirdp.papers.p2_theorem_1_prior`, with `r = 1`). Equations
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


def p2_figure_2(
    *, n_records: int, d: int, rho: float, gamma: float = 1.0, tables: int = 200, random_seed: int = 20261122
) -> dict[str, float]:
    """The mean largest error of a frequency on made-up tables (P2 Figure 2), with two lines that P2 leaves out.

    The tables are `Multinomial(n_records, q)` with `q ~ Dirichlet(5, ..., 5)`. Nothing here takes data.

    Parameters
    ----------
    n_records : int
        At least 1.
    d : int
        Number of categories, at least 2.
    rho, gamma : float
        Of P2's own calibration; the Gaussian noise keeps `rho`-zCDP, for neighbours with a record replaced.
    tables : int, default 200
        How many are simulated, each with one output.
    random_seed : int
        The same seed gives the same numbers.

    Returns
    -------
    errors : dict of str to float
        `"Dirichlet"`; `"Gaussian, as it comes"`, which P2 shows; `"Gaussian, clipped"`, at 0, and normalised; and
        `"uniform"`, which looks at no data.

    Examples
    --------
    >>> sorted(p2_figure_2(n_records=100, d=10, rho=0.1))
    ['Dirichlet', 'Gaussian, as it comes', 'Gaussian, clipped', 'uniform']
    """
    n, categories, simulated = integer(1, n_records=n_records), integer(2, d=d), integer(1, tables=tables)
    alpha = p2_theorem_1_prior(rho=rho, gamma=gamma)
    rng = np.random.default_rng(random_seed)
    counts = rng.multinomial(n, rng.dirichlet(np.full(categories, _EVENNESS), size=simulated))
    noisy = counts + rng.normal(0.0, 1 / math.sqrt(rho), size=counts.shape)
    outputs = {
        "Dirichlet": np.array([dirichlet(row + alpha, 1, rng)[0] for row in counts]),
        "Gaussian, as it comes": noisy / n,
        "Gaussian, clipped": frequencies(np.maximum(noisy, 0.0)),
        "uniform": np.full(counts.shape, 1 / categories),
    }
    return {name: float(np.abs(y - counts / n).max(axis=1).mean()) for name, y in outputs.items()}
