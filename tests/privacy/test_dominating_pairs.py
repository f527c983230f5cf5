"""The exact curves against references and many digits; `test_unit_brute_force.py` has every neighbour."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from pymc_dirdp.privacy.dominating_pairs import DominatingPair
from pymc_dirdp.privacy.unit import dominating_pair
from tests.test_rounding import pair_delta

REFERENCE = Path(__file__).parents[1] / "reference" / "curves.json"


@pytest.mark.parametrize(("curve", "argument"), [("renyi", "order"), ("rho", "omega"), ("delta", "epsilon")])
def test_reference_values(curve, argument):
    for case in json.loads(REFERENCE.read_text())[curve]:
        pair = dominating_pair(np.array(case["alpha"], dtype=float), float(case["r"]), case["adjacency"])
        assert getattr(pair, curve)(case[argument]) == pytest.approx(float(case["value"]), rel=1e-10)


@pytest.mark.parametrize("pair", [DominatingPair(1.0, 2.0, 1e10), DominatingPair(1.0, math.inf, 1e10)])
def test_orders_at_the_end_of_the_doubles_are_no_way_round_a_curve(pair):
    """A divergence that was no number vanished in a maximum: (1, 1e300)-tCDP was guaranteed by its divergence at 1."""
    assert pair.renyi(1e300) == math.inf
    assert pair.rho(1e300) == math.inf


# The probability of a loss, with 90 digits. Published deltas are raised by 3e-11, or by the errors of two tails.


@pytest.mark.parametrize(
    ("epsilon", "loses", "gains", "r"),
    [
        # Far out the second tail had fewer digits or none, and delta was up to six times its size.
        (500.0, 1.0, 1.0, 1.0),
        (650.0, 2.0, 2.0, 2.0),
        (112.0, 3.0, 5.0, 0.5),
        (20.0, 10.0, 20.0, 0.3),
        (133.0, 0.5, 0.5, 0.1),
        (157.0, 2.0, math.inf, 0.5),
        (38.0, 5.0, math.inf, 0.3),
        (630.0, 1.0, math.inf, 1.0),
        # This tail falls like the exponential of an exponential, and sums lost one part in eighty.
        (2.3983179906, math.inf, 0.0257974531964, 0.110164176673),
        (0.055091652, math.inf, 1.95493584057, 0.0102995235),
        (0.2, math.inf, 0.5, 0.05),
        # Uneven priors and tiny concentrations: a difference of doubles has no digit left.
        (0.0, 0.011, 1.6e5, 1.1e-7),
        (1e-7, 0.011, 1.6e5, 1.1e-7),
        # The two tails cancel, and the loss is integrated.
        (2.339879986719443e-06, 3.8260564459584474, 3.8260564459584474, 5.369271349060827e-07),
        (0.003163407710141332, 0.9189357400366182, 622.1830230681468, 0.0008135600913877155),
        (61000.491061500645, 0.003722788138886541, 969.5915456498782, 216.47211189633882),
        (3.9e-10, math.inf, 0.00027, 3.1e-07),
    ],
)
def test_deltas_keep_their_digits(epsilon, loses, gains, r):
    pair, truth = DominatingPair(loses, gains, r), pair_delta(epsilon, loses, gains, r)
    for found in (pair.delta(epsilon), pair._deltas(np.array([0.0, epsilon]))[1]):
        assert truth <= found <= truth * (1 + (4e-11 if loses < math.inf else 1.1e-9))


@pytest.mark.parametrize(("a", "b", "r"), [(1e25, 0.5, 0.01), (1e40, 1.0, 0.3)])
def test_a_parameter_that_is_huge_beside_a_small_one_is_an_infinite_one(a, b, r):
    """The full cell of a row with a public number of records; what is left is the record that is removed."""
    epsilons = np.array([0.1 * r, 2 * r, 5.0])
    np.testing.assert_allclose(
        DominatingPair(a, b, r).delta(epsilons), DominatingPair(b, math.inf, r).delta(epsilons), rtol=1e-9
    )


def test_deltas_do_not_rise_where_tails_are_0_in_doubles():
    """Found by the weekly fuzzing: an integral of 1e-315 was followed by the bound of a tail that is 0."""
    deltas = dominating_pair(np.array([1.0, 0.1]), 1.4e-4, "replace-one").delta(np.geomspace(1e-6, 1e3, 300))
    assert deltas[0] > 1e-4
    assert 0 < deltas[-1] < 1e-300
    assert np.all(deltas[1:] <= deltas[:-1] * (1 + 1e-9))


def test_delta_of_extreme_arguments():
    # No loss is bounded, so no delta is 0.
    assert 0 < DominatingPair(1.0, 1.0, 1e-8).delta(1e6) < 1e-300
    assert 0 < DominatingPair(1.0, math.inf, 1e-8).delta(1e6) < 1e-300
    # Small parameters put mass far beyond what exp can hold.
    assert 0.1 < DominatingPair(1e-3, math.inf, 1e-2).delta(0.5) < 1
    # What is rounded up is no more than 1.
    for pair in (
        DominatingPair(1e-3, 1e-3, 1e4),
        DominatingPair(1e5, 1e5, 1e9),
        *(dominating_pair(np.full(2, 1e-6), 100.0, a) for a in ("replace-one", "add-remove")),
    ):
        assert 1 - 1e-3 < pair.delta(0.0) <= 1
        assert np.all(pair.delta(np.linspace(0, 5, 50)) <= 1)
