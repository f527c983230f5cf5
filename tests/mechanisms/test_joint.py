"""Joint noise: brute force over all neighbours, the tables of variances, likelihoods, and what an audit refutes."""

import itertools
import math

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism, ZeroSumGeometricMechanism
from pymc_dirdp.mechanisms.joint import JointNoise, JointTableMechanism, ZeroSumJointTableMechanism
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP
from pymc_dirdp.privacy.people import Contribution

EPSILONS, ORDERS = (0.0, 0.2, 0.7), (1.01, 2.0, 9.0)


def lists(cells, zero_sum, reach):
    some = itertools.product(range(-reach, reach + 1), repeat=cells - zero_sum)
    found = [(*z, -sum(z)) if zero_sum else z for z in some]
    return [z for z in found if sum(map(abs, z)) <= reach * (1 + zero_sum)]


EACH = Contribution(1, ("each",))


def curves(noise, changes=1):
    """Of all blocks: a person's records appear or disappear, or are replaced (2)."""
    return noise.curves(len(noise.cells), 1, changes)


def moves(cells, records, noise, changes):
    """Every change of one table by at most so many records of one person."""
    contributions = [
        np.bincount(c, minlength=cells)
        for k in range(records + 1)
        for c in itertools.combinations_with_replacement(range(cells), k)
    ]
    if changes == 1 and not noise.zero_sum:
        return contributions
    pairs = itertools.product(contributions, contributions)
    return list({tuple(g - h): g - h for g, h in pairs if not noise.zero_sum or g.sum() == h.sum()}.values())


# With how far noise is listed, and what changes of a person.
CASES = {
    "different tables": (JointNoise([2, 3], 0.6, zero_sum=True), 20, 1),
    "two of three cells": (JointNoise([3, 2], 0.3, 2, zero_sum=True), 16, 1),
    "unequal records": (JointNoise([2, 2], 0.5, (1, 2), zero_sum=True), 34, 1),
    "added": (JointNoise([2, 2], 0.5), 16, 1),
    "three added": (JointNoise([1, 2, 1], 0.4), 14, 1),
    "two records replaced": (JointNoise([2, 1], 0.3, 2), 18, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_loss_by_brute_force_over_all_neighbours(name):
    noise, reach, changes = CASES[name]
    tables = [lists(d, noise.zero_sum, reach) for d in noise.cells]
    z = [np.array(parts) for parts in zip(*itertools.product(*tables), strict=True)]

    def size(parts):
        sizes = [np.abs(part).sum(axis=1) / m for part, m in zip(parts, noise.records, strict=True)]
        return np.max(sizes, axis=0) / (1 + noise.zero_sum)

    base = size(z)
    mass = np.exp(-base / noise.scale)
    mass /= mass.sum()
    every = [moves(d, m, noise, changes) for d, m in zip(noise.cells, noise.records, strict=True)]
    worst = {"delta": np.zeros(3), "renyi": np.zeros(3)}
    largest = 0.0
    for change in itertools.product(*every):
        # The other order of two neighbours has the same losses, because the noise has the same distribution mirrored.
        loss = (size([part + step for part, step in zip(z, change, strict=True)]) - base) / noise.scale
        largest = max(largest, float(np.abs(loss).max()))
        units, place = np.unique(np.round(loss, 12), return_inverse=True)
        masses = np.bincount(place, weights=mass)
        lost = np.array([masses @ np.maximum(-np.expm1(e - units), 0) for e in EPSILONS])
        diverging = [math.log(masses @ np.exp((order - 1) * units)) / (order - 1) for order in ORDERS]
        worst["delta"] = np.maximum(worst["delta"], lost)
        worst["renyi"] = np.maximum(worst["renyi"], diverging)
    # The pure epsilon is attained and never exceeded.
    bounds_of = curves(noise, changes)
    assert bounds_of.pure_epsilon == pytest.approx(largest, rel=1e-11)
    assert bounds_of.pure_epsilon == pytest.approx(changes / noise.scale, rel=1e-11)
    exact = set(noise.records) == {1} and changes == 1
    stated = {
        "delta": [bounds_of.delta(e) for e in EPSILONS],
        "renyi": [bounds_of.renyi(order) for order in ORDERS],
    }
    for curve, bounds in stated.items():
        for bound, truth in zip(bounds, worst[curve].tolist(), strict=True):
            assert truth * (1 - 1e-9) <= bound <= (truth * (1 + 1e-8) if exact else math.inf)
    # Randomised response is never below.
    assert bounds_of.delta(0.0) <= math.tanh(bounds_of.pure_epsilon / 2) * (1 + 1e-12)


# JOINT, section A: the variance of a cell at epsilon 1.
VARIANCES = {
    2: {2: 3.903, 10: 43.92, 32: 373.9},
    4: {2: 11.63, 10: 208.2},
}


@pytest.mark.parametrize("cells", VARIANCES)
def test_variances_at_epsilon_1(cells):
    for number, variance in VARIANCES[cells].items():
        prior = np.ones((number, cells))
        mechanism = ZeroSumJointTableMechanism.for_guarantee(PureDP(epsilon=1), prior=prior, contribution=EACH)
        assert mechanism.scale == pytest.approx(1, rel=1e-9)
        assert mechanism.noise_sd**2 == pytest.approx(variance, rel=3e-4)


# The same section, independent over joint noise, for small epsilon.
RATIOS = {
    2: {2: 2.0, 5: 3.57, 20: 5.19},
    6: {2: 1.27, 20: 1.63},
    20: {2: 1.08, 20: 1.15},
}


@pytest.mark.parametrize("cells", RATIOS)
def test_variances_against_independent_noise(cells):
    for number, ratio in RATIOS[cells].items():
        joint = JointNoise([cells] * number, 100.0, zero_sum=True).sd
        # Each of K tables has a K-th of the budget, and loses two over its scale.
        apart = ZeroSumGeometricMechanism(np.ones(cells), 200.0 * number).noise_sd
        assert (apart / joint) ** 2 == pytest.approx(ratio, abs=6e-3)
    # With private totals.
    joint, apart = JointNoise([cells] * 10, 100.0).sd, GeometricMechanism(np.ones(2), 1000.0).noise_sd
    assert (apart / joint) ** 2 == pytest.approx({2: 2.60, 6: 1.481, 20: 1.138}[cells], abs=6e-3)


def test_one_table_is_zero_sum_geometric_noise():
    one, known = ZeroSumJointTableMechanism(np.ones(4), 1.5), ZeroSumGeometricMechanism(np.ones(4), 3.0)
    assert one.noise_sd == pytest.approx(known.noise_sd, rel=1e-10)
    assert one.noise.free_variance == pytest.approx(known.noise.free_variance, rel=1e-10)
    z = np.array([[3, -1, -2, 0], [1, 1, 0, -2]])
    np.testing.assert_allclose(one.log_likelihood(z, np.zeros(4)), known.log_likelihood(z, np.zeros(4)), atol=1e-10)
    for epsilon in EPSILONS:
        assert one.delta(epsilon) == pytest.approx(known.delta(epsilon), rel=1e-8)
    single = JointNoise([3], 2.0)
    assert single.sd == pytest.approx(GeometricMechanism(np.ones(3), 2.0).noise_sd, rel=1e-10)


# So many tables are the fewest for which discrete Gaussian noise has less variance at (1, 1e-6), given the known sums.
CROSSINGS = {4: 14, 10: 7}


@pytest.mark.parametrize("cells", CROSSINGS)
def test_where_gaussian_noise_takes_over(cells):
    target, first = ApproxDP(epsilon=1, delta=1e-6), CROSSINGS[cells]

    def joint_wins(number):
        shape, adds = (number, cells), Contribution(1, ("each",))
        gaussian = DiscreteGaussianMechanism.for_guarantee(target, prior=np.ones(shape), contribution=adds)
        joint = ZeroSumJointTableMechanism.for_guarantee(target, prior=np.ones(shape), contribution=adds)
        return joint.noise.free_variance < gaussian.noise_sd**2

    assert joint_wins(first - 1)
    assert not joint_wins(first)


@pytest.mark.parametrize("name", ["different tables", "unequal records", "added"])
def test_the_likelihood_is_a_mixture_over_the_radius(name):
    noise, reach, _ = CASES[name]
    tables = [np.array(lists(d, noise.zero_sum, reach)) for d in noise.cells]
    z = [np.array(parts) for parts in zip(*itertools.product(*tables), strict=True)]
    whole = np.concatenate(z, axis=1).astype(float)
    output = np.arange(whole.shape[1]) + 5.0
    found = noise.log_probability(whole)
    assert np.exp(found).sum() == pytest.approx(1, rel=1e-6)
    seen = noise.joint_likelihoods(output)
    split = noise.split(output - whole)
    np.testing.assert_allclose(seen.log_likelihood(split), found, atol=1e-10)
    # The definition, radius by radius, for a few.
    for i in range(0, len(whole), 977):
        possible = np.all(
            [block.norm(c[i]) <= block.limits for block, c in zip(seen.blocks, split, strict=True)], axis=0
        )
        assert np.logaddexp.reduce(seen.log_weights[possible]) == pytest.approx(found[i], abs=1e-10)
    squares = [np.exp(found) @ part[:, 0] ** 2 for part in z]
    np.testing.assert_allclose(np.sqrt(noise.balls.variances), np.sqrt(squares), rtol=1e-6)
    if noise.zero_sum:
        assert noise.log_probability(np.eye(len(output))[0]) == -math.inf


MECHANISM = ZeroSumJointTableMechanism(np.ones((3, 2)), 1.0, contribution=EACH)


def test_an_audit_finds_no_fault_but_that_of_forgotten_records():
    assert dirdp.audit(MECHANISM, n=3000, random_seed=1).verdict == "consistent"
    # Noise for fewer records than people have is refuted.
    options = {"adjacency": "add-remove"}
    two, forgot = (
        JointTableMechanism(np.ones((2, 2)), 1.0, contribution=Contribution(m, ("each",)), **options) for m in (2, 1)
    )
    found = dirdp.audit(
        forgot, pair=two.worst_neighbours(), claim=PureDP(epsilon=1), sampler="fast", n=30_000, random_seed=3
    )
    assert found.verdict == "refuted"


def test_releases():
    counts = [[3, 1], [2, 2], [0, 4]]
    release = MECHANISM.release(counts)
    assert release.sum(axis=1).tolist() == [4, 4, 4]
    assert np.array_equal(release, np.floor(release))
    assert np.array_equal(MECHANISM.release(counts, random_seed=5), MECHANISM.release(counts, random_seed=5))
    assert MECHANISM.release(counts, sampler="fast").shape == (3, 2)
    large = ZeroSumJointTableMechanism(np.ones((2, 2)), 2.0**200, contribution=EACH)
    assert np.all(np.abs(large.release([[1, 2], [3, 4]])) > 2.0**150)
    assert large.pure_epsilon == 2.0**-200
    assert large.noise_sd > 2.0**200
    small = JointTableMechanism(np.ones((2, 2)), 2.0**-200, contribution=EACH)
    assert np.array_equal(small.release([[1, 2], [3, 4]]), [[1, 2], [3, 4]])
    kind, stronger = MECHANISM.stronger(2.0)
    assert (kind, stronger.pure_epsilon) == ("the same mechanism with less noise", 2.0)
    assert MECHANISM.summary.startswith("Joint zero-sum noise")
    assert JointNoise((2, 2, 2), 1.0, (1, 1, 1), zero_sum=True) == MECHANISM.noise
    assert JointNoise((2, 2, 2), 1.0, 2, zero_sum=True) != MECHANISM.noise
    # Curves of the same blocks in another order are equal, so tables that share a noise are composed once.
    assert JointNoise([2, 3], 1.0, (2, 1)).curves(2, 1, 1) == JointNoise([3, 2], 1.0, (1, 2)).curves(2, 1, 1)


def test_errors_name_the_argument_and_no_count():
    for arguments, match in (
        (([], 1.0), "cells"),
        (([1, 2], 1.0), "cells"),
        (([2, 2], 0.0), "scale"),
        (([2, 2], 2.0**210), "scale"),
    ):
        with pytest.raises(ArgumentError, match=match):
            JointNoise(*arguments, zero_sum=True)
    with pytest.raises(ArgumentError, match="one for each of 2 blocks, got 3"):
        JointNoise([2, 2], 1.0, (1, 1, 1))
    with pytest.raises(ArgumentError, match="Use JointTableMechanism"):
        ZeroSumJointTableMechanism([1, 1], 1.0, adjacency="add-remove")
    with pytest.raises(ArgumentError, match="larger epsilon"):
        JointNoise([2, 2], 1e7, zero_sum=True).joint_likelihoods(np.zeros(4))
    with pytest.raises(ArgumentError, match="of the first ones, got 3"):
        JointNoise([2, 2], 1.0).split(np.zeros(3))
    with pytest.raises(ArgumentError, match="Reshape it"):
        MECHANISM.joint_rows(np.zeros(6))
    with pytest.raises(DataError) as error:
        MECHANISM.release([7717, 1, 2])
    assert "7717" not in str(error.value)
