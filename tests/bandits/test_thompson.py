"""The sampler as it is used, and as it is misused."""

import copy
import math
import os
import pickle
import threading

import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.store import OpenBatch

GUARANTEE = dirdp.PureDP(epsilon=1.0)


def played(bandit, means, rounds, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        arm = bandit.select()
        bandit.update(arm, int(rng.random() < means[arm]))
    return bandit


def test_it_finds_the_best_arm():
    means = {"a": 0.2, "b": 0.8, "c": 0.5}
    bandit = played(dirdp.ThompsonSampler(list(means), GUARANTEE), means, 1500)
    decision = bandit.posterior()["decision"]
    assert decision["best"].sel(arm="b") > 0.8
    assert decision["best"].sum() == pytest.approx(1)
    assert decision["mean"].sel(arm="b") == pytest.approx(0.8, abs=0.1)
    assert decision["loss"].sel(arm="b") < decision["loss"].sel(arm="a")
    assert bandit.posterior(draws=7)["posterior"]["mean_reward"].dims == ("chain", "draw", "arm")
    one = dirdp.ThompsonSampler("only", GUARANTEE)
    assert one.select() == "only"
    assert one.posterior()["decision"]["best"].values.tolist() == [1.0]
    assert one.posterior()["decision"]["loss"].values == pytest.approx([0], abs=1e-15)


def test_what_is_released_may_be_published_and_nothing_else_is_shown():
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, first_batch=4)
    for reward in (1, 1, 1):
        bandit.update("a", reward)
    assert bandit.released.sizes["batch"] == 0
    bandit.update("a", 1)
    released = bandit.released
    assert released["arm"].values.tolist() == ["a"]
    assert released["size"].values.tolist() == [4]
    assert released["number"].values.tolist() == [0]
    secret = dirdp.ThompsonSampler(["a"], GUARANTEE, first_batch=1000)
    secret.update(["a"] * 777, [1] * 777)
    assert "777" not in repr(secret) + str(dirdp.report(secret, full=True)) + repr(vars(secret._run)["state"])


def test_noise_comes_from_the_bits_of_the_operating_system(monkeypatch):
    asked = []
    real = os.urandom
    monkeypatch.setattr(os, "urandom", lambda n: asked.append(n) or real(n))
    bandit = dirdp.ThompsonSampler(["a"], GUARANTEE, first_batch=1)
    asked.clear()
    bandit.update("a", 1)
    assert asked


def test_rewards_between_are_rounded_without_bias():
    bandit = dirdp.ThompsonSampler(["a"], dirdp.PureDP(epsilon=30.0), first_batch=4000)
    bandit.update(["a"] * 4000, np.full(4000, 0.3))
    assert bandit.released["noisy_sum"].values[0] == pytest.approx(1200, abs=6 * math.sqrt(4000 * 0.21))


@pytest.mark.thorough
def test_a_posterior_is_calibrated_although_the_rewards_decided_the_pulls():
    """Ranks of the true means, which are drawn from the prior, are uniform; those of who ignores the noise are not."""
    rng, ranks, ignoring = np.random.default_rng(8), [], []
    for seed in range(60):
        means = dict(zip("ab", rng.random(2), strict=True))
        sampler = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=0.1), first_batch=8)
        bandit = played(sampler, means, 60, seed)
        draws = bandit.posterior(draws=200)["posterior"]["mean_reward"]
        released = bandit.released.to_dataframe()
        for arm, mean in means.items():
            ranks.append(float((draws.sel(arm=arm) < mean).mean()))
            sizes, sums = (released.loc[released["arm"] == arm, name] for name in ("size", "noisy_sum"))
            seen = sums.clip(0, sizes)
            ignoring.append(float(stats.beta(1 + seen.sum(), 1 + (sizes - seen).sum()).cdf(mean)))
    assert stats.kstest(ranks, "uniform").pvalue > 1e-4
    assert stats.kstest(ignoring, "uniform").pvalue < 1e-6


def test_people_give_no_more_than_they_may():
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, contribution=2, first_batch=100)
    assert bandit.privacy.pure_epsilon <= 1
    assert bandit.design.mechanism.scale == pytest.approx(2)
    for _ in range(50):
        bandit.update("a", 1, person="Ann")
    bandit.update(["a", "b"], [1, 0], person=["Bob", 7])
    # Two of Ann and one of Bob are in the open batch of a.
    assert bandit._run.state.open[0].pulls == 3
    assert "Ann" not in repr(vars(bandit._run.state))
    with pytest.raises(dirdp.errors.ArgumentError, match="person="):
        bandit.update("a", 1)
    with pytest.raises(dirdp.errors.ArgumentError, match="contribution="):
        dirdp.ThompsonSampler(["a"], GUARANTEE).update("a", 1, person="Ann")


def test_a_ledger_is_charged_once():
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=1.5), unit="visitor")
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, contribution=2, unit="visitor", ledger=ledger)
    for visitor in range(200):
        bandit.update(bandit.select(), 1, person=visitor)
    (entry,) = ledger.entries()
    assert entry.unit == "visitor"
    assert entry.assumptions == ("a visitor contributes no more than 2 rewards of a run",)
    assert "one visitor with at most 2 rewards" in str(dirdp.report(bandit, full=True))
    with pytest.raises(dirdp.errors.BudgetError):
        dirdp.ThompsonSampler(["a", "b"], GUARANTEE, contribution=1, unit="visitor", ledger=ledger)


def test_a_guarantee_about_rewards_is_never_booked_as_one_about_people():
    people = dirdp.Ledger(dirdp.PureDP(epsilon=5), unit="person")
    with pytest.raises(dirdp.errors.ArgumentError, match="unit='reward'"):
        dirdp.ThompsonSampler(["a"], GUARANTEE, ledger=people)
    assert people.entries() == ()
    dirdp.ThompsonSampler(["a"], GUARANTEE, contribution=1, ledger=people)
    open_to_all = dirdp.Ledger(dirdp.PureDP(epsilon=5))
    dirdp.ThompsonSampler(["a"], GUARANTEE, ledger=open_to_all)
    assert open_to_all.unit == "reward"
    assert open_to_all.entries()[0].assumptions == ()
    # Nor the other way round: the ledger would add up guarantees about different units.
    with pytest.raises(dirdp.errors.ArgumentError, match="unit='person'"):
        dirdp.ThompsonSampler(["a"], GUARANTEE, contribution=1, ledger=open_to_all)


def test_a_report_says_who_is_protected():
    report = str(dirdp.report(dirdp.ThompsonSampler(["a"], GUARANTEE), full=True))
    assert "one reward: an observer cannot tell it from another reward in [0, 1]" in " ".join(report.split())
    assert "the same name" not in report
    people = str(dirdp.report(dirdp.ThompsonSampler(["a"], GUARANTEE, contribution=3), full=True))
    assert "one person with at most 3 rewards" in people
    assert "one person has the same name in every update" in people


@pytest.mark.thorough
def test_the_model_of_pymc_has_the_likelihood_of_what_was_released():
    """And its gradient, also where arms learn from one another in a model of one's own."""
    bandit = played(dirdp.ThompsonSampler(["a", "b"], GUARANTEE), {"a": 0.3, "b": 0.6}, 200)
    noise, released = bandit.design.mechanism, bandit._run.state.released
    for means in ([0.1, 0.7], [0.45, 0.5]):
        pairs = zip(released, means, strict=True)
        expected = sum(noise.log_likelihood(z, n, np.array([mean]))[0] for one, mean in pairs for n, z in one)
        assert bandit.release_logp(np.array(means)).eval() == pytest.approx(expected, rel=1e-9)
    with pm.Model(coords={"arm": ["a", "b"]}) as own:
        centre, size = pm.Uniform("centre"), pm.HalfNormal("size", 20)
        rates = pm.Beta("rate", centre * size, (1 - centre) * size, dims="arm")
        pm.Potential("released", bandit.release_logp(rates))
    for model in (bandit.model(), own):
        logp, dlogp, here = model.compile_logp(), model.compile_dlogp(), model.initial_point()
        gradient, place = dlogp(here), 0
        for name, value in here.items():
            for k in range(np.size(value)):
                step = np.zeros(np.size(value))
                step[k] = 1e-6
                ahead, behind = (logp(here | {name: value + sign * step.reshape(np.shape(value))}) for sign in (1, -1))
                assert gradient[place] == pytest.approx((ahead - behind) / 2e-6, rel=1e-4, abs=1e-4)
                place += 1


def test_many_visitors_before_any_feedback():
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE)
    arms = bandit.select(size=500)
    assert len(arms) == 500
    assert set(arms) == {"a", "b"}
    bandit.update(arms, np.ones(500))
    assert bandit.released["size"].sum() > 200
    assert bandit.select(theta=[0.1, 0.9]) == "b"


def test_bad_rewards_are_refused_without_showing_them_and_count_none():
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, first_batch=10)
    for reward in (-0.1, 1.1, math.nan, math.inf, "yes", None, [1]):
        for arms, rewards in (("a", reward), (["b", "a"], [1, reward])):
            with pytest.raises(dirdp.errors.DataError) as caught:
                bandit.update(arms, rewards)
            assert "1.1" not in str(caught.value)
    with pytest.raises(dirdp.errors.ArgumentError, match="as many"):
        bandit.update(["a", "b"], [1])
    with pytest.raises(dirdp.errors.ArgumentError, match="Unknown arm"):
        bandit.update(["a", "z"], [1, 1])
    assert [one.pulls for one in bandit._run.state.open] == [0, 0]


@pytest.mark.parametrize(
    ("arms", "options", "message"),
    [
        ([], {}, "at least one arm"),
        (2, {}, "names of the arms, such as .*, got an int"),
        (["a", "a"], {}, "different"),
        ([1.5], {}, "text or an integer"),
        ([True], {}, "text or an integer"),
        (["a"], {"growth": 0}, "growth"),
        (["a"], {"growth": -1}, "growth"),
        (["a"], {"first_batch": 0}, "first_batch"),
        (["a"], {"prior": (0, 1)}, "prior"),
        (["a"], {"prior": 1}, "pair"),
        (["a"], {"prior": (1e13, 1)}, "never learns"),
        (["a"], {"contribution": 0}, "contribution"),
        (["a"], {"mechanism": "laplace"}, "mechanism"),
        (["a"], {"unit": "visitor"}, "contribution="),
        (["a"], {"unit": "reward", "contribution": 1}, "weaker one"),
        (["a"], {"unit": "a\nb", "contribution": 1}, "printable"),
        (["a"], {"unit": 3, "contribution": 1}, "unit to be a text"),
        (["a"], {"guarantee": 1.0}, "guarantee"),
    ],
)
def test_bad_arguments(arms, options, message):
    with pytest.raises(dirdp.errors.ArgumentError, match=message):
        dirdp.ThompsonSampler(arms, **({"guarantee": GUARANTEE} | options))


@pytest.mark.parametrize("prior", [(1e12, 1), (1e12, 1e12), (1e-300, 1)])
@pytest.mark.parametrize("epsilon", [1e-12, 700, 1e6])
def test_extreme_priors_and_budgets(prior, epsilon):
    bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=epsilon), prior, first_batch=3)
    bandit.update(["a", "b"] * 20, [1, 0] * 20)
    decision = bandit.posterior(draws=5)["decision"].to_dataset()
    assert ((decision >= 0) & (decision <= 1)).all()
    assert bandit.select() in ("a", "b")


def test_a_ledger_for_add_remove_is_warned_about_the_reward_of_0():
    ledger = dirdp.Ledger(GUARANTEE, adjacency="add-remove")
    with pytest.raises(dirdp.errors.ArgumentError, match="the reward 0"):
        dirdp.ThompsonSampler(["a"], GUARANTEE, ledger=ledger)
    assert ledger.entries() == ()


def test_threads_lose_no_reward():
    bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0), first_batch=7)

    def visitors(arm):
        for _ in range(100):
            bandit.select()
            bandit.update(arm, 1)

    threads = [threading.Thread(target=visitors, args=(arm,)) for arm in "abab"]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for arm, batch in zip("ab", bandit._run.state.open, strict=True):
        released = bandit.released.to_dataframe()
        assert released.loc[released["arm"] == arm, "size"].sum() + batch.pulls == 200
        assert batch.counts == (0, batch.pulls)


def test_a_person_has_one_name_and_labels_of_numpy_are_those_of_python():
    bandit = dirdp.ThompsonSampler([0, 1], GUARANTEE, first_batch=10, contribution=1)
    bandit.update(np.int64(1), 1, person=5)
    for person in (5, "5", "5 ", "\t5\n", np.int64(5), np.str_("5")):
        bandit.update(1, 1, person=person)
    assert [one.pulls for one in bandit._run.state.open] == [0, 1]
    for nobody in (None, True, "", " ", 5.0, b"5", ("5",), 10**5000, "\ud800"):
        with pytest.raises(dirdp.errors.ArgumentError, match="Pass person="):
            bandit.update(1, 1, person=nobody)


def test_copies_would_release_twice():
    bandit = dirdp.ThompsonSampler(["a"], GUARANTEE)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="same rewards"):
            attempt(bandit)
    bandit._process = -1
    for use in (bandit.select, lambda: bandit.update("a", 1), lambda: bandit.save("bandit.db")):
        with pytest.raises(dirdp.errors.ReleaseError, match="fork"):
            use()


def test_a_seeded_run_is_marked():
    with pytest.warns(dirdp.errors.SeededReleaseWarning, match="not private"):
        bandit = dirdp.ThompsonSampler(["a"], GUARANTEE, random_seed=1)
    assert str(dirdp.report(bandit, full=True)).startswith("Not private")
    bandit.update(["a", "a"], [1, 0])
    assert "not private" in bandit.released.attrs["reproducible"]
    with pytest.warns(dirdp.errors.SeededReleaseWarning):
        again = dirdp.ThompsonSampler(["a"], GUARANTEE, random_seed=1)
    again.update(["a", "a"], [1, 0])
    assert bandit.released.equals(again.released)


def test_rewards_may_be_categories_of_public_worth():
    worths = {"left": 0.0, "bought": 1.0, "subscribed": 10.0}
    distributions = {"a": [0.9, 0.1, 0.0], "b": [0.5, 0.2, 0.3]}
    rng = np.random.default_rng(3)
    bandit = dirdp.ThompsonSampler(list(distributions), GUARANTEE, utilities=worths)
    for _ in range(1000):
        arm = bandit.select()
        bandit.update(arm, str(rng.choice(list(worths), p=distributions[arm])))
    decision = bandit.posterior()["decision"]
    assert decision["best"].sel(arm="b") > 0.8
    assert decision["mean"].sel(arm="b") == pytest.approx(3.2, abs=0.8)
    assert decision["loss"].sel(arm="a") > 0.3
    with pytest.raises(dirdp.errors.DataError, match="one of 'left'"):
        bandit.update("a", 1)
    for bad in ({"one": 1.0}, {"one": 1.0, "two": 1.0}, {"one": math.nan, "two": 1.0}, {1: 0.0, 2: 1.0}, [0, 1]):
        with pytest.raises(dirdp.errors.ArgumentError, match="utilities"):
            dirdp.ThompsonSampler(["a"], GUARANTEE, utilities=bad)


def transcript(counts, *, cumulative=False):
    """Two hundred rounds: what was chosen and released, in a few numbers. The reward of the first round is `counts[0]`.

    All other rewards are 0, so nothing hides the first one but noise.
    """
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, first_batch=5)
    first, chosen = None, []
    for _ in range(200):
        arm = bandit.select()
        first = first or arm
        bandit.update(arm, int(counts[0]) if not chosen else 0)
        chosen.append(arm)
        batch = bandit._run.state.open[bandit.arms.index(first)]
        if cumulative and arm == first and batch.pulls == 0:
            # A mutant that releases the sum of all rewards of an arm again and again.
            bandit._run.state.open[bandit.arms.index(first)] = OpenBatch((-int(counts[0]), int(counts[0])))
    released = bandit.released.to_dataframe()
    sums = released.loc[released["arm"] == first, "noisy_sum"].to_numpy()[:3]
    return np.array(
        [*np.resize([*sums, 0], 3), sums.sum(), chosen.count(first), chosen[1:20].count(first)], dtype=float
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cumulative", "claim", "refuted"),
    [(False, GUARANTEE, False), (False, dirdp.PureDP(epsilon=0.3), True), (True, GUARANTEE, True)],
)
def test_an_audit_of_two_hundred_rounds(cumulative, claim, refuted):
    """A thousand transcripts refute a third of what is lost, and a mutant that releases a reward again and again."""
    pair = (np.array([0.0, 1.0]), np.array([1.0, 0.0]))
    found = dirdp.audit(
        lambda counts: transcript(counts, cumulative=cumulative), claim=claim, pair=pair, n=1000, random_seed=1
    )
    assert (found.verdict == "refuted") == refuted
