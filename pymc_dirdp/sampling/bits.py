"""Sources of random bits: the operating system, or a seed for tests; and what is drawn from single bits, exactly."""

import importlib
import importlib.util
import numbers
import os
import secrets
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.checks import integer

# The sources of random bits without a seed, by sampler.
SOURCES = {
    "exact": ("operating system",),
    "fast": (
        "AES-128-CTR keyed by the operating system",
        "PCG64 seeded by the operating system (its state can be recovered from output)",
    ),
}

Seed = int | np.random.SeedSequence | np.random.Generator | None


def generator(random_seed: Seed = None) -> np.random.Generator:
    """A generator for floating-point draws, keyed by the operating system unless you pass a seed.

    Parameters
    ----------
    random_seed : int, SeedSequence, Generator or None
        A seed makes the draw reproducible, and anyone who knows the seed can undo its privacy. A `Generator` is
        returned as it is. It advances, so one generator serves several tables without repetition. None makes a new
        generator: AES-128 in counter mode if the optional package `randomgen` is installed
        (``pip install randomgen``), and NumPy's PCG64 otherwise.

    Returns
    -------
    rng : numpy.random.Generator

    Notes
    -----
    The output of PCG64 reveals its state, and so all earlier and later draws (Bouillaguet, Martinez and Sauvage 2020,
    https://doi.org/10.13154/tosc.v2020.i3.175-196). No such attack on AES is known.
    """
    if isinstance(random_seed, np.random.Generator):
        return random_seed
    if random_seed is not None:
        if isinstance(random_seed, numbers.Real):
            random_seed = integer(0, random_seed=random_seed)
        return np.random.default_rng(random_seed)
    if _has_aes():
        return _aes(secrets.randbits(128), secrets.randbits(128))
    return np.random.default_rng(np.random.SeedSequence(secrets.randbits(256)))


def children(rng: np.random.Generator, n: int) -> list[np.random.Generator]:
    """Generators with keys drawn from this generator, for work that is divided among threads.

    Parameters
    ----------
    rng : numpy.random.Generator
        It advances. Children of AES-128 in counter mode are of the same kind; all others are PCG64.
    n : int
        The number of generators.

    Returns
    -------
    generators : list of numpy.random.Generator

    Examples
    --------
    >>> one, other = children(np.random.default_rng(1), 2)
    >>> one.random() == other.random()
    False
    """
    keys: list[list[int]] = rng.integers(2**64, size=(n, 4), dtype=np.uint64).tolist()
    if type(rng.bit_generator).__name__ == "AESCounter":
        return [_aes(a << 64 | b, c << 64 | d) for a, b, c, d in keys]
    return [np.random.default_rng(key) for key in keys]


def _aes(key: int, counter: int) -> np.random.Generator:
    # The key of this generator has at most 128 bits, so the initial counter is secret as well.
    return np.random.Generator(importlib.import_module("randomgen").AESCounter(key=key, counter=counter))


def randomness(random_seed: Seed, *, sampler: str) -> str:
    """The source of the bits of a draw, as stated in a release.

    Parameters
    ----------
    random_seed : int, SeedSequence, Generator or None
        The argument of the user.
    sampler : {"exact", "fast"}

    Examples
    --------
    >>> randomness(None, sampler="exact")
    'operating system'
    >>> randomness(7, sampler="fast")
    'seed'
    """
    if random_seed is not None:
        return "seed"
    if sampler == "exact":
        return SOURCES["exact"][0]
    aes, pcg64 = SOURCES["fast"]
    return aes if _has_aes() else pcg64


@cache
def _has_aes() -> bool:
    return importlib.util.find_spec("randomgen") is not None


Words = NDArray[np.uint64]
type _Shifts = NDArray[np.uint32] | NDArray[np.uint64]

# The bits of a word. A test reduces this number to enumerate all words.
_LENGTH = 64

# The powers of two in 64-bit integers. The bit length of a number is the number of powers up to it.
_POWERS = 2 ** np.arange(63, dtype=np.int64)

# The number of forks between this process and the one that imported this module. It is faster than `os.getpid`.
_forks = 0


class Bits:
    """A stream of uniform 64-bit words, which returns each word once.

    Parameters
    ----------
    random_seed : int, SeedSequence, Generator or None
        None takes every bit from the operating system (`os.urandom`). Anything else is for tests: anyone who knows the
        seed can undo the privacy of the draw.

    Notes
    -----
    Make a new stream for each release, and do not share it between threads. It cannot be copied or pickled, because the
    copy would return the same words again.

    Examples
    --------
    >>> bits = Bits()
    >>> 0 <= bits.uniform(10**30) < 10**30
    True
    """

    def __init__(self, random_seed: Seed = None) -> None:
        self._rng = None if random_seed is None else generator(random_seed)
        self._words = np.empty(0, dtype=np.uint64)
        self._spent = 0
        # The same words as Python integers, converted when the first one is needed.
        self._listed: list[int] = []
        self._forks = _forks

    @property
    def of_the_system(self) -> bool:
        """Whether every bit comes from the operating system, so that other streams can replace this one."""
        return self._rng is None

    def uniform(self, n: int) -> int:
        """A uniform integer on `0, ..., n - 1`. The leading bits of new words are drawn until they are below `n`.

        Parameters
        ----------
        n : int
            At least 1, of any size. With 1 no word is used.
        """
        length = (n - 1).bit_length()
        if length == 0:
            return 0
        count = -(-length // _LENGTH)
        while True:
            value = 0
            for _ in range(count):
                value = value << _LENGTH | self._word()
            value >>= _LENGTH * count - length
            if value < n:
                return value

    def uniforms(self, limits: Integers) -> Integers:
        """Uniform integers below each limit, as from :meth:`uniform`, many at once, from words or half words.

        Parameters
        ----------
        limits : array of int, shape (n,)
            From 1 to `2**62`.

        Returns
        -------
        values : array of int, shape (n,)

        Examples
        --------
        >>> Bits().uniforms(np.array([1, 1, 1]))
        array([0, 0, 0])
        """
        # The limit 1 takes a bit, which is redrawn until it is 0.
        lengths = np.maximum(np.searchsorted(_POWERS, limits - 1, side="right"), 1)
        half = lengths.max(initial=1) <= 32
        shifts: _Shifts = (32 - lengths).astype(np.uint32) if half else (64 - lengths).astype(np.uint64)
        values = self._leading(shifts)
        rejected = np.flatnonzero(values >= limits)
        while rejected.size:
            values[rejected] = self._leading(shifts[rejected])
            rejected = rejected[values[rejected] >= limits[rejected]]
        return values

    def _leading(self, shifts: _Shifts) -> Integers:
        """The leading bits of new words of the type of the shifts, without the lowest `shifts` bits of each."""
        whole = -(-shifts.nbytes // 8)
        words: _Shifts = self.ahead(whole)[:whole].view(shifts.dtype)[: shifts.size]
        self.spend(whole)
        values: Integers = (words >> shifts).astype(np.int64)
        return values

    def ahead(self, least: int = 1) -> Words:
        """The next words, at least `least` of them, read-only. They are returned again until they are spent."""
        # After a fork both processes have the same block, so the child discards it.
        if self._forks != _forks:
            self._spent, self._forks = self._words.size, _forks
        left = self._words[self._spent :]
        if left.size < least:
            # At least 64 kB at a time.
            size = 8 * max(2**13, least - left.size)
            raw = os.urandom(size) if self._rng is None else self._rng.bytes(size)
            left = np.concatenate([left, np.frombuffer(raw, dtype=np.uint64)])
            left.flags.writeable = False
            self._words, self._spent, self._listed = left, 0, []
        return left

    def spend(self, used: int) -> None:
        """Never return the first `used` words of :meth:`ahead` again."""
        self._spent += used

    def _word(self) -> int:
        if self._spent >= len(self._listed) or self._forks != _forks:
            self.ahead()
            self._listed = self._words.tolist()
        word = self._listed[self._spent]
        self._spent += 1
        return word

    def __reduce__(self) -> str:
        raise TypeError("Bits cannot be copied or pickled, because the copy would return the same random words again.")


def _forked() -> None:
    global _forks
    _forks += 1


# Windows has no forks.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


# Coins and choices, exact for integers of any size.


Uniform = Callable[[int], int]


def exponential_coin(uniform: Uniform, a: int, b: int, c: int = 1, d: int = 1) -> bool:
    """True with probability `exp(-(a / b) * (c / d))`, for `a <= b` and `c <= d`."""
    k = 1
    # P[k > n] = (a c / (b d))**n / n!, so P[k is odd] is the series of the exponential. Separate draws avoid the
    # product k b d, which can be large.
    while uniform(k) == 0 and uniform(b) < a and (d == 1 or uniform(d) < c):
        k += 1
    return k % 2 == 1


def chosen(scores: Sequence[int], scale: Fraction, bits: Bits) -> int:
    """A random position, with probability exactly proportional to `exp(scores[position] / scale)`.

    Parameters
    ----------
    scores : sequence of int
        At least one integer, of any size and sign. Secret.
    scale : Fraction
        Positive. For a real scale pass :func:`dyadic_above` of it.
    bits : Bits
        The source of randomness.

    Returns
    -------
    position : int

    Notes
    -----
    A uniform proposal is accepted with probability `exp((score - largest score) / scale)`. So the number of proposals,
    and the time, depend on the scores. Anyone who can time the choice learns about them.

    References
    ----------
    McSherry and Talwar (2007), Mechanism design via differential privacy, https://doi.org/10.1109/FOCS.2007.66.
    Canonne, Kamath and Steinke (2020), Algorithm 1, for the coin.

    Examples
    --------
    >>> chosen([0, 10**6, 3], Fraction(1), Bits())
    1
    """
    t, s = scale.numerator, scale.denominator
    largest = max(scores)
    while True:
        position = bits.uniform(len(scores))
        if _accepted(bits.uniform, (largest - scores[position]) * s, t):
            return position


def _accepted(uniform: Uniform, a: int, b: int) -> bool:
    """True with probability `exp(-a / b)`, for any non-negative `a`."""
    whole, rest = divmod(a, b)
    return all(exponential_coin(uniform, 1, 1) for _ in range(whole)) and exponential_coin(uniform, rest, b)


def compiled(signature: str, function: Callable[..., Any], *helpers: Callable[..., Any]) -> Callable[..., Any]:
    """The function compiled by Numba, and cached on disk if a directory is writable.

    Parameters
    ----------
    signature : str
        The types of its arguments.
    function : callable
        A Python function, which is not changed.
    *helpers : callable
        Functions of the same file that it calls. The cache is renewed only when this file changes.
    """
    from numba import njit  # Here, because it takes a second to import.
    from numba.extending import register_jitable

    for helper in helpers:
        register_jitable(helper)
    code: Callable[..., Any]
    try:
        code = njit(signature, cache=True, nogil=True)(function)
    except RuntimeError as error:
        # Neither the directory of the package, nor the cache of the user, nor NUMBA_CACHE_DIR is writable.
        if "no locator available" not in str(error):
            raise
        code = njit(signature, nogil=True)(function)
    return code
