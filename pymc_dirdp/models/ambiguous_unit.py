"""What is asked where a model leaves open whose records it holds, and lines that answer it."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from pymc_dirdp.display import aligned
from pymc_dirdp.models.observation import Observation
from pymc_dirdp.models.privacy_unit_args import Stated, as_code, axis_text
from pymc_dirdp.models.shared_data import same_data
from pymc_dirdp.models.unit import people_axes

__all__ = ["question", "records_of_one"]

# The bound that is offered where the model's own number is private.
_BOUND = 10

# An answer to a question about one observed variable or about two: a statement and its meaning.
_Answer = tuple[Stated, str]


def question(
    together: Sequence[Observation], stated: Stated, public: bool, works: Callable[[Stated], bool]
) -> str | None:
    """The question to ask before these variables, which one person may feed, are released; None if nothing is open.

    Numbers of records may be named if they are `public`. The question has a line for each answer, written as arguments
    of `plan` or `sample`. Only answers are offered for which `works` is true: they leave nothing else open.
    """
    for opening, answers in _open(together, stated, public):
        lines = [
            (_written(said), why)
            for said, why in ((_completed(said, together, works), why) for said, why in answers)
            if said is not None
        ]
        choices = aligned([(line, f"# {why}") for line, why in dict(lines).items()])
        offered = "\n".join(f"    {choice}" for choice in choices)
        instead = "" if stated == Stated() else " in place of what was said"
        return f"Cannot say whom this release would protect: {opening} Say which{instead}, by one of\n{offered}"
    return None


def _open(together: Sequence[Observation], stated: Stated, public: bool) -> Iterator[tuple[str, list[_Answer]]]:
    """Everything that is open, with the answers to try."""
    for observed in together:
        asked = _of_one(observed, stated, public)
        if asked is not None:
            yield asked
    for one, other in combinations(together, 2):
        # An observed variable that feeds two tables is here twice. Without parents nothing links two variables, which
        # is looked at first because there are many pairs.
        linked = (one.parents or other.parents) and one.name != other.name
        link = _link(one, other) if linked else None
        if link is not None:
            yield f"{link}, so what one person can change is in both.", _answers_for_both(one, other, stated, public)


def _answers_for_both(one: Observation, other: Observation, stated: Stated, public: bool) -> list[_Answer]:
    steps = next((axis for axis in (one.step_axis(other), other.step_axis(one)) if axis is not None), None)
    axes = [axis for axis in one.axes if axis in other.axes and (steps is None or one.axes.index(axis) != steps)]
    answers: list[_Answer] = [
        *((replace(stated, unit=(axis,)), _people(axis, "one record in each")) for axis in axes[:1]),
        (_holding(stated, 1), "a person holds one record of each table at most"),
        (_holding(stated, 2), "a person holds 2 records of each table at most, anywhere"),
    ]
    if steps is not None:
        bound = max(2, one.lengths[steps]) if public else _BOUND
        answers.insert(-2, (_holding(stated, bound), "a person holds a whole sequence (or put your bound)"))
    return answers


def _of_one(observed: Observation, stated: Stated, public: bool) -> tuple[str, list[_Answer]] | None:
    """What is open about one observed variable alone, with the answers to try; None if nothing is."""
    name = repr(observed.name)
    several = observed.most_trials > 1
    first = _first(observed)
    if (chain := observed.step_axis(observed)) is not None:
        people = [axis for axis in range(len(observed.axes)) if axis != chain]
        bound = observed.lengths[chain] if public else _BOUND
        step = observed.records_of_a_step
        return (
            f"{name} takes its rows of {observed.table.name!r} from itself some steps earlier or later, so a person "
            "may stand behind a whole sequence of records.",
            [
                *(
                    (_unit(stated, observed, (axis,)), _people(observed.axes[axis], "a sequence"))
                    for axis in people[:1]
                ),
                (_holding(stated, max(step, bound)), "a person holds a whole sequence (or put your bound)"),
                (_holding(stated, step), f"each entry of a sequence is another person's: it is in {step} records"),
            ],
        )
    if several and observed.parents:
        parents = " and ".join(repr(parent) for parent, _ in observed.parents)
        return (
            f"{name} holds {_trials(observed, public)} behind the observed parent {parents}: anyone who moves there "
            "takes all of them along.",
            _trial_answers(observed, first, stated, public),
        )
    if several and observed.integrated and observed.lengths:
        return (
            f"{name} holds {_trials(observed, public)} in each row of {observed.table.name!r}, and a row may be one "
            "person or many.",
            _trial_answers(observed, first, stated, public),
        )
    if observed.summed and (observed.record_axes or len(observed.summed) > 1):
        shape = " x ".join(map(str, observed.lengths))
        how_many = f"{shape} observations" if public else "observations"
        others = [axis_text(axis) for axis in observed.axes if axis != observed.axes[first[0]]]
        each = f"each has a record for every entry of {' x '.join(others)}"
        return (
            f"{name} has {how_many} over the axes ({', '.join(map(repr, observed.axes))}), and a person may stand "
            "behind several of them.",
            [
                (_unit(stated, observed, first), _people(observed.axes[first[0]], each)),
                (_holding(stated, records_of_one(observed, public)), _anywhere(observed, public)),
                (_unit(stated, observed, tuple(range(len(observed.axes)))), "every observation is another person"),
                *([(_holding(stated, 1), "every record is another person")] * several),
            ],
        )
    if observed.summed and several:
        return (
            f"{name} holds {_trials(observed, public)} in each entry of {axis_text(observed.axes[first[0]])}, and a "
            "person may stand behind several of them.",
            _trial_answers(observed, first, stated, public),
        )
    return None


def _trial_answers(observed: Observation, first: tuple[int, ...], stated: Stated, public: bool) -> list[_Answer]:
    most = records_of_one(observed, public)
    return [
        *((_unit(stated, observed, (axis,)), _people(observed.axes[axis], "all its trials")) for axis in first),
        (_holding(stated, most), _anywhere(observed, public)),
        (_holding(stated, 1), "every trial is another person"),
        *([] if first else [(_holding(stated, 2), "a person holds 2 trials at most")]),
    ]


def _link(one: Observation, other: Observation) -> str | None:
    """The relation of two observed variables by the codes of their parents, as a sentence; None if there is none."""
    for child, parent in ((one, other), (other, one)):
        for name, codes in child.parents:
            if same_data(codes, parent.stored):
                called = "" if name == parent.name else f" ({name})"
                return f"{child.name!r} takes its rows from what is observed in {parent.name!r}{called}"
        if child.step_axis(parent) is not None:
            return f"{child.name!r} takes its rows from what is observed in {parent.name!r} some steps earlier or later"
    for name, codes in one.parents:
        if any(same_data(codes, others) for _, others in other.parents):
            return f"{one.name!r} and {other.name!r} take their rows from the same parent ({name})"
    return None


def _first(observed: Observation) -> tuple[int, ...]:
    """The axis that is offered as the axis of the people; empty where there is no axis."""
    return (*observed.summed, *observed.record_axes)[:1]


def _unit(stated: Stated, observed: Observation, axes: tuple[int, ...]) -> Stated:
    return replace(stated, unit=tuple(observed.axes[axis] for axis in axes))


def _holding(stated: Stated, records: int) -> Stated:
    """The statement with a bound on the records of each table in place of a unit."""
    return replace(stated, unit=(), contribution=records)


def _completed(said: Stated, together: Sequence[Observation], works: Callable[[Stated], bool]) -> Stated | None:
    """The answer with everything else that has to be said for it; None if it is no answer here."""
    if not said.unit and said.contribution is None:
        return None
    counted = [observed for observed in together if observed.trials is not None]
    candidates = [said]
    if said.unit:
        differing = [one for one in counted if one.trials_differ_along(people_axes(one, said) or ())]
        candidates += [replace(said, public_n=(one.name,)) for one in counted]
        candidates += [replace(said, public_n=tuple(one.name for one in some)) for some in (differing, counted)]
        candidates += [replace(said, contribution=_BOUND)]
    return next((candidate for candidate in candidates if works(candidate)), None)


def _written(said: Stated) -> str:
    """A statement as arguments of `plan` and `sample`."""
    given = {
        "unit": said.unit[0] if len(said.unit) == 1 else said.unit or None,
        "contribution": said.contribution,
        "public_n": list(said.public_n) or None,
        "disjoint": None if said.disjoint is None else [list(group) for group in said.disjoint],
    }
    return ", ".join(f"{name}={as_code(value)}" for name, value in given.items() if value is not None)


def records_of_one(observed: Observation, public: bool) -> int:
    """How many records an entry of the offered axis holds, if that is public; otherwise a bound to start from."""
    people = _first(observed)
    trials = observed.one_number_of_trials
    others = [axis for axis in range(len(observed.axes)) if axis not in people]
    # The lengths of rows are those of the prior, so they are always public.
    known = public or (observed.trials is None and set(others) <= set(observed.record_axes))
    if trials is None or not known:
        return _BOUND
    return max(1, trials * math.prod(observed.lengths[axis] for axis in others))


def _anywhere(observed: Observation, public: bool) -> str:
    return f"a person holds {records_of_one(observed, public)} records at most, anywhere (or put your bound)"


def _trials(observed: Observation, public: bool) -> str:
    n = observed.one_number_of_trials
    return "several trials" if n is None or not public else f"n={n} trials"


def _people(axis: str | int, each: str) -> str:
    hint = "" if isinstance(axis, str) else " (name it with dims=)"
    return f"{axis_text(axis)} holds the people: {each}{hint}"
