"""The README and the pages: what they show runs, what they link to is there, and what they print is what was meant."""

import ast
import importlib
import json
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


def test_the_first_pages_say_what_a_pymc_user_looks_for():
    for name, text in (
        ("README.md", README),
        *((page, PAGES[page]) for page in ("docs/index.md", "docs/quickstart.md")),
    ):
        for word in ("Beta-Binomial", "Dirichlet-Multinomial", "diagnostics", "tCDP", "Rényi"):
            assert word in _FENCED.sub("", text), (name, word)


def test_links_to_files_lead_somewhere():
    root = {path.name: path.read_text(encoding="utf-8") for path in ROOT.glob("*.md")}
    assert {"README.md", "CONTRIBUTING.md", "SECURITY.md"} <= set(root)
    broken = []
    for name, text in {**root, **PAGES}.items():
        targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", _CODE.sub("", _FENCED.sub("", text)))
        broken += [(name, target) for target in targets if not (ROOT / name).parent.joinpath(target).exists()]
    assert not broken


def test_a_power_is_not_read_as_the_beginning_of_bold_letters():
    """Markdown takes the asterisks of two powers in one paragraph for bold letters between them."""
    prose = {name: _CODE.sub("", _FENCED.sub("", text)) for name, text in PAGES.items()}
    assert not {name: found for name, text in prose.items() if (found := re.findall(r"\w\*\*-?\w.*", text))}


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


def test_the_tables_of_what_is_new_have_all_their_rows(monkeypatch):
    """They are read from files and pages that others change, and an empty table would look like a short one."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    tables = importlib.import_module("compare_tables")
    for made, rows in ((tables.pairs(), 4), (tables.coverage(), 17), (tables.bandits(), 10)):
        assert made.count("<tr>") == rows + 1
    assert "<td>10 cells, N 1e4, r 0.02</td><td>1000</td><td>95.1%</td><td>22.5%</td>" in tables.coverage()
    # The best of the others knows of its noise.
    assert "noise ignored" not in tables.bandits()


def test_the_page_of_wide_tables_has_its_figures(monkeypatch):
    """Each guarantee has this library and AIM beside it, and each picture its lines."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    tables = importlib.import_module("wide_table")
    compared = {cell: methods for cell, methods in tables.cells().items() if cell[1]}
    assert len({epsilon for _, epsilon in compared}) >= 4
    assert all("latent_class" in methods for methods in compared.values())
    assert sum("AIM" in methods for methods in compared.values()) >= 4
    assert tables.rivals().count("<tr>") == 1 + sum(map(len, compared.values()))
    assert tables.costs().count("<tr>") == 5
    assert tables.coverage().count("<tr>") == 1 + 3 * 4
    assert len(tables.pair_picture().axes[0].lines) == 4
    assert len(tables.error_picture().legends[0].texts) == 3


def test_the_paper_cites_what_its_bibliography_holds_and_nothing_else():
    paper = (ROOT / "docs" / "paper" / "paper.md").read_text(encoding="utf-8")
    entries = re.findall(r"^@\w+\{(\w+),", (ROOT / "docs" / "paper" / "paper.bib").read_text(encoding="utf-8"), re.M)
    prose = _FENCED.sub("", paper.split("---\n", 2)[2])
    assert set(re.findall(r"@(\w+)", prose)) == set(entries)
    assert len(entries) == len(set(entries))
    numbers = json.loads((ROOT / "docs" / "figures" / "p1_figure_8.json").read_text(encoding="utf-8"))["numbers"]
    for line in ("printed", "exact"):
        said = [f"{numbers[f'{line}, order {order}, r 0.1']:.3f}" for order in (2, 10, 50, 200)]
        assert f"{', '.join(said[:3])} and {said[3]}" in paper


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
