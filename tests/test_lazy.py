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
    assert house.wine.colour == "red"
    assert house.kitchen is sys.modules["lazy_house.kitchen"]
    assert "lazy_house.garden.pond" not in sys.modules
    assert house.Fish is sys.modules["lazy_house.garden.pond"].Fish
    assert {"Fish", "kitchen", "wine"} <= set(vars(house))


def test_a_name_that_the_stub_lacks_is_no_name(house):
    for name in ("cellar", "pond", "attic"):
        with pytest.raises(AttributeError, match=f"module 'lazy_house' has no attribute '{name}'"):
            getattr(house, name)


def test_what_goes_wrong_while_importing_is_not_hidden(house, tmp_path):
    (tmp_path / "lazy_house/garden/pond.py").write_text("import a_module_that_is_not_there\n")
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        house.Fish  # noqa: B018


def test_a_list_of_names_that_is_changed_changes_no_other(house):
    dir(house).clear()
    assert dir(house) == ["Fish", "kitchen", "wine"]


PROGRAM = """
from typing import assert_type

import numpy as np
import pymc_dirdp as dirdp
from pymc_dirdp import ApproxDP, sample
from pymc_dirdp.releases import Plan

guarantee: dirdp.Guarantee = ApproxDP(epsilon=1.0, delta=1e-6)
mechanism = dirdp.mechanisms.DirichletMechanism(np.ones(2), 0.1)
assert_type(dirdp.calibrate(guarantee, prior=[1, 1], n_records=9), dirdp.mechanisms.DirichletMechanism)
assert_type(dirdp.audit(mechanism), dirdp.auditing.Audit)
assert_type(dirdp.__version__, str)
found: Plan = dirdp.plan(guarantee)
draw = sample(found)
dirdp.plots.plot_privacy(mechanism)
dirdp.interop.to_dp_accounting(mechanism)
dirdp.papers.p1_theorem_1(order=2.0, r=0.1, alpha_min=3.0)
"""


@pytest.mark.thorough
def test_a_users_program_is_checked_against_the_public_names(tmp_path):
    """As mypy sees the package: every name has its type, and a name that is not there is an error."""
    pytest.importorskip("mypy", reason="a type checker is for those who develop")
    (tmp_path / "right.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(
        "import pymc_dirdp as dirdp\ndirdp.sampel\ndirdp.plots.plot_nothing\ndirdp.DirichletMechanism\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", "--follow-imports=silent"]
    command += ["--ignore-missing-imports", "right.py", "wrong.py"]
    checked = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    lines = checked.stdout.splitlines()
    assert [line.split(":")[1] for line in lines[:-1] if "[attr-defined]" in line] == ["2", "3", "4"], lines
    assert lines[-1].startswith("Found 3 errors in 1 file"), lines
