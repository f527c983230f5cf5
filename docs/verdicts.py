"""The published figures and tables: their verdicts, and their pictures from the tables that full runs wrote.

The tables and verdicts in `figures/` are written by the scripts of `examples/experiments`; `tests/test_figures.py` sees
to it that they agree with what the scripts compute.
"""

import html
import importlib
import json
import sys
from pathlib import Path

import matplotlib
import pandas as pd

FIGURES = Path(__file__).parent / "figures"
sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "experiments"))


def show(name: str) -> None:
    """Draw the picture of an experiment from its table."""
    import common

    with matplotlib.rc_context(common.FONT):
        importlib.import_module(name).EXPERIMENT.draw(pd.read_csv(FIGURES / f"{name}.csv"))


def table() -> str:
    """Paper, item and verdict of every experiment, as HTML."""
    records = [(path.stem, json.loads(path.read_text(encoding="utf-8"))) for path in FIGURES.glob("*.json")]
    lines = ["<tr><th>Paper</th><th>Item</th><th>Verdict</th><th>Script</th></tr>"]
    for name, record in sorted(records, key=lambda pair: (pair[1]["paper"], _number(pair[1]["item"]))):
        said = f"<i>{record['word']}</i>. {html.escape(record['sentence'], quote=False)}"
        cells = (record["paper"], record["item"], said, f"<code>{name}</code>")
        lines.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _number(item: str) -> tuple[int, str]:
    """Figures in the order of their numbers, and tables and appendices after them."""
    first = item.split()[1]
    return (int(first) if first.isdigit() and item.startswith("Fig") else 99, item)
