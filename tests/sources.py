"""The source files of the package and the pages, read once for all tests that look at them."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE, DOCS = ROOT / "pymc_dirdp", ROOT / "docs"
FILES = sorted(PACKAGE.rglob("*.py"))
FOLDERS = ("pymc_dirdp", "tests", "examples", "docs", ".github")
KINDS = {".md", ".py", ".pyi", ".toml", ".txt", ".ipynb", ".yml"}
# Every text of the repository by its path; a page is one with the ending of its name.
TEXTS = {
    path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
    for path in (*ROOT.glob("*.md"), *(path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))))
    if path.suffix in KINDS
}
PAGES = {name: text for name, text in TEXTS.items() if re.match(r"(docs/.*|\w+)\.md$", name)}
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def code_in(page, kind="{code-cell} ipython3"):
    """The blocks of code of a page that are of a kind."""
    return re.findall(rf"^```{re.escape(kind)}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def rows_of(page, head):
    """The cells of each row of the table that begins with a cell."""
    rows = re.search(rf"^\| {re.escape(head)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", page, re.MULTILINE)[1]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows.splitlines()]


@cache
def tree_of(path):
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def docstrings(path):
    """The docstrings of a file, without examples, whose output may quote names of the library."""
    parts = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    return [(ast.get_docstring(node) or "").partition("\nExamples\n")[0] for node in parts]


def texts_in(tree):
    """All texts of a piece of code that are no docstrings, with braces in the place of what is filled in."""
    pieces = {id(piece) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for piece in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):  # A docstring.
            pieces |= {id(node.value)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(piece.value if isinstance(piece, ast.Constant) else "{}" for piece in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in pieces:
            yield node.value


@cache
def texts_of(path):
    return list(texts_in(tree_of(path)))
