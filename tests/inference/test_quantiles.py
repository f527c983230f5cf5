"""Estimates of releases against sums over all counts and totals, and quantiles of shares in pieces of any size."""

from dataclasses import fields
from functools import reduce

import numpy as np
import pytest
from scipy.special import betainc, betaincc, gammaln, logsumexp
from scipy.stats import beta

import pymc_dirdp as dirdp
from pymc_dirdp.inference import quantiles
from pymc_dirdp.inference.estimates import KnownRows
from pymc_dirdp.inference.numbers import Lists
from pymc_dirdp.inference.quantiles import Mixture, share_quantiles, sums_of_others
from pymc_dirdp.mechanisms.geometric import ZeroSumGeometricMechanism
from pymc_dirdp.privacy.people import Contribution

from .posteriors import log_convolved

ENDS = np.array([0.025, 0.25, 0.5, 0.975])
PROB = np.array([0.001, 0.5, 0.95, 0.9999])
LEVELS = np.stack([(1 - PROB) / 2, (1 + PROB) / 2], axis=1)
# How far quantiles of 20,000 draws may be from their levels.
OF_DRAWS = 5 * np.sqrt(LEVELS * (1 - LEVELS) / 20_000) + 1e-3


def mixture(alpha, counts):
    """As many Beta distributions for each cell as there are tables of counts, equally likely."""
    counts = np.asarray(counts, dtype=float)
    cell = np.broadcast_to(np.arange(len(alpha)), counts.shape)
    others = counts.sum(axis=1, keepdims=True) - counts
    masses = np.full(counts.shape, 1 / len(counts))
    own, rest = np.asarray(alpha, dtype=float), sums_of_others(np.asarray(alpha, dtype=float)[None])[0]
    first, second, masses, cell = (values.ravel() for values in (own + counts, rest + others, masses, cell))
    return Mixture(first, second, masses, cell, len(own))


@pytest.mark.parametrize("room", [1, 7, 300])
def test_pieces_of_any_size_give_the_same_numbers(room, monkeypatch):
    """Found by attack: a piece that held one cell was taken for a table of one category, whose share is 1."""
    prior = np.array([[1, 0.5, 2], [0.2, 1, 1]])
    mechanism = ZeroSumGeometricMechanism(prior, 2.0, contribution=Contribution(1, ("each",)))
    output = dirdp.mechanisms.MechanismOutput(mechanism, [[3, 6, -1], [5, -2, 5]], prior=prior, n_records=16)
    wanted = dirdp.estimate(output).tables["p"]
    assert np.all((wanted.share_intervals > 0) & (wanted.share_intervals < 1))
    for function in (KnownRows.share_quantiles, quantiles.share_quantiles):
        monkeypatch.setitem(function.__kwdefaults__, "at_a_time", room)
    found = dirdp.estimate(output).tables["p"]
    for field in ("share_intervals", *(field.name for field in fields(wanted))):
        one, other = getattr(found, field), getattr(wanted, field)
        if not isinstance(other, str) and field != "share_quantiles":
            np.testing.assert_allclose(one, other, rtol=1e-11)


def test_the_share_of_the_only_cell_is_1():
    found = mixture([0.3], [[5], [7], [8]])
    assert np.all(share_quantiles(found, ENDS) == 1)
    assert [values.tolist() for values in found.moments] == [[1.0], [0.0]]


SMALL = [
    ([1e-3, 1e-3, 1e-3], [[0, 0, 0]]),
    ([1e-3, 1e-3, 1e-3], [[1, 0, 0]]),
    ([1e-3, 1e-3], [[0, 1], [1, 0]]),
    ([1e-3, 50.0], [[0, 9000], [3, 8997]]),
    ([0.5, 0.5], [[0, 100], [2, 98]]),
    ([0.386, 0.68], [[4, 0], [3, 1]]),
    ([1e-8, 1.0], [[0, 1]]),
    ([1e9, 1e-3], [[0, 0]]),
    ([9.9, 10.1], [[0, 0]]),
]


@pytest.mark.parametrize(("alpha", "counts"), SMALL, ids=str)
def test_small_parameters(alpha, counts):
    """Found by attack: an approximation whose distribution function stays below .95 had no quantile above it."""
    levels = np.array([5e-5, 0.0005, 0.25, 0.4995, 0.5, 0.5005, 0.75, 0.9995, 0.99995, 0.5])
    shares, x = share_quantiles(mixture(alpha, counts), levels), np.array(counts, dtype=float)
    assert np.all(np.diff(shares[np.argsort(levels)], axis=0) >= 0)
    for i, a in enumerate(alpha):
        others = sum(np.delete(alpha, i)) + np.delete(x, i, axis=1).sum(axis=1)
        mix = a + x[:, i], others, np.full(len(x), 1 / len(x))
        assert max(off(mix, share, level, 1e-9) for share, level in zip(shares[:, i], levels, strict=True)) < 1e-9


def test_counts_whose_probabilities_are_listed():
    """Found by a test of the command line: listed probabilities that are not smooth ended in an AttributeError."""
    weights = np.random.default_rng(1).dirichlet(np.full(200, 0.3))
    counts = Lists.whole(np.array([300, 301]), np.array([200, 200]), np.log([*weights, *weights[::-1]]))
    found = KnownRows(np.array([[0.5, 0.5]]), np.array([800]), counts).share_quantiles(ENDS)
    first = 300 + np.arange(200)
    np.testing.assert_allclose(beta.cdf(found[:, :1], 0.5 + first, 800.5 - first) @ weights, ENDS, atol=1e-8)
    second = 800 - first
    np.testing.assert_allclose(beta.cdf(found[:, 1:], 0.5 + second, 800.5 - second) @ weights, ENDS, atol=1e-8)


def test_a_quantile_that_is_not_found_is_an_error_of_the_library(monkeypatch):
    monkeypatch.setitem(quantiles._root.__kwdefaults__, "steps", 1)
    with pytest.raises(dirdp.errors.InternalError, match="report") as caught:
        share_quantiles(mixture([0.3, 1.0], [[5, 2], [7, 0], [0, 7]]), ENDS)
    assert not any(letter.isdigit() for letter in str(caught.value))


# Releases at random. Nothing of the library is used but the likelihood of the output: weights of all counts, convolved.

KINDS = ("dirichlet", "urn", "geometric", "discrete", "truncated", "zero-sum")
# What is so many nats below the largest does not matter.
NOTHING = 42.0


def output_of(kind, counts, scale, prior, rng, *, private=False):
    ones, options = np.ones(counts.shape), {"adjacency": "add-remove"} if private else {}
    known, n = {} if private else {"n_records": int(counts.sum())}, int(counts.sum())
    match kind:
        case "dirichlet" | "urn":
            # Of no records a draw has nothing but the parameters of its own.
            mechanism = dirdp.mechanisms.DirichletMechanism(ones if n else 0.4 * ones, 1 / scale, **options)
            known["sampler"] = "fast" if kind == "dirichlet" else "exact"
        case "geometric":
            mechanism = dirdp.mechanisms.GeometricMechanism(ones, scale, **options)
        case "discrete":
            mechanism = dirdp.mechanisms.DiscreteGaussianMechanism(ones, scale, **options)
        case "truncated":
            mechanism = dirdp.papers.TruncatedNoiseMechanism(ones, n, scale)
        case _:
            mechanism = dirdp.mechanisms.ZeroSumGeometricMechanism(ones, scale)
    values = mechanism.releases(counts, 1, random_seed=rng, sampler=known.get("sampler", "fast"))[0]
    if kind == "dirichlet":
        values = np.maximum(values, 1e-300)
    return dirdp.mechanisms.MechanismOutput(mechanism, values, prior=prior, **known)


def random_output(rng, most_records, most_rows):
    """What a mechanism released of random counts, and the largest private number of records; None if it is public."""
    kind = rng.choice(KINDS)
    rows = 1 if kind == "truncated" else int(rng.integers(1, most_rows + 1))
    d = int(rng.integers(2, 6))
    shape = (rows, d) if rows > 1 else (d,)
    n = int(rng.choice([0, 1, int(10 ** rng.uniform(0, np.log10(most_records)))], p=[0.05, 0.05, 0.9]))
    n = max(n, 1) if kind == "truncated" else n
    prior = 10 ** rng.uniform(np.log10(0.05), np.log10(50), shape if rng.random() < 0.7 else 1) * np.ones(shape)
    counts, scale = rng.multinomial(n, rng.dirichlet(prior.ravel())).reshape(shape), 10 ** rng.uniform(-0.5, 1.5)
    public = kind in ("truncated", "zero-sum") or rng.random() < 0.5
    output = output_of(kind, counts, scale, prior, rng, private=not public)
    return output, None if public else n + 10 + int(rng.integers(n + 50))


def share_distributions(output, most):
    """For each row and cell the parameters of Beta distributions and their masses, over counts of the cell and the row.

    With one block all rows share the records, and all divisions of the records are as likely as one another.
    """
    prior, found = output.prior.reshape(-1, output.prior.shape[-1]), {}
    output = output.observed_table
    said, top = output.row_likelihoods(), output.n_records if most is None else most
    for rows, total in output.blocks if len(output.blocks) > 1 else [(np.arange(len(prior)), top)]:
        x, number = np.arange(total + 1.0), np.arange(total + 1)
        cells, factors = {}, {}
        for r in rows.tolist():
            cells[r] = [gammaln(x + a) - gammaln(x + 1) - gammaln(a) for a in prior[r]]
            cells[r] = [
                c + sum(s.cell_loglik(x, np.full(total + 1, i)) for s in said[r]) for i, c in enumerate(cells[r])
            ]
            factors[r] = gammaln(x + 1) - gammaln(x + prior[r].sum()) + sum(s.total_loglik(x) for s in said[r])
        # The number of records of the rows together: any up to the total if it is private.
        log_number = np.where((most is not None) | (x == total), gammaln(x + 1) - gammaln(x + len(rows)), -np.inf)
        for r in rows.tolist():
            others = [reduce(log_convolved, cells[s]) + factors[s] for s in rows.tolist() if s != r]
            elsewhere = reduce(log_convolved, others, np.where(x == 0, 0.0, -np.inf))
            of_row = [logsumexp(log_number[n:] + elsewhere[: total + 1 - n]) for n in range(total + 1)] + factors[r]
            for i, own in enumerate(cells[r]):
                rest = reduce(log_convolved, (c for j, c in enumerate(cells[r]) if j != i))
                less = number - number[:, None]
                logs = np.where(less >= 0, own[:, None] + rest[np.maximum(less, 0)] + of_row, -np.inf)
                count, n = np.nonzero(logs > logs.max() - NOTHING)
                masses = np.exp(logs[count, n] - logs.max())
                first, second = prior[r, i] + count, np.delete(prior[r], i).sum() + n - count
                found[r, i] = first, second, masses / masses.sum()
    return found


def below(mixture, share):
    first, second, masses = mixture
    if not 0 < share < 1:
        return float(share >= 1)
    return float(masses @ (betainc(first, second, share) if share <= 0.5 else betaincc(second, first, 1 - share)))


def off(mixture, share, level, allowed):
    """How far the share is from its level; 0 if more than is allowed, but the next double with all its digits."""
    error = abs(below(mixture, share) - level)
    if error <= allowed:
        return error
    around = below(mixture, np.nextafter(share, -1)) <= level <= below(mixture, np.nextafter(max(share, 4e-308), 2))
    return 0.0 if around else error


def check(output, most=None):
    """Moments and intervals of some cells are those of the sums."""
    found = dirdp.estimate(output, PROB, n_prior=most, progressbar=False).tables["p"]
    mixes = share_distributions(output, most)
    d = output.prior.shape[-1]
    # Where totals of rows are not known, quantiles of shares are those of draws.
    exact = most is None and output.prior.size // d in (1, len(output.observed_table.blocks))
    assert (found.caveat == "") == exact
    for cell in np.random.default_rng(d).permutation(len(mixes))[:4]:
        first, second, masses = mixes[divmod(int(cell), d)]
        share, size, prior = first / (first + second), first + second, output.prior.ravel()[cell]
        mean = masses @ share
        assert found.share_means[cell] == pytest.approx(mean, rel=1e-8)
        sd = np.sqrt(masses @ (share * (1 - share) / (size + 1) + (share - mean) ** 2))
        assert found.share_sds[cell] == pytest.approx(sd, rel=1e-6)
        ends = found.share_intervals[:, cell]
        assert np.all(ends[:, 0] <= ends[:, 1])
        for share, level, allowed in np.broadcast(ends, LEVELS, 1e-8 if exact else OF_DRAWS):
            assert off(mixes[divmod(int(cell), d)], share, level, allowed) < allowed
        counts = np.rint(first - prior)
        mean = masses @ counts
        assert found.count_means[cell] == pytest.approx(mean, rel=1e-8, abs=1e-10)
        assert found.count_sds[cell] == pytest.approx(np.sqrt(masses @ (counts - mean) ** 2), rel=1e-6, abs=1e-7)
        for end, level in np.broadcast(found.count_intervals[:, cell], LEVELS):
            assert masses[counts < end].sum() - 1e-9 < level <= masses[counts <= end].sum() + 1e-9


@pytest.mark.parametrize(
    ("seeds", "records", "rows"),
    [
        (range(20), 150, 2),
        pytest.param(range(20, 36), 150, 2, marks=pytest.mark.thorough),
        # Ends were off by up to .04 in level where noise has kinks, or a share is near 1.
        pytest.param((33, 57), 400, 3, marks=pytest.mark.thorough),
    ],
)
def test_releases_at_random(seeds, records, rows):
    for seed in seeds:
        check(*random_output(np.random.default_rng(seed), records, rows))


@pytest.mark.parametrize("ratio", [0.4, 1.0, 2.5])
def test_counts_that_are_as_uncertain_as_the_share_given_them(ratio):
    """Found by releases at random: steps that were right for either function were too long for their product."""
    width = ratio * np.sqrt(2 * 800 / 4)
    check(output_of("discrete", np.array([415, 385]), width, np.ones(2), np.random.default_rng(1)))
