"""P1, Table 1: the data sets of its experiments.

`uv run examples/experiments/p1_table_1.py --data DIR --out DIR [--quick]` counts records, attributes, classes and the
share of the rarer class of two, as the files have them.
"""

import p1_data
import pandas as pd
from common import Experiment, Verdict, panels

PRINTED = {
    "credit_card": (30000, 23, 2, 0.22),
    "thyroid": (7200, 21, 3, None),
    "shopper_paper_rounded": (12330, 17, 2, 0.15),
    "digit": (5620, 64, 10, None),
    "german_credit": (1000, 20, 2, 0.30),
    "bank": (41188, 20, 2, 0.11),
    "spam": (4601, 57, 2, 0.39),
    "adult": (48842, 13, 2, 0.24),
}
COLUMNS = ("records", "attributes", "classes", "rarer class")


def compute(given):
    rows = []
    for name in p1_data.present(given.data, given.only or PRINTED):
        target, dropped, _ = p1_data.DATA[name]
        table = p1_data.read(given.data, name).drop(columns=dropped)
        shares = table[target].value_counts(normalize=True)
        found = (len(table), table.shape[1] - 1, len(shares), shares.min() if len(shares) == 2 else None)
        rows += [(name, *row) for row in zip(COLUMNS, PRINTED[name], found, strict=True)]
    return pd.DataFrame(rows, columns=["data", "what", "printed", "found"])


def draw(table):
    names = list(dict.fromkeys(table["data"]))
    figure, axes = panels(1, len(COLUMNS), width=2.7, height=0.8 + 0.4 * len(names), legend=0, sharey=True)
    for ax, what in zip(axes.flat, COLUMNS, strict=True):
        rows = table[table["what"] == what].set_index("data").reindex(names)
        places = range(len(names))
        ax.barh(places, rows["found"].fillna(0), color="#0b4f8a", label="in the file")
        ax.plot(rows["printed"], places, linestyle="", marker="s", color="#d55e00", label="printed")
        ax.set(title=what, yticks=places, yticklabels=names)
        ax.ticklabel_format(axis="x", style="sci", scilimits=(-2, 4))
    axes[0, 0].invert_yaxis()
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure


def judge(table):
    both = table.dropna()
    wrong = both[(both["found"].round(2) - both["printed"]).abs() > 1e-9]
    names = list(dict.fromkeys(table["data"]))
    differences = "; ".join(
        f"{row.data}, {row.what}: {row.found:.5g}, not {row.printed:.5g}" for row in wrong.itertuples()
    )
    return Verdict(
        "differs" if len(wrong) else "agrees",
        f"The {len(names)} data sets at hand have the printed numbers"
        f"{f', but for {differences}' if differences else ''}. "
        "Adult has 13 attributes without the survey weight of a record; P1 does not say which one it leaves out.",
        {f"{row.data}, {row.what}": row.found for row in both.itertuples()},
    )


EXPERIMENT = Experiment("P1", "Table 1", compute, draw, judge, data=True)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
