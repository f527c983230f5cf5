"""The truth lies where the distribution says it does.

Over many data sets from the prior; other readings of them fail.
"""

import numpy as np
import pytest

from .calibration import CASES, LEVELS, Case, coverage, p_value, rank, ranks_of

FAST = ("2 cells, N 100, r 1", "4 cells, N 1000, r 0.1", "geometric 20, 10 cells, N 300, sparse")
# Data sets of the cases that take longest.
FEW = {name: 30 for name in CASES if name.startswith(("50", "private", "three private"))}


def holds(case, sets, seed):
    shares, counts, naive = ranks_of(case, sets, np.random.default_rng(seed))
    for ranks in (shares, counts):
        assert p_value(ranks) > 1e-6
        for prob, (found, error) in zip(LEVELS, coverage(ranks), strict=True):
            # Of few data sets all may hold the truth, and then their own spread says nothing.
            assert abs(found - prob) < 4 * max(error, np.sqrt(prob * (1 - prob) / sets)) + 0.005
    return naive


@pytest.mark.thorough
@pytest.mark.parametrize("name", FAST)
def test_calibrated(name):
    assert p_value(holds(CASES[name], 200, 1)) < 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(set(CASES) - set(FAST)))
def test_every_case_is_calibrated(name):
    holds(CASES[name], FEW.get(name, 150), 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_case_is_calibrated_over_a_thousand_data_sets(name):
    assert p_value(holds(CASES[name], 1000, 3)) < 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "misread"),
    [
        ("10 cells, N 1000, r 0.1, sparse", {"r": 1.5}),
        ("4 cells, N 1000, r 0.1", {"total": 1.05}),
        ("geometric 20, 10 cells, N 300, sparse", {"r": 1.6}),
        ("Laplace 5, 10 cells, N 1000", {"total": 1.05}),
    ],
)
def test_a_misread_release_is_not_calibrated(name, misread):
    shares, counts, _ = ranks_of(CASES[name], 200, np.random.default_rng(4), **misread)
    assert min(p_value(shares), p_value(counts)) < 1e-6


@pytest.mark.thorough
@pytest.mark.parametrize(("alpha", "calibrated"), [(0.1, False), (1.0, True)])
def test_counts_that_are_taken_for_any_numbers_are_calibrated_in_full_cells_only(alpha, calibrated):
    rng, case = np.random.default_rng(5), Case("dirichlet", 4, 300, 0.2, alpha)
    ranks = np.array([rank(*case.relaxed(rng), rng) for _ in range(200)])
    assert (p_value(ranks) > 1e-6) == calibrated
