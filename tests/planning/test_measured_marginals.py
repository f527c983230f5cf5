"""Which marginals of the tables of a model are measured, and with how much noise."""

import math

import numpy as np
import pytest

from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.marginals import ZeroSumMarginalsMechanism
from pymc_dirdp.planning.allocation import composed
from pymc_dirdp.planning.measured_marginals import Protected, by_table, choose_noise, marginals_of, weights_of
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP, ZeroCDP

A, B, C = ("a", 2), ("b", 3), ("c", 4)
TABLES = {"p_a": (A,), "p_b": (A, B), "p_c": (A, B, C)}
PRIORS = {name: np.ones([length for _, length in axes]) for name, axes in TABLES.items()}
TARGET = ApproxDP(epsilon=0.8, delta=1e-5)


def names_of(tables, measure):
    return [marginal.names for marginal in marginals_of(tables, measure)]


def test_levels_are_measured_once():
    found = {marginal.names: (marginal.table, marginal.cells) for marginal in marginals_of(TABLES, "levels")}
    of_c = {("c",): ("p_c", 4), ("a", "c"): ("p_c", 8), ("b", "c"): ("p_c", 12), ("a", "b", "c"): ("p_c", 24)}
    assert found == {("a",): ("p_a", 2), ("b",): ("p_b", 3), ("a", "b"): ("p_b", 6)} | of_c
    assert names_of(TABLES, "variables") == [("a",), ("b",), ("c",)]
    assert names_of(TABLES, "families") == [("a",), ("a", "b"), ("a", "b", "c")]
    # Axes of one entry change no count.
    tables = {"p_a": (A,), "p_b": (("one", 1), A, B)}
    assert names_of(tables, "levels") == [("a",), ("b",), ("a", "b")]
    assert marginals_of(tables, "levels")[-1].axes == (1, 2)
    with pytest.raises(ArgumentError, match="one cell"):
        marginals_of(tables, ["a", ("one", "b"), "one"])


def test_a_marginal_is_summed_from_the_table_of_one_of_its_variables():
    found = marginals_of(TABLES, [("b", "a"), "a", "b", ["c", "a"], ("a", "b"), "c"])
    assert [marginal.table for marginal in found] == ["p_b", "p_a", "p_b", "p_c", "p_c"]
    assert [marginal.names for marginal in found] == [("a", "b"), ("a",), ("b",), ("a", "c"), ("c",)]
    # No table is that of one of the parents alone.
    assert names_of({"p": (("x", 2), ("y", 2), ("z", 3))}, [("x", "y"), "z"]) == [("x", "y"), ("z",)]
    with pytest.raises(ArgumentError, match="No table has all axes of the marginal"):
        marginals_of({"p_a": (A,), "p_b": (B,)}, ["a", "b", ("a", "b")])


WRONG = [
    ("level", "levels"),
    ([3], "a name, or a tuple"),
    ([("a", "a")], "different names"),
    (["d", "a"], "'d'"),
    (["a", "b"], "no marginal of 'p_c' with 'c'"),
    ([], "no marginal of 'p_a'"),
    ([("b", "a"), "a", "b", ("a", "d")], "'d'"),
]


def test_marginals_that_cannot_be_measured_and_weights_of_no_marginal():
    for measure, message in WRONG:
        with pytest.raises(ArgumentError, match=message):
            marginals_of(TABLES, measure)
    for weights, message in (
        ({"p_a": 1}, "'p_a', which is not measured"),
        ({"a": 1e-200, "b": 1e200}, "within a factor"),
        ({"a": 5e-324}, "within a factor"),
        ({"a": 0}, "weights"),
    ):
        with pytest.raises(ArgumentError, match=message):
            weights_of(marginals_of(TABLES, "levels"), weights, 1.0, None)


def people(adjacency="replace-one", records=1):
    return Protected(adjacency, dict.fromkeys(TABLES, records), adjacency == "replace-one")


def curves(marginals, noise, parameters, protected):
    return composed(by_table(marginals, noise, parameters, protected, PRIORS), [tuple(TABLES)], 1)


def planned(guarantee=TARGET, protected=None, measure="levels", noise="auto", weights=None, n_records=None):
    protected = protected or people()
    marginals = marginals_of(TABLES, measure)
    found = choose_noise(guarantee, marginals, protected, noise=noise, weights=weights, n_records=n_records)
    return marginals, *found


@pytest.mark.parametrize("noise", ["gaussian", "geometric"])
@pytest.mark.parametrize(
    ("guarantee", "adjacency"),
    [(TARGET, "replace-one"), (RenyiDP(order=6, epsilon=0.4), "add-remove"), (ZeroCDP(rho=0.1), "replace-one")],
    ids=str,
)
def test_the_guarantee_holds_and_is_used_up_whatever_the_weights(guarantee, noise, adjacency):
    protected, weights = people(adjacency), {("a", "b"): 0.1, "c": 7.0, ("c", "b", "a"): 19.0}
    marginals, kind, parameters = planned(guarantee, protected, noise=noise, weights=weights)
    assert kind == noise
    assert curves(marginals, kind, parameters, protected).satisfies(guarantee)
    found = by_table(marginals, kind, parameters, protected, PRIORS).values()
    assert [parameter for mechanism in found for parameter in mechanism.parameters] == pytest.approx(parameters)
    less = [0.999 * parameter for parameter in parameters]
    assert not curves(marginals, kind, less, protected).satisfies(guarantee)


def test_the_noise_is_that_of_one_gaussian_and_smaller_by_root_two_under_add_remove():
    """Balle and Wang's exact curve, at the precision of the sum; the discrete one is hardly apart from it here."""
    marginals, _, parameters = planned(noise="gaussian", weights={"c": 4.0})
    weights = np.array([4.0 if marginal.names == ("c",) else 1.0 for marginal in marginals])
    single = DiscreteGaussianMechanism.for_guarantee(TARGET, prior=[1, 1], adjacency="add-remove").sigma
    expected = single * np.sqrt(2 * weights.sum() / weights)
    # The grid of the composition costs a half per mill.
    assert np.all(expected <= np.array(parameters) * (1 + 1e-9))
    np.testing.assert_allclose(parameters, expected, rtol=1e-3)
    _, _, removed = planned(protected=people("add-remove"), noise="gaussian", weights={"c": 4.0})
    np.testing.assert_allclose(np.array(parameters) / removed, math.sqrt(2), rtol=1e-3)


def test_weights_follow_the_cells_that_the_noise_leaves_visible():
    marginals = marginals_of(TABLES, "levels")
    assert weights_of(marginals, None, 10.0, None) == [1.0] * 7
    assert weights_of(marginals, None, 1e6, 10) == [1.0] * 7
    # Roots of 2, 3, 6, 4, 8, 12 and 24, rounded to powers of 2.
    assert weights_of(marginals, None, 1.0, 10**6) == [1.0, 2.0, 2.0, 2.0, 4.0, 4.0, 4.0]
    # Sixteen records of four standard deviations of 10 each.
    assert weights_of(marginals, None, 10.0, 160) == [1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]
    assert weights_of(marginals, None, 0.0, 160)[-1] == 4.0
    assert weights_of(marginals, {("b", "a"): 3, "c": 2.5}, 1.0, 10**6) == [1.0, 1.0, 3.0, 2.5, 1.0, 1.0, 1.0]


def test_a_class_by_itself_has_a_fifth_of_the_precision_and_what_says_nothing_of_it_hardly_any():
    for measure in ("levels", "families"):
        marginals = marginals_of(TABLES, measure)
        found = weights_of(marginals, None, 1.0, 10**6, "a")
        of_class = math.fsum(w for marginal, w in zip(marginals, found, strict=True) if "a" in marginal.names[:-1])
        assert found[0] == of_class / 4
        without = [w for marginal, w in zip(marginals, found, strict=True) if "a" not in marginal.names]
        # Also of geometric noise, which divides the roots of precisions.
        assert sum(map(math.sqrt, without)) < math.sqrt(min(found[0], of_class)) / 9
    assert np.sqrt(weights_of(marginals_of(TABLES, "variables"), None, 1.0, 100, "a"))[1:].sum() < 0.1
    assert weights_of(marginals_of(TABLES, "variables"), {"b": 2}, 1.0, 100, "a") == [1.0, 2.0, 1.0]


@pytest.mark.parametrize(("many", "expected"), [(3, "geometric"), (6, "gaussian")])
def test_few_marginals_take_geometric_noise_and_many_take_gaussian(many, expected):
    """In wide tables, where zero-sum noise is nearly independent."""
    tables = {f"p_{i}": ((f"v{i}", 30),) for i in range(many)}
    marginals, sds = marginals_of(tables, "levels"), {}
    protected = Protected("replace-one", dict.fromkeys(tables, 1), public_totals=True)
    for noise in ("gaussian", "geometric", "auto"):
        found = choose_noise(TARGET, marginals, protected, noise=noise, weights=None, n_records=None)
        sds[noise] = protected.noise(marginals[0], found[0], found[1][0]).sd
    assert found[0] == expected == min(sds, key=sds.__getitem__)


def test_pure_privacy_has_geometric_noise_alone():
    marginals, noise, parameters = planned(PureDP(epsilon=1.0))
    assert noise == "geometric"
    assert curves(marginals, noise, parameters, people()).pure_epsilon == pytest.approx(1.0, rel=1e-5)
    with pytest.raises(UnattainableError, match="geometric"):
        planned(PureDP(epsilon=1.0), noise="gaussian")
    with pytest.raises(UnattainableError):
        planned(ApproxDP(epsilon=1e-70, delta=1e-70))
    # Noise that adds up to 0 is for public numbers.
    assert people().kind("geometric") is ZeroSumMarginalsMechanism
    assert people("add-remove").kind("geometric") is not ZeroSumMarginalsMechanism
