"""The attack refutes what is false, lets pass what is true, and is as seldom wrong as it says."""

import math

import numpy as np
import pytest
from scipy.stats import binom

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.attack import audit
from pymc_dirdp.auditing.result import chance_to_refute, check_curve
from pymc_dirdp.auditing.statistics import Seen
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.privacy.composition import Composition

FLAT = np.ones(4)


def test_right_mechanisms_pass_and_much_of_their_loss_is_seen(subject):
    mechanism, n = subject
    found = audit(mechanism, sampler="fast", delta=[1e-3, 0.05], n=n, random_seed=11)
    assert found.verdict == "consistent"
    assert all(bound.lower <= bound.stated <= bound.ceiling for bound in found.bounds)
    # A third, with so few outputs and a confidence of 1 - 1e-6.
    assert max(bound.lower / bound.stated for bound in found.bounds) > 1 / 3
    # What it would have refuted lies above what is stated.
    assert all(bound.stated < bound.refutable for bound in found.bounds)


@pytest.mark.thorough
def test_a_claim_of_a_third_of_what_is_lost_is_refuted(subject):
    mechanism, n = subject
    claim = dirdp.ApproxDP(epsilon=mechanism.epsilon(0.02) / 3, delta=0.02)
    assert chance_to_refute(mechanism, claim, n=2 * n) > 0.999
    found = audit(mechanism, sampler="fast", claim=claim, n=2 * n, random_seed=5)
    assert found.verdict == "refuted"
    assert found.bounds[0].exceeded
    assert not any(bound.exceeded for bound in found.bounds[1:])
    assert check_curve(mechanism, claim=claim).points[0].exceeded


@pytest.mark.parametrize("name", ["Dirichlet, unequal", "Dirichlet, add-remove"])
def test_both_directions_are_attacked(name, named):
    """One direction loses more here; which of the two data sets comes first makes no difference."""
    mechanism = named(name)
    x, y = mechanism.worst_neighbours()
    lower = [
        audit(mechanism, sampler="fast", pair=pair, delta=0.02, n=40_000, random_seed=3).bounds[0].lower
        for pair in ((x, y), (y, x))
    ]
    assert min(lower) > 0.8 * max(lower) > 0


@pytest.mark.parametrize("n", [400, pytest.param(10_000, marks=pytest.mark.slow)])
def test_the_exact_sampler_passes(n):
    mechanism = dirdp.mechanisms.DirichletMechanism(FLAT, 0.3)
    found = audit(mechanism, sampler="exact", steps=200, delta=0.02, last_bits=True, n=n, random_seed=1)
    assert found.verdict == "consistent"
    assert found.sampler == "exact, steps=200"
    if n > 400:
        assert found.bounds[0].lower > found.bounds[0].stated / 4
        wrong = dirdp.ApproxDP(epsilon=mechanism.epsilon(0.02) / 4, delta=0.02)
        assert audit(mechanism, sampler="exact", steps=200, claim=wrong, n=n, random_seed=1).verdict == "refuted"


# Mutants. Each is caught with probability above 0.999 at this n, by `chance_to_refute`; and with each of these seeds.

SEEDS = range(2)


def test_mutant_alpha_too_small_by_the_setter_bug():
    """ERRATA P1.9, `set_epsilon`: alpha is `prior + (order - 1) r`, the calibration assumed `4 (order - 1) r`."""
    claim = dirdp.RenyiDP(order=3, epsilon=1.0)
    right = dirdp.calibrate(claim, prior=FLAT, mechanism=Dirichlet(strategy="algorithm-1"))
    mutant = dirdp.mechanisms.DirichletMechanism(FLAT + (claim.order - 1) * right.r, right.r)
    n = 30_000
    assert chance_to_refute(mutant, claim, n=n) > 0.999
    for seed in SEEDS:
        assert audit(mutant, sampler="fast", claim=claim, n=n, random_seed=seed).verdict == "refuted"
        assert audit(right, sampler="fast", claim=claim, n=n, random_seed=seed).verdict == "consistent"
    assert check_curve(mutant, claim=claim).points[0].exceeded
    assert check_curve(right, claim=claim).verdict == "consistent"
    # A black box says the same, with a discriminant that is learned.
    rng = np.random.default_rng(3)
    n, pair = 30_000, mutant.worst_neighbours()
    pools = {z.tobytes(): iter(mutant.sample(z, released_draws=n, sampler="fast", random_seed=rng)) for z in pair}
    found = audit(lambda z: next(pools[z.tobytes()]), pair=pair, claim=claim, n=n - 500, random_seed=1)
    assert found.verdict == "refuted"


def test_mutant_add_remove_curve_for_replace_one():
    mutant, delta = dirdp.mechanisms.DirichletMechanism(FLAT, 0.8, adjacency="add-remove"), 0.1
    right = dirdp.mechanisms.DirichletMechanism(FLAT, 0.8)
    neighbours = right.worst_neighbours()
    claim, n = dirdp.ApproxDP(epsilon=mutant.epsilon(delta), delta=delta), 40_000
    assert chance_to_refute(mutant, claim, pair=neighbours, n=n) > 0.999
    for seed in SEEDS:
        # The mechanism's own curve is refuted, without a claim.
        assert audit(mutant, sampler="fast", pair=neighbours, delta=delta, n=n, random_seed=seed).verdict == "refuted"
        assert audit(mutant, sampler="fast", delta=delta, n=n, random_seed=seed).verdict == "consistent"
        assert audit(right, sampler="fast", delta=delta, n=n, random_seed=seed).verdict == "consistent"
    assert check_curve(mutant, pair=neighbours).verdict == "refuted"
    assert check_curve(mutant).verdict == "consistent"


def two_tables(mechanism, seed, *, same):
    """Releases two tables that the same records feed, as a naive Bayes model does."""
    seeds = np.random.default_rng(seed)

    def release(counts):
        first, second = seeds.integers(2**63, size=2).tolist()
        pair = (first, first if same else second)
        both = zip(counts, pair, strict=True)
        return np.array([mechanism.sample(x, sampler="fast", random_seed=s)[0] for x, s in both])

    return release


# The features of the first person agree, those of the neighbour do not; all others are empty.
TWO = np.array([[1, 0, 0], [1, 0, 0]]), np.array([[1, 0, 0], [0, 1, 0]])


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.thorough
def test_mutant_one_seed_for_two_draws(seed):
    """The claim is the composition of both. With one seed the draws are equal if the counts are: no epsilon holds."""
    mechanism = dirdp.mechanisms.DirichletMechanism(np.ones(3), 0.3)
    claim = dirdp.ApproxDP(epsilon=Composition(((mechanism, 2),)).epsilon(1e-3), delta=1e-3)
    mutant = audit(two_tables(mechanism, seed, same=True), pair=TWO, claim=claim, n=2_000)
    assert mutant.verdict == "refuted"
    # As large as 1,000 outputs can show.
    assert mutant.bounds[1].lower > 0.9 * mutant.bounds[1].ceiling
    right = audit(two_tables(mechanism, seed, same=False), pair=TWO, claim=claim, n=2_000)
    assert right.verdict == "consistent"


def test_mutant_one_seed_for_all_releases():
    mechanism = dirdp.mechanisms.DirichletMechanism(FLAT, 0.3)
    found = audit(
        lambda x: mechanism.sample(x, sampler="fast", random_seed=7)[0],
        pair=mechanism.worst_neighbours(),
        claim=dirdp.ApproxDP(epsilon=mechanism.epsilon(1e-3), delta=1e-3),
        n=400,
    )
    assert found.verdict == "refuted"
    assert found.bounds[1].lower > 0.9 * found.bounds[1].ceiling > 2


@pytest.mark.parametrize(
    ("x", "y", "zeros"),
    [([2, 1, 0], [3, 0, 0], False), ([2, 1, 0], [2, 0, 1], True), ([2, 1, 0], [3, 0, 0], True)],
    ids=["another shape", "zeros elsewhere", "more zeros"],
)
def test_mutant_domain_read_off_the_data(x, y, zeros):
    """Cells that nobody is in are left out, or reported as zero: either says who is in the data."""
    rng = np.random.default_rng(8)

    def release(counts):
        seen = counts > 0
        if seen.sum() > 1:
            mechanism = dirdp.mechanisms.DirichletMechanism(np.ones(int(seen.sum())), 0.1)
            draw = mechanism.sample(counts[seen], sampler="fast", random_seed=rng)[0]
        else:
            draw = np.ones(1)
        if not zeros:
            return draw
        whole = np.zeros(3)
        whole[seen] = draw
        return whole

    declared = dirdp.mechanisms.DirichletMechanism(np.ones(3), 0.1)
    claim = dirdp.ApproxDP(epsilon=declared.epsilon(1e-3), delta=1e-3)
    found = audit(release, pair=(x, y), claim=claim, n=400)
    assert found.verdict == "refuted"
    assert found.bounds[1].lower > 0.9 * found.bounds[1].ceiling
    right = audit(lambda c: declared.sample(c, sampler="fast", random_seed=rng)[0], pair=(x, y), claim=claim, n=400)
    assert right.verdict == "consistent"


@pytest.mark.thorough
def test_mutant_that_draws_with_a_larger_r():
    """Half as much again. No event refutes (1, 1e-5) with so few draws; the curve of the right mechanism is refuted.

    The best event is 2.0 standard deviations beyond the claim, and a confidence of 1 - 1e-6 needs 5.
    """
    claim = dirdp.ApproxDP(epsilon=1.0, delta=1e-5)
    right = dirdp.calibrate(claim, prior=FLAT, mechanism=Dirichlet(strategy="temper"))
    mutant = dirdp.mechanisms.DirichletMechanism(FLAT, 1.5 * right.r)
    n = 200_000
    found = audit(mutant, sampler="fast", claim=claim, n=n, random_seed=1)
    assert found.verdict == "consistent"
    # And it says so: the true epsilon is 1.57, and one of 2.5 would have been seen.
    assert mutant.epsilon(1e-5) < found.bounds[0].refutable < 2.6
    assert chance_to_refute(mutant, claim, n=n) < 0.01
    assert audit(mutant, sampler="fast", claim=right, n=n, random_seed=1).verdict == "refuted"
    assert audit(right, sampler="fast", claim=right, n=n, random_seed=1).verdict == "consistent"
    # Three times r is refuted by the claim alone, but not on a pair that loses less, and the audit says so as well.
    worse = dirdp.mechanisms.DirichletMechanism(FLAT, 3 * right.r)
    assert audit(worse, sampler="fast", claim=claim, n=n, random_seed=1).verdict == "refuted"
    tame = audit(worse, sampler="fast", pair=([100, 100, 0, 0], [101, 99, 0, 0]), claim=claim, n=n, random_seed=1)
    assert tame.verdict == "consistent"
    assert tame.bounds[0].refutable > 2 * worse.epsilon(1e-5)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "consistent"), (1.5, "refuted")])
def test_a_black_box_that_claims_to_be_a_mechanism_is_compared_with_its_curve(factor, verdict):
    """It is told apart by that mechanism's likelihood, on that mechanism's worst pair."""
    right, n = dirdp.mechanisms.DirichletMechanism(FLAT, 0.3), 50_000
    drawn, rng = dirdp.mechanisms.DirichletMechanism(FLAT, factor * 0.3), np.random.default_rng(2)
    pools = {
        z.tobytes(): iter(drawn.sample(z, released_draws=n, sampler="fast", random_seed=rng))
        for z in right.worst_neighbours()
    }
    found = audit(lambda counts: next(pools[counts.tobytes()]), claim=right, n=n - 500, random_seed=1)
    assert found.verdict == verdict
    assert found.bounds[0].alternative == "the same mechanism with a larger r"


def test_a_product_of_signs_is_a_blind_spot():
    """A test of what the documentation says is missed."""
    rng = np.random.default_rng(1)

    def by_signs(counts):
        z = rng.normal(size=3)
        z[0] *= np.prod(np.sign(z)) * (1 if counts[0] > counts[1] else -1)
        return z

    claim = dirdp.ApproxDP(epsilon=1.0, delta=1e-5)
    found = audit(by_signs, pair=([1.0, 0.0], [0.0, 1.0]), claim=claim, n=1_000, random_seed=1)
    assert found.verdict == "consistent"
    assert "none of its statistics covers" in found.blind_spots


# The audit itself: is it as seldom wrong as it says?


def false_alarms(repeats=60, last_bits=False):
    """How often a bound is above the truth, at a confidence of 0.8; two distributions that are equal lose nothing."""
    rng = np.random.default_rng(6)
    found = (
        audit(
            lambda x: rng.normal(size=20),
            pair=([0], [1]),
            delta=[0, 0.01],
            n=200,
            prob=0.8,
            last_bits=last_bits,
            random_seed=seed,
        )
        for seed in range(repeats)
    )
    return sum(any(bound.lower > 0 for bound in one.bounds) for one in found)


def most_false(repeats):
    """More than so many have a probability of 1e-6 if each has 0.2."""
    return int(binom.isf(1e-6, repeats, 0.2))


@pytest.mark.thorough
def test_false_alarms_are_as_rare_as_stated():
    assert false_alarms() <= most_false(60)


@pytest.mark.slow
@pytest.mark.parametrize("last_bits", [False, True])
def test_false_alarms_of_all_statistics_are_as_rare_as_stated(last_bits):
    assert false_alarms(600, last_bits) <= most_false(600)


@pytest.mark.slow
def test_false_alarms_are_rare_where_outputs_repeat():
    """Integers: exact values and last bits both have something to learn, and nothing to find."""
    rng = np.random.default_rng(7)
    alarms = sum(
        audit(
            lambda x: rng.geometric(0.3, size=3),
            pair=([3, 1, 0], [2, 2, 0]),
            delta=0.0,
            n=400,
            prob=0.8,
            last_bits=True,
            random_seed=seed,
        )
        .bounds[0]
        .lower
        > 0
        for seed in range(400)
    )
    assert alarms <= most_false(400)


@pytest.mark.thorough
def test_learning_choosing_and_counting_on_the_same_outputs_would_be_seen(monkeypatch):
    part_of = Seen.__getitem__
    monkeypatch.setattr(
        Seen, "__getitem__", lambda self, part: self if isinstance(part, slice) else part_of(self, part)
    )
    assert false_alarms() > most_false(60)


def above_the_truth(repeats=60):
    """How often a bound for randomised response is above its loss, which an event attains that every attack finds."""
    rng, epsilon = np.random.default_rng(9), 1.0
    truth = 1 / (1 + math.exp(-epsilon))
    losses = 1, 1, math.log((truth - 0.1) / (1 - truth))

    def response(counts):
        return counts if rng.random() < truth else counts[::-1]

    def one(seed):
        found = audit(
            response,
            pair=([1, 0], [0, 1]),
            delta=[0, 0.1],
            claim=dirdp.PureDP(epsilon=1),
            n=400,
            prob=0.8,
            random_seed=seed,
        )
        return any(bound.lower > loss for bound, loss in zip(found.bounds, losses, strict=True))

    return sum(one(seed) for seed in range(repeats))


def test_bounds_stay_below_a_loss_that_is_attained():
    assert above_the_truth() <= most_false(60)


def test_frequencies_instead_of_limits_would_be_seen(monkeypatch):
    for limit in ("lower_limit", "upper_limit"):
        monkeypatch.setattr(
            f"pymc_dirdp.auditing.intervals.{limit}", lambda hits, n, level: np.asarray(hits) / n + 1e-9
        )
    monkeypatch.setattr(
        "pymc_dirdp.auditing.intervals.epsilon_from_shares",
        lambda p, q, trials, delta, level: np.log(np.maximum(p - delta * trials / 2, 1e-9) / (q + 1e-9)),
    )
    assert above_the_truth() > most_false(60)


@pytest.mark.thorough
def test_every_kind_of_claim_is_attacked_in_its_own_measure():
    mechanism = dirdp.mechanisms.GeometricMechanism(FLAT, 2.0)
    for right, wrong in (
        (dirdp.PureDP(epsilon=1.0), dirdp.PureDP(epsilon=0.5)),
        (
            dirdp.RenyiDP(order=2, epsilon=mechanism.renyi(2.0)),
            dirdp.RenyiDP(order=2, epsilon=mechanism.renyi(2.0) / 3),
        ),
        (dirdp.ZeroCDP(rho=mechanism.rho(math.inf)), dirdp.ZeroCDP(rho=mechanism.rho(math.inf) / 3)),
        (dirdp.TruncatedCDP(rho=mechanism.rho(4.0), omega=4), dirdp.TruncatedCDP(rho=mechanism.rho(4.0) / 3, omega=4)),
    ):
        assert audit(mechanism, claim=right, n=20_000, random_seed=2).verdict == "consistent"
        assert audit(mechanism, claim=wrong, n=20_000, random_seed=2).verdict == "refuted"
        assert check_curve(mechanism, claim=right).verdict == "consistent"
        assert check_curve(mechanism, claim=wrong).verdict == "refuted"


def test_a_mechanism_without_a_guarantee_is_measured(monkeypatch):
    def refuse(*_):
        raise dirdp.errors.UnattainableError("It keeps no guarantee.")

    mechanism = dirdp.papers.HellingerMechanism([0.1, 0.1], 10, 1.0)
    for curve in ("_renyi", "_rho", "_delta", "_epsilon"):
        monkeypatch.setattr(type(mechanism._curves), curve, refuse)
    found = audit(mechanism, n=1_000, random_seed=4)
    assert found.verdict == "nothing stated"
    assert "No value was stated" in str(found)


def test_what_cannot_be_audited_is_refused():
    mechanism = dirdp.mechanisms.DirichletMechanism(FLAT, 0.3)
    with pytest.raises(dirdp.errors.ArgumentError, match="pair="):
        audit(lambda counts: counts, n=100)
    with pytest.raises(dirdp.errors.ArgumentError, match=r"delta in \[0, 1\)"):
        audit(mechanism, delta=1, n=100)
    with pytest.raises(dirdp.errors.ArgumentError, match="n to be an integer >= 100"):
        audit(mechanism, n=99)
    with pytest.raises(dirdp.errors.ArgumentError, match="A Composition has privacy curves but no sampler"):
        audit(Composition(((mechanism, 2),)), n=100)
    with pytest.raises(dirdp.errors.ArgumentError, match="has its own sampler"):
        audit(lambda counts: counts, pair=([1], [0]), sampler="fast", n=100)
    with pytest.raises(dirdp.errors.ArgumentError, match="does not draw from an urn"):
        audit(mechanism, sampler="fast", steps=100, n=100)


def test_a_composition_is_audited_as_a_function():
    """Three releases of the same table, held against the curve of all and of one."""
    mechanism = dirdp.mechanisms.GeometricMechanism(np.ones(2), 2.0)
    pair, rng = mechanism.worst_neighbours(), np.random.default_rng(3)

    def three(counts):
        return counts + rng.geometric(p, (3, 2)) - rng.geometric(p, (3, 2))

    p = -math.expm1(-1 / 2.0)
    right, wrong = Composition(((mechanism, 3),)), Composition(((mechanism, 1),))
    assert audit(three, pair=pair, claim=right, delta=0.01, n=20_000, random_seed=1).verdict == "consistent"
    assert audit(three, pair=pair, claim=wrong, delta=0.01, n=20_000, random_seed=1).verdict == "refuted"
