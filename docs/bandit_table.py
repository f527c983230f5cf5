"""The tables of private bandits, from what `tests/benchmarks/bandit_rivals.py` and `star_rewards.py` wrote."""

import csv
from pathlib import Path

FIGURES = Path(__file__).parents[1] / "tests" / "benchmarks"


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


def of_stars() -> str:
    """Quantiles of the regret of the coin and of counts, for each guarantee and other arm, as HTML."""
    quantiles = ("q05", "q25", "median", "q75", "q95", "mean")
    names = {"q05": "5 %", "q25": "25 %", "q75": "75 %", "q95": "95 %"}
    head = [
        "epsilon",
        "other arm",
        "reward",
        *(names.get(name, name) for name in quantiles),
        "median, counts against coin",
    ]
    lines, rows = [_line("th", head)], _rows("star_rewards.csv")
    for coin, counts in zip(rows[::2], rows[1::2], strict=True):
        less = f"{float(counts['median']) / float(coin['median']) - 1:+.0%}".replace("-", "−")
        for row, beside in ((coin, ""), (counts, less)):
            lines.append(
                _line("td", [row["epsilon"], row["other"], row["reward"], *(row[q] for q in quantiles), beside])
            )
    return f"<table>{''.join(lines)}</table>"


def _rows(name: str) -> list[dict[str, str]]:
    with (FIGURES / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _figures(row: dict[str, str]) -> str:
    return f"{row['median']}, {row['trimmed_mean']} ({row['q95']})"


def _line(tag: str, cells: list[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"
