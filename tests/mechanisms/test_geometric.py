"""Geometric noise, also that adds up to 0: extreme scales, its size, the linear programme, and releases of blocks."""

import itertools
import math
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from least_error import least_error
from scipy.special import rel_entr

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.rows import RowPosterior
from pymc_dirdp.mechanisms.geometric import Geometric, GeometricMechanism, ZeroSumGeometric, ZeroSumGeometricMechanism
from pymc_dirdp.papers.truncated_noise import TruncatedNoiseMechanism
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP
from pymc_dirdp.privacy.people import Contribution


@pytest.mark.parametrize(("scale", "cells"), [(0.2, 3), (1.5, 1)])
def test_the_noise_of_some_cells_goes_no_further_than_is_looked(scale, cells):
    """Sums of the tail, whose terms are positive: beyond the reach there is a probability below 2 exp(-60)."""
    reach = math.floor(Geometric(scale).sum_reach(cells))
    # Some cells of noise that adds up to 0 have smaller sums.
    assert ZeroSumGeometric(scale, 9).sum_reach(cells) == Geometric(scale).sum_reach(cells)
    q, z = math.exp(-1 / scale), np.arange(-2 * reach, 2 * reach + 1)
    one = (1 - q) / (1 + q) * q ** np.abs(z)
    total = reduce(np.convolve, [one] * cells)
    # What the list leaves out of one cell is counted in full, for every cell.
    beyond = total[np.abs(np.arange(total.size) - total.size // 2) > reach].sum() + cells * 2 * q ** (2 * reach) / (
        1 + q
    )
    assert beyond < 2 * math.exp(-60)


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


def test_curves_are_those_of_the_scale_that_is_used():
    """With fractions: no pure epsilon is below the true one, and the scale is not below the one asked for."""
    for scale in np.random.default_rng(4).uniform(0.01, 50, 50):
        mechanism = GeometricMechanism(np.ones((7, 2)), scale, contribution=Contribution(3, ("each",)))
        assert scale <= mechanism.scale <= scale * (1 + 2.0**-40)
        assert Fraction(mechanism.pure_epsilon) >= 42 / Fraction(mechanism.scale)
        assert Fraction(mechanism._curves.u) * Fraction(mechanism.scale) >= 3


# Noise that adds up to 0.


def test_two_cells_with_estimate_are_the_optimum_of_all_mechanisms():
    """No mechanism whatever errs less, for ten records and a flat prior."""
    mechanism, n, x = ZeroSumGeometricMechanism.for_guarantee(PureDP(epsilon=1.0), prior=[1.0, 1.0]), 10, np.arange(11)
    reached = 0.0
    for first in range(-25, n + 26):
        (row,) = mechanism.row_likelihoods(np.array([first, n - first], dtype=float))
        mean = RowPosterior(alpha=[1.0, 1.0], total=n, log_likelihood=row.cell_loglik).means[0] / n
        weights = np.exp(mechanism.log_likelihood([first, n - first], np.stack([x, n - x], axis=1))) / (n + 1)
        reached += weights @ (rel_entr(x / n, mean) + rel_entr(1 - x / n, 1 - mean))
    # The optimum as it was computed before, from outputs on a grid.
    assert reached == pytest.approx(0.048812, abs=6e-7)
    assert reached == pytest.approx(least_error(1.0, 0.0, [1, 1], n), rel=1e-5)


@pytest.mark.parametrize("sampler", ["exact", "fast"])
@pytest.mark.parametrize(
    ("shape", "unit", "summed"),
    [
        ((3, 2), 2, (0, 1)),
        ((4, 3, 2), Contribution(1, ("any", "each")), (0, 2)),
        ((4, 3, 2), Contribution(1, ("own", "each")), (2,)),
    ],
    ids=str,
)
def test_the_noise_of_each_block_adds_up_to_0(shape, unit, summed, sampler):
    mechanism = ZeroSumGeometricMechanism(np.ones(shape), 3.0, contribution=unit)
    counts = np.arange(math.prod(shape)).reshape(shape)
    noisy = mechanism.release(counts, sampler=sampler, random_seed=5)
    np.testing.assert_array_equal(mechanism.release(counts, sampler=sampler, random_seed=5), noisy)
    assert np.any(mechanism.release(counts, sampler=sampler) != noisy)
    many = mechanism.releases(counts.astype(float), 40, sampler=sampler, random_seed=6)
    np.testing.assert_array_equal(noisy.sum(axis=summed), counts.sum(axis=summed))
    np.testing.assert_array_equal(many.sum(axis=tuple(axis + 1 for axis in summed)), [counts.sum(axis=summed)] * 40)
    assert np.all(np.any(many != counts, axis=0))
    assert (many - counts).std() == pytest.approx(mechanism.noise_sd, rel=0.5)
    assert mechanism.pure_epsilon == pytest.approx(2 * Contribution.of(unit).total(shape) / 3)
    totals = mechanism.published_totals(noisy)
    assert sorted(total for _, total in totals) == sorted(np.ravel(counts.sum(axis=summed)).tolist())
    for rows, total in totals:
        assert counts.reshape(-1, shape[-1])[rows].sum() == total
    assert mechanism.log_likelihood(noisy, counts) > -math.inf
    assert mechanism.log_likelihood(noisy, counts[..., ::-1] * 2) == -math.inf


def test_many_blocks_are_a_composition():
    target, unit = ApproxDP(epsilon=1, delta=1e-6), Contribution(1, ("each",))
    many, few = (
        ZeroSumGeometricMechanism.for_guarantee(target, prior=np.ones((blocks, 2)), contribution=unit)
        for blocks in (2500, 2000)
    )
    assert isinstance(many._curves, Composition)
    assert many.scale / few.scale == pytest.approx(math.sqrt(2500 / 2000), rel=2e-3)
    assert Fraction(many.pure_epsilon) >= 5000 / Fraction(many.scale)


@pytest.mark.parametrize("scale", [2.0**-1000, 2.0**980, 1e-3, 1e12])
def test_extreme_scales(scale):
    mechanism = ZeroSumGeometricMechanism(np.ones(5), scale)
    assert 0 <= mechanism.noise_sd < math.inf
    assert Fraction(mechanism.pure_epsilon) >= 2 / Fraction(mechanism.scale)
    assert 0 <= mechanism.delta(0.5) <= 1
    assert math.isfinite(mechanism.log_likelihood(np.zeros(5), np.zeros(5)))
    noisy = mechanism.release(np.full(5, 7))
    assert abs(noisy.sum() - 35) <= 1e-12 * np.abs(noisy).sum()


def test_the_distributions_that_audits_look_at_and_what_is_refused():
    mechanism = ZeroSumGeometricMechanism(np.ones(3), 3.0)
    z = np.array([(i, j, -i - j) for i, j in itertools.product(range(-55, 56), repeat=2)])
    mass = np.exp(-np.abs(z).sum(axis=1) / mechanism.scale)
    loss = (np.abs(z + [2, -1, -1]).sum(axis=1) - np.abs(z).sum(axis=1)) / mechanism.scale
    found = mechanism.output_distributions(np.array([2.0, 0, 0]), np.array([0.0, 1, 1]))
    assert found.delta(0.3) == pytest.approx(mass @ np.maximum(-np.expm1(0.3 - loss), 0) / mass.sum(), rel=1e-8)
    with pytest.raises(ArgumentError, match="same number of records"):
        mechanism.output_distributions(np.array([1.0, 0, 0]), np.zeros(3))
    with pytest.raises(ArgumentError, match="too many cells"):
        ZeroSumGeometricMechanism([1.0, 1.0], 1e12).output_distributions(np.array([1.0, 0]), np.array([0.0, 1]))
    with pytest.raises(ArgumentError, match="Use GeometricMechanism"):
        ZeroSumGeometricMechanism([1.0, 1.0], 2.0, adjacency="add-remove")
    # Clipping noise of a larger scale would change what it adds up to.
    for kind, scale in itertools.product((ZeroSumGeometricMechanism, GeometricMechanism), (1e-305, 2.0**1002)):
        with pytest.raises(ArgumentError, match=r"scale.*between"):
            kind([1.0, 1.0], scale)
