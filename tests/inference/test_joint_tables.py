"""Tables given one joint release: against all data sets, sums cell by cell in long doubles, and limits."""

import itertools
import math

import numpy as np
import pymc as pm
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import binom, multinomial

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference import joint_rows
from pymc_dirdp.inference.joint_rows import JointRows, multiplications
from pymc_dirdp.inference.joint_tables import JointTables, RadialPosterior
from pymc_dirdp.inference.noisy_rows import noisy_rows
from pymc_dirdp.inference.numbers import ImpossibleError
from pymc_dirdp.inference.observed_table import Beliefs
from pymc_dirdp.mechanisms.joint import JointNoise, JointTableMechanism, ZeroSumJointTableMechanism
from pymc_dirdp.mechanisms.outputs import BlockLikelihood
from pymc_dirdp.numerics.balls import Ball
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.releases.opened import open_release
from pymc_dirdp.sampling.bits import Bits
from tests.oracles import drawn_p_value, tables_of

from .posteriors import log_multinomial_dirichlet, share_moments

# A private number of records is at most this, and as likely as any other.
MOST = 7


def up_to(most):
    return lambda totals: np.where(totals <= most, -math.log(most + 1), -np.inf)


CASES = {
    "different tables": (JointNoise([3, 2], 0.5, zero_sum=True), (5, 5), ([1, 0.1, 2], [1, 1]), [3, 3, -1, 0, 5]),
    "unequal records": (JointNoise([2, 3], 0.6, (2, 1), zero_sum=True), (6, 3), ([1, 1], [4, 1, 9]), [2, 4, 1, 4, -2]),
    "far off": (JointNoise([3, 2], 0.4, zero_sum=True), (4, 2), ([1, 1, 1], [1, 1]), [-6, 12, -2, 2, 0]),
    "strong priors": (JointNoise([3, 2], 5.0, zero_sum=True), (5, 3), ([30, 1e4, 1e-3], [1e5, 1]), [-9, 16, -2, 1, 2]),
    # More pairs of sums than norms: the matrix of the sums takes their place.
    "many cells": (JointNoise([6], 0.2, zero_sum=True), (4,), ([1, 0.5, 2, 1, 1, 3],), [2, -1, 1, 0, 0, 2]),
    "private": (JointNoise([2, 3], 0.5), (None, None), ([1, 0.2], [3, 1, 1]), [4, -1, 1, 3, -2]),
    "private and replaced": (JointNoise([1, 3], 1.5, (1, 2)), (None, None), ([1], [30, 1e4, 1e-3]), [4, -9, 16, -2]),
}


def log_multinomial(x, p):
    return multinomial.logpmf(x, x.sum(axis=-1), p)


def by_enumeration(noise, totals, priors, output, are_shares=False):
    """All tables, the logarithms of their posterior, and the evidence."""
    numbers = [range(MOST + 1) if n is None else [n] for n in totals]
    tables = [np.array([x for n in of for x in tables_of((d,), n)]) for d, of in zip(noise.cells, numbers, strict=True)]
    log_prior = log_multinomial if are_shares else log_multinomial_dirichlet
    of = [log_prior(x, np.asarray(of_table)) for x, of_table in zip(tables, priors, strict=True)]
    both = np.array([np.concatenate(x) for x in itertools.product(*tables)])
    logs = np.array([sum(of_tables) for of_tables in itertools.product(*of)])
    logs += [float(noise.log_probability(np.subtract(output, x))) for x in both]
    logs -= totals.count(None) * math.log(MOST + 1)
    evidence = np.logaddexp.reduce(logs)
    return both, logs - evidence, evidence


@pytest.mark.parametrize("are_known", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_sums_and_draws_are_those_over_all_data_sets(name, are_known):
    noise, totals, priors, output = CASES[name]
    shares = [np.arange(1.0, d + 1) / sum(range(d + 1)) for d in noise.cells]
    log_shares = [np.log(p) for p in shares] if are_known else None
    seen = noise.joint_likelihoods(np.array(output, dtype=float))
    found = JointTables(seen, priors, log_shares, up_to(MOST))
    both, logs, evidence = by_enumeration(noise, totals, shares if are_known else priors, output, are_known)
    posterior = np.exp(logs)
    assert found.log_evidence == pytest.approx(evidence, abs=1e-9)
    np.testing.assert_allclose(np.concatenate(found.count_means), posterior @ both, rtol=1e-9, atol=1e-12)
    if are_known and None not in totals:
        # The compiled likelihood.
        value, means = JointRows.of(seen.blocks, seen.log_weights, published=True).likelihood(
            np.concatenate(log_shares)
        )
        assert value == pytest.approx(evidence, abs=1e-9)
        np.testing.assert_allclose(means, posterior @ both, rtol=1e-9, atol=1e-12)
    cells = [cell for table in found.count_probabilities for cell in table]
    for column, cell in zip(both.T, cells, strict=True):
        wanted = [posterior[column == count].sum() for count in cell.numbers]
        np.testing.assert_allclose(cell.values, wanted, rtol=1e-8, atol=1e-14)
    drawn = np.concatenate(found.counts(10_000, np.random.default_rng(6)), axis=1)
    assert drawn_p_value(drawn, both, posterior) > 1e-6


def test_large_tables_and_large_priors():
    """Priors of any size leave no sum empty, and the means keep their total."""
    noise, rng = JointNoise([12, 2, 5], 2.0, zero_sum=True), np.random.default_rng(1)
    x = np.concatenate([rng.multinomial(10**6, rng.dirichlet(np.ones(d))) for d in noise.cells])
    output = x + noise.exact(x.shape, Bits(3)).astype(float)
    for alpha in (1e-3, 1.0, 1e5):
        found = JointTables(noise.joint_likelihoods(output), [np.full(d, alpha) for d in noise.cells])
        assert all(means.sum() == pytest.approx(10**6, rel=1e-12) for means in found.count_means)
        assert math.isfinite(found.log_evidence)
    assert all(np.all(counts.sum(axis=1) == 10**6) for counts in found.counts(50, rng))


ANSWERS = np.array([[2.0, 5.0, -1.0], [1.0, 0.0, 5.0]])
PRIOR = np.array([[1.0, 0.3, 2.0], [1.0, 1.0, 1.0]])


def output_of(values=ANSWERS, prior=PRIOR, n=12, make=ZeroSumJointTableMechanism, parts=("each",), **options):
    """Of a survey; without a number of records its totals are private."""
    known = {"n_records": n} if n else {}
    if not n:
        make, options = JointTableMechanism, {"adjacency": "add-remove"}
    mechanism = make(np.ones((2, 3)), 0.5, contribution=Contribution(1, parts), **options)
    return dirdp.mechanisms.MechanismOutput(mechanism, values, prior=prior, **known)


OUTPUT, PRIVATE = output_of(), output_of(n=None)


def test_rows_that_share_their_records_are_averages_over_draws():
    output = output_of(parts=())
    both, logs, evidence = by_enumeration(output.mechanism.noise, (12,), [PRIOR.ravel()], ANSWERS.ravel())
    found = dirdp.estimate(output, progressbar=False).tables["p"]
    assert found.log_evidence == pytest.approx(evidence, abs=1e-9)
    np.testing.assert_allclose(found.count_means, np.exp(logs) @ both, rtol=1e-9)
    means, sds = share_moments(np.exp(logs), both.reshape(-1, 2, 3), PRIOR)
    np.testing.assert_allclose(found.share_means, means, atol=5 * sds.max() / np.sqrt(20_000))
    np.testing.assert_allclose(found.share_sds, sds, rtol=0.05)
    assert found.caveat == "averages over exact draws"
    # Nor is there a compiled likelihood, and neither for another number of records.
    assert all(noisy_rows(of.observed_table, Beliefs()) is None for of in (output, output_of(n=6)))


def estimated(output, **beliefs):
    return lambda: dirdp.estimate(output, progressbar=False, **beliefs)


def joint_tables(output, priors, cells=(2,), scale=1.0):
    return lambda: JointTables(JointNoise(list(cells), scale, zero_sum=True).joint_likelihoods(output), priors)


def radial(cells=3, most=1500, prior=3):
    block = BlockLikelihood(Ball(cells, zero_sum=False), np.zeros(cells), np.arange(most + 1))
    return lambda: RadialPosterior(block, np.ones(prior), None, None)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda: output_of(ANSWERS.ravel(), PRIOR.ravel()), "Reshape it"),
        (lambda: output_of(np.stack([ANSWERS, ANSWERS])), "inference cannot combine them"),
        (estimated([OUTPUT, output_of(ANSWERS[:, ::-1])]), "Analyse each release separately"),
        (estimated(OUTPUT, row_prior=[1, 1]), "row_prior"),
        (estimated(output_of(n=6)), "sum to 12 records"),
        (estimated(PRIVATE), "n_prior"),
        (estimated(PRIVATE, n_prior=MOST, row_prior=[1, 1]), "row_prior"),
        (estimated(output_of(make=JointTableMechanism)), "the numbers of records of its rows are private"),
        (joint_tables([3, 1, 2, 2], [[1, 1]], (2, 2)), "priors for 2 tables, got 1"),
        (joint_tables([3, 1, 2, 2], [[1, 1], [1, 1, 1]], (2, 2)), r"shape \(2,\), got \(3,\)"),
        (joint_tables([2.5, 1], [[1, 1]]), "integers"),
        (joint_tables([2, 1, 4], [[1, 1, 1]], (3,), 100.0), "larger epsilon"),
        (joint_tables([20, -10], [[1, 1]], scale=0.01), "No table of counts"),
        (radial(most=1501), "larger epsilon"),
        (radial(prior=2), r"shape \(3,\), got \(2,\)"),
        (radial(300, prior=300), "too many possible counts"),
    ],
)
def test_what_is_refused(asked, words):
    with pytest.raises(ArgumentError, match=words):
        asked()


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
            logs = binom.logpmf(x, 500, q[0])
            near = [np.abs(x - block.noisy[0]) <= limit for limit in block.limits]
            inside += [logsumexp(logs[some]) for some in near]
            of_first.append([np.exp(logs[some]) @ x[some] / np.exp(logs[some]).sum() for some in near])
        assert value == pytest.approx(logsumexp(inside), rel=1e-12)
        first = np.array(of_first) @ np.exp(inside - logsumexp(inside))
        np.testing.assert_allclose(means, np.stack([first, 500 - first], axis=1).ravel(), rtol=1e-11)


def test_noisy_counts_that_no_noise_of_the_scale_leads_to():
    far = JointNoise([3, 2], 0.3, zero_sum=True).joint_likelihoods([-1e4, 1e4 + 5, 0.0, 4.0, 1.0])
    assert rows_of(far).likelihood(np.log([0.2, 0.3, 0.5, 0.5, 0.5])) == (-np.inf, pytest.approx(np.zeros(5)))
    with pytest.raises(ImpossibleError):
        JointTables(far, [np.ones(3), np.ones(2)], [np.log([0.2, 0.3, 0.5]), np.log([0.5, 0.5])])


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
