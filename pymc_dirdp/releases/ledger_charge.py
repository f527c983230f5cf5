"""Charges to a ledger before records are read, and errors that depend on the records after the charge."""

import secrets
from typing import TYPE_CHECKING, Any, Protocol

from pymc_dirdp.accounting.entries import Receipt
from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.mechanisms.choices import ChoiceMechanism
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.choices import PrivateChoice, fingerprint_of, with_choices
from pymc_dirdp.releases.verification import tightest_guarantee
from pymc_dirdp.sampling.bits import Seed
from pymc_dirdp.texts.grammar import library_version

if TYPE_CHECKING:
    from pymc_dirdp.accounting.ledger import Ledger


def people_of(bound: Bound | None) -> tuple[str, int]:
    """The unit that a choice protects, and the maximum number of its records."""
    return ("record", 1) if bound is None else (bound.unit, bound.records)


def charge_choice(
    guarantee: Guarantee,
    mechanism: ChoiceMechanism,
    *,
    what: str,
    people: tuple[str, int],
    ledger: "Ledger | None",
    random_seed: Seed,
) -> dict[str, Any]:
    """Charge the ledger, if there is one, for a choice before any record is read.

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
    stated, entry, identity = tightest_guarantee(guarantee, mechanism), None, secrets.token_hex(16)
    if stated is None or not mechanism.satisfies(stated):
        raise UnattainableError(f"No guarantee such as {guarantee} can be stated for {what}. Ask for another kind.")
    if ledger is not None:
        terms: dict[str, Any] = {"adjacency": mechanism.adjacency, "unit": unit, "contribution": contribution}
        terms["digest"] = fingerprint_of(mechanism, stated, unit, identity)
        entry = ledger.receipt(ledger.spend(stated, what=what, mechanism=mechanism, **terms))
    return {
        "mechanism": mechanism,
        "guarantee": stated,
        "unit": unit,
        "identity": identity,
        "entry": entry,
        "reproducible": random_seed is not None,
        "library_version": library_version(),
    }


class _ReleasePlan(Protocol):
    """The part of a plan of tables or pairs that determines its charge."""

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee that the release satisfies."""

    @property
    def after(self) -> tuple[PrivateChoice, ...]:
        """The earlier private choices."""

    @property
    def composition(self) -> PrivacyCurves:
        """The privacy curves of the release and of the earlier choices."""

    @property
    def tables_alone(self) -> PrivacyCurves:
        """The privacy curves without the earlier choices."""

    @property
    def adjacency(self) -> str:
        """What one unit can change."""

    @property
    def unit_label(self) -> str:
        """The name of the unit."""

    @property
    def contribution(self) -> int:
        """The maximum number of records of a unit in a table."""


def charge_release(chosen: _ReleasePlan, ledger: "Ledger", *, what: str, digest: str, **facts: Any) -> Receipt:
    """Charge a ledger for a release before any record is read.

    Parameters
    ----------
    chosen : Plan or PairsPlan
    ledger : Ledger
    what, digest, **stated
        As for :meth:`Ledger.spend`.
    """
    guarantee, curves = ledger_cost(chosen, ledger)
    entry = ledger.spend(
        guarantee,
        what=what,
        mechanism=curves,
        adjacency=chosen.adjacency,
        unit=chosen.unit_label,
        contribution=chosen.contribution,
        digest=digest,
        **facts,
    )
    return ledger.receipt(entry)


def refuse_unaffordable(chosen: _ReleasePlan, ledger: "Ledger") -> None:
    """Raise the error with which a ledger would refuse a release. It is not charged.

    Raises
    ------
    BudgetError, LedgerError, ArgumentError
        As :meth:`Ledger.spend` does.
    """
    guarantee, curves = ledger_cost(chosen, ledger)
    ledger._refuse_unaffordable(
        guarantee, curves, chosen.adjacency, unit=chosen.unit_label, contribution=chosen.contribution
    )


def ledger_cost(chosen: _ReleasePlan, ledger: "Ledger") -> tuple[Guarantee, PrivacyCurves]:
    """The cost of a release to a ledger, without earlier choices that this ledger has already recorded."""
    on_ledger = {
        choice.entry
        for choice in chosen.after
        if choice.entry is not None and ledger.holds(choice.entry, choice.fingerprint)
    }
    unpaid = []
    for choice in chosen.after:
        # An entry covers one choice.
        if choice.entry in on_ledger:
            on_ledger.remove(choice.entry)
        else:
            unpaid.append(choice)
    if len(unpaid) == len(chosen.after):
        return chosen.guarantee, chosen.composition
    curves = with_choices(unpaid, chosen.tables_alone)
    return tightest_guarantee(chosen.guarantee, curves) or chosen.guarantee, curves
