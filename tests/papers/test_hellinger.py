"""P4's exponential mechanisms: distances, the distribution by its definition, calibration, and what is too large."""

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import beta

from pymc_dirdp.errors import ArgumentError, DataError, UnattainableError
from pymc_dirdp.papers.hellinger import HellingerMechanism, _distributions
from pymc_dirdp.papers.hellinger_distributions import (
    AffinityRows,
    HellingerDistributions,
    affinity_loss,
    global_sensitivity,
    hellinger_distance,
    local_sensitivities,
    smooth_sensitivities,
)
from pymc_dirdp.privacy.guarantees import PureDP
from tests.oracles import renyi_divergence

ONE = PureDP(epsilon=1.0)


def exact_distance(a, b):
    def log_beta(values):
        return mp.fsum(mp.loggamma(v) for v in values) - mp.loggamma(mp.fsum(values))

    with mp.workdps(40):
        a, b = ([mp.mpf(v) for v in values] for values in (a, b))
        middle = [(u + v) / 2 for u, v in zip(a, b, strict=True)]
        return mp.sqrt(abs(mp.expm1(log_beta(middle) - (log_beta(a) + log_beta(b)) / 2)))


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.floats(-3, 2), st.integers(0, 1_000_000)), min_size=2, max_size=5),
    st.integers(1, 1000),
)
def test_moving_records_to_full_precision(cells, shift):
    # A prior of 2**-20 steps, so that the sums are exact and rounding of the arguments plays no part.
    prior = np.array([max(round(10**log * 2**20), 1) / 2**20 for log, _ in cells])
    before = np.array([count for _, count in cells]) + shift
    after = before.copy()
    after[0] -= shift
    after[1] += shift
    assert hellinger_distance(prior + before, prior + after) == pytest.approx(
        float(exact_distance(prior + before, prior + after)), rel=1e-12
    )


@pytest.mark.parametrize(("a", "b"), [((0.7, 0.9), (1.4, 4.0)), ((30.0, 3.0), (29.0, 40.0))])
def test_the_definition_also_for_unequal_totals(a, b):
    affinity = quad(lambda x: math.sqrt(beta.pdf(x, *a) * beta.pdf(x, *b)), 0, 1, limit=200)[0]
    assert hellinger_distance(a, b) == pytest.approx(math.sqrt(1 - affinity), rel=1e-6)


def test_symmetry_identity_and_broadcasting():
    a, b = np.array([[1.0, 2.0, 0.3], [4.0, 0.1, 9.0]]), np.array([3.0, 1.0, 1.0])
    np.testing.assert_array_equal(hellinger_distance(a, b), hellinger_distance(b, a))
    np.testing.assert_array_equal(hellinger_distance(a, a), 0.0)
    assert hellinger_distance([0.01, 1e6], [1e6, 0.01]) == 1.0
    # Nearly empty cells keep their digits.
    for a, b in (([1e-9, 5.0], [3 + 1e-9, 2.0]), ([1e-30, 0.5], [0.5, 1e-30])):
        assert hellinger_distance(a, b) == pytest.approx(float(exact_distance(a, b)), rel=1e-13)
    with pytest.raises(ArgumentError, match="first"):
        hellinger_distance([0, 1], [1, 1])


@pytest.mark.parametrize("prior", [0.01, 1.0, 37.5])
@pytest.mark.parametrize("n", [1, 7, 2000])
def test_rows_are_the_losses_and_infinite_only_where_nothing_is_left(prior, n):
    rows = AffinityRows(prior, n)
    points = prior + np.arange(n + 1)
    for i in {0, n // 3, n}:
        row, loss = rows.row(i), affinity_loss(points[i], points)
        known = np.isfinite(row)
        np.testing.assert_allclose(row[known], loss[known], rtol=1e-10, atol=1e-18)
        assert np.all(loss[~known] > 37)
    # There is something beyond reach in the large table, and the test above sees it.
    assert np.isinf(rows.row(0)).any() == (loss.max() > 41)


@pytest.mark.parametrize(
    ("prior", "n", "gamma"), [((1.0, 2.5), 6, 0.3), ((0.2, 1.0, 0.7), 3, 1.0), ((0.5, 2.0, 1.0, 0.1), 2, None)]
)
def test_the_distribution_is_its_definition(prior, n, gamma):
    """Definitions 3 and 4 written out with 30 digits: distances, all data sets, sensitivities, probabilities."""
    with mp.workdps(30):

        def distance(x, y):
            return exact_distance(*([mp.mpf(p) + k for p, k in zip(prior, z, strict=True)] for z in (x, y)))

        def apart(x, y):
            return sum(max(i - j, 0) for i, j in zip(x, y, strict=True))

        data = [z for z in itertools.product(range(n + 1), repeat=len(prior)) if sum(z) == n]
        local = {x: max(distance(x, y) for y in data if apart(x, y) == 1) for x in data}
        options = {"smoothness": gamma} if gamma else {"sensitivity": "global"}
        mechanism = HellingerMechanism(prior, n, 0.7, **options)
        # A small exponent, too: there nearly all of a divergence may be rounding.
        tiny = HellingerMechanism(prior, n, 1e-4, **options)
        by_exponent = {0.7: {}, 1e-4: {}}
        for x, (exponent, found) in itertools.product(data, by_exponent.items()):
            smooth = 1 / min(1 / local[z] + gamma * apart(x, z) for z in data) if gamma else max(local.values())
            weights = [mp.exp(-exponent * distance(x, r) / smooth) for r in data]
            found[x] = [w / mp.fsum(weights) for w in weights]
        distributions = by_exponent[0.7]
        for x in data:
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
        for one, found in zip((mechanism, tiny), by_exponent.values(), strict=True):
            losses = [[(p, mp.log(p / q)) for p, q in zip(found[x], found[y], strict=True)] for x, y in neighbours]
            for order in (1, 1 + 1e-9, 2.5, 200):
                exact = max(renyi_divergence(loss, order) for loss in losses)
                assert exact <= one.renyi(order) <= exact * (1 + mp.mpf(1e-8)) + 3e-14


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


@pytest.mark.parametrize("counts", [[40_000, 60_000], [15, 15, 15, 15]])
def test_large_tables_need_no_comparison(counts):
    known = {"prior": np.ones(len(counts)), "n_records": sum(counts)}
    proved = HellingerMechanism.for_guarantee(ONE, **known, smoothness=0.1, accounting="proved")
    assert proved.pure_epsilon <= 1
    assert proved.release(counts, random_seed=1).sum() == sum(counts)
    assert 0 < proved.expected_distance(counts) < 1
    with pytest.raises(UnattainableError, match='accounting="proved"'):
        HellingerMechanism([1, 1], 100_000, 0.25).epsilon(1e-3)


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
    # A layer of the neighbours took terabytes where there are many categories.
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


def test_mechanisms_are_values_and_an_estimate_is_a_release():
    mechanism = HellingerMechanism([1, 1], 40, 2.0)
    released = mechanism.release([30, 10], random_seed=3)
    np.testing.assert_array_equal(mechanism.estimate([30, 10], random_seed=3), released / 40)
    smooth, same = (
        [HellingerMechanism([1, 2], 9, 0.5, sensitivity=of, smoothness=g) for g in (1.0, 2.0)]
        for of in ("smooth", "global")
    )
    assert (len(set(smooth)), len(set(same))) == (2, 1)
