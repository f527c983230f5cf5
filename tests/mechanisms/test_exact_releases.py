"""Exact releases of integer noise: extreme scales, reachable outputs, and the distributions of finite mechanisms."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.papers.hellinger import HellingerMechanism
from pymc_dirdp.papers.posterior_mechanism import drawn_from, integer_weights
from pymc_dirdp.papers.truncated_noise import TruncatedNoiseMechanism
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.sampling.bits import Bits


@pytest.mark.parametrize("sampler", ["exact", "fast"])
@pytest.mark.parametrize("epsilon", [1e-20, 1e-21, 1e-250])
def test_a_tight_guarantee_adds_huge_noise(epsilon, sampler):
    """Finding 8: at 0.1.0 `PureDP(1e-20)` published the exact counts."""
    mechanism = GeometricMechanism.for_guarantee(PureDP(epsilon=epsilon), prior=np.ones(50))
    counts = np.arange(50)
    released = mechanism.release(counts, sampler=sampler)
    assert not np.any(released == counts)
    assert 0.2 / epsilon < np.abs(released).mean() < 20 / epsilon
    assert mechanism.pure_epsilon <= epsilon
    assert np.all(np.isfinite(mechanism.sample(counts, released_draws=3, sampler=sampler)))
    # Finding 17: with so much noise the truncated noisy cell is 0 or n, whatever it was.
    for noise in ("geometric", "laplace"):
        mechanism = TruncatedNoiseMechanism.for_guarantee(
            PureDP(epsilon=epsilon), prior=[1, 1], n_records=9, noise_kind=noise
        )
        released = {tuple(mechanism.release([4, 5], sampler=sampler).tolist()) for _ in range(30)}
        assert released == {(0, 9), (9, 0)}


@pytest.mark.parametrize("epsilon", [80.0, 1e5])
def test_a_loose_guarantee_is_finite_and_true(epsilon):
    """At 0.1.0 the noise was exactly 0 from epsilon 80 on: an infinite loss under a finite claim."""
    mechanism = GeometricMechanism.for_guarantee(PureDP(epsilon=epsilon), prior=[1, 1])
    assert epsilon * (1 - 1e-9) < mechanism.pure_epsilon <= epsilon
    assert Fraction(mechanism.pure_epsilon) >= 2 / Fraction(mechanism.scale)
    for scale in (1e-305, 1e305):
        with pytest.raises(ArgumentError, match="between"):
            GeometricMechanism([1, 1], scale)


def test_curves_are_those_of_the_scale_that_is_used():
    """With fractions: no pure epsilon is below the true one, and the scale is not below the one asked for."""
    for scale in np.random.default_rng(4).uniform(0.01, 50, 50):
        mechanism = GeometricMechanism(np.ones((7, 2)), scale, contribution=Contribution(3, ("each",)))
        assert scale <= mechanism.scale <= scale * (1 + 2.0**-40)
        assert Fraction(mechanism.pure_epsilon) >= 42 / Fraction(mechanism.scale)
        assert Fraction(mechanism._curves.u) * Fraction(mechanism.scale) >= 3


def tables(mechanism):
    d, n = len(mechanism.prior), mechanism.n_records
    return [x for x in itertools.product(range(n + 1), repeat=d) if sum(x) == n]


@pytest.mark.parametrize(
    "mechanism",
    [
        HellingerMechanism([1.0, 0.3], 6, 2.0),
        HellingerMechanism([1.0, 1.0], 5, 400.0),
        TruncatedNoiseMechanism([1.0, 1.0, 1.0], 4, 1.2),
        TruncatedNoiseMechanism([1.0, 1.0, 1.0], 4, 1.2, noise_kind="laplace"),
    ],
    ids=["hellinger", "steep", "geometric", "laplace"],
)
def test_every_data_set_reaches_the_same_outputs(mechanism):
    """Exhaustive: an output that is possible for one table is possible for all."""
    reachable = set()
    for counts in tables(mechanism):
        outcomes, distribution = mechanism.distribution(counts)
        if isinstance(mechanism, HellingerMechanism):
            assert min(integer_weights(distribution)) >= 2**50
            distribution = np.ones(len(distribution))
        reachable.add(frozenset(tuple(row) for row, p in zip(outcomes.tolist(), distribution, strict=True) if p > 0))
    assert len(reachable) == 1
    assert len(reachable.pop()) > 1


def test_weights_keep_the_loss_and_hide_what_is_impossible():
    p, q = np.array([0.7, 0.3 - 1e-25, 1e-25, 0.0]), np.array([0.3, 0.7 - 1e-25, 0.0, 1e-25])
    first, second = integer_weights(p), integer_weights(q)
    losses = [math.log(Fraction(a, sum(first)) / Fraction(b, sum(second))) for a, b in zip(first, second, strict=True)]
    assert max(map(abs, losses)) <= math.log(7 / 3) + 1e-12
    assert first[2] == second[3] > 0
    bits = Bits(3)
    drawn = Counter(drawn_from(p, bits) for _ in range(4000))
    assert abs(drawn[0] - 2800) < 200
    assert set(drawn) == {0, 1}


@pytest.mark.parametrize("noise", ["geometric", "laplace"])
@pytest.mark.parametrize("prior", [[1.0, 1.0], [1.0, 1.0, 1.0]], ids=len)
def test_truncated_noise_for_several_records(noise, prior):
    """Brute force over all tables and all changes of up to two records."""
    mechanism = TruncatedNoiseMechanism(prior, 5, 2.0, noise_kind=noise, contribution=2)
    assert mechanism.pure_epsilon == (1.0 if len(prior) == 2 else 2.0)
    distributions = {}
    for table in tables(mechanism):
        distributions[table] = Counter()
        for outcome, p in zip(*mechanism.distribution(table), strict=True):
            distributions[table][tuple(outcome.tolist())] += p
    largest = 0.0
    for x, y in itertools.permutations(distributions, 2):
        if np.abs(np.subtract(x, y)).sum() <= 4:
            for epsilon in (0.0, 0.4, 0.9):
                excess = (distributions[x][z] - math.exp(epsilon) * distributions[y][z] for z in distributions[x])
                apart = math.fsum(max(part, 0) for part in excess)
                assert apart <= mechanism.delta(epsilon) * (1 + 1e-12) + 1e-15
                largest = max(largest, apart / max(mechanism.delta(epsilon), 1e-300))
    assert largest > 0.5
    target = ApproxDP(epsilon=0.5, delta=1e-4)
    made = TruncatedNoiseMechanism.for_guarantee(target, prior=prior, n_records=50, noise_kind=noise, contribution=2)
    assert made.satisfies(target)
