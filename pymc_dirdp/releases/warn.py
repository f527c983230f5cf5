"""What the curator is warned of: seeds, releases that nobody adds up, and labels in the order of their counts."""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pymc_dirdp.arrays import Integers
from pymc_dirdp.errors import (
    CategoriesFromDataWarning,
    RepeatedReleaseWarning,
    SeededReleaseWarning,
    WeakGuaranteeWarning,
)
from pymc_dirdp.models.table import Table
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.sampling.bits import Seed

__all__ = ["warn_if_ranked", "warn_if_seeded", "warn_if_weak", "warn_of_repetition", "warn_of_seed"]

# Counts of fewer labels often descend by chance: three labels once in six.
_FEWEST_RANKED = 4

# Above it a guarantee is a formality, by common advice: the odds of the truth may rise 20,000-fold.
_LARGE_EPSILON = 10.0
# Warnings point to the first line outside of it.
_PACKAGE = str(Path(__file__).parents[1])

# How often a model was released in this process without a ledger, by its public facts.
_released_before: dict[int, int] = {}


def warn_of_seed(*, deeper: int = 0) -> None:
    """Warn the caller of the function that calls this one, or who is so many calls further up."""
    warnings.warn(
        "A release with random_seed can be recomputed by anyone who knows the seed, so it is not private. "
        "Leave random_seed out for anything that is published.",
        SeededReleaseWarning,
        stacklevel=3 + deeper,
    )


def warn_if_seeded(what: str, *, random_seed: Seed) -> None:
    """Warn the caller of the function that calls this one, if a choice can be computed again."""
    if random_seed is None:
        return
    warnings.warn(
        f"A {what} that was chosen with random_seed can be recomputed by anyone who knows the seed, so it is not "
        "private. Leave random_seed out for anything that is published.",
        SeededReleaseWarning,
        stacklevel=3,
    )


def warn_if_weak(guarantee: Guarantee, n_records: int | None) -> None:
    """Warn the user of a guarantee that hardly protects anyone, by public numbers.

    Parameters
    ----------
    guarantee : Guarantee
    n_records : int or None
        The public number of records of the largest table, or the size to plan for.
    """
    epsilon, delta = guarantee.budget, guarantee.stated_delta
    if delta is None:
        return  # Bounds on Rényi divergences have other scales.
    problems = []
    if n_records and delta * n_records >= 1:
        # A power of ten that is at most a tenth of 1/N.
        better = 10.0 ** math.floor(-math.log10(n_records) - 1)
        problems.append(
            f"delta={delta:g} is not below one over the number of records: publishing one random record would satisfy "
            f"it. Choose delta well below 1/N, such as {better:g}."
        )
    if epsilon > _LARGE_EPSILON:
        problems.append(
            f"epsilon={epsilon:g} is above {_LARGE_EPSILON:g}: one release can make anyone nearly certain "
            "about a person's record. Common choices are 0.1 to 3."
        )
    if problems:
        warnings.warn(" ".join(problems), WeakGuaranteeWarning, skip_file_prefixes=(_PACKAGE,))


def warn_of_repetition(tables: Iterable[Table]) -> None:
    """Warn the caller of :func:`sample`, if it is the second release of these tables here."""
    facts = hash(tuple(tables))
    times = _released_before[facts] = _released_before.get(facts, 0) + 1
    if times == 2:
        warnings.warn(
            "This model was released before in this process, without a ledger. If the same people are in the data, the "
            "privacy losses of all releases add up, and their average reveals the data. Publish one of them, or pass "
            "ledger=Ledger(limit), which enforces a privacy budget. This warning appears once for each model.",
            RepeatedReleaseWarning,
            stacklevel=4,
        )


def warn_if_ranked(tables: Iterable[Table], counts: Mapping[str, Integers]) -> None:
    """Warn the caller of the function that calls this one, if labels stand in the order of the counts, which is secret.

    The warning tells something about the data, so a ledger is charged before, and only the curator may see it.
    """
    for table in tables:
        cells = counts[table.name]
        for axis, dim in enumerate(table.dims or ()):
            labels = None if dim is None else table.coords[dim]
            if labels is None or len(labels) < _FEWEST_RANKED or _in_order_of_their_own(labels):
                continue
            along = cells.sum(axis=tuple(other for other in range(cells.ndim) if other != axis))
            if np.all(np.diff(along) < 0):
                warnings.warn(
                    f"The counts of {table.name!r} descend along the dim {dim!r}, as those of value_counts() do, and "
                    "the release publishes its labels in their order. If that order was read off the data, it tells "
                    "the ranking of the categories, which no guarantee covers: write the labels as a list, without "
                    "looking at the data, and count with dirdp.count. Only the curator may see this warning.",
                    CategoriesFromDataWarning,
                    stacklevel=4,
                )
                return


def _in_order_of_their_own(labels: Sequence[Any]) -> bool:
    """Whether labels are numbers or times that ascend, such as the number of children."""
    return not any(issubclass(kind, str | bytes) for kind in set(map(type, labels))) and list(labels) == sorted(labels)
