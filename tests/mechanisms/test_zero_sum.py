"""Noise that adds up to 0: brute force over all moves, moments, the linear programme, and releases."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from least_error import least_error
from scipy.special import gammaln, xlogy

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.result import check_curve
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.rows import RowPosterior
from pymc_dirdp.mechanisms.geometric import Geometric, GeometricMechanism, ZeroSumGeometricMechanism
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP
from pymc_dirdp.privacy.people import Contribution

EPSILONS, ORDERS = (0.0, 0.3, 0.9), (1.01, 2.0, 9.0)
SURVEY = Contribution(1, ("each",))


def listed(cells, reach):
    """All integers within reach that add up to 0."""
    some = itertools.product(range(-reach, reach + 1), repeat=cells - 1)
    return np.array([(*z, -sum(z)) for z in some])


def distribution_of_loss(z, scale, move):
    mass = np.exp(-np.abs(z).sum(axis=1) / scale)
    return mass / mass.sum(), (np.abs(z + move).sum(axis=1) - np.abs(z).sum(axis=1)) / scale


def moves(cells, records):
    """Every change of at most so many records that keeps their number, up to permutation."""
    found = set()
    for k in range(1, records + 1):
        tables = [np.bincount(c, minlength=cells) for c in itertools.combinations_with_replacement(range(cells), k)]
        found |= {tuple(sorted((g - h).tolist())) for g, h in itertools.product(tables, tables)}
    return [np.array(move) for move in found if any(move)]


@pytest.mark.parametrize(
    ("cells", "scale", "records", "reach"),
    [
        (2, 1.5, 1, 60),
        (3, 1.3, 1, 30),
        (4, 0.8, 1, 14),
        (2, 3.0, 3, 80),
        (3, 3.0, 2, 55),
        (3, 3.0, 3, 55),
        (4, 1.2, 2, 16),
    ],
)
def test_curves_by_brute_force_over_all_moves(cells, scale, records, reach):
    mechanism, z = ZeroSumGeometricMechanism(np.ones(cells), scale, contribution=records), listed(cells, reach)
    deltas, divergences, most = np.zeros((3, 0)), np.zeros((3, 0)), 0.0
    for move in moves(cells, records):
        mass, loss = distribution_of_loss(z, mechanism.scale, move)
        lost = [math.fsum(mass * np.maximum(-np.expm1(e - loss), 0)) for e in EPSILONS]
        diverging = [math.log(math.fsum(mass * np.exp((o - 1) * loss))) / (o - 1) for o in ORDERS]
        deltas, divergences = np.column_stack([deltas, lost]), np.column_stack([divergences, diverging])
        most = max(most, loss.max())
        # The distributions that audits look at are the same.
        distributions = mechanism.output_distributions(
            np.maximum(move, 0).astype(float), np.maximum(-move, 0).astype(float)
        )
        np.testing.assert_allclose([distributions.delta(e) for e in EPSILONS], lost, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose([distributions.renyi(o) for o in ORDERS], diverging, rtol=1e-7)
    exact = records == 1 or cells == 2
    slack = 1e-9 if exact else 0.13
    for bounds, reached in (
        ([mechanism.delta(e) for e in EPSILONS], deltas.max(axis=1)),
        ([mechanism.renyi(o) for o in ORDERS], divergences.max(axis=1)),
    ):
        for bound, truth in zip(bounds, reached.tolist(), strict=True):
            assert truth * (1 - 1e-9) <= bound <= truth * (1 + slack) + 1e-13
    assert mechanism.pure_epsilon == pytest.approx(most, rel=1e-12)
    # All records from one cell to another was the worst in every case; no proof is known, and none is needed.
    together = distribution_of_loss(z, mechanism.scale, [records, -records, *[0] * (cells - 2)])
    lost = [math.fsum(together[0] * np.maximum(-np.expm1(e - together[1]), 0)) for e in EPSILONS]
    np.testing.assert_allclose(lost, deltas.max(axis=1), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("reach", [1, 7])
def test_a_curve_of_too_little_loss_would_be_found_out(reach):
    """One that forgets the other cell: as if the noise of the cells were independent, for a table of two."""
    z, scale = listed(2, 60), 1.5
    mass, loss = distribution_of_loss(z, scale, [1, -1])
    independent = GeometricMechanism([1.0, 1.0], scale)
    assert math.fsum(mass * np.maximum(-np.expm1(0.1 * reach - loss), 0)) > 1.2 * independent.delta(0.1 * reach)


# LIMIT, section 6: the variance of a cell over that of independent noise at the same pure epsilon.
RATIOS = {
    1: {2: 0.235, 3: 0.404, 4: 0.514, 6: 0.647, 10: 0.772, 50: 0.950},
    3: {2: 0.149, 3: 0.286, 4: 0.400, 6: 0.559, 10: 0.717, 50: 0.938},
}


@pytest.mark.parametrize("epsilon", RATIOS)
def test_variance_over_that_of_independent_noise(epsilon):
    for cells, ratio in RATIOS[epsilon].items():
        ours, theirs = (
            kind.for_guarantee(PureDP(epsilon=epsilon), prior=np.ones(cells))
            for kind in (ZeroSumGeometricMechanism, GeometricMechanism)
        )
        assert ours.scale == theirs.scale == pytest.approx(2 / epsilon, rel=1e-9)
        assert (ours.noise_sd / theirs.noise_sd) ** 2 == pytest.approx(ratio, abs=6e-4)


@pytest.mark.parametrize(("cells", "scale", "reach"), [(2, 0.1, 20), (2, 4.0, 150), (3, 1.3, 40), (4, 0.6, 14)])
def test_the_likelihood_is_a_distribution_with_the_stated_deviation(cells, scale, reach):
    mechanism, z = ZeroSumGeometricMechanism(np.ones(cells), scale), listed(cells, reach)
    distribution = np.exp(mechanism.log_likelihood(z + 3.0, np.full(cells, 3.0)))
    assert distribution.sum() == pytest.approx(1, rel=1e-9)
    assert mechanism.noise_sd == pytest.approx(math.sqrt(distribution @ z[:, 0] ** 2), rel=1e-8)
    assert mechanism.log_likelihood(z[0] + np.eye(cells)[0], np.zeros(cells)) == -math.inf


def expected_kl(mechanism, n, means):
    """Of the frequencies from the posterior mean of a release, under a flat prior of two shares."""
    x, total = np.arange(n + 1), 0.0
    for first, mean in means.items():
        weight = np.exp([mechanism.log_likelihood([first, n - first], [k, n - k]) for k in x]) / (n + 1)
        y = np.array([mean, n - mean]) / n
        total += sum(w * divergence(k / n, y[0]) for w, k in zip(weight, x, strict=True))
    return total


def divergence(p, q):
    return sum(a * math.log(a / b) for a, b in ((p, q), (1 - p, 1 - q)) if a > 0)


# The optima as they were computed before, from outputs on a grid.
OPTIMA = {10: 0.048812, 20: 0.016094, 40: 0.004930}


@pytest.mark.parametrize("n", OPTIMA)
def test_two_cells_with_estimate_are_the_optimum_of_all_mechanisms(n):
    """No mechanism whatever errs less."""
    mechanism = ZeroSumGeometricMechanism.for_guarantee(PureDP(epsilon=1.0), prior=[1.0, 1.0])
    means = {}
    for first in range(-25, n + 26):
        (row,) = mechanism.row_likelihoods(np.array([first, n - first], dtype=float))
        distribution = RowPosterior(alpha=[1.0, 1.0], total=n, log_likelihood=row.cell_loglik)
        means[first] = distribution.means[0]
    reached = expected_kl(mechanism, n, means)
    assert reached == pytest.approx(OPTIMA[n], abs=6e-7)
    assert reached == pytest.approx(least_error(1.0, 0.0, [1, 1], n), rel=1e-5)


# The gain in expected divergence over independent noise, for a flat prior and the posterior mean of every cell given
# its own noisy count. From 200,000 tables, within 2 %.
GAINS = {(3, 200, 1): 1.84, (3, 200, 3): 2.54, (6, 1283, 1): 1.385, (6, 1283, 3): 1.56}


def distribution_of_one_cell(mechanism, reach):
    """Logarithm of the probability of noise in one cell, for -reach, ..., reach, by convolution."""
    k = np.arange(-reach, reach + 1)
    if isinstance(mechanism, GeometricMechanism):
        return mechanism.noise.log_pmf(k)
    one, rest = np.exp(-np.abs(k) / mechanism.scale), np.ones(1)
    for _ in range(mechanism.prior.size - 1):
        rest = np.convolve(rest, one)
        rest /= rest.max()
    distribution = one * rest[len(rest) // 2 - reach :][: 2 * reach + 1]
    return np.log(np.maximum(distribution / distribution.sum(), 1e-300))


@pytest.mark.parametrize(("cells", "n", "epsilon"), GAINS)
def test_gain_in_expected_divergence(cells, n, epsilon):
    rng, k = np.random.default_rng(3), np.arange(n + 1)
    data = rng.multinomial(n, rng.dirichlet(np.ones(cells), size=20_000)).astype(float)
    p, prior = data / n, gammaln(n - k + cells - 1) - gammaln(n - k + 1)
    errors = []
    for kind in (GeometricMechanism, ZeroSumGeometricMechanism):
        mechanism = kind.for_guarantee(PureDP(epsilon=epsilon), prior=np.ones(cells))
        noisy = data + mechanism.noisy_marginals[0].noise_for(data.shape[:-1], rng)
        seen, where = np.unique(noisy, return_inverse=True)
        logs = prior + distribution_of_one_cell(mechanism, n + 400)[(seen[:, None] - k).astype(int) + n + 400]
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        means = (weights @ k / weights.sum(axis=1))[where].reshape(noisy.shape)
        q = means / means.sum(axis=1, keepdims=True)
        errors.append(float(np.mean(np.sum(xlogy(p, p) - xlogy(p, q), axis=1))))
    assert errors[0] / errors[1] == pytest.approx(GAINS[cells, n, epsilon], rel=0.12)


TARGETS = [
    ApproxDP(epsilon=1, delta=1e-6),
    ApproxDP(epsilon=0, delta=1e-3),
    RenyiDP(order=8, epsilon=0.5),
    RenyiDP(order=1, epsilon=1e-7),
    TruncatedCDP(rho=0.1, omega=5),
    ZeroCDP(rho=0.02),
    PureDP(epsilon=0.7),
]
UNITS = [((4,), 1), ((2,), 5), ((3, 2), 2), ((5, 3), SURVEY), ((3, 4), Contribution(1, ("own",))), ((1000,), 1)]


@pytest.mark.parametrize("target", TARGETS, ids=str)
@pytest.mark.parametrize(("shape", "unit"), UNITS, ids=str)
def test_calibration_is_safe_tight_and_less_noisy_than_independent_noise(target, shape, unit):
    mechanism = ZeroSumGeometricMechanism.for_guarantee(target, prior=np.ones(shape), contribution=unit)
    assert mechanism.satisfies(target)
    smaller = ZeroSumGeometricMechanism(np.ones(shape), mechanism.scale * (1 - 1e-8), contribution=unit)
    assert not smaller.satisfies(target)
    independent = GeometricMechanism.for_guarantee(target, prior=np.ones(shape), contribution=unit)
    assert mechanism.noise_sd < independent.noise_sd


@pytest.mark.parametrize("sampler", ["exact", "fast"])
@pytest.mark.parametrize(
    ("shape", "unit", "summed"),
    [
        ((4,), 1, (0,)),
        ((3, 2), 2, (0, 1)),
        ((5, 3), SURVEY, (1,)),
        ((4, 3, 2), Contribution(1, ("any", "each")), (0, 2)),
        ((4, 3, 2), Contribution(1, ("own", "each")), (2,)),
        ((4, 3, 2), Contribution(1, ("own", "any")), (1, 2)),
    ],
    ids=str,
)
def test_the_noise_of_each_block_adds_up_to_0(shape, unit, summed, sampler):
    mechanism = ZeroSumGeometricMechanism(np.ones(shape), 3.0, contribution=unit)
    counts = np.arange(math.prod(shape)).reshape(shape)
    noisy = mechanism.release(counts, sampler=sampler, random_seed=5)
    many = mechanism.releases(counts.astype(float), 40, sampler=sampler, random_seed=6)
    blocks = math.prod(shape) // math.prod(shape[axis] for axis in summed)
    np.testing.assert_array_equal(noisy.sum(axis=summed), counts.sum(axis=summed))
    np.testing.assert_array_equal(many.sum(axis=tuple(axis + 1 for axis in summed)), [counts.sum(axis=summed)] * 40)
    assert np.all(np.any(many != counts, axis=0))
    assert mechanism.pure_epsilon == pytest.approx(2 * Contribution.of(unit).total(shape) / 3)
    totals = mechanism.published_totals(noisy)
    assert len(totals) == blocks
    assert sorted(total for _, total in totals) == sorted(np.ravel(counts.sum(axis=summed)).tolist())
    for rows, total in totals if summed == (len(shape) - 1,) or blocks == 1 else []:
        assert counts.reshape(-1, shape[-1])[rows].sum() == total
    assert mechanism.log_likelihood(noisy, counts) > -math.inf
    assert mechanism.log_likelihood(noisy, counts[..., ::-1] * 2) == -math.inf
    drawn = many - counts
    assert drawn.std() == pytest.approx(mechanism.noise_sd, rel=0.5)


def test_the_rows_of_a_block_are_named():
    mechanism = ZeroSumGeometricMechanism(np.ones((2, 3, 2)), 3.0, contribution=Contribution(1, ("any", "each")))
    table = np.arange(12.0).reshape(2, 3, 2)
    for rows, total in mechanism.published_totals(table):
        assert table.reshape(6, 2)[rows].sum() == total
    assert [rows.tolist() for rows, _ in mechanism.published_totals(table)] == [[0, 3], [1, 4], [2, 5]]


def test_many_blocks_are_a_composition():
    target, unit = ApproxDP(epsilon=1, delta=1e-6), Contribution(1, ("each",))
    many = ZeroSumGeometricMechanism.for_guarantee(target, prior=np.ones((2500, 2)), contribution=unit)
    few = ZeroSumGeometricMechanism.for_guarantee(target, prior=np.ones((2000, 2)), contribution=unit)
    assert isinstance(many._curves, Composition)
    assert many.scale / few.scale == pytest.approx(math.sqrt(2500 / 2000), rel=2e-3)
    assert Fraction(many.pure_epsilon) >= 5000 / Fraction(many.scale)


def test_small_and_large_tables():
    assert ZeroSumGeometricMechanism([1.0, 1.0], 2.0).release([0, 0]).sum() == 0
    one = ZeroSumGeometricMechanism([1.0, 1.0], 2.0).release([0, 1])
    assert one.sum() == 1
    large = ZeroSumGeometricMechanism.for_guarantee(ApproxDP(epsilon=1, delta=1e-6), prior=np.ones((20, 50)))
    counts = np.full((20, 50), 10**4)
    assert large.release(counts).sum() == 10**7
    independent = GeometricMechanism.for_guarantee(ApproxDP(epsilon=1, delta=1e-6), prior=np.ones((20, 50)))
    assert 0.99 < large.noise_sd / independent.noise_sd < 1


@pytest.mark.parametrize("scale", [2.0**-1000, 2.0**980, 1e-3, 1e12])
def test_extreme_scales(scale):
    mechanism = ZeroSumGeometricMechanism(np.ones(5), scale)
    assert 0 <= mechanism.noise_sd < math.inf
    assert Fraction(mechanism.pure_epsilon) >= 2 / Fraction(mechanism.scale)
    assert 0 <= mechanism.delta(0.5) <= 1
    assert math.isfinite(mechanism.log_likelihood(np.zeros(5), np.zeros(5)))
    noisy = mechanism.release(np.full(5, 7))
    assert abs(noisy.sum() - 35) <= 1e-12 * np.abs(noisy).sum()


def test_a_private_number_of_records_is_refused():
    with pytest.raises(ArgumentError, match="Use GeometricMechanism"):
        ZeroSumGeometricMechanism([1.0, 1.0], 2.0, adjacency="add-remove")
    with pytest.raises(ArgumentError, match="between"):
        ZeroSumGeometricMechanism([1.0, 1.0], 1e-305)
    with pytest.raises(ArgumentError, match="scale"):
        # Clipping such noise would change what it adds up to.
        ZeroSumGeometricMechanism([1.0, 1.0], 2.0**990)
    with pytest.raises(ArgumentError, match="same number of records"):
        ZeroSumGeometricMechanism([1.0, 1.0], 2.0).output_distributions(np.array([1.0, 0]), np.zeros(2))
    with pytest.raises(ArgumentError, match="too many cells"):
        ZeroSumGeometricMechanism([1.0, 1.0], 1e12).output_distributions(np.array([1.0, 0]), np.array([0.0, 1]))


@pytest.mark.thorough
@pytest.mark.parametrize("sampler", ["exact", "fast"])
def test_an_audit_passes_and_refutes_a_stronger_claim(sampler):
    mechanism, n = ZeroSumGeometricMechanism(np.ones(3), 1.5), 6000
    found = dirdp.audit(mechanism, sampler=sampler, delta=0.02, last_bits=True, n=n, random_seed=2)
    assert found.verdict == "consistent"
    assert found.bounds[0].lower > 0.5 * found.bounds[0].stated
    wrong = ApproxDP(epsilon=mechanism.epsilon(0.02) / 2, delta=0.02)
    assert dirdp.audit(mechanism, sampler=sampler, claim=wrong, n=n, random_seed=2).verdict == "refuted"
    assert check_curve(mechanism).verdict == "consistent"
    assert check_curve(mechanism, claim=wrong).points[0].exceeded


def test_seeds_repeat_a_release_and_the_system_does_not():
    mechanism, counts = ZeroSumGeometricMechanism(np.ones(6), 30.0), np.full(6, 100)
    first, again = (mechanism.release(counts, random_seed=9) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert np.any(mechanism.release(counts) != mechanism.release(counts))


def test_the_free_variance_is_that_of_independent_noise_with_the_same_covariance():
    mechanism = ZeroSumGeometricMechanism([1, 1, 1], 1.5)
    z = np.arange(-60, 61)
    first, second = (axis.ravel() for axis in np.meshgrid(z, z))
    noise = np.stack([first, second, -first - second])
    distribution = np.exp(-np.abs(noise).sum(axis=0) / 1.5)
    covariance = (noise * distribution) @ noise.T / distribution.sum()
    np.testing.assert_allclose(covariance, mechanism.noise.free_variance * (np.eye(3) - 1 / 3), rtol=1e-9)
    assert Geometric(1.5).free_variance == Geometric(1.5).sd ** 2
