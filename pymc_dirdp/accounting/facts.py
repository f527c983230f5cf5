"""Everything that is printed about a ledger: its guarantee, its releases and the remaining budget, as a list of lines.

Its report, its statement and its table select from them, as those of a release do from
:mod:`pymc_dirdp.releases.facts`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pymc_dirdp.accounting.budget import Balance
from pymc_dirdp.accounting.entries import Entry
from pymc_dirdp.display import Facts, Line
from pymc_dirdp.numerics.roots import floor_to_digits as down
from pymc_dirdp.privacy.deployment import Deployment
from pymc_dirdp.privacy.odds import Odds
from pymc_dirdp.privacy.people import (
    NOT_PROTECTED,
    TO_CHECK,
    adjacency_by_name,
    number_of_records,
    protected_by,
    secret_of,
    who,
)
from pymc_dirdp.texts.grammar import library_version


def title_of(balance: Balance) -> str:
    """The title of a ledger."""
    return f"Ledger of {replace(balance.header, unit=balance.unit)}"


def lines_of(balance: Balance, entries: Sequence[Entry], deployment: Deployment | None = None) -> Facts:
    """The lines about a ledger, by heading: those of depth 0 for a screen, of 1 for a public statement, of 2 for all.

    A table of its entries shows the lines about its budget and its guarantee.
    """
    if deployment is None and entries and balance.within:
        deployment = deployment_of(balance, entries)
    answer = [Line("published", _count_releases(entries), 0)]
    answer += [Line("left", f"{down(float(amount.left)):.6g} ({amount.label})", 0) for amount in balance.amounts]
    return {
        "Answer": answer,
        "Budget": [Line(amount.label, amount.state, 2) for amount in balance.amounts],
        "Guarantee": [] if deployment is None else [*_guarantee(balance, entries, deployment)],
        "Entries": [*_entries(balance, entries)],
        "Notes": [
            Line("not protected", "; ".join(NOT_PROTECTED), 1),
            Line("to check it", f"pymc_dirdp.verify(ledger), and for each file {TO_CHECK}", 1),
            Line("software", f"pymc_dirdp {library_version()}", 1),
            Line("head of the ledger", balance.head, 1),
        ],
        "Use": [Line("next", "ledger.remaining()", 0)],
    }


def deployment_of(balance: Balance, entries: Sequence[Entry]) -> Deployment:
    """The joint statement of all releases of a ledger."""
    relation, unit = adjacency_by_name(balance.header.adjacency), balance.unit or "record"
    return Deployment(
        product=", ".join(dict.fromkeys(entry.what for entry in entries if not entry.reserved)),
        description=f"{_count_releases(entries)} about the same people",
        guarantee=balance.joint_guarantee,
        unit=unit,
        neighbours=number_of_records(relation),
        odds=Odds.of_guarantee(balance.joint_guarantee, secret_of(unit, relation)),
        accounting=_composition_note(balance),
        digest=balance.head,
        version=library_version(),
    )


def assumptions_of(entries: Sequence[Entry]) -> tuple[str, ...]:
    """The assumptions of the releases of a ledger, with the numbers of their entries."""
    numbers: dict[str, list[int]] = {}
    for entry in entries:
        for assumption in entry.assumptions:
            numbers.setdefault(assumption, []).append(entry.number)
    sentences = (f"{assumption} ({_ranges(entry_numbers)})" for assumption, entry_numbers in numbers.items())
    return (*sentences, "each release was drawn as it says, once")


def _guarantee(balance: Balance, entries: Sequence[Entry], deployment: Deployment) -> Iterator[Line]:
    # An entry may cover more records of a person than the unit implies; its assumption states their number.
    is_bounded = all(entry.contribution in (None, 1) for entry in entries) or deployment.unit != "record"
    people = protected_by(deployment.unit) if is_bounded else f"every {who(deployment.unit)}"
    protected = f"{people}; adjacency {balance.header.adjacency}: {deployment.neighbours}"
    composition = f", of all of this together: {deployment.accounting}"
    guarantee = str(deployment.guarantee)
    yield from deployment.lines(protects=protected, protected=protected, most=guarantee, together=composition)
    if balance.reservations:
        names = "; ".join(dict.fromkeys(entry.what for entry in balance.reservations.values()))
        yield Line("reserved", f"{names} ({_ranges(list(balance.reservations))}), which the guarantee covers", 1)
    yield Line("assumed", "; ".join(assumptions_of(entries)), 1)


def _entries(balance: Balance, entries: Sequence[Entry], *, max_named: int = 8) -> Iterator[Line]:
    """The releases, the first few by name; then all entries."""
    labels = {entry.number: f"{entry.what} ({entry.guarantee}, {entry.recorded[:10]})" for entry in entries}
    released = [labels[entry.number] for entry in entries if not entry.reserved]
    n_more = len(released) - max_named
    items = [*released[:max_named], f"and {n_more} more"] if n_more > 1 else released
    yield Line("published", "; ".join(items) or _count_releases(entries), 1)
    yield from (Line(f"entry {entry.number}", labels[entry.number] + use_of(entry, balance), 2) for entry in entries)


def use_of(entry: Entry, balance: Balance) -> str:
    """The reservation that a release used, or whether a reservation was used."""
    if entry.reserved:
        return f" ({'reserved' if entry.number in balance.reservations else 'reservation that was used'})"
    return "" if entry.uses is None else f" (as reserved in entry {entry.uses})"


def _count_releases(entries: Sequence[Entry]) -> str:
    number = sum(not entry.reserved for entry in entries)
    return f"{number} release{'s' * (number > 1)}" if number else "nothing yet"


def _composition_note(balance: Balance) -> str:
    """The composition rule of a ledger, in words."""
    notes = {
        "basic": "epsilons and deltas are added",
        "divergences": "Rényi divergences at one order are added",
        "best order": "Rényi divergences are added, at the order that suits best",
        "optimal composition": "by the optimal composition of guarantees that were fixed in advance",
    }
    other = f"losses are added, each as {balance.rule}"
    return "epsilons are added" if balance.joint_guarantee.is_pure else notes.get(balance.rule or "", other)


def _ranges(numbers: Sequence[int]) -> str:
    """The numbers as a text, such as "entries 1, 3 to 5"."""
    present = set(numbers)
    starts = [n for n in numbers if n - 1 not in present]
    ends = [n for n in numbers if n + 1 not in present]
    ranges = [str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True)]
    return f"{'entry' if len(present) == 1 else 'entries'} {', '.join(ranges)}"
