"""Who may import whom, and what `import pymc_dirdp` costs: looked at in processes of their own."""

import subprocess
import sys

import pytest

import pymc_dirdp

HEAVY = ["pymc", "pytensor", "xarray", "arviz", "pandas", "matplotlib", "dp_accounting", "opendp"]
MATHEMATICS = [
    "guarantees",
    "adjacency",
    "curves",
    "bounds",
    "mechanisms.dirichlet",
    "calibration",
    "utility",
    "composition",
    "allocation",
    "ledger",
    "interop",
    "counting",
    "sampling.fast",
]


def loaded_after(code):
    answer = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"], check=True, capture_output=True, text=True
    )
    return {name.split(".")[0] for name in answer.stdout.split()}


def test_the_mathematics_needs_numpy_and_scipy_alone():
    code = "\n".join(f"import pymc_dirdp.{name}" for name in MATHEMATICS)
    assert loaded_after(
        f"{code}\nimport pymc_dirdp as p; p.calibrate(p.ApproxDP(epsilon=1, delta=1e-6), prior=[1, 1], n_records=9)"
    ).isdisjoint(HEAVY)


def test_the_package_itself_imports_nothing():
    assert loaded_after("import pymc_dirdp").isdisjoint([*HEAVY, "numpy", "scipy"])


def test_public_names_are_sorted_found_and_no_others():
    assert pymc_dirdp.__all__ == sorted(pymc_dirdp.__all__)
    assert dir(pymc_dirdp) == pymc_dirdp.__all__
    assert all(getattr(pymc_dirdp, name) is not None for name in pymc_dirdp.__all__)
    with pytest.raises(AttributeError, match="no attribute 'sampel'"):
        pymc_dirdp.sampel  # noqa: B018
