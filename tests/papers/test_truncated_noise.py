"""Truncated integer noise and P4's Laplace mechanisms: P4's tables, exact distributions, curves by summation."""

import math

import numpy as np
import pytest
from scipy.stats import laplace

from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.papers import HellingerMechanism, p4_ilap_mech, p4_lap_mech
from pymc_dirdp.papers.truncated_noise import TruncatedNoiseMechanism
from pymc_dirdp.privacy.guarantees import PureDP

FORMS = {"lap": p4_lap_mech, "ilap": p4_ilap_mech}


def steps(mechanism, n=1000):
    """How likely the released first count is 0, 1, 2, ... from the true one, in either direction and in both."""
    outcomes, distribution = mechanism.distribution([n // 2, n - n // 2])
    shift = outcomes[:, 0] - n // 2
    both_ways = [distribution[np.abs(shift) == t].sum() for t in range(1, 3)]
    return [distribution[shift == t].sum() for t in range(3)], both_ways


# P4's Tables 1 and 2: what is printed there, and it is right.
PRINTED = {
    "lap": ((0.19673467014, 0.11932560927, 0.07237464051), (0.31606027941, 0.19170024978)),
    "ilap": ((0.31606027941, 0.11627207896, 0.04277410743), (0.43233235838, 0.1590461864)),
}


@pytest.mark.parametrize("name", PRINTED)
def test_tables_1_and_2_of_p4(name):
    mechanism = FORMS[name](epsilon=1.0, prior=[1, 1], n_records=1000)
    directed, both_ways = steps(mechanism)
    np.testing.assert_allclose(directed, PRINTED[name][0], rtol=0, atol=1.01e-11)
    np.testing.assert_allclose(both_ways, PRINTED[name][1], rtol=0, atol=1.01e-11)
    # ERRATA P4.2 and L113: the baseline does not spend the whole budget, so it is an unfair one.
    for d, least in ((2, 1 / 2), (3, 2 / 3)):
        spent = FORMS[name](epsilon=1.0, prior=np.ones(d), n_records=9).pure_epsilon
        assert spent == (pytest.approx(least) if name == "lap" else 1.0)


def test_the_geometric_form_is_the_most_accurate_for_two_categories():
    """Theory, section 13."""
    n, counts = 15_000, [7500, 7500]
    geometric = TruncatedNoiseMechanism.for_guarantee(PureDP(epsilon=1.0), prior=[1, 1], n_records=n)
    assert geometric.expected_distance(counts) == pytest.approx(0.0049123474, rel=1e-7)
    laplace = p4_lap_mech(epsilon=1.0, prior=[1, 1], n_records=n)
    assert laplace.expected_distance(counts) == pytest.approx(0.011783773997043676, rel=1e-12)
    assert geometric.pure_epsilon == pytest.approx(1.0, rel=1e-9)
    assert geometric.pure_epsilon <= 1


def noise_distributions(noise, scale):
    """The distribution of the noise in one cell, and the same one step up, on integers."""
    g = np.arange(-430, 432)
    if noise == "geometric":
        distribution = np.exp(-np.abs(g) / scale)
        distribution /= distribution.sum()
    else:
        distribution = laplace.cdf(g + 1, scale=scale) - laplace.cdf(g, scale=scale)
        # The difference of two numbers near 1 loses everything; on that side take tails.
        distribution = np.where(g >= 0, laplace.sf(g, scale=scale) - laplace.sf(g + 1, scale=scale), distribution)
    return distribution[1:], distribution[:-1]


@pytest.mark.parametrize("noise", ["geometric", "laplace"])
@pytest.mark.parametrize("scale", [0.15, 3.0])
@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.thorough
def test_curves_by_summation(noise, scale, d):
    mechanism = TruncatedNoiseMechanism(np.ones(d), 100, scale, noise_kind=noise)
    p, q = noise_distributions(noise, mechanism.scale)
    likely = (p > 1e-60) & (q > 1e-60)
    p, q = p[likely], q[likely]
    if d == 3:
        # The second cell moves the other way.
        p, q = np.multiply.outer(p, q).ravel(), np.multiply.outer(q, p).ravel()
    for order in (1.0 + 1e-7, 1.5, 4.0, min(60.0, 500 / mechanism.pure_epsilon)):
        by_hand = math.log(math.fsum(q * np.exp(order * (np.log(p) - np.log(q))))) / (order - 1)
        assert mechanism.renyi(order) == pytest.approx(by_hand, rel=1e-6)
    assert mechanism.renyi(1) == pytest.approx(math.fsum(p * (np.log(p) - np.log(q))), rel=1e-9)
    for share in (0.0, 0.3, 0.7, 1.0):
        epsilon = share * mechanism.pure_epsilon
        by_hand = math.fsum(np.maximum(p - math.exp(epsilon) * q, 0))
        assert mechanism.delta(epsilon) == pytest.approx(by_hand, rel=1e-9, abs=1e-12)
    orders = 1 + np.geomspace(1e-6, 1e5, 200)
    assert np.all(mechanism.renyi(orders) <= orders * mechanism.rho(math.inf) * (1 + 1e-12))
    assert mechanism.renyi(1e9) == pytest.approx(mechanism.pure_epsilon, rel=1e-6)


@pytest.mark.parametrize("noise", ["geometric", "laplace"])
@pytest.mark.parametrize("total", ["fixed", "printed"])
@pytest.mark.parametrize("counts", [[0, 7], [2, 0, 5]])
def test_distributions_add_up_and_stay_inside(noise, total, counts):
    mechanism = TruncatedNoiseMechanism(np.ones(len(counts)), 7, 3.0, noise_kind=noise, total=total)
    outcomes, distribution = mechanism.distribution(counts)
    assert distribution.sum() == pytest.approx(1, rel=1e-14)
    assert np.all(distribution >= 0)
    assert np.all((outcomes >= 0) & (outcomes <= 7))
    totals = outcomes.sum(axis=1)
    assert np.all(totals == 7) if total == "fixed" or len(counts) == 2 else totals.max() == 14


def test_arguments():
    # A private number of records would be published.
    private = {"adjacency": "add-remove"}
    for kind, arguments, message in (
        (TruncatedNoiseMechanism, {"noise_kind": "gaussian"}, "noise"),
        (TruncatedNoiseMechanism, {"total": "lost"}, "total"),
        (TruncatedNoiseMechanism, private, "private, and TruncatedNoiseMechanism publishes it"),
        (HellingerMechanism, private, "private, and HellingerMechanism publishes it"),
    ):
        with pytest.raises(ArgumentError, match=message):
            kind([1, 1], 5, 1.0, **arguments)
    with pytest.raises(UnattainableError, match="more than"):
        TruncatedNoiseMechanism(np.ones(4), 1000, 1.0).distribution([1000, 0, 0, 0])
    released = TruncatedNoiseMechanism(np.ones(4), 1000, 1.0).release([1000, 0, 0, 0], random_seed=1)
    assert released.sum() == 1000
