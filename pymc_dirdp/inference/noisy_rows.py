"""The likelihood of noisy counts as a function of the probabilities of their cells, with its gradient.

A row has the cells k = 1..K with counts x_k and noisy counts z_k, and L_k(x) = P[z_k | x]. The weights w_k of the cells
are probabilities p_k or expected numbers mu_k. This module computes two sums:

* if the number of records n of the row is public, x is Multinomial(n, p), and

      S = n! * sum over x with x_1 + ... + x_K = n of prod_k p_k^x_k / x_k! * L_k(x_k);

* if n is private, the x_k are independent Poisson(mu_k), and

      S = prod_k sum over x of mu_k^x / x! * L_k(x), to be multiplied by exp(-sum_k mu_k).

In both, d log S / d log w_k = E[x_k | z], because w_k^x_k is the only factor with w_k.

**One cell.** The terms f(x) = exp(x a) / x! * L(x), a = log w, are log-concave in x, because L is log-concave. Up to a
constant, log L is -b |z - x| (Laplace, geometric, zero-sum geometric noise), or -b (z - x)^2 (normal, discrete Gaussian
noise). For other outputs, such as Dirichlet draws, it is a table that was checked to be concave. So the terms rise to a
mode and then fall with decreasing ratios. The rest of the sum after a term is at most the next term over one minus its
ratio, and the sum stops at terms below 1e-18 of the largest. There is no fixed window: a sum begins at z and goes
outward, because the mode is near z. If a sampler is far away, for instance at its start, the terms overflow. The code
then searches for the mode and begins there.

**Two cells, public n.** The terms x -> f_1(x) f_2(n - x) are log-concave, too, so the same method works. Ratios of
successive terms have the odds w_1 / w_2, (n - x) / (x + 1) instead of 1 / (x + 1), and the noise of both cells. The
Fourier sums below would take 6 to 600 times as long. If n is small and the noisy counts are known beforehand, S is a
polynomial in the odds with n + 1 precomputed coefficients (`pair_terms`).

**More cells, public n.** Multiplying each w_k by exp(t) multiplies S by exp(n t), so t is chosen such that the means of
the tilted cells sum to n. With g_k the tilted terms over their sum s_k, S is n! e^(-n t) prod_k s_k times the
probability I that independent X_k ~ g_k sum to n, and

    I = 1/M sum_{j<M} prod_k phi_k(2 pi j / M) exp(-2 pi i j n / M),    phi_k(u) = E exp(i u X_k),

if no other sum that differs from n by a multiple of M has a probability. M is the smaller of the length of the support
of the sum and a distance from n beyond which the sum has less than 1e-17. Because of t, I is about 1 over the standard
deviation of the sum, so the sum over j, whose terms are at most 1, loses few digits. For E[x_k], the characteristic
function of x g_k(x) replaces phi_k. Products over all other cells combine those before and after, because a phi_k may
be 0. Several waves are computed at once, with cosines of sums of two terms at the same distance from the mode and
sines of their differences. The sum ends when two successive products are below 1e-17, because each |phi| falls at
first.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, final, override

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln

from pymc_dirdp.arrays import Array
from pymc_dirdp.inference.joint_rows import CompiledRows, JointRows, readonly
from pymc_dirdp.inference.observed_table import Beliefs, ObservedTable, number_of, row_prior_of
from pymc_dirdp.mechanisms.outputs import CellNoise
from pymc_dirdp.sampling.bits import compiled

# Number of waves that are summed at once.
_WAVES = 16


@final
@dataclass(frozen=True, eq=False)
class NoisyRows(CompiledRows):
    """The likelihood of noisy counts of rows: `log S` of each row.

    Weights are probabilities, or expected numbers. Two arrays are published: the noisy counts, shape (rows, cells), and
    the three numbers of a :class:`CellNoise`.

    Attributes
    ----------
    totals : array of int, shape (rows,), or None
        The public number of records of each row; None if it is private, so that cells are Poisson.
    tables : array, shape (rows, cells, numbers), optional
        Concave log-likelihoods of 0, 1, 2, ... records, which replace those of noise. Or :func:`pair_terms`, with an
        axis of length 1 instead of cells.
    """

    totals: NDArray[np.int64] | None
    tables: Array | None = None

    @staticmethod
    @override
    def program() -> Callable[..., None]:
        return _compiled()

    @property
    @override
    def arrays(self) -> tuple[NDArray[Any], ...]:
        totals = np.empty(0, dtype=np.int64) if self.totals is None else self.totals
        return self._tables, totals

    @cached_property
    def _tables(self) -> Array:
        if self.tables is not None:
            return self.tables
        if self.totals is None or not self.published or self.published[0].shape[-1] != 2:
            return np.empty((0, 0, 0))
        noisy, noise = self.published
        terms = pair_terms(noisy, noise, self.totals)
        return terms[:, None] if terms.size else np.empty((0, 0, 0))


def pair_terms(noisy: Array, noise: Array, totals: NDArray[np.int64], *, most: int = 100) -> Array:
    """The terms of the likelihood of noisy counts of two cells that do not depend on probabilities.

    With q_x the probability of the noisy counts given x and n - x records, times n! / x! (n - x)!, S is the sum of
    q_x p_1^x p_2^(n - x). A gradient takes half of the time (`benchmarks/private_speed.csv`).

    Parameters
    ----------
    noisy : array, shape (rows, 2)
    noise : array, shape (3,)
        The numbers of a :class:`CellNoise`.
    totals : array of int, shape (rows,)
    most : int, default 100
        Largest number of records with a list. In larger rows only few terms matter.

    Returns
    -------
    terms : array, shape (rows, 4 + numbers)
        The noisy counts and the total, by which the program recognizes the row; the logarithm of a scale; and
        q_0, q_1, ..., q_n over this scale. NaN in rows without a list; no columns if no row has one.
    """
    listed = totals <= most
    if not listed.any():
        return np.empty((len(totals), 0))
    x = np.arange(totals[listed].max() + 1.0)
    rest = totals[:, None] - x
    distances = [np.abs(noisy[:, :1] - x), np.abs(noisy[:, 1:] - rest)]
    powers = [distance**2 if noise[0] > 0 else distance for distance in distances]
    choices = gammaln(totals[:, None] + 1) - gammaln(x + 1) - gammaln(np.maximum(rest, 0) + 1)
    logs = np.where(rest >= 0, choices - noise[1] * (powers[0] + powers[1]), -np.inf)
    scales = logs.max(axis=1, keepdims=True)
    terms = np.concatenate([noisy, totals[:, None], scales, np.exp(logs - scales)], axis=1)
    return np.where(listed[:, None], terms, np.nan)


@final
@dataclass(frozen=True, eq=False)
class PrivateTotal:
    """The likelihood of noisy counts of one row whose number of records is private, with a uniform prior.

    Because n! is the integral of exp(-m) m^n over m > 0, the sum over numbers of records n and Multinomial(n, p) counts
    is the integral of exp(-m) S(m p), where S are the sums of Poisson cells. The term of n records is a Gamma density
    of m, and the square root of m has a standard deviation of about a half for every n. So m is the square of
    log(1 + exp(t)), which is near t, or near exp(t) if there may be no record. Equal steps of .35 in t have an error of
    1e-17.

    Attributes
    ----------
    noisy : array, shape (cells,)
    noise : CellNoise
    numbers : range
        The possible numbers of records.
    """

    noisy: Array
    noise: CellNoise
    numbers: range

    def likelihood(
        self, log_shares: ArrayLike, *, step: float = 0.35, together: int = 16, unlikely: float = 38.0
    ) -> tuple[float, Array] | None:
        """Log-likelihood of known shares, and its gradient in `log_shares`, the expected counts.

        Returns None if impossible numbers of records would contribute more than `exp(-unlikely)` of it.

        Parameters
        ----------
        log_shares : array_like, shape (cells,)
        step : float
        together : int
            Number of steps that are evaluated at once.
        unlikely : float
            Terms below `exp(-unlikely)` of the largest are left out.
        """
        logs = np.asarray(log_shares, dtype=np.float64).ravel()
        first = int(math.sqrt(max(self.noisy.sum(), 1.0)) / step) - together
        values, means = self._terms(logs, step, first, 2 * together)
        while values[0] > values.max() - unlikely:
            first -= together
            before = self._terms(logs, step, first, together)
            values, means = np.concatenate([before[0], values]), np.concatenate([before[1], means])
        while values[-1] > values.max() - unlikely:
            after = self._terms(logs, step, first + len(values), together)
            values, means = np.concatenate([values, after[0]]), np.concatenate([means, after[1]])
        weights = np.exp(values - values.max())
        total = float(values.max() + math.log(step * weights.sum()))
        if self._log_impossible > total - unlikely:
            return None
        return total - math.log(len(self.numbers)), (weights @ means / weights.sum()).reshape(np.shape(log_shares))

    def _terms(self, logs: Array, step: float, first: int, steps: int) -> tuple[Array, Array]:
        """Logarithms of the integrand at the steps, and the expected counts given m."""
        t = step * np.arange(first, first + steps)
        log_root = np.log(np.logaddexp(0.0, t))
        rows = NoisyRows(None, published=(np.tile(self.noisy, (steps, 1)), self.noise.numbers))
        values, means = rows.evaluated(logs + 2 * log_root[:, None])
        # The derivative of m.
        slope = math.log(2) + log_root - np.logaddexp(0.0, -t)
        return values - np.exp(2 * log_root) + slope, means

    @cached_property
    def _log_impossible(self) -> float:
        """An upper bound on the log-likelihood of impossible numbers of records, for all shares.

        The noise sums to the distance of the number of records from the sum of the noisy counts.
        """
        noisy, cells = self.noisy.sum(), self.noisy.size
        below = noisy - self.numbers[0] + 1 if self.numbers[0] > 0 else math.inf
        nearest = min(below, self.numbers[-1] + 1 - noisy)
        if nearest <= 0:
            return math.inf
        # The sum of squares of normal noise is at least the square of the sum over the number of cells.
        nearest, next_one = (
            distance**2 / cells if self.noise.is_normal else distance for distance in (nearest, nearest + 1)
        )
        # Probabilities fall at least as fast as a geometric sequence, on two sides.
        rest = -math.expm1(-self.noise.slope * (next_one - nearest)) / 2
        return float(cells * self.noise.constant - self.noise.slope * nearest - math.log(rest))


def private_total(table: ObservedTable, beliefs: Beliefs) -> PrivateTotal | None:
    """The likelihood of the only row of a table with a private number of records; None for other tables."""
    number, values, noise = beliefs.n_prior, table.observed[0][0], table.cell_noise
    numbers = range(number + 1) if isinstance(number, int) else number
    if not isinstance(numbers, range) or noise is None or table.n_records is not None or table.least or table.blocks:
        return None
    if len(table.observed) > 1 or not values.size == table.prior.size == table.prior.shape[-1]:
        return None
    return PrivateTotal(np.array(values, dtype=np.float64).ravel(), noise, numbers)


def noisy_rows(table: ObservedTable, beliefs: Beliefs) -> NoisyRows | JointRows | None:
    """The likelihood of the rows of a table whose numbers of records are all public; None for other tables.

    It is that of noise on each cell or of joint noise, or a table if the table is short and concave.
    """
    (number, _), row_prior = number_of(table, beliefs.n_prior), row_prior_of(table, beliefs.row_prior)
    rows, d = table.prior.size // table.prior.shape[-1], table.prior.shape[-1]
    if table.n_records is None or table.least or len(table.blocks) != rows > 1:
        return None
    if (joint := table.joint_rows) is not None:
        known = joint.blocks[0].ball.zero_sum and number == sum(total for _, total in table.blocks)
        if not known or len(joint.blocks) != rows or row_prior is not None:
            return None
        return JointRows.of(joint.blocks, joint.log_weights, published=True)
    totals, (values, _) = np.full(rows, table.n_records), table.observed[0]
    for block, total in table.blocks if rows > 1 else ():
        totals[block] = total
    if table.cell_noise is not None and len(table.observed) == 1 and values.size == table.prior.size:
        noisy = np.array(values, dtype=np.float64).reshape(rows, d)
        return NoisyRows(totals, published=(noisy, table.cell_noise.numbers))
    return _listed_rows(table, totals)


def _listed_rows(
    table: ObservedTable, totals: NDArray[np.int64], *, most_listed: int = 2**21, rounding: float = 1e-13
) -> NoisyRows | None:
    """Rows with tabulated likelihoods; None if the tables are long, or more convex than rounding explains."""
    rows, d = len(totals), table.prior.shape[-1]
    x = np.arange(totals.max() + 1.0)
    if x.size * table.prior.size > most_listed:
        return None
    likelihoods, none = table.row_likelihoods(), np.zeros((d, len(x)))
    with np.errstate(divide="ignore", invalid="ignore"):
        tables = np.stack(
            [sum((likelihood.cell_loglik(x, np.arange(d)[:, None]) for likelihood in row), none) for row in likelihoods]
        )
        bends = np.diff(tables, 2)
    numbers = zip(likelihoods, totals.astype(np.float64), strict=True)
    constant = float(sum(likelihood.total_loglik(np.array([n]))[0] for row, n in numbers for likelihood in row))
    possible = np.broadcast_to(x <= totals[:, None, None], tables.shape)
    if not np.isfinite(tables[possible]).all() or not math.isfinite(constant):
        return None
    if (bends[possible[..., 2:]] > rounding * np.abs(tables[possible]).max()).any():
        return None
    no_noise = np.array([0.0, 1.0, constant / table.prior.size])
    return NoisyRows(totals, np.where(possible, tables, -np.inf), published=(np.zeros((rows, d)), no_noise))


@cache
def _compiled() -> Callable[..., None]:
    arrays = f"{readonly('float64', 2)}, {readonly('float64', 1)}, {readonly('float64', 3)}, {readonly('int64', 1)}"
    signature = f"({readonly('float64', 2, 'C')}, float64[:, ::1], float64[::1], {arrays})"
    sums = _pair_step, _pair_mode, _sums, _listed_sums, _pair, _polynomial, _poisson
    return compiled(
        signature, _rows, _log_factorial, _step, _log_term, _mode, _ratio, _terms, *sums, _tilted, _wave_row
    )


# A log-gamma function takes as long as ten terms of a sum.
_LOG_FACTORIALS = gammaln(np.arange(1.0, 1025.0))


def _log_factorial(x: float) -> float:
    """Logarithm of x!."""
    log: float = _LOG_FACTORIALS[int(x)] if x < len(_LOG_FACTORIALS) else math.lgamma(x + 1)
    return log


def _step(normal: bool, b: float, a: float, z: float, t: Any, x: float) -> float:
    """Logarithm of f(x + 1) / f(x) of one cell."""
    if len(t) > 0:
        return a + t[int(x) + 1] - t[int(x)] - math.log(x + 1) if x + 1 < len(t) else -math.inf
    if normal:
        return a + b * (2 * (z - x) - 1) - math.log(x + 1)
    return a + b * (abs(z - x) - abs(z - x - 1)) - math.log(x + 1)


def _log_term(normal: bool, b: float, a: float, z: float, t: Any, x: float) -> float:
    """Logarithm of f(x) of one cell, without the constant of the noise."""
    distance = (z - x) ** 2 if normal else abs(z - x)
    of_output = t[int(x)] if len(t) > 0 else -b * distance
    return (a * x if x > 0 else 0.0) - _log_factorial(x) + of_output


def _mode(normal: bool, b: float, a: float, z: float, t: Any) -> float:
    """The largest term of one cell: the first x at which the next term is not larger."""
    low, high = -1.0, 0.0
    while _step(normal, b, a, z, t, high) > 0:
        low, high = high, 2 * high + 1
    # The step is positive at low, but not at high.
    while high - low > 1:
        middle = math.floor((low + high) / 2)
        if _step(normal, b, a, z, t, middle) > 0:
            low = middle
        else:
            high = middle
    return high


def _ratio(normal: bool, b: float, a: float, z: float, t: Any, x: float, rising: float, falling: float) -> float:
    """f(x + 1) / f(x) of one cell. `rising` and `falling` are exp(a + b) and exp(a - b), or 0 if not applicable."""
    if rising > 0 and x + 1 <= z:
        return rising / (x + 1)
    if rising > 0 and x >= z:
        return falling / (x + 1)
    return math.exp(_step(normal, b, a, z, t, x))


def _terms(normal: bool, b: float, a: float, z: float, t: Any, mode: float) -> tuple[Any, int]:
    """The terms of one cell over the largest, and the index of the largest.

    Terms are counted first and then written, which is faster than a growing list.
    """
    # With these, most steps of Laplace noise need no exponential.
    rising, falling = 0.0, 0.0
    if len(t) == 0 and not normal and abs(a) < 300 and b < 300:
        rising, falling = math.exp(a + b), math.exp(a - b)
    up, term = 0, 1.0
    while term >= 1e-18:
        term *= _ratio(normal, b, a, z, t, mode + up, rising, falling)
        up += 1
    down, term = 0, 1.0
    while down < mode:
        term /= _ratio(normal, b, a, z, t, mode - down - 1, rising, falling)
        if not term >= 1e-18:
            break
        down += 1
    terms = np.empty(down + up)
    terms[down] = 1.0
    for i in range(1, up):
        terms[down + i] = terms[down + i - 1] * _ratio(normal, b, a, z, t, mode + i - 1, rising, falling)
    for i in range(1, down + 1):
        terms[down - i] = terms[down - i + 1] / _ratio(normal, b, a, z, t, mode - i, rising, falling)
    return terms, down


def _pair_step(normal: bool, b: float, a: Any, z: Any, tables: Any, n: float, x: float) -> float:
    """Logarithm of the ratio of the terms x + 1 and x of two cells with x and n - x records."""
    return _step(normal, b, a[0], z[0], tables[0], x) - _step(normal, b, a[1], z[1], tables[1], n - x - 1)


def _pair_mode(normal: bool, b: float, a: Any, z: Any, tables: Any, n: float) -> float:
    """The largest term of two cells: the first x at which the next term is not larger."""
    low, high = 0.0, n
    while low < high:
        middle = math.floor((low + high) / 2)
        if _pair_step(normal, b, a, z, tables, n, middle) > 0:
            low = middle + 1
        else:
            high = middle
    return low


def _sums(
    normal: bool, b: float, odds: float, low: float, high: float, n: float, start: float, most: float
) -> tuple[float, float]:
    """The sum of the terms of two cells over that at `start`, and the mean of the first cell less `start`.

    The first has the noisy count `low`, and the second `n - high`. For a single cell pass its log-weight as `odds`,
    half of `b`, its noisy count as `low` and `high`, and an infinite `n`.

    Each term is the previous term times a ratio of odds, numbers of records and noise. The ratios of normal noise are a
    geometric sequence, and those of other noise change only at the noisy counts. The sum stops when it exceeds `most`.
    """
    if normal:
        gain, loss = low + high - 1 - 2 * start, 2 * start - 1 - low - high
    else:
        gain = (1.0 if start < low else 0.0) - (1.0 if start >= high else 0.0)
        loss = (1.0 if start > high else 0.0) - (1.0 if start <= low else 0.0)
    up, down = math.exp(odds + 2 * b * gain), math.exp(2 * b * loss - odds)
    change = math.exp(-4 * b if normal else -2 * b)
    # A single cell has no other cell whose count falls when its own rises.
    start_of_others, fall = (n - start, 1.0) if n < math.inf else (1.0, 0.0)
    total, first, x, term, others = 1.0, 0.0, start, 1.0, start_of_others
    while others > 0 and term >= 1e-18 * total and total <= most:
        x += 1
        term *= up * (others / x)
        others -= fall
        total += term
        first += term * (x - start)
        up *= change if normal or x == low else 1.0
        up *= change if not normal and x == high else 1.0
    x, term, others = start, 1.0, start_of_others
    while x > 0 and term >= 1e-18 * total and total <= most:
        others += fall
        term *= down * (x / others)
        x -= 1
        total += term
        first += term * (x - start)
        down *= change if normal or x == low else 1.0
        down *= change if not normal and x == high else 1.0
    return total, first / total


def _listed_sums(normal: bool, b: float, a: Any, z: Any, tables: Any, n: float, start: float) -> tuple[float, float]:
    """The same as :func:`_sums`, from the mode on, for any likelihood of a cell."""
    total, first = 1.0, 0.0
    for direction in (1, -1):
        x, term = start, 1.0
        while term >= 1e-18 and (x < n if direction == 1 else x > 0):
            lower = x if direction == 1 else x - 1
            term *= math.exp(direction * _pair_step(normal, b, a, z, tables, n, lower))
            x += direction
            total += term
            first += term * (x - start)
    return total, first / total


def _pair(normal: bool, b: float, a: Any, z: Any, tables: Any, n: float) -> tuple[float, float]:
    """`log S` of two cells without n!, and the mean of the first."""
    z_of_second = n - z[1]
    if a[0] == -math.inf or a[1] == -math.inf:
        if n > 0 and a[0] == a[1]:
            return -math.inf, 0.0
        # There is only one term.
        start, total, first = 0.0 if a[0] == -math.inf else n, 1.0, 0.0
    elif len(tables[0]) > 0 or not (normal or (z[0] == math.floor(z[0]) and z_of_second == math.floor(z_of_second))):
        start = _pair_mode(normal, b, a, z, tables, n)
        total, first = _listed_sums(normal, b, a, z, tables, n, start)
    else:
        # The noisy count is near the mode unless a sampler is far away, and beginning there needs no logarithm.
        start = min(max(math.floor(z[0]), 0.0), n)
        total, first = _sums(normal, b, a[0] - a[1], z[0], z_of_second, n, start, 1e200)
        if not total <= 1e200:
            start = _pair_mode(normal, b, a, z, tables, n)
            total, first = _sums(normal, b, a[0] - a[1], z[0], z_of_second, n, start, math.inf)
    value = math.log(total) + _log_term(normal, b, a[0], z[0], tables[0], start)
    value += _log_term(normal, b, a[1], z[1], tables[1], n - start)
    return value, start + first


def _polynomial(logs: Any, noisy: Any, terms: Any, row: int, n: int) -> tuple[float, float]:
    """`log S` of two cells and the mean of the first, from the coefficients of :func:`pair_terms`.

    Returns minus infinity if the coefficients are for other counts, or too small. Slicing a row would take as long.
    """
    log_odds = logs[row, 0] - logs[row, 1]
    known = terms[row, 0, 0] == noisy[row, 0] and terms[row, 0, 1] == noisy[row, 1] and terms[row, 0, 2] == n
    if not (known and n + 5 <= terms.shape[2] and abs(log_odds) < math.inf):
        return -math.inf, 0.0
    # Horner's rule for even and odd powers, which run in parallel, and their derivatives, in the odds or their inverse
    # (the one that is at most 1).
    odds, even, odd, of_even, of_odd = math.exp(-abs(log_odds)), 0.0, 0.0, 0.0, 0.0
    start, step, square = (n + 4, -1, odds**2) if log_odds > 0 else (4, 1, odds**2)
    if n % 2 == 0:
        even = terms[row, 0, start + step * n]
    for k in range((n + 1) // 2 - 1, -1, -1):
        of_even = of_even * square + even
        of_odd = of_odd * square + odd
        even = even * square + terms[row, 0, start + step * 2 * k]
        odd = odd * square + terms[row, 0, start + step * (2 * k + 1)]
    total = even + odds * odd
    # All terms are positive. Terms below 1e-308 have underflowed.
    if not total > 1e-280:
        return -math.inf, 0.0
    mean = (2 * square * of_even + odds * (odd + 2 * square * of_odd)) / total
    value = math.log(total) + terms[row, 0, 3] + n * max(logs[row, 0], logs[row, 1])
    return value, n - mean if log_odds > 0 else mean


def _poisson(normal: bool, b: float, a: float, z: float, none: Any) -> tuple[float, float]:
    """`log S` of a single cell, and its mean."""
    start, total, first = max(math.floor(z), 0.0), 1.0, 0.0
    if a == -math.inf:
        start = 0.0
    else:
        total, first = _sums(normal, b / 2, a, z, z, math.inf, start, 1e200)
        if not total <= 1e200:
            start = _mode(normal, b, a, z, none)
            total, first = _sums(normal, b / 2, a, z, z, math.inf, start, math.inf)
    return math.log(total) + _log_term(normal, b, a, z, none, start), start + first


def _tilted(
    normal: bool, b: float, a: Any, z: Any, tables: Any, n: float
) -> tuple[float, list[Any], Any, Any, float, float]:
    """A number t such that the means of the cells with log-weights a + t sum to about n, by bounded Newton steps.

    The other results are the normalized terms of each cell, their modes, the indices of the modes, and the mean and
    variance of the sum of the cells.
    """
    low, high, largest, total = -math.inf, math.inf, -math.inf, 0.0
    for log_weight in a:
        largest = max(largest, log_weight)
    for log_weight in a:
        total += math.exp(log_weight - largest)
    modes, places = np.zeros(len(a)), np.zeros(len(a), dtype=np.int64)
    t = math.log(n / total) - largest
    while True:
        all_terms = []
        mean, variance = 0.0, 0.0
        for k in range(len(a)):
            modes[k] = _mode(normal, b, a[k] + t, z[k], tables[k])
            terms, places[k] = _terms(normal, b, a[k] + t, z[k], tables[k], modes[k])
            terms /= terms.sum()
            first, second = 0.0, 0.0
            for i in range(len(terms)):
                first += terms[i] * (i - places[k])
                second += terms[i] * (i - places[k]) ** 2
            mean += modes[k] + first
            variance += second - first**2
            all_terms.append(terms)
        miss = n - mean
        low, high = (t, high) if miss > 0 else (low, t)
        step = t + max(min(miss / max(variance, 1e-3), 5.0), -5.0)
        if not low < step < high:
            step = (low + high) / 2
        # Two standard deviations cost a digit of the sum over waves, and another step costs more.
        if miss**2 <= 4 * variance + 1e-6 or step in (t, low, high):
            return t, all_terms, modes, places, mean, variance
        t = step


def _wave_row(normal: bool, b: float, a: Any, z: Any, tables: Any, n: float, means: Any) -> float:
    """Return `log S` of one row of several cells without n!, and write the means of the counts to `means`."""
    cells, possible = len(a), False
    for log_weight in a:
        possible |= log_weight > -math.inf
    if n == 0 or not possible:
        value = 0.0 if n == 0 else -math.inf
        for k in range(cells):
            value += _log_term(normal, b, 0.0, z[k], tables[k], 0.0)
        return value
    t, all_terms, modes, places, mean, variance = _tilted(normal, b, a, z, tables, n)
    value, gap, span, widest = -n * t, n - modes.sum(), 0, 0
    for k in range(cells):
        value += _log_term(normal, b, a[k] + t, z[k], tables[k], modes[k]) - math.log(all_terms[k][places[k]])
        span += len(all_terms[k]) - 1
        widest = max(widest, places[k], len(all_terms[k]) - 1 - places[k])
    m = int(min(span + 1.0, math.ceil(widest + 9 * math.sqrt(variance) + abs(n - mean)) + 2))
    # Two terms at the same distance from the mode share a wave: the cosine of their sum, the sine of their difference.
    even, odd = np.zeros((cells, widest + 1)), np.zeros((cells, widest + 1))
    for k in range(cells):
        terms, place = all_terms[k], places[k]
        for i in range(len(terms)):
            even[k, abs(i - place)] += terms[i]
            odd[k, abs(i - place)] += terms[i] if i > place else -terms[i]
        odd[k, 0] = 0.0
    circle_r, circle_i = np.empty(m), np.empty(m)
    for i in range(m):
        circle_r[i], circle_i[i] = math.cos(2 * math.pi * i / m), math.sin(2 * math.pi * i / m)
    cosines, sines = np.empty((widest + 1, _WAVES)), np.empty((widest + 1, _WAVES))
    waves = np.empty((4, cells, _WAVES))
    before = np.empty((2, cells + 1, _WAVES))
    probability, sums = 0.0, np.zeros(cells)
    for start in range(0, m // 2 + 1, _WAVES):
        for j in range(_WAVES):
            # The waves of j and M - j are conjugate. The wave of n comes before the first cell.
            multiplicity = 0.0 if start + j > m // 2 else (1.0 if start + j == 0 or 2 * (start + j) == m else 2.0)
            angle, turn = 0, (start + j) % m
            # Angles are integers, so they are exact.
            for i in range(widest + 1):
                cosines[i, j], sines[i, j] = circle_r[angle], circle_i[angle]
                angle += turn
                angle -= m if angle >= m else 0
            angle = (int(gap) * turn) % m
            before[0, 0, j], before[1, 0, j] = multiplicity * circle_r[angle], -multiplicity * circle_i[angle]
        waves[:] = 0.0
        for k in range(cells):
            real, imaginary, real_x, imaginary_x = waves[0, k], waves[1, k], waves[2, k], waves[3, k]
            for i in range(max(places[k], len(all_terms[k]) - 1 - places[k]) + 1):
                even_term, odd_term = even[k, i], odd[k, i]
                for j in range(_WAVES):
                    real[j] += even_term * cosines[i, j]
                    imaginary[j] += odd_term * sines[i, j]
                    real_x[j] += i * odd_term * cosines[i, j]
                    imaginary_x[j] += i * even_term * sines[i, j]
            for j in range(_WAVES):
                before[0, k + 1, j] = before[0, k, j] * real[j] - before[1, k, j] * imaginary[j]
                before[1, k + 1, j] = before[0, k, j] * imaginary[j] + before[1, k, j] * real[j]
        after_r, after_i = np.ones(_WAVES), np.zeros(_WAVES)
        for k in range(cells - 1, -1, -1):
            for j in range(_WAVES):
                others_r = before[0, k, j] * after_r[j] - before[1, k, j] * after_i[j]
                others_i = before[0, k, j] * after_i[j] + before[1, k, j] * after_r[j]
                sums[k] += others_r * waves[2, k, j] - others_i * waves[3, k, j]
                real_part = after_r[j] * waves[0, k, j] - after_i[j] * waves[1, k, j]
                after_i[j] = after_r[j] * waves[1, k, j] + after_i[j] * waves[0, k, j]
                after_r[j] = real_part
        probability += before[0, cells].sum()
        if np.abs(before[:, cells, -2:]).max() < 1e-17:
            break
    if not probability > 0:
        return -math.inf
    for k in range(cells):
        means[k] = modes[k] + sums[k] / probability
    return value + math.log(probability / m)


def _rows(logs: Any, means: Any, values: Any, noisy: Any, noise: Any, tables: Any, totals: Any) -> None:
    """Write `log S` of each row to `values`, and the means to `means`. Cells are Poisson if there are no totals."""
    rows, cells = noisy.shape
    normal, b = noise[0] > 0, noise[1]
    none, of_pairs = np.empty((cells, 0)), cells > 1 == tables.shape[1]
    for row in range(rows):
        if of_pairs:
            value, first = _polynomial(logs, noisy, tables, row, totals[row])
            if value > -math.inf:
                values[row], means[row, 0], means[row, 1] = value + cells * noise[2], first, totals[row] - first
                continue
        a, z, mean = logs[row], noisy[row], means[row]
        t = none if of_pairs or len(tables) == 0 else tables[row]
        value, improper = cells * noise[2], False
        for k in range(cells):
            improper |= not a[k] < math.inf
        if improper:
            value = -math.inf
        elif len(totals) == 0:
            for k in range(cells):
                log, mean[k] = _poisson(normal, b, a[k], z[k], t[k])
                value += log
        else:
            n = float(totals[row])
            if cells == 2:
                log, mean[0] = _pair(normal, b, a, z, t, n)
                mean[1] = n - mean[0]
            else:
                log = _wave_row(normal, b, a, z, t, n, mean)
            value += log + _log_factorial(n)
        if value == -math.inf:
            mean[:] = 0.0
        values[row] = value
