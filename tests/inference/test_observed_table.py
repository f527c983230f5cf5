"""Outputs of mechanisms as public verbs read them, and what cannot be read; `test_contract.py` has the posteriors."""

import itertools

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import dlaplace

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.observed_table import MechanismOutput
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism, ZeroSumGeometricMechanism
from pymc_dirdp.papers.hellinger import HellingerMechanism
from pymc_dirdp.papers.simplex_mechanism import SimplexDomain, SimplexMechanism
from pymc_dirdp.papers.truncated_noise import TruncatedNoiseMechanism
from pymc_dirdp.privacy.people import Contribution
from tests.oracles import tables_of

from .posteriors import log_multinomial_dirichlet
from .test_contract import cut_noise

N, PRIOR, X = 12, np.array([1.0, 0.5, 2.0]), np.array([7, 4, 1])
ALPHA, R = np.array([0.7, 1.0, 2.0]), 0.4
SIMPLEX = SimplexMechanism(24, SimplexDomain(2, eta=0.05, etabar=0.05, b=0.4))
PUBLIC = {"n_records": N}


def truncated(scale, **options):
    return TruncatedNoiseMechanism(PRIOR, N, scale, **options)


def test_analyse_and_estimate_take_an_output_or_several():
    mechanism = truncated(2.0)
    first = MechanismOutput(mechanism, [6, 5, 1], prior=PRIOR, name="hair")
    analysis = dirdp.analyse(first, 50, chains=1, random_seed=1)
    assert analysis["posterior"]["hair"].dims == ("chain", "draw", "hair_dim_0")
    assert set(np.unique(analysis["latent_counts"]["hair"].sum("hair_dim_0"))) == {N}
    np.testing.assert_array_equal(analysis["observed_data"]["hair"], [6, 5, 1])
    assert analysis.attrs["conditional_on"] == "hair: a prior of your own of the shares; 12 records, which is public"
    assert list(dirdp.estimate(first).frame().index) == ["hair[0]", "hair[1]", "hair[2]"]
    # Another mechanism used the same records.
    second = MechanismOutput(GeometricMechanism(PRIOR, 1.5), [8, 3, 0], prior=PRIOR, n_records=N, name="hair")
    both = dirdp.estimate([first, second]).tables["hair"]
    tables = np.array(list(tables_of((3,), N)))
    logs = [cut_noise(mechanism)([6, 5, 1], x, None) + dlaplace.logpmf([8, 3, 0] - x, 1 / 1.5).sum() for x in tables]
    logs += log_multinomial_dirichlet(tables, PRIOR)
    assert both.log_evidence == pytest.approx(logsumexp(logs), abs=1e-10)
    np.testing.assert_allclose(both.count_means, np.exp(logs - logsumexp(logs)) @ tables, rtol=1e-10)
    # Noisy tables may be the same by chance.
    again = MechanismOutput(mechanism, [6, 5, 1], prior=PRIOR, name="hair")
    alone = dirdp.estimate(first).tables["hair"]
    assert np.all(dirdp.estimate([first, again]).tables["hair"].count_sds < alone.count_sds)


def test_lists_of_outputs_are_checked():
    first, other = (MechanismOutput(truncated(2.0), [6, 5, 1], prior=PRIOR, name=name) for name in "pq")
    y = DirichletMechanism(ALPHA, R).sample(X, random_seed=1)
    drawn = [MechanismOutput(DirichletMechanism(ALPHA, R), y, prior=PRIOR, n_records=N) for _ in range(2)]
    for wrong, words in (
        ([], "at least one"),
        ([first, None], "both kinds"),
        ([first, other], "tables p and another q"),
        ([first, first], "twice"),
        (drawn, "twice"),
    ):
        with pytest.raises(ArgumentError, match=words):
            dirdp.analyse(wrong)
    for prob in ([], [0.0], [1.0], [2]):
        with pytest.raises(ArgumentError, match="prob"):
            dirdp.estimate(first, prob)


PAIRS = np.array([[1.0, 0.5], [2.0, 1.0]])
EACH = ZeroSumGeometricMechanism(PAIRS, 2.0, contribution=Contribution(1, ("each",)))
NOISE, DRAW = GeometricMechanism(PRIOR, 1.0), DirichletMechanism(ALPHA, R)
FAST = PUBLIC | {"sampler": "fast"}


@pytest.mark.parametrize(
    ("mechanism", "values", "options", "words"),
    [
        (3, [1, 2, 3], {}, "Expected a mechanism, got an int"),
        (NOISE, [1, 2, 3], {}, "is public. Pass n_records"),
        (GeometricMechanism(PRIOR, 1.0, adjacency="add-remove"), [1, 2, 3], PUBLIC, "private. Leave n_records out"),
        (NOISE, [1, 2, 3.5], PUBLIC, "exact sampler of this mechanism cannot return this output"),
        (NOISE, [1, 2], PUBLIC, "shape of the prior"),
        (NOISE, np.empty((0, 3)), PUBLIC, "shape of the prior"),
        (NOISE, [1, 2, np.nan], PUBLIC, "finite numbers"),
        (NOISE, "abc", PUBLIC, "finite numbers"),
        (NOISE, [1, 2, 3], PUBLIC | {"steps": 9}, "does not draw from an urn"),
        (NOISE, [1, 2, 3], PUBLIC | {"name": "a/b"}, "name"),
        (NOISE, [1, 2, 3], {"n_records": 2.5}, "n_records"),
        (DRAW, [0.5, 0.3, 0.2], PUBLIC, "exact sampler of this mechanism cannot return this output"),
        (DRAW, [0.5, 0.3, 0.2], PUBLIC | {"steps": 0}, "steps"),
        (DRAW, [0.5, 0.3, 0.20001], FAST, "add up to 1"),
        (DRAW, [0.5, 0.5, 0.0], FAST, "add up to 1"),
        (SIMPLEX, [0.5, 0.6, -0.1], FAST, "add up to 1"),
        (SIMPLEX, [0.5, 0.3, 0.2], {"sampler": "fast"}, "is public. Pass n_records"),
        (SIMPLEX, [0.5, 0.3, 0.2], {"sampler": "fast", "n_records": 2}, "n_records"),
        (truncated(2.0), [6, 5, 1], {"n_records": 13}, "n_records=12"),
        (truncated(2.0), [6, 5, 2], {}, "last cell"),
        (truncated(2.0), [6, 7, 0], {}, "last cell"),
        (truncated(2.0), [6, 13, 0], {}, "0 to 12"),
        (truncated(2.0), [0.5, 0.3, 0.2], {}, "not draws"),
        (truncated(2.0, total="printed"), [6, 7, 1], {}, "last cell"),
        (EACH, [[[3, 2], [1, 4]], [[4, 2], [1, 3]]], {"prior": PAIRS, "n_records": 10}, "for the same counts"),
        (HellingerMechanism(PRIOR[:2], N, 1.0), [6, 5], {"prior": PRIOR[:2]}, "adds up to"),
        (HellingerMechanism(PRIOR, N, 0.8), [6, 5, 1], {}, r"not a product over cells.*Truncated.*log_likelihood"),
    ],
)
def test_what_cannot_be_read_is_refused(mechanism, values, options, words):
    with pytest.raises(ArgumentError, match=words):
        MechanismOutput(mechanism, values, **({"prior": PRIOR} | options))


def test_what_any_output_says_of_totals_and_least_counts_holds_for_all():
    drawn = DirichletMechanism(PAIRS, 0.8, min_count=1)
    y = drawn.sample([[4, 1], [2, 3]], random_seed=1, sampler="fast")
    outputs = [
        MechanismOutput(EACH, [[5, 0], [0, 5]], prior=PAIRS, n_records=10),
        MechanismOutput(ZeroSumGeometricMechanism(PAIRS, 2.0), [[7, 0], [1, 2]], prior=PAIRS, n_records=10),
        MechanismOutput(drawn, y, prior=PAIRS, n_records=10, sampler="fast"),
    ]
    for order in itertools.permutations(outputs):
        found = dirdp.estimate(list(order), [0.999], progressbar=False).tables["p"]
        np.testing.assert_allclose(found.count_means.reshape(2, 2).sum(axis=1), 5)
        assert found.count_intervals.min() == 1
