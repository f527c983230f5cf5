"""The likelihood of the shares of two cells: against the law of any row, and against all counts in many digits."""

import mpmath
import numpy as np
import pytest

from pymc_dirdp.inference.binary_row import BinaryRow
from pymc_dirdp.inference.product_law import ProductLaw

from .laws import tabulated

Z = np.array([3.2, 15.9])


def noisy(counts, cells):
    return -np.abs(Z[cells] - counts) / 2


def law(total=20, log_likelihood=noisy, **more):
    return ProductLaw(alpha=[1, 1], total=total, log_likelihood=log_likelihood, **more)


@pytest.mark.parametrize("share", [0.5, 0.16, 1e-3, 1e-12, 1 - 1e-9])
@pytest.mark.parametrize("least", [0, 3])
@pytest.mark.parametrize("total", [6, 20, 3000])
def test_it_is_the_sum_over_all_counts(total, least, share):
    row = law(total, least=least, log_factor=-1.5)
    value, means = BinaryRow(row).given(np.log([share, 1 - share]))
    with mpmath.workdps(50):
        p = mpmath.mpf(np.log(share)), mpmath.mpf(np.log(1 - share))
        counts = range(least, total - least + 1)
        terms = [
            mpmath.binomial(total, k)
            * mpmath.exp(k * p[0] + (total - k) * p[1] - 1.5 + noisy(k, 0) + noisy(total - k, 1))
            for k in counts
        ]
        whole = mpmath.fsum(terms)
        expected = mpmath.fsum(k * term for k, term in zip(counts, terms, strict=True)) / whole
        assert value == pytest.approx(float(mpmath.log(whole)), rel=1e-12)
        assert means == pytest.approx([float(expected), float(total - expected)], rel=1e-11)


@pytest.mark.parametrize("share", [0.5, 0.16, 1e-3, 0.0, 1.0])
def test_it_is_the_law_of_any_row(share):
    row = law()
    with np.errstate(divide="ignore"):
        logs = np.log([share, 1 - share])
    value, means = BinaryRow(row).given(logs)
    other = ProductLaw(alpha=[1, 1], total=20, log_likelihood=noisy, log_shares=logs)
    assert value == pytest.approx(other.log_evidence, rel=1e-12)
    assert means == pytest.approx(other.means, rel=1e-11, abs=1e-300)


def test_what_is_impossible_has_no_likelihood():
    none = tabulated([[-np.inf] * 5, [0.0] * 5])
    some = tabulated([[-np.inf, 0.0, 0.0, 0.0, 0.0], [0.0] * 5])
    with np.errstate(divide="ignore"):
        zero = np.log([0.0, 1.0])
    assert BinaryRow(law(4, none)).given(np.log([0.5, 0.5]))[0] == -np.inf
    value, means = BinaryRow(law(4, some)).given(zero)
    assert value == -np.inf
    assert means.tolist() == [0.0, 0.0]
    assert BinaryRow(law(4, some)).given(zero[::-1]) == (0.0, pytest.approx([4.0, 0.0]))
    assert BinaryRow(law(0)).given(np.log([0.5, 0.5]))[1].tolist() == [0.0, 0.0]
