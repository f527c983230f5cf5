"""Teaching pages as Jupyter notebooks: a directive that links to the file, and the files, made when the pages are.

A page is written once, in MyST. `notebook_of` makes a notebook of it that runs as downloaded: its first code cell says
how the library is installed, or installs it from a place that the teacher names, solutions are folded or left out, and
what only Sphinx understands is left out. `docs/notebooks.py` writes the same files without a build.
"""

import re
from pathlib import Path

import nbformat
from docutils import nodes
from myst_nb.core.read import read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

FOLDER = "teach"
EXTRAS = "[plots,duckdb]"
INSTALL = """\
# Where this fails, install the library from a clone of its repository: %pip install "/path/to/pymc_dirdp[plots,duckdb]"
import pymc_dirdp"""
INSTALL_FROM = """\
try:
    import pymc_dirdp
except ImportError:
    %pip install --quiet "{requirement}"
    import pymc_dirdp"""
YOUR_TURN = "# Your solution"

_DIRECTIVE = re.compile(r"^```\{as-notebook\}\n```\n*", re.MULTILINE)
_ROLE = re.compile(r"\{[a-z:]+\}`~?([^`<]+)`")
SOLUTION = "Show the solution"
_SOLUTION_IN_WORDS = re.compile(
    rf"^<details>\n<summary>{SOLUTION}</summary>\n.*?^</details>\n", re.DOTALL | re.MULTILINE
)
_LINK_TO_A_PAGE = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]+\)")


def requirement_of(place: str) -> str:
    """What the installer is told, for a path or an address. A bare name is refused: anybody may have registered it."""
    if set(place) & set("\"'\n"):
        raise ValueError(f"Expected a path or an address without quotation marks, got {place!r}.")
    if "://" in place:
        return f"pymc_dirdp{EXTRAS} @ {place}"
    # Paths of the place where the notebook runs, which need not exist here.
    if "/" not in place and "\\" not in place:
        raise ValueError(
            f"Expected a path or an address to install from, got the name {place!r}, which anybody may have "
            f"registered. Write ./{place} for a folder, or git+https://... for a repository."
        )
    return f"{place}{EXTRAS}"


def notebook_of(text: str, *, solutions: bool = True, place: str | None = None) -> nbformat.NotebookNode:
    """The notebook of a teaching page, not executed.

    `place` is a path or an address that the first code cell installs the library from where it is missing; without it
    the cell says what to do. Without solutions each of them is an empty cell.
    """
    if not solutions:
        text = _SOLUTION_IN_WORDS.sub("```{code-cell} ipython3\n" + YOUR_TURN + "\n```\n", text)
    config = MdParserConfig(enable_extensions={"amsmath", "colon_fence", "deflist", "dollarmath"})
    notebook = read_myst_markdown_notebook(_DIRECTIVE.sub("", text), config)
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    for cell in notebook.cells:
        if not solutions and SOLUTION in cell.metadata.get("mystnb", {}).get("code_prompt_show", ""):
            cell.source, cell.metadata = YOUR_TURN, nbformat.from_dict({})
        if cell.cell_type == "markdown":
            # Other pages are not beside a file that was downloaded, and Jupyter knows no roles.
            cell.source = _LINK_TO_A_PAGE.sub(r"\1", _ROLE.sub(r"`\1`", cell.source))
        tags = cell.metadata.get("tags", [])
        hidden = {"source_hidden": "hide-cell" in tags or "hide-input" in tags, "outputs_hidden": "hide-cell" in tags}
        cell.metadata = nbformat.from_dict({"jupyter": {key: True for key, value in hidden.items() if value}})
    first = INSTALL if place is None else INSTALL_FROM.format(requirement=requirement_of(place))
    notebook.cells.insert(1, nbformat.v4.new_code_cell(first))
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # the same file from the same page
    return notebook


class AsNotebook(SphinxDirective):
    """A line that says how to run the page, with a link to its notebook."""

    def run(self) -> list[nodes.Node]:
        """Make the paragraph."""
        name = self.env.docname.rsplit("/", 1)[-1]
        link = f'<a class="reference download" href="{name}.ipynb" download>Download this page as a notebook</a>'
        return [nodes.raw("", f"<p>{link} and run it in Jupyter, or read on.</p>", format="html")]


def write_all(pages: Path, target: Path, *, solutions: bool = True, place: str | None = None) -> list[Path]:
    """Write the notebook of each teaching page of a folder into another one."""
    made = [
        (page, notebook_of(page.read_text(encoding="utf-8"), solutions=solutions, place=place))
        for page in sorted(pages.glob("[0-9]*.md"))
    ]
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for page, notebook in made:
        written.append(target / f"{page.stem}.ipynb")
        nbformat.write(notebook, written[-1])
    return written


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write the notebook of each teaching page beside the page."""
    if exception is None and app.builder.format == "html":
        write_all(Path(app.srcdir, FOLDER), Path(app.outdir, FOLDER))


def setup(app: Sphinx) -> dict[str, object]:
    """Register the directive, and write the files when the pages are there."""
    app.add_directive("as-notebook", AsNotebook)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True}
