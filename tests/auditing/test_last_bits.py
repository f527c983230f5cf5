"""The last bits of the sampler of version 0.1.0 tell its data; those of the library's samplers tell nothing."""

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.attack import audit

GOAL = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
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


@pytest.fixture(params=CROSSING)
def case(request):
    return CROSSING[request.param]


def attacked(sampler, case, **options):
    """From a pool, so that drawing one by one takes no time."""
    alpha, r, n = case
    pair, rng = crossing(alpha, r), np.random.default_rng(5)
    pools = {z.tobytes(): iter(sampler(r * z + alpha, n + 500, rng)) for z in pair}
    return audit(lambda z: next(pools[z.tobytes()]), pair=pair, claim=GOAL, n=n, random_seed=1, **options)


def test_the_sampler_of_0_1_0_is_refuted_by_its_last_bits_and_the_exact_one_is_not(case):
    alpha, r, _ = case
    # What it stands for is private.
    mechanism = dirdp.mechanisms.DirichletMechanism(alpha, r)
    assert mechanism.satisfies(GOAL)
    assert attacked(of_two_branches, case).verdict == "consistent"
    assert attacked(of_two_branches, case, last_bits=True).verdict == "refuted"
    # The exact sampler is not.
    options = {"sampler": "exact", "steps": 200, "claim": GOAL, "last_bits": True, "random_seed": 1}
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
