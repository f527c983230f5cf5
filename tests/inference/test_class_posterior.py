"""Classes and features together, against all tables there are, and truths among their draws."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import betainc, gammaln, logsumexp
from scipy.stats import chi2

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.observed_table import Beliefs, MechanismOutput
from pymc_dirdp.inference.tables import Posteriors, class_table
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism

PRIORS = {"y": np.array([1.0, 2.0]), "f": np.array([[1.0, 0.5], [2.0, 1.0]]), "g": np.array([[0.7, 1.0], [1.0, 3.0]])}
COUNTS = {"y": np.array([4, 2]), "f": np.array([[3, 1], [0, 2]]), "g": np.array([[2, 2], [1, 1]])}


def geometric(prior, counts, adjacency):
    mechanism = GeometricMechanism(prior, 1.5, adjacency=adjacency)
    return mechanism, mechanism.release(counts, random_seed=5), {}


def draws(prior, counts, adjacency):
    mechanism = DirichletMechanism(prior + 0.3, 0.8, adjacency=adjacency)
    return mechanism, mechanism.sample(counts, released_draws=2, steps=300, random_seed=5), {"steps": 300}


def fast_draw(prior, counts, adjacency):
    mechanism = DirichletMechanism(prior, 0.8, adjacency=adjacency)
    return mechanism, mechanism.sample(counts, sampler="fast", random_seed=5), {"sampler": "fast"}


def tables(output_of, adjacency="replace-one", counts=COUNTS, priors=PRIORS):
    found = {}
    for name, prior in priors.items():
        mechanism, values, options = output_of(prior, counts[name], adjacency)
        if adjacency == "replace-one":
            options |= {"n_records": int(counts[name].sum())}
        found[name] = MechanismOutput(mechanism, values, prior=prior, name=name, **options)
    return found


def log_prior(x, prior):
    """Of a row of counts given its total."""
    n, a = x.sum(axis=-1), prior.sum()
    logs = gammaln(n + 1) + gammaln(a) - gammaln(n + a)
    return logs + np.sum(gammaln(x + prior) - gammaln(x + 1) - gammaln(prior), axis=-1)


def every_table(least, most, total):
    """All tables of the three of up to so many records whose rows fit, as rows of ten counts."""
    found = []
    for c in itertools.product(range(most + 1), repeat=2):
        if sum(c) > most or (total is not None and sum(c) != total):
            continue
        rows = [[(k, n - k) for k in range(n + 1)] for n in c]
        found += [np.ravel((c, *f, *g)) for f in itertools.product(*rows) for g in itertools.product(*rows)]
    return np.array([x for x in found if x.min() >= least], dtype=float)


def posteriors(outputs, beliefs, classes=None):
    return Posteriors({name: one.observed_table for name, one in outputs.items()}, beliefs, classes)


def brute_force(outputs, most, total=None):
    x = every_table(max(one.observed_table.least for one in outputs.values()), most, total)
    parts = {"y": x[:, :2], "f": x[:, 2:6].reshape(-1, 2, 2), "g": x[:, 6:].reshape(-1, 2, 2)}
    logs = np.zeros(len(x)) - (0 if total is not None else np.log(most + 1))
    for name, part in parts.items():
        rows = part[:, None] if part.ndim == 2 else part
        for row, prior in enumerate(np.atleast_2d(PRIORS[name])):
            logs += log_prior(rows[:, row], prior)
        one = outputs[name]
        logs += sum(one.mechanism.log_likelihood(y, part, steps=one.steps) for y in one.values)
    return x, np.exp(logs - logsumexp(logs)), float(logsumexp(logs))


def flat(drawn):
    return np.concatenate([drawn[name].counts.reshape(len(drawn[name].counts), -1) for name in PRIORS], axis=1)


@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
@pytest.mark.parametrize("output_of", [geometric, draws, fast_draw])
def test_the_posterior_is_that_of_all_tables(output_of, adjacency):
    private = adjacency == "add-remove"
    outputs = tables(output_of, adjacency)
    beliefs = {name: Beliefs(n_prior=8 if private else None) for name in outputs}
    posterior = posteriors(outputs, beliefs, "y")
    x, probabilities, evidence = brute_force(outputs, 8 if private else 6, None if private else 6)
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-7 if output_of is draws else 1e-9)
    drawn = posterior.draw(20_000, np.random.default_rng(1))
    assert list(drawn) == list(PRIORS)
    for name in ("f", "g"):
        np.testing.assert_array_equal(drawn[name].counts.sum(axis=2), drawn["y"].counts)
        np.testing.assert_allclose(drawn[name].shares.sum(axis=2), 1)
    place = {tuple(map(int, table)): i for i, table in enumerate(x)}

    def p_of(counts):
        seen = np.bincount([place.get(tuple(one), len(x)) for one in counts.tolist()], minlength=len(x) + 1)
        expected = np.append(probabilities, 1e-9) * len(counts)
        rare = expected < 10
        one, other = (np.append(values[~rare], values[rare].sum()) for values in (seen, expected))
        return chi2.sf(np.sum((one - other) ** 2 / other), len(one) - 1)

    assert p_of(flat(drawn)) > 1e-6
    separate = posteriors(outputs, beliefs).draw(20_000, np.random.default_rng(1))
    assert p_of(flat(separate)) < 1e-6
    found = posterior.estimate([0.8])
    means = probabilities @ x
    sds = np.sqrt(probabilities @ x**2 - means**2)
    estimated = np.concatenate([found[name].count_means for name in PRIORS])
    np.testing.assert_allclose(estimated, means, rtol=1e-7)
    np.testing.assert_allclose(np.concatenate([found[name].count_sds for name in PRIORS]), sds, rtol=1e-6)
    for name, first in (("f", 2), ("g", 6)):
        # Shares of the first row, given all tables.
        a, b = (x[:, first + k] + PRIORS[name][0, k] for k in (0, 1))
        assert found[name].share_means[0] == pytest.approx(probabilities @ (a / (a + b)), rel=1e-8)
        low, high = found[name].share_intervals[0, 0]
        # Ends of intervals are those of draws, because totals of rows are not known.
        accuracy = 5 * np.sqrt(0.09 / 20_000) + 1e-3
        assert probabilities @ betainc(a, b, low) == pytest.approx(0.1, abs=accuracy)
        assert probabilities @ betainc(a, b, high) == pytest.approx(0.9, abs=accuracy)


def test_a_guaranteed_least_count_of_a_feature_holds_for_the_classes():
    counts = {"y": np.array([4, 3]), "f": np.array([[3, 1], [1, 2]]), "g": np.array([[2, 2], [1, 2]])}
    outputs = {}
    for name, prior in PRIORS.items():
        mechanism = DirichletMechanism(prior, 0.8, min_count=1)
        values = mechanism.sample(counts[name], sampler="fast", random_seed=5)
        outputs[name] = MechanismOutput(mechanism, values, prior=prior, n_records=7, name=name, sampler="fast")
    posterior = posteriors(outputs, dict.fromkeys(outputs, Beliefs()), "y")
    x, probabilities, evidence = brute_force(outputs, 7, 7)
    assert posterior.log_evidence == pytest.approx(evidence, abs=1e-9)
    drawn = posterior.draw(2000, np.random.default_rng(1))
    assert drawn["y"].counts.min() == 2
    assert min(drawn[name].counts.min() for name in outputs) == 1
    mean, sd = probabilities @ x[:, 0], np.sqrt(probabilities @ x[:, 0] ** 2 - (probabilities @ x[:, 0]) ** 2)
    assert drawn["y"].counts[:, 0].mean() == pytest.approx(mean, abs=5 * sd / np.sqrt(2000))


def test_the_table_of_the_classes_is_found_by_its_axis():
    def seen(f_records=9, **priors):
        return {
            name: MechanismOutput(
                GeometricMechanism(prior, 1.0),
                prior,
                prior=prior,
                n_records=f_records if name == "f" else 9,
                name=name,
            )
            for name, prior in priors.items()
        }

    names = {"y": ("class",), "f": ("class", "f"), "x": ("x",), "deep": ("class", "f", "g")}
    labels = {name: tuple((axis, None) for axis in axes) for name, axes in names.items()}

    def found(**priors):
        tables = {name: one.observed_table for name, one in seen(**priors).items()}
        return class_table({name: replace(one, share_labels=labels[name]) for name, one in tables.items()})

    two, rows = np.ones(2), np.ones((2, 3))
    assert found(y=two, f=rows) == found(f=rows, y=two) == "y"
    # Of other records, which their number tells.
    assert found(y=two, f=rows, f_records=8) is None
    assert found(y=two) is None
    assert found(y=two, x=two) is None
    assert found(y=two, x=two, f=rows) is None
    assert found(y=two, f=np.ones((3, 3))) is None
    assert found(x=two, f=rows) is None
    assert found(y=two, f=rows, deep=np.ones((2, 3, 2))) is None


def test_a_private_number_needs_its_prior():
    outputs = tables(geometric, "add-remove")
    with pytest.raises(ArgumentError, match="n_prior"):
        posteriors(outputs, dict.fromkeys(outputs, Beliefs()), "y")
