"""What `import pymc_dirdp` costs, looked at in processes of their own, and which names are public.

Who may import whom is written in `pyproject.toml`, and `lint-imports` checks it.
"""

import ast
import inspect
import json
import re
import subprocess
import sys
import tomllib
from importlib import import_module
from importlib.metadata import version

import pytest

import pymc_dirdp
from tests.sources import FILES, PACKAGE, ROOT, TEXTS, docstrings, tree_of
from tests.verbs import PUBLIC_ROOMS

HEAVY = ["pymc", "pytensor", "xarray", "arviz", "pandas", "matplotlib", "dp_accounting", "opendp"]
# These rooms ask PyMC, ArviZ, xarray or Matplotlib; every other one needs NumPy and SciPy alone.
HEAVY_ROOMS = ("models", "networks", "releases", "curator", "bandits", "plots")
PACKAGES = ["pymc_dirdp", *(f"pymc_dirdp.{room}" for room in PUBLIC_ROOMS)]
MODULES = [".".join(path.relative_to(PACKAGE).with_suffix("").parts) for path in FILES if path.name != "__init__.py"]
MATHEMATICS = [name for name in MODULES if not name.startswith(HEAVY_ROOMS)]


def loaded_after(*stages):
    """The modules that are loaded after each of some pieces of code, run in one process."""
    report = "import json, sys\nprint(json.dumps(sorted(sys.modules)))"
    code = "\n".join(f"{stage}\n{report}" for stage in stages)
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return [set(json.loads(line)) for line in answer.stdout.splitlines()]


def test_the_mathematics_needs_numpy_and_scipy_alone():
    """Every module that is no model, also when it is put to work; the package and a name of a room need nothing."""
    assert {"privacy.curves", "planning.calibration", "mechanisms.dirichlet", "inference.observed_table"} <= set(
        MATHEMATICS
    )
    rooms = ["import pymc_dirdp", *(f"pymc_dirdp.{room}" for room in PUBLIC_ROOMS)]
    modules = [f"import pymc_dirdp.{name}" for name in MATHEMATICS]
    work = "import pymc_dirdp as p; p.calibrate(p.ApproxDP(epsilon=1, delta=1e-6), prior=[1, 1], n_records=9)"
    stages = [*rooms, *modules, work]
    loaded = loaded_after(*stages)
    for i, (stage, found) in enumerate(zip(stages, loaded, strict=True)):
        assert found.isdisjoint([*HEAVY, "numpy", "scipy"] if i < len(rooms) else HEAVY), stage
    assert {name for name in loaded[0] if name.startswith("pymc_dirdp.")} == {"pymc_dirdp.lazy"}


@pytest.mark.thorough
def test_transforms_are_loaded_where_something_is_transformed():
    """They take longer to load than all of the rest of SciPy that the verbs need."""
    verbs = "import pymc, pymc_dirdp as p; p.plan, p.sample, p.report, p.estimate, p.analyse, p.fit"
    assert "scipy.fft" not in loaded_after(verbs)[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_sorted_found_and_no_others(package):
    module = import_module(package)
    assert module.__all__ == sorted(module.__all__) == dir(module)
    assert all(getattr(module, name) is not None for name in module.__all__)
    with pytest.raises(AttributeError, match=f"'{package}' has no attribute 'sampel'"):
        module.sampel  # noqa: B018


@pytest.mark.parametrize("package", PACKAGES)
def test_public_classes_and_functions_have_an_example(package):
    """Rooms have none, and errors are shown by what raises them."""
    module = import_module(package)
    things = {name: getattr(module, name) for name in module.__all__}
    shown = {
        name: inspect.getdoc(thing)
        for name, thing in things.items()
        if inspect.isfunction(thing) or (inspect.isclass(thing) and not issubclass(thing, Exception))
    }
    assert not [name for name, text in shown.items() if "\nExamples\n---" not in (text or "")]


@pytest.mark.thorough
def test_a_name_that_is_asked_for_is_what_its_home_has_under_that_name():
    code = ["import sys", "from importlib import import_module", "import pymc"]
    for package in PACKAGES:
        stub = TEXTS[f"{package.replace('.', '/')}/__init__.pyi"]
        homes = {name: home for home, name in re.findall(r"^from (\S+) import (\w+) as \w+$", stub, re.MULTILINE)}
        assert sorted(homes) == import_module(package).__all__
        code += ["for name in [name for name in sys.modules if name.startswith('pymc_dirdp')]: del sys.modules[name]"]
        code += [f"p = import_module('{package}')"]
        code += [f"assert p.{name} is import_module('{home}').{name} is p.{name}" for name, home in homes.items()]
    subprocess.run([sys.executable, "-c", "\n".join(code)], check=True)


def test_the_version_is_that_of_the_installed_package_and_modules_say_what_they_are():
    assert pymc_dirdp.__version__ == version("pymc-dirdp")
    assert not [path for path in FILES if path.name != "__init__.py" and not docstrings(path)[0]]


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
        **{f"lazy_house/{room}/__init__.py": "" for room in ("kitchen", "cellar", "garden")},
        "lazy_house/cellar/wine.py": "colour = 'red'\n",
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


# What is imported is declared: in the dependencies, or in an extra whose package an ImportError names.

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
        pymc_dirdp.plots.plot_privacy(pymc_dirdp.mechanisms.DirichletMechanism([1, 1], 0.1))


def test_nothing_installs_this_library_by_a_name_that_nobody_has_registered():
    """A stranger could register it. From a clone it is installed by a path."""
    by_name = re.compile(r"(?:pip3? install|uv add|uvx)\b[^\n`]*?(?<![\w/.-])pymc[-_]dirdp", re.IGNORECASE)
    assert not [name for name, text in TEXTS.items() if not name.startswith("tests/") and by_name.search(text)]
    assert by_name.search("%pip install --quiet 'pymc-dirdp[plots]'")
    assert not by_name.search("pip install '/path/to/pymc_dirdp[plots]'")
