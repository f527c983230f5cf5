"""Teaching pages as Jupyter notebooks: a directive that links to the file, and the files, made when the pages are.

A page is written once, in MyST. `notebook_of` makes a notebook of it that runs as downloaded: its first cell says
how the library is installed, solutions are folded, and what only Sphinx understands is left out.
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
INSTALL = """\
# Where this fails, install the library from a clone of its repository: %pip install "/path/to/pymc_dirdp[plots,duckdb]"
import pymc_dirdp"""

_DIRECTIVE = re.compile(r"^```\{as-notebook\}\n```\n*", re.MULTILINE)
_ROLE = re.compile(r"\{[a-z:]+\}`~?([^`<]+)`")
_LINK_TO_A_PAGE = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]+\)")


def notebook_of(text: str) -> nbformat.NotebookNode:
    """The notebook of a teaching page, not executed."""
    config = MdParserConfig(enable_extensions={"amsmath", "colon_fence", "deflist", "dollarmath"})
    notebook = read_myst_markdown_notebook(_DIRECTIVE.sub("", text), config)
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    )
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            # Other pages are not beside a file that was downloaded, and Jupyter knows no roles.
            cell.source = _LINK_TO_A_PAGE.sub(r"\1", _ROLE.sub(r"`\1`", cell.source))
        tags = cell.metadata.get("tags", [])
        hidden = {"source_hidden": "hide-cell" in tags or "hide-input" in tags, "outputs_hidden": "hide-cell" in tags}
        cell.metadata = nbformat.from_dict({"jupyter": {key: True for key, value in hidden.items() if value}})
    notebook.cells.insert(1, nbformat.v4.new_code_cell(INSTALL))
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


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write the notebook of each teaching page beside the page."""
    if exception is not None or app.builder.format != "html":
        return
    for page in sorted(Path(app.srcdir, FOLDER).glob("*.md")):
        target = Path(app.outdir, FOLDER, f"{page.stem}.ipynb")
        target.parent.mkdir(exist_ok=True)
        nbformat.write(notebook_of(page.read_text(encoding="utf-8")), target)


def setup(app: Sphinx) -> dict[str, object]:
    """Register the directive, and write the files when the pages are there."""
    app.add_directive("as-notebook", AsNotebook)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True}
