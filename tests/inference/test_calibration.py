"""Data sets from a prior: the truth lies among draws where they say; misreadings of the outputs fail."""

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import norm

from pymc_dirdp.inference.estimates import draw_shares
from pymc_dirdp.inference.rows import RowPosterior
from pymc_dirdp.inference.tables import CountTree

from .posteriors import dirichlet, geometric, simulated, together, urn

DRAWS = 99
LEVELS = (0.5, 0.8, 0.95)
STEPS = 500


def rank(truth, drawn, rng):
    """Where the truth lies among the draws, ties broken at random: uniform on (0, 1) if both have one distribution."""
    below = (drawn < truth).sum(axis=0) + rng.random(truth.shape) * ((drawn == truth).sum(axis=0) + 1)
    return below / (len(drawn) + 1)


def p_value(ranks):
    """Smallest of the p-values for middle and width of the ranks; two cells have mirror images of one rank."""
    ranks = np.asarray(ranks)
    ranks = ranks[:, :1] if ranks.shape[-1] == 2 else ranks
    found = []
    for score in (ranks - 0.5, (ranks - 0.5) ** 2 - 1 / 12):
        mean = score.reshape(len(ranks), -1).mean(axis=1)
        found.append(2 * norm.sf(abs(mean.mean()) / mean.std() * np.sqrt(len(mean))))
    return min(found)


def coverage(ranks):
    """For each level the share of truths in the central interval, and its standard error."""
    flat = np.asarray(ranks)
    inside = [(np.abs(flat - 0.5) < prob / 2).reshape(len(flat), -1).mean(axis=1) for prob in LEVELS]
    return [(one.mean(), one.std() / np.sqrt(len(one))) for one in inside]


def output_of(kind, x, r, rng):
    """An output of a mechanism: its likelihood, where r may be misread afterwards, and what a naive reader counts."""
    d, ones, n = len(x), np.ones(len(x)), x.sum()
    match kind:
        case "dirichlet" | "three draws":
            ys = np.maximum(rng.dirichlet(r * x + 1, size=3 if kind == "three draws" else 1), 1e-300)
            return lambda r: together(*(dirichlet(y, r, ones) for y in ys)), n * ys.mean(axis=0)
        case "urn":
            seen = rng.multinomial(STEPS, rng.dirichlet(r * x + 1))
            return lambda r: urn(seen, r, ones), n * seen / STEPS
        case "pooled":
            first, y = output_of("dirichlet", x, r, rng)
            second, z = output_of("geometric", x, r, rng)
            return lambda r: together(first(r), second(r)), (y + z) / 2
        case "laplace":
            z = x + rng.laplace(size=d) / r
        case "geometric":
            z = x + rng.geometric(-np.expm1(-r), size=d) - rng.geometric(-np.expm1(-r), size=d)
        case _:
            z = x + rng.normal(size=d) / r
            return lambda r: lambda c, i: -((r * (c - z[i])) ** 2) / 2, np.maximum(z, 0)
    return lambda r: geometric(z, 1 / r), np.maximum(z, 0)


@dataclass(frozen=True)
class Case:
    """A mechanism, cells, records, its parameter, the prior, and the guaranteed least count.

    `sets` is the number of data sets in the table of the documentation. A number of records that is `private` is any
    from 0 to twice the stated one. Of several `rows` the totals are private.
    """

    kind: str
    d: int
    total: int
    r: float
    alpha: float = 1.0
    least: int = 0
    sets: int = 1000
    rows: int = 1
    private: bool = False

    def data(self, rng):
        """Shares and counts of each row from the prior, given that the guarantee is kept."""
        n = int(rng.integers(0, 2 * self.total + 1)) if self.private else self.total
        totals = rng.multinomial(n, rng.dirichlet(np.ones(self.rows))) if self.rows > 1 else [n]
        while True:
            rows = [simulated(self.d, int(m), self.alpha, rng) for m in totals]
            p, x = (np.array(of) for of in zip(*rows, strict=True))
            if x.min() >= self.least:
                return p, x

    def readings(self, rng, *, r=1.0, total=1.0):
        """Truths, each with the draws of an aware reader, who takes r and N for so much larger, or of a naive one.

        A naive reader of draws takes all rows to be equally long.
        """
        (p, x), alpha = self.data(rng), np.full(self.d, self.alpha)
        outputs = [output_of(self.kind, one, self.r, rng) for one in x]
        most = round((1 + self.private) * self.total * total)
        rows = [
            RowPosterior(alpha=alpha, total=most, log_likelihood=likelihood(self.r * r), least=self.least)
            for likelihood, _ in outputs
        ]

        def factor(n):
            return gammaln(self.r * r * n + self.d) if self.kind == "dirichlet" else 0 * n

        log_prior = np.zeros_like if self.private else None
        is_known = self.rows == 1 and not self.private
        posterior = rows[0].batch if is_known else CountTree(rows, [factor] * self.rows, most, log_prior, None)
        counts = posterior.draw(DRAWS, rng) if is_known else posterior.counts(DRAWS, rng)
        counted = np.array([y for _, y in outputs])
        if self.rows > 1 and self.kind == "dirichlet":
            counted *= self.total / self.rows / np.maximum(counted.sum(axis=1, keepdims=True), 1e-300)
        naive = np.tile(counted, (DRAWS, 1, 1))
        found = (p, draw_shares(counts, alpha, rng)), (x, counts), (p, draw_shares(naive, alpha, rng))
        return [(truth.ravel(), drawn.reshape(DRAWS, -1)) for truth, drawn in found]


CASES = {
    "2 cells, N 100, r 1": Case("dirichlet", 2, 100, 1.0),
    "4 cells, N 1000, r 0.1": Case("dirichlet", 4, 1000, 0.1),
    "10 cells, N 1e4, r 0.02": Case("dirichlet", 10, 10_000, 0.02),
    "50 cells, N 1000, r 0.1": Case("dirichlet", 50, 1000, 0.1),
    "50 cells, N 1e4, r 0.5": Case("dirichlet", 50, 10_000, 0.5),
    "10 cells, N 1000, r 0.1, sparse": Case("dirichlet", 10, 1000, 0.1, 0.2),
    "three draws, 4 cells, N 300, r 0.2": Case("three draws", 4, 300, 0.2),
    "urn of 500 steps, 5 cells, N 300, r 0.3": Case("urn", 5, 300, 0.3),
    "at least 5 in each of 4 cells, N 100, r 0.3": Case("dirichlet", 4, 100, 0.3, 1.0, 5),
    "geometric 20, 10 cells, N 1000": Case("geometric", 10, 1000, 1 / 20),
    "geometric 20, 10 cells, N 300, sparse": Case("geometric", 10, 300, 1 / 20, 0.2),
    "Laplace 5, 10 cells, N 1000": Case("laplace", 10, 1000, 1 / 5),
    "Gaussian 6, 50 cells, N 300": Case("gaussian", 50, 300, 1 / 6),
    "a draw and geometric 10, pooled, 4 cells, N 300": Case("pooled", 4, 300, 1 / 10),
    "private N up to 200, geometric 3, 3 cells": Case("geometric", 3, 100, 1 / 3, sets=300, private=True),
    "three private rows of 2 cells, N 120, r 0.3": Case("dirichlet", 2, 120, 0.3, sets=200, rows=3),
    "three private rows of 3 cells, N 300, geometric 8": Case("geometric", 3, 300, 1 / 8, sets=100, rows=3),
}


def ranks_of(case, sets, rng, **misread):
    """Ranks of the shares and of the counts by an aware reading, and of the shares by a naive one."""
    found = [[rank(truth, drawn, rng) for truth, drawn in case.readings(rng, **misread)] for _ in range(sets)]
    return [np.array(ranks) for ranks in zip(*found, strict=True)]


# Misread are the number of records, and the scale of the noise.
FAST = {"4 cells, N 1000, r 0.1": {"total": 1.05}, "geometric 20, 10 cells, N 300, sparse": {"r": 1.6}}


@pytest.mark.parametrize(
    ("name", "sets"),
    [
        *(pytest.param(name, 150, marks=pytest.mark.thorough) for name in FAST),
        *(pytest.param(name, 1000, marks=pytest.mark.slow) for name in CASES),
    ],
)
def test_calibrated(name, sets):
    shares, counts, naive = ranks_of(CASES[name], sets, np.random.default_rng(1))
    for ranks in (shares, counts):
        assert p_value(ranks) > 1e-6
        for prob, (found, error) in zip(LEVELS, coverage(ranks), strict=True):
            # Of few data sets all may hold the truth, and then their own spread says nothing.
            assert abs(found - prob) < 4 * max(error, np.sqrt(prob * (1 - prob) / sets)) + 0.005
    assert p_value(naive) < 1e-6
    if name in FAST:
        shares, counts, _ = ranks_of(CASES[name], sets, np.random.default_rng(4), **FAST[name])
        assert min(p_value(shares), p_value(counts)) < 1e-6
