"""Results as tables and labelled lines, in text and HTML, and the escape of foreign texts."""

import abc
import html
import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, ClassVar, final, override

type Sections = Sequence[tuple[str, Sequence[tuple[str, str]]]]

# Maximum width of labelled lines in columns of a terminal.
_WIDTH = 80
# A notebook would align the cells to the right.
_LEFT = "text-align:left;vertical-align:top"


def escape_invisible(text: str) -> str:
    r"""The text with an escape for every invisible character.

    Control characters may clear the screen of a terminal, begin a new line, or reverse the direction of writing.

    Parameters
    ----------
    text : str
        A text that this library did not write, for example from a file.

    Returns
    -------
    text : str
        The text in printable characters only. A printable text is unchanged.

    Examples
    --------
    >>> escape_invisible("größe\x1b[2J")
    'größe\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in text)


def align_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, with aligned columns.

    Examples
    --------
    >>> align_columns([("name", "r"), ("p", "0.1")])
    ['name  r', 'p     0.1']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def number_and_interval(value: float, sd: float, low: float, high: float) -> tuple[str, str]:
    """A number with its standard deviation, and its interval, as texts.

    All are rounded to the place of the second digit of the deviation, except integer ends of an interval. A number in
    the interval is also in the printed interval. Without a deviation the texts have six decimals.

    Examples
    --------
    >>> number_and_interval(100056.8, 1.4, 100054, 100060)
    ('100056.8 ± 1.4', '100054 to 100060')
    >>> number_and_interval(0.11113, 9.2e-6, 0.11111, 0.11115)
    ('0.1111300 ± 0.0000092', '0.1111100 to 0.1111500')
    >>> number_and_interval(1234567.0, 5432.0, 1223920, 1245214)
    ('1234600 ± 5400', '1223900 to 1245200')
    >>> number_and_interval(1.0, 0.0, 1.0, 1.0)
    ('1 ± 0', '1 to 1')
    """
    decimals = 1 - math.floor(math.log10(sd)) if 0 < sd < math.inf else 6
    ends = " to ".join(_round(end, decimals, whole=True) for end in (low, high))
    return f"{_round(value, decimals, whole=not sd)} ± {_round(sd, decimals, whole=not sd)}", ends


def _round(value: float, decimals: int, *, whole: bool) -> str:
    """A number with `decimals`, or rounded to a power of ten if they are negative; if `whole`, integers without any."""
    rounded = round(float(value), decimals)
    return f"{rounded:.{0 if whole and rounded == value and rounded.is_integer() else max(decimals, 0)}f}"


class TabularResult(abc.ABC):
    """A result in a table. `print` shows it as text, a notebook as HTML, and `frame()` returns the numbers."""

    _columns: ClassVar[Sequence[str]] = ()
    """The columns to show, by default all columns of the first row. The first column names the row."""

    @abc.abstractmethod
    def _parts(self) -> tuple[Sequence[str], Sequence[Mapping[str, Any]], Sequence[str]]:
        """The lines above the table, beginning with its title; its rows, column to value; the lines below."""

    def frame(self) -> Any:
        """The rows as a `pandas.DataFrame`, whose index is the first column."""
        import pandas as pd

        _, rows, _ = self._parts()
        frame = pd.DataFrame(rows or None, columns=None if rows else self._columns)
        return frame.set_index(frame.columns[0])

    @override
    def __repr__(self) -> str:
        (title, *_), rows, _ = self._parts()
        return f"<{type(self).__name__}: {clip(title, _WIDTH)}; {len(rows)} rows: print() shows them, frame() has them>"

    @override
    def __str__(self) -> str:
        above, rows, below = self._parts()
        return "\n".join(
            [*map(escape_invisible, above), *align_columns(self._cells(rows)), *map(escape_invisible, below)]
        )

    def _repr_html_(self) -> str:
        (title, *above), rows, below = self._parts()
        paragraphs_above, paragraphs_below = (
            "".join(f"<p>{escape_html(line)}</p>" for line in lines) for lines in (above, below)
        )
        # Outside a notebook the cells would touch.
        cell = f"style='{_LEFT};padding:0.2em 1em 0.2em 0'"
        names, *cells = self._cells(rows)
        table = _row(f"<th {cell}>{escape_html(name)}</th>" for name in names)
        # Do not break a line between a number and its error.
        texts = ([escape_html(text).replace(" ± ", "&nbsp;±&nbsp;") for text in row] for row in cells)
        table += "".join(_row(f"<td {cell}>{text}</td>" for text in row) for row in texts)
        return f"<h4>{escape_html(title)}</h4>{paragraphs_above}{scroll_box(table)}{paragraphs_below}"

    def _cells(self, rows: Sequence[Mapping[str, Any]]) -> list[list[str]]:
        columns = list(self._columns or rows[0])
        return [[escape_invisible(name) for name in columns], *([_cell(row[name]) for name in columns] for row in rows)]


@final
@dataclass(frozen=True)
class Line:
    """A fact in words.

    Attributes
    ----------
    label, text : str
    depth : int
        Level of detail: 0 for one screen, 1 for the lines below a table, 2 for an auditor.
    """

    label: str
    text: str
    depth: int


type Facts = Mapping[str, Sequence[Line]]
"""All lines about a thing, by heading. Reports print a selection of them."""


def select_lines(facts: Facts, headings: Iterable[str], *depths: int) -> tuple[tuple[str, str], ...]:
    """The labels and texts of some depths under some headings, in the order of the headings.

    Examples
    --------
    >>> select_lines({"Guarantee": [Line("at most", "1", 0), Line("draws", "3", 2)]}, ["Guarantee", "Notes"], 0)
    (('at most', '1'),)
    """
    lines = (line for heading in headings for line in facts.get(heading, ()))
    return tuple((line.label, line.text) for line in lines if line.depth in depths)


class LabelledResult(abc.ABC):
    """A result with a title and sections of labelled lines. `print` shows it as text, a notebook as HTML."""

    @abc.abstractmethod
    def _parts(self) -> tuple[str, Sections]:
        """The title, and for each section its heading, which may be empty, and its lines, each a label and a text."""

    @override
    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {clip(self._parts()[0], _WIDTH)}; print() shows it>"

    @override
    def __str__(self) -> str:
        title, sections = self._parts()
        # A label takes at most 24 columns.
        width = min(24, max(_columns(escape_invisible(label)) for _, lines in sections for label, _ in lines))
        parts = _wrapped(escape_invisible(title), _WIDTH)
        if any(heading for heading, _ in sections):
            parts.append("=" * max(map(_columns, parts)))
        for heading, lines in sections:
            if heading:
                parts += ["", *_wrapped(escape_invisible(heading), _WIDTH)]
            elif lines is not sections[0][1]:
                parts.append("")
            for label, text in lines:
                labels, texts = (
                    _wrapped(escape_invisible(label), width),
                    _wrapped(escape_invisible(text), _WIDTH - width - 4),
                )
                for left, right in zip_longest(labels, texts, fillvalue=""):
                    parts.append(f"  {left}{' ' * (width - _columns(left))}  {right}")
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        title, sections = self._parts()
        body = []
        for heading, lines in sections:
            if heading:
                body.append(_row([f"<td colspan=2 style='{_LEFT}'><strong>{escape_html(heading)}</strong></td>"]))
            body.append(label_rows(lines))
        # A long name without a break would widen the page.
        page = f"<h4>{escape_html(title)}</h4>{scroll_box(''.join(body))}"
        return f"<div style='{_LEFT};overflow-wrap:anywhere'>{page}</div>"


def dots(rows: Sequence[tuple[str, float, tuple[float, float], tuple[float, float], float]], legend: str) -> str:
    """A picture of proportions for notebooks, as SVG in the colours of the page.

    Parameters
    ----------
    rows : sequence of tuple
        A label, a mean, the ends of its interval, the ends of a fainter outer interval, and a value for a tick.
    legend : str
        An explanation of these.
    """
    largest = max(max(interval[1], outer_interval[1], tick) for _, _, interval, outer_interval, tick in rows)
    left, width, height = 130, 360, 22
    marks = []
    for number, (label, mean, interval, outer_interval, tick) in enumerate(rows):
        y = height * number + height // 2
        place = [left + width * value / largest for value in (*outer_interval, *interval, mean, tick)]
        marks += [
            f'<text x="{left - 8}" y="{y + 4}" text-anchor="end">{escape_html(clip(label, 16))}</text>',
            f'<path d="M{place[0]:.1f} {y}H{place[1]:.1f}" stroke="currentColor" opacity="0.25" stroke-width="6"/>',
            f'<path d="M{place[2]:.1f} {y}H{place[3]:.1f}" stroke="currentColor" stroke-width="2"/>',
            f'<circle cx="{place[4]:.1f}" cy="{y}" r="4" fill="currentColor"/>',
            f'<path d="M{place[5]:.1f} {y - 8}v16" stroke="currentColor" stroke-width="1"/>',
        ]
    y, right = height * len(rows) + 14, left + width
    marks.append(f'<text x="{left}" y="{y}">0</text><text x="{right}" y="{y}" text-anchor="end">{largest:.2g}</text>')
    marks.append(f'<text x="{left + width // 2}" y="{y}" text-anchor="middle">share</text>')
    box = f'viewBox="0 0 {right + 8} {y + 6}" style="max-width:{right + 8}px;width:100%;font-size:12px"'
    return f'<svg {box} fill="currentColor" role="img">{"".join(marks)}</svg><p>{escape_html(legend)}</p>'


def _columns(text: str) -> int:
    """Number of columns of a text in a terminal. Some characters, such as Japanese ones, take two."""
    return len(text) if text.isascii() else sum(1 + (unicodedata.east_asian_width(sign) in "WF") for sign in text)


def _wrapped(text: str, width: int) -> list[str]:
    """The lines of a text, at least one, each at most `width` columns wide."""
    lines = [""]
    for word in text.split():
        for part in _pieces(word, width):
            if lines[-1] and _columns(lines[-1]) + 1 + _columns(part) > width:
                lines.append(part)
            else:
                lines[-1] = f"{lines[-1]} {part}" if lines[-1] else part
    return lines


def _pieces(word: str, width: int) -> Iterator[str]:
    """The parts of a word that fit on a line."""
    if _columns(word) <= width:
        yield word
        return
    begin, width_used = 0, 0
    for i, sign in enumerate(word):
        width_used += _columns(sign)
        if width_used > width:
            yield word[begin:i]
            begin, width_used = i, _columns(sign)
    yield word[begin:]


def clip(text: str, width: int, *, lines: int = 1) -> str:
    """The text, cut to `lines` lines of `width` columns.

    Examples
    --------
    >>> clip("a long name of a table", 12)
    'a long...'
    >>> clip("short", 12)
    'short'
    """
    text = escape_invisible(text)
    if len(_wrapped(text, width)) <= lines and (lines > 1 or _columns(text) <= width):
        return text
    *full_lines, last = _wrapped(text, width)[:lines]
    while _columns(last) > width - 3:
        last = last.rpartition(" ")[0] if " " in last else last[:-1]
    return " ".join([*full_lines, f"{last}..."])


def label_rows(lines: Iterable[tuple[str, str]]) -> str:
    """Labels and texts as rows of a table in HTML."""
    # Labels are as light as texts, so that headings stand out.
    styles = ("th", "font-weight:normal;min-width:9em"), ("td", "min-width:10em")
    return "".join(
        _row(
            f"<{tag} style='{_LEFT};{style}'>{escape_html(cell)}</{tag}>"
            for (tag, style), cell in zip(styles, line, strict=True)
        )
        for line in lines
    )


def scroll_box(rows: str) -> str:
    """A table with a scroll bar if it is wider than the page."""
    return f"<div style='overflow-x:auto'><table>{rows}</table></div>"


def escape_html(text: str) -> str:
    """The text with escapes for HTML and invisible characters."""
    return html.escape(escape_invisible(text))


def _row(cells: Iterable[str]) -> str:
    return f"<tr>{''.join(cells)}</tr>"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, float):
        return escape_invisible(str(value))
    # Show large numbers as integers: 1.001e+05 would lose digits of 100057.
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"
