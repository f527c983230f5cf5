"""What a ledger says, as text and as HTML: whom it is about, what it assumes, what was released and what is left."""

import html
from collections.abc import Sequence

from pymc_dirdp.accounting.amounts import Amount
from pymc_dirdp.accounting.entries import Entry, Header, visible
from pymc_dirdp.privacy.guarantees import Guarantee

__all__ = ["as_html", "as_text", "footing", "heading", "refusal", "rows"]


def as_text(heading: Sequence[str], rows: Sequence[Sequence[str]], footing: Sequence[str]) -> str:
    """Lines, the rows between them with their cells below each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*heading, *lines, *footing])


def as_html(heading: Sequence[str], rows: Sequence[Sequence[str]], footing: Sequence[str]) -> str:
    """The same as HTML, the first line as a title."""
    title, *above = map(html.escape, heading)
    cells = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    table = "".join(f"<tr>{row}</tr>" for row in cells)
    paragraphs = ["".join(f"<p>{line}</p>" for line in lines) for lines in (above, map(html.escape, footing))]
    return f"<h4>{title}</h4>{paragraphs[0]}<table>{table}</table>{paragraphs[1]}"


def heading(header: Header, entries: Sequence[Entry]) -> list[str]:
    """What the ledger is for, and all that has to be true for the sum of its promises to hold."""
    fixed = "" if header.adaptive else "; releases fixed in advance"
    unit = "" if header.unit is None else f"; unit {visible(header.unit)}"
    numbers: dict[str, list[int]] = {}
    for entry in entries:
        for assumption in entry.terms.assumptions:
            numbers.setdefault(assumption, []).append(entry.number)
    assumed = [f"Assumed: {visible(text)} ({_ranges(which)})." for text, which in numbers.items()]
    return [f"Ledger of {header.limit}, {header.adjacency}{fixed}{unit}", *assumed]


def rows(entries: Sequence[Entry]) -> list[tuple[str, ...]]:
    """One for each entry, and the names of the columns."""
    shown = [
        (str(entry.number), visible(entry.recorded), visible(entry.what), str(entry.guarantee)) for entry in entries
    ]
    return [("number", "recorded", "what", "guarantee"), *shown]


def footing(way: str | None, amounts: Sequence[Amount]) -> list[str]:
    """What is spent and left, and how it is added up."""
    lines = [f"{amount.label}: {_shown(amount)}" for amount in amounts]
    return [*lines, f"added up by the way: {way}"] if way else lines


def refusal(before: Sequence[Amount], after: Sequence[Amount], guarantee: Guarantee, way: str) -> str:
    """Why a release does not fit."""
    now = "; ".join(f"{amount.label}: {_shown(amount)}" for amount in before)
    then = "; ".join(f"{amount.label}: {float(amount.spent):.6g}" for amount in after)
    return (
        f"A release of {guarantee} was asked for and does not fit, so nothing was recorded. Now {now}. With it {then} "
        f"(added up by the way {way!r}). Request a tighter guarantee, or stop releasing data about these people."
    )


def _shown(amount: Amount) -> str:
    return f"{float(amount.spent):.6g} of {float(amount.limit):.6g} spent, {float(amount.left):.6g} left"


def _ranges(numbers: Sequence[int]) -> str:
    """Such as "entries 1, 3 to 5"."""
    known = set(numbers)
    starts = [n for n in numbers if n - 1 not in known]
    ends = [n for n in numbers if n + 1 not in known]
    listed = [str(a) if a == b else f"{a} to {b}" for a, b in zip(starts, ends, strict=True)]
    return f"{'entry' if len(known) == 1 else 'entries'} {', '.join(listed)}"
