"""Questions that a model leaves open, and one error that asks all of them, with a tested call to copy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, final

import numpy as np

from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.models.privacy_unit import as_code

ADDED = frozenset({"public", "count_variables", "jointly"})
"""Options whose names are added to earlier ones."""


@final
@dataclass(frozen=True)
class Answer:
    """Options that answer a question.

    Attributes
    ----------
    options : mapping of str to object
        The options to pass. Names in `public` and `count_variables`, and groups in `jointly`, are added to earlier
        ones. Other options replace earlier ones.
    why : str
        When the answer is true, as the end of a sentence that begins with the options.
    """

    options: Mapping[str, Any]
    why: str = ""

    def add_to[Options](self, options: Options) -> Options:
        """The options with this answer."""
        changed = {}
        for name, value in self.options.items():
            before = getattr(options, name)
            adds = name in ADDED and not isinstance(value, bool)
            changed[name] = tuple(dict.fromkeys((*(before or ()), *value))) if adds and before is not True else value
        return replace(options, **changed)  # type: ignore[type-var]


@final
class OpenQuestionError(UnsupportedModelError):
    """A model that leaves something open.

    Parameters
    ----------
    text : str
        The question, and the answers in words.
    answers : sequence of Answer
        The answers, the likeliest first.
    """

    def __init__(self, text: str, answers: Sequence[Answer] = ()) -> None:
        super().__init__(text)
        self.answers = tuple(answers)


def as_question(error: Exception, *answers: Answer) -> OpenQuestionError:
    """A question with the text of a refusal."""
    return OpenQuestionError(str(error), answers)


def read_or_ask[Options, Result](read: Callable[[Options], Result], options: Options, verb: str) -> Result:
    """The result of `read`, or one error with all open questions and a call that answers them.

    The call has been tried, and leaves `read` no question. So have the other answers in the error. An answer that leads
    to a refusal is not offered. If no answer remains, that refusal is the error.

    Parameters
    ----------
    read : callable
        It raises an :class:`OpenQuestionError` for each open question.
    options : dataclass
        The options that you passed.
    verb : str
        The beginning of the call, such as "dirdp.plan(guarantee, model".

    Raises
    ------
    UnsupportedModelError, ArgumentError
    """
    try:
        return read(options)
    except OpenQuestionError as question:
        first = question
    refusals: list[UnsupportedModelError | ArgumentError] = []
    ways = [(answer, _try_answer(read, options, answer, refusals)) for answer in first.answers]
    accepted = [(answer, way) for answer, way in ways if way is not None]
    if not accepted:
        raise (refusals[0] if refusals else UnsupportedModelError(str(first))) from None
    (best, (complete, questions)), *others = accepted
    further = (f"\nAlso: {str(question).partition(': ')[2] or question}" for question in questions)
    alternatives = (f"{_as_arguments(way, answer.options)} {answer.why}" for answer, (way, _) in others if answer.why)
    joined = "; ".join(alternatives)
    raise UnsupportedModelError(
        f"{first}{''.join(further)}\nFor example{best.why and f', {best.why}'}:\n    {verb}, {_as_arguments(complete)})"
        + (f"\nThe first question may also be answered by {joined}." if joined else "")
    ) from None


def _try_answer[Options, Result](
    read: Callable[[Options], Result],
    options: Options,
    answer: Answer,
    refusals: list[UnsupportedModelError | ArgumentError],
    *,
    later: bool = False,
) -> tuple[Options, list[OpenQuestionError]] | None:
    """The complete options with an answer, and the questions that it leaves; None if it leads to a refusal.

    Options that are not set yet answer the questions that an answer leaves, so that the search ends.
    """
    replaced = answer.options.keys() - ADDED - {"adjacency"}
    if later and any(getattr(options, name) not in (None, ()) for name in replaced):
        return None
    try:
        extended = answer.add_to(options)
        if extended == options:
            return None
        read(extended)
    except OpenQuestionError as question:
        for other in question.answers:
            if (way := _try_answer(read, extended, other, refusals, later=True)) is not None:
                return way[0], [question, *way[1]]
        return None
    except (UnsupportedModelError, ArgumentError) as error:
        refusals.append(error)
        return None
    return extended, []


def _as_arguments(options: Any, only: Mapping[str, Any] | None = None) -> str:
    """Options as the arguments of a call: all that are not the default, or only those of `only`."""
    default, parts = type(options)(), []
    for field in fields(options):
        value = getattr(options, field.name)
        if value == getattr(default, field.name) or (only is not None and field.name not in only):
            continue
        if field.name == "unit":
            value = value[0] if len(value) == 1 else value
        elif field.name == "support":
            value = {name: np.asarray(values).tolist() for name, values in value.items()}
        elif isinstance(value, tuple):
            value = [list(entry) if isinstance(entry, tuple) else entry for entry in value]
        parts.append(f"{field.name}={as_code(value)}")
    return ", ".join(parts)
