"""The source of all randomness, and the words in which a release names it."""

import importlib
import importlib.util
import secrets
from functools import cache

import numpy as np

__all__ = ["SOURCES", "Seed", "children", "generator", "randomness"]

# The sources of random bits without a seed, by sampler.
_SYSTEM, _AES = "operating system", "AES-128-CTR keyed by the operating system"
_PCG64 = "PCG64 seeded by the operating system (its state can be recovered from output)"
_AES_CLASS = "AESCounter"
SOURCES = {"exact": (_SYSTEM,), "fast": (_AES, _PCG64)}

Seed = int | np.random.SeedSequence | np.random.Generator | None


def generator(random_seed: Seed = None) -> np.random.Generator:
    """A generator for floating-point draws, keyed by the operating system unless a seed is given.

    Parameters
    ----------
    random_seed : int, SeedSequence, Generator or None
        A seed makes the draw reproducible, and anyone who knows the seed can undo its privacy. A `Generator` is used as
        it is and advances, so one generator serves several tables without repeating itself. None makes a new one:
        AES-128 in counter mode where the optional package `randomgen` is installed
        (``pip install randomgen``), NumPy's PCG64 otherwise.

    Returns
    -------
    rng : numpy.random.Generator

    Notes
    -----
    The state of PCG64 can be computed from its output (Bouillaguet, Martinez and Sauvage 2020,
    https://doi.org/10.13154/tosc.v2020.i3.175-196), and with it all earlier and later draws. No such attack on AES is
    known.
    """
    if isinstance(random_seed, np.random.Generator):
        return random_seed
    if random_seed is not None:
        return np.random.default_rng(random_seed)
    if _has_aes():
        return _aes(secrets.randbits(128), secrets.randbits(128))
    return np.random.default_rng(np.random.SeedSequence(secrets.randbits(256)))


def children(rng: np.random.Generator, n: int) -> list[np.random.Generator]:
    """Generators with keys that are drawn from this one, for work in parts that threads share.

    Parameters
    ----------
    rng : numpy.random.Generator
        It advances. Children of AES-128 in counter mode are of its kind, and those of any other are PCG64.
    n : int
        How many.

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
    if type(rng.bit_generator).__name__ == _AES_CLASS:
        return [_aes(a << 64 | b, c << 64 | d) for a, b, c, d in keys]
    return [np.random.default_rng(key) for key in keys]


def _aes(key: int, counter: int) -> np.random.Generator:
    # This generator takes a key of at most 128 bits, so the start of the counter is secret as well.
    return np.random.Generator(getattr(importlib.import_module("randomgen"), _AES_CLASS)(key=key, counter=counter))


def randomness(random_seed: Seed, *, sampler: str) -> str:
    """The source of the bits of a draw, in the words of a release.

    Parameters
    ----------
    random_seed : int, SeedSequence, Generator or None
        The argument that the user gave.
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
        return _SYSTEM
    return _AES if _has_aes() else _PCG64


@cache
def _has_aes() -> bool:
    return importlib.util.find_spec("randomgen") is not None
