"""Counts of categories in batches: their posterior against enumeration and quadrature, and whole runs."""

import itertools
import json
import math

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.batch_release import BatchCounts
from pymc_dirdp.bandits.categories import ShareBelief, sampled_counts
from pymc_dirdp.texts.grammar import digest, parse
from tests.oracles import neighbours, tables_of

STARS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
GUARANTEE = dirdp.PureDP(epsilon=1.0)
THREE = ([(4, 1, -1), (0, 3, 1)], 2.0, np.array([1.0, 1.0, 1.0]))


def enumerated(batches, scale, prior):
    """Probabilities of the total counts, from the joint probability of all counts of all batches."""
    found = {}
    for counts in itertools.product(*(tables_of((len(z),), sum(z)) for z in batches)):
        x = np.array(counts)
        total = x.sum(axis=0)
        log_p = gammaln(total + prior).sum() - gammaln(x + 1.0).sum() - np.abs(np.array(batches) - x).sum() / scale
        key = tuple(total.tolist())
        found[key] = found.get(key, 0.0) + math.exp(log_p)
    whole = math.fsum(found.values())
    return {key: p / whole for key, p in found.items()}


@pytest.mark.parametrize(
    ("batches", "scale", "prior"), [THREE, ([(9, -9, 4), (-2, 1, 3), (1, 0, 1)], 6.0, np.array([0.5, 2.0, 1.0]))]
)
def test_sampled_counts_have_the_enumerated_distribution(batches, scale, prior):
    sizes, exact = np.array([sum(z) for z in batches]), enumerated(batches, scale, prior)
    sampled = sampled_counts(np.array(batches, dtype=float), sizes, scale, prior, sweeps=15_000)
    keys, seen = np.unique(sampled[::10], axis=0, return_counts=True)
    observed = dict(zip(map(tuple, keys.tolist()), seen.tolist(), strict=True))
    assert set(observed) <= set(exact)

    def p_value(distribution):
        expected = np.array([distribution[key] for key in exact]) * seen.sum()
        counted, often = np.array([observed.get(key, 0) for key in exact]), expected >= 5
        pooled = [np.append(one[often], one[~often].sum() + 1e-9) for one in (counted, expected)]
        return stats.chisquare(*pooled).pvalue

    assert p_value(exact) > 1e-6
    # The same number of samples distinguishes another scale, and another prior.
    assert p_value(enumerated(batches, 2 * scale, prior)) < 1e-6
    assert p_value(enumerated(batches, scale, prior + 1)) < 1e-6


def test_the_posterior_of_three_categories_is_that_of_the_shares():
    """Oracle: the sum over counts at each point of the simplex."""
    mechanism = BatchCounts(4.0, (0.0, 0.25, 1.0))
    batches = ((20, (3, 8, 9)), (40, (14, 9, 17)))
    found = ShareBelief((1.0, 2.0, 0.5), mechanism, batches, sweeps=8_000)
    edges = np.linspace(0, 1, 41)
    middles = (edges[1:] + edges[:-1]) / 2
    points = np.array([(a, b, 1 - a - b) for a in middles for b in middles if a + b < 1 - 1e-9])
    logs = np.log(points) @ (np.array([1.0, 2.0, 0.5]) - 1)
    for size, output in batches:
        x = np.array(list(tables_of((3,), size)))
        of_counts = -gammaln(x + 1).sum(axis=1) - np.abs(x - output).sum(axis=1) / mechanism.scale
        logs += logsumexp(of_counts[:, None] + x @ np.log(points).T, axis=0)
    weights = np.exp(logs - logs.max())
    means = points @ mechanism.worths
    assert found.mean == pytest.approx(np.average(means, weights=weights), abs=0.005)
    drawn = found.draw(5_000, np.random.default_rng(0))
    for level in (0.05, 0.5, 0.95):
        place = np.quantile(drawn, level)
        assert weights[means < place].sum() / weights.sum() == pytest.approx(level, abs=0.02)
        # The grid, on which choices are compared, is near the draws.
        assert np.interp(math.asin(math.sqrt(place)), found.grid.angles, found.cdf) == pytest.approx(level, abs=0.02)
    # Before the first batch it is the prior, which is a Beta distribution for two categories.
    before = ShareBelief((1.0, 2.0), BatchCounts(4.0, (0.0, 1.0)))
    assert before.cdf == pytest.approx(stats.beta(2, 1).cdf(np.sin(before.grid.angles) ** 2), abs=1e-6)


def test_worths_ascend_and_a_batch_outputs_integers_that_add_up_to_its_size():
    mechanism = BatchCounts(4.0, (0.0, 0.25, 1.0))
    for right in ((3, -2, 19), (12000, -12000, 20)):
        assert mechanism.fits(right, 20)
    for wrong in ([3, -2, 19], (3, 17), (3, -2, 19, 0), (3.0, -2, 19), (True, 0, 19), (3, -2, 18), (12001, -12001, 20)):
        assert not mechanism.fits(wrong, 20)
    for worths in ((0.0,), (0.0, 0.5), (0.25, 1.0), (0.0, 0.75, 0.25, 1.0)):
        with pytest.raises(dirdp.errors.ArgumentError, match="ascending order, from 0 to 1"):
            BatchCounts(4.0, worths)


def test_a_reward_that_is_replaced_costs_what_is_stated():
    """Brute force over all outputs that matter, for each pair of categories."""
    mechanism, three = (BatchCounts.for_guarantee(GUARANTEE, worths=(0.0, 0.3, 1.0), rewards=m) for m in (1, 3))
    assert max(mechanism.pure_epsilon, three.pure_epsilon) <= 1
    assert three.scale == pytest.approx(3 * mechanism.scale, rel=1e-9)
    z = np.array([(a, b, 2 - a - b) for a in range(-40, 42) for b in range(-40, 42)], dtype=float)
    log_p = {tuple(x): -np.abs(z - x).sum(axis=1) / mechanism.scale for x in tables_of((3,), 2)}
    log_p = {x: logs - logsumexp(logs) for x, logs in log_p.items()}
    pairs = [(x, tuple(y)) for x in log_p for y in neighbours(np.array(x), "replace-one")]
    most = max((log_p[x] - log_p[y]).max() for x, y in pairs)
    delta = max(np.maximum(np.exp(log_p[x]) - np.exp(0.4 + log_p[y]), 0).sum() for x, y in pairs)
    assert most == pytest.approx(mechanism.pure_epsilon, rel=1e-6)
    assert delta == pytest.approx(mechanism.delta(0.4), rel=1e-6)


def counting(arms=("a", "b"), **options):
    return dirdp.ThompsonSampler(arms, GUARANTEE, **{"utilities": STARS, "mechanism": "counts"} | options)


def test_categories_of_the_same_worth_are_one():
    utilities = {"gone": 0, "left": 0, "bought": 10, "read": 5}
    bandit = counting("a", prior=[1, 2, 3, 4], utilities=utilities, first_batch=4)
    assert (bandit.design.mechanism.worths, bandit.design.prior) == ((0.0, 0.5, 1.0), (3.0, 4.0, 3.0))
    bandit.update(["a"] * 3, ["gone", "left", "read"])
    assert bandit._run.state.open[0].counts == (2, 1, 0)
    assert "secret" in repr(bandit._run.state.open[0])


def test_what_is_released_are_integers_that_keep_the_size_and_means_are_in_the_units_of_the_worth(tmp_path):
    bandit = counting(first_batch=400, path=tmp_path / "run.db")
    bandit.update(["a"] * 410, ["four"] * 410)
    bandit.save()
    released = bandit.released
    assert released["noisy_counts"].dims == ("batch", "worth")
    assert released["worth"].values.tolist() == [1, 2, 3, 4, 5]
    assert released["noisy_counts"].sum() == 400
    assert np.issubdtype(released["noisy_counts"].dtype, np.integer)
    assert np.abs(released["noisy_counts"].values[0] - [0, 0, 0, 400, 0]).max() < 60
    tree = bandit.posterior(draws=500)
    assert tree["decision"]["mean"].sel(arm="a") == pytest.approx(4, abs=0.1)
    assert tree["decision"]["mean"].sel(arm="b") == pytest.approx(3)
    assert tree["decision"]["best"].sel(arm="a") > 0.9
    assert tree["posterior"]["mean_reward"].sel(arm="a").mean() == pytest.approx(4, abs=0.1)
    dirdp.save(bandit.transcript(), tmp_path / "run.json")
    loaded = dirdp.ThompsonSampler.load(tmp_path / "run.db")
    assert loaded._run.state == bandit._run.state
    for same in (dirdp.load(tmp_path / "run.json"), loaded):
        assert same.released.equals(released)
        assert same.posterior(draws=500)["decision"].equals(tree["decision"])


@pytest.mark.thorough
def test_the_model_holds_the_probability_of_what_was_released():
    """Oracle: the sum over all true counts of each batch."""
    utilities = {"low": 0, "middle": 1, "high": 4}
    bandit = counting(utilities=utilities, first_batch=3)
    assert bandit.release_logp(np.full((2, 3), 1 / 3)).eval() == 0
    bandit.update(["a"] * 6 + ["b"] * 3, ["low", "high", "high"] * 3)
    shares, noise = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]]), bandit.design.mechanism.noise
    expected = 0.0
    for (arm, _), rows in bandit.released.to_dataframe().reset_index().groupby(["arm", "number"]):
        z, p = rows["noisy_counts"].to_numpy(float), shares["ab".index(arm)]
        every = tables_of((3,), 3)
        terms = [stats.multinomial(3, p).logpmf(x) + noise.log_likelihood(z, x.astype(float)) for x in every]
        expected += logsumexp(np.ravel(terms))
    assert bandit.release_logp(shares).eval() == pytest.approx(expected, rel=1e-10)
    model = bandit.model()
    assert {one.name for one in model.free_RVs} == {"shares"}
    assert model.named_vars_to_dims["mean_reward"] == ("arm",)
    assert np.isfinite(model.compile_logp()(model.initial_point()))


def test_counts_that_a_batch_cannot_have_are_refused():
    bandit = counting("a", first_batch=5)
    bandit.update(["a"] * 5, ["five"] * 5)
    text, noisy = bandit.transcript().text, json.dumps(bandit.released["noisy_counts"].values[0].tolist())

    def with_counts(output):
        edited = text.replace(noisy, json.dumps(output))
        facts = json.loads(edited)
        return parse(edited.replace(facts.pop("digest"), digest(facts)).encode())

    assert with_counts([1, 1, 1, 1, 1]).released["noisy_counts"].values.tolist() == [[1] * 5]
    for output in (3, [2, 1, 1, 1], [1, 1, 1, 1, 2], [1, 1, 1, 1, 1.0], [True, 1, 1, 1, 1], [1e9, 0, 0, 0, 0]):
        with pytest.raises(dirdp.errors.ReleaseError):
            with_counts(output)


def test_what_cannot_be_counted_is_refused():
    for refused, message in (
        (lambda: counting(utilities=None), "Pass utilities="),
        (lambda: counting(prior=(1, 1)), "5 positive numbers"),
        (lambda: counting().update("a", "six"), "one of"),
    ):
        with pytest.raises(dirdp.DirdpError, match=message):
            refused()
    for shares in ([0.5, 0.4], [[1, 0], [0, 1]], [[0.5] * 5] * 2, [[-1e-9, 0, 0, 0.5, 0.5], [0.2] * 5]):
        with pytest.raises(dirdp.errors.ArgumentError, match="shares"):
            dirdp.simulate_bandit(counting(), shares, 100)


@pytest.mark.parametrize(("scale", "size"), [(2.0**-20, 10**9), (1e6, 1), (2.0**600, 10**9)])
def test_noise_and_batches_of_any_size_have_a_posterior(scale, size):
    mechanism = BatchCounts(scale, (0.0, 0.5, 1.0))
    output = mechanism.simulated((size, 0, 0), np.random.default_rng(1))
    belief = ShareBelief((1.0, 1.0, 1.0), mechanism, ((size, output),), sweeps=200)
    assert (belief._concentrations.sum(axis=1) == size + 3).all()
    assert 0 < belief.mean < 1
    assert belief.weights.sum() == pytest.approx(1)
    assert np.isfinite(belief.draw(100, np.random.default_rng(2))).all()
