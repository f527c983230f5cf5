"""Networks of the literature beside ours, from the figures that `benchmarks/network_rivals.py` wrote."""

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

FIGURES = Path(__file__).parents[1] / "benchmarks" / "network_rivals.csv"
NAMES = {"german_credit": "German credit", "adult": "Adult"}
OURS = "marginals, fitted together"
PGM = "private-PGM"
BEST = "private-PGM, the best of three"
STYLES = {
    OURS: {"color": "#0b1f4d", "marker": "s"},
    "marginals, table by table": {"color": "#2a8c82", "marker": "^", "linestyle": "--"},
    BEST: {"color": "#c8452d", "marker": "o"},
    PGM: {"color": "#c8452d", "marker": "o", "linestyle": ":", "markerfacecolor": "none"},
    "PrivBayes, 1 record more": {"color": "#8a8a8a", "marker": "v", "linestyle": "-."},
    "MST": {"color": "#7b4fa3", "marker": "P", "linestyle": "-."},
}

type Cells = dict[tuple[str, str], dict[str, dict[str, tuple[float, float]]]]


def cells() -> Cells:
    """By data and epsilon, by method, by split: log-likelihood and total variation of pairs."""
    found: Cells = defaultdict(lambda: defaultdict(dict))
    with FIGURES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            pairs = float(row["pairs"]) if row["pairs"] else np.nan
            found[row["data"], row["epsilon"]][row["method"]][row["split"]] = float(row["log_likelihood"]), pairs
    for methods in found.values():
        of_pgm = [values for name, values in methods.items() if name.startswith(PGM)]
        for split in methods.get(PGM, {}):
            methods[BEST][split] = max(one[split][0] for one in of_pgm), methods[PGM][split][1]
    return found


def differences(place: int) -> dict[tuple[str, str], list[float]]:
    """Ours less private-PGM on the same noisy counts, split by split: of likelihoods (0), or of pairs (1)."""
    found = {}
    for cell, methods in cells().items():
        shared = sorted(set(methods[OURS]) & set(methods[BEST]))
        found[cell] = [methods[OURS][split][place] - methods[BEST][split][place] for split in shared]
    return found


def scores_table() -> str:
    """One row for each method and data set, means over splits, as HTML."""
    found = cells()
    epsilons = sorted({epsilon for _, epsilon in found}, key=float)
    lines = [_line("th", ["data", "method", *(f"epsilon {epsilon}" for epsilon in epsilons)])]
    for data, title in NAMES.items():
        for method in (*STYLES, "PrivBayes"):
            shown = [found[data, epsilon][method] for epsilon in epsilons]
            if any(shown):
                lines.append(_line("td", [title, method, *map(_figures, shown)]))
    return f"<table>{''.join(lines)}</table>"


def compared() -> str:
    """Ours less the best of private-PGM in each cell, with standard errors over the splits, as HTML."""
    likelihoods, pairs = differences(0), differences(1)
    heads = ["data", "epsilon", "splits", "log-likelihood", "least of the splits", "pairs"]
    lines = [_line("th", heads)]
    for data, title in NAMES.items():
        for cell in sorted((cell for cell in likelihoods if cell[0] == data), key=lambda cell: float(cell[1])):
            if ours := likelihoods[cell]:
                means = _mean(ours, 2), f"{min(ours):+.2f}", _mean(pairs[cell], 3)
                lines.append(_line("td", [title, cell[1], str(len(ours)), *means]))
    return f"<table>{''.join(lines)}</table>"


def picture() -> plt.Figure:
    """Negative log-likelihood of a held-out record at each epsilon."""
    found = cells()
    figure, panels = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
    for axes, (data, title) in zip(panels, NAMES.items(), strict=True):
        for method, style in STYLES.items():
            points = [
                (float(epsilon), -np.mean([one[0] for one in methods[method].values()]))
                for (name, epsilon), methods in found.items()
                if name == data and methods[method]
            ]
            if points:
                axes.plot(*zip(*sorted(points), strict=True), label=method, markersize=5, **style)
        axes.set(title=title, xscale="log", yscale="log", xlabel="epsilon (delta 1e-5)")
        ticks = [8, 9, 10, 12] if data == "adult" else [15, 20, 30, 50, 100]
        axes.set_yticks(ticks, labels=[str(tick) for tick in ticks])
        axes.set_yticks([], minor=True)
    panels[0].set_ylabel("minus log-likelihood, nats a record")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _mean(values: list[float], digits: int) -> str:
    """The mean, and its standard error if there are several values."""
    error = f" ± {np.std(values, ddof=1) / len(values) ** 0.5:.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):+.{digits}f}{error}"


def _figures(splits: dict[str, tuple[float, float]]) -> str:
    if not splits:
        return ""
    likelihood, pairs = np.mean(list(splits.values()), axis=0)
    return f"{likelihood:.2f}" if np.isnan(pairs) else f"{likelihood:.2f} ({pairs:.3f})"


def _line(tag: str, cells: list[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{cell}</{tag}>' for cell in cells)}</tr>"
