"""The tables of the page that compares, from figures that other programs and pages hold."""

import csv
import json
import re
from pathlib import Path

HERE = Path(__file__).parent
BANDITS = HERE.parent / "benchmarks" / "bandit_rivals.csv"
OURS = "private Thompson sampling (geometric)"


def pairs() -> str:
    """The published bound and the exact epsilon at delta 1e-5 for `r = 0.1`, from the check of P1's Figure 8."""
    numbers = json.loads((HERE / "figures" / "p1_figure_8.json").read_text(encoding="utf-8"))["numbers"]
    rows = []
    for order in (2, 10, 50, 200):
        printed, exact = (numbers[f"{line}, order {order}, r 0.1"] for line in ("printed", "exact"))
        rows.append([str(order), f"{printed:.3f}", f"{exact:.3f}", f"{printed / exact:.1f}"])
    return table(["order", "P1, equation 14", "exact", "ratio"], rows)


def coverage() -> str:
    """How often intervals at 95 % hold the truth, from the table that full runs wrote."""
    text = (HERE / "figures" / "coverage.md").read_text(encoding="utf-8")
    rows = [row for row in markdown_rows(text) if "p r + 20 %" in row]
    selected = [
        [row["case"], row["data sets"], *(_percent(row[reading]) for reading in ("exact", "naive"))] for row in rows
    ]
    return table(["case", "data sets", "given the release", "treated as the data"], selected)


def bandits(horizon: str = "100000000") -> str:
    """Trimmed mean regret of ours and of the best other policy that knows of its noise, beside the lower bound."""
    with BANDITS.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["horizon"] == horizon]
    settings: dict[tuple[str, ...], dict[str, float]] = {}
    for row in rows:
        setting = row["means"], f"{float(row['epsilon']):g}", row["lower_bound"]
        settings.setdefault(setting, {})[row["policy"]] = float(row["trimmed_mean"])
    selected = []
    for setting, regret in settings.items():
        other = min((name for name in regret if not name.startswith((OURS, "ours"))), key=regret.__getitem__)
        selected.append([*setting, f"{regret[OURS]:.0f}", f"{regret[other]:.0f}, {other}"])
    return table(["means", "epsilon", "lower bound", "ours", "best of the others"], selected)


def table(heading: list[str], rows: list[list[str]]) -> str:
    """A table as HTML."""
    lines = [_line("th", heading), *(_line("td", row) for row in rows)]
    return f"<table>{''.join(lines)}</table>"


def markdown_rows(text: str) -> list[dict[str, str]]:
    """The rows of all tables of a page, by the names of their columns."""
    found: list[dict[str, str]] = []
    heading: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            heading = []
        elif not heading:
            heading = cells
        elif not re.fullmatch(r"[-:| ]+", line):
            found.append(dict(zip(heading, cells, strict=True)))
    return found


def _percent(coverages: str) -> str:
    """The last of the three coverages, which is that of 95 %."""
    return f"{float(coverages.split()[-1]):.1%}"


def _line(tag: str, cells: list[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"
