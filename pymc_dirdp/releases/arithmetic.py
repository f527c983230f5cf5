"""How draws were made, in words, and whether the numbers of a release agree with these words."""

import numpy as np
import xarray as xr

from pymc_dirdp.errors import ArgumentError, shown
from pymc_dirdp.mechanisms.base import SAMPLERS, Mechanism
from pymc_dirdp.sampling.entropy import SOURCES
from pymc_dirdp.stored.draws import Drawn, drawn_tables
from pymc_dirdp.stored.release import Stored
from pymc_dirdp.stored.table import StoredTable

__all__ = ["arithmetic", "contradiction"]

# What is proved about a draw, by sampler.
_ARITHMETIC = {
    "exact": "whole numbers: the release has the proved law, and nothing was rounded on the way from the counts",
    "fast": "floating point, rounded to a public grid: the guarantee is proved for the ideal law, and nothing is "
    "proved of the last bits of this draw",
}


_BY_WEIGHTS = (
    "whole numbers, by weights that were computed in floating point: the loss of the law that was drawn from is known "
    "to about 1e-12"
)


def arithmetic(mechanism: Mechanism, sampler: str) -> str:
    """What is proved about the numbers of a draw; nothing is said of a sampler that is not chosen yet."""
    if sampler == "exact" and mechanism.weighs_in_floats:
        return _BY_WEIGHTS
    return _ARITHMETIC.get(sampler, "")


def contradiction(stored: Stored, release: xr.DataTree) -> str | None:
    """How the draws, or the words about them, contradict the sampler that is named; None if they do not."""
    for name, drawn in drawn_tables(release).items():
        if problem := _of_table(stored.tables[name], drawn):
            return f"{shown(name)}: {problem}."
    return None


def _of_table(table: StoredTable, drawn: Drawn) -> str | None:
    group, mechanism = table.group, table.mechanism
    sampler = group.text("sampler")
    if sampler not in SAMPLERS:
        return f"there is no sampler {shown(sampler)}"
    if group.text("arithmetic") != arithmetic(mechanism, sampler):
        return f"its words about arithmetic are not those of the sampler {sampler!r}"
    if group.text("randomness") not in (*SOURCES[sampler], "seed"):
        return f"its words about randomness are not those of the sampler {sampler!r}"
    try:
        mechanism.checked_sampler(sampler)
    except ArgumentError:
        return f"the mechanism has no sampler {sampler!r}"
    if mechanism.publishes is not None and not mechanism.fits_all_tables and "most_records" in group:
        possible = mechanism.possible_records(table.output)
        if [group.number("least_records"), group.number("most_records")] != [possible[0], possible[-1]]:
            return "the numbers of records that it takes for possible do not follow from what it publishes"
    if sampler != "exact":
        return None
    steps = int(group.number("steps")) if "steps" in group else None
    if mechanism.publishes is not None:
        called, output = mechanism.publishes.replace("_", " "), table.output
    elif mechanism.beside is not None:
        called, output = mechanism.beside.replace("_", " "), group.array(mechanism.beside)
    else:
        called, output = "draws", drawn.values
        if drawn.family == "beta":
            output = np.stack([output, 1 - output], axis=-1)
    return None if mechanism.is_on_grid(output, steps) else f"its {called} are not on the grid of an exact sampler"
