"""Sphinx configuration. Nothing is fetched while building or reading: no remote inventories, scripts or fonts."""

import importlib.metadata
import importlib.util
import os
import sys
from pathlib import Path

# Pages show their pictures also where the surroundings ask for pictures that nobody sees.
os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "pymc_dirdp"
author = "Developers of pymc_dirdp"
project_copyright = author
release = importlib.metadata.version("pymc-dirdp")
version = release

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.mathjax",
    "numpydoc",
    "sphinx_copybutton",
    "public_names",
    "as_notebook",
]
exclude_patterns = ["_build", "jupyter_execute", "paper", "figures"]

# Pages run when they are built, always afresh; a cell that fails stops the build.
myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

# The class docstring documents the arguments; `:members:` lists the methods.
numpydoc_show_class_members = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"
# Docstrings write `name` for code, as numpydoc does.
default_role = "literal"
copybutton_exclude = ".linenos, .gp, .go"

# One self-contained file of MathJax 3 from an installed package, so that formulas show without a network.
_mathjax = importlib.util.find_spec("sphinx-mathjax-offline")
if _mathjax is None or _mathjax.origin is None:
    raise RuntimeError("Install the documentation's tools: uv run --group docs sphinx-build ...")
html_static_path = ["_static", str(Path(_mathjax.origin).parent / "static" / "mathjax" / "tex-svg.js")]
mathjax_path = "tex-svg.js"
mathjax3_config = {
    "tex": {
        "macros": {
            "E": r"\operatorname{E}",
            "Gammadist": r"\operatorname{Gamma}",
            "Betadist": r"\operatorname{Beta}",
            "Dir": r"\operatorname{Dirichlet}",
        }
    },
    "svg": {"displayOverflow": "linebreak"},
    "options": {"enableMenu": False},
}

html_theme = "pymc_sphinx_theme"
html_title = "pymc_dirdp"
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "google_analytics_id": "",  # the theme's default is PyMC's own
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
}
# The pages of a section stand beside each page; these pages are all of theirs.
html_sidebars = {name: [] for name in ("index", "infer")} | {"**": ["sidebar-nav-bs"]}


def deal(_app, _env, pages):
    """Neighbouring pages to different parts: Sphinx gives each process a run of pages, and lessons are neighbours."""
    pages[:] = [page for first in range(5) for page in pages[first::5]]


def setup(app):
    app.connect("env-before-read-docs", deal)
