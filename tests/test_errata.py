"""The errata of the papers: each citation leads somewhere, and each erratum shows what it says."""

import re

import pytest

from tests.sources import PAGES, TEXTS, code_in

PAGE = PAGES["docs/errata.md"]
SECTIONS = dict(re.findall(r"^### (P[1-4]\.\d+)\. (.*?)(?=^\(errata-|\Z)", PAGE, re.DOTALL | re.MULTILINE))
_CITED = re.compile(r"ERRATA,?\s+(P[1-4]\.\d+(?:(?:,| to| and)\s+P[1-4]\.\d+)*)")


def citations(text):
    """Every number that a text cites, also the second of "P3.2 and P3.6" and those within "P4.1 to P4.3"."""
    found = set()
    for cited in _CITED.findall(re.sub(r"\s*\n\s*(?:#\s*)?", " ", text)):
        found |= set(re.findall(r"P\d\.\d+", cited))
        for paper, first, last in re.findall(r"(P\d)\.(\d+) to P\d\.(\d+)", cited):
            found |= {f"{paper}.{number}" for number in range(int(first), int(last) + 1)}
    return found


def test_every_citation_leads_to_an_erratum():
    others = {name: text for name, text in TEXTS.items() if name != "tests/test_errata.py"}
    cited = {number: name for name, text in others.items() for number in citations(text)}
    assert {"P1.1", "P3.2", "P3.6", "P4.2", "P4.12"} <= set(cited)
    assert not {number: name for number, name in cited.items() if number not in SECTIONS}
    bare = re.compile(r"ERRATA,?\s+P\d(?!\.\d)")
    assert not [name for name, text in others.items() if name.endswith(".py") and bare.search(text)]
    assert citations("(ERRATA P3.2 and P3.6).") == {"P3.2", "P3.6"}
    assert citations("ERRATA P4.1 to P4.3; Theory") == {"P4.1", "P4.2", "P4.3"}
    assert citations("(ERRATA\n    P1.6). ERRATA, P2.5: three") == {"P1.6", "P2.5"}
    assert citations("see ERRATA P9.1, P3") == set()


def test_errata_are_numbered_without_gaps_and_have_anchors():
    for paper in ("P1", "P2", "P3", "P4"):
        numbers = [int(number[3:]) for number in SECTIONS if number.startswith(paper)]
        assert numbers == list(range(1, len(numbers) + 1))
    anchors = re.findall(r"^\(errata-(.*)\)=$", PAGE, re.MULTILINE)
    assert anchors == [number.lower().replace(".", "-") for number in SECTIONS]


def test_each_erratum_shows_its_counterexample(capsys):
    shared = {}
    exec(code_in(PAGE)[0], shared)
    for number, section in SECTIONS.items():
        (cell,) = code_in(section)
        assert "assert " in cell, number
        exec(cell, dict(shared))
        assert capsys.readouterr().out, number
    # The cells can fail: with a prior of 2 in the place of 0.1, P1's Theorem 2 holds, and the cell says so.
    (cell,) = code_in(SECTIONS["P1.1"])
    with pytest.raises(AssertionError):
        exec(cell.replace("1000, 0.1, 100.0", "10, 2.0, 1000.0"), dict(shared))
