"""Refusals of a unit that does not exist in the model, or that names no axis of people."""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import replace

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.observation import Observation
from pymc_dirdp.models.refusals import refusal
from pymc_dirdp.models.stated import Stated, as_code, axis_text
from pymc_dirdp.models.unit import people_axes

__all__ = ["lacking", "refuse_steps", "refuse_unknown_axes"]


def refuse_unknown_axes(observations: Sequence[Observation], stated: Stated) -> None:
    """Refuse a unit that no observed variable has: it is a slip."""
    dims = sorted({axis for observed in observations for axis in observed.axes if isinstance(axis, str)})
    most = max((len(observed.axes) for observed in observations), default=0)
    cores = {dim for observed in observations for dim in observed.core}
    for axis in stated.unit:
        if isinstance(axis, str) and axis not in dims and axis not in cores:
            near = difflib.get_close_matches(axis, dims, n=1, cutoff=0.4)
            known = f"They have {', '.join(map(repr, dims))}." if dims else "Name axes with dims=, or give a number."
            hint = f"Did you mean {near[0]!r}?" if near else known
            raise ArgumentError(f"unit={axis!r} is no dim of any observation. {hint}")
        if isinstance(axis, int) and axis >= most:
            raise ArgumentError(f"unit={axis} is no axis of any observation. They have {most} at most, from 0 on.")
        _refuse_two_meanings(axis, observations)
    if stated.unit and all(people_axes(observed, stated) is None for observed in observations):
        raise ArgumentError(
            f"{stated.unit_text} names axes that no observation has together, so nobody is such an entry. Name axes "
            "of one observation, such as "
            + " or ".join(f"unit={as_code(observed.axes)}" for observed in observations if observed.axes)
            + "."
        )


def _refuse_two_meanings(axis: str | int, observations: Sequence[Observation]) -> None:
    """Refuse the number of an axis that has one dim in one observed variable and another dim in another."""
    if isinstance(axis, str):
        return
    dims = {one.axes[axis]: one.name for one in observations if axis < len(one.axes)}
    # An axis without a dim is called by its number.
    dims.pop(axis, None)
    if len(dims) > 1:
        (one, first), (other, second) = list(dims.items())[:2]
        raise ArgumentError(
            f"unit={axis} is the dim {one!r} of {first!r} and {other!r} of {second!r}. Name the dim of the people."
        )


def lacking(
    observed: Observation, together: Sequence[Observation], stated: Stated, works: Callable[[Stated], bool]
) -> ArgumentError:
    """The error for an observed variable without the unit that others have. It offers groups that were tried."""
    names = list(dict.fromkeys(other.name for other in together))
    found = {other.name for other in together if people_axes(other, stated) is not None}
    having, without = [name for name in names if name in found], [name for name in names if name not in found]
    what = "a dim" if all(isinstance(axis, str) for axis in stated.unit) else "an axis"
    ways = f"Give {observed.name!r} the dim"
    apart = replace(stated, disjoint=(*(stated.disjoint or ()), tuple(having), tuple(without)))
    if stated.disjoint is None and works(apart):
        ways += f", or say with disjoint={as_code([having, without])} that other people feed {_listed(without)}"
    return ArgumentError(
        f"{stated.unit_text} is {what} of {_listed(having)} but not of {observed.name!r}, so it is unknown what a "
        f"person can change in {observed.name!r}. {ways}."
    )


def refuse_steps(observed: Observation, together: Sequence[Observation], stated: Stated) -> None:
    """Refuse people who are the steps of a sequence: each step is in several records, and others hold the rest."""
    for other in (observed, *together):
        axis = observed.step_axis(other, surely=True)
        if axis is not None and axis in (people_axes(observed, stated) or ()):
            called = axis_text(observed.axes[axis])
            raise refusal("steps", observed.name, axis=called, said=stated.unit_text)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(map(repr, names))
