"""The only door to randomness."""

import secrets

import numpy as np

__all__ = ["Seed", "generator"]

Seed = int | np.random.SeedSequence | np.random.Generator | None


def generator(random_seed: Seed = None) -> np.random.Generator:
    """A generator seeded with 256 bits from the operating system, unless a seed is given.

    Parameters
    ----------
    random_seed : int, SeedSequence, Generator or None
        A seed makes the draw reproducible, and whoever knows the seed can undo its privacy. A `Generator` is used as
        it is and moves on, so that one generator may serve several tables without repeating itself.

    Returns
    -------
    rng : numpy.random.Generator
    """
    if isinstance(random_seed, np.random.Generator):
        return random_seed
    if random_seed is None:
        return np.random.default_rng(np.random.SeedSequence(secrets.randbits(256)))
    return np.random.default_rng(random_seed)
