"""The labels of dims that a file can hold, and give back as they were."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from pymc_dirdp.errors import UnsupportedModelError

__all__ = ["check_labels", "held_labels"]

# Texts, bytes, truth values, numbers, times and durations, as NumPy calls them.
_KINDS = "USbiufMm"
_MOST_BYTES = 8
# A file holds times as what passed since the first of them, in nanoseconds.
_LONGEST = 2**63 - 1


def held_labels(labels: Iterable[Any]) -> list[Any]:
    """Labels as a release holds them: times and durations count nanoseconds, as they do when a file is read.

    Examples
    --------
    >>> held_labels([datetime(2020, 1, 31), datetime(2020, 2, 29)])[0]
    np.datetime64('2020-01-31T00:00:00.000000000')
    """
    given = list(labels)
    if given and all(isinstance(label, datetime | np.datetime64) for label in given):
        import pandas as pd

        return list(pd.DatetimeIndex(given).as_unit("ns").to_numpy())
    if given and all(isinstance(label, timedelta | np.timedelta64) for label in given):
        import pandas as pd

        return list(pd.TimedeltaIndex(given).as_unit("ns").to_numpy())
    return given


def check_labels(dim: str, labels: Iterable[Any], name: str) -> None:
    """Refuse labels of a dim that no file can hold, or that come back from a file as others.

    Parameters
    ----------
    dim : str
        The dim.
    labels : iterable
        Its labels, which are public.
    name : str
        The variable that has this dim.
    """
    where = f"The labels of the dim {dim!r} of {name!r}"
    given = list(labels)
    if any(np.ndim(label) for label in given):
        raise UnsupportedModelError(
            f"{where} are tuples or arrays, which no file can hold as labels. Use text or numbers."
        )
    if not all(map(_equals_itself, given)):
        raise UnsupportedModelError(f"{where} are not all equal to themselves, such as nan. Use text or numbers.")
    if any(getattr(label, "tzinfo", None) is not None for label in given):
        raise UnsupportedModelError(
            f"{where} are times of a time zone, which no file can hold as labels. Write them as texts, or as times "
            "without a zone."
        )
    try:
        held = held_labels(given)
        array = np.asarray(held)
        # The list holds Python's whole numbers, which do not overflow.
        fits = array.dtype.kind not in "Mm" or max(array.tolist()) - min(array.tolist()) <= _LONGEST
    except (ArithmeticError, TypeError, ValueError):
        fits = False
    if not fits:
        raise UnsupportedModelError(
            f"{where} are times outside of the years 1678 to 2262, more than 292 years apart, or mixed with others. "
            "Write them as texts."
        )
    if array.dtype.kind not in _KINDS or (array.dtype.kind == "f" and array.dtype.itemsize > _MOST_BYTES):
        raise UnsupportedModelError(
            f"{where} are objects or numbers that no file can hold as labels. Use text or numbers."
        )
    # An array has one kind of labels: it turns 1 beside "a" into a text, and a large whole number into a double.
    if array.dtype.kind not in "Mm" and array.tolist() != held:
        raise UnsupportedModelError(
            f"{where} are of several kinds, such as 1 and 'a', or numbers that no double holds, so a file would hold "
            "others in their place. Write all of them as texts."
        )


def _equals_itself(label: Any) -> bool:
    try:
        return bool(label == label)
    except TypeError:
        # The NA of pandas does not say whether it equals itself.
        return False
