"""All that is said about a ledger: what it guarantees, what was released and what is left, in one list of lines.

Its report, its statement and its table select from them, as those of a release do from
:mod:`pymc_dirdp.releases.facts`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pymc_dirdp.accounting.budget import Balance
from pymc_dirdp.accounting.entries import Entry
from pymc_dirdp.display import Facts, Line
from pymc_dirdp.privacy.deployment import Deployment
from pymc_dirdp.privacy.odds import Odds
from pymc_dirdp.privacy.people import NOT_PROTECTED, adjacency_named, number_of_records, protected_by, secret_of, who
from pymc_dirdp.texts.grammar import library_version


def title_of(balance: Balance) -> str:
    """What a ledger is for."""
    return f"Ledger of {replace(balance.header, unit=balance.unit)}"


def lines_of(balance: Balance, entries: Sequence[Entry], stated: Deployment | None = None) -> Facts:
    """The lines about a ledger, by heading: those of depth 0 for a screen, of 1 for a public statement, of 2 for all.

    A table of its entries shows the lines about its budget and its guarantee.
    """
    if stated is None and entries and balance.within:
        stated = deployment_of(balance, entries)
    answer = [Line("published", _how_many(entries), 0)]
    answer += [Line("left", f"{float(amount.left):.6g} ({amount.label})", 0) for amount in balance.amounts]
    return {
        "Answer": answer,
        "Budget": [Line(amount.label, amount.state, 2) for amount in balance.amounts],
        "Guarantee": [] if stated is None else [*_guarantee(balance, entries, stated)],
        "Entries": [*_entries(balance, entries)],
        "Notes": [
            Line("not protected", "; ".join(NOT_PROTECTED), 1),
            Line("to check it", "pymc_dirdp.verify(ledger), and pymc_dirdp.verify(release) for each file", 1),
            Line("software", f"pymc_dirdp {library_version()}", 1),
            Line("head of the ledger", balance.head, 1),
        ],
        "Use": [Line("next", "ledger.remaining()", 0)],
    }


def deployment_of(balance: Balance, entries: Sequence[Entry]) -> Deployment:
    """What all releases of a ledger state together."""
    relation, unit = adjacency_named(balance.header.adjacency), balance.unit or "record"
    return Deployment(
        product=", ".join(dict.fromkeys(entry.what for entry in entries if not entry.reserved)),
        description=f"{_how_many(entries)} about the same people",
        guarantee=balance.together,
        unit=unit,
        neighbours=number_of_records(relation),
        odds=Odds.of_guarantee(balance.together, secret_of(unit, relation)),
        accounting=_added_up(balance),
        digest=balance.head,
        version=library_version(),
    )


def believed(entries: Sequence[Entry]) -> tuple[str, ...]:
    """What has to be believed of the releases of a ledger, with the entries that say it."""
    numbers: dict[str, list[int]] = {}
    for entry in entries:
        for assumption in entry.assumptions:
            numbers.setdefault(assumption, []).append(entry.number)
    stated = (f"{assumption} ({_ranges(which)})" for assumption, which in numbers.items())
    return (*stated, "each release was drawn as it says, once")


def _guarantee(balance: Balance, entries: Sequence[Entry], stated: Deployment) -> Iterator[Line]:
    # An entry may allow for more records of a person than the unit says, and its assumption has their number.
    is_bounded = all(entry.contribution in (None, 1) for entry in entries) or stated.unit != "record"
    people = protected_by(stated.unit) if is_bounded else f"every {who(stated.unit)}"
    protected = f"{people}; adjacency {balance.header.adjacency}: {stated.neighbours}"
    together = f", of all of this together: {stated.accounting}"
    yield from stated.lines(protects=protected, protected=protected, most=str(stated.guarantee), together=together)
    if balance.reservations:
        names = "; ".join(dict.fromkeys(entry.what for entry in balance.reservations.values()))
        yield Line("reserved", f"{names} ({_ranges(list(balance.reservations))}), which the guarantee covers", 1)
    yield Line("assumed", "; ".join(believed(entries)), 1)


def _entries(balance: Balance, entries: Sequence[Entry], *, most_named: int = 8) -> Iterator[Line]:
    """What was released, the first few by name; then all entries."""
    named = {entry.number: f"{entry.what} ({entry.guarantee}, {entry.recorded[:10]})" for entry in entries}
    released = [named[entry.number] for entry in entries if not entry.reserved]
    more = len(released) - most_named
    listed = [*released[:most_named], f"and {more} more"] if more > 1 else released
    yield Line("published", "; ".join(listed) or _how_many(entries), 1)
    yield from (Line(f"entry {entry.number}", named[entry.number] + use_of(entry, balance), 2) for entry in entries)


def use_of(entry: Entry, balance: Balance) -> str:
    """Which reservation a release used, or whether one was used."""
    if entry.reserved:
        return f" ({'reserved' if entry.number in balance.reservations else 'reservation that was used'})"
    return "" if entry.uses is None else f" (as reserved in entry {entry.uses})"


def _how_many(entries: Sequence[Entry]) -> str:
    number = sum(not entry.reserved for entry in entries)
    return f"{number} release{'s' * (number > 1)}" if number else "nothing yet"


def _added_up(balance: Balance) -> str:
    """How releases are added up to what they keep together, in words."""
    added = {
        "basic": "epsilons and deltas are added",
        "divergences": "Rényi divergences at one order are added",
        "best order": "Rényi divergences are added, at the order that suits best",
        "optimal composition": "by the optimal composition of guarantees that were fixed in advance",
    }
    other = f"losses are added, each as {balance.rule}"
    return "epsilons are added" if balance.together.is_pure else added.get(balance.rule or "", other)


def _ranges(numbers: Sequence[int]) -> str:
    """The numbers as a text, such as "entries 1, 3 to 5"."""
    known = set(numbers)
    starts = [n for n in numbers if n - 1 not in known]
    ends = [n for n in numbers if n + 1 not in known]
    listed = [str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True)]
    return f"{'entry' if len(known) == 1 else 'entries'} {', '.join(listed)}"
