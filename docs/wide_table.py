"""Wide tables beside AIM and MST, and what columns cost, from what `benchmarks/wide_tables.py` wrote."""

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

FIGURES = Path(__file__).parents[1] / "benchmarks"
NAMES = {"adult": "Adult", "credit": "Credit card", "german": "German credit", "shopper": "Shopper"}
STYLES = {
    "latent_class": {"color": "#0b1f4d", "marker": "s"},
    "AIM": {"color": "#c8452d", "marker": "o", "linestyle": "--"},
    "MST": {"color": "#7b4fa3", "marker": "P", "linestyle": "-."},
}
FLOORS = {"independent": "independent columns", "bootstrap": "the same records, resampled"}

type Cells = dict[tuple[str, str], dict[str, list[list[float]]]]


def _rows(name: str) -> list[dict[str, str]]:
    with (FIGURES / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def cells() -> Cells:
    """By data and epsilon, by method: errors of pairs, triples and small triples, and seconds, for each seed."""
    found: Cells = defaultdict(lambda: defaultdict(list))
    for row in _rows("wide_tables.csv"):
        values = [float(row[name]) for name in ("pairs", "triples", "small_triples", "seconds")]
        found[row["data"], row["epsilon"] and f"{float(row['epsilon']):g}"][row["method"]].append(values)
    return found


def rivals() -> str:
    """One row for each data set, epsilon and method, means over seeds, as HTML."""
    heads = ["data", "epsilon", "method", "runs", "pairs", "triples", "triples to 10,000 cells", "seconds"]
    lines = [_line("th", heads)]
    shown = [cell for cell in cells().items() if cell[0][1]]
    for (data, epsilon), methods in sorted(shown, key=lambda cell: (list(NAMES).index(cell[0][0]), float(cell[0][1]))):
        for method in STYLES:
            if runs := methods.get(method):
                *errors, seconds = np.mean(runs, axis=0)
                figures = [*(f"{error:.4f}" for error in errors), f"{seconds:.0f}"]
                lines.append(_line("td", [NAMES[data], epsilon, method, str(len(runs)), *figures]))
    return f"<table>{''.join(lines)}</table>"


def costs() -> str:
    """Seconds of a processor, the file and the memory by the number of columns, as HTML."""
    heads = ["columns", "categories", "pairs", "cells", "plan", "sample", "fit", "synthetic", "file, MB", "memory, MB"]
    lines = [_line("th", heads)]
    for row in _rows("wide_costs.csv"):
        names = (
            "columns",
            "categories",
            "pairs",
            "cells",
            "plan",
            "sample",
            "fit",
            "synthetic",
            "file_mb",
            "memory_mb",
        )
        lines.append(_line("td", [row[name] for name in names]))
    return f"<table>{''.join(lines)}</table>"


def coverage() -> str:
    """By records and epsilon the share of cells that intervals of 95 % cover, means over tables, as HTML."""
    heads = ["records", "epsilon", "shares of pairs", "counts of pairs", "of cells with records", "columns", "length"]
    lines, by_setting = [_line("th", heads)], defaultdict(list)
    for row in _rows("wide_intervals.csv"):
        figures = [float(row[name]) for name in ("shares", "counts", "occupied", "columns", "length")]
        by_setting[int(row["records"]), float(row["epsilon"])].append(figures)
    for (records, epsilon), settings in sorted(by_setting.items()):
        *covered, length = np.mean(settings, axis=0)
        figures = [*(f"{100 * share:.1f} %" for share in covered), f"{length:.2f}"]
        lines.append(_line("td", [f"{records:,}", f"{epsilon:g}", *figures]))
    return f"<table>{''.join(lines)}</table>"


def error_picture(data: str = "adult") -> plt.Figure:
    """The mean error of pairs and of triples at each epsilon."""
    found = cells()
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.0), layout="constrained")
    for place, (axes, title) in enumerate(zip(panels, ("all pairs", "all triples"), strict=True)):
        for method, style in STYLES.items():
            points = [
                (float(epsilon), np.mean([run[place] for run in methods[method]]))
                for (name, epsilon), methods in found.items()
                if name == data and methods.get(method)
            ]
            if points:
                axes.plot(*zip(*sorted(points), strict=True), label=method, markersize=5, **style)
        for method, label in FLOORS.items():
            height = found[data, ""][method][0][place]
            axes.axhline(height, color="#8a8a8a", linewidth=0.8, linestyle=":")
            # The curves go from the upper left to the lower right: each label stands where they are not.
            low = height < axes.dataLim.y0 + axes.dataLim.height / 2
            look = {"ha": "left", "va": "bottom"} if low else {"ha": "right", "va": "top"}
            at = (0.01 if low else 0.99, height)
            axes.annotate(label, at, xycoords=("axes fraction", "data"), fontsize=9, **look)
        axes.set(title=title, xscale="log", xlabel="epsilon (delta 1e-6)", ylim=(0, None))
    panels[0].set_ylabel("mean total variation")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def pair_picture() -> plt.Figure:
    """The share of high incomes at each level of education, true and in synthetic records at three guarantees."""
    rows = _rows("wide_pair.csv")
    level = [int(row["education-num"]) + 1 for row in rows]
    figure, axes = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
    axes.plot(level, [float(row["true"]) for row in rows], color="black", label="records")
    for epsilon, colour, marker in (("0.1", "#c8452d", "v"), ("1", "#2a8c82", "o"), ("10", "#0b1f4d", "s")):
        shares = [float(row[epsilon] or "nan") for row in rows]
        axes.plot(level, shares, marker, color=colour, markersize=4.5, label=f"epsilon {epsilon}")
    axes.set(xlabel="level of education", ylabel="share with an income above 50,000", ylim=(0, 1), xticks=level)
    axes.legend(fontsize=8)
    return figure


def _line(tag: str, cells: list[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"
