"""An output as a function of the counts of a row: of several rows, and of an urn."""

import numpy as np
import pytest

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism


def test_rows_of_an_urn_have_the_factors_of_the_whole_table():
    mechanism = DirichletMechanism([[0.7, 1.0, 3.0], [2.0, 0.5, 0.1]], 0.4)
    x = np.array([[3.0, 0.0, 5.0], [1.0, 2.0, 0.0]])
    output = mechanism.sample(x, steps=50, random_seed=1)[0]
    rows = mechanism.row_likelihoods(output, steps=50)
    parts = [
        row.of_cells(counts, np.arange(3)).sum() + row.of_total(counts.sum())
        for row, counts in zip(rows, x, strict=True)
    ]
    assert sum(parts) == pytest.approx(float(mechanism.log_likelihood(output, x, steps=50)), rel=1e-12)
    # One cell, many counts.
    many = rows[1].of_cells(np.arange(5.0), np.array(0))
    assert many[1] == pytest.approx(mechanism.cell_log_likelihood(output, x, steps=50)[1, 0])
    assert np.ptp(many) > 1
    with pytest.raises(ArgumentError, match="not on the grid"):
        mechanism.row_likelihoods(output + [0.001, -0.001, 0], steps=50)


def test_noise_says_nothing_of_a_total_and_each_row_has_its_own_numbers():
    mechanism = GeometricMechanism(np.ones((2, 2)), 2.0)
    first, second = mechanism.row_likelihoods(np.array([[3.0, 4.0], [9.0, -1.0]]))
    assert first.of_total(np.arange(4.0)).tolist() == [0, 0, 0, 0]
    assert first.of_cells(np.array(3.0), np.array(0)) == second.of_cells(np.array(9.0), np.array(0))
    assert second.of_cells(np.array(1.0), np.array(1)) < second.of_cells(np.array(0.0), np.array(1))
