"""What a ledger is charged before any record is read, and errors that depend on the records after that."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pymc_dirdp.counting.bounding import Bound
from pymc_dirdp.errors import DirdpError, UnattainableError
from pymc_dirdp.mechanisms.choice import ChoiceMechanism
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.library import library_version
from pymc_dirdp.releases.verification import kept_of
from pymc_dirdp.sampling.entropy import Seed

if TYPE_CHECKING:
    from pymc_dirdp.accounting.ledger import Ledger

__all__ = ["charged_choice", "people_of", "read_after_charge"]


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
        The arguments of :class:`~pymc_dirdp.stored.choice.PrivateChoice`.

    Raises
    ------
    UnattainableError
        If no promise of this kind can be stated for the mechanism.
    BudgetError, LedgerError
        If the ledger refuses it.
    """
    unit, contribution = people
    promise = kept_of(guarantee, mechanism)
    if promise is None or not mechanism.satisfies(promise):
        raise UnattainableError(f"No promise such as {guarantee} can be stated for {what}. Ask for another kind.")
    if ledger is not None:
        whom: dict[str, Any] = {"adjacency": mechanism.adjacency, "unit": unit, "contribution": contribution}
        ledger.spend(promise, what=what, mechanism=mechanism, **whom)
    return {
        "mechanism": mechanism,
        "guarantee": promise,
        "unit": unit,
        "recorded": ledger is not None,
        "reproducible": random_seed is not None,
        "library_version": library_version(),
    }


def read_after_charge[T](read: Callable[[], T], *, charged: bool) -> T:
    """What a function reads from the records. Its error says that the ledger was charged, if it was.

    An error tells something about the data, so the ledger is charged before. It is raised outside of the handler, so
    that it carries no frame in which the data are.
    """
    try:
        return read()
    except DirdpError as error:
        if not charged:
            raise
        kind, message = type(error), f"{error} The ledger has been charged, because this error depends on the data."
    raise kind(message)
