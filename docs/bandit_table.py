"""The table of private bandits, from what `benchmarks/bandit_rivals.py` wrote."""

import csv
from pathlib import Path

FIGURES = Path(__file__).parents[1] / "benchmarks"


def regret_table(horizon: int) -> str:
    """One row for each setting: median, trimmed mean and 95 % quantile of each policy, as HTML."""
    rows = [row for row in _rows("bandit_rivals.csv") if row["horizon"] == str(horizon)]
    settings: dict[tuple[str, str, str], dict[str, dict[str, str]]] = {}
    for row in rows:
        name = row["policy"].replace("private Thompson sampling (geometric)", "ours")
        settings.setdefault((row["means"], f"{float(row['epsilon']):g}", row["lower_bound"]), {})[name] = row
    lines = [_line("th", ["means", "epsilon", "lower bound", *next(iter(settings.values()))])]
    for setting, policies in settings.items():
        least = min(float(row["trimmed_mean"]) for row in policies.values())
        cells = [
            f"<b>{_figures(row)}</b>" if float(row["trimmed_mean"]) == least else _figures(row)
            for row in policies.values()
        ]
        lines.append(_line("td", [*setting, *cells]))
    return f"<table>{''.join(lines)}</table>"


def _rows(name: str) -> list[dict[str, str]]:
    with (FIGURES / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _figures(row: dict[str, str]) -> str:
    return f"{row['median']}, {row['trimmed_mean']} ({row['q95']})"


def _line(tag: str, cells: list[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"
