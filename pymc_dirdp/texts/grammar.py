"""The format of all texts: JSON in one canonical order, with a version and a digest.

A plan, a release, a private choice and a bandit's transcript are each a :class:`Text`. It is serialized and parsed by
:mod:`pymc_dirdp.texts.codec`. :func:`parse` reads any of them and trusts nothing. The parsed text is written again, and
must be the same, byte for byte. A text therefore cannot contain anything that the library does not know, and parsing
allocates no more memory than the size of the text implies.
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

from pymc_dirdp.arrays import distinct_values
from pymc_dirdp.errors import ArgumentError, DirdpError, InternalError, ReleaseError, quote
from pymc_dirdp.texts.codec import facts_by_field, fields_of

_FORMAT = "pymc_dirdp "
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_SORTED = json.JSONEncoder(sort_keys=True, allow_nan=False)


class Text(abc.ABC):
    """An object that is published as a text of facts, each of which is checked when it is read."""

    kind: ClassVar[str]
    """The kind of text, in a word or two, which is stated in its first line."""
    version: ClassVar[int] = 1
    """The version of the grammar of this kind of text."""
    created_by: ClassVar[str]
    """The function that creates it."""

    @property
    def body(self) -> dict[str, Any]:
        """The facts of its dataclass, as texts, numbers, lists, dicts and arrays of numbers."""
        return facts_by_field(self)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        """The object with these facts, or any of several errors if they are invalid. No guarantee is checked."""
        return cls(**cls.parse_fields(facts))

    @classmethod
    def parse_fields(cls, facts: Mapping[str, Any], *without: str) -> dict[str, Any]:
        """The constructor arguments with these facts, without those that the class parses itself."""
        body = {name: fact for name, fact in facts.items() if name not in ("format", "version")}
        return fields_of(cls, body, without=without)

    @property
    def problem(self) -> str | None:
        """The contradiction among its facts, as a sentence; None if they are consistent."""
        return None

    def check_guarantee(self) -> None:  # noqa: B027  # A release is verified instead.
        """Refuse a plan or a choice that does not satisfy its guarantee. :func:`pymc_dirdp.verify` checks releases."""

    @cached_property
    def content(self) -> dict[str, Any]:
        """The content of the text without its digest, with arrays as they are."""
        return {"format": f"{_FORMAT}{self.kind}", "version": self.version} | self.body

    def to_dict(self) -> dict[str, Any]:
        """The content, for a text that contains this one."""
        return self.content

    @property
    def facts(self) -> dict[str, Any]:
        """The content in texts, numbers, lists and dicts."""
        facts: dict[str, Any] = to_builtin(self.content)
        return facts

    @cached_property
    def digest(self) -> str:
        """A fingerprint of the content."""
        return digest(self.content)

    @cached_property
    def text(self) -> str:
        """The text, with its digest: a line for each fact, and for each row of a table."""
        return to_lines({"digest": self.digest} | self.content)


class _MisreadError(ReleaseError):
    """An error in a text, and its location."""

    def __init__(self, problem: str, *places: str) -> None:
        super().__init__(problem)
        self.problem, self.places = problem, places

    def __str__(self) -> str:
        return f"{f'in {", ".join(self.places)}: ' if self.places else ''}{self.problem}"


@contextmanager
def error_location(place: str) -> Iterator[None]:
    """Add the location in the text to errors about the facts that are parsed here."""
    try:
        yield
    except InternalError:
        raise
    except _MisreadError as error:
        raise _MisreadError(error.problem, place, *error.places) from None
    except DirdpError as error:
        raise _MisreadError(str(error).removesuffix("."), place) from None
    except KeyError as error:
        raise _MisreadError(f"{quote(error.args[0])} is missing", place) from None
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise _MisreadError("it has unknown fields, or values that contradict one another", place) from None


def parse(source: bytes, *kinds: type[Text], max_nodes: float = math.inf, max_problem: int = 500) -> Text:
    """Parse a text from any source.

    Parameters
    ----------
    source : bytes
    *kinds : type
        The expected kinds; by default any text of this library.
    max_nodes : float, optional
        The maximum number of values, lists and objects in the text. They are counted before any of them is built,
        because an empty list takes twenty times as much memory as its text.
    max_problem : int, default 500
        The maximum length of a problem that an error repeats.

    Raises
    ------
    ReleaseError
        If it is not such a text, or contains anything else. :func:`pymc_dirdp.verify` checks whether
        a release satisfies its guarantee.
    UnattainableError
        If it is a plan or a choice that does not satisfy its guarantee.
    """
    # Each value opens a list or an object, or follows a comma; those within quotes only add to the bound.
    if sum(map(source.count, (b"[", b"{", b","))) > max_nodes:
        raise ReleaseError(
            "It contains more values than a text of this size. Pass a larger max_bytes= if you expect that."
        )
    expected = " or ".join(text_class.kind for text_class in kinds) or "text of pymc_dirdp"
    try:
        facts = json.loads(source, object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
        kind = facts["format"].removeprefix(_FORMAT)
        text_class = _kind(kind)
    except (ValueError, RecursionError, LookupError, AttributeError, TypeError):
        raise ReleaseError(f"This is not a {expected}, such as dirdp.save writes, or it is damaged.") from None
    if kinds and text_class not in kinds:
        raise ReleaseError(f"Expected a {expected}, got a text of the kind {text_class.kind!r}.")
    if type(facts.get("version")) is not int or facts["version"] != text_class.version:
        raise ReleaseError(
            f"The {kind} has another version of the format than {text_class.version}, which this library reads. Call "
            f"{text_class.created_by}() again, or read it with the library that wrote it."
        )
    try:
        with error_location(kind), np.errstate(over="raise", invalid="raise", divide="raise"):
            if facts.pop("digest", None) != digest(facts):
                raise ReleaseError("it was changed after it was written: its digest does not match")
            # Numbers may overflow or underflow in computations.
            text = text_class.from_dict(facts)
            _check_rewritten(text.text, source)
            if text.problem is not None:
                raise ReleaseError(text.problem)
    except _MisreadError as error:
        inside = f" in {', '.join(error.places[1:])}" if error.places[1:] else ""
        # A value in an error may be arbitrarily long.
        problem = error.problem if len(error.problem) <= max_problem else f"{error.problem[:max_problem]}..."
        subject = f"The {kind} {'are' if kind.endswith('s') else 'is'} damaged{inside}"
        raise ReleaseError(f"{subject}: {problem}. Ask its publisher for the text again.") from None
    text.check_guarantee()
    return text


def check_readable(text: Text) -> None:
    """Check that a text can be read back, before anything is drawn or charged."""
    try:
        rebuilt = type(text).from_dict(json.loads(to_lines(text.content)))
        is_same = rebuilt.text.encode() == text.text.encode()
    except (DirdpError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        is_same = False
    if not is_same:
        raise InternalError(
            f"The text of this {text.kind} would not be read as it is written, so nothing was drawn or charged. "
            "Please report this."
        )


def _kind(kind: str) -> type[Text]:
    # The classes of texts, which are imported when a text of theirs is read.
    classes = {
        "bandit": "pymc_dirdp.bandits.view:Transcript",
        "bins": "pymc_dirdp.releases.choices:Bins",
        "plan": "pymc_dirdp.releases.plan_types:Plan",
        "plan of pairs": "pymc_dirdp.releases.pairs:PairsPlan",
        "release of pairs": "pymc_dirdp.releases.pairs:PairsRelease",
        "release": "pymc_dirdp.releases.text:Release",
        "structure": "pymc_dirdp.releases.choices:Structure",
    }
    module, _, name = classes[kind].partition(":")
    text_class: type[Text] = getattr(import_module(module), name)
    return text_class


def _check_rewritten(rewritten: str, content: bytes) -> None:
    """Refuse a text that differs from the canonical text of its facts, so that it contains nothing else."""
    if rewritten.encode() != content:
        ours, theirs = rewritten.encode().split(b"\n"), content.split(b"\n")
        # The second line is the digest, which differs whenever another line does.
        pairs = enumerate(zip(ours, theirs, strict=False))
        different_lines = (i for i, (our_line, their_line) in pairs if our_line != their_line and i != 1)
        place = next(different_lines, min(len(ours), len(theirs)))
        raise ReleaseError(
            f"line {place + 1} is not as dirdp.save writes it, by its layout, its line ending or an unknown fact"
        )


def digest(facts: Mapping[str, Any]) -> str:
    """The SHA-256 of facts, in hexadecimal."""
    hasher = hashlib.sha256()
    for piece in _pieces(facts, None):
        hasher.update(piece.encode())
    return hasher.hexdigest()


def to_lines(facts: Mapping[str, Any]) -> str:
    """The facts as JSON, with one line for each fact and for each row of a table."""
    return "".join((*_pieces(facts, ""), "\n"))


def checked_version(value: Any) -> str:
    """The version of the library that a text states. Free text is refused."""
    # Only the version of a Python package.
    if not isinstance(value, str) or not re.fullmatch(r"\d[\w.+!-]{0,39}", value, re.ASCII):
        raise ArgumentError("the version of the library is not a version.")
    return value


def to_builtin(value: Any) -> Any:
    """The value with lists in place of tuples and arrays, as in JSON."""
    if isinstance(value, Mapping):
        return {key: to_builtin(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [to_builtin(item) for item in value] if isinstance(value, tuple | list) else value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A dict without duplicate names, for which two readers could see different values."""
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError
    return unique


def _refuse_constant(constant: str) -> NoReturn:
    """NaN and Infinity are not JSON."""
    raise ValueError(constant)


def _pieces(value: Any, indent: str | None) -> Iterator[str]:
    """Pieces of JSON, with one indented line for each fact and for each row of a table; None sorts it into one line."""
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
            # All rows at once: a call for each of a million rows is slow.
            yield from (f"[{start}", encode.encode(value)[1:-1].replace("], [", f"]{comma}["), f"{end}]")
            return
        for i, item in enumerate(value):
            yield comma if i else f"[{start}"
            yield from _pieces(item, deeper)
        yield f"{end}]"
    else:
        yield encode.encode(value)


def _is_table(rows: Any) -> bool:
    """Whether a list contains only lists of numbers."""
    return all(type(row) is list for row in rows) and {type(number) for row in rows for number in row} <= {int, float}


def _rows(values: NDArray[Any], comma: str, *, at_once: int = 2**15) -> Iterator[str]:
    """The rows of an array of integers or doubles, some of them at a time."""
    for start in range(0, len(values), at_once):
        part = np.ascontiguousarray(values[start : start + at_once])
        # By their bits, because 0 and -0 are equal. Most tables have few different numbers.
        bits, place = distinct_values(part.view(np.int64))
        texts = _JSON.encode(bits.view(part.dtype).tolist())[1:-1].split(", ")
        cells = np.array([f"{text}, " for text in texts], dtype=object)[place]
        cells[:, -1] = np.array([f"{text}]{comma}[" for text in texts], dtype=object)[place[:, -1]]
        rows = "".join(cells.ravel().tolist())
        yield f"{comma if start else ''}[{rows.removesuffix(f'{comma}[')}"


@cache
def library_version() -> str:
    """The version as it is installed; looked up once, because that takes a millisecond."""
    return version("pymc-dirdp")
