import numpy as np
import pytest

from pymc_dirdp.inference.measurements import Family, Measurement, number_of_records


def test_a_family_knows_its_parents():
    family = Family("p_c", ("b", "a", "c"), (3, 2, 2))
    assert (family.parents, family.variable) == (("b", "a"), "c")


def test_a_marginal_has_the_order_of_the_axes_asked_for_and_the_variance_of_its_sums():
    noisy = np.arange(24.0).reshape(2, 3, 4)
    onto = Measurement(("a", "b", "c"), noisy, 1.5).onto(["c", "x", "a"])
    assert onto.axes == ("c", "a")
    np.testing.assert_array_equal(onto.noisy, noisy.sum(axis=1).T)
    assert onto.variance == 4.5


def test_the_sum_of_noise_over_an_axis_of_one_entry_is_the_noise_itself():
    measured = Measurement(("a", "b", "one"), np.ones((2, 3, 1)), 8.0)
    assert (measured.onto(["b", "a"]).variance, measured.onto(["a"]).variance) == (8.0, 24.0)


def test_a_measurement_of_other_variables_has_no_marginal():
    assert Measurement(("a",), np.ones(2), 1.0).onto(["b"]) is None


def test_the_number_of_records_is_the_best_linear_estimate_from_the_totals():
    """Against the simulated distribution: unbiased, with the variance of weighting by precision, and no less."""
    rng = np.random.default_rng(1)
    shapes, variances, found = [(2,), (3, 4)], [16.0, 1.0], []
    for _ in range(4000):
        measured = [
            Measurement(("a", "b")[: len(shape)], 1000 / np.prod(shape) + rng.normal(0, v**0.5, shape), v)
            for shape, v in zip(shapes, variances, strict=True)
        ]
        found.append(number_of_records(measured))
    best = 1 / (1 / 32 + 1 / 12)
    assert abs(np.mean(found) - 1000) < 5 * (best / 4000) ** 0.5
    assert np.var(found) == pytest.approx(best, rel=0.12)


def test_the_number_of_records_is_never_below_one():
    assert number_of_records([Measurement(("a",), np.array([-50.0, 3.0]), 1.0)]) == 1.0


def test_sorted_parents_and_back():
    family = Family("p_d", ("c", "a", "b", "d"), (2, 3, 4, 5))
    assert family.sorted.axes == ("a", "b", "c", "d")
    assert family.sorted.shape == (3, 4, 2, 5)
    table = np.random.default_rng(0).random(family.shape)
    np.testing.assert_array_equal(family.as_given(table.transpose(1, 2, 0, 3)), table)
