"""The attack refutes what is false, lets pass what is true, and says how sure it is of either."""

import math

import numpy as np
import pytest
from scipy.stats import beta, binom

import pymc_dirdp as pmd
from pymc_dirdp.auditing.attack import audit
from pymc_dirdp.auditing.curve_audit import audit_curve
from pymc_dirdp.auditing.intervals import epsilon_of, loss_of, lower_limit, promised_orders, upper_limit
from pymc_dirdp.auditing.laws import binned_laws
from pymc_dirdp.auditing.neighbours import worst_pair
from pymc_dirdp.auditing.outputs import releases
from pymc_dirdp.auditing.power import chance_to_refute
from pymc_dirdp.auditing.statistics import learned
from pymc_dirdp.composition import Composition

TARGET = pmd.ApproxDP(epsilon=1.0, delta=1e-3)
FLAT = np.ones(4)

# Right ones, and how many outputs each is attacked with; laws of finite mechanisms are drawn from one by one.
MECHANISMS = {
    "Dirichlet": (pmd.DirichletMechanism(FLAT, 0.3), 40_000),
    "Dirichlet, unequal": (pmd.DirichletMechanism([0.4, 2.0, 0.9], 0.2), 40_000),
    "Dirichlet, two rows": (pmd.DirichletMechanism([[1.0, 4.0, 5.0], [4.0, 1.2, 4.0]], 0.3), 40_000),
    "Dirichlet, floor": (pmd.DirichletMechanism(FLAT, 0.5, min_count=3), 40_000),
    "Dirichlet, three records": (pmd.DirichletMechanism(FLAT, 0.2, contribution=3), 40_000),
    "Dirichlet, add-remove": (pmd.DirichletMechanism([1.0, 2.0], 0.4, adjacency="add-remove"), 40_000),
    "Gaussian": (pmd.GaussianMechanism(FLAT, 2.0), 40_000),
    "Gaussian, add-remove": (pmd.GaussianMechanism(FLAT, 2.0, adjacency="add-remove"), 40_000),
    "Laplace": (pmd.LaplaceMechanism(FLAT, 2.0), 40_000),
    "Laplace, add-remove": (pmd.LaplaceMechanism(FLAT, 2.0, adjacency="add-remove"), 40_000),
    "Geometric": (pmd.GeometricMechanism(FLAT, 2.0), 40_000),
    "Geometric, add-remove": (pmd.GeometricMechanism(FLAT, 2.0, adjacency="add-remove"), 40_000),
    "Hellinger": (pmd.HellingerMechanism([1.0, 1.0], 12, 2.0), 2_500),
    "Hellinger, three": (pmd.HellingerMechanism([1.0, 1.0, 2.0], 4, 1.5, sensitivity="global"), 2_500),
    "Truncated": (pmd.TruncatedNoiseMechanism([1.0, 1.0], 20, 1.0), 10_000),
    "Truncated, three": (pmd.TruncatedNoiseMechanism([1.0, 1.0, 1.0], 8, 2.0), 10_000),
    "Truncated, Laplace": (pmd.TruncatedNoiseMechanism([1.0, 1.0], 20, 1.0, noise="laplace"), 10_000),
    "Simplex": (pmd.SimplexMechanism(10.0, pmd.SimplexDomain(2, eta=0.2, etabar=0.2, b=0.1)), 40_000),
}


@pytest.fixture(params=MECHANISMS.values(), ids=MECHANISMS.keys())
def subject(request):
    return request.param


def test_right_mechanisms_pass_and_much_of_their_loss_is_seen(subject):
    mechanism, n = subject
    found = audit(mechanism, delta=[1e-3, 0.05], n=n, random_seed=11)
    assert found.verdict == "consistent"
    assert all(bound.lower <= bound.stated <= bound.ceiling for bound in found.bounds)
    # A third, with so few outputs and a confidence of 1 - 1e-6.
    assert max(bound.lower / bound.stated for bound in found.bounds) > 1 / 3


def test_a_claim_of_a_third_of_what_is_lost_is_refuted(subject):
    mechanism, n = subject
    claim = pmd.ApproxDP(epsilon=mechanism.epsilon(0.02) / 3, delta=0.02)
    assert chance_to_refute(mechanism, claim, n=2 * n) > 0.999
    found = audit(mechanism, claim=claim, n=2 * n, random_seed=5)
    assert found.verdict == "refuted"
    assert found.bounds[0].exceeded
    assert not found.bounds[1].exceeded
    assert audit_curve(mechanism, claim=claim).points[0].exceeded


def test_curves_hold_against_the_laws_of_the_output(subject):
    mechanism, _ = subject
    result = audit_curve(mechanism)
    assert result.verdict == "consistent"
    # The pair attains the curve somewhere: an attack on others would have less power.
    assert -1e-2 < result.shortfall <= 1e-9


@pytest.mark.parametrize("name", ["Dirichlet, unequal", "Dirichlet, add-remove"])
def test_both_directions_are_attacked(name):
    """One direction loses more here; which of the two data sets comes first makes no difference."""
    mechanism, n = MECHANISMS[name]
    x, y = worst_pair(mechanism)
    for there, back in zip(audit_curve(mechanism).points, audit_curve(mechanism, pair=(y, x)).points, strict=True):
        assert back.lost == pytest.approx(there.lost, rel=1e-9)
    lower = [audit(mechanism, pair=pair, delta=0.02, n=n, random_seed=3).bounds[0].lower for pair in ((x, y), (y, x))]
    assert min(lower) > 0.8 * max(lower) > 0


@pytest.mark.parametrize("name", ["Dirichlet", "Dirichlet, two rows", "Dirichlet, add-remove", "Gaussian", "Simplex"])
def test_exact_curves_are_attained_everywhere(name):
    """So the audit by quadrature is as sharp as the curve: one that is 1 % too low would be refuted."""
    for point in audit_curve(MECHANISMS[name][0]).points:
        # Two rows are 360,000 products of two cells.
        assert point.lost == pytest.approx(point.stated, rel=1e-2 if "rows" in name else 2e-4)


# Mutants. Each is caught with probability above 0.999 at this n, by `chance_to_refute`; and with each of eight seeds.

SEEDS = range(8)


def test_mutant_alpha_too_small_by_the_setter_bug():
    """ERRATA P1, `set_epsilon`: alpha is `prior + (order - 1) r`, the calibration assumed `4 (order - 1) r`."""
    claim = pmd.RenyiDP(order=3, epsilon=1.0)
    right = pmd.calibrate(claim, prior=FLAT, strategy="algorithm-1")
    mutant = pmd.DirichletMechanism(FLAT + (claim.order - 1) * right.r, right.r)
    n = 30_000
    assert chance_to_refute(mutant, claim, n=n) > 0.999
    for seed in SEEDS:
        assert audit(mutant, claim=claim, n=n, random_seed=seed).verdict == "refuted"
        assert audit(right, claim=claim, n=n, random_seed=seed).verdict == "consistent"
    assert audit_curve(mutant, claim=claim).points[0].exceeded
    assert audit_curve(right, claim=claim).verdict == "consistent"
    # A black box says the same, with statistics that are learned.
    rng = np.random.default_rng(3)
    found = audit(
        lambda x: mutant.sample(x, sampler="fast", random_seed=rng)[0], pair=worst_pair(mutant), claim=claim, n=40_000
    )
    assert found.verdict == "refuted"


def test_mutant_add_remove_curve_for_replace_one():
    mutant, delta = pmd.DirichletMechanism(FLAT, 0.8, adjacency="add-remove"), 0.1
    right = pmd.DirichletMechanism(FLAT, 0.8)
    moved = worst_pair(right)
    claim, n = pmd.ApproxDP(epsilon=mutant.epsilon(delta), delta=delta), 40_000
    assert chance_to_refute(mutant, claim, pair=moved, n=n) > 0.999
    for seed in SEEDS:
        # The mechanism's own curve is refuted, without a claim.
        assert audit(mutant, pair=moved, delta=delta, n=n, random_seed=seed).verdict == "refuted"
        assert audit(mutant, delta=delta, n=n, random_seed=seed).verdict == "consistent"
        assert audit(right, delta=delta, n=n, random_seed=seed).verdict == "consistent"
    assert audit_curve(mutant, pair=moved).verdict == "refuted"
    assert audit_curve(mutant).verdict == "consistent"


def two_tables(mechanism, seed, *, same):
    """Releases two tables that the same records feed, as a naive Bayes model does."""
    seeds = np.random.default_rng(seed)

    def release(counts):
        first, second = seeds.integers(2**63, size=2).tolist()
        pair = (first, first if same else second)
        return np.array(
            [mechanism.sample(x, sampler="fast", random_seed=s)[0] for x, s in zip(counts, pair, strict=True)]
        )

    return release


# The features of the first person agree, those of the neighbour do not; all others are empty.
TWO = np.array([[1, 0, 0], [1, 0, 0]]), np.array([[1, 0, 0], [0, 1, 0]])


@pytest.mark.parametrize("seed", range(3))
def test_mutant_one_seed_for_two_draws(seed):
    """The claim is the composition of both. With one seed the draws are equal if the counts are: no epsilon holds."""
    mechanism = pmd.DirichletMechanism(np.ones(3), 0.3)
    claim = pmd.ApproxDP(epsilon=Composition(((mechanism, 2),)).epsilon(1e-3), delta=1e-3)
    mutant = audit(two_tables(mechanism, seed, same=True), pair=TWO, claim=claim, n=2_000)
    assert mutant.verdict == "refuted"
    # As large as 1,000 outputs can show.
    assert mutant.bounds[1].lower > 0.9 * mutant.bounds[1].ceiling
    right = audit(two_tables(mechanism, seed, same=False), pair=TWO, claim=claim, n=2_000)
    assert right.verdict == "consistent"


def test_mutant_one_seed_for_all_releases():
    mechanism = pmd.DirichletMechanism(FLAT, 0.3)
    found = audit(
        lambda x: mechanism.sample(x, sampler="fast", random_seed=7)[0],
        pair=worst_pair(mechanism),
        claim=pmd.ApproxDP(epsilon=mechanism.epsilon(1e-3), delta=1e-3),
        n=400,
    )
    assert found.verdict == "refuted"
    assert found.bounds[1].lower == found.bounds[1].ceiling > 2


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
            draw = pmd.DirichletMechanism(np.ones(int(seen.sum())), 0.1).sample(
                counts[seen], sampler="fast", random_seed=rng
            )[0]
        else:
            draw = np.ones(1)
        if not zeros:
            return draw
        whole = np.zeros(3)
        whole[seen] = draw
        return whole

    declared = pmd.DirichletMechanism(np.ones(3), 0.1)
    claim = pmd.ApproxDP(epsilon=declared.epsilon(1e-3), delta=1e-3)
    found = audit(release, pair=(x, y), claim=claim, n=400)
    assert found.verdict == "refuted"
    assert found.bounds[1].lower == found.bounds[1].ceiling
    right = audit(lambda c: declared.sample(c, sampler="fast", random_seed=rng)[0], pair=(x, y), claim=claim, n=400)
    assert right.verdict == "consistent"


@pytest.mark.parametrize("name", ["laplace", "normal"])
def test_floating_point_noise_is_told_by_its_last_bits(name):
    """Mironov (2012): the law is private, its floating-point sum is not. Whole numbers survive."""
    rng = np.random.default_rng(2)
    pair = [1.0, 0.0], [0.0, 1.0]

    def textbook(counts):
        return counts + getattr(rng, name)(0.0, 3.0, size=2)

    claim = pmd.ApproxDP(epsilon=2.0, delta=0.01)
    assert audit(textbook, pair=pair, claim=claim, n=10_000).verdict == "consistent"
    assert audit(textbook, pair=pair, claim=claim, n=10_000, last_bits=True).verdict == "refuted"
    whole = pmd.GeometricMechanism(np.ones(2), 1.0)
    assert audit(whole, n=10_000, last_bits=True, random_seed=1).verdict == "consistent"


# The audit itself: is it as seldom wrong as it says?


def false_alarms(monkeypatch=None, repeats=150):
    """How often a bound is above the truth, at a confidence of 0.8; two laws that are equal lose nothing."""
    rng = np.random.default_rng(6)
    found = (
        audit(lambda x: rng.normal(size=20), pair=([0], [1]), delta=[0, 0.01], n=200, confidence=0.8)
        for _ in range(repeats)
    )
    return sum(any(bound.lower > 0 for bound in one.bounds) for one in found)


# More than so many of 150 have a probability of 1e-6 if each has 0.2.
MOST_FALSE = int(binom.isf(1e-6, 150, 0.2))


def test_false_alarms_are_as_rare_as_stated():
    assert false_alarms() <= MOST_FALSE


def test_frequencies_instead_of_limits_would_be_seen(monkeypatch):
    for limit in ("lower_limit", "upper_limit"):
        monkeypatch.setattr(f"pymc_dirdp.auditing.attack.{limit}", lambda hits, n, level: np.asarray(hits) / n + 1e-9)
    assert false_alarms() > MOST_FALSE


def test_learning_and_counting_on_the_same_outputs_would_be_seen(monkeypatch):
    from pymc_dirdp.auditing import attack

    class Same(attack._Attack):
        def __init__(self, statistics, x, y, chosen_on, counted_on, level):
            everything = slice(0, len(x))
            super().__init__(learned(x, y), x, y, everything, everything, level)

    monkeypatch.setattr(attack, "_Attack", Same)
    assert false_alarms() > MOST_FALSE


def test_bounds_stay_below_a_loss_that_is_attained():
    """Randomised response: its curve is attained by an event that every attack finds. 150 at a confidence of 0.8."""
    rng, epsilon = np.random.default_rng(9), 1.0
    truth = 1 / (1 + math.exp(-epsilon))

    def response(counts):
        return counts if rng.random() < truth else counts[::-1]

    def one():
        found = audit(
            response, pair=([1, 0], [0, 1]), delta=[0, 0.1], claim=pmd.PureDP(epsilon=1), n=400, confidence=0.8
        )
        return any(
            bound.lower > loss
            for bound, loss in zip(found.bounds, (1, 1, math.log((truth - 0.1) / (1 - truth))), strict=True)
        )

    assert sum(one() for _ in range(150)) <= MOST_FALSE


@pytest.mark.parametrize("n", [10, 1_000, 1_000_000])
@pytest.mark.parametrize("level", [0.1, 1e-9])
def test_limits_are_those_of_clopper_and_pearson(n, level):
    """Oracle: the definition, by the binomial law at the limit."""
    hits = np.unique([0, 1, 3, n // 2, n - 1, n])
    low, high = lower_limit(hits, n, level), upper_limit(hits, n, level)
    np.testing.assert_allclose(binom.sf(hits[1:] - 1, n, low[1:]), level, rtol=1e-6)
    # A limit within 1e-15 of 1 is a double with few digits left.
    np.testing.assert_allclose(binom.cdf(hits[:-1], n, high[:-1]), level, rtol=1e-2)
    assert low[0] == 0
    assert high[-1] == 1
    np.testing.assert_allclose(high, beta.isf(level, hits + 1, np.maximum(n - hits, 1e-300)), rtol=1e-6)


def test_events_prove_no_more_than_their_two_probabilities():
    """Oracle: the definitions, for laws on two outcomes."""
    p, q = 0.3, 0.1
    assert loss_of(pmd.ApproxDP(epsilon=0.5, delta=0.1), p, q) == pytest.approx(p - math.exp(0.5) * q)
    assert loss_of(pmd.PureDP(epsilon=1), p, q) == pytest.approx(math.log(3))
    square = math.log(p**2 / q + (1 - p) ** 2 / (1 - q))
    assert loss_of(pmd.RenyiDP(order=2, epsilon=1), p, q) == pytest.approx(square)
    kl = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    assert loss_of(pmd.RenyiDP(order=1, epsilon=1), p, q) == pytest.approx(kl)
    assert loss_of(pmd.RenyiDP(order=1, epsilon=1), 1.0, q) == pytest.approx(math.log(10))
    assert loss_of(pmd.RenyiDP(order=3, epsilon=1), 1.0, q) == pytest.approx(math.log(10))
    assert loss_of(pmd.RenyiDP(order=3, epsilon=1), 0.1, 0.3) == 0
    for kind in (pmd.TruncatedCDP(rho=1, omega=3), pmd.ZeroCDP(rho=1)):
        # Over the order it falls here, so the largest slope is that near 1: the divergence itself.
        assert kl * 0.99 < loss_of(kind, p, q) <= square / 2 * 1.5
    assert epsilon_of(p, q, 0.1) == pytest.approx(math.log(2))
    assert epsilon_of(0.05, q, 0.1) == -math.inf
    orders = promised_orders(1.0005)
    assert np.all((orders > 1) & (orders <= 1.0005 * (1 + 1e-15)))


def test_every_kind_of_claim_is_attacked_in_its_own_measure():
    mechanism = pmd.LaplaceMechanism(FLAT, 2.0)
    for right, wrong in (
        (pmd.PureDP(epsilon=1.0), pmd.PureDP(epsilon=0.5)),
        (pmd.RenyiDP(order=2, epsilon=mechanism.renyi(2.0)), pmd.RenyiDP(order=2, epsilon=mechanism.renyi(2.0) / 3)),
        (pmd.ZeroCDP(rho=mechanism.rho(math.inf)), pmd.ZeroCDP(rho=mechanism.rho(math.inf) / 3)),
        (pmd.TruncatedCDP(rho=mechanism.rho(4.0), omega=4), pmd.TruncatedCDP(rho=mechanism.rho(4.0) / 3, omega=4)),
    ):
        assert audit(mechanism, claim=right, n=40_000, random_seed=2).verdict == "consistent"
        assert audit(mechanism, claim=wrong, n=40_000, random_seed=2).verdict == "refuted"
        assert audit_curve(mechanism, claim=right).verdict == "consistent"
        assert audit_curve(mechanism, claim=wrong).verdict == "refuted"


def test_chances_are_those_of_repeating():
    """A claim that is refuted about every second time; 200 repeats, at thresholds of 1e-6."""
    mechanism, claim, n = pmd.GaussianMechanism(np.ones(2), 2.0), pmd.PureDP(epsilon=0.9), 10_000
    chance = chance_to_refute(mechanism, claim, n=n)
    assert 0.2 < chance < 0.8
    hits = sum(audit(mechanism, claim=claim, n=n, random_seed=seed).bounds[0].exceeded for seed in range(200))
    # Choosing the event from data costs some of the chance, so this is one-sided above and loose below.
    assert hits <= binom.isf(1e-6, 200, chance)
    assert hits >= binom.isf(1 - 1e-6, 200, chance / 3)


def test_a_mechanism_without_a_promise_is_measured():
    mechanism = pmd.NonPrivateHellinger([0.1, 0.1], 10, 1.0)
    found = audit(mechanism, n=1_000, random_seed=4)
    assert found.verdict == "nothing stated"
    assert "Nothing was stated" in str(found)
    assert audit_curve(mechanism, claim=pmd.PureDP(epsilon=0.1)).verdict == "refuted"
    with pytest.raises(pmd.UnattainableError):
        audit_curve(mechanism)


def test_noise_is_released_as_one_by_one():
    """Many tables at once are one tall table; here against the release of one, moments at 6 standard errors."""
    mechanism, rng = pmd.LaplaceMechanism([[1.0, 1.0], [1.0, 1.0]], 1.0), np.random.default_rng(4)
    counts = np.array([[3.0, 0.0], [1.0, 7.0]])
    many = releases(mechanism, counts, 30_000, rng)
    single = np.array([mechanism.release(counts, random_seed=rng) for _ in range(5_000)])
    assert many.shape == (30_000, 2, 2)
    assert np.all(np.abs(many.mean(axis=0) - single.mean(axis=0)) < 6 * math.sqrt(2 / 5_000 + 2 / 30_000))
    assert np.abs(np.corrcoef(many.reshape(-1, 4).T) - np.eye(4)).max() < 6 / math.sqrt(30_000)


def test_results_are_text_html_and_a_frame():
    mechanism = pmd.DirichletMechanism(FLAT, 0.1)
    found = audit(mechanism, claim=TARGET, delta=[1e-5, 1e-3], n=1_000, random_seed=1)
    assert str(found).startswith("DirichletMechanism: consistent; 1000 outputs each, false alarm below 1e-06")
    assert "Consistent is not a proof" in str(found)
    assert "<table>" in found._repr_html_()
    assert list(found.frame().index) == [
        "loss, of (1, 0.001)-differential privacy",
        "epsilon at delta 1e-05",
        "epsilon at delta 0.001",
    ]
    assert audit(mechanism, claim=TARGET, delta=[1e-5, 1e-3], n=1_000, random_seed=1) == found
    result = audit_curve(mechanism, claim=TARGET)
    assert "DirichletMechanism: consistent" in str(result)
    assert "<table>" in result._repr_html_()
    assert len(result.frame()) == len(result.points)


def test_what_cannot_be_audited_is_refused():
    mechanism = pmd.DirichletMechanism(FLAT, 0.3)
    with pytest.raises(pmd.ArgumentError, match="pair="):
        audit(lambda counts: counts, n=100)
    with pytest.raises(pmd.ArgumentError, match=r"delta in \[0, 1\)"):
        audit(mechanism, delta=1, n=100)
    with pytest.raises(pmd.ArgumentError, match="n to be a whole number >= 100"):
        audit(mechanism, n=99)
    with pytest.raises(pmd.ArgumentError, match="Composition"):
        audit(Composition(((mechanism, 2),)), n=100)
    with pytest.raises(pmd.ArgumentError, match="one or two cells"):
        audit_curve(pmd.LaplaceMechanism(FLAT, 1.0), pair=([0, 0, 0, 0], [1, 1, 1, 0]))
    with pytest.raises(pmd.ArgumentError, match="moves in it"):
        binned_laws(mechanism, np.array([3.0, 0, 0, 0]), np.array([0.0, 1, 0, 0]))
