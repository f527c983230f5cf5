"""What whoever releases is warned of: seeds, and releases of the same model that nobody adds up."""

import warnings
from collections.abc import Iterable

from pymc_dirdp.errors import RepeatedReleaseWarning, SeededReleaseWarning
from pymc_dirdp.models.tables import Table
from pymc_dirdp.sampling.entropy import Seed

__all__ = ["warn_if_seeded", "warn_of_repetition", "warn_of_seed"]

# How often a model was released in this process without a ledger, by its public facts.
_released_before: dict[int, int] = {}


def warn_of_seed() -> None:
    """Warn the caller of the function that calls this one."""
    warnings.warn(
        "A release with random_seed can be computed again by whoever knows the seed, so it is not private. "
        "Leave random_seed out for anything that is published.",
        SeededReleaseWarning,
        stacklevel=3,
    )


def warn_if_seeded(what: str, *, random_seed: Seed) -> None:
    """Warn the caller of the function that calls this one, if a choice can be computed again."""
    if random_seed is None:
        return
    warnings.warn(
        f"A {what} that was chosen with random_seed can be computed again by whoever knows the seed, so it is not "
        "private. Leave random_seed out for anything that is published.",
        SeededReleaseWarning,
        stacklevel=3,
    )


def warn_of_repetition(tables: Iterable[Table]) -> None:
    """Warn the caller of the function that calls this one, if it is the second release of these tables here."""
    facts = hash(tuple(tables))
    times = _released_before[facts] = _released_before.get(facts, 0) + 1
    if times == 2:
        warnings.warn(
            "This model was released before in this process, without a ledger. If the same people are in the data, the "
            "losses of all releases add up, and their average comes close to the data. Publish one of them, or pass "
            "ledger=Ledger(limit), which keeps the sum within a limit. This warning appears once for each model.",
            RepeatedReleaseWarning,
            stacklevel=3,
        )
