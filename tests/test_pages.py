"""The README and the pages: what they show runs, what they link to is there, and what they print is what was meant."""

import ast
import importlib
import re
import warnings

import pymc_dirdp as dirdp
from pymc_dirdp import errors
from tests.sources import DOCS, FENCED, FILES, PAGES, ROOT, TEXTS, code_in, texts_in, texts_of

README = PAGES["README.md"]


def test_the_readme_makes_a_file_and_reads_it(tmp_path, monkeypatch, capsys):
    """With the file and the second piece of code alone one gets estimates and draws; the third plans r, alpha, KL."""
    assert len(README.split()) <= 800
    assert len(README.splitlines()) <= 100
    monkeypatch.chdir(tmp_path)
    makes, reads, card = code_in(README, "python")
    (writes,) = re.findall(r"`(dirdp\.save\([^`]*)`", README)
    made: dict[str, object] = {}
    exec(makes + writes, made)
    assert "Private posterior draw of p" in capsys.readouterr().out
    found = {}
    exec(reads, found)
    said = capsys.readouterr().out
    assert "follows from the numbers" in said
    assert "p[brown]" in said
    assert dict(found["posterior"]["posterior"].sizes)["hair"] == 4
    # Nothing is released again, and the two guarantees give different mechanisms.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        exec(card, made)
    said = capsys.readouterr().out
    assert all(said.count(word) == 2 for word in ("alpha [", "  utility    KL ", "Plan of"))
    assert len(set(re.findall(r"^r (.*) alpha", said, re.MULTILINE))) == 2


def test_links_to_files_lead_somewhere():
    assert {"README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/index.md"} <= set(PAGES)
    broken = []
    for name, text in PAGES.items():
        targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", re.sub(r"`[^`]*`", "", FENCED.sub("", text)))
        broken += [(name, target) for target in targets if not (ROOT / name).parent.joinpath(target).exists()]
    assert not broken


def test_the_gallery_has_every_picture_in_a_cell_that_runs_by_itself():
    cells = code_in(PAGES["docs/gallery.md"])
    for name in dirdp.plots.__all__:
        assert any(f"dirdp.plots.{name}(" in cell for cell in cells), name
    for cell in cells:
        code = "\n".join(line for line in cell.splitlines() if not line.startswith(":"))
        known = {
            alias.asname or alias.name for node in ast.walk(ast.parse(code)) for alias in getattr(node, "names", ())
        }
        assert {name for name in ("dirdp", "pm", "np", "az", "beta") if re.search(rf"\b{name}[.(]", code)} <= known


def test_tables_of_pages_have_all_their_rows(monkeypatch):
    """They are read from files and pages that others change, and an empty table would look like a short one."""
    monkeypatch.syspath_prepend(str(DOCS))
    tables, wide = (importlib.import_module(name) for name in ("compare_tables", "wide_table"))
    compared = {cell: methods for cell, methods in wide.cells().items() if cell[1]}
    for made, rows in (
        (tables.pairs(), 4),
        (tables.coverage(), 17),
        (tables.bandits(), 10),
        (wide.rivals(), sum(map(len, compared.values()))),
        (wide.costs(), 4),
        (wide.coverage(), 12),
    ):
        assert made.count("<tr>") == rows + 1
    # The best of the others knows of its noise, and each guarantee has this library beside AIM.
    assert "noise ignored" not in tables.bandits()
    assert len({epsilon for _, epsilon in compared}) >= 4
    assert all("latent_class" in methods for methods in compared.values())
    assert sum("AIM" in methods for methods in compared.values()) >= 4


def test_the_paper_cites_what_its_bibliography_holds_and_nothing_else():
    entries = re.findall(r"^@\w+\{(\w+),", (DOCS / "paper" / "paper.bib").read_text(encoding="utf-8"), re.MULTILINE)
    text = FENCED.sub("", PAGES["docs/paper/paper.md"].split("---\n", 2)[2])
    assert set(re.findall(r"@(\w+)", text)) == set(entries)
    assert len(entries) == len(set(entries))


def test_each_workflow_runs_what_is_there():
    """A path in a workflow that nobody has tried since is found out on the day of a release."""
    workflows = {
        found[1]: text for name, text in TEXTS.items() if (found := re.match(r"\.github/workflows/(\w+)\.yml", name))
    }
    assert set(workflows) == {"docs", "release", "tests", "weekly"}
    for text in workflows.values():
        for script in re.findall(r"bash (\S+)", text) + re.findall(r"uses: \./(\S+)", text):
            assert (ROOT / script).exists(), script
    versions = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert re.findall(r"3\.\d+", re.search(r"python: \[(.*)\]", workflows["tests"])[1]) == versions


def test_tests_that_known_vulnerabilities_name_exist():
    named = set(re.findall(r"`((?:\w+/)?test_\w+\.py)`", PAGES["docs/vulnerabilities.md"]))
    assert len(named) > 80
    assert [name for name in sorted(named) if not (ROOT / "tests" / name).is_file()] == []


# The page of errors by their text: each heading is a text of the package, and each class of errors is explained.

TROUBLE = PAGES["docs/troubleshooting.md"]
HEADINGS = re.findall(r"^### (.*)$", TROUBLE, re.MULTILINE)


def occurs(heading, texts):
    """Whether the parts of a heading stand in one text, in their order."""
    parts = re.compile(".*".join(re.escape(part.strip()) for part in heading.split("…")), re.DOTALL)
    return any(parts.search(text) for text in texts)


def test_each_heading_is_a_text_of_the_package():
    texts = [text for path in FILES for text in texts_of(path)]
    assert [heading for heading in HEADINGS if not occurs(heading, texts)] == []
    texts = list(texts_in(ast.parse('raise ValueError(f"The column {name!r} holds {n} texts.")')))
    assert occurs("The column … holds", texts)
    assert not occurs("The column … has", texts)
    assert not occurs("holds … The column", texts)


def test_each_error_and_warning_is_explained():
    classes = {name for name in errors.__all__ if isinstance(getattr(errors, name), type)}
    assert len(classes) > 15
    assert {name for name in classes if f"`{name}`" not in TROUBLE} == set()
    for entry in re.split(r"^#+ ", TROUBLE, flags=re.MULTILINE):
        if (heading := entry.splitlines()[:1]) and heading[0] in HEADINGS:
            _, why, what, *more = entry.strip().split("\n\n")
            assert re.match(r"`\w+(Error|Warning)`\. [A-Z`]", why), heading
            assert what[0].isupper(), heading
            assert not more, heading
