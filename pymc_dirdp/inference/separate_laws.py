"""The distributions of several tables, each by itself."""

from collections.abc import Mapping
from typing import final

import numpy as np

from pymc_dirdp.inference.beliefs import Beliefs
from pymc_dirdp.inference.blocks import law_of
from pymc_dirdp.inference.estimates import Estimate
from pymc_dirdp.inference.joint_tables import JointLaw
from pymc_dirdp.inference.posterior import Draws
from pymc_dirdp.inference.seen import Seen, concluding
from pymc_dirdp.progress import QUIET, Bar

__all__ = ["SeparateLaws"]


@final
class SeparateLaws:
    """Counts and shares of each table given the output of it, and of no other.

    Parameters
    ----------
    tables : mapping of str to Seen
    beliefs : mapping of str to Beliefs
        By table.
    """

    def __init__(self, tables: Mapping[str, Seen], beliefs: Mapping[str, Beliefs]) -> None:
        self._tables = dict(tables)
        self._laws = {name: law_of(seen, beliefs[name]) for name, seen in tables.items()}

    @property
    def log_evidence(self) -> list[float]:
        """For each table, the logarithm of the probability or density of the output of it."""
        found = []
        for name, law in self._laws.items():
            with concluding(self._tables[name]):
                found.append(law.log_evidence)
        return found

    def draw(self, draws: int, rng: np.random.Generator, bar: Bar = QUIET) -> dict[str, Draws]:
        """Independent draws of all tables, which are counted in a bar."""
        drawn = {}
        # Tables that share a noise share the radius of each draw.
        joint = {name: law for name, law in self._laws.items() if isinstance(law, JointLaw)}
        uniforms = rng.random(draws) if joint else None
        for name, law in self._laws.items():
            with concluding(self._tables[name]):
                drawn[name] = law.draw(draws, rng, uniforms) if isinstance(law, JointLaw) else law.draw(draws, rng)
            bar.advance()
        return drawn

    def estimate(self, prob: list[float], bar: Bar = QUIET) -> dict[str, Estimate]:
        """Means, standard deviations and central intervals of shares and counts."""
        found = {}
        for name, law in self._laws.items():
            with concluding(self._tables[name]):
                found[name] = law.estimate(prob)
            bar.advance()
        return found
