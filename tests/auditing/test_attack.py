"""The attack refutes what is false, lets pass what is true, and is as seldom wrong as it says."""

import math

import numpy as np
import pytest
from scipy.stats import binom

import pymc_dirdp as dirdp
from pymc_dirdp.auditing import intervals
from pymc_dirdp.auditing.attack import audit
from pymc_dirdp.auditing.result import chance_to_refute, check_curve
from pymc_dirdp.auditing.statistics import Seen
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.privacy.composition import Composition

FLAT = np.ones(4)


def test_a_third_of_what_is_lost_is_refuted_and_the_truth_is_not(subject):
    """The claim is a third of the truth. The curve, which is true, passes, and much of it is seen."""
    mechanism, n = subject
    claim = dirdp.ApproxDP(epsilon=mechanism.epsilon(0.02) / 3, delta=0.02)
    found = audit(mechanism, sampler="fast", claim=claim, delta=[1e-3, 0.05], n=2 * n, random_seed=5)
    assert found.verdict == "refuted"
    claimed, *curve = found.bounds
    assert claimed.exceeded
    assert all(bound.lower <= bound.stated <= bound.ceiling for bound in curve)
    assert max(bound.lower / bound.stated for bound in curve) > 1 / 3
    # What it would have refuted lies above what is stated.
    assert all(bound.stated < bound.refutable for bound in curve)
    assert chance_to_refute(mechanism, claim, n=2 * n) > 0.999
    assert check_curve(mechanism, claim=claim).points[0].exceeded


def test_both_directions_are_attacked(named):
    """One direction loses more here; which of the two data sets comes first makes no difference."""
    mechanism = named("Dirichlet, add-remove")
    x, y = mechanism.worst_neighbours()
    options = {"sampler": "fast", "delta": 0.02, "n": 20_000, "random_seed": 3}
    lower = [audit(mechanism, pair=pair, **options).bounds[0].lower for pair in ((x, y), (y, x))]
    assert min(lower) > 0.8 * max(lower) > 0


# Mutants. Each is caught with probability above 0.999 at this n, by `chance_to_refute`.


def test_mutant_alpha_too_small_by_the_setter_bug():
    """ERRATA P1.9, `set_epsilon`: alpha is `prior + (order - 1) r`, the calibration assumed `4 (order - 1) r`."""
    claim, n = dirdp.RenyiDP(order=3, epsilon=1.0), 30_000
    right = dirdp.calibrate(claim, prior=FLAT, mechanism=Dirichlet(strategy="algorithm-1"))
    mutant = dirdp.mechanisms.DirichletMechanism(FLAT + (claim.order - 1) * right.r, right.r)
    assert chance_to_refute(mutant, claim, n=n) > 0.999
    for mechanism, verdict in ((mutant, "refuted"), (right, "consistent")):
        assert audit(mechanism, sampler="fast", claim=claim, n=n, random_seed=0).verdict == verdict
        assert check_curve(mechanism, claim=claim).verdict == verdict
    # A black box says the same, with a discriminant that is learned. If it claims to be a mechanism, the likelihood of
    # that mechanism tells it apart, on its worst pair.
    for stated, name in ((claim, "gaussian noise"), (right, "the same mechanism with a larger r")):
        rng, pair = np.random.default_rng(3), (mutant if stated is claim else right).worst_neighbours()
        pools = {z.tobytes(): iter(mutant.sample(z, released_draws=n, sampler="fast", random_seed=rng)) for z in pair}
        options = {"pair": pair} if stated is claim else {}
        found = audit(lambda z, of=pools: next(of[z.tobytes()]), claim=stated, n=n - 500, random_seed=1, **options)
        assert found.verdict == "refuted"
        assert found.bounds[0].alternative.startswith(name)


def test_mutant_add_remove_curve_for_replace_one():
    mutant, n = dirdp.mechanisms.DirichletMechanism(FLAT, 0.8, adjacency="add-remove"), 40_000
    pair = dirdp.mechanisms.DirichletMechanism(FLAT, 0.8).worst_neighbours()
    # The mechanism's own curve is refuted, without a claim.
    options = {"sampler": "fast", "delta": 0.1, "n": n, "random_seed": 0}
    for given, verdict in (({"pair": pair}, "refuted"), ({}, "consistent")):
        assert audit(mutant, **given, **options).verdict == verdict
        assert check_curve(mutant, **given).verdict == verdict


def test_mutant_one_seed_for_all_releases_and_one_for_two_tables():
    """The claim for two tables is the composition of both. Equal counts have equal draws: no epsilon holds."""
    mechanism, seeds = dirdp.mechanisms.DirichletMechanism(np.ones(3), 0.3), np.random.default_rng(0)

    def draw(counts, seed):
        return mechanism.sample(counts, sampler="fast", random_seed=seed)[0]

    def both(counts, *, same):
        first, second = seeds.integers(2**63, size=2).tolist()
        return np.array([draw(counts[0], first), draw(counts[1], first if same else second)])

    # The features of the first person agree, those of the neighbour do not; all others are empty.
    two = np.array([[1, 0, 0], [1, 0, 0]]), np.array([[1, 0, 0], [0, 1, 0]])
    once, twice = (Composition(((mechanism, times),)).epsilon(1e-3) for times in (1, 2))
    for release, pair, epsilon, n, verdict in (
        (lambda x: draw(x, 7), mechanism.worst_neighbours(), once, 400, "refuted"),
        (lambda x: both(x, same=True), two, twice, 1_000, "refuted"),
        (lambda x: both(x, same=False), two, twice, 1_000, "consistent"),
    ):
        found = audit(release, pair=pair, claim=dirdp.ApproxDP(epsilon=epsilon, delta=1e-3), n=n)
        assert found.verdict == verdict
        # As large as so many outputs can show.
        assert verdict == "consistent" or found.bounds[1].lower > 0.9 * found.bounds[1].ceiling


@pytest.mark.parametrize("zeros", [False, True])
def test_mutant_domain_read_off_the_data(zeros):
    """Cells that nobody is in are left out, or reported as zero: either says who is in the data."""
    rng, declared = np.random.default_rng(8), dirdp.mechanisms.DirichletMechanism(np.ones(3), 0.1)

    def release(counts):
        seen = counts > 0
        whole, draw = np.zeros(3), np.ones(1)
        if seen.sum() > 1:
            mechanism = dirdp.mechanisms.DirichletMechanism(np.ones(int(seen.sum())), 0.1)
            draw = mechanism.sample(counts[seen], sampler="fast", random_seed=rng)[0]
        whole[seen] = draw
        return whole if zeros else draw

    claim = dirdp.ApproxDP(epsilon=declared.epsilon(1e-3), delta=1e-3)
    found = audit(release, pair=([2, 1, 0], [2, 0, 1] if zeros else [3, 0, 0]), claim=claim, n=400)
    assert found.verdict == "refuted"
    assert found.bounds[1].lower > 0.9 * found.bounds[1].ceiling


@pytest.mark.thorough
def test_mutant_that_draws_with_a_larger_r():
    """No event refutes (1, 1e-5): the best is 2.0 standard deviations beyond it, and 1 - 1e-6 needs 5."""
    claim = dirdp.ApproxDP(epsilon=1.0, delta=1e-5)
    right = dirdp.calibrate(claim, prior=FLAT, mechanism=Dirichlet(strategy="temper"))
    mutant = dirdp.mechanisms.DirichletMechanism(FLAT, 1.5 * right.r)
    n = 200_000
    options = {"sampler": "fast", "n": n, "random_seed": 1}
    found = audit(mutant, claim=claim, **options)
    assert found.verdict == "consistent"
    # And it says so: the true epsilon is 1.57, and one of 2.5 would have been seen.
    assert mutant.epsilon(1e-5) < found.bounds[0].refutable < 2.6
    assert chance_to_refute(mutant, claim, n=n) < 0.01
    assert audit(mutant, claim=right, **options).verdict == "refuted"
    # Three times r is refuted by the claim alone, but not on a pair that loses less, and the audit says so as well.
    worse = dirdp.mechanisms.DirichletMechanism(FLAT, 3 * right.r)
    assert audit(worse, claim=claim, **options).verdict == "refuted"
    tame = audit(worse, pair=([100, 100, 0, 0], [101, 99, 0, 0]), claim=claim, **options)
    assert tame.verdict == "consistent"
    assert tame.bounds[0].refutable > 2 * worse.epsilon(1e-5)


def most_false(repeats):
    """More than so many have a probability of 1e-6 if each has 0.2."""
    return int(binom.isf(1e-6, repeats, 0.2))


@pytest.mark.thorough
def test_false_alarms_are_as_rare_as_stated(monkeypatch):
    """Integers have something to learn, and nothing to find. Counting on outputs that were used before is seen."""

    def false_alarms():
        rng = np.random.default_rng(6)
        options = {"pair": ([0], [1]), "delta": [0, 0.01], "n": 200, "prob": 0.8, "last_bits": True}
        draw = lambda _: rng.geometric(0.3, size=3)  # noqa: E731
        found = (audit(draw, **options, random_seed=seed) for seed in range(60))
        return sum(any(bound.lower > 0 for bound in one.bounds) for one in found)

    assert false_alarms() <= most_false(60)
    part_of = Seen.__getitem__
    monkeypatch.setattr(Seen, "__getitem__", lambda own, part: own if isinstance(part, slice) else part_of(own, part))
    assert false_alarms() > most_false(60)


def test_no_output_is_counted_for_an_event_that_it_chose(monkeypatch):
    """Too few false alarms come of that to be counted, so the parts are looked at."""
    taken, part_of = set(), Seen.__getitem__

    def noted(own, part):
        if isinstance(part, slice):
            taken.add((part.start, part.stop))
        return part_of(own, part)

    monkeypatch.setattr(Seen, "__getitem__", noted)
    mechanism = dirdp.mechanisms.GeometricMechanism(FLAT, 2.0)
    audit(mechanism, claim=dirdp.PureDP(epsilon=1), n=1000, random_seed=1)
    assert taken == {(None, 100), (100, 225), (225, None)}


def above_the_truth(repeats=60):
    """How often a bound for randomised response is above its loss, which an event attains that every attack finds."""
    rng, truth = np.random.default_rng(9), 1 / (1 + math.exp(-1))
    losses = 1, 1, math.log((truth - 0.1) / (1 - truth))
    options = {"delta": [0, 0.1], "claim": dirdp.PureDP(epsilon=1), "n": 400, "prob": 0.8}

    def one(seed):
        response = lambda counts: counts if rng.random() < truth else counts[::-1]  # noqa: E731
        found = audit(response, pair=([1, 0], [0, 1]), **options, random_seed=seed)
        return any(bound.lower > loss for bound, loss in zip(found.bounds, losses, strict=True))

    return sum(map(one, range(repeats)))


def test_bounds_stay_below_a_loss_that_is_attained(monkeypatch):
    """Frequencies in the place of limits would be seen."""
    assert above_the_truth() <= most_false(60)
    for limit in ("lower_limit", "upper_limit"):
        monkeypatch.setattr(intervals, limit, lambda hits, n, level: np.asarray(hits) / n + 1e-9)
    monkeypatch.setattr(
        intervals,
        "epsilon_from_shares",
        lambda p, q, trials, delta, level: np.log(np.maximum(p - delta * trials / 2, 1e-9) / (q + 1e-9)),
    )
    assert above_the_truth() > most_false(60)


@pytest.mark.thorough
def test_every_kind_of_claim_is_attacked_in_its_own_measure():
    mechanism = dirdp.mechanisms.GeometricMechanism(FLAT, 2.0)
    for right in (
        dirdp.PureDP(epsilon=1.0),
        dirdp.RenyiDP(order=2, epsilon=mechanism.renyi(2.0)),
        dirdp.ZeroCDP(rho=mechanism.rho(math.inf)),
        dirdp.TruncatedCDP(rho=mechanism.rho(4.0), omega=4),
    ):
        wrong = right.with_budget(right.budget / 3)
        assert audit(mechanism, claim=wrong, n=10_000, random_seed=2).verdict == "refuted"
        assert check_curve(mechanism, claim=right).verdict == "consistent"
        assert check_curve(mechanism, claim=wrong).verdict == "refuted"


def test_what_cannot_be_audited_is_refused():
    mechanism, function = dirdp.mechanisms.DirichletMechanism(FLAT, 0.3), lambda counts: counts
    for subject, options, message in (
        (function, {}, "an audit compares the outputs of a black box on these two"),
        (mechanism, {"delta": 1}, r"delta in \[0, 1\)"),
        (mechanism, {"n": 99}, "n to be an integer >= 100"),
        (Composition(((mechanism, 2),)), {}, "A Composition has privacy curves but no sampler"),
        (function, {"pair": ([1], [0]), "sampler": "fast"}, "has its own sampler"),
        (mechanism, {"sampler": "fast", "steps": 100}, "does not draw from an urn"),
    ):
        with pytest.raises(dirdp.errors.ArgumentError, match=message):
            audit(subject, **{"n": 100} | options)


def test_a_composition_is_audited_as_a_function():
    """Three releases of the same table, held against the curve of all and of one."""
    mechanism, p = dirdp.mechanisms.GeometricMechanism(np.ones(2), 2.0), 1 - math.exp(-0.5)
    rng = np.random.default_rng(3)
    three = lambda counts: counts + rng.geometric(p, (3, 2)) - rng.geometric(p, (3, 2))  # noqa: E731
    for times, verdict in ((3, "consistent"), (1, "refuted")):
        claim = Composition(((mechanism, times),))
        found = audit(three, pair=mechanism.worst_neighbours(), claim=claim, delta=0.01, n=20_000, random_seed=1)
        assert found.verdict == verdict


# Outputs that one data set alone can give, and the data themselves.

GOAL = dirdp.ApproxDP(epsilon=1.0, delta=1e-5)
PAIR = np.array([7.0, 3.0, 2.0]), np.array([6.0, 4.0, 2.0])


def saturating(scale):
    """Noise of version 0.1.0: at extreme scales two draws saturate at the largest integer, so they differ by 0."""
    rng, p = np.random.default_rng(3), -np.expm1(-1 / scale)

    def release(counts):
        return counts + (rng.geometric(p, size=counts.shape) - rng.geometric(p, size=counts.shape)).astype(np.float64)

    return release


def test_noise_that_saturates_and_no_noise_are_refuted():
    for scale, verdict in ((1e20, "refuted"), (5.0, "consistent")):
        claim = dirdp.mechanisms.GeometricMechanism(np.ones(3), scale)
        assert audit(saturating(scale), pair=PAIR, claim=claim, n=2_000, random_seed=1).verdict == verdict
    # At a scale of 1/60 the noise is always 0. A claim of 120 cannot be refuted by draws, and the audit says so.
    none, stated = (
        audit(saturating(1 / 60), pair=PAIR, claim=dirdp.PureDP(epsilon=epsilon), n=2_000, random_seed=1)
        for epsilon in (3, 120)
    )
    assert none.verdict == "refuted"
    assert stated.verdict == "consistent"
    assert stated.bounds[0].refutable == np.inf
    assert "no true value would have been refuted" in str(stated)


def of_published(how, probability, n=20_000):
    """The audit of a private draw that is sometimes the data: a pool for each of the two data sets."""
    mechanism, rng = dirdp.mechanisms.DirichletMechanism(np.ones(3), 0.08), np.random.default_rng(2)
    pools = {}
    for z in PAIR:
        pool = mechanism.sample(z, released_draws=n + 1_000, sampler="fast", random_seed=rng)
        pool[rng.random(n + 1_000) < probability] = how(z)
        pools[z.tobytes()] = iter(pool)
    return audit(lambda z: next(pools[z.tobytes()]), pair=PAIR, claim=GOAL, n=n, random_seed=1)


WAYS = {
    "counts": lambda z: z,
    "frequencies": lambda z: z / z.sum(),
    "posterior mean": lambda z: (z + 1) / (z + 1).sum(),
}


@pytest.mark.parametrize("how", WAYS)
def test_data_that_are_published_now_and_then_are_found_and_too_seldom_are_a_blind_spot(how):
    assert of_published(WAYS[how], 0.01).verdict == "refuted"
    found = of_published(WAYS[how], 1e-4)
    assert found.verdict == "consistent"
    assert found.bounds[0].rarest > 1e-4


# The last bits of the sampler of version 0.1.0 tell its data; those of the library's samplers tell nothing.

SMALL = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
TINY = np.finfo(np.float64).tiny


def of_two_branches(concentration, draws, rng):
    """`sampling/fast.py` of version 0.1.0: one small parameter switches the whole table."""
    small = concentration < 0.1
    if not np.any(small):
        gammas = rng.standard_gamma(concentration, size=(draws, *concentration.shape))
        return np.maximum(gammas / gammas.sum(axis=-1, keepdims=True), TINY)
    logs = np.log(rng.standard_gamma(concentration + small, size=(draws, *concentration.shape)))
    logs[:, small] += np.log(1.0 - rng.random(size=(draws, int(small.sum())))) / concentration[small]
    y = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return np.maximum(y / y.sum(axis=-1, keepdims=True), TINY)


# Table of priors, r, and how many outputs are enough.
CROSSING = {
    "thirty rows": (np.full((30, 11), 0.099), 0.0092, 1_000),
    "uneven": (np.array([0.08, 0.2, 3.0, 3.0]), 0.007622, 2_500),
}


def crossing(alpha, r):
    """Neighbours of which one has a person alone in a cell: there its parameter passes 0.1, as all others do."""
    alone = int(np.ceil((0.1 - alpha.min()) / r))
    x = np.full(alpha.shape, float(alone))
    y = x.copy()
    y.flat[0] -= 1
    y.flat[1] += 1
    return x, y


def attacked(sampler, case, **options):
    """From a pool, so that drawing one by one takes no time."""
    alpha, r, n = case
    pair, rng = crossing(alpha, r), np.random.default_rng(5)
    pools = {z.tobytes(): iter(sampler(r * z + alpha, n + 500, rng)) for z in pair}
    return audit(lambda z: next(pools[z.tobytes()]), pair=pair, claim=SMALL, n=n, random_seed=1, **options)


@pytest.mark.parametrize("case", CROSSING.values(), ids=CROSSING)
def test_the_sampler_of_0_1_0_is_refuted_by_its_last_bits_and_the_exact_one_is_not(case):
    alpha, r, _ = case
    # What it stands for is private.
    mechanism = dirdp.mechanisms.DirichletMechanism(alpha, r)
    assert mechanism.satisfies(SMALL)
    assert attacked(of_two_branches, case).verdict == "consistent"
    assert attacked(of_two_branches, case, last_bits=True).verdict == "refuted"
    # The exact sampler is not.
    options = {"sampler": "exact", "steps": 200, "claim": SMALL, "last_bits": True, "random_seed": 1}
    assert audit(mechanism, pair=crossing(alpha, r), n=500, **options).verdict == "consistent"


def test_floating_point_noise_is_recognised_by_its_last_bits():
    """Mironov (2012): the distribution is private, its floating-point sum is not. Integers survive."""
    rng, pair, claim = np.random.default_rng(2), ([1.0, 0.0], [0.0, 1.0]), dirdp.ApproxDP(epsilon=2.0, delta=0.01)

    def textbook(counts):
        return counts + rng.laplace(0.0, 3.0, size=2)

    for last_bits, verdict in ((False, "consistent"), (True, "refuted")):
        found = audit(textbook, pair=pair, claim=claim, n=6_000, last_bits=last_bits, random_seed=1)
        assert found.verdict == verdict
    geometric = dirdp.mechanisms.GeometricMechanism(np.ones(2), 1.0)
    assert audit(geometric, n=3_000, last_bits=True, random_seed=1).verdict == "consistent"
