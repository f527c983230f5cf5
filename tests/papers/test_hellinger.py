"""P4's exponential mechanisms.

The distribution by its definition, exact calibration, and what is too large.
"""

import itertools

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.papers.hellinger import HellingerMechanism, _distributions
from pymc_dirdp.papers.hellinger_distributions import (
    HellingerDistributions,
    global_sensitivity,
    hellinger_distance,
    local_sensitivities,
    smooth_sensitivities,
)
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, ZeroCDP

ONE = PureDP(epsilon=1.0)


def balanced(n, d):
    x = np.full(d, n // d)
    x[-1] += n - x.sum()
    return x


@pytest.mark.parametrize(
    ("prior", "n", "gamma"), [((1.0, 2.5), 6, 0.3), ((0.2, 1.0, 0.7), 3, 1.0), ((0.5, 2.0, 1.0, 0.1), 2, None)]
)
def test_the_distribution_is_its_definition(prior, n, gamma):
    """Definitions 3 and 4 written out with 30 digits: distances, all data sets, sensitivities, probabilities."""
    with mp.workdps(30):

        def log_beta(values):
            return mp.fsum(mp.loggamma(v) for v in values) - mp.loggamma(mp.fsum(values))

        def distance(x, y):
            a, b = ([mp.mpf(p) + k for p, k in zip(prior, z, strict=True)] for z in (x, y))
            middle = [(u + v) / 2 for u, v in zip(a, b, strict=True)]
            return mp.sqrt(abs(mp.expm1(log_beta(middle) - (log_beta(a) + log_beta(b)) / 2)))

        def apart(x, y):
            return sum(max(i - j, 0) for i, j in zip(x, y, strict=True))

        data = [z for z in itertools.product(range(n + 1), repeat=len(prior)) if sum(z) == n]
        local = {x: max(distance(x, y) for y in data if apart(x, y) == 1) for x in data}
        options = {"smoothness": gamma} if gamma else {"sensitivity": "global"}
        mechanism = HellingerMechanism(prior, n, 0.7, **options)
        distributions = {}
        for x in data:
            smooth = 1 / min(1 / local[z] + gamma * apart(x, z) for z in data) if gamma else max(local.values())
            weights = [mp.exp(-0.7 * distance(x, r) / smooth) for r in data]
            distributions[x] = [w / mp.fsum(weights) for w in weights]
            outcomes, probabilities = mechanism.distribution(x)
            assert [tuple(row) for row in outcomes.tolist()] == data
            np.testing.assert_allclose(probabilities, [float(p) for p in distributions[x]], rtol=1e-11)
            far = mp.fsum(p * distance(x, r) for p, r in zip(distributions[x], data, strict=True))
            assert mechanism.expected_distance(x) == pytest.approx(float(far), rel=1e-11)
        neighbours = [(x, y) for x in data for y in data if apart(x, y) == 1]
        worst = max(
            mp.log(p / q) for x, y in neighbours for p, q in zip(distributions[x], distributions[y], strict=True)
        )
        assert mechanism.pure_epsilon == pytest.approx(float(worst), rel=2e-10)
        order = mp.mpf("2.5")
        renyi = max(
            mp.log(
                mp.fsum(p**order * q ** (1 - order) for p, q in zip(distributions[x], distributions[y], strict=True))
            )
            / (order - 1)
            for x, y in neighbours
        )
        assert mechanism.renyi(2.5) == pytest.approx(float(renyi), rel=2e-10)


@settings(max_examples=12)
@given(
    st.lists(st.floats(0.05, 20), min_size=2, max_size=3),
    st.integers(1, 6),
    st.floats(0.05, 4),
    st.floats(0.02, 5),
    st.sampled_from(["smooth", "global"]),
)
def test_the_proof_holds_for_every_smoothness(prior, n, exponent, gamma, sensitivity):
    """P4, Lemma 5.1, in its general form: `2 (1 + gamma) exponent`."""
    exact = HellingerMechanism(prior, n, exponent, sensitivity=sensitivity, smoothness=gamma)
    assert exact.pure_epsilon <= exact.proved_epsilon * (1 + 1e-12)


@pytest.mark.parametrize("accounting", ["exact", "proved"])
@pytest.mark.parametrize("sensitivity", ["smooth", "global"])
@pytest.mark.parametrize(("prior", "n"), [([0.3, 2, 1], 7)])
def test_calibration_to_pure_privacy_is_safe_and_tight(prior, n, sensitivity, accounting):
    options = {"prior": prior, "n_records": n, "sensitivity": sensitivity, "accounting": accounting, "smoothness": 0.5}
    mechanism = HellingerMechanism.for_guarantee(ONE, **options)
    assert 1 - 1e-9 < mechanism.pure_epsilon <= 1
    assert mechanism.satisfies(ONE)
    if accounting == "proved":
        assert mechanism.exponent == pytest.approx(1 / 3 if sensitivity == "smooth" else 1 / 2, rel=1e-9)
    else:
        assert (
            mechanism.exponent
            > 1.2 * HellingerMechanism.for_guarantee(ONE, **options | {"accounting": "proved"}).exponent
        )


@pytest.mark.parametrize("guarantee", [ApproxDP(epsilon=0.5, delta=1e-3), ZeroCDP(rho=0.02)])
@pytest.mark.thorough
def test_other_guarantees_need_no_more_noise_than_the_pure_one_they_follow_from(guarantee):
    loose, proved = (
        HellingerMechanism.for_guarantee(guarantee, prior=[1, 1], n_records=6, smoothness=0.5, accounting=accounting)
        for accounting in ("exact", "proved")
    )
    assert loose.satisfies(guarantee)
    assert proved.satisfies(guarantee)
    assert loose.exponent > proved.exponent


def test_large_beta_models_need_no_comparison():
    proved = HellingerMechanism.for_guarantee(ONE, prior=[1, 1], n_records=100_000, smoothness=0.1, accounting="proved")
    assert proved.pure_epsilon <= 1
    assert proved.release([40_000, 60_000], random_seed=1).sum() == 100_000
    with pytest.raises(UnattainableError, match='accounting="proved"'):
        HellingerMechanism([1, 1], 100_000, 0.25).epsilon(1e-3)


def test_large_tables_release():
    n, d = 60, 4
    mechanism = HellingerMechanism.for_guarantee(
        ONE, prior=np.ones(d), n_records=n, smoothness=0.3, accounting="proved"
    )
    assert mechanism.release(balanced(n, d), random_seed=5).sum() == n
    assert 0 < mechanism.expected_distance(balanced(n, d)) < 1


@pytest.mark.parametrize(("prior", "n"), [((0.02, 0.9), 13), ((0.1, 0.4, 3.0), 7)])
def test_sensitivities_are_their_definitions(prior, n):
    """The definition over all third posteriors is the distance, by the triangle inequality."""
    data = np.array([row for row in itertools.product(range(n + 1), repeat=len(prior)) if sum(row) == n])
    distances = np.array([np.atleast_1d(hellinger_distance(data + prior, row + prior)) for row in data])
    apart = np.maximum(data[:, None] - data, 0).sum(axis=-1)
    changes = np.abs(distances[:, None] - distances[None]).max(axis=-1)
    local = np.where(apart == 1, changes, 0).max(axis=1)
    np.testing.assert_allclose(local_sensitivities(np.array(prior), data), local, rtol=1e-12)
    assert global_sensitivity(np.array(prior), n) == pytest.approx(local.max(), rel=1e-12)
    for smoothness in (1e-3, 0.3, 5.0):
        smooth = 1 / (1 / local + smoothness * apart).min(axis=1)
        np.testing.assert_allclose(smooth_sensitivities(np.array(prior), data, smoothness), smooth, rtol=1e-12)


def test_sensitivities_of_large_data_sets_need_no_list():
    """N = 10^6 in three categories has 5e11 data sets, and one global sensitivity for any number of records."""
    assert len({global_sensitivity(np.array([0.3, 1.0, 2.0]), n) for n in (1, 5, 10**6)}) == 1
    smooth = smooth_sensitivities(np.ones(3), np.array([[400_000, 599_990, 10]]), 1.0)
    assert 0 < smooth[0] < global_sensitivity(np.ones(3), 10**6)


@pytest.mark.parametrize(
    ("n", "d", "message"),
    [
        (10**6, 3, "500001500001 posteriors"),
        (2**53, 5, "more than 1e15 posteriors"),
        # Few posteriors of many counts each: these would take 100 gigabytes.
        (2, 3000, "for at most 6666"),
        (1, 100_000, "for at most 200"),
    ],
)
def test_what_memory_does_not_hold_is_refused_before_it_is_asked_for(n, d, message):
    mechanism, counts = HellingerMechanism(np.ones(d), n, 0.25, accounting="proved"), np.zeros(d)
    counts[0] = n
    for ask in (
        lambda: mechanism.release(counts),
        lambda: mechanism.candidates,
        lambda: mechanism.expected_distance(counts),
        lambda: HellingerMechanism(np.ones(d), n, 0.25).epsilon(1e-6),
        lambda: HellingerMechanism.for_guarantee(ONE, prior=np.ones(d), n_records=n),
    ):
        with pytest.raises(UnattainableError, match=message):
            ask()


def test_too_many_neighbours_are_refused_before_they_are_listed():
    """A layer of them took terabytes where there are many categories."""
    for n, d in ((1, 4000), (2, 170)):
        with pytest.raises(UnattainableError, match="pairs of neighbours"):
            HellingerMechanism(np.ones(d), n, 0.25).epsilon(1e-6)


def test_neighbours_in_parts_are_the_same_pairs(monkeypatch):
    mechanism = HellingerMechanism([1, 2, 0.5, 1], 5, 0.4)
    whole = [mechanism.epsilon(1e-6), mechanism.renyi(3.0), mechanism.pure_epsilon]
    pairs = sum(len(first) for first, _ in mechanism._distributions.candidates.neighbours)
    assert pairs == mechanism._distributions.candidates.number_of_neighbours == 35 * 6
    monkeypatch.setitem(HellingerDistributions.neighbours.__kwdefaults__, "at_once", 200)
    _distributions.cache_clear()
    again = HellingerMechanism([1, 2, 0.5, 1], 5, 0.4)
    assert [again.epsilon(1e-6), again.renyi(3.0), again.pure_epsilon] == pytest.approx(whole, rel=1e-12)


def test_errors_are_for_people_and_never_show_counts():
    mechanism = HellingerMechanism([1, 1], 40, 1.0)
    with pytest.raises(DataError, match="do not add up to n_records") as error_of_sum:
        mechanism.release([30, 11])
    assert "11" not in str(error_of_sum.value)
    for prior, arguments, message in (
        (np.ones((2, 2)), {}, "one row"),
        ([1, 1], {"sensitivity": "smoth"}, "Did you mean 'smooth'"),
        ([1, 1], {"exponent": 0.0}, "exponent"),
        ([1, 1], {"n_records": 0}, "n_records"),
    ):
        with pytest.raises(ArgumentError, match=message):
            HellingerMechanism(prior, **({"n_records": 4, "exponent": 1.0} | arguments))


def test_divergences_near_order_one_keep_their_digits_and_large_orders_go_to_the_largest_loss():
    mechanism, sharp = (HellingerMechanism([1, 1], 8, exponent) for exponent in (1e-4, 0.8))
    for order in (1 + 1e-9, 1 + 1e-6):
        assert mechanism.renyi(order) == pytest.approx(mechanism.renyi(1.0), rel=1e-5)
    assert sharp.pure_epsilon * (1 - 1e-5) < sharp.renyi(1e7) <= sharp.pure_epsilon


def test_mechanisms_are_values_and_an_estimate_is_a_release():
    mechanism = HellingerMechanism([1, 1], 40, 2.0)
    released = mechanism.release([30, 10], random_seed=3)
    np.testing.assert_array_equal(mechanism.estimate([30, 10], random_seed=3), released / 40)
    smooth, same = (
        [HellingerMechanism([1, 2], 9, 0.5, sensitivity=of, smoothness=g) for g in (1.0, 2.0)]
        for of in ("smooth", "global")
    )
    assert (len(set(smooth)), len(set(same))) == (2, 1)
