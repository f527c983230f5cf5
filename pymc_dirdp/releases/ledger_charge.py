"""What a ledger is charged before any record is read, and errors that depend on the records after that."""

import secrets
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Protocol, final

from pymc_dirdp.accounting.entries import Receipt
from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.errors import DirdpError, LedgerError, UnattainableError
from pymc_dirdp.mechanisms.choices import ChoiceMechanism
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.choices import PrivateChoice, fingerprint_of, with_choices
from pymc_dirdp.releases.verification import tightest_guarantee
from pymc_dirdp.releases.wording import warn_of_repetition
from pymc_dirdp.sampling.bits import Seed
from pymc_dirdp.texts.grammar import library_version

if TYPE_CHECKING:
    from pymc_dirdp.accounting.ledger import Ledger


def people_of(bound: Bound | None) -> tuple[str, int]:
    """Whom a choice protects, and how many records of one of them count at most."""
    return ("record", 1) if bound is None else (bound.unit, bound.records)


def charged_choice(
    guarantee: Guarantee,
    mechanism: ChoiceMechanism,
    *,
    what: str,
    people: tuple[str, int],
    ledger: "Ledger | None",
    random_seed: Seed,
) -> dict[str, Any]:
    """Charge a ledger for a choice, if there is one. Nothing is read yet.

    Returns
    -------
    terms : dict
        The arguments of :class:`~pymc_dirdp.releases.choices.PrivateChoice`.

    Raises
    ------
    UnattainableError
        If no guarantee of this kind can be stated for the mechanism.
    BudgetError, LedgerError
        If the ledger refuses it.
    """
    unit, contribution = people
    tightest, entry, identity = tightest_guarantee(guarantee, mechanism), None, secrets.token_hex(16)
    if tightest is None or not mechanism.satisfies(tightest):
        raise UnattainableError(f"No guarantee such as {guarantee} can be stated for {what}. Ask for another kind.")
    if ledger is not None:
        whom: dict[str, Any] = {"adjacency": mechanism.adjacency, "unit": unit, "contribution": contribution}
        whom["digest"] = fingerprint_of(mechanism, tightest, unit, identity)
        entry = ledger.receipt(ledger.spend(tightest, what=what, mechanism=mechanism, **whom))
    return {
        "mechanism": mechanism,
        "guarantee": tightest,
        "unit": unit,
        "identity": identity,
        "entry": entry,
        "reproducible": random_seed is not None,
        "library_version": library_version(),
    }


class _Released(Protocol):
    """A plan of tables or of pairs, as far as it is charged for."""

    @property
    def guarantee(self) -> Guarantee:
        """What it keeps."""

    @property
    def after(self) -> tuple[PrivateChoice, ...]:
        """What was chosen before."""

    @property
    def composition(self) -> PrivacyCurves:
        """The curves of all of it."""

    @property
    def tables_alone(self) -> PrivacyCurves:
        """The curves without what was chosen before."""

    @property
    def adjacency(self) -> str:
        """What one unit can change."""

    @property
    def unit_label(self) -> str:
        """The name of the unit."""

    @property
    def contribution(self) -> int:
        """How many records of one table a unit holds at most."""


def charged_release(chosen: _Released, ledger: "Ledger", *, what: str, digest: str, **stated: Any) -> Receipt:
    """Charge a ledger for a release, before anything is read.

    Parameters
    ----------
    chosen : Plan or PairsPlan
    ledger : Ledger
    what, digest, **stated
        As for :meth:`Ledger.spend`.
    """
    guarantee, lost = charged(chosen, ledger)
    entry = ledger.spend(
        guarantee,
        what=what,
        mechanism=lost,
        adjacency=chosen.adjacency,
        unit=chosen.unit_label,
        contribution=chosen.contribution,
        digest=digest,
        **stated,
    )
    return ledger.receipt(entry)


def refuse_unaffordable(chosen: _Released, ledger: "Ledger") -> None:
    """Raise the error with which a ledger would refuse a release. It is not charged.

    Raises
    ------
    BudgetError, LedgerError, ArgumentError
        As :meth:`Ledger.spend` does.
    """
    guarantee, lost = charged(chosen, ledger)
    ledger._refuse_unaffordable(
        guarantee, lost, chosen.adjacency, unit=chosen.unit_label, contribution=chosen.contribution
    )


def charged(chosen: _Released, ledger: "Ledger") -> tuple[Guarantee, PrivacyCurves]:
    """What a release costs a ledger: without what was chosen before, if this ledger holds that in an entry already."""
    on_ledger = {
        one.entry for one in chosen.after if one.entry is not None and ledger.holds(one.entry, one.fingerprint)
    }
    unpaid = []
    for choice in chosen.after:
        # An entry pays once.
        if choice.entry in on_ledger:
            on_ledger.remove(choice.entry)
        else:
            unpaid.append(choice)
    if len(unpaid) == len(chosen.after):
        return chosen.guarantee, chosen.composition
    left = with_choices(unpaid, chosen.tables_alone)
    return tightest_guarantee(chosen.guarantee, left) or chosen.guarantee, left


@final
class Sealed[T]:
    """Records that nobody looks at before the charge: they are opened with its receipt.

    Every verb that releases something of records takes them out of this, so that each one warns of a second release
    that no ledger adds to the first.

    Parameters
    ----------
    records : T
        **Secret**.
    ledger : Ledger or None
        The ledger that is to be charged; without one nothing adds up what is released, and no receipt is asked for.
    """

    def __init__(self, records: T, ledger: "Ledger | None") -> None:
        self._records, self.ledger = [records], ledger

    def __repr__(self) -> str:
        return "Sealed(secret)"

    def read[R](self, reading: Callable[[T], R], receipt: Receipt | None, released: Hashable) -> R:
        """What a function reads from the records. Its error says that the ledger was charged, if it was.

        Without a ledger it warns of what was released before in this process, by the public facts of it; None for what
        a seed makes reproducible.

        An error tells something about the data, so the ledger is charged before. It is raised outside of the handler,
        so that it carries no frame in which the data are. They can be read once.
        """
        if self.ledger is not None and (receipt is None or not self.ledger.issued(receipt)):
            raise LedgerError("The ledger was not charged for these records, so they are not read. Please report this.")
        if self.ledger is None and released is not None:
            warn_of_repetition(released)
        try:
            # Taken out, so that no frame of an error has them.
            return reading(self._records.pop())
        except DirdpError as error:
            if self.ledger is None:
                raise
            kind, message = type(error), f"{error} The ledger has been charged, because this error depends on the data."
        raise kind(message)
