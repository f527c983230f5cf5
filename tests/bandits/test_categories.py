"""Counts of categories in batches: their posterior against enumeration and quadrature, and whole runs."""

import csv
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln, logsumexp

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.batch_release import BatchCounts, BatchNoise
from pymc_dirdp.bandits.beliefs import Belief
from pymc_dirdp.bandits.categories import ShareBelief, sampled_counts
from pymc_dirdp.inference.noisy_rows import NoisyRows

STARS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}
GUARANTEE = dirdp.PureDP(epsilon=1.0)
# A category that never comes may have a share of 0.
GOOD, WORSE = [0, 0, 0.1, 0.3, 0.6], [0.5, 0.3, 0.2, 0, 0]


def tables(size, cells):
    """All counts of so many rewards."""
    return [x for x in itertools.product(range(size + 1), repeat=cells) if sum(x) == size]


def enumerated(batches, scale, prior):
    """Probabilities of the total counts, from the joint probability of all counts of all batches."""
    found = {}
    for counts in itertools.product(*(tables(sum(z), len(z)) for z in batches)):
        x = np.array(counts)
        total = x.sum(axis=0)
        log_p = gammaln(total + prior).sum() - gammaln(x + 1.0).sum() - np.abs(np.array(batches) - x).sum() / scale
        key = tuple(total.tolist())
        found[key] = np.logaddexp(found.get(key, -np.inf), log_p)
    logs = np.array(list(found.values()))
    return dict(zip(found, np.exp(logs - logsumexp(logs)), strict=True))


@pytest.mark.parametrize(
    ("batches", "scale", "prior"),
    [
        ([(4, 1, -1), (0, 3, 1)], 2.0, np.array([1.0, 1.0, 1.0])),
        ([(9, -9, 5), (-2, 1, 4), (1, 1, 1)], 6.0, np.array([0.5, 2.0, 1.0])),
    ],
)
def test_sampled_counts_have_the_enumerated_distribution(batches, scale, prior):
    exact = enumerated(batches, scale, prior)
    sampled = sampled_counts(
        np.array(batches, dtype=float), np.array([sum(z) for z in batches]), scale, prior, sweeps=50_000
    )
    keys, seen = np.unique(sampled[::25], axis=0, return_counts=True)
    observed = dict(zip(map(tuple, keys.tolist()), seen, strict=True))
    assert set(observed) <= set(exact)

    def p_value(distribution):
        expected = np.array([distribution.get(key, 0.0) for key in exact]) * seen.sum()
        counted = np.array([observed.get(key, 0) for key in exact], dtype=float)
        often = expected >= 5
        pooled = [np.append(one[often], one[~often].sum()) for one in (counted, expected)]
        pooled = [one[pooled[1] > 0] for one in pooled]
        return stats.chisquare(*pooled).pvalue if len(pooled[0]) > 1 else 1.0

    assert p_value(exact) > 1e-6
    # The same number of samples tells another scale, and another prior.
    assert p_value(enumerated(batches, 2 * scale, prior)) < 1e-6
    assert p_value(enumerated(batches, scale, prior + 1)) < 1e-6


def test_two_categories_are_the_noisy_sum():
    scale, batches = 20.0, ((40, -10), (40, 60), (80, 41))
    exact = Belief((1.0, 2.0), BatchNoise(scale), batches)
    counted = tuple((size, (size - z, z)) for size, z in batches)
    # The prior of a Beta names successes first, and cells are in the order of their worth.
    found = ShareBelief((2.0, 1.0), BatchCounts(2 * scale, (0.0, 1.0)), counted, exact.grid, sweeps=20_000)
    assert found.mean == pytest.approx(exact.mean, abs=0.01)
    assert np.abs(found.cdf - exact.cdf).max() < 0.02
    other = ShareBelief((2.0, 1.0), BatchCounts(scale, (0.0, 1.0)), counted, exact.grid, sweeps=20_000)
    assert np.abs(other.cdf - exact.cdf).max() > 0.04


def test_the_posterior_of_three_categories_is_that_of_the_shares():
    """Oracle: the sum over counts at each point of the simplex, which the release likelihood computes."""
    mechanism = BatchCounts(4.0, (0.0, 0.25, 1.0))
    batches = ((20, (3, 8, 9)), (40, (14, 9, 17)))
    found = ShareBelief((1.0, 2.0, 0.5), mechanism, batches, sweeps=20_000)
    edges = np.linspace(0, 1, 41)
    middles = (edges[1:] + edges[:-1]) / 2
    points = np.array([(a, b, 1 - a - b) for a in middles for b in middles if a + b < 1 - 1e-9])
    logs = np.log(points) @ (np.array([1.0, 2.0, 0.5]) - 1)
    for size, output in batches:
        published = (np.array([output], dtype=float), mechanism.noise.cell_noise.numbers)
        row = NoisyRows(np.array([size]), published=published)
        logs += [row.likelihood(np.log(p[None]))[0] for p in points]
    weights = np.exp(logs - logs.max())
    means = points @ mechanism.worths
    assert found.mean == pytest.approx(np.average(means, weights=weights), abs=0.005)
    drawn = found.draw(20_000, np.random.default_rng(0))
    for level in (0.05, 0.25, 0.5, 0.75, 0.95):
        place = np.quantile(drawn, level)
        assert weights[means < place].sum() / weights.sum() == pytest.approx(level, abs=0.02)
        # The grid, on which choices are compared, is near the draws.
        assert np.interp(math.asin(math.sqrt(place)), found.grid.angles, found.cdf) == pytest.approx(level, abs=0.02)


def test_worths_ascend_and_a_batch_outputs_integers_that_add_up_to_its_size():
    mechanism = BatchCounts(4.0, (0.0, 0.25, 1.0))
    assert mechanism.fits((3, -2, 19), 20)
    assert mechanism.fits((12000, -12000, 20), 20)
    for worths in ((0.0,), (0.0, 0.5), (0.25, 1.0), (0.0, 0.75, 0.25, 1.0)):
        with pytest.raises(dirdp.errors.ArgumentError, match="ascending order, from 0 to 1"):
            BatchCounts(4.0, worths)
    for wrong in ([3, -2, 19], (3, 17), (3, -2, 19, 0), (3.0, -2, 19), (True, 0, 19), (3, -2, 18), (12001, -12001, 20)):
        assert not mechanism.fits(wrong, 20)


def test_a_reward_that_is_replaced_costs_what_is_stated():
    """Brute force over all outputs that matter, for each pair of categories."""
    mechanism, three = (BatchCounts.for_guarantee(GUARANTEE, worths=(0.0, 0.3, 1.0), rewards=m) for m in (1, 3))
    assert mechanism.pure_epsilon <= 1
    assert three.pure_epsilon <= 1
    assert three.scale == pytest.approx(3 * mechanism.scale, rel=1e-9)
    size, most, delta = 2, 0.0, 0.0
    outputs = [(a, b, size - a - b) for a in range(-40, 42) for b in range(-40, 42)]
    z = np.array(outputs, dtype=float)
    for x in tables(size, 3):
        for to, source in itertools.permutations(range(3), 2):
            if x[source]:
                y = np.array(x)
                y[to] += 1
                y[source] -= 1
                log_p = -np.abs(z - np.array(x)).sum(axis=1) / mechanism.scale
                log_q = -np.abs(z - y).sum(axis=1) / mechanism.scale
                total = logsumexp(log_p)
                most = max(most, float((log_p - log_q).max()))
                delta = max(delta, float(np.maximum(np.exp(log_p - total) - np.exp(0.4 + log_q - total), 0).sum()))
    assert most == pytest.approx(mechanism.pure_epsilon, rel=1e-12)
    assert delta <= mechanism.delta(0.4) * (1 + 1e-9)
    assert delta == pytest.approx(mechanism.delta(0.4), rel=1e-6)


def test_noise_is_drawn_in_integers_that_keep_the_size():
    bandit = dirdp.ThompsonSampler(["a"], GUARANTEE, utilities=STARS, mechanism="counts", first_batch=50)
    bandit.update(["a"] * 50, ["five"] * 30 + ["two"] * 20)
    released = bandit.released
    assert released["noisy_counts"].dims == ("batch", "worth")
    assert released["worth"].values.tolist() == [1, 2, 3, 4, 5]
    assert released["noisy_counts"].sum() == 50
    assert np.issubdtype(released["noisy_counts"].dtype, np.integer)
    assert np.abs(released["noisy_counts"].values[0] - [0, 20, 0, 0, 30]).max() < 60


def test_categories_of_the_same_worth_are_one():
    utilities = {"gone": 0, "left": 0, "bought": 10, "read": 5}
    bandit = dirdp.ThompsonSampler(
        ["a"], GUARANTEE, prior=[1, 2, 3, 4], utilities=utilities, mechanism="counts", first_batch=4
    )
    assert bandit.design.mechanism.worths == (0.0, 0.5, 1.0)
    assert bandit.design.prior == (3.0, 4.0, 3.0)
    bandit.update(["a"] * 3, ["gone", "left", "read"])
    assert bandit._run.state.open[0].counts == (2, 1, 0)
    assert "secret" in repr(bandit._run.state.open[0])


def test_means_are_in_the_units_of_the_worth():
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, utilities=STARS, mechanism="counts", first_batch=400)
    bandit.update(["a"] * 400, ["four"] * 400)
    tree = bandit.posterior(draws=500)
    assert tree["decision"]["mean"].sel(arm="a") == pytest.approx(4, abs=0.1)
    assert tree["decision"]["mean"].sel(arm="b") == pytest.approx(3)
    assert tree["decision"]["best"].sel(arm="a") > 0.9
    assert tree["posterior"]["mean_reward"].sel(arm="a").mean() == pytest.approx(4, abs=0.1)
    # The same release says the same to everybody.
    again = bandit.posterior(draws=500)
    assert tree["decision"].equals(again["decision"])


@pytest.mark.thorough
def test_the_model_holds_the_probability_of_what_was_released():
    """Oracle: the sum over all true counts of each batch."""
    utilities = {"low": 0, "middle": 1, "high": 4}
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, utilities=utilities, mechanism="counts", first_batch=3)
    assert bandit.release_logp(np.full((2, 3), 1 / 3)).eval() == 0
    bandit.update(["a"] * 6 + ["b"] * 3, ["low", "high", "high"] * 3)
    shares, noise = np.array([[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]]), bandit.design.mechanism.noise
    expected = 0.0
    for batch in bandit.released.to_dataframe().reset_index().groupby(["arm", "number"]):
        (arm, _), rows = batch
        z, p = rows["noisy_counts"].to_numpy(float), shares["ab".index(arm)]
        terms = [
            stats.multinomial(3, p).logpmf(x) + noise.log_likelihood(z, np.array(x, dtype=float)) for x in tables(3, 3)
        ]
        expected += logsumexp(np.ravel(terms))
    assert bandit.release_logp(shares).eval() == pytest.approx(expected, rel=1e-10)
    model = bandit.model()
    assert {one.name for one in model.free_RVs} == {"shares"}
    assert model.named_vars_to_dims["mean_reward"] == ("arm",)
    assert np.isfinite(model.compile_logp()(model.initial_point()))


def test_a_transcript_and_a_file_hold_the_counts(tmp_path):
    path = tmp_path / "run.db"
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, utilities=STARS, mechanism="counts", first_batch=5, path=path)
    bandit.update(["a"] * 13, ["five", "one", "two"] * 4 + ["four"])
    bandit.save()
    dirdp.save(bandit.transcript(), tmp_path / "run.json")
    read = dirdp.load(tmp_path / "run.json")
    assert read.released.equals(bandit.released)
    assert read.posterior(10)["decision"].equals(bandit.posterior(10)["decision"])
    loaded = dirdp.ThompsonSampler.load(path)
    assert loaded.released.equals(bandit.released)
    assert loaded._run.state == bandit._run.state


def test_counts_that_a_batch_cannot_have_are_refused(tmp_path):
    bandit = dirdp.ThompsonSampler(["a"], GUARANTEE, utilities=STARS, mechanism="counts", first_batch=5)
    bandit.update(["a"] * 5, ["five"] * 5)
    path = tmp_path / "run.json"
    dirdp.save(bandit.transcript(), path)
    text = path.read_text(encoding="utf-8")
    start = text.index("released")
    squeezed = text[:start] + "".join(text[start:].split())
    noisy = str(bandit.released["noisy_counts"].values[0].tolist()).replace(" ", "")
    assert noisy in squeezed
    for output in ("3", "[2,1,1,1]", "[1,1,1,1,2]", "[1,1,1,1,1.0]", "[true,1,1,1,1]", "[1e9,0,0,0,0]"):
        path.write_text(squeezed.replace(noisy, output), encoding="utf-8")
        with pytest.raises(dirdp.errors.ReleaseError):
            dirdp.load(path)


def test_what_cannot_be_counted_is_refused():
    with pytest.raises(dirdp.errors.ArgumentError, match="Pass utilities="):
        dirdp.ThompsonSampler(["a"], GUARANTEE, mechanism="counts")
    with pytest.raises(dirdp.errors.ArgumentError, match="5 positive numbers"):
        dirdp.ThompsonSampler(["a"], GUARANTEE, prior=(1, 1), utilities=STARS, mechanism="counts")
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, utilities=STARS, mechanism="counts")
    with pytest.raises(dirdp.DirdpError, match="one of"):
        bandit.update("a", "six")
    with pytest.raises(dirdp.errors.ArgumentError, match="Pass the shares"):
        dirdp.simulate_bandit(bandit, [0.5, 0.4], 100)
    for shares in ([[1, 0], [0, 1]], [[0.5] * 5] * 2, [[-1e-9, 0, 0, 0.5, 0.5], GOOD]):
        with pytest.raises(dirdp.errors.ArgumentError, match="shares"):
            dirdp.simulate_bandit(bandit, shares, 100)


@pytest.mark.parametrize("scale", [2.0**-20, 1e6, 2.0**600])
@pytest.mark.parametrize("size", [1, 10**9])
def test_noise_and_batches_of_any_size_have_a_posterior(scale, size):
    mechanism = BatchCounts(scale, (0.0, 0.5, 1.0))
    output = mechanism.simulated((size, 0, 0), np.random.default_rng(1))
    belief = ShareBelief((1.0, 1.0, 1.0), mechanism, ((size, output),), sweeps=200)
    assert (belief._concentrations.sum(axis=1) == size + 3).all()
    assert 0 < belief.mean < 1
    assert belief.weights.sum() == pytest.approx(1)
    assert np.isfinite(belief.draw(100, np.random.default_rng(2))).all()


def test_the_table_of_the_coin_and_the_counts_says_what_the_page_says():
    path = Path(__file__).resolve().parents[1] / "benchmarks" / "star_rewards.csv"
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    coin, counts = (
        {(row["other"], row["epsilon"]): row for row in rows if row["reward"] == k} for k in ("coin", "counts")
    )
    assert len(rows) == 12
    assert coin.keys() == counts.keys()
    less = {
        q: {key: 1 - float(counts[key][q]) / float(coin[key][q]) for key in coin} for q in ("median", "mean", "q95")
    }
    assert all(min(fall.values()) > 0 for fall in less.values())
    assert sum(fall >= 0.3 for fall in less["median"].values()) == 4
    assert less["median"]["3.35", "1.0"] == pytest.approx(0.25, abs=0.03)
    assert less["mean"]["3.35", "1.0"] > 0.5


@pytest.mark.thorough
def test_the_simulation_is_the_sampler():
    """Numbers of pulls of the worse arm, round by round with the sampler itself and batch by batch."""
    rng = np.random.default_rng(3)
    names, played = list(STARS), []
    for _ in range(25):
        bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, utilities=STARS, mechanism="counts")
        pulls = 0
        for _ in range(80):
            arm = bandit.select()
            pulls += arm == "b"
            bandit.update(arm, names[rng.choice(5, p=GOOD if arm == "a" else WORSE)])
        played.append(pulls)
    runs = dirdp.simulate_bandit(bandit, [GOOD, WORSE], 80, 80, random_seed=4, progressbar=False)
    assert runs.means == pytest.approx([0.875, 0.175])
    assert (runs.pulls.sum(axis=1) == 80).all()
    assert stats.ks_2samp(played, runs.pulls[:, 1]).pvalue > 1e-4
    assert stats.ks_2samp(played, rng.binomial(80, 0.5, size=4000)).pvalue < 1e-6
