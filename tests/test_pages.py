"""The README and the pages: what they show runs, what they link to is there, and what they print is what was meant."""

import ast
import importlib
import re
import warnings
from pathlib import Path

import pymc_dirdp as dirdp

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
PAGES = {path.relative_to(ROOT).as_posix(): path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))}
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_CODE = re.compile(r"`[^`]*`")


def test_the_readme_makes_a_file_and_reads_it(tmp_path, monkeypatch, capsys):
    """With the file and the second piece of code alone one gets estimates and draws; the third plans r, alpha, KL."""
    monkeypatch.chdir(tmp_path)
    makes, reads, card = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
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


def test_the_readme_is_a_screen_and_a_half():
    assert len(README.split()) <= 800
    assert len(README.splitlines()) <= 100


def test_links_to_files_lead_somewhere():
    root = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("*.md")}
    assert {"README.md", "CONTRIBUTING.md", "SECURITY.md"} <= set(root)
    broken = []
    for name, text in {**root, **PAGES}.items():
        targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", _CODE.sub("", _FENCED.sub("", text)))
        broken += [(name, target) for target in targets if not (ROOT / name).parent.joinpath(target).exists()]
    assert not broken


def test_the_gallery_has_every_picture_in_a_cell_that_runs_by_itself():
    cells = re.findall(r"^```{code-cell} ipython3\n(.*?)^```", PAGES["docs/gallery.md"], re.DOTALL | re.MULTILINE)
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
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
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
    paper = (ROOT / "docs" / "paper" / "paper.md").read_text(encoding="utf-8")
    entries = re.findall(r"^@\w+\{(\w+),", (ROOT / "docs" / "paper" / "paper.bib").read_text(encoding="utf-8"), re.M)
    assert set(re.findall(r"@(\w+)", _FENCED.sub("", paper.split("---\n", 2)[2]))) == set(entries)
    assert len(entries) == len(set(entries))


def test_each_workflow_runs_what_is_there():
    """A path in a workflow that nobody has tried since is found out on the day of a release."""
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert {path.stem for path in workflows} == {"docs", "release", "tests", "weekly"}
    for path in workflows:
        text = path.read_text(encoding="utf-8")
        for script in re.findall(r"bash (\S+)", text) + re.findall(r"uses: \./(\S+)", text):
            assert (ROOT / script).exists(), script
    versions = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = re.search(r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "tests.yml").read_text(encoding="utf-8"))
    assert re.findall(r"3\.\d+", listed[1]) == versions


def test_tests_that_known_vulnerabilities_name_exist():
    named = set(re.findall(r"`((?:\w+/)?test_\w+\.py)`", PAGES["docs/vulnerabilities.md"]))
    assert len(named) > 90
    assert [name for name in sorted(named) if not (ROOT / "tests" / name).is_file()] == []
