import itertools

import numpy as np
import pytest

from pymc_dirdp.inference.effects import Effects

SHAPES = [(4,), (2, 3), (3, 1, 2), (2, 3, 2, 4), (2, 2, 3, 2, 2)]


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


def test_coordinates_of_variance_one_make_cells_whose_variance_is_that_of_deviations_from_a_mean():
    effects = Effects((4, 5))
    unit = np.eye(20).reshape(20, 4, 5)
    last = effects.groups == effects.groups[-1, -1]
    variance = (effects.logits(unit[last.ravel()]) ** 2).sum(axis=0)
    np.testing.assert_allclose(variance, 3 / 4 * 4 / 5)


def test_effects_of_more_than_three_axes_are_one_group():
    effects = Effects((2,) * 6)
    assert len(effects.orders) == 1 + 6 + 15 + 20 + 1
    assert effects.orders.max() == 6
    assert effects.sums(np.ones((2,) * 6))[-1] == 15 + 6 + 1
