"""The teaching pages as notebooks: each is one that Jupyter understands, and one is run as somebody downloads it."""

import importlib.util
import re
import runpy
import sys

import pytest

pytest.importorskip("myst_nb", reason="notebooks are made with the documentation's tools: uv sync --group docs")

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from tests.sources import DOCS, PAGES

TEACH = {name[11:-3]: text for name, text in PAGES.items() if re.match(r"docs/teach/\d", name)}
_spec = importlib.util.spec_from_file_location("as_notebook", DOCS / "_ext" / "as_notebook.py")
as_notebook = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(as_notebook)

HEAD = "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n  language: python\n---\n\n# Title\n\n"
CELL = "```{{code-cell}} ipython3\n{}\n```\n"


def text_of(notebook):
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def exercises_of(text):
    return len(re.findall(r"^\*\*\d+\. ", text, re.MULTILINE))


def run(notebook, folder):
    return NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(folder))


@pytest.mark.parametrize("page", TEACH)
def test_a_page_is_a_notebook_that_jupyter_understands(page):
    page_text = TEACH[page]
    notebook = as_notebook.notebook_of(page_text)
    nbformat.validate(notebook)
    first, second = notebook.cells[:2]
    assert first.source.startswith("# ")
    assert "%pip install" in second.source
    text = text_of(notebook)
    assert not re.findall(r"^(?:```|:::)\{|\{[a-z:]+\}`", text, re.MULTILINE), "a directive or a role of Sphinx"
    assert not re.findall(r"\]\((?!https?:)[^)]*\)", text), "a link to a page that is not beside the notebook"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    # A cell that was not read as one would stand in the text.
    assert len(code) == 1 + page_text.count("```{code-cell}")
    # What the table of pages guarantees.
    for part in ("```{as-notebook}\n```", "**The question.**", "## Exercises", "Show the solution", "**You can now**"):
        assert part in page_text, part
    assert f"](teach/{page}.md)" in PAGES["docs/teach.md"]
    assert page_text.count("Show the solution") == exercises_of(page_text)
    # A plot function in a cell makes one picture.
    assert page_text.count("plt.subplots") + page_text.count("plots.plot_") <= 5


def test_what_only_sphinx_understands_is_left_out_and_a_solution_is_folded():
    page = HEAD + "```{as-notebook}\n```\n\nSee {py:func}`~pymc_dirdp.plan` and [Theory](../theory.md#one).\n"
    text = text_of(as_notebook.notebook_of(page + "\n![picture](https://example.org/a.png) [web](https://a.b)\n"))
    assert "See `pymc_dirdp.plan` and Theory." in text
    assert "![picture](https://example.org/a.png) [web](https://a.b)" in text
    page = HEAD + CELL.format(":tags: [hide-cell]\n\n1 + 1") + "\n" + CELL.format(":tags: [hide-input]\n\n2 + 2")
    solution, picture = as_notebook.notebook_of(page).cells[2:]
    assert solution.metadata.jupyter == {"source_hidden": True, "outputs_hidden": True}
    assert picture.metadata.jupyter == {"source_hidden": True}


def write(monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["notebooks.py", *map(str, options)])
    runpy.run_path(str(DOCS / "notebooks.py"), run_name="__main__")


def test_students_get_no_solution(tmp_path, monkeypatch):
    write(monkeypatch, tmp_path / "teacher")
    write(monkeypatch, tmp_path / "student", "--without-solutions", "--from", "git+https://example.org/pymc_dirdp")
    for page, text in TEACH.items():
        teacher, student = (
            nbformat.read(tmp_path / name / f"{page}.ipynb", as_version=4) for name in ("teacher", "student")
        )
        nbformat.validate(student)
        own = [cell for cell in student.cells if cell.source == as_notebook.YOUR_TURN]
        assert len(own) == exercises_of(text)
        assert "Show the solution" not in nbformat.writes(student)
        # What was left out is in no other cell.
        for one in teacher.cells:
            if one.cell_type == "code" and one.metadata.get("jupyter", {}).get("outputs_hidden"):
                assert one.source not in nbformat.writes(student)
        assert '%pip install --quiet "pymc_dirdp[plots,duckdb] @ git+https' in student.cells[1].source
        # Nothing that runs later needs a solution.
        last = max(i for i, cell in enumerate(student.cells) if cell.source == as_notebook.YOUR_TURN)
        assert all(cell.cell_type == "markdown" for cell in student.cells[last + 1 :])


@pytest.mark.parametrize("place", ["pymc-dirdp", "pymc_dirdp", 'a/b"\nimport os', "it's/here"])
def test_a_name_that_anybody_may_register_is_no_place(place, tmp_path, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        write(monkeypatch, tmp_path / "out", "--from", place)
    assert "path or an address" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the kernel's client, in a process of its own
def test_a_download_runs_and_a_broken_one_does_not(tmp_path, monkeypatch):
    # The surroundings may ask for pictures that nobody sees.
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    # The form that students get: the library is there, so the first cell installs nothing.
    made = as_notebook.notebook_of(TEACH["00_ten_minutes"], solutions=False, place="/nowhere/pymc_dirdp")
    done = run(nbformat.reads(nbformat.writes(made), as_version=4), tmp_path)
    outputs = [output for cell in done.cells if cell.cell_type == "code" for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert any("follows from the numbers" in output.get("text", "") for output in outputs)
    with pytest.raises(CellExecutionError):
        run(as_notebook.notebook_of(HEAD + CELL.format("release")), tmp_path)


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the kernel's client, in a process of its own
def test_each_cell_of_the_page_on_the_papers_shows_its_picture(monkeypatch):
    """At 0.1.0 the first one did and all others were left out, without a warning."""
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    code = ("from verdicts import show", 'show("p1_figure_8")', 'show("p1_figure_2")')
    done = run(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(line) for line in code]), DOCS)
    pictures = [sum("image/png" in output.get("data", {}) for output in cell.outputs) for cell in done.cells]
    assert pictures == [0, 1, 1]
