import numpy as np
import pytest

from pymc_dirdp.inference.measurements import Family, Measurement, number_of_records


def test_a_family_has_parents_that_are_sorted_and_given_back():
    family = Family("p_d", ("c", "a", "b", "d"), (2, 3, 4, 5))
    assert (family.parents, family.variable) == (("c", "a", "b"), "d")
    assert (family.sorted.axes, family.sorted.shape) == (("a", "b", "c", "d"), (3, 4, 2, 5))
    table = np.random.default_rng(0).random(family.shape)
    np.testing.assert_array_equal(family.as_given(table.transpose(1, 2, 0, 3)), table)


def test_a_marginal_has_the_order_of_the_axes_asked_for_and_the_variance_of_its_sums():
    noisy = np.arange(24.0).reshape(2, 3, 4, 1)
    measured = Measurement(("a", "b", "c", "one"), noisy, 1.5)
    onto = measured.onto(["c", "x", "a"])
    assert onto.axes == ("c", "a")
    np.testing.assert_array_equal(onto.noisy, noisy.sum(axis=(1, 3)).T)
    assert (onto.variance, measured.onto(["c", "b", "a"]).variance) == (4.5, 1.5)
    assert measured.onto(["x"]) is None


def test_the_number_of_records_is_the_best_linear_estimate_from_the_totals():
    """Against the simulated distribution: unbiased, with the variance of weighting by precision, and no less."""
    rng, found = np.random.default_rng(1), []
    for _ in range(4000):
        one, other = 500 + rng.normal(0, 4, 2), 1000 / 12 + rng.normal(0, 1, (3, 4))
        found.append(number_of_records([Measurement(("a",), one, 16.0), Measurement(("a", "b"), other, 1.0)]))
    best = 1 / (1 / 32 + 1 / 12)
    assert abs(np.mean(found) - 1000) < 5 * (best / 4000) ** 0.5
    assert np.var(found) == pytest.approx(best, rel=0.12)
    assert number_of_records([Measurement(("a",), np.array([-50.0, 3.0]), 1.0)]) == 1.0
