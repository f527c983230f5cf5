"""What is imported is declared: in the dependencies, or in an extra whose package an ImportError names."""

import ast
import re
import sys
import tomllib

import pytest

import pymc_dirdp as dirdp
from tests.sources import FILES, ROOT, TEXTS, tree_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
# xarray finds it by itself when a release is written or read, and it needs h5py.
ENGINES = {"h5netcdf", "h5py"}
EXTRAS = {
    "dp_accounting": "dp-accounting",
    "duckdb": "duckdb",
    "matplotlib": "plots",
    "narwhals": "frames",
    "opendp": "opendp",
    "pyarrow": "parquet",
    "randomgen": "fast",
}


def imported():
    found = set()
    for path in FILES:
        for node in ast.walk(tree_of(path)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "importlib.import_module":
                names += [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            found |= {name.split(".")[0] for name in names}
    return found - {*sys.stdlib_module_names, "pymc_dirdp"}


def declared(requirements):
    return {re.split(r"[^A-Za-z0-9_-]", requirement)[0].replace("-", "_") for requirement in requirements}


def test_what_is_imported_is_declared():
    found = imported()
    assert found >= {"numpy", "pymc", "numba", *EXTRAS}
    assert found - set(EXTRAS) == declared(PROJECT["dependencies"]) - ENGINES
    assert all(name in declared(PROJECT["optional-dependencies"][extra]) for name, extra in EXTRAS.items())
    # A plain installation can write an analysis; since 1.8, h5netcdf no longer brings h5py along.
    assert declared(PROJECT["dependencies"]) >= ENGINES


def test_pictures_without_matplotlib_are_an_import_error_with_the_line_that_installs_it(monkeypatch):
    for module in ("matplotlib.pyplot", "matplotlib"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=r"pip install matplotlib$"):
        dirdp.plots.plot_privacy(dirdp.mechanisms.DirichletMechanism([1, 1], 0.1))


def test_nothing_installs_this_library_by_a_name_that_nobody_has_registered():
    """A stranger could register it. From a clone it is installed by a path."""
    by_name = re.compile(r"(?:pip3? install|uv add|uvx)\b[^\n`]*?(?<![\w/.-])pymc[-_]dirdp", re.IGNORECASE)
    assert not [name for name, text in TEXTS.items() if not name.startswith("tests/") and by_name.search(text)]
    assert by_name.search("%pip install --quiet 'pymc-dirdp[plots]'")
    assert not by_name.search("pip install '/path/to/pymc_dirdp[plots]'")
