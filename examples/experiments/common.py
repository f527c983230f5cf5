"""What all experiments share: the command line, the table and the picture that they write, and the verdict.

An experiment computes a table. The picture and the verdict are made of that table alone, so the pages of the
documentation draw the same pictures from the tables in `docs/figures`, and a test sees whether a table is stale.
"""

import argparse
import json
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import pymc_dirdp as dirdp

SEED = 20261122
# Colours that differ in lightness, with lines and markers that differ too: they differ in grey, too.
STYLES = {
    "printed": {"color": "#d55e00", "linestyle": "--", "marker": "s"},
    "corrected": {"color": "#e69f00", "linestyle": "-.", "marker": "^"},
    "exact": {"color": "#0b4f8a", "linestyle": "-", "marker": "o"},
    "geometric noise, estimated": {"color": "#1b9e77", "linestyle": (0, (6, 1.5)), "marker": "D"},
    "no privacy": {"color": "black", "linestyle": ":", "marker": ""},
    "Gaussian noise": {"color": "#a05195", "linestyle": (0, (3, 1, 1, 1)), "marker": "v"},
    "Laplace noise": {"color": "#56b4e9", "linestyle": (0, (1, 1)), "marker": "x"},
    "Gaussian noise, smoothed": {"color": "#7a7a7a", "linestyle": "--", "marker": "P"},
    "Gohari et al.": {"color": "#8c6d31", "linestyle": (0, (5, 1, 1, 1)), "marker": "*"},
    "nothing known": {"color": "0.6", "linestyle": (0, (1, 3)), "marker": ""},
}
FONT = {"font.size": 11, "axes.titlesize": 11, "legend.fontsize": 10, "lines.markersize": 5, "lines.linewidth": 1.6}


@dataclass(frozen=True)
class Verdict:
    """A word (agrees, corrected, differs, misleading), a sentence with numbers, and the numbers that it stands on."""

    word: str
    sentence: str
    numbers: dict[str, float]


@dataclass(frozen=True)
class Experiment:
    """One figure or table of a paper.

    `tolerance` is how much the numbers of a quick run may differ from those of a full one, relative to them. `data`
    says that it reads data sets from the folder of `--data`.
    """

    paper: str
    item: str
    compute: Callable[[argparse.Namespace], pd.DataFrame]
    draw: Callable[[pd.DataFrame], Figure]
    judge: Callable[[pd.DataFrame], Verdict]
    tolerance: float = 1e-4
    data: bool = False

    def main(self, file, description):
        """Do what the command line says."""
        self.run(Path(file).stem, parser(description, data=self.data).parse_args())

    def run(self, name, given):
        """Compute, and write a table, a picture and the verdict into a folder; the verdict, or None without data."""
        table = self.compute(given)
        if table.empty:
            print(f"{name}: none of the data sets is in {given.data}, so nothing is written.")
            return None
        given.out.mkdir(parents=True, exist_ok=True)
        path = given.out / f"{name}.csv"
        table.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")
        table = pd.read_csv(path)
        with matplotlib.rc_context(FONT):
            figure = self.draw(table)
            # A quick run has no numbers for some panels.
            for ax in figure.axes:
                ax.set_visible(ax.has_data() or bool(ax.texts))
            figure.savefig(path.with_suffix(".png"), dpi=110)
        plt.close(figure)
        record = self.record(table)
        path.with_suffix(".json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"{self.paper} {self.item}: {record['word']}. {record['sentence']}")
        return record

    def record(self, table):
        """The verdict on a table, as it is written to a file."""
        verdict = asdict(self.judge(table))
        verdict["numbers"] = {name: float(f"{value:.6g}") for name, value in verdict["numbers"].items()}
        return {"paper": self.paper, "item": self.item, "tolerance": self.tolerance} | verdict


def parser(description, *, data):
    """The command line that all experiments have."""
    made = argparse.ArgumentParser(description=description.splitlines()[0])
    if data:
        made.add_argument("--data", type=Path, required=True, help="folder of the data sets")
        made.add_argument("--only", nargs="*", metavar="NAME", help="some of the data sets")
    made.add_argument("--out", type=Path, required=True, help="folder for the table and the figure")
    made.add_argument("--quick", action="store_true", help="a few seconds: fewer points or fewer releases")
    return made


def releasing_parser(description):
    """The same for experiments whose full run makes as many releases as one likes."""
    made = parser(description, data=True)
    made.add_argument("--releases", type=int, default=10, help="releases at each guarantee")
    return made


def write_releases(file, description, names, run, figure, *, needs=()):
    """The main program of an experiment that reads each release in several ways: a row for each, and a picture."""
    line = releasing_parser(description)
    given = line.parse_args()
    if unknown := sorted(set(given.only or ()) - set(names)):
        line.error(f"--only takes {', '.join(names)}, and not {unknown[0]}.")
    there = len(present(given.data, needs, ".json")) == len(needs)
    given.only = present(given.data, given.only or names) if there else []
    if not given.only:
        print(f"{Path(file).stem}: none of the data sets is in {given.data}, so nothing is written.")
        return
    given.out.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        # The same people are released again and again here, on purpose.
        warnings.simplefilter("ignore", dirdp.errors.RepeatedReleaseWarning)
        figure(run(given))


def present(folder, names, ending=".csv.gz"):
    """The data sets that are in the folder; those that are not are named and left out."""
    found = [name for name in names if (folder / f"{name}{ending}").exists()]
    for name in names:
        if name not in found:
            print(f"{name}: not in {folder}, so it is left out.")
    return found


def spread(values):
    """The mean of simulated values, and the quantiles that leave out the lowest and the highest tenth."""
    low, high = np.quantile(values, [0.1, 0.9])
    return {"mean": float(np.mean(values)), "low": float(low), "high": float(high)}


def plot(ax, x, y, line, *, label=None, band=None, **options):
    """A line in its own style, with a band if there is one. Without points there is no line, and none in the legend."""
    if not len(x):
        return
    style = STYLES[line] | options
    ax.plot(x, y, label=label or line, **style)
    if band is not None:
        ax.fill_between(x, *band, color=style["color"], alpha=0.18, linewidth=0)


def plot_lines(ax, table, x, *, y="mean", column="line", **options):
    """Every line of a table in the order of the styles, with its band where the table has one."""
    for line in STYLES:
        rows = table[table[column] == line].sort_values(x)
        if len(rows):
            band = (rows["low"], rows["high"]) if "low" in rows and rows["low"].notna().all() else None
            plot(ax, rows[x], rows[y], line, band=band, **options)


def panels(rows, columns, *, width=4.3, height=3.4, legend=0.5, **options):
    """A figure of panels without the upper and right frame."""
    size = (max(width * columns, 5.2), height * rows + legend)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained", **options)
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def legend(figure, *axes, columns=2):
    """One legend below all panels, of the lines that any of them has."""
    entries = {}
    for ax in axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            entries.setdefault(label, handle)
    figure.legend(entries.values(), entries, loc="outside lower center", ncols=columns, frameon=False)
