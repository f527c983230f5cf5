"""The published figures and tables: their verdicts and numbers, and pictures from the tables that full runs wrote.

The tables and verdicts in `figures/` are written by the scripts of `examples/experiments`; `tests/test_figures.py` sees
to it that they agree with what the scripts compute.
"""

import html
import importlib
import io
import json
import sys
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import Image, display

FIGURES = Path(__file__).parent / "figures"
sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "experiments"))


def show(name: str) -> None:
    """Draw the picture of an experiment from its table, and put it on the page.

    A page shows figures by itself only while Matplotlib is interactive, and the end of a context takes that back, so
    it is set again for the cells that follow. A notebook would lay each figure out twice, to cut its borders off.
    """
    import common

    with matplotlib.rc_context(common.FONT):
        figure = importlib.import_module(name).EXPERIMENT.draw(pd.read_csv(FIGURES / f"{name}.csv"))
        file = io.BytesIO()
        figure.savefig(file, format="png")
    plt.close(figure)
    display(Image(file.getvalue()))
    plt.ion()


def table() -> str:
    """Paper, item and verdict of every experiment, as HTML."""
    records = [(path.stem, json.loads(path.read_text(encoding="utf-8"))) for path in FIGURES.glob("*.json")]
    lines = ["<tr><th>Paper, item</th><th>Verdict, and the script that says so</th></tr>"]
    for name, record in sorted(records, key=lambda pair: (pair[1]["paper"], _number(pair[1]["item"]))):
        said = f"<i>{record['word']}</i>. {html.escape(record['sentence'], quote=False)} <code>{name}</code>"
        lines.append(f"<tr><td>{record['paper']}, {record['item']}</td><td>{said}</td></tr>")
    return f'<table class="verdicts">{"".join(lines)}</table>'


def certificate(*kinds: str) -> str:
    """What `examples/experiments/all.py` wrote of figures and numbers, of statements, or of errata, as HTML."""
    rows = pd.read_csv(FIGURES / "certificate.csv", keep_default_na=False, dtype=str)
    lines = ["<tr><th>Paper, item</th><th>Printed</th><th>Ours</th><th>Without it</th><th>Verdict</th><th>s</th></tr>"]
    for row in rows[rows["kind"].isin(kinds)].itertuples(index=False):
        what = row.what if row.outside else f"<code>{row.what.replace('`', '')}</code>"
        item = {
            "figure": f"<b>{row.item}</b>",
            "number": row.what,
            "statement": f"<b>{row.item.replace('`', '')}</b><br>{what}",
        }.get(row.kind, f"{row.item}. {row.what}")
        numbers = [html.escape(cell, quote=False) for cell in (row.printed, row.ours, row.outside)]
        verdict = html.escape(row.verdict, quote=False)
        # A verdict without numbers takes their columns.
        beside = (
            [f"<td>{cell}</td>" for cell in (*numbers, verdict)]
            if any(numbers)
            else [f'<td colspan="4">{verdict}</td>']
        )
        lines.append(f"<tr><td>{item}</td>{''.join(beside)}<td>{row.seconds}</td></tr>")
    return f'<table class="verdicts">{"".join(lines)}</table>'


def in_r() -> str:
    """What `examples/experiments/outside.R` wrote, beside the records, as HTML."""
    lines = ["<tr><th>Paper, item</th><th>Number</th><th>Ours</th><th>R</th></tr>"]
    for row in pd.read_csv(FIGURES / "outside_r.csv", dtype=str).itertuples(index=False):
        record = json.loads((FIGURES / f"{row.name}.json").read_text(encoding="utf-8"))
        cells = (f"{record['paper']}, {record['item']}", row.what, f"{record['numbers'][row.what]:g}", row.r)
        lines.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return f'<table class="verdicts">{"".join(lines)}</table>'


def _number(item: str) -> tuple[int, str]:
    """Figures in the order of their numbers, and tables and appendices after them."""
    first = item.split()[1]
    return (int(first) if first.isdigit() and item.startswith("Fig") else 99, item)
