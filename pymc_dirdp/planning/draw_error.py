"""Errors of a Dirichlet draw as an estimate of frequencies and of true shares, and the smallest detectable share."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betainc, betaincc, betaincinv, digamma, gammaln, loggamma, ndtri, polygamma, xlogy

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import open_unit_interval, positive, positive_array
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.numerics.roots import last_safe, log_ratio_to_budget


def expected_kl(p: Array, u: Array) -> Array:
    """`E KL(p || y)` over `y ~ Dirichlet(u)` in nats, row by row: shapes (..., d) to (...). Theory, section 8."""
    return np.asarray((xlogy(p, p) - p * digamma(u)).sum(axis=-1) + digamma(u.sum(axis=-1)))


@final
@dataclass(frozen=True, eq=False, repr=False)
class DrawError:
    """Errors of one draw `y ~ Dirichlet(u)` as an estimate of the frequencies p.

    Pass assumed frequencies, to plan. If `p` or `u` come from the data, all numbers of this object are confidential.
    :func:`pymc_dirdp.diagnose` has the errors of a release, and says so.

    Parameters
    ----------
    p : array_like, shape (d,)
        Frequencies: at least 0, with sum 1.
    u : array_like, shape (d,)
        Parameters of the draw: `r N p + alpha` for the Dirichlet mechanism. Positive.

    References
    ----------
    Theory, section 8.

    Examples
    --------
    >>> error = DrawError([0.5, 0.3, 0.2], [54.0, 34.0, 24.0])
    >>> error.mean
    0.0096...
    >>> error.tail(0.05)
    0.00547...
    >>> error.chernoff(0.05)
    0.0764...
    """

    p: Array
    u: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "u", positive_array(u=self.u))
        p = np.array(self.p, dtype=np.float64)
        if p.shape != self.u.shape or p.ndim != 1:
            raise ArgumentError(f"Expected p and u of one shape (d,), got {p.shape} and {self.u.shape}.")
        if not np.all(np.isfinite(p) & (p >= 0)) or abs(float(p.sum()) - 1) > 1e-9:
            raise DataError("Expected p to hold frequencies: at least 0, with sum 1.")
        p.flags.writeable = False
        object.__setattr__(self, "p", p)

    def __repr__(self) -> str:
        return f"DrawError of {len(self.p)} categories"

    @cached_property
    def _total(self) -> float:
        return float(self.u.sum())

    @property
    def mean(self) -> float:
        """Expectation of `KL(p || y)` in nats."""
        return max(0.0, float(expected_kl(self.p, self.u)))

    @property
    def variance(self) -> float:
        """Variance of `KL(p || y)`, in nats squared."""
        value = (self.p**2 * polygamma(1, self.u)).sum() - polygamma(1, self._total)
        return max(0.0, float(value))

    @property
    def squared_hellinger(self) -> float:
        """Expectation of the squared Hellinger distance `1 - sum sqrt(p_i y_i)`."""
        u = self.u
        # Gamma(u + 1/2) / Gamma(u) for each cell over that of the total.
        logs = gammaln(u + 0.5) - gammaln(u) - (gammaln(self._total + 0.5) - gammaln(self._total))
        return max(0.0, float(1 - (np.sqrt(self.p) * np.exp(logs)).sum()))

    @property
    def greatest_t(self) -> float:
        """The smallest `u_i / p_i`, from which on the moment generating function is infinite."""
        with np.errstate(divide="ignore", over="ignore"):
            return float(np.min(np.where(self.p > 0, self.u / self.p, np.inf)))

    def log_mgf(self, t: float) -> float:
        """Logarithm of `E exp(t KL(p || y))`, for t below :attr:`greatest_t`; `inf` from there on."""
        if not t < self.greatest_t:
            return math.inf
        cells = gammaln(self.u - t * self.p) - gammaln(self.u)
        value = t * xlogy(self.p, self.p).sum() + gammaln(self._total) - gammaln(self._total - t) + cells.sum()
        return float(value)

    def tail(self, eta: float) -> float:
        """The probability `P[KL(p || y) > eta]`, exact up to rounding.

        Parameters
        ----------
        eta : float
            In nats, positive.
        """
        return divergence_tail(self.p, self.u, positive(eta=eta))

    def chernoff(self, eta: float) -> float:
        """Chernoff's bound of :meth:`tail`: the minimum of `exp(-t eta) E exp(t KL)` over t.

        P1 Theorem 2 and its equation 22 relax it (:mod:`pymc_dirdp.papers.privacy`).

        Parameters
        ----------
        eta : float
            In nats, positive.
        """
        eta = positive(eta=eta)
        if eta <= self.mean:
            return 1.0

        def slope(t: float) -> float:
            cells = self.p * digamma(self.u - t * self.p)
            return float(xlogy(self.p, self.p).sum() + digamma(self._total - t) - cells.sum()) - eta

        from scipy.optimize import brentq  # Here, because it takes most of a second to import.

        # The slope rises from below 0 to infinity. Every t gives a valid bound, so an inexact root is safe.
        end = self.greatest_t * (1 - 1e-9)
        t = brentq(slope, 0.0, end, xtol=1e-12 * end) if slope(end) > 0 else end
        return min(1.0, math.exp(self.log_mgf(t) - t * eta))

    def quantile(self, probability: float) -> float:
        """The eta that `KL(p || y)` exceeds with this probability, rounded up; within 1e-6 relative."""
        probability = open_unit_interval(probability=probability)
        start = max(self.mean, 1e-12)
        return last_safe(
            lambda eta: log_ratio_to_budget(self.tail(eta), probability), start=start, factor=0.5, rtol=1e-8
        )

    def largest_error_tail(self, t: float) -> float:
        """Bound of `P[max |y_i - p_i| > t]`: the sum over cells of their exact Beta tails.

        P2 Theorem 4 relaxes it.

        Parameters
        ----------
        t : float
            In (0, 1).
        """
        t = open_unit_interval(t=t)
        rest = self._total - self.u
        above, below = self.p + t, self.p - t
        tails = np.where(above < 1, betaincc(self.u, rest, np.minimum(above, 1)), 0.0)
        tails += np.where(below > 0, betainc(self.u, rest, np.maximum(below, 0)), 0.0)
        return min(1.0, float(tails.sum()))

    @classmethod
    def of_mechanism(cls, frequencies: ArrayLike, n_records: float, alpha: ArrayLike, r: float) -> "DrawError":
        """The error of the Dirichlet mechanism, for `n_records` records with these frequencies."""
        p = np.asarray(frequencies, dtype=np.float64)
        return cls(p, positive(r=r) * n_records * p + np.asarray(alpha, dtype=np.float64))


def divergence_tail(p: Array, u: Array, eta: float) -> float:
    """`P[KL(p || y) > eta]` over `y ~ Dirichlet(u)`, for frequencies p and `eta > 0`.

    The relative error is about 1e-14 times the sum of u, and 1e-10 where that is less.

    References
    ----------
    Theory, section 8.

    Examples
    --------
    >>> divergence_tail(np.array([1.0, 0.0]), np.array([3.0, 1.0]), 0.5)  # P[y < exp(-0.5)] = exp(-1.5)
    0.22313...
    """
    total, entropy = float(u.sum()), float(xlogy(p, p).sum()) - eta
    p, u = p[p > 0], u[p > 0]

    def slope(t: float) -> float:
        return entropy - 1 / t + float(digamma(total - t)) - float((p * digamma(u - t * p)).sum())

    # The logarithm of the integrand is convex on both sides of its pole at 0. The path crosses the real axis at a
    # minimum, above 0 for large eta, and below 0 for small eta, where the integral is that of the other tail. It then
    # bends around the other poles, which lie beyond the first one on the real axis.
    with np.errstate(over="ignore"):
        lowest = float(np.min(u / p))
    below = entropy + float(digamma(total)) - float((p * digamma(u)).sum()) > 0
    crossing = _crossing(slope, lowest, below=below)
    if math.isnan(crossing):
        return 1.0 if below else 0.0
    curvature = float((p**2 * polygamma(1, u - crossing * p)).sum() - polygamma(1, total - crossing)) + 1 / crossing**2
    width = 1 / math.sqrt(curvature)

    def integral(step: float) -> float:
        # The integrand ends below exp(-60) of its largest value.
        s = step * np.arange(math.ceil(min(math.acosh(1 + 60.0 / (eta * width)) + 3, 600.0) / step))
        t = crossing + width * (np.cosh(s) - 1 + 1j * np.sinh(s))
        terms = loggamma(u - t[:, None] * p) - loggamma(u)
        logs = t * entropy + loggamma(total) - loggamma(total - t) + terms.sum(axis=1) - np.log(t)
        values = (np.exp(logs) * width * (np.sinh(s) + 1j * np.cosh(s))).imag
        return float(values.sum() - values[0] / 2) * step / math.pi

    step, previous, current = 0.125, math.inf, integral(0.25)
    # Stop when two integrals agree to this relative accuracy.
    while abs(current - previous) > 1e-11 * abs(current) and step > 1e-3:
        previous, current, step = current, integral(step), step / 2
    return min(1.0, max(1 + current if below else current, 0.0))


def _crossing(slope: Callable[[float], float], start: float, *, below: bool) -> float:
    """The root of a rising slope, between 0 and the first pole or below 0; NaN where the tail is below exp(-1e9)."""
    from scipy.optimize import brentq  # Here, because it takes most of a second to import.

    if not below:
        low, high = start * 1e-12, start * (1 - 1e-12)
    else:
        low, high = -start, -start * 1e-12
        while slope(low) > 0 and low > -1e100:
            low *= 4
    if slope(high) <= 0 or slope(low) >= 0:
        return low if not below and slope(low) >= 0 else math.nan
    return float(brentq(slope, low, high, xtol=1e-9 * min(abs(low), abs(high)), rtol=1e-9))


# Errors of the shares of a draw, and the smallest detectable share.


def draw_share_error(
    mechanism: TableMechanism, prior: Array, n_records: int, *, public: bool = False, totals: Sequence[int] = ()
) -> float | None:
    """The root mean square error of a share of a released draw; None for other mechanisms, or without records.

    The shares come from the prior, the counts from the shares, and the draw from the counts. The error has a closed
    form, with means and variances of the Dirichlet-multinomial distribution. Divisions of the records among rows have a
    uniform prior, as in :func:`pymc_dirdp.planning.estimate_error.estimate_error`. Totals of rows are treated as
    continuous, and the mean over them is that of 400 quantiles.

    Parameters
    ----------
    mechanism : TableMechanism
        A mechanism that draws from a tempered posterior; any other gives None.
    prior : array, shape (..., d)
        The model's own prior.
    n_records : int
        The public number of records, or the size to plan for.
    public : bool, default False
        Whether the number of records is public.
    totals : sequence of int, optional
        The public numbers of records of parts of the rows, see :meth:`TableMechanism.public_sizes`.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
    >>> round(draw_share_error(DirichletMechanism(np.full(4, 2.677), 0.2028), np.ones(4), 592), 3)
    0.041
    """
    tempered = mechanism.tempered
    if tempered is None or n_records == 0:
        return None
    d = prior.shape[-1]
    a, alpha = prior.reshape(-1, d), tempered.alpha.reshape(-1, d)
    sizes, sharing = mechanism.public_sizes(prior.shape, n_records, totals, public=public)
    n = _totals(sizes, sharing)[..., None]
    size, total = a.sum(axis=-1, keepdims=True), alpha.sum(axis=-1, keepdims=True)
    share = a / size
    count, variance = n * share, n * share * (1 - share) * (n + size) / (size + 1)
    # The mean of the draw and that of the posterior are both linear in the count.
    draw_variance_scale, posterior_scale = tempered.r / (tempered.r * n + total), 1 / (n + size)
    mean = draw_variance_scale * count + alpha / (tempered.r * n + total)
    spread_of_draw = (mean * (1 - mean) - draw_variance_scale**2 * variance) / (tempered.r * n + total + 1)
    spread_of_share = (share * (1 - share) - posterior_scale**2 * variance) / (n + size + 1)
    between = (draw_variance_scale - posterior_scale) ** 2 * variance + (mean - share) ** 2
    return math.sqrt(float(np.mean(spread_of_draw + spread_of_share + between)))


def _totals(sizes: Array, sharing: int, *, levels: int = 400) -> Array:
    """Totals of rows under a uniform prior, shape (levels, rows), if `sharing` rows divide the records.

    There are `levels` totals of each row if several rows divide the records.
    """
    if sharing == 1:
        return sizes[None]
    level = (np.arange(levels)[:, None] + 0.5) / levels
    return np.asarray(sizes * -np.expm1(np.log1p(-level) / (sharing - 1)))


def smallest_share(
    mechanism: TableMechanism,
    shape: tuple[int, ...],
    n_records: float,
    *,
    totals: Sequence[int] = (),
    mistake: float = 0.05,
) -> float | None:
    """The smallest share of a row's records that is distinguished from an empty cell, with 5 % mistakes either way.

    By P1 equation 3, the mean of a draw differs from a cell's frequency by the weight of the prior counts relative to
    `r` times the records. A cell with a small share shows mostly the prior. Rows with private numbers of records are
    assumed to have equal numbers.

    Parameters
    ----------
    mechanism : TableMechanism
        A mechanism that draws from a tempered posterior or adds noise to counts; any other gives None.
    shape : tuple of int
        The shape of the table.
    n_records : float
        The number of records of the table; 0 gives None.
    totals : sequence of int, optional
        The public numbers of records of parts of the rows. The smallest part with any records decides.
    mistake : float, default 0.05
        The probability of either mistake: to mistake an empty cell for one with this share, or the reverse.

    Returns
    -------
    share : float or None
        The maximum over all cells; 1 if not even a cell with all records of its row is distinguished. Noise uses the
        normal approximation.

    Examples
    --------
    >>> from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
    >>> round(smallest_share(DirichletMechanism(np.full(4, 2.677), 0.2028), (4,), 592), 3)
    0.063
    """
    rows = math.prod(shape[:-1]) / max(1, len(totals))
    n = min((total for total in totals if total > 0), default=n_records) / rows
    if not n > 0 or shape[-1] < 2:
        return None
    if mechanism.noise_sd is not None:
        return min(1.0, -2.0 * float(ndtri(mistake)) * mechanism.noise_sd / n)
    tempered = mechanism.tempered
    if tempered is None:
        return None
    row_totals = np.broadcast_to(tempered.alpha.sum(axis=-1, keepdims=True), tempered.alpha.shape)
    cell_prior, row_prior = np.unique(np.stack([tempered.alpha.ravel(), row_totals.ravel()], axis=1), axis=0).T
    other_prior, weight = row_prior - cell_prior, tempered.r * n
    looks_empty = betaincinv(cell_prior, other_prior + weight, 1 - mistake)
    low, high = np.zeros(cell_prior.shape), np.ones(cell_prior.shape)
    for _ in range(50):
        share: Array = (low + high) / 2
        is_visible = betainc(cell_prior + weight * share, other_prior + weight * (1 - share), looks_empty) <= mistake
        low, high = np.where(is_visible, low, share), np.where(is_visible, share, high)
    return float(high.max())
