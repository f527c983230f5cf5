"""Rounding on the safe side: exact comparisons with fractions, and no privacy curve rises."""

import inspect
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_dirdp.calibration import calibrate
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.guarantees import ApproxDP, RenyiDP, TruncatedCDP
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.sampling.rationals import LARGEST_TOTAL, rounded

positive = st.floats(1e-6, 1e6)


@given(
    alpha=st.lists(positive, min_size=2, max_size=5),
    r=st.floats(1e-8, 1e4),
    steps=st.integers(1, 10**7),
    most_records=st.integers(0, 2**40),
)
def test_exactly_on_the_safe_side(alpha, r, steps, most_records):
    try:
        q = rounded(alpha, r, steps=steps, most_records=most_records)
    except UnattainableError:
        # A grid of 2**-10, relative, must not have fitted.
        least = min(*alpha, r)
        assert 2**10 / least * (steps + sum(alpha) + r * most_records) > LARGEST_TOTAL / 2
        return
    assert q.denominator & (q.denominator - 1) == 0
    assert 0 < Fraction(q.per_record, q.denominator) <= Fraction(r)
    assert 1 - Fraction(q.per_record, q.denominator) / Fraction(r) <= Fraction(1, 2**10)
    for numerator, wanted in zip(q.prior.tolist(), alpha, strict=True):
        assert Fraction(numerator, q.denominator) >= Fraction(wanted)
        assert Fraction(numerator, q.denominator) / Fraction(wanted) - 1 <= Fraction(1, 2**10)
    # The floats that describe the law are the fractions themselves.
    assert Fraction(q.r) == Fraction(q.per_record, q.denominator)
    assert [Fraction(a) for a in q.alpha.tolist()] == [Fraction(n, q.denominator) for n in q.prior.tolist()]
    # Whatever the data are, as long as they keep the bound.
    assert sum(q.prior.tolist()) + q.per_record * most_records + q.denominator * steps < LARGEST_TOTAL


@pytest.mark.parametrize("r", [1.0, 0.1, 1 / 3, 1e-4, 1e-8])
def test_what_is_lost_cannot_be_seen(r):
    """About 2**-40, with a million records and the steps that go with them."""
    q = rounded([1.0, 0.3, 50.0], r, steps=10**4 if r < 1e-3 else 10**6, most_records=10**6)
    assert 1 - q.r / r <= (2.0**-40 if r > 1e-3 else 2.0**-20)
    assert np.max(q.alpha / [1.0, 0.3, 50.0]) - 1 <= (2.0**-40 if r > 1e-3 else 2.0**-20)


def test_whole_numbers_are_kept():
    q = rounded([[1, 2], [3, 0.5]], 1, steps=100, most_records=10**6)
    assert q.r == 1
    assert np.array_equal(q.alpha, [[1, 2], [3, 0.5]])


def test_weights_are_the_posterior_parameters():
    q = rounded([0.3, 0.7, 2.0], 0.11, steps=100, most_records=1000)
    weights = q.weights(np.array([3, 0, 997]))
    for w, a, x in zip(weights.tolist(), q.alpha.tolist(), [3, 0, 997], strict=True):
        assert Fraction(w, q.denominator) == Fraction(q.r) * x + Fraction(a)


def test_a_grid_that_does_not_fit_is_refused_in_public_numbers():
    with pytest.raises(UnattainableError, match="steps=10000000 and most_records=8589934592 "):
        rounded([1e6, 1e-6], 1e-9, steps=10**7, most_records=2**33)
    with pytest.raises(UnattainableError):
        rounded([1e300, 1.0], 1.0, steps=1, most_records=0)
    with pytest.raises(UnattainableError):
        rounded([1e-300, 1.0], 1.0, steps=1, most_records=0)


@pytest.mark.parametrize(
    "bad", [{"alpha": [0.0, 1.0]}, {"r": 0.0}, {"r": math.inf}, {"steps": 0}, {"steps": 1.5}, {"most_records": -1}]
)
def test_arguments_outside_their_domain(bad):
    with pytest.raises(ArgumentError):
        rounded(**{"alpha": [1.0, 1.0], "r": 1.0, "steps": 10, "most_records": 10} | bad)


def test_no_count_is_an_argument():
    """The denominator is published with the law, so it must not follow the data."""
    assert set(inspect.signature(rounded).parameters) == {"alpha", "r", "steps", "most_records"}


def random_target(rng):
    match rng.integers(3):
        case 0:
            return ApproxDP(epsilon=10 ** rng.uniform(-1, 1), delta=10 ** rng.uniform(-9, -2))
        case 1:
            return RenyiDP(order=1 + 10 ** rng.uniform(-1, 1), epsilon=10 ** rng.uniform(-2, 1))
    return TruncatedCDP(rho=10 ** rng.uniform(-3, 0), omega=1 + 10 ** rng.uniform(0, 1.5))


def assert_rounding_keeps_targets(cases, seed):
    """Calibrated mechanisms sit at the edge of their targets; rounded, they keep them without any tolerance.

    The bound on the records leaves 16 bits for `r` or the smallest `alpha`. On a much finer grid the curves move less
    than they are accurate.
    """
    rng = np.random.default_rng(seed)
    for _ in range(cases):
        target = random_target(rng)
        mechanism = calibrate(
            target,
            prior=10 ** rng.uniform(-2, 1, size=rng.integers(2, 6)),
            strategy=rng.choice(["temper", "inflate"]),
            adjacency=rng.choice(["replace-one", "add-remove"]),
            min_count=float(rng.choice([0, 0, 3])),
        )
        coarse = int(2**45 * min(1, mechanism.alpha.min() / mechanism.r))
        q = rounded(mechanism.alpha, mechanism.r, steps=1000, most_records=coarse)
        used = DirichletMechanism(q.alpha, q.r, adjacency=mechanism.adjacency, min_count=mechanism.min_count)
        assert used.satisfies(target), (target, mechanism)


def test_rounding_never_breaks_a_target():
    assert_rounding_keeps_targets(300, seed=1)


@pytest.mark.slow
def test_rounding_never_breaks_any_of_many_targets():
    assert_rounding_keeps_targets(100_000, seed=2)


def test_a_grid_that_can_be_seen_lowers_the_loss():
    """A bound on the records so large that the grid is coarse: the curves must fall, not merely stay."""
    wanted = DirichletMechanism([0.3, 0.7, 1.7], 0.0123)
    q = rounded(wanted.alpha, wanted.r, steps=1000, most_records=2**46)
    assert q.r < wanted.r
    assert np.all(q.alpha >= wanted.alpha)
    assert np.any(q.alpha > wanted.alpha)
    used = DirichletMechanism(q.alpha, q.r)
    for order in (1.0, 2.0, 10.0):
        assert used.renyi(order) < wanted.renyi(order)
    for epsilon in (0.0, 0.01, 0.05):
        assert used.delta(epsilon) < wanted.delta(epsilon)
