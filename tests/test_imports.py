"""Who may import whom, and what `import pymc_dirdp` costs: looked at in processes of their own."""

import json
import pkgutil
import subprocess
import sys
from importlib import import_module

import pytest

import pymc_dirdp

HEAVY = ["pymc", "pytensor", "xarray", "arviz", "pandas", "matplotlib", "dp_accounting", "opendp"]
# The rooms from the foundation up; a module may know those of its own floor and below.
FLOORS = [
    ["errors", "checks", "adjacency", "guarantees", "curves", "bounds", "composition", "privacy.unit"],
    ["sampling.entropy", "sampling.fast", "mechanisms.base", "mechanisms.dirichlet", "mechanisms.gaussian"],
    ["calibration", "utility", "comparison", "allocation", "ledger", "interop"],
]
ABOVE = [
    ["mechanisms", "sampling", "calibration", "utility", "ledger", "counting", "models"],
    ["calibration", "utility", "ledger", "counting", "models"],
    ["counting", "models"],
]
# What is right of `counting` in the import rule.
KNOWS_MODELS = ("models", "plots", "bandits")
MATHEMATICS = [
    name
    for module in pkgutil.walk_packages(pymc_dirdp.__path__)
    for name in (
        [module.name]
        if not module.ispkg
        else [
            f"{module.name}.{m.name}" for m in pkgutil.iter_modules(import_module(f"pymc_dirdp.{module.name}").__path__)
        ]
    )
    if not name.startswith(KNOWS_MODELS)
]


def loaded_after(*stages):
    """The modules that are loaded after each of some pieces of code, run in one process."""
    report = "import json, sys\nprint(json.dumps(sorted(sys.modules)))"
    code = "\n".join(f"{stage}\n{report}" for stage in stages)
    answer = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return [set(json.loads(line)) for line in answer.stdout.splitlines()]


def test_the_mathematics_needs_numpy_and_scipy_alone():
    """Every module that is no model, whoever adds it, also when it is put to work."""
    assert {"curves", "calibration", "mechanisms.dirichlet", "sampling.fast", "counting"} <= set(MATHEMATICS)
    stages = [f"import pymc_dirdp.{name}" for name in MATHEMATICS]
    work = "import pymc_dirdp as p; p.calibrate(p.ApproxDP(epsilon=1, delta=1e-6), prior=[1, 1], n_records=9)"
    for stage, loaded in zip([*stages, work], loaded_after(*stages, work), strict=True):
        assert loaded.isdisjoint(HEAVY), stage


def test_the_package_itself_imports_nothing():
    (loaded,) = loaded_after("import pymc_dirdp")
    assert loaded.isdisjoint([*HEAVY, "numpy", "scipy"])
    assert {name for name in loaded if name.startswith("pymc_dirdp.")} == set()


def test_no_module_imports_from_a_floor_above_its_own():
    floors = loaded_after(*["\n".join(f"import pymc_dirdp.{name}" for name in floor) for floor in FLOORS])
    for floor, loaded, above in zip(FLOORS, floors, ABOVE, strict=True):
        assert {f"pymc_dirdp.{name}" for name in floor} <= loaded
        assert loaded.isdisjoint(f"pymc_dirdp.{name}" for name in above)


def test_public_names_are_sorted_found_and_no_others():
    assert pymc_dirdp.__all__ == sorted(pymc_dirdp.__all__)
    assert dir(pymc_dirdp) == pymc_dirdp.__all__
    assert all(getattr(pymc_dirdp, name) is not None for name in pymc_dirdp.__all__)
    with pytest.raises(AttributeError, match="no attribute 'sampel'"):
        pymc_dirdp.sampel  # noqa: B018


@pytest.mark.parametrize("name", MATHEMATICS)
def test_modules_name_what_they_offer(name):
    module = import_module(f"pymc_dirdp.{name}")
    assert all(hasattr(module, public) for public in module.__all__)
    assert module.__doc__
