"""The form of every text that leaves the house: JSON in one canonical order, with a version and a digest.

A plan, a release, a private choice and a bandit's transcript are each a :class:`Text`: it says its facts, and is made
of them, as :mod:`pymc_dirdp.texts.codec` writes and reads a dataclass. :func:`understood` reads any of them and
believes nothing. The grammar is closed: what is understood of a text is written again, and has to be the same text,
byte for byte. So a text has no place for anything that the library does not understand, and nothing is allocated that
the text does not hold.
"""

import abc
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import version
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.arrays import different
from pymc_dirdp.errors import ArgumentError, DirdpError, InternalError, ReleaseError, shown
from pymc_dirdp.texts.codec import facts_by_field, fields_of

_FORMAT = "pymc_dirdp "
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_SORTED = json.JSONEncoder(sort_keys=True, allow_nan=False)


class Text(abc.ABC):
    """What is published as a text: it says facts alone, and each is checked when it is read."""

    called: ClassVar[str]
    """What it is, in a word or two; a text says it in its first line."""
    version: ClassVar[int] = 1
    """The version of the grammar of this kind of text."""
    made_by: ClassVar[str]
    """The function that makes it."""

    @property
    def own_facts(self) -> dict[str, Any]:
        """All that it says, in texts, numbers, lists, dicts and arrays of numbers: those of its dataclass."""
        return facts_by_field(self)

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        """What says these facts; errors of all kinds if nothing does. Whether a guarantee follows is not decided."""
        return cls(**cls.own_fields(facts))

    @classmethod
    def own_fields(cls, facts: Mapping[str, Any], *without: str) -> dict[str, Any]:
        """The arguments of its dataclass that these facts are, without those that it reads in another way."""
        own = {name: fact for name, fact in facts.items() if name not in ("format", "version")}
        return fields_of(cls, own, without=without)

    @property
    def problem(self) -> str | None:
        """What of its facts cannot be true together, in a sentence; None if all of them can."""
        return None

    def refuse_unkept(self) -> None:  # noqa: B027  # A release is verified instead.
        """Refuse a plan or a choice that does not keep its guarantee; of a release, :func:`pymc_dirdp.verify` says."""

    @cached_property
    def said(self) -> dict[str, Any]:
        """All that the text says but its digest, with arrays as they are."""
        return {"format": f"{_FORMAT}{self.called}", "version": self.version} | self.own_facts

    def to_facts(self) -> dict[str, Any]:
        """The same, as a text within another one has them."""
        return self.said

    @property
    def facts(self) -> dict[str, Any]:
        """The same in texts, numbers, lists and dicts."""
        found: dict[str, Any] = plain(self.said)
        return found

    @cached_property
    def digest(self) -> str:
        """A fingerprint of all that the text says."""
        return digest(self.said)

    @cached_property
    def text(self) -> str:
        """The text, with its digest: a line for each fact, and for each row of a table."""
        return in_lines({"digest": self.digest} | self.said)


class _MisreadError(ReleaseError):
    """A text that says something wrong, and where."""

    def __init__(self, problem: str, *places: str) -> None:
        super().__init__(problem)
        self.problem, self.places = problem, places

    def __str__(self) -> str:
        return f"{f'in {", ".join(self.places)}: ' if self.places else ''}{self.problem}"


@contextmanager
def at(place: str) -> Iterator[None]:
    """Where in a text the facts stand that are read here; an error about them names it."""
    try:
        yield
    except InternalError:
        raise
    except _MisreadError as error:
        raise _MisreadError(error.problem, place, *error.places) from None
    except DirdpError as error:
        raise _MisreadError(str(error).removesuffix("."), place) from None
    except KeyError as error:
        raise _MisreadError(f"{shown(error.args[0])} is missing", place) from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise _MisreadError("it has unknown fields, or values that contradict one another", place) from None


def understood(content: bytes, *kinds: type[Text], most_nodes: float = math.inf, longest_problem: int = 500) -> Text:
    """What a text says, whatever its author.

    Parameters
    ----------
    content : bytes
    *kinds : type
        What is expected; by default any text of this library.
    most_nodes : float, optional
        The most values, lists and objects that a text may hold. They are counted before any of them is built, because
        an empty list takes twenty times as much memory as its text.
    longest_problem : int, default 500
        The longest problem that an error repeats.

    Raises
    ------
    ReleaseError
        If it is no such text, or says anything that none says. Whether a release keeps its guarantee is another
        question, see :func:`pymc_dirdp.verify`.
    UnattainableError
        If it is a plan or a choice that does not keep its guarantee.
    """
    # Each value opens a list or an object, or follows a comma; those within quotes only add to the bound.
    if sum(map(content.count, (b"[", b"{", b","))) > most_nodes:
        raise ReleaseError(
            "It holds more values than a text of so many bytes. Pass a larger most_bytes= if you expect that."
        )
    expected = " or ".join(kind.called for kind in kinds) or "text of pymc_dirdp"
    try:
        facts = json.loads(content, object_pairs_hook=_distinct, parse_constant=_refused)
        called = facts["format"].removeprefix(_FORMAT)
        kind = _kind(called)
    except (ValueError, RecursionError, LookupError, AttributeError, TypeError):
        raise ReleaseError(f"This is not a {expected}, such as dirdp.save writes, or it is damaged.") from None
    if kinds and kind not in kinds:
        raise ReleaseError(f"Expected a {expected}, got a text of the kind {kind.called!r}.")
    if type(facts.get("version")) is not int or facts["version"] != kind.version:
        raise ReleaseError(
            f"The {called} has another version of the format than {kind.version}, which this library reads. Call "
            f"{kind.made_by}() again, or read it with the library that wrote it."
        )
    try:
        with at(called), np.errstate(over="raise", invalid="raise", divide="raise"):
            if facts.pop("digest", None) != digest(facts):
                raise ReleaseError("it was changed after it was written: its digest does not match")
            # Numbers may be far too large or too small to be computed with.
            found = kind.from_facts(facts)
            _refuse_more(found.text, content)
            if found.problem is not None:
                raise ReleaseError(found.problem)
    except _MisreadError as error:
        inside = f" in {', '.join(error.places[1:])}" if error.places[1:] else ""
        # A value that an error repeats may be as long as somebody has made it.
        problem = error.problem if len(error.problem) <= longest_problem else f"{error.problem[:longest_problem]}..."
        what = f"The {called} {'are' if called.endswith('s') else 'is'} damaged{inside}"
        raise ReleaseError(f"{what}: {problem}. Ask its publisher for the text again.") from None
    found.refuse_unkept()
    return found


def refuse_unreadable(text: Text) -> None:
    """Refuse what could not be read again, before anything is charged for it or drawn."""
    try:
        again = type(text).from_facts(json.loads(in_lines(text.said)))
        same = again.text.encode() == text.text.encode()
    except (DirdpError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        same = False
    if not same:
        raise InternalError(
            f"The text of this {text.called} would not be read as it is written, so nothing was drawn or charged. "
            "Please report this."
        )


def _kind(called: str) -> type[Text]:
    # Where the classes of texts are; they are imported once a text of theirs is read.
    homes = {
        "bandit": "pymc_dirdp.bandits.view:Transcript",
        "bins": "pymc_dirdp.releases.choices:Bins",
        "plan": "pymc_dirdp.releases.plan_types:Plan",
        "plan of pairs": "pymc_dirdp.releases.pairs:PairsPlan",
        "release of pairs": "pymc_dirdp.releases.pairs:PairsRelease",
        "release": "pymc_dirdp.releases.text:Release",
        "structure": "pymc_dirdp.releases.choices:Structure",
    }
    module, _, name = homes[called].partition(":")
    found: type[Text] = getattr(import_module(module), name)
    return found


def _refuse_more(again: str, content: bytes) -> None:
    """Refuse a text that is not the one that its facts are written as: so it says nothing else."""
    if again.encode() != content:
        ours, theirs = again.encode().split(b"\n"), content.split(b"\n")
        # The second line is the digest, which differs because another one does.
        differing = (i for i, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other and i != 1)
        place = next(differing, min(len(ours), len(theirs)))
        raise ReleaseError(
            f"line {place + 1} is not as dirdp.save writes it, by its layout, its line ending or an unknown fact"
        )


def digest(facts: Mapping[str, Any]) -> str:
    """The SHA-256 of facts, in hexadecimal."""
    found = hashlib.sha256()
    for piece in _pieces(facts, None):
        found.update(piece.encode())
    return found.hexdigest()


def in_lines(facts: Mapping[str, Any]) -> str:
    """The facts as JSON: a line for each fact, and for each row of a table."""
    return "".join((*_pieces(facts, ""), "\n"))


def version_of(value: Any) -> str:
    """The version of the library that a text states; free text, which could hold anything, is refused."""
    # A version of a package in Python, and no other text.
    if not isinstance(value, str) or not re.fullmatch(r"\d[\w.+!-]{0,39}", value, re.ASCII):
        raise ArgumentError("the version of the library is none.")
    return value


def plain(value: Any) -> Any:
    """The same with lists in place of tuples and arrays, as JSON has them."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dict without a name that stands twice, of which two readers could see different values."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError
    return found


def _refused(constant: str) -> NoReturn:
    """NaN and Infinity are not JSON."""
    raise ValueError(constant)


def _pieces(value: Any, indent: str | None) -> Iterator[str]:
    """JSON, with a line for each fact and for each row of a table behind blanks; None sorts it into a single line."""
    encode, deeper = (_SORTED, None) if indent is None else (_JSON, f"{indent}  ")
    comma, start, end = (", ", "", "") if indent is None else (f",\n{deeper}", f"\n{deeper}", f"\n{indent}")
    if isinstance(value, np.ndarray) and not (value.ndim > 1 and value.size):
        value = value.tolist()
    if isinstance(value, Mapping) and value:
        for i, key in enumerate(sorted(value) if indent is None else value):
            yield f"{comma if i else f'{{{start}'}{encode.encode(key)}: "
            yield from _pieces(value[key], deeper)
        yield f"{end}}}"
    elif isinstance(value, np.ndarray) and value.ndim == 2:
        yield from (f"[{start}", *_rows(value, comma), f"{end}]")
    elif isinstance(value, np.ndarray | list) and any(
        issubclass(kind, (Mapping, list, np.ndarray)) for kind in set(map(type, value))
    ):
        if _is_table(value):
            # All rows at once: a call for each of a million rows takes long.
            yield from (f"[{start}", encode.encode(value)[1:-1].replace("], [", f"]{comma}["), f"{end}]")
            return
        for i, item in enumerate(value):
            yield comma if i else f"[{start}"
            yield from _pieces(item, deeper)
        yield f"{end}]"
    else:
        yield encode.encode(value)


def _is_table(rows: Any) -> bool:
    """Whether a list holds lists of numbers alone."""
    return all(type(row) is list for row in rows) and {type(one) for row in rows for one in row} <= {int, float}


def _rows(values: NDArray[Any], comma: str, *, at_once: int = 2**15) -> Iterator[str]:
    """The rows of an array of integers or doubles, some of them at a time."""
    for start in range(0, len(values), at_once):
        part = np.ascontiguousarray(values[start : start + at_once])
        # By their bits, because 0 and -0 are equal. Most tables have few different numbers.
        bits, place = different(part.view(np.int64))
        texts = _JSON.encode(bits.view(part.dtype).tolist())[1:-1].split(", ")
        cells = np.array([f"{text}, " for text in texts], dtype=object)[place]
        cells[:, -1] = np.array([f"{text}]{comma}[" for text in texts], dtype=object)[place[:, -1]]
        rows = "".join(cells.ravel().tolist())
        yield f"{comma if start else ''}[{rows.removesuffix(f'{comma}[')}"


@cache
def library_version() -> str:
    """The version as it is installed; looked up once, because that takes a millisecond."""
    return version("pymc-dirdp")
