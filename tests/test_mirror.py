"""The tests mirror the package: a folder for a room, a file for a file."""

from pathlib import Path

import pytest

import pymc_dirdp

TESTS = Path(__file__).parent
PACKAGE = Path(pymc_dirdp.__file__).parent
# Folders that hold no tests of a room, and why.
FOLDERS = {
    "benchmarks": "programs that measure, and a table of what they found",
    "mutation": "a tool that changes the package in one place at a time",
    "typing": "a program that type checkers read",
}
# Files without a source file of their name, and what they are about.
WITHOUT_SOURCE = {
    "counting/test_large.py": "as many records as engines are made for, through the whole room",
    "inference/test_calibration.py": "truths among draws, over many data sets: the whole room",
    "mechanisms/test_contract.py": "what every mechanism has to pass",
    "mechanisms/test_exact_releases.py": "exact releases of all mechanisms with whole noise",
    "models/test_random_models.py": "models at random, against PyMC's own log-probability",
    "models/test_random_routes.py": "formulas of shares, against the values of PyTensor, through the whole room",
    "models/test_zoo.py": "models as users write them, through the whole room",
    "mechanisms/test_own_mechanism.py": "the example of a mechanism of one's own, through the whole house",
    "networks/test_rivals.py": "figures of the benchmark beside other networks, and what is said of them",
    "planning/test_calibration_properties.py": "calibration.py at random priors and targets",
    "plots/test_plots.py": "every picture, in a few lines each",
    "privacy/test_extreme_parameters.py": "every curve at the ends of what is allowed",
    "privacy/test_unit_brute_force.py": "unit.py against all neighbours",
    "releases/test_edited_plans.py": "plans that came from a file and were edited there",
    "releases/test_exact_release.py": "releases with the exact sampler, through the whole room",
    "releases/test_floored.py": "releases by floored draws, through the whole room",
    "releases/test_one_category.py": "tables of one category, through the whole room",
    "releases/test_unchanged.py": "numbers that a change of code must not change",
    "releases/test_unit_release.py": "releases for people with several records, through the whole room",
    "releases/test_urn_release.py": "releases by urns, and the pure epsilon of exact draws, through the whole room",
    "releases/test_whole_posteriors.py": "truncated noise and the Hellinger mechanisms, through the whole room",
    "releases/test_wide_tables.py": "two data sets from the frame to the release",
    "stored/test_hostile_files.py": "releases in which any one thing is wrong, through the whole room",
    "test_dependencies.py": "the project's declared dependencies",
    "test_figures.py": "the scripts of the papers' figures and the records of their full runs",
    "test_fuzz.py": "the public functions at random",
    "test_house.py": "who may ask for a kind, and how long a signature is",
    "test_imports.py": "the order of the rooms",
    "test_mirror.py": "this file",
    "test_notebooks.py": "the teaching pages as notebooks that somebody downloads",
    "test_pages.py": "the README and the pages, as somebody meets them who has nothing else",
    "test_papers.py": "the papers' statements and where they are tested",
    "test_proofs.py": "the pages of proofs and the files they name",
    "test_real_data.py": "the scripts that release real data sets, on made-up ones",
    "test_trust_boundary.py": "what reaches an error, a log, an attribute or a file",
    "utility/test_utility_table.py": "the table in the documentation",
}
FILES = sorted(path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py"))


def source_of(name):
    path = PACKAGE / name
    return path.with_name(path.name.removeprefix("test_"))


@pytest.mark.parametrize("name", FILES)
def test_a_test_file_has_a_source_file_or_a_reason(name):
    assert source_of(name).exists() != (name in WITHOUT_SOURCE)


def test_the_list_holds_files_that_are_there():
    assert set(WITHOUT_SOURCE) <= set(FILES)


def test_a_folder_of_tests_is_a_room():
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders - set(FOLDERS) <= rooms
    assert set(FOLDERS) <= folders
