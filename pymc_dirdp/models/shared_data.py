"""Whether two inputs of a model hold the same data. Each answer is yes, no or an axis: no value leaves this file."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.tensor.subtensor import Subtensor, get_idx_list

from pymc_dirdp.models.graph import Node, evaluate, root_of

__all__ = ["same_data", "same_numbers", "shift_axis"]


def same_data(first: Node, second: Node) -> bool:
    """Whether both are one stored array, or hold the same two numbers or more.

    One number may agree by chance, and an answer must not tell that it does. Axes of length 1 make no difference.
    """
    return first is second or same_numbers(first, evaluate(second))


def shift_axis(parent: Node, observations: Node, *, least: int = 2) -> int | None:
    """The axis along which the parent is the observations themselves, one or two steps earlier or later; None if none.

    A Markov chain does this: `P[x[:, :-1]]` observed as `x[:, 1:]`. At least `least` numbers have to agree, otherwise
    it may be chance. Sequences of different lengths that were put one after the other are not recognised.
    """
    if (cut := _cut_apart(parent, observations)) is not None:
        return cut
    one, two = evaluate(parent), evaluate(observations)
    if one.shape != two.shape:
        return None
    for axis in range(one.ndim):
        ahead, behind = np.moveaxis(one, axis, 0), np.moveaxis(two, axis, 0)
        pairs = (ahead, behind), (behind, ahead)
        if any(_is_ahead(*pair, step, least) for step in (1, 2) for pair in pairs):
            return axis
    if one.ndim == 1:
        # Sequences of one length may stand one after the other: the end of one is followed by the start of the next.
        for length in range(3, one.size // 2 + 1):
            if one.size % length == 0:
                ahead, behind = one.reshape(-1, length).T, two.reshape(-1, length).T
                if _is_ahead(ahead, behind, 1, least) or _is_ahead(behind, ahead, 1, least):
                    return 0
    return None


def _cut_apart(parent: Node, observations: Node) -> int | None:
    """The axis along which both are different slices of one `pm.Data`; None if they are not."""
    root = root_of(parent)
    if not isinstance(root, SharedVariable) or root_of(observations) is not root:
        return None
    one, two = _slices(parent), _slices(observations)
    differ = [axis for axis in range(parent.type.ndim) if one[axis : axis + 1] != two[axis : axis + 1]]
    return differ[0] if differ else None


def _slices(array: Node) -> list[str]:
    """The slices of a part of a stored array along the axes that it keeps."""
    if array.owner is None:
        return []
    if not isinstance(array.owner.op, Subtensor) or array.owner.inputs[0].owner is not None:
        return [f"several steps, the last of which is {array.owner.op}"]
    entries = get_idx_list(array.owner.inputs, array.owner.op.idx_list)
    slices = [repr(entry) for entry in entries if isinstance(entry, slice)]
    while slices and slices[-1] == repr(slice(None)):
        slices.pop()
    return slices


def _is_ahead(ahead: NDArray[Any], behind: NDArray[Any], step: int, least: int) -> bool:
    early, late = ahead[step:], behind[:-step]
    return bool(early.size >= least and np.array_equal(early, late))


def same_numbers(variable: Node, numbers: NDArray[Any]) -> bool:
    """Whether a stored array holds these two numbers or more."""
    one, two = np.squeeze(evaluate(variable)), np.squeeze(numbers)
    return bool(one.size > 1 and one.shape == two.shape and np.array_equal(one, two))
