"""Tables given one joint release: sums and draws against all data sets, calibration, and the divergences of JOINT."""

import itertools
import math

import numpy as np
import pytest
from scipy.stats import multinomial

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.joint_rows import JointRows
from pymc_dirdp.inference.joint_tables import JointTables, RadialPosterior, given_all_others
from pymc_dirdp.mechanisms.joint import JointNoise, JointTableMechanism, ZeroSumJointTableMechanism
from pymc_dirdp.mechanisms.outputs import BlockLikelihood
from pymc_dirdp.numerics.balls import Ball
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.sampling.bits import Bits
from tests.oracles import drawn_p_value
from tests.oracles import tables_of as every_table

from .posteriors import log_multinomial_dirichlet, share_moments

# A private number of records is at most this, and as likely as any other.
MOST = 7


def up_to(most):
    return lambda totals: np.where(totals <= most, -math.log(most + 1), -np.inf)


CASES = {
    "different tables": (JointNoise([3, 2], 0.5, zero_sum=True), (5, 5), ([1, 0.1, 2], [1, 1]), [3, 3, -1, 0, 5]),
    "unequal records": (
        JointNoise([2, 3], 0.6, records=(2, 1), zero_sum=True),
        (6, 3),
        ([1, 1], [4, 1, 9]),
        [2, 4, 1, 4, -2],
    ),
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
    tables = [
        np.array([x for n in of for x in every_table((d,), n)]) for d, of in zip(noise.cells, numbers, strict=True)
    ]
    log_prior = log_multinomial if are_shares else log_multinomial_dirichlet
    of = [log_prior(x, np.asarray(of_table)) for x, of_table in zip(tables, priors, strict=True)]
    places = list(itertools.product(*(range(len(x)) for x in tables)))
    both = np.array([np.concatenate([x[i] for x, i in zip(tables, place, strict=True)]) for place in places])
    logs = np.array([sum(logs[i] for logs, i in zip(of, place, strict=True)) for place in places])
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


def estimated(output, **beliefs):
    return lambda: dirdp.estimate(output, progressbar=False, **beliefs)


def tables_of(output, priors, cells=(2,), scale=1.0):
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
        (tables_of([3, 1, 2, 2], [[1, 1]], (2, 2)), "priors for 2 tables, got 1"),
        (tables_of([3, 1, 2, 2], [[1, 1], [1, 1, 1]], (2, 2)), r"shape \(2,\), got \(3,\)"),
        (tables_of([2.5, 1], [[1, 1]]), "integers"),
        (tables_of([2, 1, 4], [[1, 1, 1]], (3,), 100.0), "larger epsilon"),
        (tables_of([20, -10], [[1, 1]], scale=0.01), "No table of counts"),
        (radial(most=1501), "larger epsilon"),
        (radial(prior=2), r"shape \(3,\), got \(2,\)"),
        (radial(300, prior=300), "too many possible counts"),
    ],
)
def test_what_is_refused(asked, words):
    with pytest.raises(ArgumentError, match=words):
        asked()


def test_what_one_table_says_of_the_noise_of_another_is_used():
    """A large noise in one table makes that of another likely to be large, so its counts are less certain."""
    first, second = ZeroSumJointTableMechanism.sharing(dirdp.PureDP(epsilon=1.0), [(np.ones(2), 1)] * 2)
    spreads = []
    for far in (0.0, 30.0):
        outputs = [np.array([50.0, 50.0]), np.array([20.0 + far, -far])]
        likelihood, _ = given_all_others([first, second], outputs, [np.ones(2), np.ones(2)])
        (first_cell, _), *_ = JointTables(likelihood, [np.ones(2)]).count_probabilities
        spreads.append(first_cell.mean_and_sd[1])
    assert spreads[1] > 2 * spreads[0]
