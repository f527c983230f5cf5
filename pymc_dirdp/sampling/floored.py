"""Intensities above a public floor: exact draws of truncated Gamma distributions on a public grid, and fast ones."""

import importlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainc, gammaincc, gammainccinv, gammaincinv

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import at_least, checked_counts, integer, numbers_or_none, positive, positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.sampling.bits import Bits
from pymc_dirdp.sampling.discrete_noise import over_one_power

if TYPE_CHECKING:
    from flint import arb

__all__ = [
    "cells_at",
    "cells_of",
    "checked_ceiling",
    "exact_floored",
    "fast_floored",
    "flint",
    "guesses",
    "intensities",
]


# A probability below it is too close to the smallest double to be inverted.
_TINY = 1e-280


def guesses(u: Array, a: Array, floor: float, ceiling: float) -> Array:
    """`log(g / floor)` about where `P[G >= g]` is u. Nothing is guaranteed about its error.

    Parameters
    ----------
    u : array, shape (draws, cells)
        Between 0 and 1.
    a : array, shape (cells,)
        Shapes of the truncated Gamma distributions.
    floor, ceiling : float

    Returns
    -------
    logs : array, shape (draws, cells)
        Finite. Where `a` is far above the ceiling the error is about `ceiling / (a - ceiling)**2` of itself, and
        elsewhere about 1e-13.

    Examples
    --------
    >>> guesses(np.array([[0.5]]), np.array([1.0]), 8.0, math.inf).round(6) == round(math.log1p(math.log(2) / 8), 6)
    array([[ True]])
    """
    with np.errstate(all="ignore"):
        above, beyond = gammaincc(a, floor), gammaincc(a, ceiling)
        under, within = gammainc(a, floor), gammainc(a, ceiling)
        q, p = beyond + u * (above - beyond), within - u * (within - under)
        logs = np.log(np.where(q < p, gammainccinv(a, q), gammaincinv(a, p)) / floor)
        # Where the distribution lies so far out in a tail that doubles do not hold its probability, it is all but
        # exponential.
        logs = np.where(within < _TINY, math.log(ceiling / floor) + np.log1p(-u) / (a - ceiling), logs)
        far = above < _TINY
        if np.any(far):
            logs[:, far] = _far_out(u[:, far], a[far], floor, ceiling)
    finite: Array = np.nan_to_num(logs, posinf=0, neginf=0)
    return finite


def _far_out(u: Array, a: Array, floor: float, ceiling: float) -> Array:
    """`log(g / floor)` about where `P[G >= g]` is u, for a floor far above `a`: Newton's steps for its logarithm.

    `Gamma(a, g) = g**a * exp(-g) / f(g)`, where f is the even part of the continued fraction of DLMF 8.9.2.
    """

    def f(g: Array | float) -> Array:
        fraction: Array = g + 41 - a
        for k in range(20, 0, -1):
            fraction = g + 2 * k - 1 - a - k * (k - a) / fraction
        return fraction

    def log_tail(y: Array | float) -> Array:
        tail: Array = a * np.log1p(y / floor) - y - np.log(f(floor + y) / at_floor)
        return tail

    at_floor = f(floor)
    beyond = np.exp(log_tail(ceiling - floor)) if ceiling < math.inf else 0.0
    wanted = np.log(u + (1 - u) * beyond)
    y = -wanted * floor / at_floor
    for _ in range(6):
        y = np.maximum(y + (log_tail(y) - wanted) * (floor + y) / f(floor + y), 0)
    logs: Array = np.log1p(y / floor)
    return logs


# Cells of the public grid in a factor of 2: each is 1e-11 of an intensity wide.
_CELLS = 2**36
# Binary digits of the first attempt to decide a comparison. Where they do not suffice, they are doubled.
_PRECISION = 128
# An intensity that comes from a release differs from its grid point by rounding alone, which is below 2**-50 of it.
_SLACK = 2.0**-46


def exact_floored(
    alpha: ArrayLike, r: float, floor: float, counts: ArrayLike, *, ceiling: float = math.inf, draws: int, bits: Bits
) -> Integers:
    """Cells of the public grid that hold intensities drawn from truncated Gamma distributions, exactly.

    The intensity of a cell of the table has density proportional to `g**(a - 1) * exp(-g)` between the floor and the
    ceiling, with `a = alpha + r * counts`. Drawn is the integer j with `g_j <= G < g_{j + 1}`, where
    `g_j = floor * 2**(j / 2**36)`. The doubles are used as the rational numbers that they are: nothing is rounded.

    Parameters
    ----------
    alpha : array_like, shape (..., d)
        Prior parameters, positive.
    r : float
        Concentration, positive.
    floor : float
        The least intensity, positive. Must be public.
    counts : array_like of integers, shape of `alpha`
        They are secret, and errors never show them.
    ceiling : float, default inf
        The largest intensity, above the floor. Must be public.
    draws : int
        Number of independent draws. A guarantee is for one of them.
    bits : Bits
        The source of randomness: one word for each number, in order, and further words where they are needed.

    Returns
    -------
    cells : array of int, shape (draws, ..., d)
        At least 0. :func:`intensities` are the numbers to report. Where there is a ceiling it lies inside the last
        cell, whose middle may be above it by less than 1e-11 of itself.

    Raises
    ------
    ImportError
        If python-flint is not installed; the message holds the line that does it.
    DataError
        If the counts are not integers of that shape, or above 2**53.

    Notes
    -----
    U is uniform, and `G >= g_j` where `U < P[G >= g_j]`. The probability is an interval that is proved to hold it
    (Johansson 2017), and the comparison is made when the interval and the known bits of U leave no doubt. The search
    for j starts where floating-point arithmetic puts it, which changes the time of a draw but not its result.

    **The time of a draw depends on the counts and is outside the guarantee.** A number takes about 50 microseconds
    where `a` is at most 20, 90 at 200, 400 at 7000, and 1500 at 7,000,000. Do not let an adversary measure it.

    References
    ----------
    Johansson (2017), Arb: efficient arbitrary-precision midpoint-radius interval arithmetic,
    https://doi.org/10.1109/TC.2017.2690633.

    Examples
    --------
    >>> cells = exact_floored([1.0, 1.0], 0.5, 4.0, [3, 10], draws=5, bits=Bits())
    >>> cells.shape, bool(intensities(cells, 4.0).min() > 4)
    ((5, 2), True)
    """
    package = flint()
    wanted, least, most = positive_array(alpha=alpha, fewest=1), positive(floor=floor), checked_ceiling(floor, ceiling)
    (per_record, *prior), digits = over_one_power([positive(r=r), *wanted.ravel().tolist()])
    shape = (integer(1, draws=draws), wanted.size)
    whole = checked_counts(counts, wanted.shape).astype(np.int64).ravel().tolist()
    distributions = [
        _Distribution(package, per_record * c + a, digits, least, most) for c, a in zip(whole, prior, strict=True)
    ]
    words = [[bits.uniform(2**64) for _ in distributions] for _ in range(shape[0])]
    near = guesses(
        (np.array(words, dtype=np.float64) + 0.5) / 2.0**64,
        wanted.ravel() + r * np.array(whole, dtype=np.float64),
        least,
        most,
    )
    before = package.ctx.prec
    try:
        cells = [
            [
                distribution.cell(_Uniform(word, bits), guess)
                for distribution, word, guess in zip(distributions, row, starts, strict=True)
            ]
            for row, starts in zip(words, cells_at(near).tolist(), strict=True)
        ]
    finally:
        package.ctx.prec = before
    return np.array(cells, dtype=np.int64).reshape(-1, *wanted.shape)


def intensities(cells: Integers, floor: float) -> Array:
    """The intensities to report, `floor * 2**((cells + 1 / 2) / 2**36)`: a public and increasing map of integers.

    Parameters
    ----------
    cells : array of int
        Cells of the grid, at least 0.
    floor : float
        The floor of the mechanism, positive.

    Returns
    -------
    g : array, shape of `cells`
        The middle of each cell on the logarithmic scale. It is rounded by at most 2**-50 of itself, and neighbouring
        cells lie 2**-36 of it apart, so no two become one. The last bit may differ between machines.

    Examples
    --------
    >>> intensities(np.array([0, 2**36]), 3.0).round(6)
    array([3., 6.])
    """
    g: Array = positive(floor=floor) * np.exp2((cells + 0.5) / _CELLS)
    return g


def cells_of(g: ArrayLike, floor: float) -> Integers:
    """The cells of the grid behind reported intensities: the inverse of :func:`intensities`.

    Parameters
    ----------
    g : array_like
        Intensities of a release.
    floor : float
        The floor of the mechanism, positive.

    Returns
    -------
    cells : array of int, shape of `g`

    Raises
    ------
    ArgumentError
        If a number does not lie on the grid of this floor.

    Examples
    --------
    >>> cells_of(intensities(np.array([7, 2**40]), 3.0), 3.0).tolist()
    [7, 1099511627776]
    """
    least, released = positive(floor=floor), numbers_or_none(g)
    if released is not None and np.all(np.isfinite(released) & (released >= least)):
        cells: Integers = np.rint(_CELLS * np.log2(released / least) - 0.5).astype(np.int64)
        if np.all((cells >= 0) & (np.abs(intensities(cells, least) / released - 1) <= _SLACK)):
            return cells
    raise ArgumentError(
        f"g is not on the grid of intensities above floor={least:g}. Take the floor from the release, and the "
        "intensities as they stand there."
    )


def cells_at(logs: Array) -> Integers:
    """The cells that hold intensities in floating point, given as their logarithms over the floor.

    Logarithms that rounding has put below 0 are taken for 0, and those above the largest double for that.
    """
    cells: Integers = np.floor(np.clip(logs, 0, 1490) * (_CELLS / math.log(2))).astype(np.int64)
    return cells


def checked_ceiling(floor: float, ceiling: float) -> float:
    """The ceiling, if it is above the floor."""
    most = at_least(floor, finite=False, ceiling=ceiling)
    if most == floor:
        raise ArgumentError(f"Expected ceiling > floor, got both {floor:g}. Leave the ceiling out, or raise it.")
    return most


class _Uniform:
    """A uniform number of which the leading `length` bits are known: it is at least `value / 2**length`."""

    def __init__(self, value: int, bits: Bits) -> None:
        self.value, self.length, self._bits = value, 64, bits

    def grow(self) -> None:
        """Make 64 more bits known."""
        self.value, self.length = self.value << 64 | self._bits.uniform(2**64), self.length + 64


class _Distribution:
    """The distribution of one intensity, with the shape `numerator / 2**digits`, and what of it is computed once."""

    def __init__(self, package: Any, numerator: int, digits: int, floor: float, ceiling: float) -> None:
        self._arb, self._context = package.arb, package.ctx
        # These three are exact.
        self._shape, self._floor, self._ceiling = (package.arb(n) for n in ((numerator, -digits), floor, ceiling))
        # Where the ceiling is far below the shape, upper tails are all but 1, and their differences lose every digit.
        self._lower = self._shape - 26 * self._shape.sqrt() > self._ceiling
        self._precision = _PRECISION
        self._ends: dict[int, tuple[arb, arb]] = {}

    def cell(self, uniform: _Uniform, guess: int) -> int:
        """The only j with `P[G >= g_{j + 1}] <= U < P[G >= g_j]`. A wrong guess only takes longer."""
        low, step = max(guess, 0), 1
        if self._reached(low, uniform):
            while self._reached(low + step, uniform):
                low, step = low + step, 4 * step
            high = low + step
        else:
            high = low
            while not self._reached(high - step, uniform):
                high, step = high - step, 4 * step
            low = max(high - step, 0)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._reached(middle, uniform) else (low, middle)
        return low

    def _reached(self, j: int, uniform: _Uniform) -> bool:
        """Whether `G >= g_j`, with as many bits and digits as it takes to be certain."""
        while j > 0:
            share = self._share(j)
            # A comparison of intervals is true only if it is true for all numbers in them.
            if share >= self._arb((uniform.value + 1, -uniform.length)):
                return True
            if share <= self._arb((uniform.value, -uniform.length)):
                return False
            if share.rad() <= self._arb((1, -uniform.length)):
                uniform.grow()
            else:
                self._precision *= 2
        return True

    def _share(self, j: int) -> "arb":
        """An interval that holds `P[G >= g_j]`."""
        self._context.prec = self._precision
        g: arb = self._floor * self._arb(2) ** self._arb((j, -36))
        if g >= self._ceiling:
            return 0 * g
        if self._precision not in self._ends:
            beyond = self._mass(self._ceiling) if self._ceiling.is_finite() else self._arb(0)
            self._ends[self._precision] = beyond, self._mass(self._floor) - beyond
        beyond, whole = self._ends[self._precision]
        return (self._mass(g) - beyond) / whole

    def _mass(self, g: "arb") -> "arb":
        """An antiderivative of `-g**(a - 1) * exp(-g)`."""
        return -self._lower_gamma(g) if self._lower else g.gamma_upper(self._shape)

    def _lower_gamma(self, g: "arb") -> "arb":
        """`g**a * exp(-g)` times the sum of `g**n / (a * (a + 1) * ... * (a + n))`, for g below a.

        The series of Arb takes another way here that loses every digit. The ratios of the terms fall, so what is left
        out lies between 0 and a geometric series.
        """
        k, smallest = self._shape, self._arb((1, -self._precision))
        term = total = 1 / k
        while term > total * smallest:
            k += 1
            term *= g / k
            total += term
        total += term * g / (k - g) * self._arb(0.5, 0.5)
        lower: arb = (self._shape * g.log() - g).exp() * total
        return lower


def flint() -> Any:
    """The package of certified arithmetic, or the error that says how to install it."""
    try:
        return importlib.import_module("flint")
    except ImportError as error:
        raise ImportError(
            "Exact draws of intensities above a floor need python-flint: pip install python-flint"
        ) from error


def fast_floored(
    alpha: ArrayLike,
    r: float,
    floor: float,
    counts: ArrayLike,
    *,
    ceiling: float = math.inf,
    draws: int,
    rng: np.random.Generator,
) -> Integers:
    """Cells of the public grid as :func:`pymc_dirdp.sampling.floored.exact_floored` draws them, in floating point.

    Nothing is proved about its last bits. The number of random words that a draw takes, and its time, depend on the
    secret.

    Parameters
    ----------
    alpha, r, floor, counts, ceiling, draws
        Same as in :func:`pymc_dirdp.sampling.floored.exact_floored`.
    rng : numpy.random.Generator
        From :func:`pymc_dirdp.sampling.bits.generator`.

    Returns
    -------
    cells : array of int, shape (draws, ..., d)

    References
    ----------
    Devroye (1986), Non-Uniform Random Variate Generation, chapter VII.2: rejection from tangents of a log-concave
    density, https://doi.org/10.1007/978-1-4613-8643-8.

    Examples
    --------
    >>> fast_floored([1.0, 1.0], 0.5, 4.0, [3, 10], draws=5, rng=np.random.default_rng(1)).shape
    (5, 2)
    """
    wanted, least, most = positive_array(alpha=alpha, fewest=1), positive(floor=floor), checked_ceiling(floor, ceiling)
    per_record, n_draws = positive(r=r), integer(1, draws=draws)
    shapes = wanted + per_record * checked_counts(counts, wanted.shape)
    a = np.broadcast_to(shapes, (n_draws, *wanted.shape)).ravel()
    logs, left = np.empty(a.size), np.arange(a.size)
    while left.size:
        tries, taken = _tries(a[left], least, most, rng)
        logs[left[taken]] = tries[taken]
        left = left[~taken]
    return cells_at(logs).reshape(-1, *wanted.shape)


def _tries(a: Array, floor: float, ceiling: float, rng: np.random.Generator) -> tuple[Array, NDArray[np.bool_]]:
    """One try for each number: the logarithm of an intensity over the floor, and whether the try is taken.

    With m the most likely intensity on the logarithmic scale, and `x = log(g / m)`, the log-density of x is
    `h(x) = (a - m) * x - m * (expm1(x) - x)`. It is concave with its maximum 0 at 0. So it is below 0 and below its
    tangents at any two points, one on either side. These points are chosen so that h is about -1 there.
    """
    m = np.clip(a, floor, ceiling)
    slopes = np.array([np.minimum(a - m, 0), np.maximum(a - m, 0)])  # to the right and to the left of 0
    ends = np.array([np.log(ceiling / m), np.log(floor / m)])
    width = 2 / (np.abs(slopes) + np.hypot(slopes, np.sqrt(2 * m)))
    points = np.array([np.minimum(width[0], np.log(2 + 1 / m)), -np.maximum(width[1], 1 / a)])

    def h(x: Array, slope: Array) -> Array:
        log_density: Array = slope * x - m * (np.expm1(x) - x)
        return log_density

    tangents = slopes - m * np.expm1(points)
    # The tangent is 0 at `starts`; from there on outwards it is the bound.
    starts = points - h(points, slopes) / tangents
    edges = np.array([np.minimum(starts[0], ends[0]), np.maximum(starts[1], ends[1])])
    flat = edges[0] - edges[1]
    tails = np.where(starts == edges, 1 / np.abs(tangents), 0)
    place = rng.random(a.size) * (flat + tails.sum(axis=0))
    outwards = _exponential(a.size, rng) / np.abs(tangents)
    right, left = place > flat, place > flat + tails[0]
    x = np.where(left, starts[1] - outwards[1], np.where(right, starts[0] + outwards[0], edges[1] + place))
    with np.errstate(over="ignore"):
        bound = np.where(right, np.where(left, -tangents[1] * outwards[1], tangents[0] * outwards[0]), 0)
        shortfall = bound - h(x, a - m)
    taken = (x >= ends[1]) & (x < ends[0]) & (_exponential(a.size, rng) > shortfall)
    return np.log(m / floor) + x, taken


def _exponential(size: int, rng: np.random.Generator) -> Array:
    """Exponential variables whose last bits are as fine far out as they are near 0.

    A uniform share of the sum of two of them is one of them. The logarithm of a uniform number is coarse far out.
    """
    drawn: Array = rng.random(size) * rng.standard_gamma(2.0, size)
    return drawn
