"""Random bits for the exact sampler: raw 64-bit words."""

import os

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.sampling.entropy import Seed, generator

__all__ = ["Bits", "Words"]

Words = NDArray[np.uint64]

# 64 kB at a time: few system calls, and little is fetched for nothing.
_BLOCK = 2**13


class Bits:
    """A stream of uniform 64-bit words that hands out each word once.

    Parameters
    ----------
    random_seed : int, SeedSequence, Generator or None
        None takes every bit from the operating system (`os.urandom`). Anything else is for tests: whoever knows the
        seed can undo the privacy of the draw.

    Notes
    -----
    Make one for each release. It is not meant to be shared between threads. It can't be copied or pickled, because the
    copy would hand out the same words again.
    """

    def __init__(self, random_seed: Seed = None) -> None:
        self._rng = None if random_seed is None else generator(random_seed)
        self._words = np.empty(0, dtype=np.uint64)
        self._process = os.getpid()

    def ahead(self) -> Words:
        """The words that come next: at least one, read-only. They stay ahead until they are spent."""
        # After a fork both processes hold the same block. Using it in both would repeat one draw's randomness.
        if self._words.size == 0 or self._process != os.getpid():
            raw = os.urandom(8 * _BLOCK) if self._rng is None else self._rng.bytes(8 * _BLOCK)
            self._words = np.frombuffer(raw, dtype=np.uint64)
            self._process = os.getpid()
        return self._words

    def spend(self, used: int) -> None:
        """Never hand out the first `used` words of :meth:`ahead` again."""
        self._words = self._words[used:]

    def uniform(self, n: int) -> int:
        """A whole number from 0 to `n - 1`, each as likely as the others; no word is drawn where `n` is 1."""
        if n == 1:
            return 0
        length = (n - 1).bit_length()
        words = -(-length // 64)
        while True:
            value = 0
            for _ in range(words):
                value = value << 64 | int(self.ahead()[0])
                self.spend(1)
            value >>= 64 * words - length
            if value < n:
                return value

    def __reduce__(self) -> str:
        raise TypeError("Bits cannot be copied or pickled: the copy would hand out the same random words again.")
