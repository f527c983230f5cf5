"""Do two inputs of a model hold the same data? Each answer is one word, and no value leaves this file."""

from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.graph.basic import Variable

from pymc_dirdp.models.graph import evaluate
from pymc_dirdp.models.likelihoods import KINDS, Likelihood, probability_of, stored_observations
from pymc_dirdp.models.parents import indexing, stored_parent

__all__ = ["inputs", "same_data", "same_numbers", "shift_axis", "stored_parents"]

Stored = Variable[Any, Any]


def stored_parents(likelihood: Likelihood, model: pm.Model) -> tuple[Stored, ...]:
    """The arrays that hold the codes of a conditional table's parents; none for another table."""
    if not likelihood.parents:
        return ()
    found = indexing(probability_of(model.named_vars[likelihood.name], KINDS[likelihood.kind]))
    assert found is not None
    stored = [stored_parent(index, model) for index in found.indices]
    return tuple(array for array in stored if array is not None)


def inputs(likelihood: Likelihood, model: pm.Model) -> tuple[Stored, ...]:
    """All arrays of data behind a likelihood: the observations, then the codes of its parents."""
    return (stored_observations(model.named_vars[likelihood.name], model), *stored_parents(likelihood, model))


def same_data(first: Stored, second: Stored) -> bool:
    """Whether both are one stored array, or hold the same two numbers or more.

    One number may agree by chance, and an answer must not tell that it does. Axes of length 1 make no difference.
    """
    return first is second or same_numbers(first, evaluate(second))


def shift_axis(parent: Stored, observations: Stored, *, least: int = 2) -> int | None:
    """The axis along which the parent is the observations themselves, one or two steps earlier or later; None if none.

    So it is in a Markov chain, `P[x[:, :-1]]` observed as `x[:, 1:]`. At least `least` numbers have to agree, or it is
    chance. Sequences of other lengths that were put one after the other are not found.
    """
    one, two = evaluate(parent), evaluate(observations)
    if one.shape != two.shape:
        return None
    for axis in range(one.ndim):
        ahead, behind = np.moveaxis(one, axis, 0), np.moveaxis(two, axis, 0)
        pairs = (ahead, behind), (behind, ahead)
        if any(_is_ahead(*pair, step, least) for step in (1, 2) for pair in pairs):
            return axis
    if one.ndim == 1:
        # Sequences of one length, one after the other: what follows the end of one is the start of the next.
        for length in range(3, one.size // 2 + 1):
            if one.size % length == 0:
                ahead, behind = one.reshape(-1, length).T, two.reshape(-1, length).T
                if _is_ahead(ahead, behind, 1, least) or _is_ahead(behind, ahead, 1, least):
                    return 0
    return None


def _is_ahead(ahead: NDArray[Any], behind: NDArray[Any], step: int, least: int) -> bool:
    early, late = ahead[step:], behind[:-step]
    return bool(early.size >= least and np.array_equal(early, late))


def same_numbers(variable: Stored, numbers: NDArray[Any]) -> bool:
    """Whether a stored array holds these two numbers or more."""
    one, two = np.squeeze(evaluate(variable)), np.squeeze(numbers)
    return bool(one.size > 1 and one.shape == two.shape and np.array_equal(one, two))
