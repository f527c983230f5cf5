"""Errors and warnings by cause. No message ever holds a count, a posterior parameter or a private N."""

__all__ = [
    "ArgumentError",
    "BudgetError",
    "CategoriesFromDataWarning",
    "DataError",
    "DirdpError",
    "InternalError",
    "LedgerError",
    "ManyDrawsWarning",
    "ReleaseError",
    "RepeatedReleaseWarning",
    "SeededReleaseWarning",
    "UnattainableError",
    "UnsupportedModelError",
    "shown",
    "type_name",
]

# An error repeats no more letters of a value than these.
_SHOWN = 80


class DirdpError(Exception):
    """Base of every error that this library raises on purpose."""


class ArgumentError(DirdpError, ValueError):
    """A public argument is outside its domain."""


class ReleaseError(ArgumentError):
    """The argument is no release, or a damaged one: a part is missing, or another thing is in its place."""


class DataError(DirdpError, ValueError):
    """The observed data are not what the model says they are. The message says how and holds no value."""


class UnattainableError(DirdpError, ValueError):
    """No setting of the mechanism reaches the guarantee that was asked for."""


class UnsupportedModelError(DirdpError, ValueError):
    """The PyMC model holds something for which the guarantee cannot be proved."""


class InternalError(DirdpError, RuntimeError):
    """A computation of this library did not keep what it says. Neither the data nor the release is to blame.

    Parameters
    ----------
    problem : str
        What was not kept, in a sentence.
    """

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"{problem} This is an error of pymc_dirdp, and neither your data nor a release is to blame. Please report "
            "it with the version, the mechanism and the shape of the table. Confidential data do not belong in a "
            "report."
        )


class SeededReleaseWarning(UserWarning):
    """The release can be computed again from its seed, so it is not private."""


class RepeatedReleaseWarning(UserWarning):
    """The same model is released again without a ledger; the losses of the same people add up."""


class ManyDrawsWarning(UserWarning):
    """So many draws share the guarantee that each of them counts fewer than a tenth of the records."""


class CategoriesFromDataWarning(UserWarning):
    """Categories are an object of a data frame, or in the order of their counts: they may have been read off data."""


class BudgetError(DirdpError, ValueError):
    """A release does not fit into what is left of a ledger's limit."""


class LedgerError(DirdpError, OSError):
    """A ledger's file cannot be read or written, or is not the ledger that was asked for."""


def shown(value: object) -> str:
    """A public value as an error may repeat it: short, and without control characters.

    Examples
    --------
    >>> shown("clip"), len(shown("x" * 1000))
    ("'clip'", 83)
    """
    text = repr(value[: _SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def type_name(thing: object) -> str:
    """The type of a thing as an error names it, with its article.

    Examples
    --------
    >>> type_name([1]), type_name(1), type_name(None)
    ('a list', 'an int', 'None')
    """
    name = type(thing).__name__
    if thing is None:
        return "None"
    return f"{'an' if name[0].lower() in 'aeio' else 'a'} {name}"
