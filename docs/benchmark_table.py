"""The tables of `benchmarks/side_by_side.py` and `growth.py`, from the figures that these programs wrote."""

import csv
import html
import math
from pathlib import Path

FIGURES = Path(__file__).parents[1] / "benchmarks"


def side_by_side() -> str:
    """One row for each kind of work, as HTML."""
    rows = _read("side_by_side.csv")
    heading = ["work", "beside", "our time / theirs", "processor time", "our seconds", "our MB", "their MB", "found"]
    cells = [
        [row["work"], f"{row['beside']} {row['their_version']}", f"<b>{float(row['ratio']):.3g}</b>"]
        + [html.escape(row[name]) for name in ("cpu_ratio", "our_seconds", "our_mb", "their_mb", "found")]
        for row in rows
    ]
    return _table(heading, cells) + _where(rows[-1])


def growth() -> str:
    """The last ratio of each kind of work, as HTML."""
    last = {row["work"]: row for row in _read("growth.csv")}
    cells = [
        [row["work"], f"{int(row['size']):,}", f"{(ratio := float(row['ratio'])):.3g}", f"{math.log10(ratio):.2f}"]
        for row in last.values()
    ]
    return _table(["work", "smaller size", "ratio", "exponent"], cells)


def _read(name: str) -> list[dict[str, str]]:
    with (FIGURES / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _where(row: dict[str, str]) -> str:
    return (
        f"<p>Version {row['version']} ({row['commit']}), {row['date']}, Python {row['python']}, {row['cores']} cores, "
        f"{row['load']} processes for each core.</p>"
    )


def _table(heading: list[str], rows: list[list[str]]) -> str:
    lines = [_line("th", heading), *(_line("td", row) for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def _line(tag: str, cells: list[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"
