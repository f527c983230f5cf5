"""What `import pymc_dirdp` costs, looked at in processes of their own, and which names are public.

Who may import whom is written in `pyproject.toml`, and `lint-imports` checks it.
"""

import ast
import inspect
import json
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import pytest

import pymc_dirdp
from tests.sources import FILES, PACKAGE, docstrings
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
    """The same object as by its long name, also if the package is asked first."""
    code = ["import sys", "from importlib import import_module", "import pymc"]
    for package in PACKAGES:
        stub = Path(import_module(package).__file__).with_suffix(".pyi")
        lines = [line for line in ast.parse(stub.read_text(encoding="utf-8")).body if isinstance(line, ast.ImportFrom)]
        assert sorted(line.names[0].name for line in lines) == import_module(package).__all__
        code += ["for name in [name for name in sys.modules if name.startswith('pymc_dirdp')]: del sys.modules[name]"]
        code += [f"p = import_module('{package}')"]
        for line in lines:
            name = line.names[0].name
            home = f"import_module('{line.module}').{name}"
            code += [f"assert p.{name} is {home} is p.{name}, '{package}.{name}'"]
    subprocess.run([sys.executable, "-c", "\n".join(code)], check=True)


def test_the_version_is_that_of_the_installed_package_and_modules_say_what_they_are():
    assert pymc_dirdp.__version__ == version("pymc-dirdp")
    assert not [path for path in FILES if path.name != "__init__.py" and not docstrings(path)[0]]
