"""Every mechanism and every curve has a page that says why it is private."""

import ast
import inspect
import pkgutil
import re
from importlib import import_module

import pytest

import pymc_dirdp
from pymc_dirdp.mechanisms.base import Mechanism
from tests import sources
from tests.sources import PACKAGE, ROOT, TEXTS, tree_of

PAGES = {name[12:-3]: text for name, text in sources.PAGES.items() if name.startswith("docs/proofs/")}
INDEX, THEORY = PAGES.pop("index"), PAGES.pop("theory")
PARTS = ("Domain", "Relation", "Output", "Privacy map", "Code", "Rounding")


def curves():
    """Classes of the package with a curve of their own: everything that knows a `renyi` and a `delta`."""
    found = set()
    for module in pkgutil.walk_packages(pymc_dirdp.__path__, "pymc_dirdp."):
        for name, thing in inspect.getmembers(import_module(module.name), inspect.isclass):
            # An audit measures, it claims nothing.
            own = thing.__module__.startswith("pymc_dirdp.") and not thing.__module__.startswith("pymc_dirdp.auditing")
            public = own and not name.startswith("_")
            has_curves = callable(getattr(thing, "renyi", None)) and callable(getattr(thing, "delta", None))
            if public and not inspect.isabstract(thing) and (has_curves or issubclass(thing, Mechanism)):
                found.add(name)
    # Curves in the plural: what composition adds up, and the interfaces that have none of their own.
    return sorted(found - {"HellingerDistributions", "Losses", "NoisyCounts"})


# What a page is about that has no curve of its own.
OTHERS = {
    *("Bound", "Counts", "LossDistribution", "Reading", "Sealed", "ComposedLoss", "RowPosterior", "TablePosterior"),
    *("Posteriors", "Sums"),
}


def owner(page):
    return set(re.findall(r"`(\w+)`", re.search(r"^Classes: (.*)$", page, re.MULTILINE)[1]))


def test_every_curve_has_a_page():
    every = set(curves())
    assert {"DirichletMechanism", "HellingerMechanism", "DominatingPair", "RandomisedResponse", "Composition"} <= every
    owned = set().union(*map(owner, PAGES.values()))
    assert every <= owned <= every | OTHERS


def parts(page):
    before, *definitions = re.split(
        r"^\*\*([A-Z][a-z ]+)\*\*\n: ", page.partition("\n## Pseudocode\n")[0], flags=re.MULTILINE
    )
    return before, dict(zip(definitions[::2], map(str.strip, definitions[1::2]), strict=True))


def defined(path):
    """The names of all functions and classes of a file, and of the methods of its classes."""
    parts = [("", tree_of(ROOT / path if path.startswith("examples/") else PACKAGE / path))]
    parts += [(f"{node.name}.", node) for node in parts[0][1].body if isinstance(node, ast.ClassDef)]
    kinds = ast.FunctionDef | ast.ClassDef
    return {f"{home}{node.name}" for home, part in parts for node in part.body if isinstance(node, kinds)}


def unresolved(code):
    """The references of a text like "`room/file.py`: `function`, `Class.method`; ..." that name nothing."""
    missing = set()
    for group in code.removesuffix(".").split("; "):
        match = re.fullmatch(r"`([\w/]+\.py)`: (`[\w.]+`(?:, `[\w.]+`)*)", group)
        assert match, f"{group!r} does not name a file and its functions"
        missing |= {f"{match[1]}: {name}" for name in set(re.findall(r"`([\w.]+)`", match[2])) - defined(match[1])}
    return missing


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_whole_and_name_what_exists(name):
    page = PAGES[name]
    for section in ("Claim", "Proof", "What it assumes", "How it was checked"):
        body = re.search(rf"^## {section}\n\n(.+?)(?=\n## |\Z)", page, re.MULTILINE | re.DOTALL)
        assert body, f"{name} lacks {section}"
        assert len(body[1]) > 10
    tests = re.findall(r"`(tests/[\w/]+\.py)`", page)
    assert tests
    assert set(tests) <= set(TEXTS)
    for theorem in re.findall(r"Theorem (\d+) (?:of \[Theory|for|:|\()", page):
        assert f"{{admonition}} Theorem {theorem}\n" in THEORY
    for section in re.findall(r"[Ss]ection (\d+)", page):
        assert re.search(rf"^## {section}\. ", THEORY, re.MULTILINE)
    assert re.search(rf"^{name}$", INDEX, re.MULTILINE)
    row = re.search(rf"^\| \[[^]]+\]\({name}\.md\) \|(.+)\|$", INDEX, re.MULTILINE)
    assert row
    assert all(cell.strip() for cell in row[1].split(" | "))
    assert len(row[1].split(" | ")) == 3
    before, definitions = parts(PAGES[name])
    introduction = before.strip().partition("\n")[2].strip()
    assert introduction
    assert "\n" not in introduction
    assert len(re.findall(r"[.!?](?= [A-Z`$\[]|$)", introduction)) <= 3
    assert tuple(definitions) == PARTS
    assert all(len(text) > 10 and "\n" not in text for text in definitions.values())
    assert "$" in definitions["Privacy map"] or "claims no privacy" in definitions["Privacy map"]
    assert not unresolved(definitions["Code"])
    pseudocode = re.search(
        r"^## Pseudocode\n\n```text\n(.+?)\n```\n\n## Claim\n", PAGES[name], re.MULTILINE | re.DOTALL
    )
    assert pseudocode
    assert 5 <= len(pseudocode[1].splitlines()) <= 15


def test_references_to_code_that_is_gone_are_found():
    assert unresolved(
        "`numerics/roots.py`: `raised`, `lowered`; `sampling/bits.py`: `Bits.below`, `Bits.uniform`."
    ) == {"numerics/roots.py: lowered", "sampling/bits.py: Bits.below"}
