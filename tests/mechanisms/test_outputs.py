"""The four kinds of output: values, facts and back, what their mechanisms cannot have published, and their mutants."""

import numpy as np
import pytest

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism, ZeroSumGeometricMechanism
from pymc_dirdp.mechanisms.marginals import MarginalsMechanism, ZeroSumMarginalsMechanism
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
        ([0.0, 0.5, 0.5], "between 0 and 1"),
        ([-0.5, 0.75, 0.75], "between 0 and 1"),
        ([1.5, 0.25, -0.75], "between 0 and 1"),
    ],
)
def test_shares_lie_between_0_and_1_and_add_up(shares, problem):
    output = Draws({DRAWS: np.array([shares])})
    found = list(DirichletMechanism([1, 1, 1], 0.2).problems(output, "fast", 10))
    assert (found == []) if problem is None else (len(found) == 1 and problem in found[0])


@pytest.mark.parametrize(("share", "fine"), [(0.3, True), (0.0, False), (1.0, False), (1.5, False), (-0.5, False)])
def test_a_share_of_success_lies_between_0_and_1(share, fine):
    """A share of 1.5 of a Beta variable verified if one number of a check was changed."""
    mechanism = DirichletMechanism([[1, 1]], 0.2)
    output = Draws({DRAWS: np.array([[share]])}, of_success=True)
    np.testing.assert_array_equal(output.values, [[[share, 1 - share]]])
    assert (list(mechanism.problems(output, "fast", 10)) == []) is fine
    of_both = mechanism.draw([[3, 4]], 2, sampler="fast", random_seed=1)
    np.testing.assert_array_equal(of_both.of_beta.values[..., 0], of_both.values[..., 0])
