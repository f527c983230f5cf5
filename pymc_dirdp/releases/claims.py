"""What something states of itself, to be verified, and the result of one check of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, final, runtime_checkable

from pymc_dirdp.display import Facts
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee


@final
@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes
    ----------
    name : str
        Its name, in a word or two.
    passed : bool
    sentence : str
        The result in words.
    """

    name: str
    passed: bool
    sentence: str


@final
@dataclass(frozen=True)
class Claim:
    """What something states of itself, to be verified: a plan, a release, a ledger or a bandit.

    Attributes
    ----------
    what : str
        The noun.
    guarantee : Guarantee
        What it states.
    curves : PrivacyCurves
        Its exact curves.
    assumptions : tuple of str
        What no file can show.
    library_version : str
        Of the library that made it.
    checks : tuple of Check
        What was checked of it beside the guarantee.
    is_seeded : bool
        Whether it was drawn with a seed.
    mechanisms : mapping of str to Mechanism
        By table.
    """

    what: str
    guarantee: Guarantee
    curves: PrivacyCurves
    assumptions: tuple[str, ...]
    library_version: str
    checks: tuple[Check, ...] = ()
    is_seeded: bool = False
    mechanisms: Mapping[str, Mechanism] = field(default_factory=dict)


@runtime_checkable
class Claiming(Protocol):
    """What brings its own claim and lines, such as a bandit."""

    def _claim(self) -> Claim: ...

    def _facts(self) -> tuple[str, Facts]: ...
