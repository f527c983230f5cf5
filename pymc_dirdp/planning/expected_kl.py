"""Expected divergences before there are data, over data sets that a prior predicts, exact or simulated."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from scipy.special import digamma, gammaln, polygamma, xlogy

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import at_least, integer, positive, positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.numerics.quadrature import CountDistribution, count_distribution
from pymc_dirdp.planning.draw_error import expected_kl
from pymc_dirdp.sampling.fast import dirichlet

# Divergences of private draws in closed form.
#
# A priori numbers are expectations under the model's own prior. They use no data and may be published. A number that
# depends on counts is **confidential**, because the guarantee does not cover it.


def dirichlet_kl_rows(u: Array, v: Array) -> Array:
    """`KL(Dirichlet(u) || Dirichlet(v))` of each row, in nats. **Confidential** if `u` or `v` come from data."""
    totals = _bregman(u.sum(axis=-1, keepdims=True), v.sum(axis=-1, keepdims=True))
    return np.asarray(_bregman(u, v).sum(axis=-1) - totals[..., 0])


@dataclass(frozen=True)
class PriorExpectedKL:
    """A priori expected errors of the Dirichlet mechanism, as functions of its calibrated parameters.

    Both are averages over data sets of `n_records` records from the model's prior predictive distribution. The numbers
    of records of rows are data, so every row is assumed to hold an equal share.

    Parameters
    ----------
    prior : array, shape (..., d)
        The model's own prior.
    n_records : int
        Total number of records, at least 0: public under replace-one, the size to plan for under add-remove.

    References
    ----------
    Theory, section 8. `posterior` is P2's measure (section 4.1), `estimate` is P1's.

    Examples
    --------
    >>> errors = PriorExpectedKL(np.ones(4), n_records=592)
    >>> [name for name in dir(errors) if not name.startswith("_")]
    ['estimate', 'n_records', 'posterior', 'prior']
    """

    prior: Array
    n_records: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", positive_array(prior=self.prior))
        object.__setattr__(self, "n_records", integer(0, n_records=self.n_records))
        distribution = count_distribution(self.prior, self.n_records)
        object.__setattr__(self, "_distribution", distribution)
        posterior = distribution.counts + distribution.priors
        totals = distribution.row_size + distribution.row_totals
        object.__setattr__(self, "_posterior", (posterior, gammaln(posterior), digamma(posterior)))
        object.__setattr__(self, "_totals", (totals, gammaln(totals), digamma(totals)))

    _distribution: CountDistribution = None  # type: ignore[assignment]
    _posterior: tuple[Array, Array, Array] = None  # type: ignore[assignment]
    _totals: tuple[Array, Array, Array] = None  # type: ignore[assignment]

    def posterior(self, r: float, s: float = 0.0, *, keep: float = 1.0) -> float:
        """Expected `KL(Dirichlet(x + prior) || Dirichlet(r x + alpha))`, in nats, summed over rows.

        `alpha` is `keep * prior + s`.
        """
        distribution = self._distribution
        alpha, totals = self._raised(s, keep)
        cells = _bregman_from(*self._posterior, r * distribution.counts + alpha)
        rows = _bregman_from(*self._totals, r * distribution.row_size + totals)
        # A divergence is at least 0, but rounding can make the difference of equal terms negative.
        return max(0.0, float(distribution.weights @ cells - rows.sum()))

    def estimate(self, r: float, s: float = 0.0, *, keep: float = 1.0) -> float:
        """Expected `KL(x/N || y)`, with `y ~ Dirichlet(r x + alpha)`, in nats, averaged over rows; `alpha` as above."""
        distribution = self._distribution
        if distribution.row_size == 0:
            raise ArgumentError(
                "The data's frequencies are undefined for n_records=0. "
                "Use objective='posterior', which compares whole posteriors."
            )
        p = distribution.counts / distribution.row_size
        alpha, totals = self._raised(s, keep)
        cells = xlogy(p, p) - p * digamma(r * distribution.counts + alpha)
        rows = digamma(r * distribution.row_size + totals)
        return float((distribution.weights @ cells + rows.sum()) / len(distribution.row_totals))

    def _raised(self, s: float, keep: float) -> tuple[Array, Array]:
        """The prior parameters of the nodes and their sums over rows, both raised."""
        distribution = self._distribution
        return keep * distribution.priors + s, keep * distribution.row_totals + s * self.prior.shape[-1]


def effective_records(r: float, n_records: float) -> float:
    """`r * N`: the number of records of an ordinary posterior with the concentration of the draw."""
    return positive(r=r) * at_least(0, n_records=n_records)


def _bregman(u: Array, v: Array) -> Array:
    """Bregman divergence of log Gamma, `L(v) - L(u) - (v - u) psi(u)`; a Dirichlet KL is a sum of these."""
    return _bregman_from(u, gammaln(u), digamma(u), v)


def _bregman_from(u: Array, log_gamma_u: Array, digamma_u: Array, v: Array) -> Array:
    direct = gammaln(v) - log_gamma_u - (v - u) * digamma_u
    close = np.abs(v - u) < 0.05 * u
    if not np.any(close):
        return np.asarray(direct)
    # (v - u)**2 * integral_0^1 (1 - t) psi'(u + t (v - u)) dt, by three Gauss-Jacobi nodes: no cancellation.
    near_u, step = u[close], (v - u)[close]
    # Nodes and weights of the three-point Gauss rule for the weight 1 - t on [0, 1]; error below 1e-9 at a 5 % step.
    rule = (
        (0.08858795951270395, 0.20093191373895963),
        (0.4094668644407347, 0.22924110635958625),
        (0.7876594617608471, 0.06982697990145414),
    )
    taylor = sum(weight * polygamma(1, near_u + node * step) for node, weight in rule)
    direct[close] = step**2 * taylor
    return np.asarray(direct)


# The expected error of any mechanism, on data sets that the model's own prior predicts. No data are used.


@final
@dataclass(frozen=True)
class ExpectedKL:
    """Expected divergences in nats, before any data are seen.

    Attributes
    ----------
    posterior : float
        The divergence of the private posterior from the posterior, summed over rows: P2's measure.
    estimate : float
        The divergence of one private posterior draw from the frequencies, averaged over rows: P1's measure. NaN without
        records.
    """

    posterior: float
    estimate: float


def predicted_data(prior: Array, n_records: int, simulations: int | None = None, *, n_cells: int = 200_000) -> Integers:
    """Data sets of `n_records` records from the prior predictive distribution; rows hold an equal share.

    Parameters
    ----------
    prior : array, shape (..., d)
    n_records : int
    simulations : int or None
        The number of data sets. None takes `n_cells` counts, but between 100 and 5,000 data sets.
    n_cells : int
        The default takes a fraction of a second and gives means to about a per cent.

    Returns
    -------
    data : array of int, shape (simulations, ..., d)
    """
    n_rows = math.prod(prior.shape[:-1])
    size = max(1, round(n_records / n_rows))
    if simulations is None:
        simulations = min(5_000, max(100, n_cells // prior.size))
    # A seed does not affect privacy here, because no data are used, and repeated plans are equal.
    rng = np.random.default_rng(20261121)
    return rng.multinomial(size, dirichlet(prior, simulations, rng))


def simulated_kl(mechanism: Mechanism, prior: Array, data: Integers) -> ExpectedKL:
    """Both divergences of any mechanism, averaged over data sets.

    Parameters
    ----------
    mechanism : Mechanism
    prior : array, shape (..., d)
        The model's own prior.
    data : array of int, shape (simulations, ..., d)
        From :func:`predicted_data`.
    """
    private = mechanism.posterior_parameters(data, np.random.default_rng(20261122))
    posterior = dirichlet_kl_rows(data + prior, private)
    sizes = data.sum(axis=-1, keepdims=True)
    p = data / np.where(sizes > 0, sizes, 1)
    estimate = float(expected_kl(p, private).mean()) if np.any(sizes > 0) else math.nan
    return ExpectedKL(float(posterior.reshape(len(data), -1).sum(axis=1).mean()), estimate)


def a_priori_kl(mechanism: Mechanism, prior: Array, n_records: int) -> ExpectedKL:
    """Both divergences before any data are seen: in closed form for a tempered draw, simulated for others.

    Parameters
    ----------
    mechanism : Mechanism
    prior : array, shape (..., d)
        The model's own prior.
    n_records : int
        The public number of records, or the size to plan for.
    """
    if prior.shape[-1] == 1:
        # Every share is 1, before and after.
        return ExpectedKL(0.0, 0.0 if n_records else math.nan)
    tempered = mechanism.tempered
    # What depends on the prior alone is cached, because a frontier asks for many mechanisms.
    key = prior.shape, prior.tobytes(), n_records
    if tempered is None:
        return simulated_kl(mechanism, prior, _predicted(*key))
    keep, s = _raised(tempered.alpha, prior)
    expected = _closed_form(*key)
    estimate = expected.estimate(tempered.r, s, keep=keep) if n_records else math.nan
    return ExpectedKL(expected.posterior(tempered.r, s, keep=keep), estimate)


def _raised(alpha: Array, prior: Array) -> tuple[float, float]:
    """The factor of the prior and the added constant: a calibration adds one number everywhere, or makes it flat."""
    # Alpha is a sum of two doubles, which is rounded.
    if np.ptp(alpha - prior) <= 1e-12 * float(alpha.max()):
        return 1.0, float((alpha - prior).flat[0])
    return 0.0, float(alpha.flat[0])


@lru_cache(maxsize=8)
def _predicted(shape: tuple[int, ...], prior: bytes, n_records: int) -> Integers:
    return predicted_data(np.frombuffer(prior).reshape(shape), n_records)


@lru_cache(maxsize=8)
def _closed_form(shape: tuple[int, ...], prior: bytes, n_records: int) -> PriorExpectedKL:
    return PriorExpectedKL(np.frombuffer(prior).reshape(shape), n_records)
