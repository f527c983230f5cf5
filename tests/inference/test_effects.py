import itertools

import numpy as np
import pytest
from scipy.special import beta

from pymc_dirdp.inference.effects import Effects, Shrinkage, probabilities_of

SHAPES = [(4,), (3, 1, 2), (2, 2, 3, 2, 2)]


@pytest.mark.parametrize("shape", SHAPES)
def test_coordinates_and_logits_are_inverse(shape):
    effects = Effects(shape)
    table = np.random.default_rng(0).normal(size=shape)
    np.testing.assert_allclose(effects.logits(effects.coordinates(table)), table, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
def test_transposed_is_the_transposed_map_also_for_many_tables_at_once(shape):
    effects = Effects(shape)
    rng = np.random.default_rng(0)
    coordinates, slopes = rng.normal(size=(2, 3, *shape))
    over = tuple(range(1, len(shape) + 1))
    left = (effects.logits(coordinates) * slopes).sum(axis=over)
    np.testing.assert_allclose(left, (coordinates * effects.transposed(slopes)).sum(axis=over), rtol=1e-11)


def test_an_effect_is_the_part_that_the_analysis_of_variance_gives_to_its_axes():
    """For each subset of the axes: averages over the others, minus the effects of its own subsets."""
    shape = (2, 3, 4)
    table = np.random.default_rng(0).normal(size=shape)
    effects = Effects(shape)
    coordinates = effects.coordinates(table)
    parts = {}
    for subset in itertools.chain.from_iterable(itertools.combinations(range(3), n) for n in range(4)):
        others = tuple(i for i in range(3) if i not in subset)
        parts[subset] = table.mean(axis=others, keepdims=True) - sum(
            part for smaller, part in parts.items() if set(smaller) < set(subset)
        )
        index = tuple(1 if i in subset else 0 for i in range(3))
        own = np.where(effects.groups == effects.groups[index], coordinates, 0.0)
        np.testing.assert_allclose(effects.logits(own), np.broadcast_to(parts[subset], shape), atol=1e-12)
        assert effects.orders[effects.groups[index]] == len(subset)


def test_effects_of_more_than_three_axes_are_one_group():
    effects = Effects((2,) * 6)
    assert len(effects.orders) == 1 + 6 + 15 + 20 + 1
    assert effects.orders.max() == 6
    assert effects.sums(np.ones((2,) * 6))[-1] == 15 + 6 + 1


def test_what_is_known_precisely_gives_its_own_scale():
    """A thousand coordinates of size 0.7, all told: the prior's ten make little difference."""
    shrinkage = Shrinkage({"p": np.array([0, 1])})
    squares, known = {"p": np.array([0.0, 1000 * 0.49])}, {"p": np.array([0.0, 1000.0])}
    assert not shrinkage.update(squares, known)
    assert shrinkage.scales["p"][1] == pytest.approx(0.7, rel=0.06)
    assert shrinkage.scales["p"][0] == 0.0
    assert shrinkage.update(squares, known)


def test_what_is_not_known_takes_the_scale_of_its_order():
    shrinkage = Shrinkage({"p": np.array([0, 2]), "q": np.array([0, 2])})
    shrinkage.update(
        {"p": np.array([0.0, 4000.0]), "q": np.array([0.0, 0.0])},
        {"p": np.array([0.0, 1000.0]), "q": np.array([0.0, 0.0])},
    )
    assert shrinkage.scales["q"][1] == pytest.approx(2.0, rel=0.01)


def test_learned_scales_are_those_that_made_the_effects():
    """Coordinates are drawn with a known scale and seen with noise; the fixed point finds the scale again."""
    rng = np.random.default_rng(0)
    truth, noise, n = 0.3, 0.25, 4000
    seen = rng.normal(0, truth, n) + rng.normal(0, noise, n)
    shrinkage = Shrinkage({"p": np.array([0, 1])})
    for _ in range(100):
        t2 = shrinkage.scales["p"][1] ** 2
        precision = t2 / (t2 + noise**2)
        mode = {"p": np.array([0.0, np.sum((precision * seen) ** 2)])}
        if shrinkage.update(mode, {"p": np.array([0.0, n * precision])}):
            break
    assert shrinkage.scales["p"][1] == pytest.approx(truth, rel=0.1)


def test_probabilities_are_those_of_a_sum_over_all_subsets():
    """Given a subset of size k the share has been integrated: its prior is B(k + 1/2, n - k + 9/2) / B(1/2, 9/2)."""
    log_odds = np.array([-1.0, 0.5, 2.0, -3.0])
    total, there = 0.0, np.zeros(4)
    for chosen in itertools.product([0, 1], repeat=4):
        k = sum(chosen)
        weight = beta(k + 0.5, 8.5 - k) / beta(0.5, 4.5) * np.exp(np.dot(chosen, log_odds))
        total += weight
        there += weight * np.array(chosen)
    np.testing.assert_allclose(probabilities_of(log_odds), there / total, rtol=0.05)
    # Grid points: the error of the midpoints is largest at 0, where the density has no bound.
    assert np.abs(probabilities_of(log_odds) - there / total).max() < 0.03


def test_probabilities_of_overwhelming_evidence():
    found = probabilities_of([1e6, -1e6, 0.0])
    assert found[0] == pytest.approx(1)
    assert found[1] == 0.0
    assert probabilities_of([]).shape == (0,)
