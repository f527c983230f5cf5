"""The likelihood of tables that share a noise: against all lists of counts, sums by gains and losses, and limits."""

import itertools

import numpy as np
import pymc as pm
import pytest
from scipy.special import gammaln, logsumexp

import pymc_dirdp as dirdp
from pymc_dirdp.inference.joint_rows import JointRows, multiplications
from pymc_dirdp.inference.joint_tables import JointTables
from pymc_dirdp.inference.numbers import ImpossibleError
from pymc_dirdp.mechanisms.joint import JointNoise
from pymc_dirdp.releases.opened import opened


def seen_by(noise, counts, seed):
    cells = np.concatenate(counts)
    return noise.joint_likelihoods(cells + noise.fast(cells.shape, np.random.default_rng(seed)))


def rows_of(seen):
    return JointRows.of(seen.blocks, seen.log_weights, published=True)


def tables_of(n, cells):
    return [x for x in itertools.product(range(n + 1), repeat=cells) if sum(x) == n]


@pytest.mark.parametrize("seed", range(30))
def test_it_is_the_sum_over_all_tables(seed):
    """Noise that is wide beside few records, so noisy counts are negative, and records that differ between tables."""
    rng = np.random.default_rng(seed)
    cells = [[2, 3], [3, 3], [4, 2], [2, 2, 2], [5, 2]][seed % 5]
    n = rng.integers(0, 5, size=len(cells))
    noise = JointNoise(
        cells, float(rng.choice([0.3, 1.0, 3.0])), rng.integers(1, 3, len(cells)).tolist(), zero_sum=True
    )
    seen = seen_by(noise, [np.eye(d)[0] * total for d, total in zip(cells, n, strict=True)], seed)
    p = [np.maximum(rng.dirichlet(np.full(d, rng.choice([0.1, 1.0, 10.0]))), 1e-300) for d in cells]
    logs, fixed = [], []
    for counts in itertools.product(*map(tables_of, n.tolist(), cells)):
        x = [np.array(one, dtype=float) for one in counts]
        logs.append(
            sum(gammaln(one.sum() + 1) + one @ np.log(q) - gammaln(one + 1).sum() for one, q in zip(x, p, strict=True))
            + seen.log_likelihood(x)
        )
        fixed.append(np.concatenate(x))
    value, means = rows_of(seen).likelihood(np.log(np.concatenate(p)))
    assert value == pytest.approx(logsumexp(logs), rel=1e-12, abs=1e-12)
    np.testing.assert_allclose(means, np.exp(logs - logsumexp(logs)) @ np.array(fixed), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(
    ("cells", "scale", "n"),
    [([2, 2], 1.0, 10**4), ([3, 3], 1.0, 500), ([4, 3], 0.3, 30), ([2] * 30, 1.0, 500), ([5, 4], 0.3, 10**5)],
)
def test_it_is_the_sum_by_gains_and_losses(cells, scale, n):
    """Probabilities that are near to the noisy counts, and far from them."""
    noise, rng = JointNoise(cells, scale, zero_sum=True), np.random.default_rng(len(cells) + n)
    for spread in (0.1, 1.0, 30.0):
        seen = seen_by(noise, [rng.multinomial(n, rng.dirichlet(np.full(d, 3.0))) for d in cells], 1)
        p = [np.maximum(rng.dirichlet(np.full(d, spread)), 1e-250) for d in cells]
        known = JointTables(seen, list(map(np.ones, cells)), list(map(np.log, p)))
        value, means = rows_of(seen).likelihood(np.log(np.concatenate(p)))
        assert value == pytest.approx(known.log_evidence, rel=1e-11)
        np.testing.assert_allclose(means, np.concatenate(known.count_means), rtol=1e-9, atol=1e-9 * n)


def test_probabilities_are_those_of_the_noisy_counts_to_the_last_digit():
    """No step is likelier than none: sums were scaled by no step, and none of them was a double."""
    noise = JointNoise([2, 2], 20.0, zero_sum=True)
    for noisy in ([239.0, 261.0, 250.0, 250.0], [500.0, 0.0, 500.0, 0.0]):
        seen, p = noise.joint_likelihoods(noisy), (np.array(noisy) + 0.5) / 501
        value, means = rows_of(seen).likelihood(np.log(p))
        known = JointTables(seen, [np.ones(2)] * 2, list(np.log(p).reshape(2, 2)))
        assert value == pytest.approx(known.log_evidence, rel=1e-12)
        np.testing.assert_allclose(means, np.concatenate(known.count_means), rtol=1e-11)


def test_what_has_no_probability():
    noise = JointNoise([3, 2], 0.3, zero_sum=True)
    rows = rows_of(noise.joint_likelihoods([3.0, 2.0, 0.0, 4.0, 1.0]))
    for wrong in (np.nan, np.inf):
        value, means = rows.likelihood(np.array([-1.0, -1.0, wrong, -1.0, -1.0]))
        assert value == -np.inf
        assert not means.any()
    # A cell of probability 0 holds nobody.
    never = np.array([0.0, -np.inf, -np.inf, np.log(0.7), np.log(0.3)])
    value, means = rows.likelihood(never)
    np.testing.assert_allclose(means[:3], [5, 0, 0], atol=1e-12)
    assert value == pytest.approx(rows.likelihood(np.where(never == -np.inf, -800.0, never))[0], rel=1e-12)
    # Noisy counts that no noise of a scale leads to.
    far = noise.joint_likelihoods([-1e4, 1e4 + 5, 0.0, 4.0, 1.0])
    assert rows_of(far).likelihood(np.log([0.2, 0.3, 0.5, 0.5, 0.5])) == (-np.inf, pytest.approx(np.zeros(5)))
    with pytest.raises(ImpossibleError):
        JointTables(far, [np.ones(3), np.ones(2)], [np.log([0.2, 0.3, 0.5]), np.log([0.5, 0.5])])


def test_compiled_code_has_the_same_bits():
    noise = JointNoise([3, 2], 1.0, zero_sum=True)
    noisy, logs = np.array([3.0, 2.0, 0.0, 4.0, 1.0]), np.log([0.2, 0.3, 0.5, 0.4, 0.6])
    fixed = rows_of(noise.joint_likelihoods(noisy))
    free = JointRows(fixed.cells, fixed.limits, fixed.log_weights)
    logs.flags.writeable = noisy.flags.writeable = False
    expected, means = fixed.likelihood(logs)
    for value, found in (fixed.compiled()(logs), free.compiled()(logs, noisy), free.likelihood(logs, noisy)):
        assert float(value) == expected
        np.testing.assert_array_equal(found, means)


def test_a_released_table_takes_it():
    """The likelihood of one table of a joint release: the counts of the other are summed over, with its flat prior."""
    with pm.Model():
        for name, cells in (("p", 3), ("q", 4)):
            shares = pm.Dirichlet(name, np.ones(cells))
            pm.Multinomial(f"{name}_counts", n=20, p=shares, observed=[20] + [0] * (cells - 1))
        release = dirdp.sample(dirdp.PureDP(epsilon=1.0), mechanism="joint")
    output = opened(release).release.output
    noisy = np.concatenate([output[name].values[0] for name in ("p", "q")])
    p = np.array([0.5, 0.3, 0.2])
    first, second = (np.array(tables_of(20, cells), dtype=float) for cells in (3, 4))
    seen = JointNoise([3, 4], 1.0, zero_sum=True).joint_likelihoods(noisy)
    chances = gammaln(21) + first @ np.log(p) - gammaln(first + 1).sum(axis=1)
    both = seen.log_likelihood([first[:, None], second]) - np.log(len(second))
    value = float(dirdp.release_logp(release, p, table="p").eval())
    assert value == pytest.approx(logsumexp(chances[:, None] + both), rel=1e-11)


def test_work_is_stated_before():
    assert multiplications(2, 10**6) == 0
    assert multiplications(3, 9) == 300
    assert multiplications(5, 9) == 2500
