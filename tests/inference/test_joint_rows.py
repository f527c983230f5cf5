"""Sums over tables that share a noise: against all lists of counts, sums cell by cell in long doubles, and limits."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import gammaln, logsumexp

import pymc_dirdp as dirdp
from pymc_dirdp.inference import joint_rows
from pymc_dirdp.inference.joint_rows import JointRows, multiplications
from pymc_dirdp.inference.joint_tables import JointTables, RadialPosterior
from pymc_dirdp.inference.numbers import ImpossibleError
from pymc_dirdp.mechanisms.joint import JointNoise
from pymc_dirdp.mechanisms.outputs import BlockLikelihood
from pymc_dirdp.numerics.balls import Ball
from pymc_dirdp.releases.opened import open_release
from tests.oracles import tables_of


def seen_by(noise, counts, seed):
    cells = np.concatenate(counts)
    return noise.joint_likelihoods(cells + noise.fast(cells.shape, np.random.default_rng(seed)))


def rows_of(seen):
    return JointRows.of(seen.blocks, seen.log_weights, published=True)


def cell_by_cell(weights, most, *, marked=None):
    """The sums by gains and losses of cells with weights of the changes -most to most, as long doubles.

    Where a cell is marked, its weights are times its changes, and the sums are those of the changes.
    """
    size, change = most + 1, np.arange(-most, most + 1)
    sums = np.zeros((size, size), dtype=np.longdouble)
    sums[0, 0] = 1
    for cell, weight in enumerate(weights):
        used = weight * change if cell == marked else weight
        new = used[most] * sums
        for v in range(1, size):
            new[v:] += used[most + v] * sums[:-v]
            new[:, v:] += used[most - v] * sums[:, :-v]
        sums = new
    return sums


def weights_of(log_weight, noisy, most):
    """The weights of changes from -most to most of each cell, by the logarithm of the weight of a count."""
    counts = np.array(noisy)[:, None] + np.arange(-most, most + 1)
    logs = log_weight(np.maximum(counts, 0).astype(float)).astype(np.longdouble)
    return np.where(counts >= 0, np.exp(logs - logs.max(axis=1, keepdims=True)), 0), logs.max(axis=1).sum()


@pytest.mark.parametrize(("cells", "scale", "n"), [([2, 2], 1.0, 10**4), ([4, 3], 0.3, 30), ([2] * 9, 0.5, 500)])
def test_it_is_the_sum_by_gains_and_losses(cells, scale, n):
    noise, rng = JointNoise(cells, scale, zero_sum=True), np.random.default_rng(len(cells) + n)
    for spread in (0.1, 1.0, 30.0):
        seen = seen_by(noise, [rng.multinomial(n, rng.dirichlet(np.full(d, 3.0))) for d in cells], 1)
        p = [np.maximum(rng.dirichlet(np.full(d, spread)), 1e-250) for d in cells]
        inside, means = seen.log_weights.astype(np.longdouble), []
        for block, q in zip(seen.blocks, p, strict=True):
            most, logs = int(block.limits.max()), np.log(q)[:, None]
            weights, base = weights_of(lambda x, logs=logs: x * logs - gammaln(x + 1), block.noisy, most)
            sums = np.cumsum(np.diag(cell_by_cell(weights, most)))
            changes = [np.cumsum(np.diag(cell_by_cell(weights, most, marked=k))) for k in range(len(q))]
            with np.errstate(divide="ignore", invalid="ignore"):
                inside = inside + (np.log(sums) + base + gammaln(n + 1))[block.limits]
                means.append([(change / sums)[block.limits] for change in changes])
        posterior = np.exp(inside - np.logaddexp.reduce(inside))
        wanted = [
            z + float(posterior[posterior > 0] @ change[posterior > 0])
            for block, of in zip(seen.blocks, means, strict=True)
            for z, change in zip(block.noisy, of, strict=True)
        ]
        value, found = rows_of(seen).likelihood(np.log(np.concatenate(p)))
        assert value == pytest.approx(float(np.logaddexp.reduce(inside)), rel=1e-11)
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11 * n)
        known = JointTables(seen, list(map(np.ones, cells)), list(map(np.log, p)))
        assert known.log_evidence == pytest.approx(value, rel=1e-11)
        np.testing.assert_allclose(np.concatenate(known.count_means), found, rtol=1e-9, atol=1e-11 * n)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("zero_sum", [True, False])
@pytest.mark.parametrize("cells", [1, 4])
def test_compiled_programs_are_the_python_that_stands_there(cells, zero_sum, known):
    """Sums, the sums backwards, and draws, by the interpreter and compiled; a line that is off would show in one."""
    most, rng = 6, np.random.default_rng(cells)
    noisy = np.where(np.arange(cells) % 4 == 3, -1.0, rng.integers(0, 9, cells))
    parameters = np.log(rng.dirichlet(np.ones(cells) * 3)) if known else 10.0 ** rng.uniform(-1, 1, cells)
    near = -0.3 * np.abs(np.arange(-most, most + 1.0))
    given = parameters, known, noisy, most, near, zero_sum
    plain, fast = joint_rows._table(*given), joint_rows.summed()(*given)
    for wanted, found in zip(plain, fast, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-300)
    lists, ends = fast[:5], fast[5]
    weights = rng.uniform(size=ends.shape) * (ends > 0)
    compiled = joint_rows.backwards()(*lists, weights)
    for wanted, found in zip(joint_rows._backwards(*lists, weights), compiled, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    possible = np.flatnonzero(ends[0] > 0) if zero_sum else np.argwhere(ends > 0)
    gains, losses = (possible, possible) if zero_sum else possible.T.copy()
    uniforms = rng.random((len(gains), 2 * cells))
    drawn = joint_rows.drawn()(*lists, gains, losses, uniforms)
    np.testing.assert_array_equal(drawn, joint_rows._drawn(*lists, gains, losses, uniforms))
    assert np.array_equal(np.maximum(drawn, 0).sum(axis=1), gains)
    assert np.array_equal(np.maximum(-drawn, 0).sum(axis=1), losses)


STRONG = {
    # The evidence was exp(-12) of what it is: sums by which all had to be scaled were no doubles.
    "noise below 0": ([-2, 3, -9, 18, -14, 10, 10], [2.4e4, 6e6, 1.3e5, 1.3e6, 5.8e7, 7.6e7, 1.1e5], 44),
    "all counts are 0": ([0, 0, -1, -2, 3, 5, -2, -1], [1.5e4, 9.4e5, 2e3, 2e6, 2e5, 1e5, 5e7, 3e3], 25),
    "weak and strong": ([5, -3, 0, 40, 1], [1e-6, 1e6, 1e-3, 1e-8, 300.0], 50),
}


@pytest.mark.parametrize("name", STRONG)
def test_priors_of_any_strength(name):
    noisy, alpha, most = (np.array(part) for part in STRONG[name])
    found = RadialPosterior(
        BlockLikelihood(Ball(len(noisy), True), noisy.astype(float), np.arange(most + 1)), alpha, None, None
    )
    of_cell, base = weights_of(
        lambda x: gammaln(x + alpha[:, None]) - gammaln(x + 1) - gammaln(alpha)[:, None], noisy, int(most)
    )
    n, size = noisy.sum(), alpha.sum()
    sums = np.diag(cell_by_cell(of_cell, int(most)))
    logs = np.log(sums.sum()) + base + gammaln(n + 1) + gammaln(size) - gammaln(n + size)
    assert found.log_inside[-1] == pytest.approx(float(logs), rel=1e-6, abs=1e-5)
    means = [z + float(np.trace(cell_by_cell(of_cell, int(most), marked=k)) / sums.sum()) for k, z in enumerate(noisy)]
    cells_found = found.marginals(found.weights(np.full(most + 1, -float(logs))))
    np.testing.assert_allclose([cell.values @ cell.numbers for cell in cells_found], means, rtol=1e-5, atol=1e-6)


def test_probabilities_are_those_of_the_noisy_counts_to_the_last_digit():
    """No step is likelier than none: sums were scaled by no step, and none of them was a double."""
    noise = JointNoise([2, 2], 20.0, zero_sum=True)
    for noisy in ([239.0, 261.0, 250.0, 250.0], [500.0, 0.0, 500.0, 0.0]):
        seen, p = noise.joint_likelihoods(noisy), (np.array(noisy) + 0.5) / 501
        value, means = rows_of(seen).likelihood(np.log(p))
        inside, of_first = seen.log_weights.copy(), []
        for block, q in zip(seen.blocks, p.reshape(2, 2), strict=True):
            x = np.arange(501.0)
            logs = gammaln(501) - gammaln(x + 1) - gammaln(501 - x) + x * np.log(q[0]) + (500 - x) * np.log(q[1])
            near = [np.abs(x - block.noisy[0]) <= limit for limit in block.limits]
            inside += [logsumexp(logs[some]) for some in near]
            of_first.append([np.exp(logs[some]) @ x[some] / np.exp(logs[some]).sum() for some in near])
        assert value == pytest.approx(logsumexp(inside), rel=1e-12)
        first = np.array(of_first) @ np.exp(inside - logsumexp(inside))
        np.testing.assert_allclose(means, np.stack([first, 500 - first], axis=1).ravel(), rtol=1e-11)


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
    for value, found in (fixed.likelihood(logs), free.likelihood(logs, noisy)):
        assert float(value) == expected
        np.testing.assert_array_equal(found, means)


def test_a_released_table_takes_it():
    """The likelihood of one table of a joint release: the counts of the other are summed over, with its flat prior."""
    with pm.Model():
        for name, cells in (("p", 3), ("q", 4)):
            shares = pm.Dirichlet(name, np.ones(cells))
            pm.Multinomial(f"{name}_counts", n=20, p=shares, observed=[20] + [0] * (cells - 1))
        release = dirdp.sample(dirdp.PureDP(epsilon=1.0), mechanism="joint")
    output = open_release(release).release.output
    noisy = np.concatenate([output[name].values[0] for name in ("p", "q")])
    p = np.array([0.5, 0.3, 0.2])
    first, second = (np.array(list(tables_of((cells,), 20)), dtype=float) for cells in (3, 4))
    noise = open_release(release).tables["p"].mechanism.shared_noise
    seen = noise.joint_likelihoods(noisy)
    chances = gammaln(21) + first @ np.log(p) - gammaln(first + 1).sum(axis=1)
    both = seen.log_likelihood([first[:, None], second]) - np.log(len(second))
    value = float(dirdp.release_logp(release, p, table="p").eval())
    assert value == pytest.approx(logsumexp(chances[:, None] + both), rel=1e-11)


def test_work_is_stated_before():
    assert multiplications(2, 10**6) == 0
    assert multiplications(3, 9) == 400
    assert multiplications(5, 9) == 2800
    # From some number of cells on each takes as many.
    assert multiplications(9, 9) - multiplications(8, 9) == multiplications(30, 9) - multiplications(29, 9) == 2000
