"""One page about every number of the papers: printed, ours, computed without the library, verdict, time.

`uv run examples/experiments/all.py --out DIR [--data DIR] [--quick] [--only NAME ...]` runs the scripts of this folder
for every figure and table, the errata of `docs/errata.md`, a number for each statement of `docs/papers.md` that has
one, and the same by `outside.py` and `outside_simulated.py`, which import nothing of the library. It writes
`index.html` with the pictures, and `certificate.csv` behind it. With `--only` the rows of other figures stay as an
earlier run wrote them into the same folder; without a name after it errata and statements alone are computed again.
"""

import argparse
import contextlib
import csv
import html
import importlib
import io
import math
import re
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
FIGURES = sorted(path.stem for path in HERE.glob("p[1-4]_*.py") if "EXPERIMENT =" in path.read_text(encoding="utf-8"))
NOT_AT_HAND = "not run: needs data sets of P1, see p1_data.py, in the folder of --data"


@dataclass(frozen=True)
class Row:
    """A line of the certificate. Columns that do not apply are empty."""

    kind: str
    item: str
    what: str
    printed: str = ""
    ours: str = ""
    outside: str = ""
    verdict: str = ""
    seconds: str = ""


def figure_rows(name, given):
    """The verdict on a figure, and a row for each number that it stands on."""
    import outside_simulated

    outside = outside_simulated.every(given.data)
    experiment = importlib.import_module(name).EXPERIMENT
    item = f"{experiment.paper} {experiment.item}"
    if experiment.data and given.data is None:
        return [Row("figure", item, name, verdict=NOT_AT_HAND)]
    start = time.perf_counter()
    record = experiment.run(name, argparse.Namespace(out=given.out, quick=given.quick, data=given.data, only=None))
    if record is None:
        return [Row("figure", item, name, verdict=NOT_AT_HAND)]
    seconds = f"{time.perf_counter() - start:.1f}"
    said = f"{'With --quick: ' if given.quick else ''}{record['word']}. {record['sentence']}"
    rows = [Row("figure", item, name, verdict=said, seconds=seconds)]
    for what, ours in record["numbers"].items():
        column = "printed" if re.search(r"\bprinted\b", what) else "ours"
        other = outside.get((name, what))
        rows.append(compared(Row("number", item, what), column, ours, other, outside_simulated.tolerance((name, what))))
    return rows


def compared(row, column, ours, other, near):
    """The row with the number, the same without the library where there is a function for that, and the verdict."""
    row = replace(row, **{column: f"{ours:.6g}"})
    if other is None:
        return row
    start = time.perf_counter()
    value = float(other())
    same = "the same" if near < 0.001 else f"within {near:.0%}"
    verdict = same if math.isclose(value, ours, rel_tol=near) else "DIFFERENT"
    verdict = f"{row.verdict}; {verdict}" if row.verdict else verdict
    return replace(row, outside=f"{value:.6g}", verdict=verdict, seconds=f"{time.perf_counter() - start:.1f}")


def errata_rows():
    """Each erratum, with what its cell prints."""
    page = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    cells = re.findall(r"^```\{code-cell\} ipython3\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    shared = {}
    exec(cells[0], shared)
    rows = []
    for (number, title), cell in zip(
        re.findall(r"^### (P\d\.\d+)\. (.*)$", page, re.MULTILINE), cells[1:], strict=True
    ):
        start, said = time.perf_counter(), io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                exec(cell, dict(shared))
            verdict = "shown"
        except AssertionError:
            verdict = "NOT SHOWN"
        seconds = f"{time.perf_counter() - start:.1f}"
        shown = " ".join(said.getvalue().split())
        rows.append(Row("erratum", number, title, ours=shown, verdict=verdict, seconds=seconds))
    return rows


def statement_rows():
    """The table of statements of `docs/papers.md`: its functions, or a number of each that has one."""
    import outside
    import statements

    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    table = page[page.index("| Statement |") :].split("\n\n", maxsplit=1)[0]
    rows = []
    for line in table.splitlines()[2:]:
        statement, functions, verdict = (cell.strip() for cell in line.strip("|").split(" | "))
        row = Row("statement", statement, functions, verdict=verdict.split("*")[1])
        if (found := statements.number_of(statement)) is not None:
            key, what, ours, other = found
            near = statements.TOLERANCE.get(key, outside.NEAR)
            row = compared(replace(row, what=what), "ours", float(ours()), other, near)
        rows.append(row)
    return rows


def as_text(text):
    """A cell as HTML: the little Markdown that verdicts have."""
    made = html.escape(text, quote=False)
    made = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", made)
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", re.sub(r"\*([^*]+)\*", r"<i>\1</i>", made))


def earlier_rows(given):
    """The rows of the figures that this run leaves out, as an earlier run wrote them."""
    path = given.out / "certificate.csv"
    if given.only is None or not path.exists():
        return []
    with path.open(encoding="utf-8", newline="") as file:
        rows = [Row(**row) for row in csv.DictReader(file)]
    again = {row.item for row in rows if row.kind == "figure" and row.what in given.only}
    return [row for row in rows if row.kind in ("figure", "number") and row.item not in again]


def wrong_rows(rows):
    return [row for row in rows if re.search(r"DIFFERENT|NOT SHOWN", row.verdict)]


def page_of(rows):
    """The page, with each picture below its verdict."""
    wrong = wrong_rows(rows)
    compared = [row for row in rows if row.outside]
    ran = [row for row in rows if row.kind == "figure" and row.verdict != NOT_AT_HAND]
    figures = [row for row in rows if row.kind == "figure"]
    quick = sum(row.verdict.startswith("With --quick") for row in ran)
    said = (
        f"{len(ran)} of {len(figures)} scripts of figures and tables ran, {quick} of them with --quick; "
        f"{len(compared)} numbers were computed once more without the library; "
        f"{sum(row.kind == 'erratum' for row in rows)} errata were shown; {len(wrong)} are not as they should be."
    )
    names = list(Row.__dataclass_fields__)
    lines = [
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Certificate</title><style>body{font-family:'
        "sans-serif;max-width:75em;margin:2em auto;padding:0 1em}td,th{padding:.2em .6em;text-align:left;"
        "vertical-align:top;border-bottom:1px solid #ddd}img{max-width:45em;width:100%}</style>",
        f"<h1>Every number of the papers</h1><p>{said}</p>",
        f"<table><tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>",
    ]
    for row in rows:
        cells = (as_text(getattr(row, name)) for name in names)
        lines.append(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
        if row in ran:
            lines.append(f'<tr><td colspan="{len(names)}"><img alt="{row.item}" src="{row.what}.png"></td></tr>')
    return "\n".join([*lines, "</table></html>"]), said


def main():
    line = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    line.add_argument("--out", type=Path, required=True, help="folder for the page")
    line.add_argument("--data", type=Path, help="folder of the data sets of P1, and of networks.json")
    line.add_argument("--quick", action="store_true", help="some minutes: fewer points, fewer releases")
    line.add_argument("--only", nargs="*", metavar="NAME", choices=FIGURES, help="some of the figures")
    given = line.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    rows = earlier_rows(given)
    for name in FIGURES if given.only is None else given.only:
        rows += figure_rows(name, given)
    # Numbers stay below their figure.
    rows = sorted(rows, key=lambda row: row.item) + errata_rows() + statement_rows()
    with (given.out / "certificate.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(Row.__dataclass_fields__), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    page, said = page_of(rows)
    (given.out / "index.html").write_text(page, encoding="utf-8")
    print(said)
    if wrong := wrong_rows(rows):
        sys.exit(f"Not as they should be: {'; '.join(f'{row.item}, {row.what}' for row in wrong)}")


if __name__ == "__main__":
    main()
