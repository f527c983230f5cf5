"""Sums over totals against the law at each total, by every way to sum over tables."""

import numpy as np
import pytest

from pymc_dirdp.inference.convolution import Convolution
from pymc_dirdp.inference.fourier import Fourier
from pymc_dirdp.inference.inversion import Inversion
from pymc_dirdp.inference.pair import Pair
from pymc_dirdp.inference.product_law import ProductLaw
from pymc_dirdp.inference.unknown_total import UnknownTotal

from .laws import dirichlet, simulated

# One tilt for all totals, or several; and one cell that is far wider than all others.
CASES = {
    "few records": (3, 60, 0.3, None, 12, Convolution),
    "two wide cells": (2, 30_000, 0.05, None, 2500, Pair),
    "many cells": (10, 8000, 0.2, None, 300, Inversion),
    "one far wider": (3, 60_000, 0.1, [0.995, 0.0025, 0.0025], 1500, Fourier),
}


@pytest.mark.parametrize("case", CASES)
def test_counts_and_shares_are_those_of_every_total(case):
    d, middle, r, y, wide, kind = CASES[case]
    rng = np.random.default_rng(3)
    y = np.maximum(rng.dirichlet(r * simulated(d, middle, 1.0, rng)[1] + 1), 1e-9) if y is None else y
    law = ProductLaw(alpha=np.ones(d), total=2 * middle, log_likelihood=dirichlet(y, r, np.ones(d)))
    totals = np.unique(np.linspace(middle - wide, middle + wide, 9).round().astype(int))
    masses = rng.dirichlet(np.ones(len(totals)))
    found = UnknownTotal(law, totals, masses)
    assert {type(tilted.sums) for tilted, _, _ in found._runs} == {kind}
    means, variances = (
        np.array([getattr(law.at(int(n)), moment) for n in totals]) for moment in ("means", "variances")
    )
    np.testing.assert_allclose(found.counts.means, masses @ means, rtol=1e-8)
    spread = masses @ (variances + means**2) - (masses @ means) ** 2
    np.testing.assert_allclose(found.counts.variances, spread, rtol=1e-6)
    shares = masses @ ((means + 1) / (totals[:, None] + d))
    np.testing.assert_allclose(found.mixture.moments[0], shares, rtol=1e-7)


def test_totals_without_probability_are_left_out():
    law = ProductLaw(alpha=np.ones(2), total=12, log_likelihood=dirichlet([0.4, 0.6], 0.3, np.ones(2)))
    found = UnknownTotal(law, np.array([0, 5, 12]), np.array([0.0, 1.0, 1e-20]))
    assert found.totals.tolist() == [5]
    np.testing.assert_allclose(found.counts.means, law.at(5).means)
