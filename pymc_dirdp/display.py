"""Results as tables and labelled lines, in text and HTML, and foreign texts made safe to show."""

import abc
import html
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, override

__all__ = ["Labelled", "Sections", "Tabular", "aligned", "visible"]

type Sections = Sequence[tuple[str, Sequence[tuple[str, str]]]]

# The width of a labelled line in characters, and the least width of its text beside a long label.
_WIDTH = 80
_NARROWEST = 40


def visible(text: str) -> str:
    r"""The text with every character that cannot be seen written as an escape.

    A terminal obeys control characters: one may clear the screen or begin a new line, and another may reverse the
    direction of writing.

    Parameters
    ----------
    text : str
        A text from a file, or any other that this library did not write.

    Returns
    -------
    text : str
        The text in printable characters only; a text that has no others is unchanged.

    Examples
    --------
    >>> visible("größe\x1b[2J")
    'größe\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, with the cells of a column below each other.

    Examples
    --------
    >>> aligned([("name", "r"), ("p", "0.1")])
    ['name  r', 'p     0.1']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


class Tabular(abc.ABC):
    """A result that is a table: `print` shows it as text, a notebook as HTML, and `frame()` gives the numbers."""

    _columns: ClassVar[Sequence[str]] = ()
    """The columns that are shown; empty shows all columns of the first row. The first column names the row."""

    @abc.abstractmethod
    def _told(self) -> tuple[Sequence[str], Sequence[Mapping[str, Any]], Sequence[str]]:
        """The lines above the table, of which the first is its title; its rows, column to value; the lines below."""

    def frame(self) -> Any:
        """The rows as a `pandas.DataFrame`, whose index is the first column."""
        import pandas as pd

        _, rows, _ = self._told()
        frame = pd.DataFrame(rows or None, columns=None if rows else self._columns)
        return frame.set_index(frame.columns[0])

    @override
    def __str__(self) -> str:
        above, rows, below = self._told()
        return "\n".join([*map(visible, above), *aligned(self._cells(rows)), *map(visible, below)])

    def _repr_html_(self) -> str:
        (title, *above), rows, below = self._told()
        before, after = ("".join(f"<p>{_escaped(line)}</p>" for line in lines) for lines in (above, below))
        table = "".join(_row(f"<td>{_escaped(cell)}</td>" for cell in row) for row in self._cells(rows))
        return f"<h4>{_escaped(title)}</h4>{before}<table>{table}</table>{after}"

    def _cells(self, rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
        columns = list(self._columns or rows[0])
        return [[visible(name) for name in columns], *([_cell(row[name]) for name in columns] for row in rows)]


class Labelled(abc.ABC):
    """A result that is a title and labelled lines, in sections: `print` shows it as text, a notebook as HTML."""

    @abc.abstractmethod
    def _told(self) -> tuple[str, Sections]:
        """The title, and for each section its heading, which may be empty, and its lines: a label and a text."""

    @override
    def __str__(self) -> str:
        title, sections = self._told()
        width = max(len(visible(label)) for _, lines in sections for label, _ in lines)
        parts = [visible(title)]
        if any(heading for heading, _ in sections):
            parts.append("=" * len(parts[0]))
        for heading, lines in sections:
            parts += ["", visible(heading)] if heading else []
            for label, text in lines:
                first, *rest = textwrap.wrap(visible(text), max(_NARROWEST, _WIDTH - width - 4)) or [""]
                parts += [f"  {visible(label):<{width}}  {first}", *(f"{'':<{width + 4}}{line}" for line in rest)]
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        title, sections = self._told()
        body = []
        for heading, lines in sections:
            body += [_row([f"<td colspan=2><strong>{_escaped(heading)}</strong></td>"])] if heading else []
            for label, text in lines:
                body.append(_row([f"<th style='text-align:left'>{_escaped(label)}</th>", f"<td>{_escaped(text)}</td>"]))
        return f"<h4>{_escaped(title)}</h4><table>{''.join(body)}</table>"


def _escaped(text: str) -> str:
    return html.escape(visible(text))


def _row(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(cells)}</tr>"


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else visible(str(value))
