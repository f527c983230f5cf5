"""Last bits of a release: the attack that told the neighbours of 0.1.0 apart, and what it finds now."""

import os

import numpy as np
import pytest
from scipy.stats import beta, fisher_exact, kstest

from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.sampling.fast import dirichlet, fast_dirichlet


def old_dirichlet(concentration, draws, rng):
    """The sampler of 0.1.0, whose way of normalising depended on the least parameter of the whole table."""
    small = concentration < 0.1
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
    y = y.max(axis=-1)
    s = 1 / y
    return ~((1 / s == y) | (1 / np.nextafter(s, 0) == y) | (1 / np.nextafter(s, 10) == y))


# One person alone in a cell, or not: 30 rows of 11 categories, prior 1/11, around the old border of 0.1.
ALPHA, R = np.full((30, 11), 0.0990), 0.0092
ALONE = np.ones((30, 11))
NEIGHBOUR = ALONE.copy()
NEIGHBOUR[0, :2] = 2, 0


@pytest.mark.parametrize("sampler", ["old", "fast", "fast above one", "exact"])
def test_neighbours_leave_the_same_pattern(sampler):
    """Rows with the pattern on either side, Fisher's exact test at 1e-6: fast over 60,000 rows on each side."""
    rng = np.random.default_rng(3)
    # Above a prior of 1 no logarithm is taken.
    mechanism = DirichletMechanism(np.ones((30, 11)) if sampler == "fast above one" else ALPHA, R)

    def drawn(counts):
        if sampler == "old":
            return old_dirichlet(R * counts + ALPHA, 200, rng)
        if sampler == "exact":
            # Few steps, so that many releases can be looked at; the map behind them is the same for any number.
            return mechanism.sample(counts, released_draws=300, steps=50, random_seed=rng)
        return mechanism.sample(counts, released_draws=2000, sampler="fast", random_seed=rng)

    seen = [unreachable(drawn(counts)) for counts in (ALONE, NEIGHBOUR)]
    table = [[np.count_nonzero(s), np.count_nonzero(~s)] for s in seen]
    assert (fisher_exact(table).pvalue < 1e-6) == (sampler == "old")


@pytest.mark.parametrize("kind", [np.int64, np.float32, np.uint8])
def test_the_fast_draw_is_a_function_of_integers_and_leaves_the_counts(kind):
    u = np.array([[0.3, 2.0, 1e-9], [1.0, 1.0, 40.0]])
    released = fast_dirichlet(u.copy(), 500, np.random.default_rng(2))
    whole = 2 * np.rint(dirichlet(u, 500, np.random.default_rng(2)) * 2**32).astype(np.int64) + 1
    assert np.array_equal(released, whole / whole.sum(axis=-1, keepdims=True))
    assert released.min() > 2.0**-34
    counts, mechanism = np.arange(6, dtype=kind), DirichletMechanism(np.ones(6), 0.5)
    for sampler in ("fast", "exact"):
        mechanism.sample(counts, sampler=sampler, released_draws=1)
    mechanism.concentration(counts)
    assert np.array_equal(counts, np.arange(6))


class Recorded(np.random.Generator):
    """Writes down what is asked of it."""

    asked = None

    def standard_gamma(self, shape, size=None, **options):
        self.asked.append(("gamma", np.min(shape) > 1, size))
        return super().standard_gamma(shape, size=size, **options)

    def random(self, size=None, **options):
        self.asked.append(("uniform", size))
        return super().random(size=size, **options)


@pytest.mark.parametrize("least", [5e-324, 1e-17, 0.0999, 0.1, 1.0, 1e12])
def test_one_way_for_all_parameters(least):
    """The same calls whatever the parameters: none of NumPy's other ways, which begin at a shape of 1, is taken."""
    rng = Recorded(np.random.PCG64(1))
    rng.asked = []
    y = fast_dirichlet(np.array([[least, 2.0, 0.3], [1.0, least, least]]), 6, rng)
    assert rng.asked == [("gamma", True, (6, 6)), ("uniform", (6, 6))]
    assert np.all(y > 0)
    np.testing.assert_allclose(y.sum(axis=-1), 1, rtol=1e-12)
    # The lower bound of the parameters is public, and is passed by the mechanism from its prior alone. Above 1 no
    # logarithm is taken, and the draw has the same distribution.
    u, n, rng.asked = np.array([max(least, 0.3), 3.0]), 5_000, []
    draws = DirichletMechanism(u, 0.5).sample([0, 0], released_draws=n, sampler="fast", random_seed=rng)
    assert {what for what, *_ in rng.asked} == ({"gamma", "uniform"} if least < 1 else {"gamma"})
    if least < 2:
        assert kstest(draws[:, 0], beta(*u).cdf).pvalue > 1e-6
        assert kstest(draws[:, 0], beta(1.4 * u[0], u[1]).cdf).pvalue < 1e-6


@pytest.mark.parametrize(("shape", "draws"), [((100_000, 6), 1), ((3, 4), 60_000)])
def test_a_seed_gives_the_same_draw_on_any_number_of_cores(shape, draws, monkeypatch):
    """Parts of the work have generators of their own, and no number comes twice."""
    u, plain, on_grid = np.full(shape, 1.25), [], []
    for cores in (1, 5):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        plain.append(dirichlet(u, draws, np.random.default_rng(8)))
        on_grid.append(fast_dirichlet(u.copy(), draws, np.random.default_rng(8), least=1.0))
        assert plain[-1].shape == on_grid[-1].shape == (draws, *shape)
    assert np.array_equal(*plain)
    assert np.array_equal(*on_grid)
    assert np.unique(plain[0]).size > 0.999 * plain[0].size
    assert np.all(u == 1.25)
