"""The declared labels of variables: public, checked, and as plain Python values."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from numbers import Number
from pathlib import Path
from typing import Any

from pymc_dirdp.counting.columns import is_missing, of_data_frame, scalar, without_dims
from pymc_dirdp.errors import ArgumentError, CategoriesFromDataWarning, type_name

__all__ = ["Categories", "Otherwise", "checked_categories", "checked_otherwise", "checked_variables"]

Categories = Mapping[str, Sequence[Any]]
Otherwise = Mapping[str, Any]


def checked_variables(variables: Sequence[str]) -> list[str]:
    """The names of the columns of a table, at least one and each once."""
    if isinstance(variables, str) or not (names := list(variables)):
        raise ArgumentError("Expected variables to be a list of at least one column name.")
    if len(set(names)) < len(names):
        raise ArgumentError(f"Expected each variable once, got {', '.join(map(repr, names))}.")
    return names


def checked_categories(names: Sequence[str], categories: Categories) -> dict[str, list[Any]]:
    """The declared labels of these variables as plain Python values, or an error that says what is wrong with them."""
    if not isinstance(categories, Mapping):
        raise ArgumentError(f"Expected categories to map names to labels, got {type_name(categories)}.")
    checked = {}
    for name in names:
        if name not in categories:
            raise ArgumentError(
                f"Expected categories[{name!r}]: declare all values that {name!r} could take, in order."
            )
        checked[name] = _checked_labels(name, categories[name])
    _warn_of_data(names, categories)
    return checked


def _warn_of_data(names: Sequence[str], categories: Categories) -> None:
    """Warn once if categories are objects of data frames, because those may hold values of the data."""
    suspect = [name for name in names if of_data_frame(categories[name])]
    if suspect:
        warnings.warn(
            f"categories[{suspect[0]!r}] is {type_name(categories[suspect[0]])}"
            + (f", as are {len(suspect) - 1} more" if len(suspect) > 1 else "")
            + ". Which values are in the data is secret, so categories must be declared without looking at them: "
            "write them as a list.",
            CategoriesFromDataWarning,
            skip_file_prefixes=(str(Path(__file__).parents[1]),),
        )


def _checked_labels(name: str, given: Any) -> list[Any]:
    expected = f"Expected categories[{name!r}] to be a sequence of labels"
    if isinstance(given, str | bytes):
        raise ArgumentError(f"{expected}, got one text.")
    if isinstance(given, set | frozenset) or not isinstance(given, Iterable):
        # The user does not decide the order of a set, and it may differ from one process to the next.
        raise ArgumentError(f"{expected} in order, got {type_name(given)}.")
    if hasattr(given, "columns") or hasattr(given, "column_names"):
        # A data frame of pandas iterates over its column names, which would be taken for labels.
        raise ArgumentError(f"{expected}, got {type_name(given)}. Write the labels as a list.")
    written = list(without_dims(given))
    labels = [_plain_label(label) for label in written]
    if not labels:
        raise ArgumentError(f"Expected categories[{name!r}] to hold at least one label, got none.")
    if any(map(is_missing, labels)):
        raise ArgumentError(f"{expected}, none of them a missing value; write one, such as 'unknown', in its place.")
    for label, as_written in zip(labels, written, strict=True):
        if not isinstance(label, str | bytes | Number | Enum):
            # Engines change dates and intervals: some count nanoseconds, and others truncate them.
            raise ArgumentError(
                f"{expected} that are texts or numbers, not lists or dates; one is {type_name(as_written)}. "
                "Write dates and intervals as texts, there and in the records."
            )
    if any("\0" in label if isinstance(label, str) else isinstance(label, bytes) and 0 in label for label in labels):
        raise ArgumentError(f"{expected} without the character NUL, which NumPy leaves out at the end of a text.")
    if len(set(labels)) < len(labels):
        raise ArgumentError(f"Expected the labels of categories[{name!r}] to differ; 1, 1.0 and True are the same.")
    return labels


def _plain_label(label: Any) -> Any:
    """A label as a Python value: for a member of StrEnum or IntEnum, its text or number."""
    plain = scalar(label)
    return plain.value if isinstance(plain, Enum) and isinstance(plain, str | Number) else plain


def checked_otherwise(otherwise: Otherwise | None, labels: Mapping[str, list[Any]]) -> dict[str, int]:
    """The position of the label that stands for missing and undeclared values, by variable."""
    if otherwise is None:
        return {}
    if not isinstance(otherwise, Mapping):
        raise ArgumentError(f"Expected otherwise to map names to labels, got {type_name(otherwise)}.")
    positions = {}
    for name, given in otherwise.items():
        if name not in labels:
            raise ArgumentError(f"otherwise has {name!r}, which is none of the variables.")
        label = _plain_label(given)
        if label not in labels[name]:
            raise ArgumentError(f"Expected otherwise[{name!r}] to be one of the labels of categories[{name!r}].")
        positions[name] = labels[name].index(label)
    return positions
