"""Every likelihood of rows and every posterior of tables, by every mechanism, against sums over all tables of counts.

Likelihoods are those of definitions and of SciPy, and for noise, which `tests/mechanisms` has, those of mechanisms.
"""

import itertools

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp, xlogy
from scipy.stats import dirichlet, dirichlet_multinomial, laplace

from pymc_dirdp.inference.noisy_rows import noisy_rows, private_total
from pymc_dirdp.inference.observed_table import Beliefs, MechanismOutput
from pymc_dirdp.inference.tables import posterior_of
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism, ZeroSumGeometricMechanism
from pymc_dirdp.mechanisms.joint import JointTableMechanism, ZeroSumJointTableMechanism
from pymc_dirdp.papers.hellinger import HellingerMechanism
from pymc_dirdp.papers.simplex_mechanism import SimplexDomain, SimplexMechanism
from pymc_dirdp.papers.truncated_noise import TruncatedNoiseMechanism
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.sampling.exact import urn_counts
from tests.oracles import drawn_p_value, tables_of

from .posteriors import check_estimate, log_multinomial_dirichlet, share_moments

# The counts of one row, of two rows, and of two rows in each of which everybody has one record.
COUNTS = {"row": np.array([7, 4, 1]), "rows": np.array([[2, 1], [1, 3]]), "blocks": np.array([[4, 1], [2, 3]])}
PRIORS = {shape: np.array([1.0, 0.5, 2.0] if shape == "row" else [[1.0, 0.5], [2.0, 1.0]]) for shape in COUNTS}
ROW_PRIOR = np.array([1.5, 0.7])
# A private number of records, or of each block, is at most this.
MOST = {"row": 14, "rows": 9, "blocks": 7}


# Logarithms of the probability of one output given a table of counts, by the definition of each mechanism.


def of_draws(parameters):
    """A Dirichlet distribution, or the urn."""

    def log_likelihood(output, x, steps):
        logs = 0.0
        for y, u in zip(np.atleast_2d(output), np.atleast_2d(parameters(x)), strict=True):
            if np.any(u <= 0):
                return -np.inf
            logs += dirichlet.logpdf(y / y.sum(), u) if steps is None else urn_logpmf(y, u, steps)
        return logs

    return log_likelihood


def urn_logpmf(y, u, steps):
    return dirichlet_multinomial.logpmf(urn_counts(y, steps), u, steps)


def cut_noise(mechanism):
    """Noise that is listed, added, cut at 0 and N, and completed as the definition of the mechanism says."""
    noise, q, n = np.arange(-3000, 3001), np.exp(-1 / mechanism.scale), mechanism.n_records
    if mechanism.noise_kind == "geometric":
        pmf = (1 - q) / (1 + q) * q ** np.abs(noise)
    else:
        # The integral of the density of Laplace from g to g + 1.
        pmf = laplace.cdf(noise + 1, scale=mechanism.scale) - laplace.cdf(noise, scale=mechanism.scale)
    cells = [np.bincount(np.clip(count + noise, 0, n), weights=pmf, minlength=n + 1) for count in range(n + 1)]

    def log_likelihood(output, x, steps):
        probability = 0.0
        for noisy in itertools.product(range(n + 1), repeat=len(x) - 1):
            released, left = [], n
            for z in noisy:
                released.append(min(z, left) if mechanism.total == "fixed" else z)
                left = max(left - z, 0)
            if [*released, left] == list(output):
                probability += np.prod([cells[count][z] for count, z in zip(x[:-1], noisy, strict=True)])
        return np.log(probability)

    return log_likelihood


def hellinger(mechanism):
    def log_likelihood(output, x, steps):
        outcomes, probabilities = mechanism.distribution(x)
        return np.log(probabilities[np.all(outcomes == output, axis=1)].sum())

    return log_likelihood


KINDS = {
    "geometric": lambda prior, **o: GeometricMechanism(prior, 2.0, **o),
    "gaussian": lambda prior, **o: DiscreteGaussianMechanism(prior, 2.0, **o),
    "zero-sum": lambda prior, **o: ZeroSumGeometricMechanism(prior, 2.0, **o),
    "urn": lambda prior, **o: DirichletMechanism(prior + 0.3, 0.4, **o),
    "fast": lambda prior, **o: DirichletMechanism(prior + 0.3, 0.4, **o),
    "min_count": lambda prior, **o: DirichletMechanism(prior + 0.3, 0.4, min_count=1, **o),
}
CASES = [
    *itertools.product([kind for kind in KINDS if kind != "zero-sum"], ("row", "rows"), (False, True)),
    # Rows that divide their records are in `test_joint_tables.py`.
    *itertools.product(["joint"], ("row", "blocks"), (False, True)),
    # Its noise tells the number of records, and of each block.
    *(("zero-sum", shape, False) for shape in COUNTS),
    *((kind, "row", False) for kind in ("fixed", "wide", "printed", "floored", "floored, printed")),
    *((kind, "row", False) for kind in ("simplex urn", "simplex fast")),
    *((kind, "pair", False) for kind in ("hellinger smooth", "hellinger global")),
]


def made(kind, shape, private):
    """The mechanism, its definition, options of the output, and counts."""
    counts = np.array([8, 4]) if shape == "pair" else COUNTS[shape]
    prior = np.array([0.6, 1.0]) if shape == "pair" else PRIORS[shape]
    n, options = int(counts.sum()), {"adjacency": "add-remove"} if private else {}
    known = {} if private else {"n_records": n}
    if shape == "blocks":
        options["contribution"] = Contribution(1, ("each",))
    if kind in KINDS:
        mechanism, definition = KINDS[kind](prior, **options), None
        if isinstance(mechanism, DirichletMechanism):
            definition = of_draws(lambda x: 0.4 * x + prior + 0.3)
            known |= {"steps": 200} if kind == "urn" else {"sampler": "fast"}
    elif kind == "joint":
        mechanism = (JointTableMechanism if private else ZeroSumJointTableMechanism)(prior, 0.5, **options)
        definition = lambda output, x, steps: mechanism.noise.log_probability((output - x).ravel())  # noqa: E731
    elif kind.startswith("simplex"):
        mechanism = SimplexMechanism(24, SimplexDomain(2, eta=0.05, etabar=0.05, b=0.4))
        definition = of_draws(lambda x: 24 * x / n)
        known |= {"steps": 200} if "urn" in kind else {"sampler": "fast"}
    elif kind.startswith("hellinger"):
        mechanism, known = HellingerMechanism([1.0, 2.0], n, 0.8, sensitivity=kind.split()[1]), {}
        definition = hellinger(mechanism)
    else:
        more = {"total": "printed"} if "printed" in kind else {}
        more |= {"noise_kind": "laplace"} if "floored" in kind else {}
        mechanism = TruncatedNoiseMechanism(prior, n, 2.0 if kind in ("fixed", "floored") else 20.0, **more)
        definition, known = cut_noise(mechanism), {}
    return mechanism, definition, known, counts, prior


def values_of(mechanism, known, counts, draws, seed):
    given = {"sampler": "exact" if "steps" in known else "fast", "steps": known.get("steps")}
    if isinstance(mechanism, SimplexMechanism):
        shares = counts / counts.sum()
        return mechanism.sample(shares, protected=[0, 1], released_draws=draws, random_seed=seed, **given)
    return mechanism.releases(counts, draws, random_seed=seed, **given)


def every_table(counts, shape, private, least):
    numbers = range((1 + (shape == "blocks")) * MOST[shape] + 1) if private else [int(counts.sum())]
    tables = np.array([table for n in numbers for table in tables_of(counts.shape, n) if table.min() >= least])
    if shape != "blocks":
        return tables
    totals = tables.sum(axis=2)
    return tables[np.all(totals <= MOST[shape] if private else totals == 5, axis=1)]


@pytest.mark.parametrize(
    ("kind", "shape", "private", "draws"),
    [
        *((*case, 1) for case in CASES),
        # Inference does not combine joint releases.
        *(pytest.param(*case, 2, marks=pytest.mark.thorough) for case in CASES if case[0] != "joint"),
    ],
)
def test_rows_are_the_sums_over_all_tables(kind, shape, private, draws):
    mechanism, definition, known, counts, prior = made(kind, shape, private)
    rng = np.random.default_rng(draws)
    output = MechanismOutput(mechanism, values_of(mechanism, known, counts, draws, 5), prior=prior, **known)
    table, rows = output.observed_table, prior.ndim > 1
    beliefs = Beliefs(n_prior=MOST[shape] if private else None, row_prior=ROW_PRIOR if shape == "rows" else None)
    tables = every_table(counts, shape, private, table.least)
    if definition is None:
        seen = sum(mechanism.log_likelihood(y, tables) for y in output.values)
    else:
        seen = np.array([sum(definition(y, x, output.steps) for y in output.values) for x in tables])
    # What is believed of the number of records and of the totals of rows.
    above = np.full(len(tables), -np.log(MOST[shape] + 1) * (1 + (shape == "blocks")) if private else 0.0)
    if shape == "rows":
        above += log_multinomial_dirichlet(tables.sum(axis=2), ROW_PRIOR)

    # Given the shares: the value, and expected counts, which are its slopes.
    posterior = posterior_of(table, beliefs)
    for concentration in (1.0, 0.1, 0.0):
        shares = np.maximum(
            rng.dirichlet(np.full(prior.shape[-1], concentration or 1.0), prior.shape[:-1] or None), 1e-200
        )
        if not concentration:
            # The first cell is empty.
            shares[..., 0] = 0
        own = gammaln(tables.sum(axis=-1) + 1) + (xlogy(tables, shares) - gammaln(tables + 1)).sum(axis=-1)
        logs = seen + above + (own.sum(axis=1) if rows else own)
        possible = logsumexp(logs) > -np.inf
        wanted = np.tensordot(np.exp(logs - logsumexp(logs)), tables, 1) if possible else 0 * prior
        with np.errstate(divide="ignore"):
            log_shares = np.log(shares)
        compiled = [noisy_rows(table, beliefs), private_total(table, beliefs)]
        # A list that is not concave has no compiled sum.
        assert "hellinger" not in kind or compiled == [None, None]
        found = [posterior.likelihood(log_shares), *(one.likelihood(log_shares) for one in compiled if one)]
        for value, means in [one for one in found if one is not None]:
            assert value == pytest.approx(logsumexp(logs), rel=1e-9, abs=1e-9)
            np.testing.assert_allclose(np.reshape(means, prior.shape), wanted, rtol=1e-7, atol=1e-9)

    # With the prior of the shares: the evidence, moments, and ends of intervals.
    own = log_multinomial_dirichlet(tables, prior)
    logs = seen + above + (own.sum(axis=1) if rows else own)
    probabilities = np.exp(logs - logsumexp(logs))
    assert posterior.log_evidence == pytest.approx(logsumexp(logs), abs=1e-8)
    if kind == "zero-sum" and shape == "blocks":
        for k, evidence in enumerate(posterior.log_evidences.tolist()):
            x = np.column_stack([np.arange(6), 5 - np.arange(6)])
            terms = sum(ZeroSumGeometricMechanism(prior[k], 2.0).log_likelihood(y[k], x) for y in output.values)
            assert evidence == pytest.approx(logsumexp(terms + log_multinomial_dirichlet(x, prior[k])), abs=1e-8)
    check_estimate(posterior.estimate([0.8]), probabilities, tables, prior)

    # Draws; of other beliefs they are no draws.
    drawn = posterior.draw(5_000, rng)
    assert drawn_p_value(drawn.counts, tables, probabilities) > 1e-6
    wrong = probabilities * np.exp(0.3 * tables.reshape(len(tables), -1)[:, 0])
    assert drawn_p_value(drawn.counts, tables, wrong / wrong.sum()) < 1e-3
    shares, _ = share_moments(probabilities, tables, prior)
    assert np.abs(drawn.shares.reshape(5_000, -1).mean(axis=0) - shares).max() < 0.03
