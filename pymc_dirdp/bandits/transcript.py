"""What a bandit has released, as a text: its public rules, and every finished batch."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self, final, override

from pymc_dirdp.bandits.batch_release import Output
from pymc_dirdp.bandits.design import Design
from pymc_dirdp.bandits.settings import Settings, checked_labels, checked_utilities
from pymc_dirdp.bandits.store import State
from pymc_dirdp.bandits.view import BanditView
from pymc_dirdp.checks import one_line
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.releases.grammar import Text, guarantee_facts, guarantee_of, library_version, line_of, version_of

__all__ = ["Transcript"]


@final
class Transcript(BanditView, Text):
    """What a run has released by now, for anybody: :meth:`pymc_dirdp.ThompsonSampler.transcript` makes it.

    It shows what the bandit shows, and nobody can go on with the run from it. :func:`pymc_dirdp.save` writes it, and
    :func:`pymc_dirdp.load` reads it. It holds no open batch, and nothing of the people.

    Parameters
    ----------
    settings : Settings
    released : sequence of sequence of (int, Output)
        For each arm the sizes and outputs of its finished batches.
    version : str, optional
        Of the library that drew them.

    Examples
    --------
    >>> import tempfile
    >>> import pymc_dirdp as dirdp
    >>> bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0))
    >>> bandit.update(["a"] * 200, [1] * 200)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dirdp.save(bandit.transcript(), f"{folder}/run.json")
    ...     found = dirdp.load(f"{folder}/run.json")
    >>> found.released.equals(bandit.released)
    True
    """

    called: ClassVar[str] = "bandit"
    made_by: ClassVar[str] = "ThompsonSampler.transcript"

    def __init__(
        self, settings: Settings[Design], released: Sequence[Sequence[tuple[int, Output]]], version: str | None = None
    ) -> None:
        state = State.empty(len(settings.arms), len(settings.design.mechanism.worths))
        state.released = [list(batches) for batches in released]
        self._batches, self._version = state.released, version or library_version()
        # The key that makes the fingerprints of people is a secret of the bandit: its transcript has another one.
        super().__init__(replace(settings, key=secrets.token_bytes(len(settings.key))), state)

    def __repr__(self) -> str:
        return f"Transcript({len(self.arms)} arms, {sum(map(len, self._batches))} batches, {self.guarantee})"

    @property
    @override
    def own_facts(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "statement": str(settings.guarantee),
            "library_version": self._version,
            "guarantee": guarantee_facts(settings.guarantee),
            "unit": settings.unit,
            "arms": list(settings.arms),
            "retired": list(settings.retired),
            "utilities": settings.utilities,
            "design": settings.design.to_json(),
            "seeded": settings.seeded,
            "released": [[list(batch) for batch in batches] for batches in self._batches],
        }

    @classmethod
    @override
    def from_facts(cls, facts: Mapping[str, Any]) -> Self:
        for label in facts["arms"]:
            if not isinstance(label, int):
                line_of(label)
        settings = Settings(
            checked_labels(facts["arms"]),
            guarantee_of(facts["guarantee"]),
            Design.from_json(facts["design"]),
            one_line(unit=facts["unit"]),
            checked_utilities(facts["utilities"]),
            seeded=facts["seeded"] is True,
            retired=tuple(facts["retired"]),
        )
        released = facts["released"]
        if len(released) != len(settings.arms):
            raise ArgumentError("there are not as many lists of batches as arms.")
        batches = [
            [(size, tuple(output) if isinstance(output, list) else output) for size, output in one] for one in released
        ]
        for one in batches:
            settings.design.refuse_others(one)
        return cls(settings, batches, version_of(facts["library_version"]))

    @override
    def refuse_unkept(self) -> None:
        if not self.privacy.satisfies(self.guarantee):
            raise UnattainableError(f"The bandit does not keep {self.guarantee}, although its transcript says so.")
