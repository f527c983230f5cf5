"""Effects of subsets of axes, their scales, and probabilities that they are present."""

import itertools

import numpy as np
import pytest
from scipy.special import beta

from pymc_dirdp.inference.effects import Effects, Shrinkage, probabilities_of


@pytest.mark.parametrize("shape", [(4,), (3, 1, 2), (2, 2, 3, 2, 2)])
def test_coordinates_are_inverse_to_logits_and_the_transposed_map_is_transposed(shape):
    effects, rng = Effects(shape), np.random.default_rng(0)
    coordinates, slopes = rng.normal(size=(2, 3, *shape))
    np.testing.assert_allclose(effects.logits(effects.coordinates(slopes)), slopes, atol=1e-12)
    over = tuple(range(1, len(shape) + 1))
    left = (effects.logits(coordinates) * slopes).sum(axis=over)
    np.testing.assert_allclose(left, (coordinates * effects.transposed(slopes)).sum(axis=over), rtol=1e-11)


def test_an_effect_is_the_part_that_the_analysis_of_variance_gives_to_its_axes():
    """For each subset of the axes: averages over the others, minus the effects of its own subsets."""
    shape, parts = (2, 3, 4), {}
    table, effects = np.random.default_rng(0).normal(size=shape), Effects(shape)
    coordinates = effects.coordinates(table)
    for subset in itertools.chain.from_iterable(itertools.combinations(range(3), n) for n in range(4)):
        others = tuple(i for i in range(3) if i not in subset)
        smaller = sum(part for of, part in parts.items() if set(of) < set(subset))
        parts[subset] = table.mean(axis=others, keepdims=True) - smaller
        group = effects.groups[tuple(int(i in subset) for i in range(3))]
        own = np.where(effects.groups == group, coordinates, 0.0)
        np.testing.assert_allclose(effects.logits(own), np.broadcast_to(parts[subset], shape), atol=1e-12)
        assert effects.orders[group] == len(subset)
        assert effects.of_several[group] == (2 in subset and len(subset) > 1)


def test_effects_of_more_than_three_axes_are_one_group():
    effects = Effects((2,) * 6)
    assert len(effects.orders) == 1 + 6 + 15 + 20 + 1
    assert effects.orders.max() == 6
    assert effects.sums(np.ones((2,) * 6))[-1] == 15 + 6 + 1


def test_what_is_not_known_takes_the_scale_of_its_order():
    """A thousand coordinates of size 2, all told: the prior's ten make little difference."""
    shrinkage = Shrinkage({"p": np.array([0, 2]), "q": np.array([0, 2])})
    nothing, squares = np.zeros(2), {"p": np.array([0.0, 4000.0]), "q": np.zeros(2)}
    known = {"p": np.array([0.0, 1000.0]), "q": nothing}
    assert not shrinkage.update(squares, known)
    for scales in shrinkage.scales.values():
        assert scales == pytest.approx([0.0, 2.0], rel=0.01)
    assert shrinkage.update(squares, known)


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
    log_odds, total, there = np.array([-1.0, 0.5, 2.0, -3.0]), 0.0, np.zeros(4)
    for chosen in itertools.product([0, 1], repeat=4):
        k = sum(chosen)
        weight = beta(k + 0.5, 8.5 - k) / beta(0.5, 4.5) * np.exp(np.dot(chosen, log_odds))
        total, there = total + weight, there + weight * np.array(chosen)
    # Grid points: the error of the midpoints is largest at 0, where the density has no bound.
    np.testing.assert_allclose(probabilities_of(log_odds), there / total, rtol=0.05)
    np.testing.assert_allclose(probabilities_of([1e6, -1e6, 0.0])[:2], [1, 0], atol=1e-12)
    assert probabilities_of([]).shape == (0,)
