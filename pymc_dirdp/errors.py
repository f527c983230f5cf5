"""Errors and warnings by cause. No message ever contains a count, a posterior parameter or a private N."""

import warnings
from pathlib import Path

__all__ = [
    "ArgumentError",
    "BudgetError",
    "CategoriesFromDataWarning",
    "DataError",
    "DirdpError",
    "FewRecordsWarning",
    "InternalError",
    "KeywordError",
    "LedgerError",
    "LeftOutWarning",
    "ManyDrawsWarning",
    "ManyRowsWarning",
    "ReleaseError",
    "RepeatedReleaseWarning",
    "SeededReleaseWarning",
    "UnattainableError",
    "UnsupportedModelError",
    "WeakGuaranteeWarning",
]

# The number of records that remain after others are left out depends on the data. Add-remove protects this number.


def missing_values(way_out: str = "Give missing values a category of their own") -> str:
    """The way out in every error about missing values: what to do with them, and when you may leave them out."""
    return (
        f'{way_out}; or leave these records out and ask for adjacency="add-remove", under which the number of those '
        "that remain is private."
    )


class DirdpError(Exception):
    """Base class of all errors that this library raises."""


class ArgumentError(DirdpError, ValueError):
    """A public argument is outside its domain."""


class KeywordError(ArgumentError, TypeError):
    """A function has no argument of this name. It is also a `TypeError`, which Python raises in this case."""


class ReleaseError(ArgumentError):
    """The argument is not a release, or the release is damaged: a part is missing or has the wrong type."""


class DataError(DirdpError, ValueError):
    """The observed data do not fit the model. The message explains the problem without any value of the data."""


class UnattainableError(DirdpError, ValueError):
    """No parameters of the mechanism satisfy the requested guarantee."""


class UnsupportedModelError(DirdpError, ValueError):
    """The guarantee cannot be proved for a part of the PyMC model."""


class InternalError(DirdpError, RuntimeError):
    """A computation of this library failed its own check. Neither the data nor the release is to blame.

    Parameters
    ----------
    problem : str
        The check that failed, in a sentence.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"{problem} This is a bug of pymc_dirdp, and not a problem of your data or release. Please report it with "
            "the version, the mechanism and the shape of the table, and without confidential data."
        )


class SeededReleaseWarning(UserWarning):
    """Anyone who knows the seed can reproduce the release, so it is not private."""


class RepeatedReleaseWarning(UserWarning):
    """The same model is released again without a ledger, and the privacy losses of the same people add up."""


class ManyDrawsWarning(UserWarning):
    """So many draws share the guarantee that the weight of a record in each of them is below one tenth."""


class WeakGuaranteeWarning(UserWarning):
    """The guarantee hardly protects anyone: its delta is not below one over the number of records, or epsilon is large.

    The usual rules are a delta well below 1/N, and an epsilon of at most 10.
    """


class FewRecordsWarning(UserWarning):
    """A table has more cells than a fifth of its records, so noise hides most of its counts.

    The number of records is the public number, or the planned number if it is private.
    """


class ManyRowsWarning(UserWarning):
    """A private model is slow, because it has a free variable for each of very many rows of private covariates."""


class LeftOutWarning(UserWarning):
    """A private model has no Deterministic that reads records, their covariates, or an array not declared public."""


class CategoriesFromDataWarning(UserWarning):
    """The categories may have been inferred from the data: they come from a data frame, or are sorted by count."""


class BudgetError(DirdpError, ValueError):
    """A release exceeds the remaining privacy budget of a ledger."""


class LedgerError(DirdpError, OSError):
    """The file of a ledger cannot be read or written, or belongs to another ledger."""


def warn(message: str, category: type[Warning]) -> None:
    """Warn the user. The warning points to the first line outside this package."""
    warnings.warn(message, category, skip_file_prefixes=(str(Path(__file__).parent),))


def quote(value: object, *, max_length: int = 80) -> str:
    """A public value for an error, without control characters, and cut to `max_length` characters.

    Examples
    --------
    >>> quote("clip"), len(quote("x" * 1000))
    ("'clip'", 83)
    """
    text = repr(value[: max_length + 1] if isinstance(value, str) else value)
    return text if len(text) <= max_length else f"{text[:max_length]}..."


def type_name(thing: object) -> str:
    """The type of a thing with its article, for an error.

    Examples
    --------
    >>> type_name([1]), type_name(1), type_name(None)
    ('a list', 'an int', 'None')
    """
    name = type(thing).__name__
    if thing is None:
        return "None"
    return f"{'an' if name[0].lower() in 'aeio' else 'a'} {name}"
