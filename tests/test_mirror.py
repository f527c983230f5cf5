"""The tests mirror the package: a folder for a room, and a test file for every file of some length."""

import re

from tests.sources import PACKAGE, ROOT, TEXTS

# Folders that hold no tests of a room, and why.
FOLDERS = {
    "mutation": "a tool that changes the package in one place at a time",
    "typing": "a program that type checkers read",
}
# Source files of more than 80 lines that no test file of their room is named after or imports: where they are tested.
TESTED_BY = {
    "curator/observed.py": ("curator/test_diagnostics.py", "log-likelihoods of PyMC, and data like the observed ones"),
    "mechanisms/audit_distributions.py": ("privacy/test_loss_distribution.py", "draws and noise, against masses"),
    "models/outcome_kinds.py": ("releases/test_private_model.py", "models that are accepted, and what is refused"),
    "models/outcomes.py": ("releases/test_private_model.py", "outcomes by rows against sums over all tables"),
    "models/without_data.py": ("releases/test_private_model.py", "what is left in a copy of a model"),
    "papers/accuracy.py": ("planning/test_draw_error.py", "printed bounds beside exact tails"),
    "papers/posterior_mechanism.py": ("papers/test_truncated_noise.py", "the two kinds that release a posterior"),
}
LONG = 80


def test_a_folder_of_tests_is_a_room():
    folders = {path.name for path in (ROOT / "tests").iterdir() if path.is_dir() and any(path.rglob("*.py"))}
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert folders - set(FOLDERS) <= rooms
    assert set(FOLDERS) <= folders


def has_tests(name):
    """Whether a test file of its room is named after a source file, or imports it."""
    room, _, file = name.rpartition("/")
    module, stem = re.escape(name[:-3].replace("/", ".")), file[:-3]
    imports = re.compile(rf"pymc_dirdp\.{module}\b|from pymc_dirdp\.{room} import .*\b{stem}\b")
    own = {
        test.rpartition("/")[2]: text for test, text in TEXTS.items() if re.match(rf"tests/{room}/?test_\w+\.py", test)
    }
    return f"test_{file}" in own or any(map(imports.search, own.values()))


def test_a_long_source_file_has_a_test_file_or_a_line_that_says_where():
    sources = {name.removeprefix("pymc_dirdp/"): text for name, text in TEXTS.items() if name.startswith("pymc_dirdp/")}
    long = [name for name, text in sources.items() if name.endswith(".py") and len(text.splitlines()) > LONG]
    untested = {name for name in long if not name.endswith("__init__.py") and not has_tests(name)}
    assert untested == set(TESTED_BY)
    for name, (test, how) in TESTED_BY.items():
        assert f"tests/{test}" in TEXTS, name
        assert how
