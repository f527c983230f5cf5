"""A release as a text: its plan and the outputs of its mechanisms.

The text contains facts only: the plan, and what the mechanisms returned. Privacy curves, errors, sentences and draws
given noisy counts follow from the facts, see :mod:`pymc_dirdp.releases.view`.
"""

import math
import re
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final, override

from pymc_dirdp.accounting.entries import Receipt
from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError, quote
from pymc_dirdp.mechanisms.outputs import Output
from pymc_dirdp.releases.plan_types import Plan, PlannedTable
from pymc_dirdp.sampling.bits import SOURCES
from pymc_dirdp.texts.codec import facts_of
from pymc_dirdp.texts.grammar import Text, digest, error_location

_SEED = "seed"


@final
@dataclass(frozen=True, eq=False)
class Release(Text):
    """A release: its plan and the outputs of its mechanisms. All of it is public.

    Attributes
    ----------
    plan : Plan
    randomness : str
        The source of random bits; ``"seed"`` if the release can be computed again.
    identity : str
        128 random bits in hexadecimal. They distinguish this release from another one that has the same numbers by
        chance. Two copies of one release have the same identity, and contain no further information.
    entry : Receipt or None
        The entry in the ledger that was charged. Older copies of the ledger do not have it.
    output : mapping of str to Output
        The output of the mechanism of each table: noisy tables or draws. A Beta has draws of success only.
    """

    plan: Plan
    randomness: str
    identity: str
    entry: Receipt | None
    output: Mapping[str, Output]

    @property
    def is_seeded(self) -> bool:
        """Whether it, or an earlier choice that it depends on, was drawn with a seed."""
        return self.randomness == _SEED or any(choice.reproducible for choice in self.plan.after)

    kind: ClassVar[str] = "release"
    created_by: ClassVar[str] = "sample"

    def __post_init__(self) -> None:
        one_of((*SOURCES[self.plan.sampler], _SEED), randomness=self.randomness)
        if not re.fullmatch(r"[0-9a-f]{32}", self.identity, re.ASCII):
            raise ArgumentError("its identity is not 32 hexadecimal digits.")

    @classmethod
    @override
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        with error_location("its plan"):
            plan = Plan.from_dict(facts["plan"])
        output = {part.table.name: _output(facts["output"], part, plan.released_draws) for part in plan.parts}
        return cls(plan=plan, output=output, **cls.parse_fields(facts, "plan", "output"))

    @override
    def check_guarantee(self) -> None:
        for choice in self.plan.after:
            choice.check_guarantee()

    @property
    @override
    def problem(self) -> str | None:
        """The part of the output that cannot come from its mechanism, in a sentence; None if all of it can."""
        return next((f"in {quote(table)} {problem}" for table, problem in self._problems()), None)

    def _problems(self) -> Iterator[tuple[str, str]]:
        for part in self.plan.parts:
            name = part.table.name
            problems = part.mechanism.problems(self.output[name], self.plan.sampler, part.n_records, part.totals)
            yield from ((name, problem) for problem in problems)


def identity(random_seed: object, output: Mapping[str, Output]) -> str:
    """The identity of a new release. With a seed it is a function of the output, so it is reproducible."""
    if random_seed is None:
        return secrets.token_hex(16)
    return digest(facts_of(output))[:32]


def _output(facts: Mapping[str, Any], part: PlannedTable, draws: int, *, most_shares: int = 10**8) -> Output:
    """The output of a table, with arrays of the required shapes.

    The number of shares is bounded by `most_shares`, because a short text could state a huge number of draws.
    """
    name = part.table.name
    if draws * math.prod(part.table.shape) > most_shares:
        raise ArgumentError(f"it has more than {most_shares} shares in all its draws.")
    with error_location(f"the output of {quote(name)}"):
        return part.mechanism.read_output(facts[name], name, n=draws, of_success=part.table.family == "beta")
