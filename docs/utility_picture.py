"""Expected errors by the number of records, from the table that `benchmarks/utility_table.py` wrote."""

from pathlib import Path

import matplotlib.pyplot as plt
from compare_tables import markdown_rows

FILE = Path(__file__).parent / "figures" / "utility_table.md"
PANELS = {
    "10 cells, flat, epsilon 1": ("flat", "10", "1"),
    "10 cells, sparse, epsilon 1": ("sparse", "10", "1"),
    "1000 cells, sparse, epsilon 0.1": ("sparse", "1000", "0.1"),
}
STYLES = {
    "Dirichlet draw": ("a Dirichlet draw itself", {"color": "#c8452d", "marker": "o", "linestyle": ":"}),
    "Dirichlet": ("estimate from a Dirichlet draw", {"color": "#c8452d", "marker": "o", "linestyle": "--"}),
    "gaussian": ("estimate from Gaussian noise", {"color": "#7b4fa3", "marker": "P", "linestyle": "-."}),
    "geometric": ("estimate from geometric noise", {"color": "#0b1f4d", "marker": "s", "linestyle": "-"}),
    "posterior": ("posterior mean, not private", {"color": "0.4", "linestyle": ":"}),
}


def picture():
    """A panel for each kind of table: the error of each mechanism over the number of records."""
    rows = markdown_rows(FILE.read_text(encoding="utf-8"))
    figure, axes = plt.subplots(1, len(PANELS), figsize=(10, 4.4), sharey=True, layout="constrained")
    for ax, (title, setting) in zip(axes, PANELS.items(), strict=True):
        selected = [row for row in rows if (row["data"], row["d"], row["epsilon"]) == setting]
        records = [float(row["N"]) for row in selected]
        for column, (label, style) in STYLES.items():
            ax.plot(records, [float(row[column]) for row in selected], label=label, markersize=5, **style)
        ax.set(xscale="log", yscale="log", title=title, xlabel="records")
        ax.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("expected KL from the true shares (nats)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure
