"""Outputs that one data set alone can give are found, and so are the data themselves."""

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.attack import audit
from pymc_dirdp.auditing.statistics import as_rows, the_data

GOAL = dirdp.ApproxDP(epsilon=1.0, delta=1e-5)
PAIR = np.array([7.0, 3.0, 2.0]), np.array([6.0, 4.0, 2.0])


def saturating(scale):
    """Noise of version 0.1.0: at extreme scales two draws saturate at the largest integer, so they differ by 0."""
    rng, p = np.random.default_rng(3), -np.expm1(-1 / scale)

    def release(counts):
        return counts + (rng.geometric(p, size=counts.shape) - rng.geometric(p, size=counts.shape)).astype(np.float64)

    return release


@pytest.mark.parametrize(("scale", "verdict"), [(1e20, "refuted"), (5.0, "consistent")])
def test_noise_that_saturates_is_refuted(scale, verdict):
    claim = dirdp.mechanisms.GeometricMechanism(np.ones(3), scale)
    assert audit(saturating(scale), pair=PAIR, claim=claim, n=2_000, random_seed=1).verdict == verdict


def test_no_noise_is_refuted_wherever_the_claim_is_below_the_ceiling():
    """At a scale of 1/60 the noise is always 0. A claim of 120 cannot be refuted by draws, and the audit says so."""
    release = saturating(1 / 60)
    found = audit(release, pair=PAIR, claim=dirdp.PureDP(epsilon=3), n=2_000, random_seed=1)
    assert found.verdict == "refuted"
    stated = audit(release, pair=PAIR, claim=dirdp.PureDP(epsilon=120), n=2_000, random_seed=1)
    assert stated.verdict == "consistent"
    assert stated.bounds[0].refutable == np.inf
    assert "no true value would have been refuted" in str(stated)


def published(how, probability, n, seed):
    """A private draw, but sometimes the data: a pool for each of the two data sets."""
    mechanism, rng = dirdp.mechanisms.DirichletMechanism(np.ones(3), 0.08), np.random.default_rng(seed)
    pools = {}
    for z in PAIR:
        pool = mechanism.sample(z, released_draws=n, sampler="fast", random_seed=rng)
        pool[rng.random(n) < probability] = how(z)
        pools[z.tobytes()] = iter(pool)
    return lambda z: next(pools[z.tobytes()])


WAYS = {
    "counts": lambda z: z,
    "frequencies": lambda z: z / z.sum(),
    "posterior mean": lambda z: (z + 1) / (z + 1).sum(),
}


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_data_that_are_published_now_and_then_are_found(how):
    n = 40_000
    release = published(how, 0.005, n + 1_000, 1)
    assert audit(release, pair=PAIR, claim=GOAL, n=n, random_seed=1).verdict == "refuted"


@pytest.mark.slow
@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_data_that_are_published_once_in_a_thousand_times_are_found(how):
    n = 200_000
    release = published(how, 1e-3, n + 2_000, 2)
    assert audit(release, pair=PAIR, claim=GOAL, n=n, random_seed=1).verdict == "refuted"


def test_data_that_are_published_too_seldom_are_a_blind_spot():
    n = 20_000
    found = audit(published(WAYS["counts"], 1e-4, n + 1_000, 3), pair=PAIR, claim=GOAL, n=n, random_seed=1)
    assert found.verdict == "consistent"
    assert found.bounds[0].rarest > 1e-4


def test_each_data_set_is_distinguished_from_the_other():
    x, y = PAIR
    outputs = np.array([x, y, x / x.sum(), (y + 0.5) / (y + 0.5).sum(), [0.2, 0.3, 0.5]])
    scores = the_data(x, y)(as_rows(outputs, (3,)))
    assert scores[0] > 2 > 1 > abs(scores[4])
    assert scores[1] < -2
    assert scores[2] >= 2
    assert scores[3] <= -2
    # Outputs of another shape say nothing here.
    assert np.all(the_data(x, y)(as_rows(np.ones((4, 2)), (2,))) == 0)
