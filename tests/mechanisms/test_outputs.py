"""The four kinds of output, what their mechanisms cannot have published, and frequencies from noisy counts."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism, ZeroSumGeometricMechanism
from pymc_dirdp.mechanisms.marginals import MarginalsMechanism, ZeroSumMarginalsMechanism
from pymc_dirdp.mechanisms.noisy_counts import postprocessed
from pymc_dirdp.mechanisms.outputs import DRAWS, Draws, Marginals, NoisyTable
from pymc_dirdp.papers.truncated_noise import TruncatedNoiseMechanism
from pymc_dirdp.texts.grammar import to_builtin

TABLE = np.array([[30, 20, 10], [5, 0, 15]])
MECHANISMS = [
    DirichletMechanism(np.ones((2, 3)), 0.2),
    GeometricMechanism(np.ones((2, 3)), 2.0),
    ZeroSumGeometricMechanism(np.ones((2, 3)), 2.0),
    MarginalsMechanism(np.ones((2, 3)), [[1], [0, 1]], [5.0, 10.0]),
    ZeroSumMarginalsMechanism(np.ones((2, 3)), [[1], [0, 1]], [8.0, 8.0]),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("draws", [1, 3])
def test_an_output_is_read_back_from_its_facts_and_can_come_from_its_mechanism(mechanism, draws):
    output = mechanism.draw(TABLE, draws, sampler="fast", random_seed=7, n_records=80)
    assert type(output) is mechanism.output_kind
    back = mechanism.read_output(output.to_dict(), "p", n=draws, of_success=False)
    assert type(back) is type(output)
    assert to_builtin(back.to_dict()) == to_builtin(output.to_dict())
    np.testing.assert_array_equal(back.values, output.values)
    assert list(mechanism.problems(output, "fast", 80)) == []
    # Draws are one output each; everything else is one output for all of them.
    assert len(output.values) == output.releases_for(draws) == (draws if type(output) is Draws else 1)
    shares = output.shares
    assert (shares is None) == (type(output) is not Draws)
    if shares is not None:
        assert shares.shape == (draws, 2, 3)
        np.testing.assert_allclose(shares.sum(axis=-1), 1)
    # What is measured: nothing by draws; the whole table, or each marginal, with the variance of its noise.
    measured = [(axes, noisy.shape) for axes, noisy, _ in mechanism.measured(output)]
    expected = {Draws: [], NoisyTable: [((0, 1), (2, 3))], Marginals: [((1,), (3,)), ((0, 1), (2, 3))]}
    assert measured == expected[type(output)]
    # Every array is shown with dims that fit; draws of shares stand in the posterior alone.
    if shares is None:
        assert {name: len(axes) for name, axes in mechanism.published_axes.items()} == {
            name: values.ndim for name, values in output.published.items()
        }
    with pytest.raises(ArgumentError, match="one finite number for each cell"):
        mechanism.read_output({name: [1.0] for name in output.to_dict()}, "p", n=draws, of_success=False)


def test_integers_are_written_as_such_and_other_numbers_as_doubles():
    for values, kind in (([2.0, 0.5], "f"), ([2.0, -3.0], "i"), ([2.0**60, 1.0], "f")):
        written = NoisyTable({"noisy_counts": np.array(values)}).to_dict()["noisy_counts"]
        assert (written.dtype.kind, written.tolist()) == (kind, values)


def test_what_an_exact_sampler_cannot_have_published():
    """Numbers off its grid, and totals that are public and do not add up."""
    last = TruncatedNoiseMechanism([1, 1, 1], n_records=80, scale=2.0)
    for mechanism in (*MECHANISMS[1:], last):
        counts = TABLE.sum(axis=0) if mechanism is last else TABLE
        output = mechanism.draw(counts, 1, sampler="exact", random_seed=7, n_records=80)
        assert list(mechanism.problems(output, "exact", 80)) == []
        adds_up = any("add up to the number of records" in one for one in mechanism.problems(output, "exact", 81))
        # Noise that is independent in each cell adds up to anything.
        assert adds_up == ("ZeroSum" in type(mechanism).__name__ or mechanism is last)
        if mechanism is last:
            break
        for name, values in output.published.items():
            changed = values.copy()
            changed.flat[0] += 0.5
            facts = output.to_dict() | {name: changed.tolist()}
            back = mechanism.read_output(facts, "p", n=1, of_success=False)
            assert "a number is not on the grid of the exact sampler" in mechanism.problems(back, "exact", 80)


@pytest.mark.parametrize(
    ("shares", "problem"),
    [
        ([0.2, 0.3, 0.5], None),
        ([0.2, 0.3, 0.51], "add up"),
        *((shares, "between 0 and 1") for shares in ([0.0, 0.5, 0.5], [-0.5, 0.75, 0.75], [1.5, 0.25, -0.75])),
        # Of success. A share of 1.5 of a Beta variable verified if one number of a check was changed.
        ([0.3], None),
        *(([share], "between 0 and 1") for share in (0.0, 1.0, 1.5, -0.5)),
    ],
)
def test_shares_lie_between_0_and_1_and_add_up(shares, problem):
    of_success = len(shares) == 1
    output = Draws({DRAWS: np.array([shares])}, of_success=of_success)
    if of_success:
        np.testing.assert_array_equal(output.values, [[[*shares, 1 - shares[0]]]])
    mechanism = DirichletMechanism([[1, 1]] if of_success else [1, 1, 1], 0.2)
    found = list(mechanism.problems(output, "fast", 10))
    assert (found == []) if problem is None else (len(found) == 1 and problem in found[0])


def test_draws_of_both_shares_are_written_as_those_of_success():
    of_both = DirichletMechanism([[1, 1]], 0.2).draw([[3, 4]], 2, sampler="fast", random_seed=1)
    np.testing.assert_array_equal(of_both.of_beta.values[..., 0], of_both.values[..., 0])


# What kinds of noise on counts share.

COUNTS = [108, 286, 71, 127]
BOTH = [DiscreteGaussianMechanism(np.ones(4), 5.0), GeometricMechanism(np.ones(4), 3.0)]


@pytest.mark.parametrize("mechanism", BOTH, ids=["gaussian", "geometric"])
def test_draws_come_from_one_noisy_table(mechanism):
    draws = mechanism.sample(COUNTS, released_draws=5_000, sampler="fast", random_seed=4)
    assert draws.shape == (5_000, 4)
    noisy = np.maximum(mechanism.release(COUNTS, sampler="fast", random_seed=4), 0) + mechanism.noise_sd / 4 + 1
    distribution = stats.beta(noisy[0], noisy[1:].sum())
    assert stats.kstest(draws[:, 0], distribution.cdf).pvalue > 1e-6
    assert stats.kstest(draws[:, 0], stats.beta(108 + 1, 484 + 3).cdf).pvalue < 1e-6
    mechanism.sample([7654321, 1, 1, 1], sampler="fast")
    assert "7654321" not in repr(mechanism)
    with pytest.raises(DataError, match="integers"):
        mechanism.sample([1.5, 1, 1, 1], sampler="fast")


def test_odd_mechanisms_are_refused():
    for mechanism, wrong, said in (
        (BOTH[0], {"postprocess": "clip-and-smoothe"}, "Did you mean 'clip-and-smooth'"),
        (BOTH[0], {"sigma": 0.0}, "sigma > 0"),
        (BOTH[1], {"scale": math.inf}, "scale > 0"),
    ):
        with pytest.raises(ArgumentError, match=said):
            replace(mechanism, **wrong)


def test_the_prior_is_part_of_the_draw_and_not_of_the_estimate():
    mechanism = DiscreteGaussianMechanism([500.0, 100.0], 0.1)
    draws = mechanism.sample([0, 0], released_draws=2000, random_seed=8)
    assert draws[:, 0].mean() == pytest.approx(5 / 6, abs=0.005)
    assert mechanism.estimate([300, 700], random_seed=8)[0] == pytest.approx(0.3, abs=0.005)


@pytest.mark.parametrize("how", ["clip-and-smooth", "clip", "project"])
def test_estimates_are_frequencies_in_every_row(how):
    mechanism = DiscreteGaussianMechanism(np.ones((50, 3)), 3.0, postprocess=how)
    for counts in (np.tile([0, 5, 1], (50, 1)), np.zeros((50, 3), dtype=int)):
        estimate = mechanism.estimate(counts, sampler="fast", random_seed=2)
        assert np.all(estimate >= 0)
        np.testing.assert_allclose(estimate.sum(axis=-1), 1)


def test_projection_is_the_nearest_point():
    """One difference for all that stay above 0, and none larger."""
    for noisy in map(np.array, ([3.0, -1.0, 0.5], [10.0, 9.0, -30.0, 12.0], [1.0, 0.6, -0.4], [-3.0, -1.0])):
        found = postprocessed(noisy, "project", noise=1.0)
        assert np.all(found >= 0)
        assert found.sum() == pytest.approx(max(noisy.sum(), 0), abs=1e-12)
        assert np.all((noisy - found)[found > 0] >= (noisy - found).max() - 1e-12)


def test_smoothing_is_near_the_best_and_clipping_explodes():
    """ERRATA P1.6: P1's baselines clip at 1e-6, and that alone makes their loss large."""
    rng = np.random.default_rng(6)
    for d, n, sigma in ((4, 592, 5.0), (1000, 100_000, 10.0)):
        losses = dict.fromkeys(("clip-and-smooth", "clip", 0.0625, 0.5, 1.0), 0.0)
        for _ in range(30):
            counts = rng.multinomial(n, rng.dirichlet(np.ones(d)))
            noisy = counts + rng.normal(0, sigma, d)
            for how in losses:
                by_hand = isinstance(how, float)
                used = np.maximum(noisy, 0) + how * sigma if by_hand else postprocessed(noisy, how, noise=sigma)
                losses[how] += stats.entropy(counts, used)
        assert losses["clip-and-smooth"] <= 1.25 * min(losses.values())
        assert d < 100 or losses["clip"] > 2 * losses["clip-and-smooth"]
