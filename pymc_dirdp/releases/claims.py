"""A stated guarantee that can be verified, and the result of a check of it."""

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
        A short name.
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
    """The statements of a plan, a release, a ledger or a bandit that can be verified.

    Attributes
    ----------
    what : str
        The kind of object.
    guarantee : Guarantee
        The stated guarantee.
    curves : PrivacyCurves
        The exact privacy curves.
    assumptions : tuple of str
        The assumptions that no file can show.
    library_version : str
        The version of the library that created it.
    checks : tuple of Check
        Further checks, in addition to that of the guarantee.
    is_seeded : bool
        Whether it was drawn with a seed.
    mechanisms : mapping of str to Mechanism
        The mechanism of each table.
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
    """An object with its own claim and lines, such as a bandit."""

    def _claim(self) -> Claim: ...

    def _facts(self) -> tuple[str, Facts]: ...
