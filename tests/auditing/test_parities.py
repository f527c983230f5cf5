"""Products of signs are found where no single sign, and no pair of them, shows anything."""

from itertools import permutations

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.attack import audit

GOAL = dirdp.ApproxDP(epsilon=1.0, delta=1e-5)
PAIR = [1.0, 0.0], [0.0, 1.0]


def by_signs(size, rng):
    """Numbers of random signs, of which the product says which data set it is."""

    def release(counts):
        z = rng.normal(size=size)
        z[0] *= np.prod(np.sign(z)) * (1 if counts[0] > counts[1] else -1)
        return z

    return release


def by_order(size, rng):
    """Numbers in random order, of which the sign of the permutation says which data set it is."""
    even = {order for order in permutations(range(3)) if np.linalg.det(np.eye(3)[list(order)]) > 0}

    def release(counts):
        z = rng.random(3)
        if (tuple(np.argsort(z).tolist()) in even) != (counts[0] > counts[1]):
            z = z[[1, 0, 2]]
        return z

    return release


def by_oddness(size, rng):
    """Integers, of which the sum is even or odd."""

    def release(counts):
        z = rng.integers(-20, 20, size=size).astype(float)
        z[0] += (z.sum() + counts[0]) % 2
        return z

    return release


@pytest.mark.parametrize("pair", [PAIR, PAIR[::-1]], ids=["there", "back"])
@pytest.mark.parametrize(
    ("mutant", "size"), [(by_signs, 2), (by_signs, 3), (by_signs, 4), (by_order, 3), (by_oddness, 3)]
)
def test_a_parity_is_refuted(mutant, size, pair):
    found = audit(mutant(size, np.random.default_rng(1)), pair=pair, claim=GOAL, n=1_000, random_seed=1)
    assert found.verdict == "refuted"
    # Its loss has no bound, and this is nearly as large as so many outputs can show.
    assert found.bounds[0].lower > 0.8 * found.bounds[0].ceiling


@pytest.mark.parametrize("size", [3, 12])
def test_parities_of_more_signs_are_a_blind_spot(size):
    """Five signs and more: a test of what the documentation says is missed."""
    found = audit(by_signs(size + 2, np.random.default_rng(1)), pair=PAIR, claim=GOAL, n=1_000, random_seed=1)
    assert found.verdict == "consistent"
    assert "none of its statistics looks at" in found.blind_spots


def test_random_signs_without_a_parity_pass():
    rng = np.random.default_rng(4)
    assert audit(lambda _: rng.normal(size=3), pair=PAIR, claim=GOAL, n=1_000, random_seed=1).verdict == "consistent"


def test_a_parity_that_is_only_more_frequent_gives_the_loss_that_it_has():
    """Right in three of four outputs: epsilon is log 3."""
    rng = np.random.default_rng(5)
    release = by_signs(3, rng)

    def sometimes(counts):
        return release(counts if rng.random() < 0.75 else counts[::-1])

    found = audit(sometimes, pair=PAIR, claim=dirdp.PureDP(epsilon=0.8), n=10_000, random_seed=1)
    assert 0.8 < found.bounds[0].lower < np.log(3)
