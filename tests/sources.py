"""The source files of the package, parsed once for all tests that read them."""

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "pymc_dirdp"
FILES = sorted(PACKAGE.rglob("*.py"))


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
