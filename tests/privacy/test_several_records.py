"""Many records of a person in uneven cells: the bounds against every way to spread the records."""

import math

import numpy as np
import pytest

from pymc_dirdp.privacy.curves import best_order, converted_deltas, log_delta_at
from pymc_dirdp.privacy.divergences import renyi_add
from pymc_dirdp.privacy.unit import gains, partitions


@pytest.mark.parametrize("cells", [(0.01, 0.4, 0.45), (0.3, 0.3, 0.3), (0.02, 0.02, 5.0), (1e-4, 0.2, 0.6)])
@pytest.mark.parametrize("order", [1.0, 1.5, 8.0])
@pytest.mark.parametrize("r", [0.01, 1.0])
def test_what_many_records_gain_is_bounded_by_no_less_than_every_way_to_spread_them(cells, order, r):
    """Oracle: all partitions of 14 records, the larger part in the cell with the smaller parameter."""
    records = 14
    every = [
        math.fsum(renyi_add(order, a, k * r) for a, k in zip(cells, spread, strict=False))
        for spread in partitions(records, len(cells))
    ]
    found = gains(order, cells, len(cells), r, records)
    assert found >= max(every) * (1 - 1e-12)
    # A bound, and of the right size.
    assert found <= 4 * max(every)


def test_deltas_that_are_converted_from_divergences_are_nearly_the_best_conversion():
    """Oracle: the best order, searched for each epsilon, on the divergences of a Gaussian loss."""

    def renyi(order):
        return 0.02 * order

    found = converted_deltas(renyi, 0.25 * np.arange(6))
    for i, delta in enumerate(found):

        def log_delta(order, epsilon=0.25 * i):
            return log_delta_at(order, renyi(order), epsilon)

        best = log_delta(best_order(log_delta))
        assert best - 1e-9 <= np.log(delta) <= 0.9 * best + 1e-9
