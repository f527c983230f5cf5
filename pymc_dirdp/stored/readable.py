"""Public facts as a text that people can read and that shows if it was changed, and back. Nothing in it is believed."""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, NoReturn

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.privacy.guarantees import KINDS, Guarantee

__all__ = ["digest", "guarantee_facts", "guarantee_of", "in_lines", "parsed", "plain", "version_of"]

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
# A version of a package in Python, and no other text.
_A_VERSION = re.compile(r"\d[\w.+!-]{0,39}", re.ASCII)


def digest(facts: Mapping[str, Any]) -> str:
    """The SHA-256 of facts, in hexadecimal."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True, allow_nan=False).encode()).hexdigest()


def in_lines(facts: Mapping[str, Any]) -> str:
    """The facts as JSON: a line for each fact, and for each row of a table."""
    return _lines(dict(facts)) + "\n"


def parsed(text: bytes, form: str, version: int, *, what: str, again: str, made_by: str) -> tuple[dict[str, Any], str]:
    """The facts that were written with their digest, and this digest.

    Parameters
    ----------
    text : bytes
        The file, which anybody may have written.
    form, version : str and int
        What its facts `"format"` and `"version"` have to be.
    what, again, made_by : str
        For errors: what the file holds in a word, what to do, and the function that makes it.

    Raises
    ------
    ArgumentError
        If it is no such file, is of another version, or was changed.
    """
    try:
        facts = json.loads(text, object_pairs_hook=_distinct, parse_constant=_refused)
        if not isinstance(facts, dict) or facts.get("format") != form:
            raise ValueError
        if facts.get("version") != version:
            raise ArgumentError(
                f"The {what} has another version of the format than {version}, which this library reads. Call "
                f"{made_by} again, or read it with the library that wrote it."
            )
        stated_digest = facts.pop("digest", None)
        computed_digest = digest(facts)
    except ArgumentError:
        raise
    except (ValueError, RecursionError):
        raise ArgumentError(f"The file is no {what} such as {what.capitalize()}.to_json writes. {again}") from None
    if stated_digest != computed_digest:
        raise ArgumentError(f"The {what} was changed after it was written: its digest is another one. {again}")
    if in_lines({"digest": computed_digest} | facts).encode() != text:
        raise ArgumentError(f"The {what} is not in the form in which it was written. {again}")
    return facts, computed_digest


def guarantee_facts(guarantee: Guarantee) -> dict[str, Any]:
    """A guarantee as JSON, which has no infinity."""
    numbers = asdict(guarantee).items()
    return {"kind": type(guarantee).__name__} | {n: x if math.isfinite(x) else str(x) for n, x in numbers}


def guarantee_of(facts: Mapping[str, Any]) -> Guarantee:
    """The guarantee that was written; errors of all kinds if it is none."""
    numbers = {name: math.inf if value == "inf" else value for name, value in facts.items() if name != "kind"}
    return KINDS[facts["kind"]](**numbers)


def version_of(value: Any) -> str:
    """The version of the library that a text states; free text, which could hold anything, is refused."""
    if not isinstance(value, str) or not _A_VERSION.fullmatch(value):
        raise ArgumentError("the version of the library is none.")
    return value


def plain(value: Any) -> Any:
    """The same with lists in place of tuples, as JSON has them."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
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


def _lines(value: Any, margin: str = "") -> str:
    """JSON with a line for each fact, and for each row of a table."""
    deeper = f"{margin}  "
    if isinstance(value, dict) and value:
        lines = [f"{_JSON.encode(key)}: {_lines(item, deeper)}" for key, item in value.items()]
        return f"{{\n{deeper}{f',\n{deeper}'.join(lines)}\n{margin}}}"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        if _is_table(value):
            # All rows at once: a call for each of a million rows takes long.
            rows = _JSON.encode(value)[1:-1].replace("], [", f"],\n{deeper}[")
        else:
            rows = f",\n{deeper}".join(_lines(item, deeper) for item in value)
        return f"[\n{deeper}{rows}\n{margin}]"
    return _JSON.encode(value)


def _is_table(rows: list[Any]) -> bool:
    """Whether a list holds lists of numbers alone."""
    return all(type(row) is list for row in rows) and {type(one) for row in rows for one in row} <= {int, float}
