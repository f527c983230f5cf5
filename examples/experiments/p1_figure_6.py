"""P1, Figure 6: the Bayesian networks of its experiments.

`uv run examples/experiments/p1_figure_6.py --data DIR --out DIR [--quick]` reads `networks.json` and draws the
networks that it holds. P1 has one of Bank, too.
"""

import json

import pandas as pd
from common import Experiment, Verdict, panels, present


def compute(given):
    rows = []
    if present(given.data, ["networks"], ".json"):
        for name, parents in json.loads((given.data / "networks.json").read_text()).items():
            # A variable stands one level below the lowest of its parents, which come before it in the file.
            level = {}
            for child, above in parents.items():
                level[child] = 1 + max((level[parent] for parent in above), default=-1)
                rows += [(name, child, level[child], parent) for parent in above or [""]]
    return pd.DataFrame(rows, columns=["data", "child", "level", "parent"])


def draw(table):
    table = table.fillna("")
    networks = list(table.groupby("data"))
    figure, axes = panels(len(networks), 1, width=8.6, height=4.2, legend=0)
    for ax, (name, rows) in zip(axes.flat, networks, strict=True):
        edges = rows.loc[rows["parent"] != "", ["child", "parent"]]
        places, boxes = {}, {}
        for level, below in rows.drop_duplicates("child").groupby("level"):
            # A level with one variable leans to one side, so that no edge runs through a variable.
            lean = (-0.22, 0.16, -0.16, 0.26)[level % 4] if len(below) == 1 else 0
            for i, child in enumerate(below["child"]):
                places[child] = ((i + 0.5) / len(below) + lean, -level - 0.3 * (i % 2))
                box = {"boxstyle": "round,pad=0.25", "facecolor": "white", "edgecolor": "#0b4f8a"}
                text = ax.text(*places[child], child, ha="center", va="center", fontsize=10, bbox=box)
                boxes[child] = text.get_bbox_patch()
        for child, parent in edges.itertuples(index=False):
            arrow = {"arrowstyle": "-|>", "color": "0.4", "patchA": boxes[parent], "patchB": boxes[child], "shrinkB": 2}
            ax.annotate("", places[child], places[parent], arrowprops=arrow, zorder=1)
        lowest = min(y for _, y in places.values())
        ax.set(
            title=f"{name}: {len(places)} variables, {len(edges)} edges",
            xlim=(-0.05, 1.05),
            ylim=(lowest - 0.4, 0.4),
            xticks=[],
            yticks=[],
        )
        ax.spines[:].set_visible(False)
    return figure


def judge(table):
    table = table.fillna("")
    sentences = [
        f"{name} has {rows['child'].nunique()} variables and {int((rows['parent'] != '').sum())} edges"
        for name, rows in table.groupby("data")
    ]
    return Verdict(
        "agrees",
        f"{' and '.join(sentences)}, without a cycle."
        f"{'' if 'bank' in set(table['data']) else ' That of Bank is not at hand.'}",
        {f"{name}, edges": float((rows["parent"] != "").sum()) for name, rows in table.groupby("data")},
    )


EXPERIMENT = Experiment("P1", "Figure 6", compute, draw, judge, data=True)

if __name__ == "__main__":
    EXPERIMENT.main(__file__, __doc__)
