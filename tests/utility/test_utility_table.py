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
    path = ROOT / "docs" / "utility_table.md"
    if not path.exists():
        pytest.skip("the documentation is not beside these tests")
    rows = [[cell.strip() for cell in line.strip("| \n").split("|")] for line in path.read_text().splitlines()[2:]]
    return {
        (kind, int(d), round(float(n)), float(epsilon)): dict(zip(script.COLUMNS, map(float, cells), strict=True))
        for kind, d, n, epsilon, *cells in rows
    }


def test_it_has_all_rows(table, script):
    assert len(table) == len(script.PRIORS) * len(script.CATEGORIES) * len(script.RECORDS) * len(script.EPSILONS) == 120


@pytest.mark.parametrize("key", [("flat", 10, 1000, 1.0), ("sparse", 100, 10_000, 0.1), ("flat", 2, 10**6, 5.0)])
def test_rows_are_what_the_library_computes(table, script, key):
    for name, value in script.row(*key, "estimate").items():
        assert table[key][name] == pytest.approx(value, rel=0.01)


def test_auto_is_never_worse_than_the_best_by_more_than_5_per_cent(table):
    for scores in table.values():
        others = [scores[name] for name in ("Algorithm 1", "optimal", "gaussian", "laplace", "geometric")]
        assert scores["auto"] <= 1.05 * min(others)


def test_what_the_text_says(table):
    gains = [scores["Algorithm 1"] / scores["optimal"] for scores in table.values()]
    assert min(gains) >= 0.999
    assert 3 < max(gains) < 4.5
    small = [scores for (_, d, n, epsilon), scores in table.items() if d >= 100 and n == 100 and epsilon == 0.1]
    assert small
    assert all(s["auto"] == s["optimal"] for s in small)
