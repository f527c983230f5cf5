"""Joint noise: brute force over all neighbours, the tables of variances, likelihoods, and what an audit refutes."""

import itertools
import math

import numpy as np
import pytest
from scipy.optimize import brentq

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism, ZeroSumGeometricMechanism
from pymc_dirdp.mechanisms.joint import JointMechanism, ZeroSumJointMechanism
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.sampling.geometric import uniform_point

EPSILONS, ORDERS = (0.0, 0.2, 0.7), (1.01, 2.0, 9.0)


def lists(cells, zero_sum, reach):
    some = itertools.product(range(-reach, reach + 1), repeat=cells - zero_sum)
    found = [(*z, -sum(z)) if zero_sum else z for z in some]
    return [z for z in found if sum(map(abs, z)) <= reach * (1 + zero_sum)]


def moves(cells, records, mechanism):
    """Every change of one table by at most so many records of one person."""
    contributions = [
        np.bincount(c, minlength=cells)
        for k in range(records + 1)
        for c in itertools.combinations_with_replacement(range(cells), k)
    ]
    if mechanism.adjacency == "add-remove":
        return contributions
    pairs = itertools.product(contributions, contributions)
    return list({tuple(g - h): g - h for g, h in pairs if not mechanism.zero_sum or g.sum() == h.sum()}.values())


CASES = {
    "two tables": (ZeroSumJointMechanism([2, 2], 0.9), 26),
    "three tables": (ZeroSumJointMechanism([2, 2, 2], 0.7), 18),
    "different tables": (ZeroSumJointMechanism([2, 3], 0.6), 20),
    "two records": (ZeroSumJointMechanism([2, 2], 0.6, records=2), 32),
    "two of three cells": (ZeroSumJointMechanism([3, 2], 0.3, records=2), 16),
    "unequal records": (ZeroSumJointMechanism([2, 2], 0.5, records=(1, 2)), 34),
    "added": (JointMechanism([2, 2], 0.5, adjacency="add-remove"), 16),
    "three added": (JointMechanism([1, 2, 1], 0.4, adjacency="add-remove"), 14),
    "two records added": (JointMechanism([2, 1], 0.4, records=2, adjacency="add-remove"), 22),
    "replaced": (JointMechanism([2, 2], 0.4), 14),
    "replaced, one cell each": (JointMechanism([1, 1, 1], 0.4), 14),
    "several replaced, one cell each": (JointMechanism([1, 1], 0.4, records=2), 22),
}


@pytest.mark.parametrize("name", CASES)
def test_loss_by_brute_force_over_all_neighbours(name):
    mechanism, reach = CASES[name]
    tables = [lists(d, mechanism.zero_sum, reach) for d in mechanism.cells]
    z = [np.array(parts) for parts in zip(*itertools.product(*tables), strict=True)]

    def size(noise):
        sizes = [np.abs(part).sum(axis=1) / m for part, m in zip(noise, mechanism.records, strict=True)]
        return np.max(sizes, axis=0) / (1 + mechanism.zero_sum)

    base = size(z)
    mass = np.exp(-base / mechanism.scale)
    mass /= mass.sum()
    changes = [moves(d, m, mechanism) for d, m in zip(mechanism.cells, mechanism.records, strict=True)]
    worst = {"delta": np.zeros(3), "renyi": np.zeros(3)}
    largest = 0.0
    for change in itertools.product(*changes):
        # The other order of two neighbours has the same losses, because the noise has the same distribution mirrored.
        loss = (size([part + step for part, step in zip(z, change, strict=True)]) - base) / mechanism.scale
        largest = max(largest, float(np.abs(loss).max()))
        units, place = np.unique(np.round(loss, 12), return_inverse=True)
        masses = np.bincount(place, weights=mass)
        lost = np.array([masses @ np.maximum(-np.expm1(e - units), 0) for e in EPSILONS])
        diverging = [math.log(masses @ np.exp((order - 1) * units)) / (order - 1) for order in ORDERS]
        worst["delta"] = np.maximum(worst["delta"], lost)
        worst["renyi"] = np.maximum(worst["renyi"], diverging)
    # The pure epsilon is attained and never exceeded.
    assert mechanism.pure_epsilon == pytest.approx(largest, rel=1e-11)
    assert mechanism.pure_epsilon == pytest.approx(mechanism._changes / mechanism.scale, rel=1e-11)
    exact = set(mechanism.records) == {1} and mechanism._changes == 1
    stated = {
        "delta": [mechanism.delta(e) for e in EPSILONS],
        "renyi": [mechanism.renyi(order) for order in ORDERS],
    }
    for curve, bounds in stated.items():
        for bound, truth in zip(bounds, worst[curve].tolist(), strict=True):
            assert truth * (1 - 1e-9) <= bound <= (truth * (1 + 1e-8) if exact else math.inf)
    # Randomised response is never below.
    assert mechanism.delta(0.0) <= math.tanh(mechanism.pure_epsilon / 2) * (1 + 1e-12)


# JOINT, section A: the variance of a cell at epsilon 1.
VARIANCES = {
    2: {2: 3.903, 4: 9.918, 6: 18.58, 10: 43.92, 16: 101.9, 32: 373.9},
    4: {2: 11.63, 4: 38.11, 6: 79.70, 10: 208.2},
}


@pytest.mark.parametrize("cells", VARIANCES)
def test_variances_at_epsilon_1(cells):
    for number, variance in VARIANCES[cells].items():
        mechanism = ZeroSumJointMechanism.for_guarantee(PureDP(epsilon=1), cells=[cells] * number)
        assert mechanism.scale == pytest.approx(1, rel=1e-9)
        assert mechanism.noise_sd**2 == pytest.approx(variance, rel=3e-4)


# The same section, independent over joint noise, for small epsilon.
RATIOS = {
    2: {2: 2.0, 3: 2.7, 5: 3.57, 10: 4.55, 20: 5.19},
    3: {2: 1.60, 3: 1.93, 5: 2.27, 10: 2.60, 20: 2.79},
    6: {2: 1.27, 3: 1.39, 5: 1.50, 10: 1.58, 20: 1.63},
    20: {2: 1.08, 3: 1.10, 5: 1.13, 10: 1.15, 20: 1.15},
}


@pytest.mark.parametrize("cells", RATIOS)
def test_variances_against_independent_noise(cells):
    for number, ratio in RATIOS[cells].items():
        joint = ZeroSumJointMechanism([cells] * number, 100.0).noise_sd
        # Each of K tables has a K-th of the budget, and loses two over its scale.
        apart = ZeroSumGeometricMechanism(np.ones(cells), 200.0 * number).noise_sd
        assert (apart / joint) ** 2 == pytest.approx(ratio, abs=6e-3)


@pytest.mark.parametrize(("cells", "number", "ratio"), [(2, 5, 2.27), (2, 10, 2.60), (4, 5, 1.62), (10, 10, 1.28)])
def test_variances_with_private_totals(cells, number, ratio):
    joint = JointMechanism([cells] * number, 100.0, adjacency="add-remove").noise_sd
    apart = GeometricMechanism(np.ones(2), 100.0 * number).noise_sd
    assert (apart / joint) ** 2 == pytest.approx(ratio, abs=6e-3)


def test_one_table_is_zero_sum_geometric_noise():
    one, known = ZeroSumJointMechanism([4], 1.5), ZeroSumGeometricMechanism(np.ones(4), 3.0)
    assert one.noise_sd == pytest.approx(known.noise_sd, rel=1e-10)
    assert one.free_variance == pytest.approx(known.free_variance, rel=1e-10)
    z = np.array([[3, -1, -2, 0], [1, 1, 0, -2]])
    np.testing.assert_allclose(one.log_likelihood(z, np.zeros(4)), known.log_likelihood(z, np.zeros(4)), atol=1e-10)
    for epsilon in EPSILONS:
        assert one.delta(epsilon) == pytest.approx(known.delta(epsilon), rel=1e-8)
    single = JointMechanism([3], 2.0, adjacency="add-remove")
    assert single.noise_sd == pytest.approx(GeometricMechanism(np.ones(3), 2.0).noise_sd, rel=1e-10)


# So many tables are the fewest for which discrete Gaussian noise has less variance at (1, 1e-6), given the known sums.
CROSSINGS = {2: 51, 3: 20, 4: 14, 6: 9, 10: 7}


@pytest.mark.parametrize("cells", CROSSINGS)
def test_where_gaussian_noise_takes_over(cells):
    target, first = ApproxDP(epsilon=1, delta=1e-6), CROSSINGS[cells]

    def joint_wins(number):
        shape, adds = (number, cells), Contribution(1, ("each",))
        gaussian = DiscreteGaussianMechanism.for_guarantee(target, prior=np.ones(shape), contribution=adds)
        joint = ZeroSumJointMechanism.for_guarantee(target, cells=[cells] * number)
        return joint.free_variance < gaussian.noise_sd**2

    assert joint_wins(first - 1)
    assert not joint_wins(first)


@pytest.mark.parametrize(("cells", "number", "groups"), [(2, 24, 2), (2, 48, 3), (4, 12, 2), (2, 96, 24)])
def test_no_division_into_groups_is_better_than_one_noise_and_gaussian_noise(cells, number, groups):
    """Joint noise of each group, composed: the least scale that keeps (1, 1e-6) has more variance than the better."""
    target = ApproxDP(epsilon=1, delta=1e-6)
    whole = ZeroSumJointMechanism.for_guarantee(target, cells=[cells] * number)
    shape, adds = np.ones((number, cells)), Contribution(1, ("each",))
    gaussian = DiscreteGaussianMechanism.for_guarantee(target, prior=shape, contribution=adds)

    def divided(scale):
        return ZeroSumJointMechanism([cells] * (number // groups), scale)

    best = min(whole.free_variance, gaussian.noise_sd**2)
    # At the scale at which its variance would be that of the best, the groups lose more than the guarantee allows.
    scale = brentq(lambda scale: math.log(divided(scale).free_variance / best), 0.1, 100)
    assert not Composition(((divided(scale), groups),)).satisfies(target)
    assert Composition(((divided(2 * scale), groups),)).satisfies(target)


@pytest.mark.parametrize("name", ["different tables", "unequal records", "added", "two records added"])
def test_the_likelihood_is_a_mixture_over_the_radius(name):
    mechanism, reach = CASES[name]
    tables = [np.array(lists(d, mechanism.zero_sum, reach)) for d in mechanism.cells]
    z = [np.array(parts) for parts in zip(*itertools.product(*tables), strict=True)]
    whole = np.concatenate(z, axis=1).astype(float)
    output = np.arange(whole.shape[1]) + 5.0
    found = mechanism.log_likelihood(output, output - whole)
    assert np.exp(found).sum() == pytest.approx(1, rel=1e-6)
    seen = mechanism.joint_likelihoods(output)
    split = mechanism.split(output - whole)
    np.testing.assert_allclose(seen.log_likelihood(split), found, atol=1e-10)
    # The definition, radius by radius, for a few.
    for i in range(0, len(whole), 977):
        possible = np.all(
            [block.norm(c[i]) <= block.limits for block, c in zip(seen.blocks, split, strict=True)], axis=0
        )
        assert np.logaddexp.reduce(seen.log_weights[possible]) == pytest.approx(found[i], abs=1e-10)
    squares = [np.exp(found) @ part[:, 0] ** 2 for part in z]
    np.testing.assert_allclose(mechanism.noise_sds, np.sqrt(squares), rtol=1e-6)
    if mechanism.zero_sum:
        assert mechanism.log_likelihood(output, output + np.eye(len(output))[0]) == -math.inf


@pytest.mark.parametrize(
    "guarantee",
    [
        PureDP(epsilon=0.7),
        ApproxDP(epsilon=1, delta=1e-2),
        RenyiDP(order=5, epsilon=0.1),
        ZeroCDP(rho=0.2),
        TruncatedCDP(rho=0.1, omega=20),
    ],
)
@pytest.mark.parametrize("facts", [{"cells": (2, 3, 2)}, {"cells": (2, 2), "records": (2, 2)}, {"cells": (60, 2)}])
def test_calibration(guarantee, facts):
    for kind, adjacency in (
        (ZeroSumJointMechanism, "replace-one"),
        (JointMechanism, "replace-one"),
        (JointMechanism, "add-remove"),
    ):
        found = kind.for_guarantee(guarantee, **facts, adjacency=adjacency)
        assert found.satisfies(guarantee)
        assert not kind(scale=found.scale * (1 - 1e-8), **facts, adjacency=adjacency).satisfies(guarantee)


MECHANISM = ZeroSumJointMechanism([2, 2, 2], 1.0)


def test_an_audit_finds_no_fault():
    assert dirdp.audit(MECHANISM, n=3000, random_seed=1).verdict == "consistent"
    added = JointMechanism([2, 1], 0.5, records=2, adjacency="add-remove")
    assert dirdp.audit(added, sampler="fast", n=30_000, random_seed=1).verdict == "consistent"


class Mutant:
    """Joint noise with a radius of its own making."""

    def __init__(self, mechanism, *, most=None, released=False):
        self.mechanism, self.most, self.released = mechanism, most, released
        self.rng = np.random.default_rng(8)

    def __call__(self, counts):
        balls = self.mechanism._balls
        radii, logs, _ = balls.listed
        share = np.exp(logs) * (True if self.most is None else radii <= self.most)
        radius = int(self.rng.choice(radii, p=share / share.sum()))
        noise = [uniform_point(ball, radius, lambda most: int(self.rng.integers(most))) for ball in balls.balls]
        noisy = counts + np.concatenate(noise)
        return np.append(noisy, radius) if self.released else noisy


ADDED = JointMechanism([2, 2], 1.0, adjacency="add-remove")


@pytest.mark.parametrize("mechanism", [MECHANISM, ADDED], ids=["public", "private"])
@pytest.mark.parametrize(
    ("mutation", "verdict"), [({}, "consistent"), ({"most": 3}, "refuted"), ({"released": True}, "refuted")]
)
def test_an_audit_refutes_a_radius_that_is_cut_or_released(mechanism, mutation, verdict):
    mutant = Mutant(mechanism, **mutation)
    result = dirdp.audit(mutant, pair=mechanism.worst_pair(), claim=PureDP(epsilon=1), n=6000, random_seed=2)
    assert result.verdict == verdict


@pytest.mark.parametrize(
    ("kind", "adjacency"), [(ZeroSumJointMechanism, "replace-one"), (JointMechanism, "add-remove")]
)
def test_an_audit_refutes_noise_for_fewer_records_than_people_have(kind, adjacency):
    two = kind([2, 2], 1.0, records=2, adjacency=adjacency)
    forgot = kind([2, 2], 1.0, adjacency=adjacency)
    result = dirdp.audit(
        forgot, pair=two.worst_pair(), claim=PureDP(epsilon=1), sampler="fast", n=30_000, random_seed=3
    )
    assert result.verdict == "refuted"


def test_releases():
    counts = [3, 1, 2, 2, 0, 4]
    release = MECHANISM.release(counts)
    assert [part.sum() for part in MECHANISM.split(release)] == [4, 4, 4]
    assert np.array_equal(release, np.floor(release))
    assert np.array_equal(MECHANISM.release(counts, random_seed=5), MECHANISM.release(counts, random_seed=5))
    assert MECHANISM.release(counts, sampler="fast").shape == (6,)
    large = ZeroSumJointMechanism([2, 2], 2.0**200)
    assert np.all(np.abs(large.release([1, 2, 3, 4])) > 2.0**150)
    assert large.pure_epsilon == 2.0**-200
    assert large.noise_sd > 2.0**200
    assert np.array_equal(JointMechanism([2, 2], 2.0**-200).release([1, 2, 3, 4]), [1, 2, 3, 4])
    assert MECHANISM == ZeroSumJointMechanism((2, 2, 2), 1.0) != ZeroSumJointMechanism((2, 2, 2), 1.0, records=2)
    kind, stronger = MECHANISM.stronger(2.0)
    assert (kind, stronger.pure_epsilon) == ("the same mechanism with less noise", 2.0)
    assert ZeroSumJointMechanism([2, 3], 1.0).noise_sd is None
    assert "2 tables with joint zero-sum noise" in ZeroSumJointMechanism([2, 3], 1.0).in_short


def test_errors_name_the_argument_and_no_count():
    for arguments, match in (
        (([], 1.0), "cells"),
        (([1, 2], 1.0), "cells"),
        (([2, 2], 0.0), "scale"),
        (([2, 2], 2.0**210), "scale"),
    ):
        with pytest.raises(ArgumentError, match=match):
            ZeroSumJointMechanism(*arguments)
    with pytest.raises(ArgumentError, match="one for each of 2 tables, got 3"):
        JointMechanism([2, 2], 1.0, records=(1, 1, 1))
    with pytest.raises(ArgumentError, match="Use JointMechanism"):
        ZeroSumJointMechanism([2, 2], 1.0, adjacency="add-remove")
    with pytest.raises(ArgumentError, match="larger epsilon"):
        ZeroSumJointMechanism([2, 2], 1e7).joint_likelihoods(np.zeros(4))
    with pytest.raises(DataError) as error:
        MECHANISM.release([7717, 1, 2])
    assert "7717" not in str(error.value)
