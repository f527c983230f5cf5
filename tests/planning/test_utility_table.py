"""The table in the documentation: rows of it computed again, and what the text says of it."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("utility_table", ROOT / "tests" / "benchmarks" / "utility_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def table(script):
    path = ROOT / "docs" / "figures" / "utility_table.md"
    if not path.exists():
        pytest.skip("the documentation is not beside these tests")
    rows = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in path.read_text().splitlines()[2:]]
    return {
        (kind, int(d), round(float(n)), float(epsilon)): dict(zip(script.COLUMNS, map(float, cells), strict=True))
        for kind, d, n, epsilon, *cells in rows
    }


def test_it_has_all_rows(table, script):
    assert len(table) == len(script.PRIORS) * len(script.CATEGORIES) * len(script.RECORDS) * len(script.EPSILONS) == 120


@pytest.mark.thorough
@pytest.mark.parametrize("key", [("flat", 10, 1000, 1.0), ("sparse", 100, 10_000, 0.1), ("flat", 2, 10**6, 5.0)])
def test_rows_are_what_the_library_computes(table, script, key):
    for name, value in script.row(*key).items():
        assert table[key][name] == pytest.approx(value, rel=0.01)


def test_auto_is_never_worse_than_the_best_by_more_than_2_per_cent(table, script):
    for scores in table.values():
        assert scores["auto"] <= 1.02 * min(scores[name] for name in script.ESTIMATED)
        # Clipped noise and single draws are averaged over tables of their own.
        assert scores["auto"] <= 1.15 * min(scores[name] for name in script.READ)


def test_what_the_text_says(table):
    for scores in table.values():
        # The table has three digits.
        assert min(scores["gaussian"], scores["geometric"]) <= 1.005 * scores["Dirichlet"]
        # Each is averaged over tables of its own.
        assert scores["posterior"] <= 1.1 * scores["auto"]
    assert 1.8 < max(scores["geometric clipped"] / scores["auto"] for scores in table.values()) < 2
    assert 5 < max(scores["Dirichlet draw"] / scores["Dirichlet"] for scores in table.values()) < 5.5
