"""Classes and features together, against all tables there are."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import logsumexp

from pymc_dirdp.inference.observed_table import Beliefs, MechanismOutput
from pymc_dirdp.inference.tables import Posteriors, class_table
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from tests.oracles import drawn_p_value

from .posteriors import check_estimate, log_multinomial_dirichlet

PRIORS = {"y": np.array([1.0, 2.0]), "f": np.array([[1.0, 0.5], [2.0, 1.0]]), "g": np.array([[0.7, 1.0], [1.0, 3.0]])}
COUNTS = {"y": np.array([4, 2]), "f": np.array([[3, 1], [1, 1]]), "g": np.array([[2, 2], [1, 1]])}
# A private number of records is at most this.
MOST = 8
FAST = {"sampler": "fast"}
# What makes a mechanism from a prior, and how it draws.
CASES = {
    "noise": (lambda prior: GeometricMechanism(prior, 1.5), {}),
    "noise, private": (lambda prior: GeometricMechanism(prior, 1.5, adjacency="add-remove"), {}),
    "draws of an urn": (lambda prior: DirichletMechanism(prior + 0.3, 0.8), {"steps": 300}),
    "draws, private": (lambda prior: DirichletMechanism(prior, 0.8, adjacency="add-remove"), FAST),
    "draws, at least 1": (lambda prior: DirichletMechanism(prior, 0.8, min_count=1), FAST),
}


def outputs_of(make, options, known):
    found = {}
    for name, prior in PRIORS.items():
        mechanism = make(prior)
        sampler = "exact" if "steps" in options else "fast"
        given = {"sampler": sampler, "steps": options.get("steps"), "random_seed": 5}
        values = mechanism.releases(COUNTS[name], 2 if options else 1, **given)
        found[name] = MechanismOutput(mechanism, values, prior=prior, name=name, **options, **known)
    return found


def every_table(totals, least):
    """All tables of the three with these numbers of records whose rows fit, as rows of ten counts."""
    found = []
    for n in totals:
        for classes in ((k, n - k) for k in range(n + 1)):
            rows = [[(k, m - k) for k in range(m + 1)] for m in classes]
            found += [np.ravel((classes, *f, *g)) for f in itertools.product(*rows) for g in itertools.product(*rows)]
    return np.array([x for x in found if x.min() >= least])


@pytest.mark.parametrize("case", CASES)
def test_the_posterior_is_that_of_all_tables(case):
    private = "private" in case
    outputs = outputs_of(*CASES[case], {} if private else {"n_records": 6})
    observed = {name: one.observed_table for name, one in outputs.items()}
    beliefs = {name: Beliefs(n_prior=MOST if private else None) for name in outputs}
    posterior = Posteriors(observed, beliefs, "y")
    x = every_table(range(MOST + 1) if private else [6], max(table.least for table in observed.values()))
    parts = {"y": x[:, :2], "f": x[:, 2:6].reshape(-1, 2, 2), "g": x[:, 6:].reshape(-1, 2, 2)}
    logs = np.full(len(x), -np.log(MOST + 1) if private else 0.0)
    for name, part in parts.items():
        own = log_multinomial_dirichlet(part, PRIORS[name])
        logs += own if part.ndim == 2 else own.sum(axis=1)
        one = outputs[name]
        logs += sum(one.mechanism.log_likelihood(y, part, steps=one.steps) for y in one.values)
    evidence = logsumexp(logs)
    logs -= evidence
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-7)

    drawn = posterior.draw(10_000, np.random.default_rng(1))
    assert list(drawn) == list(PRIORS)
    for name in ("f", "g"):
        np.testing.assert_array_equal(drawn[name].counts.sum(axis=2), drawn["y"].counts)
        np.testing.assert_allclose(drawn[name].shares.sum(axis=2), 1)
    counts = np.concatenate([drawn[name].counts.reshape(10_000, -1) for name in PRIORS], axis=1)
    assert drawn_p_value(counts, x, np.exp(logs)) > 1e-6

    found = posterior.estimate([0.8])
    for name, part in parts.items():
        check_estimate(found[name], np.exp(logs), part, PRIORS[name])


TWO, ROWS = np.ones(2), np.ones((2, 3))


@pytest.mark.parametrize(
    ("priors", "records", "classes"),
    [
        ({"y": TWO, "f": ROWS}, {}, "y"),
        ({"f": ROWS, "y": TWO}, {}, "y"),
        # Of other records, which their number tells.
        ({"y": TWO, "f": ROWS}, {"f": 8}, None),
        ({"y": TWO}, {}, None),
        ({"y": TWO, "x": TWO}, {}, None),
        ({"y": TWO, "x": TWO, "f": ROWS}, {}, None),
        ({"y": TWO, "f": np.ones((3, 3))}, {}, None),
        ({"x": TWO, "f": ROWS}, {}, None),
        ({"y": TWO, "f": ROWS, "deep": np.ones((2, 3, 2))}, {}, None),
    ],
)
def test_the_table_of_the_classes_is_found_by_its_axis(priors, records, classes):
    axes = {"y": ("class",), "f": ("class", "f"), "x": ("x",), "deep": ("class", "f", "g")}
    tables = {}
    for name, prior in priors.items():
        n = records.get(name, 9)
        output = MechanismOutput(GeometricMechanism(prior, 1.0), prior, prior=prior, n_records=n, name=name)
        tables[name] = replace(output.observed_table, share_labels=tuple((axis, None) for axis in axes[name]))
    assert class_table(tables) == classes
