"""Joint noise: brute force over all neighbours, the tables of variances, likelihoods, and what an audit refutes."""

import itertools
import math

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.geometric import GeometricMechanism, ZeroSumGeometricMechanism
from pymc_dirdp.mechanisms.joint import JointNoise, JointTableMechanism, ZeroSumJointTableMechanism
from pymc_dirdp.privacy.guarantees import PureDP
from pymc_dirdp.privacy.people import Contribution
from tests.mechanisms.test_contract import delta_of, renyi_of

EPSILONS, EACH = (0.0, 0.2, 0.7), Contribution(1, ("each",))

# With how far noise is listed, and whether records of a person are replaced (2) or added.
CASES = {
    "different tables": (JointNoise([2, 3], 0.5, zero_sum=True), 14, 1),
    "two of three cells": (JointNoise([3, 2], 0.3, 2, zero_sum=True), 16, 1),
    "unequal records": (JointNoise([2, 2], 0.5, (1, 2), zero_sum=True), 34, 1),
    "added": (JointNoise([2, 2], 0.5), 16, 1),
    "three added": (JointNoise([1, 2, 1], 0.4), 14, 1),
    "two records replaced": (JointNoise([2, 1], 0.3, 2), 18, 2),
}


def listed(name):
    """All noise that is not too unlikely: the noise of each block in one place of the list."""
    noise, reach, _ = CASES[name]
    tables = []
    for cells in noise.cells:
        some = itertools.product(range(-reach, reach + 1), repeat=cells - noise.zero_sum)
        some = ((*z, -sum(z)) if noise.zero_sum else z for z in some)
        tables.append([z for z in some if sum(map(abs, z)) <= reach * (1 + noise.zero_sum)])
    return noise, [np.array(parts) for parts in zip(*itertools.product(*tables), strict=True)]


def changes(cells, records, noise, times):
    """Every change of one table by at most so many records of one person."""
    given = [
        np.bincount(c, minlength=cells)
        for k in range(records + 1)
        for c in itertools.combinations_with_replacement(range(cells), k)
    ]
    if times == 1 and not noise.zero_sum:
        return given
    pairs = itertools.product(given, given)
    return list({tuple(g - h): g - h for g, h in pairs if not noise.zero_sum or g.sum() == h.sum()}.values())


@pytest.mark.parametrize("name", CASES)
def test_loss_by_brute_force_over_all_neighbours(name):
    (noise, z), times = listed(name), CASES[name][2]

    def size(parts):
        sizes = [np.abs(part).sum(axis=1) / m for part, m in zip(parts, noise.records, strict=True)]
        return np.max(sizes, axis=0) / (1 + noise.zero_sum)

    base, worst = size(z), 0.0
    mass = np.exp(-base / noise.scale)
    mass /= mass.sum()
    every = [changes(d, m, noise, times) for d, m in zip(noise.cells, noise.records, strict=True)]
    for change in itertools.product(*every):
        # The other order of two neighbours has the same losses, because the noise has the same distribution mirrored.
        loss = (size([part + step for part, step in zip(z, change, strict=True)]) - base) / noise.scale
        units, place = np.unique(np.round(loss, 12), return_inverse=True)
        losses = np.bincount(place, weights=mass), units
        deltas = [delta_of(losses, epsilon) for epsilon in EPSILONS]
        found = [np.abs(units).max(), *deltas, *(renyi_of(losses, order) for order in (1.01, 2.0, 9.0))]
        worst = np.maximum(worst, found)
    curves = noise.curves(len(noise.cells), 1, times)
    stated = np.array([curves.pure_epsilon, *map(curves.delta, EPSILONS), *map(curves.renyi, (1.01, 2.0, 9.0))])
    # The pure epsilon is attained and never exceeded.
    assert stated[0] == pytest.approx(worst[0], rel=1e-11)
    assert stated[0] == pytest.approx(times / noise.scale, rel=1e-11)
    assert np.all(worst * (1 - 1e-9) <= stated)
    if set(noise.records) == {1} and times == 1:
        assert np.all(stated <= worst * (1 + 1e-8))
    # Randomised response is never below.
    assert curves.delta(0.0) <= math.tanh(curves.pure_epsilon / 2) * (1 + 1e-12)


# JOINT, section A, by numbers of tables and their cells: the variance of a cell at epsilon 1, and that of independent
# noise over it for small epsilon.
VARIANCES = {(2, 2): 3.903, (10, 2): 43.92, (32, 2): 373.9, (10, 4): 208.2}
RATIOS = {(2, 2): 2.0, (20, 2): 5.19, (20, 6): 1.63}


def test_variances_of_the_figures():
    for (number, cells), variance in VARIANCES.items():
        prior = np.ones((number, cells))
        mechanism = ZeroSumJointTableMechanism.for_guarantee(PureDP(epsilon=1), prior=prior, contribution=EACH)
        assert mechanism.scale == pytest.approx(1, rel=1e-9)
        assert mechanism.noise_sd**2 == pytest.approx(variance, rel=3e-4)
    for (number, cells), ratio in RATIOS.items():
        # Each of K tables has a K-th of the budget, and loses two over its scale.
        apart = ZeroSumGeometricMechanism(np.ones(cells), 200.0 * number).noise_sd
        assert (apart / JointNoise([cells] * number, 100.0, zero_sum=True).sd) ** 2 == pytest.approx(ratio, abs=6e-3)


def test_one_table_is_zero_sum_geometric_noise():
    one, known = ZeroSumJointTableMechanism(np.ones(4), 1.5), ZeroSumGeometricMechanism(np.ones(4), 3.0)
    assert one.noise_sd == pytest.approx(known.noise_sd, rel=1e-10)
    for d in (2, 4):
        free = ZeroSumGeometricMechanism(np.ones(d), 3.0).noise.free_variance
        assert ZeroSumJointTableMechanism(np.ones(d), 1.5).noise.free_variance == pytest.approx(free, rel=1e-10)
    z = np.array([[3, -1, -2, 0], [1, 1, 0, -2]])
    np.testing.assert_allclose(one.log_likelihood(z, np.zeros(4)), known.log_likelihood(z, np.zeros(4)), atol=1e-10)
    for epsilon in EPSILONS:
        assert one.delta(epsilon) == pytest.approx(known.delta(epsilon), rel=1e-8)
    single = JointNoise([3], 2.0)
    assert single.sd == pytest.approx(GeometricMechanism(np.ones(3), 2.0).noise_sd, rel=1e-10)


@pytest.mark.parametrize("name", ["different tables", "unequal records", "added"])
def test_the_likelihood_is_a_mixture_over_the_radius(name):
    noise, z = listed(name)
    whole = np.concatenate(z, axis=1).astype(float)
    output = np.arange(whole.shape[1]) + 5.0
    found = noise.log_probability(whole)
    assert np.exp(found).sum() == pytest.approx(1, rel=1e-5)
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


def test_an_audit_refutes_noise_for_fewer_records_than_people_have():
    two, forgot = (
        JointTableMechanism(np.ones((2, 2)), 1.0, contribution=Contribution(m, ("each",)), adjacency="add-remove")
        for m in (2, 1)
    )
    for mechanism, verdict in ((two, "consistent"), (forgot, "refuted")):
        found = dirdp.audit(
            mechanism, pair=two.worst_neighbours(), claim=PureDP(epsilon=1), sampler="fast", n=20_000, random_seed=3
        )
        assert found.verdict == verdict


def test_releases_of_huge_and_tiny_noise():
    counts = [[3, 1], [2, 2], [0, 4]]
    assert MECHANISM.release(counts).sum(axis=1).tolist() == [4, 4, 4]
    assert np.array_equal(MECHANISM.release(counts, random_seed=5), MECHANISM.release(counts, random_seed=5))
    large = ZeroSumJointTableMechanism(np.ones((2, 2)), 2.0**200, contribution=EACH)
    assert np.all(np.abs(large.release([[1, 2], [3, 4]])) > 2.0**150)
    assert large.pure_epsilon == 2.0**-200
    assert large.noise_sd > 2.0**200
    small = JointTableMechanism(np.ones((2, 2)), 2.0**-200, contribution=EACH)
    assert np.array_equal(small.release([[1, 2], [3, 4]]), [[1, 2], [3, 4]])
    kind, stronger = MECHANISM.stronger(2.0)
    assert (kind, stronger.pure_epsilon) == ("the same mechanism with less noise", 2.0)
    assert JointNoise((2, 2, 2), 1.0, (1, 1, 1), zero_sum=True) == MECHANISM.noise
    assert JointNoise((2, 2, 2), 1.0, 2, zero_sum=True) != MECHANISM.noise
    # Curves of the same blocks in another order are equal, so tables that share a noise are composed once.
    assert JointNoise([2, 3], 1.0, (2, 1)).curves(2, 1, 1) == JointNoise([3, 2], 1.0, (1, 2)).curves(2, 1, 1)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: JointNoise([], 1.0, zero_sum=True), "cells"),
        (lambda: JointNoise([1, 2], 1.0, zero_sum=True), "cells"),
        (lambda: JointNoise([2, 2], 0.0), "scale"),
        (lambda: JointNoise([2, 2], 2.0**210), "scale"),
        (lambda: JointNoise([2, 2], 1.0, (1, 1, 1)), "one for each of 2 blocks, got 3"),
        (lambda: ZeroSumJointTableMechanism([1, 1], 1.0, adjacency="add-remove"), "private.*Use JointTableMechanism"),
        (lambda: JointNoise([2, 2], 1e7, zero_sum=True).joint_likelihoods(np.zeros(4)), "larger epsilon"),
        (lambda: JointNoise([2, 2], 1.0).split(np.zeros(3)), "of the first ones, got 3"),
        (lambda: MECHANISM.joint_rows(np.zeros(6)), "Reshape it"),
        (lambda: MECHANISM.noise.log_pmf(np.zeros((3, 2))), "joint_rows"),
        (lambda: MECHANISM.row_likelihoods(np.zeros((3, 2))), "joint_rows"),
        (lambda: MECHANISM.output_distributions(np.zeros((3, 2)), np.zeros((3, 2))), "Use audit"),
        *(
            (lambda adds=adds: ZeroSumJointTableMechanism(np.ones((2, 3, 2)), 1.0, contribution=adds), "geometric")
            for adds in (Contribution(1, ("own", "own")), Contribution(1, ("each", "any")))
        ),
        # Found by reading the text of a plan: eleven seconds and 200 MB for a number of seven digits.
        (lambda: ZeroSumJointTableMechanism([1, 1], 1.0, noise_shared_with=[(2, 1, 10**5 + 1)]), "at most 100000"),
    ],
    ids=range(15),
)
def test_what_is_refused(call, match):
    with pytest.raises(ArgumentError, match=match):
        call()
    assert MECHANISM.cell_noise is None


@pytest.mark.parametrize("scale", [2.0**-200, 1e-3, 0.02, 0.03, 1.0, 1e10])
def test_noise_that_is_as_large_is_found_where_all_noise_is_0(scale):
    """Noise of a small scale has a deviation of 0 in doubles, and a loss of privacy that is none the less finite."""
    for joint in (JointTableMechanism, ZeroSumJointTableMechanism):
        table = joint(np.ones((1, 2)), scale, noise_shared_with=[(2, 1, 1)])
        assert table.equivalent_alone.noise_sd <= table.noise_sd
        assert table.noise_sd == 0 or table.equivalent_alone.noise_sd == pytest.approx(table.noise_sd)
