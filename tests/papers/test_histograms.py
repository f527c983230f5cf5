"""P2 section 4.2 against searches, and the distribution of the largest of many normal variables."""

import math

import numpy as np
import pytest
from printed_p2 import (
    p2_equation_14,
    p2_equation_16,
    p2_equation_16_sample_size,
    p2_sample_size,
    p2_theorem_1_prior,
    p2_theorem_4,
)
from scipy.special import ndtr

from pymc_dirdp.errors import ArgumentError


@pytest.mark.parametrize("accuracy", [0.01, 0.3])
@pytest.mark.parametrize("rho", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("d", [2, 1000])
def test_the_sample_size_is_the_first_that_is_enough(accuracy, rho, d):
    n = p2_sample_size(accuracy=accuracy, probability=0.05, rho=rho, gamma=1.0, d=d)
    alpha = np.full(d, p2_theorem_1_prior(rho=rho, gamma=1.0))
    assert p2_theorem_4(probability=0.05, effective_records=n, alpha=alpha) <= accuracy
    assert p2_theorem_4(probability=0.05, effective_records=n - 1, alpha=alpha) > accuracy
    # Equations 14 and 15 have the right order.
    order = p2_equation_14(accuracy=accuracy, probability=0.05, rho=rho, gamma=1.0, d=d)
    assert 0.25 < n / order < 4
    # Equation 17: by these bounds Gaussian noise needs fewer records.
    assert p2_equation_16_sample_size(accuracy=accuracy, probability=0.05, rho=rho, d=d) < n


@pytest.mark.parametrize("d", [2, 10, 1000])
def test_equation_16_bounds_the_quantile(d):
    n, rho, probability = 200, 0.1, 0.05
    sd = 1 / math.sqrt(rho) / n
    bound = p2_equation_16(probability=probability, n_records=n, rho=rho, d=d)
    exceeded = -math.expm1(d * math.log1p(-2 * float(ndtr(-bound / sd))))
    assert probability / 20 < exceeded < probability
    enough = p2_equation_16_sample_size(accuracy=bound, probability=probability, rho=rho, d=d)
    assert enough in (n, n + 1)


def test_arguments():
    size = {"accuracy": 0.05, "probability": 0.05, "rho": 0.1, "gamma": 1.0, "d": 10}
    for wrong in ({"accuracy": 1.0}, {"probability": 0}, {"rho": -1}, {"gamma": 0}, {"d": 1}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            p2_sample_size(**(size | wrong))
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            p2_equation_14(**(size | wrong))
    with pytest.raises(ArgumentError, match="n_records"):
        p2_equation_16(probability=0.05, n_records=0, rho=0.1, d=10)
