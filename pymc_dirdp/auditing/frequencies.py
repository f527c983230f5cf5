"""Keys that one data set gives more often than the other, learned from counts."""

from collections.abc import Callable, Sequence

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.auditing.seen import Keys

__all__ = ["frequency_ratio", "most_telling"]


def frequency_ratio(of_x: Keys, of_y: Keys) -> Callable[[Keys], Array]:
    """Logarithm of how much commoner a key is for x, with half an observation added to each count; 0 if never seen."""
    known, which = np.unique(np.concatenate([of_x, of_y]), return_inverse=True)
    in_x = np.bincount(which[: len(of_x)], minlength=len(known))
    in_y = np.bincount(which[len(of_x) :], minlength=len(known))
    # Shares, because the two samples need not be of one size.
    ratios = np.log((in_x + 0.5) / (len(of_x) + 0.5)) - np.log((in_y + 0.5) / (len(of_y) + 0.5))

    def score(keys: Keys) -> Array:
        places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        return np.where(known[places] == keys, ratios[places], 0.0)

    return score


def most_telling(of_x: Sequence[Keys], of_y: Sequence[Keys], most: int) -> list[int]:
    """The keys that tell the data sets apart best: learned on one half of these outputs, tried on the other."""

    def apart(keys_x: Keys, keys_y: Keys) -> float:
        half_x, half_y = len(keys_x) // 2, len(keys_y) // 2
        score = frequency_ratio(keys_x[:half_x], keys_y[:half_y])
        x, y = score(keys_x[half_x:]), score(keys_y[half_y:])
        return float((x.mean() - y.mean()) / np.sqrt(x.var() / len(x) + y.var() / len(y) + 1e-300))

    strength = [apart(x, y) for x, y in zip(of_x, of_y, strict=True)]
    return sorted(range(len(strength)), key=lambda i: -strength[i])[:most]
