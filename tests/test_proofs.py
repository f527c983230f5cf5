"""Every mechanism and every curve has a page that says why it is private."""

import inspect
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest

import pymc_dirdp
from pymc_dirdp.mechanisms.base import Mechanism

ROOT = Path(__file__).parents[1]
PAGES = {
    path.stem: path.read_text()
    for path in sorted((ROOT / "docs" / "proofs").glob("*.md"))
    if path.stem not in {"index", "theory"}
}


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


def owner(page):
    return set(re.findall(r"`(\w+)`", re.search(r"^Classes: (.*)$", page, re.MULTILINE)[1]))


def test_every_curve_has_a_page():
    every = set(curves())
    assert {"DirichletMechanism", "HellingerMechanism", "DominatingPair", "RandomisedResponse", "Composition"} <= every
    assert not every.difference(*map(owner, PAGES.values()))


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_whole_and_name_what_exists(name):
    page = PAGES[name]
    for section in ("Claim", "Proof", "What it assumes", "How it was checked"):
        body = re.search(rf"^## {section}\n\n(.+?)(?=\n## |\Z)", page, re.MULTILINE | re.DOTALL)
        assert body, f"{name} lacks {section}"
        assert len(body[1]) > 10
    tests = re.findall(r"`(tests/[\w/]+\.py)`", page)
    assert tests
    assert all((ROOT / test).exists() for test in tests)
    theory = (ROOT / "docs" / "proofs" / "theory.md").read_text()
    for theorem in re.findall(r"Theorem (\d+) (?:of \[Theory|for|:|\()", page):
        assert f"{{admonition}} Theorem {theorem}\n" in theory
    for section in re.findall(r"[Ss]ection (\d+)", page):
        assert re.search(rf"^## {section}\. ", theory, re.MULTILINE)
    assert name in (ROOT / "docs" / "proofs" / "index.md").read_text()


def test_every_page_is_about_something_that_exists():
    known = set(curves()) | {
        "Bound",
        "Counts",
        "LossDistribution",
        "ComposedLoss",
        "RowPosterior",
        "TablePosterior",
        "Posteriors",
        "Sums",
    }
    for page in PAGES.values():
        assert owner(page) <= known
