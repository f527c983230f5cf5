"""The names of bins."""

import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.accounting.entries import Receipt
from pymc_dirdp.mechanisms.quantiles import QuantilesMechanism
from pymc_dirdp.stored.bins import Bins


@pytest.mark.parametrize(
    ("edges", "names"),
    [
        ((18.0,), ("below 18", "18 or more")),
        ((-0.5, 0.1, 3.0), ("below -0.5", "-0.5 to below 0.1", "0.1 to below 3", "3 or more")),
        ((1.0, 1.0 + 2**-52), ("below 1", "1 to below 1.0000000000000002", "1.0000000000000002 or more")),
    ],
)
def test_every_bin_has_a_name_of_its_own(edges, names):
    mechanism = QuantilesMechanism(4, n_candidates=9, scale=8.0)
    kept = {
        "guarantee": dirdp.PureDP(epsilon=1.0),
        "unit": "record",
        "identity": "0" * 32,
        "entry": Receipt("0" * 32, 1, "0" * 64),
        "reproducible": False,
        "library_version": "0.1.0",
    }
    bins = Bins(column="age", edges=edges, mechanism=mechanism, **kept)
    assert bins.labels == names
    assert set(bins.label([-100.0, *edges])) == set(names)
    assert all(name in str(bins) for name in names)
