"""How much the posterior moves, in Hellinger distance, if one record changes."""

import itertools
import math

import numpy as np

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.mechanisms.hellinger_distance import affinity_loss, distance_of

__all__ = ["global_sensitivity", "local_sensitivities", "smooth_sensitivities"]


def local_sensitivities(prior: Array, counts: Integers) -> Array:
    """Largest distance between the posterior and that of a neighbour, for each data set. Shape `(m,)`.

    By the triangle inequality this is also how much the distance to any third posterior changes at most, so it is P4's
    local sensitivity, whose print compares a data set with itself (ERRATA P4.7). The data sets, of shape `(m, d)`, all
    have the same number of records.
    """
    concentrations = prior + counts
    gains = affinity_loss(concentrations, concentrations + 1)
    # An empty cell cannot give up a record.
    losses = np.where(counts > 0, affinity_loss(np.maximum(concentrations - 1, prior), concentrations), -np.inf)
    largest = np.full(len(counts), -np.inf)
    for receives, gives in itertools.permutations(range(len(prior)), 2):
        np.maximum(largest, gains[:, receives] + losses[:, gives], out=largest)
    return distance_of(largest)


def global_sensitivity(prior: Array, n_records: int) -> float:
    """The largest of all local sensitivities."""
    if len(prior) == 2:
        return float(local_sensitivities(prior, _two_cells(n_records)).max())
    # A step is longer the less the two cells hold, and a third cell can hold the rest, for any number of records.
    step = affinity_loss(prior, prior + 1)
    return math.sqrt(-math.expm1(-float(np.sort(step)[-2:].sum())))


def smooth_sensitivities(prior: Array, counts: Integers, smoothness: float) -> Array:
    """Least upper bound of the local sensitivity whose inverse changes by at most `smoothness` between neighbours.

    `1 / S(x)` is the minimum of `1 / LS(z) + smoothness * d(x, z)` over all data sets z (P4, Definition 3), found
    without listing them. The data sets x, of shape `(m, d)`, all have the same number of records; the smoothness is
    P4's gamma.
    """
    if len(prior) == 2:
        return _smooth_of_two(prior, int(counts[0].sum()), smoothness)[counts[:, 0]]
    held = np.arange(counts.max() + 1)
    steps = [affinity_loss(value + held, value + held + 1) for value in prior.tolist()]
    return np.array([1 / _least_inverse(steps, row, smoothness) for row in counts.tolist()])


def _smooth_of_two(prior: Array, n_records: int, smoothness: float) -> Array:
    """The smooth sensitivity of every data set of two categories, by a sweep upwards and one downwards."""
    inverse = 1 / local_sensitivities(prior, _two_cells(n_records))
    ramp = smoothness * np.arange(n_records + 1)
    upwards = np.minimum.accumulate(inverse - ramp) + ramp
    downwards = np.minimum.accumulate((inverse + ramp)[::-1])[::-1] - ramp
    smooth: Array = 1 / np.minimum(upwards, downwards)
    return smooth


def _least_inverse(steps: list[Array], counts: list[int], smoothness: float) -> float:
    """The least inverse for a data set of three or more categories.

    The data set z that decides has some cell i that receives and some cell j that gives the record of its longest step.
    Only what these two hold matters, less is worse, and the other cells take what they lose: so the distance is what i
    and j lose, and 1 at least if j must be given a record before it can give one.
    """
    # This is a step at the data set itself: no z that costs more can be better.
    best = min(
        1 / math.sqrt(-math.expm1(-float(steps[i][counts[i]] + steps[j][counts[j] - 1])))
        for i, j in itertools.permutations(range(len(counts)), 2)
        if counts[j]
    )
    reach = int(best / smoothness) + 1
    for i, j in itertools.permutations(range(len(counts)), 2):
        lost_i = np.arange(min(counts[i], reach) + 1)[:, None]
        kept_j = max(counts[j], 1)
        lost_j = np.arange(min(kept_j - 1, reach) + 1)
        moved = np.maximum(lost_i + lost_j, int(counts[j] == 0))
        length = distance_of(steps[i][counts[i] - lost_i] + steps[j][kept_j - lost_j - 1])
        best = min(best, float(np.min(1 / length + smoothness * moved)))
    return best


def _two_cells(n_records: int) -> Integers:
    first = np.arange(n_records + 1)
    return np.column_stack([first, n_records - first])
