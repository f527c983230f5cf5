"""Names that are imported when they are asked for."""

import subprocess
import sys
from importlib import import_module

import pytest

STUB = """
from lazy_house import kitchen as kitchen
from lazy_house.cellar import wine as wine
from lazy_house.garden.pond import Fish as Fish
"""


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A package whose stub names a room, a module that nobody has imported, and a class."""
    files = {
        "lazy_house/__init__.py": "from pymc_dirdp.lazy import attach\n"
        "__getattr__, __dir__, __all__ = attach(__name__, __file__)\n",
        "lazy_house/__init__.pyi": STUB,
        "lazy_house/kitchen/__init__.py": "",
        "lazy_house/cellar/__init__.py": "",
        "lazy_house/cellar/wine.py": "colour = 'red'\n",
        "lazy_house/garden/__init__.py": "",
        "lazy_house/garden/pond.py": "class Fish: pass\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield import_module("lazy_house")
    for name in [name for name in sys.modules if name.startswith("lazy_house")]:
        del sys.modules[name]


def test_names_come_from_where_the_stub_says(house):
    assert house.__all__ == dir(house) == ["Fish", "kitchen", "wine"]
    assert not [name for name in sys.modules if name.startswith("lazy_house.")]
    for name in ("cellar", "pond", "attic"):
        with pytest.raises(AttributeError, match=f"module 'lazy_house' has no attribute '{name}'"):
            getattr(house, name)
    assert house.wine.colour == "red"
    assert house.kitchen is sys.modules["lazy_house.kitchen"]
    assert "lazy_house.garden.pond" not in sys.modules
    assert house.Fish is sys.modules["lazy_house.garden.pond"].Fish
    assert {"Fish", "kitchen", "wine"} <= set(vars(house))
    # A list that somebody changes changes no other.
    dir(house).clear()
    assert dir(house) == ["Fish", "kitchen", "wine"]


def test_what_goes_wrong_while_importing_is_not_hidden(house, tmp_path):
    (tmp_path / "lazy_house/garden/pond.py").write_text("import a_module_that_is_not_there\n")
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        house.Fish  # noqa: B018


@pytest.mark.slow
def test_a_name_that_is_not_there_is_an_error_of_a_type_checker(tmp_path):
    """Names that are there have their types: `tests/typing` is checked for them in every run."""
    pytest.importorskip("mypy", reason="a type checker is for those who develop")
    (tmp_path / "wrong.py").write_text(
        "import pymc_dirdp as dirdp\ndirdp.sampel\ndirdp.plots.plot_nothing\ndirdp.DirichletMechanism\ndirdp.sample\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", "--follow-imports=silent"]
    command += ["--ignore-missing-imports", "wrong.py"]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    *lines, last = checked.stdout.splitlines()
    assert [line.split(":")[1] for line in lines if "[attr-defined]" in line] == ["2", "3", "4"], lines
    assert last.startswith("Found 3 errors in 1 file"), last
