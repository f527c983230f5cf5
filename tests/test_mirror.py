"""The tests mirror the package: a folder for a room, a file for a file."""

from pathlib import Path

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
    "releases/test_trees.py": "trees of view.py beside those of xarray",
    "releases/test_unit_release.py": "releases for people with several records, through the whole room",
    "releases/test_sources.py": "one release, several, and outputs alone, through concluding.py",
    "releases/test_totals.py": "which totals plans state and outputs show, from the model to the file",
    "releases/test_urn_release.py": "releases by urns, and the pure epsilon of exact draws, through the whole room",
    "releases/test_whole_posteriors.py": "truncated noise and the Hellinger mechanisms, through the whole room",
    "releases/test_wide_tables.py": "two data sets from the frame to the release",
    "test_dependencies.py": "the project's declared dependencies",
    "test_errata.py": "the errata of the papers, and who cites them",
    "test_faults.py": "every write, commit and lock of ledgers and bandits fails in turn",
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
    "test_words.py": "the words of pages, docstrings and errors",
    "planning/test_utility_table.py": "the table in the documentation",
}
# Source files of more than 80 lines without a test file of their name: the test file that is about them, and how.
TESTED_BY = {
    "accounting/rules.py": (
        "accounting/test_ledger.py",
        "what a ledger admits and refuses, at the last bit of its limit",
    ),
    "bandits/batch_draw.py": ("bandits/test_batches.py", "batches by posterior draws beside those by noise"),
    "bandits/batch_run.py": ("bandits/test_thompson.py", "whole runs, with every write made to fail in turn"),
    "bandits/design.py": ("bandits/test_batches.py", "the rules of a run are those that its batches keep"),
    "bandits/rewards.py": ("bandits/test_thompson.py", "labels and numbers as users report them"),
    "bandits/view.py": ("bandits/test_thompson.py", "what a run shows, and that no reward is in it"),
    "counting/categories.py": ("counting/test_tables.py", "labels that are declared, and those that are refused"),
    "counting/codes.py": ("counting/test_engines.py", "every kind of column of every engine"),
    "counting/dictionaries.py": ("counting/test_engines.py", "columns with dictionaries of every engine"),
    "counting/families.py": ("networks/test_builders.py", "tables of networks against counts by pandas"),
    "counting/keeping.py": ("counting/test_bounding.py", "which records of a unit are kept"),
    "curator/laws.py": ("curator/test_estimated.py", "the confidential and the private posterior of each table"),
    "curator/leave_one_out.py": ("curator/test_diagnostics.py", "densities against their closed form"),
    "curator/pointwise.py": ("curator/test_diagnostics.py", "log-likelihoods against those of PyMC"),
    "curator/posterior_tree.py": ("curator/test_posterior.py", "the groups that ArviZ looks for"),
    "curator/realised.py": ("curator/test_diagnostics.py", "errors on the data against simulation"),
    "errors.py": ("test_trust_boundary.py", "what reaches a message"),
    "inference/beliefs.py": ("inference/test_table_law.py", "priors of one's own, and those of the model"),
    "inference/bounded_totals.py": ("inference/test_totals.py", "where totals end, against all totals"),
    "inference/convolution.py": ("inference/test_tilted.py", "sums of counts against brute force"),
    "inference/evidence.py": ("inference/test_totals.py", "what an output says of a total, against brute force"),
    "inference/inversion.py": ("inference/test_tilted.py", "the same sums by characteristic functions"),
    "inference/number_draws.py": ("inference/test_drawing.py", "draws against the probabilities of every number"),
    "inference/number_laws.py": ("inference/test_tilted.py", "integrals between numbers against sums over all"),
    "inference/pooled.py": (
        "releases/test_sources.py",
        "several releases against brute force, and totals that do not agree",
    ),
    "inference/seen.py": ("releases/test_concluding.py", "what is called damage, and what is our own error"),
    "mechanisms/cut_densities.py": ("privacy/test_finite_laws.py", "cells of a density against quadrature"),
    "mechanisms/discrete_gaussian_curve.py": (
        "mechanisms/test_discrete_gaussian.py",
        "the curve against sums of many digits",
    ),
    "mechanisms/hellinger_candidates.py": (
        "mechanisms/test_hellinger_sensitivity.py",
        "all posteriors of small data sets",
    ),
    "mechanisms/hellinger_laws.py": ("mechanisms/test_hellinger.py", "losses between all neighbours"),
    "mechanisms/known.py": ("mechanisms/test_base.py", "every mechanism by its names"),
    "mechanisms/released_counts.py": ("mechanisms/test_noisy_counts.py", "what all noise on counts shares"),
    "mechanisms/simplex_domain.py": ("mechanisms/test_simplex.py", "vectors inside and outside"),
    "mechanisms/whole_posterior.py": ("mechanisms/test_truncated_noise.py", "the two kinds that release a posterior"),
    "models/axes.py": ("models/test_reading.py", "units that are none"),
    "models/blocks.py": ("models/test_reading.py", "what a person adds, against all neighbours"),
    "models/cells.py": ("models/test_routes.py", "index maps through whole formulas"),
    "models/graph.py": ("models/test_observations.py", "questions to graphs, as models are read"),
    "models/likelihoods.py": ("models/test_tables.py", "every kind of likelihood, and those that are refused"),
    "models/outcomes.py": ("releases/test_private_model.py", "thirty-nine models, against sums over all data sets"),
    "models/priors.py": ("models/test_tables.py", "every kind of prior, and those that are refused"),
    "models/questions.py": ("models/test_reading.py", "what is asked, and each line that answers it"),
    "models/shares.py": ("models/test_routes.py", "formulas against the values of PyTensor"),
    "models/stated.py": ("models/test_protected.py", "what users state of people, in words"),
    "models/table.py": ("models/test_tables.py", "tables as models make them"),
    "models/taking.py": ("models/test_routes.py", "taking and joining, against the values of PyTensor"),
    "models/translation.py": ("models/test_expressions.py", "every operation against PyTensor"),
    "models/without_data.py": ("releases/test_private_model.py", "what is left in a copy of a model"),
    "models/unit.py": ("models/test_reading.py", "what a person can change, against all neighbours"),
    "planning/boundary.py": ("planning/test_calibration.py", "the last setting that keeps a guarantee"),
    "planning/structure.py": ("networks/test_choosing.py", "noise that takes a stated share"),
    "plots/draw.py": ("plots/test_plots.py", "every picture, in a few lines each"),
    "plots/posteriors.py": ("plots/test_plots.py", "every picture, in a few lines each"),
    "plots/privacy.py": ("plots/test_plots.py", "every picture, in a few lines each"),
    "privacy/hockey_stick.py": ("privacy/test_dominating_pairs.py", "divergences against quadrature and many digits"),
    "papers/accuracy.py": ("planning/test_draw_error.py", "printed bounds beside exact tails"),
    "releases/accuracy.py": ("releases/test_report.py", "the errors in words"),
    "releases/grammar.py": ("releases/test_text.py", "texts of every kind in which any one place is wrong"),
    "releases/opened.py": ("releases/test_text.py", "what all functions read, with every place edited"),
    "releases/planned.py": ("releases/test_plan.py", "plans, and what of a forged one is refused"),
    "releases/view.py": ("releases/test_text.py", "the tree against its text"),
    "sampling/compiled_noise.py": ("sampling/test_discrete_noise.py", "the same words give the same noise"),
    "planning/simulated.py": ("planning/test_calibration.py", "simulated errors against closed forms"),
}
LONG = 80
FILES = sorted(path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py"))


def source_of(name):
    path = PACKAGE / name
    return path.with_name(path.name.removeprefix("test_"))


def test_a_test_file_has_a_source_file_or_a_reason():
    assert not [name for name in FILES if source_of(name).exists() == (name in WITHOUT_SOURCE)]


def test_the_list_holds_files_that_are_there():
    assert set(WITHOUT_SOURCE) <= set(FILES)


def test_a_folder_of_tests_is_a_room():
    folders = {path.name for path in TESTS.iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders - set(FOLDERS) <= rooms
    assert set(FOLDERS) <= folders


def test_a_long_source_file_has_a_test_file_or_a_line_that_says_where():
    """In this direction, too: source to test."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE)
        if path.name == "__init__.py" or len(path.read_text(encoding="utf-8").splitlines()) <= LONG:
            continue
        if not (TESTS / name.with_name(f"test_{path.name}")).exists():
            found.add(name.as_posix())
    assert found == set(TESTED_BY)
    for name, (test, how) in TESTED_BY.items():
        assert (TESTS / test).exists(), name
        assert how
