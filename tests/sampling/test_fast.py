"""Last bits of a release: the attack that told the neighbours of 0.1.0 apart, and what it finds now."""

import numpy as np
import pytest
from scipy.stats import chi2_contingency, chisquare, fisher_exact

from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.sampling.fast import dirichlet, fast_dirichlet, on_public_grid


def old_dirichlet(concentration, draws, rng, small=None):
    """The sampler of 0.1.0, whose way of normalising depended on the least parameter of the whole table."""
    small = concentration < 0.1 if small is None else np.broadcast_to(small, concentration.shape)
    if not np.any(small):
        gammas = rng.standard_gamma(concentration, size=(draws, *concentration.shape))
        return gammas / gammas.sum(axis=-1, keepdims=True)
    logs = np.log(rng.standard_gamma(concentration + small, size=(draws, *concentration.shape)))
    logs[:, small] += np.log(1.0 - rng.random(size=(draws, int(small.sum())))) / concentration[small]
    logs -= logs.max(axis=-1, keepdims=True)
    y = np.exp(logs)
    return y / y.sum(axis=-1, keepdims=True)


def unreachable(y):
    """Whether the largest component is no reciprocal of a double: half of the doubles near 1 are not."""
    s = 1 / y
    return ~((1 / s == y) | (1 / np.nextafter(s, 0) == y) | (1 / np.nextafter(s, 10) == y))


# One person alone in a cell, or not: 30 rows of 11 categories, prior 1/11, around the old border of 0.1.
ALPHA, R = np.full((30, 11), 0.0990), 0.0092
ALONE = np.ones((30, 11))
NEIGHBOUR = ALONE.copy()
NEIGHBOUR[0, :2] = 2, 0


def old(counts, draws, rng):
    return old_dirichlet(R * counts + ALPHA, draws, rng)


def fast(counts, draws, rng):
    return DirichletMechanism(ALPHA, R).sample(counts, draws=draws, sampler="fast", random_seed=rng)


def exact(counts, draws, rng):
    # Few steps, so that many releases can be looked at; the map behind them is the same for any number.
    return DirichletMechanism(ALPHA, R).sample(counts, draws=draws, steps=50, random_seed=rng)


@pytest.mark.parametrize(("sampler", "draws"), [(old, 200), (fast, 3500), (exact, 400)])
def test_neighbours_leave_the_same_pattern(sampler, draws):
    """Rows with the pattern on either side, Fisher's exact test at 1e-6: fast over 10**5 rows on each side."""
    rng = np.random.default_rng(3)
    seen = [unreachable(sampler(counts, draws, rng).max(axis=-1)) for counts in (ALONE, NEIGHBOUR)]
    table = [[np.count_nonzero(s), np.count_nonzero(~s)] for s in seen]
    assert (fisher_exact(table).pvalue < 1e-6) == (sampler is old)


def exponent_and_last_bits(y):
    """Exponent and last four bits of the first component."""
    exponent = np.frexp(y[:, 0])[1]
    byte = y[:, 0].copy().view(np.uint64) & np.uint64(15)
    return exponent, byte.astype(np.int64)


def differ(one, two):
    """p-value: do two samples of the same law have other last bits?"""
    cells = [16 * np.clip(e, -12, 1) + b for e, b in (exponent_and_last_bits(one), exponent_and_last_bits(two))]
    least = min(c.min() for c in cells)
    table = np.array([np.bincount(c - least, minlength=16 * 16) for c in cells])
    return chi2_contingency(table[:, table.sum(axis=0) > 20]).pvalue


def grid(y, step):
    whole = 2 * np.rint(y / step) + 1
    return whole / whole.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("parameters", [[0.11, 0.11], [0.75, 0.75], [1.0, 1.0], [1.1, 1.1]])
def test_two_ways_to_the_same_law_look_the_same_on_the_grid(parameters):
    """The two ways of 0.1.0 leave other last bits of the same law. On the grid of 2**-32 they do not."""
    rng, u = np.random.default_rng(5), np.array(parameters)
    one, two = (old_dirichlet(u, 300_000, rng, small=small) for small in (False, True))
    patterns = [np.count_nonzero(unreachable(y.max(axis=-1))) for y in (one, two)]
    assert patterns[1] == 0
    assert patterns[0] > 30_000
    assert differ(on_public_grid(one), on_public_grid(two)) > 1e-6
    on_grid = [np.count_nonzero(unreachable(on_public_grid(y).max(axis=-1))) for y in (one, two)]
    assert fisher_exact([on_grid, [300_000 - n for n in on_grid]]).pvalue > 1e-6


def test_a_finer_grid_would_not_do():
    """What the test above looks for is there at 2**-53, and in the plain draws."""
    rng, u = np.random.default_rng(5), np.array([0.11, 0.11])
    one, two = (old_dirichlet(u, 300_000, rng, small=small) for small in (False, True))
    assert differ(one, two) < 1e-6
    assert differ(grid(one, 2.0**-53), grid(two, 2.0**-53)) < 1e-6


@pytest.mark.parametrize("parameters", [[0.3, 0.11], [0.75, 2.0], [30.0, 5.0]])
def test_low_bits_of_the_grid_are_free(parameters):
    """The low byte of the whole number behind a component, where the law is flat over many of them."""
    rng = np.random.default_rng(1)
    y = dirichlet(np.array(parameters), 200_000, rng)[:, 0]
    k = np.rint(y[(y > 0.02) & (y < 0.98)] * 2**32).astype(np.int64)
    assert chisquare(np.bincount(k & 255, minlength=256)).pvalue > 1e-6


def test_the_fast_draw_is_a_function_of_whole_numbers():
    u = np.array([[0.3, 2.0, 1e-9], [1.0, 1.0, 40.0]])
    released = fast_dirichlet(u, 500, np.random.default_rng(2))
    whole = 2 * np.rint(dirichlet(u, 500, np.random.default_rng(2)) * 2**32).astype(np.int64) + 1
    assert np.array_equal(released, whole / whole.sum(axis=-1, keepdims=True))
    assert released.min() > 2.0**-34


class Recorded(np.random.Generator):
    """Writes down what is asked of it."""

    asked = None

    def standard_gamma(self, shape, size=None, **options):
        self.asked.append(("gamma", np.min(shape) > 1, size))
        return super().standard_gamma(shape, size=size, **options)

    def random(self, size=None, **options):
        self.asked.append(("uniform", size))
        return super().random(size=size, **options)


@pytest.mark.parametrize("least", [5e-324, 1e-300, 1e-17, 1e-3, 0.0999, 0.1, 0.75, 1.0, 3.0, 1e12])
def test_one_way_for_all_parameters(least):
    """The same calls whatever the parameters: none of NumPy's other ways, which begin at a shape of 1, is taken."""
    rng = Recorded(np.random.PCG64(1))
    rng.asked = []
    y = fast_dirichlet(np.array([[least, 2.0, 0.3], [1.0, least, least]]), 6, rng)
    assert rng.asked == [("gamma", True, (6, 2, 3)), ("uniform", (6, 2, 3))]
    assert np.all(y > 0)
    np.testing.assert_allclose(y.sum(axis=-1), 1, rtol=1e-12)
