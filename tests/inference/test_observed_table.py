"""Outputs of every mechanism by its own draw methods: all tables of twelve records, and what cannot be read."""

import itertools

import numpy as np
import pytest
from scipy.special import gammaln, logsumexp
from scipy.stats import chisquare, dirichlet, dirichlet_multinomial, dlaplace, laplace

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.observed_table import Beliefs, MechanismOutput
from pymc_dirdp.inference.tables import TablePosterior
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.gaussian import DiscreteGaussianMechanism
from pymc_dirdp.mechanisms.geometric import GeometricMechanism
from pymc_dirdp.papers.hellinger import HellingerMechanism
from pymc_dirdp.papers.simplex_mechanism import SimplexDomain, SimplexMechanism
from pymc_dirdp.papers.truncated_noise import TruncatedNoiseMechanism
from pymc_dirdp.sampling.exact import urn_counts

from .posteriors import draw, log_probability
from .test_calibration import p_value, rank

N, PRIOR, X = 12, np.array([1.0, 0.5, 2.0]), np.array([7, 4, 1])
ALPHA, R = np.array([0.7, 1.0, 2.0]), 0.4
SIMPLEX = SimplexMechanism(24, SimplexDomain(2, eta=0.05, etabar=0.05, b=0.4))


def cut_noise(output, x, mechanism):
    """Noise that is listed, added, cut at 0 and N, and completed as the definition of the mechanism says."""
    noise, q = np.arange(-3000, 3001), np.exp(-1 / mechanism.scale)
    if mechanism.noise_kind == "geometric":
        pmf = (1 - q) / (1 + q) * q ** np.abs(noise)
    else:
        # The integral of the density of Laplace from g to g + 1.
        pmf = laplace.cdf(noise + 1, scale=mechanism.scale) - laplace.cdf(noise, scale=mechanism.scale)
    cells = [np.bincount(np.clip(count + noise, 0, N), weights=pmf, minlength=N + 1) for count in x[:-1]]
    probability = 0.0
    for noisy in itertools.product(range(N + 1), repeat=len(cells)):
        released, left = [], N
        for z in noisy:
            released.append(min(z, left) if mechanism.total == "fixed" else z)
            left = max(left - z, 0)
        if [*released, left] == list(output):
            probability += np.prod([cell[z] for cell, z in zip(cells, noisy, strict=True)])
    return np.log(probability)


def of_noise(pmf):
    return lambda output, x, steps: pmf(output - x).sum()


def discrete_gaussian(noise):
    k = np.arange(-300, 301)
    return -(noise**2) / 8 - logsumexp(-(k**2) / 8)


def of_draws(parameters):
    """Of a Dirichlet distribution, or of the urn."""

    def log_likelihood(output, x, steps):
        u = parameters(x)
        if np.any(u <= 0):
            return -np.inf
        if steps is None:
            return dirichlet.logpdf(output / output.sum(), u)
        return dirichlet_multinomial.logpmf(urn_counts(output, steps), u, steps)

    return log_likelihood


DIRICHLET = of_draws(lambda x: R * x + ALPHA)
OF_SIMPLEX = of_draws(lambda x: 24 * x / N)
PUBLIC = {"n_records": N}


def truncated(scale, **options):
    mechanism = TruncatedNoiseMechanism(PRIOR, N, scale, **options)
    return mechanism, lambda output, x, steps: cut_noise(output, x, mechanism)


CASES = {
    "geometric": (GeometricMechanism(PRIOR, 2.0), of_noise(lambda z: dlaplace.logpmf(z, 0.5)), PUBLIC),
    "discrete gaussian": (DiscreteGaussianMechanism(PRIOR, 2.0), of_noise(discrete_gaussian), PUBLIC),
    "urn": (DirichletMechanism(ALPHA, R), DIRICHLET, PUBLIC | {"steps": 200}),
    "default urn": (DirichletMechanism(ALPHA, R), DIRICHLET, PUBLIC),
    "fast": (DirichletMechanism(ALPHA, R), DIRICHLET, PUBLIC | {"sampler": "fast"}),
    "min_count": (DirichletMechanism(ALPHA, R, min_count=1), DIRICHLET, PUBLIC | {"sampler": "fast"}),
    "fixed": (*truncated(2.0), {}),
    "kept, wide": (*truncated(20.0), PUBLIC),
    "printed": (*truncated(20.0, total="printed"), {}),
    "floored": (*truncated(2.0, noise_kind="laplace"), {}),
    "floored, wide": (*truncated(20.0, noise_kind="laplace"), {}),
    "floored, printed": (*truncated(20.0, noise_kind="laplace", total="printed"), {}),
    "simplex urn": (SIMPLEX, OF_SIMPLEX, PUBLIC | {"steps": 200}),
    "simplex fast": (SIMPLEX, OF_SIMPLEX, PUBLIC | {"sampler": "fast"}),
}


def output_of(mechanism, options, draws, seed):
    """By the mechanism's own methods."""
    given = {name: options[name] for name in ("sampler", "steps") if name in options}
    if mechanism is SIMPLEX:
        return mechanism.sample(X / N, protected=[0, 1], released_draws=draws, random_seed=seed, **given)
    if mechanism.output_kind.releases_for(2) == 1:
        return np.stack([mechanism.release(X, random_seed=seed + i) for i in range(draws)])
    return mechanism.sample(X, released_draws=draws, random_seed=seed, **given)


def every_table(least=0, d=3):
    tables = (x for x in itertools.product(range(N + 1), repeat=d) if sum(x) == N and min(x) >= least)
    return np.array(list(tables), dtype=float)


def brute_force(values, log_likelihood, steps, prior=PRIOR, least=0):
    x, a = every_table(least, len(prior)), prior.sum()
    logs = gammaln(N + 1) + gammaln(a) - gammaln(N + a)
    logs = logs + np.sum(gammaln(x + prior) - gammaln(x + 1) - gammaln(prior), axis=1)
    logs += [sum(log_likelihood(output, one, steps) for output in values) for one in x.astype(int)]
    return x, np.exp(logs - logsumexp(logs)), logsumexp(logs)


def row_of(posterior):
    ((_, tree),) = posterior._trees
    return tree.posteriors[0]


@pytest.mark.thorough
@pytest.mark.parametrize("draws", [1, 2])
@pytest.mark.parametrize("case", CASES)
def test_every_table_has_its_probability(case, draws):
    mechanism, log_likelihood, options = CASES[case]
    for seed in range(3):
        values = output_of(mechanism, options, draws, seed)
        output = MechanismOutput(mechanism, values, prior=PRIOR, **options)
        table = output.observed_table
        posterior = TablePosterior(table, Beliefs())
        steps = 10_000 if case == "default urn" else options.get("steps")
        tables, probabilities, evidence = brute_force(output.values, log_likelihood, steps, least=table.least)
        found = np.exp(log_probability(row_of(posterior), tables))
        # What the logarithms of large factorials leave of sixteen digits.
        slack = 1e-9 if case == "default urn" else 1e-12
        np.testing.assert_allclose(found, probabilities, rtol=0, atol=slack)
        assert posterior.log_evidence == pytest.approx(evidence, abs=1e-8 if case == "default urn" else 1e-10)
        estimates = posterior.estimate([0.5])
        np.testing.assert_allclose(estimates.count_means, probabilities @ tables, rtol=1e-8)


@pytest.mark.parametrize("sensitivity", ["smooth", "global"])
def test_two_categories_of_a_hellinger_mechanism(sensitivity):
    mechanism, prior = HellingerMechanism([1.0, 2.0], N, 0.8, sensitivity=sensitivity), np.array([0.6, 1.0])

    def log_likelihood(output, x, _):
        outcomes, probabilities = mechanism.distribution(x)
        return np.log(probabilities[np.all(outcomes == output, axis=1)].sum())

    for first in (0, 5, 12):
        values = np.array([[first, N - first], [7, 5]])
        posterior = TablePosterior(MechanismOutput(mechanism, values, prior=prior).observed_table, Beliefs())
        tables, probabilities, evidence = brute_force(values, log_likelihood, None, prior)
        np.testing.assert_allclose(
            np.exp(log_probability(row_of(posterior), tables)), probabilities, rtol=0, atol=1e-12
        )
        assert posterior.log_evidence == pytest.approx(evidence, abs=1e-10)
        counts = draw(row_of(posterior), 20_000, np.random.default_rng(1)).counts[:, 0]
        order = np.argsort(tables[:, 0])
        assert chisquare(np.bincount(counts, minlength=N + 1), 20_000 * probabilities[order]).pvalue > 1e-6


def test_more_categories_of_a_hellinger_mechanism_have_no_such_distribution_and_a_way_out():
    mechanism = HellingerMechanism(PRIOR, N, 0.8)
    output = mechanism.release(X, random_seed=1)
    with pytest.raises(ArgumentError, match=r"not a product over cells.*TruncatedNoiseMechanism.*log_likelihood"):
        MechanismOutput(mechanism, output, prior=PRIOR)
    # The way out of the message: every possible data set, weighed.
    x = mechanism.candidates
    logs = [dirichlet_multinomial.logpmf(one, PRIOR, N) + float(mechanism.log_likelihood(output, one)) for one in x]
    assert np.exp(logs - logsumexp(logs)) @ x @ np.ones(3) == pytest.approx(N)


def test_analyse_and_estimate_take_an_output_or_several():
    mechanism = TruncatedNoiseMechanism(PRIOR, N, 2.0)
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
    alone = dirdp.estimate(first).tables["hair"]
    assert np.all(both.count_sds < alone.count_sds)

    def of_both(_, x, __):
        return cut_noise([6, 5, 1], x, mechanism) + dlaplace.logpmf(np.array([8, 3, 0]) - x, 1 / 1.5).sum()

    tables, probabilities, evidence = brute_force([0], of_both, None)
    np.testing.assert_allclose(both.count_means, probabilities @ tables, rtol=1e-10)
    assert both.log_evidence == pytest.approx(evidence, abs=1e-10)
    # Noisy tables may be the same by chance, and the same object may not be there twice.
    again = MechanismOutput(mechanism, [6, 5, 1], prior=PRIOR, name="hair")
    assert np.all(dirdp.estimate([first, again]).tables["hair"].count_sds < alone.count_sds)
    with pytest.raises(ArgumentError, match="twice"):
        dirdp.analyse([first, first])
    y = DirichletMechanism(ALPHA, R).sample(X, random_seed=1)
    drawn = [MechanismOutput(DirichletMechanism(ALPHA, R), y, prior=PRIOR, n_records=N) for _ in range(2)]
    with pytest.raises(ArgumentError, match="twice"):
        dirdp.analyse(drawn)


def test_rows_and_a_private_number():
    prior = np.ones((2, 3))
    mechanism = GeometricMechanism(prior, 1.0, adjacency="add-remove")
    output = MechanismOutput(mechanism, [[9, 5, 2], [1, 0, 4]], prior=prior)
    counts = dirdp.analyse(output, 200, chains=1, n_prior=60, random_seed=1)["latent_counts"]["p"]
    assert counts.sizes == {"chain": 1, "draw": 200, "p_dim_0": 2, "p_dim_1": 3}
    assert abs(float(counts.sum(("p_dim_0", "p_dim_1")).mean()) - 21) < 3
    with pytest.raises(ArgumentError, match="n_prior"):
        dirdp.analyse(output)


@pytest.mark.parametrize(
    ("mechanism", "values", "options", "words"),
    [
        (3, [1, 2, 3], {}, "Expected a mechanism, got an int"),
        (GeometricMechanism(PRIOR, 1.0), [1, 2, 3], {}, "is public. Pass n_records"),
        (GeometricMechanism(PRIOR, 1.0, adjacency="add-remove"), [1, 2, 3], PUBLIC, "private. Leave n_records out"),
        (
            GeometricMechanism(PRIOR, 1.0),
            [1, 2, 3.5],
            PUBLIC,
            "exact sampler of this mechanism cannot return this output",
        ),
        (GeometricMechanism(PRIOR, 1.0), [1, 2], PUBLIC, "shape of the prior"),
        (GeometricMechanism(PRIOR, 1.0), np.empty((0, 3)), PUBLIC, "shape of the prior"),
        (GeometricMechanism(PRIOR, 1.0), [1, 2, np.nan], PUBLIC, "finite numbers"),
        (GeometricMechanism(PRIOR, 1.0), "abc", PUBLIC, "finite numbers"),
        (GeometricMechanism(PRIOR, 1.0), [1, 2, 3], PUBLIC | {"steps": 9}, "does not draw from an urn"),
        (GeometricMechanism(PRIOR, 1.0), [1, 2, 3], PUBLIC | {"name": "a/b"}, "name"),
        (GeometricMechanism(PRIOR, 1.0), [1, 2, 3], {"n_records": 2.5}, "n_records"),
        (
            DirichletMechanism(ALPHA, R),
            [0.5, 0.3, 0.2],
            PUBLIC,
            "exact sampler of this mechanism cannot return this output",
        ),
        (DirichletMechanism(ALPHA, R), [0.5, 0.3, 0.2], PUBLIC | {"steps": 0}, "steps"),
        (DirichletMechanism(ALPHA, R), [0.5, 0.3, 0.20001], PUBLIC | {"sampler": "fast"}, "add up to 1"),
        (DirichletMechanism(ALPHA, R), [0.5, 0.5, 0.0], PUBLIC | {"sampler": "fast"}, "add up to 1"),
        (SIMPLEX, [0.5, 0.6, -0.1], PUBLIC | {"sampler": "fast"}, "add up to 1"),
        (SIMPLEX, [0.5, 0.3, 0.2], {"sampler": "fast"}, "is public. Pass n_records"),
        (SIMPLEX, [0.5, 0.3, 0.2], {"sampler": "fast", "n_records": 2}, "n_records"),
        (truncated(2.0)[0], [6, 5, 1], {"n_records": 13}, "n_records=12"),
        (truncated(2.0)[0], [6, 5, 2], {}, "last cell"),
        (truncated(2.0)[0], [6, 7, 0], {}, "last cell"),
        (truncated(2.0)[0], [6, 13, 0], {}, "0 to 12"),
        (truncated(2.0)[0], [0.5, 0.3, 0.2], {}, "not draws"),
        (truncated(2.0, total="printed")[0], [6, 7, 1], {}, "last cell"),
        (HellingerMechanism(PRIOR[:2], N, 1.0), [6, 5], {"prior": PRIOR[:2]}, "adds up to"),
    ],
)
def test_what_cannot_be_read_is_refused(mechanism, values, options, words):
    with pytest.raises(ArgumentError, match=words):
        MechanismOutput(mechanism, values, **({"prior": PRIOR} | options))


def test_lists_are_not_empty_and_not_mixed():
    output = MechanismOutput(truncated(2.0)[0], [6, 5, 1], prior=PRIOR)
    for wrong, words in (([], "at least one"), ([output, None], "both kinds")):
        with pytest.raises(ArgumentError, match=words):
            dirdp.analyse(wrong)
    other = MechanismOutput(truncated(2.0)[0], [6, 5, 1], prior=PRIOR, name="q")
    with pytest.raises(ArgumentError, match="tables p and another q"):
        dirdp.analyse([output, other])


def test_ten_million_records():
    mechanism = TruncatedNoiseMechanism(PRIOR, 10**7, 50.0)
    found = dirdp.estimate(MechanismOutput(mechanism, [4_000_000, 3_000_000, 3_000_000], prior=PRIOR)).tables["p"]
    np.testing.assert_allclose(found.count_sds[:2], np.sqrt(2) * 50, rtol=0.01)
    # Everything was taken before the second cell, whose noise is then not known.
    cut = dirdp.estimate(MechanismOutput(mechanism, [10**7, 0, 0], prior=PRIOR)).tables["p"]
    assert cut.count_means[0] > 10**7 - 200


def release_of(kind, x, rng, misread):
    """The outputs of one data set, read with a parameter that may be wrong."""
    prior, n = np.ones(len(x)), int(x.sum())
    if kind == "truncated":
        made, read = (TruncatedNoiseMechanism(prior, n, scale) for scale in (8.0, 8.0 * misread))
        return [MechanismOutput(read, made.release(x, sampler="fast", random_seed=rng), prior=prior)]
    if kind == "simplex":
        # Floors that are lower than any share here.
        made, read = (SimplexMechanism(k, SimplexDomain(2, eta=1e-6, etabar=1e-6, b=0.1)) for k in (30, 30 * misread))
        y = made.sample(x / n, protected=[0, 1], sampler="fast", random_seed=rng)
        return [MechanismOutput(read, y, prior=prior, n_records=n, sampler="fast")]
    made, read = (DirichletMechanism(prior, r) for r in (0.3, 0.3 * misread))
    y = made.sample(x, sampler="fast", random_seed=rng)
    noise = GeometricMechanism(prior, 6.0)
    noisy = MechanismOutput(noise, noise.release(x, sampler="fast", random_seed=rng), prior=prior, n_records=n)
    return [MechanismOutput(read, y, prior=prior, n_records=n, sampler="fast"), noisy]


def ranks_of(kind, misread=1.0, sets=200):
    rng, found = np.random.default_rng(8), []
    while len(found) < sets:
        p = rng.dirichlet(np.ones(4))
        x = rng.multinomial(60, p)
        if kind == "simplex" and x.min() == 0:
            continue
        analysis = dirdp.analyse(release_of(kind, x, rng, misread), 99, chains=1, random_seed=rng)
        counts, shares = (analysis[group]["p"].values[0] for group in ("latent_counts", "posterior"))
        found.append(np.concatenate([rank(x, counts, rng), rank(p, shares, rng)]))
    return found


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "misread"), [("truncated", 0.5), ("simplex", 3.0), ("pooled", 4.0)])
def test_truths_lie_where_the_draws_say_and_a_misread_parameter_is_seen(kind, misread):
    assert p_value(ranks_of(kind)) > 1e-4
    assert p_value(ranks_of(kind, misread)) < 1e-6


def test_the_noise_of_a_cell_is_that_of_a_single_output():
    mechanism = GeometricMechanism([1.0, 1.0], scale=2.0)
    one, many = (MechanismOutput(mechanism, values, prior=[1, 1], n_records=9) for values in ([3, 4], [[3, 4], [2, 6]]))
    assert one.observed_table.cell_noise is not None
    assert (len(many.values), many.observed_table.cell_noise) == (2, None)
