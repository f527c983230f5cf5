"""Distributions that every mechanism keeps, whatever it is. A new mechanism is one more subject."""

import itertools
import math
import runpy
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial, reduce
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussian, DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.geometric import Geometric, GeometricMechanism, ZeroSumGeometric, ZeroSumGeometricMechanism
from pymc_dirdp.mechanisms.joint import JointNoise, JointTableMechanism, ZeroSumJointTableMechanism
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.papers.hellinger import HellingerMechanism
from pymc_dirdp.papers.truncated_noise import TruncatedNoiseMechanism
from pymc_dirdp.planning.prices import calibrate
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.guarantees import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP
from pymc_dirdp.privacy.people import Contribution

OWN = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "own_mechanism.py"))["BinomialMechanism"]

# The oracles: the divergence of the outputs at two given data sets. Integer noise and finite mechanisms list the
# probabilities of all outputs at the first, and their losses.


def renyi_of(losses, order):
    mass, loss = losses
    terms = np.log(mass[mass > 0]) + (order - 1) * loss[mass > 0]
    most = terms.max()
    return (most + math.log(np.exp(terms - most).sum())) / (order - 1) if math.isfinite(most) else math.inf


def delta_of(losses, epsilon):
    mass, loss = losses
    return math.fsum(mass * np.maximum(-np.expm1(np.minimum(epsilon - loss, 700)), 0))


def losses_of(weight, z, change, least=0.0):
    """The masses and the losses, each once, of noise with these log-weights where counts change so."""
    weights = weight(z)
    mass, loss = np.exp(weights - np.logaddexp.reduce(weights)), weights - weight(z - change)
    return merged(mass[mass > least], loss[mass > least])


def merged(mass, loss):
    loss, place = np.unique(np.round(loss, 12), return_inverse=True)
    return np.bincount(place, weights=mass), loss


def both(one, other):
    return merged(np.multiply.outer(one[0], other[0]).ravel(), np.add.outer(one[1], other[1]).ravel())


@lru_cache(maxsize=4)
def lists(blocks, reach, zero_sum):
    """All noise in blocks of these numbers of cells, of which none has a larger norm."""
    tables = []
    for cells in blocks:
        z = np.indices([2 * reach + 1] * (cells - zero_sum)).reshape(cells - zero_sum, -1).T - reach
        z = np.column_stack([z, -z.sum(axis=1)]) if zero_sum else z
        tables.append(z[np.abs(z).sum(axis=1) <= (1 + zero_sum) * reach])
    places = np.indices([len(z) for z in tables]).reshape(len(tables), -1)
    return np.concatenate([z[place] for z, place in zip(tables, places, strict=True)], axis=1)


def largest_norm(noise, z):
    """Of the blocks of joint noise."""
    blocks = np.split(np.abs(z), np.cumsum(noise.cells)[:-1], axis=1)
    return np.max([block.sum(axis=1) / m for block, m in zip(blocks, noise.records, strict=True)], axis=0)


# The logarithm of the weight of each list, and how far lists go.
DEFINITIONS = {
    Geometric: (lambda noise, z: -np.abs(z).sum(axis=1) / noise.scale, lambda noise: 400),
    ZeroSumGeometric: (
        lambda noise, z: -np.abs(z).sum(axis=1) / noise.scale,
        lambda noise: math.ceil(20 * noise.scale),
    ),
    DiscreteGaussian: (lambda noise, z: -(z**2).sum(axis=1) / (2 * float(noise.variance)), lambda noise: 400),
    OWN.noise_type: (
        lambda noise, z: binom.logpmf(z + noise.coins / 2, noise.coins, 0.5).sum(axis=1),
        lambda noise: int(noise.coins / 2),
    ),
    JointNoise: (
        lambda noise, z: -largest_norm(noise, z) / (1 + noise.zero_sum) / noise.scale,
        lambda noise: math.ceil(35 * noise.scale * max(noise.records)),
    ),
}


@lru_cache(maxsize=1000)
def losses_of_list(noise, change, least):
    weight, reach = DEFINITIONS[type(noise)]
    blocks = noise.cells if isinstance(noise, JointNoise) else (len(change),)
    zero_sum = isinstance(noise, ZeroSumGeometric) or (isinstance(noise, JointNoise) and noise.zero_sum)
    return losses_of(partial(weight, noise), lists(blocks, reach(noise), zero_sum), np.array(change), least)


def noise_losses(noise, change, least=0.0):
    """Of all lists that change; noise below a mass of `least` is left out."""
    together = {JointNoise: len(change), ZeroSumGeometric: getattr(noise, "cells", 1)}.get(type(noise), 1)
    changes = [tuple(map(round, one)) for one in np.reshape(change, (-1, together)).tolist() if any(one)]
    return reduce(both, [losses_of_list(noise, one, least) for one in changes], (np.ones(1), np.zeros(1)))


def outcomes(mechanism, x, y):
    """Of a whole posterior: equal outcomes are taken together."""
    distributions = []
    for counts in (x, y):
        distribution = Counter()
        for outcome, probability in zip(*mechanism.distribution(counts), strict=True):
            distribution[tuple(outcome.tolist())] += probability
        distributions.append(distribution)
    both = list(distributions[0] | distributions[1])
    p, q = (np.array([distribution[outcome] for outcome in both]) for distribution in distributions)
    return p, np.log(p / q)


@dataclass(frozen=True)
class Subject:
    """A mechanism, how to make one that keeps a guarantee, and an oracle for its outputs at two data sets."""

    mechanism: Mechanism
    calibrated: Callable
    losses: Callable | None = None
    sizes: tuple[int, ...] = (1,)
    attained: float = 1.0
    """The part of the curves that is lost by neighbours of small data sets, at least; 1 is all but the digits."""
    coarse: float = 1e-5
    """The part of a guarantee that calibration may leave over: more where the parameter is an integer."""
    keeps: tuple[type, ...] = (ApproxDP, RenyiDP, TruncatedCDP)


def dirichlet(alpha, r, **options):
    """A continuous draw, whose neighbours are in `tests/privacy/test_unit_brute_force.py`."""
    known = {"public": ["n_records"]} if "n_records" in options else {}
    return Subject(
        DirichletMechanism(alpha, r, **options),
        lambda target: calibrate(target, prior=alpha, mechanism=Dirichlet(strategy="temper"), **options, **known),
    )


def noise(kind, shape, parameter, **options):
    """Counts with integer noise; the distribution of the noise is the same for all data, so only a change matters."""
    mechanism = kind(np.ones(shape), parameter, **options)
    people = {"adjacency": mechanism.adjacency, "contribution": mechanism.contribution}
    return Subject(
        mechanism,
        lambda target: kind.for_guarantee(target, prior=mechanism.prior, **people),
        lambda m, x, y: noise_losses(m.noise, x - y),
    )


def binomial(shape, coins, **options):
    return replace(noise(OWN, shape, coins, **options), coarse=0.5, keeps=(ApproxDP,))


def whole(kind, prior, n_records, number, **options):
    return Subject(
        kind(prior, n_records, number, **options),
        lambda target: kind.for_guarantee(target, prior=prior, n_records=n_records, **options),
        outcomes,
        sizes=(n_records,),
        attained=float(options.get("accounting", "exact") == "exact"),
    )


# One record, or two, in each of several rows.
SURVEY, TWICE = Contribution(1, ("each",)), Contribution(2, ("each",))

SUBJECTS = {
    "hellinger": whole(HellingerMechanism, [0.5, 1.0], 4, 0.6, smoothness=0.4),
    "hellinger proved": whole(HellingerMechanism, [0.5, 1.0], 4, 0.3, smoothness=1.0, accounting="proved"),
    "truncated geometric of three": replace(whole(TruncatedNoiseMechanism, [1.0, 1.0, 1.0], 4, 2.0), attained=0.9),
    "truncated laplace, two records": replace(
        whole(TruncatedNoiseMechanism, [1.0, 1.0], 5, 2.0, noise_kind="laplace", contribution=2), attained=0.4
    ),
    "truncated geometric, two records": replace(
        whole(TruncatedNoiseMechanism, [1.0, 1.0, 1.0], 5, 2.0, contribution=2), attained=0.4
    ),
    "truncated laplace of three": whole(
        TruncatedNoiseMechanism, [1.0, 1.0, 1.0], 4, 2.0, noise_kind="laplace", total="printed"
    ),
    "geometric add-remove": noise(GeometricMechanism, (3,), 0.3, adjacency="add-remove"),
    "geometric two records": replace(noise(GeometricMechanism, (3,), 4.0, contribution=2), attained=0.8),
    "geometric survey of two add-remove": replace(
        noise(GeometricMechanism, (2, 2), 4.0, contribution=TWICE, adjacency="add-remove"), attained=0.8
    ),
    "zero-sum of two": noise(ZeroSumGeometricMechanism, (2,), 4.0, contribution=3),
    "zero-sum two records": replace(noise(ZeroSumGeometricMechanism, (3,), 4.0, contribution=2), attained=0.95),
    "zero-sum survey of two": replace(noise(ZeroSumGeometricMechanism, (2, 3), 4.0, contribution=TWICE), attained=0.95),
    "joint survey": noise(ZeroSumJointTableMechanism, (2, 3), 0.3, contribution=SURVEY),
    "joint survey of two": noise(ZeroSumJointTableMechanism, (3, 2), 0.25, contribution=TWICE),
    "joint survey of two add-remove": noise(
        JointTableMechanism, (2, 2), 0.15, contribution=TWICE, adjacency="add-remove"
    ),
    "joint survey with private totals": replace(
        noise(JointTableMechanism, (2, 2), 0.3, contribution=SURVEY), attained=0.7
    ),
    "discrete gaussian small": noise(DiscreteGaussianMechanism, (2, 2), 0.6),
    "discrete gaussian survey add-remove": noise(
        DiscreteGaussianMechanism, (2, 2), 1.1, contribution=SURVEY, adjacency="add-remove"
    ),
    "discrete gaussian two records": replace(noise(DiscreteGaussianMechanism, (3,), 2.2, contribution=2), attained=0.7),
    "discrete gaussian survey of two": replace(
        noise(DiscreteGaussianMechanism, (2, 2), 4.0, contribution=TWICE), attained=0.6
    ),
    "flat": dirichlet([1.0, 1.0, 1.0], 0.2),
    "uneven": dirichlet([0.3, 2.0], 0.1),
    "rows": dirichlet([[1.0, 0.6], [2.0, 0.5]], 0.15),
    "rows add-remove": dirichlet([[0.8, 1.5], [0.6, 1.0]], 0.3, adjacency="add-remove"),
    "min_count": dirichlet([0.2, 0.2], 0.5, min_count=1.0),
    "two records": dirichlet([0.6, 1.1], 0.15, contribution=2),
    "public row": dirichlet([0.3, 2.0], 0.4, n_records=7),
    "own": binomial((2, 2), 60),
    "own add-remove": binomial((2, 2), 60, adjacency="add-remove"),
}


@pytest.fixture(params=SUBJECTS)
def subject(request):
    return SUBJECTS[request.param]


@pytest.fixture
def mechanism(subject):
    return subject.mechanism


ORDERS = np.concatenate([[1.0], 1 + np.geomspace(1e-6, 50, 12)])
EPSILONS = np.linspace(0, 6, 25)


def changes_of_block(cells, records, *, replaced, equal):
    """Gains and losses of at most so many records in so many cells; `equal` if their sum does not change."""
    gains = [
        np.bincount(data, minlength=cells)
        for m in range(records + 1)
        for data in itertools.combinations_with_replacement(range(cells), m)
    ]
    pairs = itertools.product(gains, gains if replaced else gains[:1])
    found = (gained - lost for gained, lost in pairs if gained.sum() == lost.sum() or not equal)
    return list({tuple(change): change for change in found}.values())


def changes(mechanism):
    """All that one person can change in the blocks of a table."""
    unit, shape = mechanism.contribution, mechanism.prior.shape
    blocks, replaced = unit.blocks(shape), mechanism.adjacency == "replace-one"
    # Numbers of records that are published do not change.
    equal = getattr(mechanism, "needs_public_totals", False)
    one = changes_of_block(math.prod(shape) // blocks, unit.records, replaced=replaced, equal=equal)
    # Every cell of a block has the same noise, and every block, so a change is as good as any permutation of it.
    whole = itertools.combinations_with_replacement(sorted({tuple(sorted(change.tolist())) for change in one}), blocks)
    yield from (change for change in map(np.concatenate, whole) if change.any())


def neighbours(subject, n):
    """All neighbouring data sets of n records over the cells."""
    mechanism, cells = subject.mechanism, math.prod(subject.mechanism.shape)
    if isinstance(mechanism, NoisyCounts):
        # The distribution of the noise is the same for all data, so only what changes matters.
        yield from ((np.zeros(cells, dtype=int), change) for change in changes(mechanism))
        return
    for data in itertools.combinations_with_replacement(range(cells), n):
        x = np.bincount(data, minlength=cells)
        # Several records of one person: it is enough that they go together where there are two cells.
        for left, joined in itertools.permutations(range(cells), 2):
            for records in range(1, min(x[left], Contribution.of(getattr(mechanism, "contribution", 1)).records) + 1):
                y = x.copy()
                y[left] -= records
                y[joined] += records
                yield x, y


@pytest.mark.parametrize("name", [name for name, subject in SUBJECTS.items() if subject.losses])
def test_no_neighbours_are_further_apart_than_the_curves(name):
    """Over every neighbour of every small data set, in both directions."""
    subject, mechanism = SUBJECTS[name], SUBJECTS[name].mechanism
    orders, epsilons, reached = (1.3, 4.0), (0.0, 0.6), []
    for n in subject.sizes:
        for pair in neighbours(subject, n):
            for x, y in (pair, pair[::-1]):
                losses = subject.losses(mechanism, x, y)
                divergences = [renyi_of(losses, order) for order in orders]
                reached.append([*divergences, *(delta_of(losses, epsilon) for epsilon in epsilons)])
    bounds = np.array([*map(mechanism.renyi, orders), *map(mechanism.delta, epsilons)])
    reached = np.max(reached, axis=0)
    # The last numbers are the accuracy of the oracles.
    assert np.all(reached <= bounds * (1 + np.array([1e-11, 1e-11, 1e-8, 1e-8])) + [0, 0, 1e-13, 1e-13])
    assert np.all((reached >= subject.attained * bounds * (1 - 1e-9) - 1e-13) | np.isinf(bounds))


def test_divergences_rise_with_their_order_and_stay_below_rho(mechanism):
    divergences, rhos = mechanism.renyi(ORDERS), mechanism.rho(ORDERS[1:])
    assert np.all(np.diff(divergences[np.isfinite(divergences)]) >= -1e-11 * divergences[0])
    assert np.all(np.diff(rhos[np.isfinite(rhos)]) >= -1e-11 * rhos[0])
    for omega in (1.5, 3.0):
        orders = np.linspace(1.001, omega * (1 - 1e-12), 6)
        assert np.all(mechanism.renyi(orders) <= orders * mechanism.rho(omega) * (1 + 1e-11))
    assert mechanism.renyi(2) == mechanism.renyi(np.array([2.0]))[0]


def test_epsilon_is_the_inverse_of_delta_from_above_and_below_the_conversion_of_the_divergences(mechanism):
    deltas = mechanism.delta(EPSILONS)
    assert np.all(np.diff(deltas) <= 0)
    assert np.all((deltas >= 0) & (deltas <= 1))
    assert mechanism.delta(np.array([[0.5, 1.0]])).shape == (1, 2)
    for delta in (1e-2, 1e-5, 1e-20):
        epsilon = mechanism.epsilon(delta)
        assert isinstance(epsilon, float)
        if epsilon == math.inf:
            # Some output betrays a record, whatever epsilon allows.
            assert mechanism.delta(1e6) > delta
            continue
        assert mechanism.delta(epsilon) <= delta
        assert epsilon == 0 or mechanism.delta(epsilon * (1 - 1e-7)) > delta
        order = mechanism.best_order(delta)
        entropy = math.log(order - 1) - (math.log(delta) + order * math.log(order)) / (order - 1)
        # For a loss of two values the best conversion is exact, so the roots may differ in their last digits.
        assert epsilon <= (mechanism.renyi(order) + entropy) * (1 + 1e-9)


def test_satisfies_is_the_comparison_with_the_curve(mechanism):
    exact = [(ApproxDP(epsilon=0.3, delta=mechanism.delta(0.3)), "delta")]
    if math.isfinite(mechanism.renyi(1.5)):
        exact += [
            (RenyiDP(order=1.5, epsilon=mechanism.renyi(1.5)), "epsilon"),
            (TruncatedCDP(rho=mechanism.rho(1.5), omega=1.5), "rho"),
        ]
    for guarantee, name in exact:
        assert mechanism.satisfies(guarantee)
        assert not mechanism.satisfies(replace(guarantee, **{name: math.nextafter(getattr(guarantee, name), 0)}))
    assert mechanism.satisfies(RenyiDP(order=1.5, epsilon=1e9)) == math.isfinite(mechanism.renyi(1.5))
    assert mechanism.satisfies(ZeroCDP(rho=1e9)) == math.isfinite(mechanism.rho(math.inf))
    pure = mechanism.pure_epsilon
    assert mechanism.satisfies(PureDP(epsilon=1e9)) == math.isfinite(pure)
    if math.isfinite(pure):
        assert mechanism.satisfies(PureDP(epsilon=pure))
        assert mechanism.delta(pure) == mechanism.delta(2 * pure) == 0 < mechanism.delta(pure * (1 - 1e-9))


@pytest.mark.thorough
def test_hockey_sticks_are_the_curve_and_compose(mechanism):
    curves, epsilons = mechanism._curves, 0.1 * np.arange(40)
    larger, curve = np.maximum(curves._deltas(epsilons), curves._reversed._deltas(epsilons)), mechanism.delta(epsilons)
    np.testing.assert_allclose(larger, curve, rtol=1e-9, atol=1e-300)
    twice = Composition(((mechanism, 2),))
    assert mechanism.epsilon(1e-6) < twice.epsilon(1e-6)
    assert twice.renyi(1.5) == 2 * mechanism.renyi(1.5)


TARGETS = [ApproxDP(epsilon=0.7, delta=1e-5), RenyiDP(order=3, epsilon=0.2), TruncatedCDP(rho=0.05, omega=4)]


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_calibration_is_safe_and_tight(subject, target):
    if not isinstance(target, subject.keeps):
        with pytest.raises(UnattainableError, match=f"does not satisfy {type(target).__name__}"):
            subject.calibrated(target)
        return
    mechanism = subject.calibrated(target)
    loss, allowed = mechanism.loss(target)
    assert type(mechanism) is type(subject.mechanism)
    assert mechanism.adjacency == subject.mechanism.adjacency
    assert mechanism.satisfies(target)
    assert allowed * (1 - subject.coarse) < loss <= allowed
