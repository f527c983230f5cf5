import numpy as np
import pytest

from pymc_dirdp.inference.shrinkage import Shrinkage


def test_what_is_told_precisely_gives_its_own_scale():
    """A thousand coordinates of size 0.7, all told: the prior's ten make little difference."""
    shrinkage = Shrinkage({"p": np.array([0, 1])})
    squares, known = {"p": np.array([0.0, 1000 * 0.49])}, {"p": np.array([0.0, 1000.0])}
    assert not shrinkage.update(squares, known)
    assert shrinkage.scales["p"][1] == pytest.approx(0.7, rel=0.06)
    assert shrinkage.scales["p"][0] == 0.0
    assert shrinkage.update(squares, known)


def test_what_is_not_told_takes_the_scale_of_its_order():
    shrinkage = Shrinkage({"p": np.array([0, 2]), "q": np.array([0, 2])})
    shrinkage.update(
        {"p": np.array([0.0, 4000.0]), "q": np.array([0.0, 0.0])},
        {"p": np.array([0.0, 1000.0]), "q": np.array([0.0, 0.0])},
    )
    assert shrinkage.scales["q"][1] == pytest.approx(2.0, rel=0.01)


def test_without_measurements_the_scales_stay():
    shrinkage = Shrinkage({"p": np.array([0, 1, 1, 2, 5])})
    nothing = {"p": np.zeros(5)}
    assert shrinkage.update(nothing, nothing)
    np.testing.assert_allclose(shrinkage.scales["p"], [0, 2, 2, 0.5, 0.1])


def test_learned_scales_are_those_that_made_the_effects():
    """Coordinates are drawn with a known scale and seen with noise; the fixed point finds the scale again."""
    rng = np.random.default_rng(0)
    truth, noise, n = 0.3, 0.25, 4000
    seen = rng.normal(0, truth, n) + rng.normal(0, noise, n)
    shrinkage = Shrinkage({"p": np.array([0, 1])})
    for _ in range(100):
        t2 = shrinkage.scales["p"][1] ** 2
        told = t2 / (t2 + noise**2)
        mode = {"p": np.array([0.0, np.sum((told * seen) ** 2)])}
        if shrinkage.update(mode, {"p": np.array([0.0, n * told])}):
            break
    assert shrinkage.scales["p"][1] == pytest.approx(truth, rel=0.1)
