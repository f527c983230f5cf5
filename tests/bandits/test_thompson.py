"""The sampler as it is used, and as it is misused."""

import copy
import json
import math
import pickle
import threading

import numpy as np
import pymc as pm
import pytest
from pytensor.gradient import verify_grad
from scipy import stats

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.beliefs import Belief, best_probabilities

GUARANTEE = dirdp.PureDP(epsilon=1.0)


@pytest.mark.thorough
def test_the_model_of_pymc_has_the_likelihood_of_what_was_released():
    """And its gradient, also where arms learn from one another in a model of one's own."""
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE)
    bandit.update(["a", "b"] * 100, np.random.default_rng(0).integers(0, 2, 200))
    noise, released = bandit.design.mechanism, bandit._run.state.released
    for means in ([0.1, 0.7], [0.45, 0.5]):
        pairs = zip(released, means, strict=True)
        expected = sum(noise.log_likelihood(z, n, np.array([mean]))[0] for one, mean in pairs for n, z in one)
        assert bandit.release_logp(np.array(means)).eval() == pytest.approx(expected, rel=1e-9)
    with pm.Model(coords={"arm": ["a", "b"]}) as own:
        centre, size = pm.Uniform("centre"), pm.HalfNormal("size", 20)
        rates = pm.Beta("rate", centre * size, (1 - centre) * size, dims="arm")
        pm.Potential("released", bandit.release_logp(rates))
    verify_grad(bandit.release_logp, [np.array([0.1, 0.7])], rng=np.random.default_rng(1))
    for model in (bandit.model(), own):
        assert np.isfinite(model.compile_dlogp()(model.initial_point())).all()


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


def test_copies_would_release_twice():
    bandit = dirdp.ThompsonSampler(["a"], GUARANTEE)
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="same rewards"):
            attempt(bandit)
    bandit._process = -1
    for use in (bandit.select, lambda: bandit.update("a", 1), lambda: bandit.save("bandit.db")):
        with pytest.raises(dirdp.errors.ReleaseError, match="fork"):
            use()


def test_it_finds_the_best_arm_also_of_categories_of_public_worth():
    worths, rng = {"left": 0.0, "bought": 1.0, "subscribed": 10.0}, np.random.default_rng(3)
    of_arm = {"a": [0.9, 0.1, 0.0], "b": [0.5, 0.2, 0.3]}
    found = []
    for options in ({}, {"utilities": worths}):
        bandit = dirdp.ThompsonSampler(list(of_arm), GUARANTEE, **options)
        for _ in range(600):
            arm = bandit.select()
            label = str(rng.choice(list(worths), p=of_arm[arm]))
            bandit.update(arm, label if options else worths[label] / 10)
        found.append(bandit.posterior()["decision"])
    for decision, unit in zip(found, (10.0, 1.0), strict=True):
        assert decision["best"].sel(arm="b") > 0.8
        assert decision["best"].sum() == pytest.approx(1)
        assert unit * decision["mean"].sel(arm="b") == pytest.approx(3.2, abs=1)
        assert unit * decision["loss"].sel(arm="a") > 0.3
    assert bandit.posterior(draws=7)["posterior"]["mean_reward"].dims == ("chain", "draw", "arm")
    one = dirdp.ThompsonSampler("only", GUARANTEE)
    assert one.select() == "only"
    assert one.posterior()["decision"]["best"].values.tolist() == [1.0]
    assert one.posterior()["decision"]["loss"].values == pytest.approx([0], abs=1e-15)


def test_what_is_released_may_be_published_and_nothing_else_is_shown():
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, first_batch=4)
    bandit.update(["a"] * 3, [1] * 3)
    assert bandit.released.sizes["batch"] == 0
    bandit.update("a", 1)
    assert [bandit.released[name].item() for name in ("arm", "size", "number")] == ["a", 4, 0]
    # Rewards between 0 and 1 are rounded without bias.
    between = dirdp.ThompsonSampler(["a"], dirdp.PureDP(epsilon=30.0), first_batch=1000)
    between.update(["a"] * 1000, np.full(1000, 0.3))
    assert between.released["noisy_sum"].values[0] == pytest.approx(300, abs=6 * math.sqrt(1000 * 0.21))
    secret = dirdp.ThompsonSampler(["a"], GUARANTEE, first_batch=1000)
    secret.update(["a"] * 777, [1] * 777)
    assert "777" not in repr(secret) + str(dirdp.report(secret, full=True)) + repr(vars(secret._run)["state"])


def test_people_give_no_more_than_they_may_and_a_ledger_is_charged_once():
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=1.5), unit="visitor")
    options = {"contribution": 2, "unit": "visitor", "ledger": ledger, "first_batch": 100}
    bandit = dirdp.ThompsonSampler([0, "b"], GUARANTEE, **options)
    assert bandit.privacy.pure_epsilon <= 1
    assert bandit.design.mechanism.scale == pytest.approx(2)
    # A person has one name, and labels of numpy are those of Python.
    for person in (5, "\t5\n", np.int64(5), np.str_("5")):
        bandit.update(np.int64(0), 1, person=person)
    bandit.update([0, "b"], [1, 0], person=["Bob", 7])
    assert [one.pulls for one in bandit._run.state.open] == [3, 1]
    assert "Bob" not in repr(vars(bandit._run.state))
    with pytest.raises(dirdp.errors.ArgumentError, match="Pass person="):
        bandit.update(0, 1)
    (entry,) = ledger.entries()
    assert entry.unit == "visitor"
    assert entry.assumptions == ("a visitor contributes no more than 2 rewards of a run",)
    report = " ".join(str(dirdp.report(bandit, full=True)).split())
    assert "one visitor with at most 2 rewards" in report
    assert "one visitor has the same name in every update" in report
    with pytest.raises(dirdp.errors.BudgetError):
        dirdp.ThompsonSampler(["a", "b"], GUARANTEE, contribution=1, unit="visitor", ledger=ledger)


def test_a_guarantee_about_rewards_is_never_booked_as_one_about_people():
    people, anything = (dirdp.Ledger(dirdp.PureDP(epsilon=5), unit=unit) for unit in ("person", None))
    removed = dirdp.Ledger(GUARANTEE, adjacency="add-remove")
    bandit = dirdp.ThompsonSampler(["a"], GUARANTEE, ledger=anything)
    assert (anything.unit, anything.entries()[0].assumptions) == ("reward", ())
    report = " ".join(str(dirdp.report(bandit, full=True)).split())
    assert "one reward: an observer cannot tell it from another reward in [0, 1]" in report
    assert "the same name" not in report
    for ledger, options, message in (
        (people, {}, "unit='reward'"),
        (removed, {}, "the reward 0"),
        # Nor the other way round: the ledger would add up guarantees about different units.
        (anything, {"contribution": 1}, "unit='person'"),
    ):
        before = ledger.entries()
        with pytest.raises(dirdp.errors.ArgumentError, match=message):
            dirdp.ThompsonSampler(["a"], GUARANTEE, ledger=ledger, **options)
        assert ledger.entries() == before
    dirdp.ThompsonSampler(["a"], GUARANTEE, contribution=1, ledger=people)


def test_bad_rewards_are_refused_without_showing_them_and_count_none():
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, first_batch=10)
    for reward in (-0.1, 1.1, math.nan, math.inf, "yes", None, [1]):
        for arms, rewards in (("a", reward), (["b", "a"], [1, reward])):
            with pytest.raises(dirdp.errors.DataError) as caught:
                bandit.update(arms, rewards)
            assert "1.1" not in str(caught.value)
    for arms, rewards, options in ((["a", "b"], [1], {}), (["a", "z"], [1, 1], {}), ("a", 1, {"person": "Ann"})):
        with pytest.raises(dirdp.errors.ArgumentError, match=r"as many|Unknown arm|contribution="):
            bandit.update(arms, rewards, **options)
    assert [one.pulls for one in bandit._run.state.open] == [0, 0]
    with pytest.raises(dirdp.errors.DataError, match="one of 'left'"):
        dirdp.ThompsonSampler("a", GUARANTEE, utilities={"left": 0, "bought": 1}).update("a", 1)


WRONG = [
    ("at least one arm", {"arms": []}),
    ("different", {"arms": ["a", "a"]}),
    ("text or an integer", {"arms": [True]}),
    ("growth", {"growth": 0}),
    ("first_batch", {"first_batch": 0}),
    ("prior", {"prior": (0, 1)}),
    ("never learns", {"prior": (1e13, 1)}),
    ("contribution", {"contribution": 0}),
    ("mechanism", {"mechanism": "laplace"}),
    ("contribution=", {"unit": "visitor"}),
    ("weaker one", {"unit": "reward", "contribution": 1}),
    ("printable", {"unit": "a\nb", "contribution": 1}),
    *(
        ("utilities", {"utilities": bad})
        for bad in ({"a": 1.0}, {"a": 1, "b": 1}, {1: 0, 2: 1}, {"a": math.nan, "b": 1})
    ),
]


def test_wrong_arguments_are_refused():
    for message, options in WRONG:
        with pytest.raises(dirdp.errors.ArgumentError, match=message):
            dirdp.ThompsonSampler(**{"arms": ["a"], "guarantee": GUARANTEE} | options)


@pytest.mark.parametrize("prior", [(1e12, 1), (1e12, 1e12), (1e-300, 1)])
def test_extreme_priors_and_budgets(prior):
    for epsilon in (1e-12, 1e6):
        bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=epsilon), prior, first_batch=3)
        bandit.update(["a", "b"] * 20, [1, 0] * 20)
        decision = bandit.posterior(draws=5)["decision"].to_dataset()
        assert ((decision >= 0) & (decision <= 1)).all()
        assert bandit.select() in ("a", "b")


def test_arms_come_and_go_and_come_back():
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, first_batch=4)
    bandit.update(["a"] * 6, [1] * 6)
    assert "a" in bandit.select(size=200)  # Arms are drawn ahead, and these draws are thrown away.
    bandit.retire_arm("a")
    bandit.add_arm("d")
    assert bandit.arms == ("b", "d")
    assert bandit.retired == ("a",)
    assert set(bandit.select(size=300)) <= {"b", "d"}
    assert bandit.posterior(5)["decision"]["arm"].values.tolist() == ["b", "d"]
    assert "retired" in str(dirdp.report(bandit, full=True))
    # A visitor for whom it was chosen before is counted, and the batch goes on when the arm is back.
    bandit.update("a", 1)
    bandit.add_arm("a")
    assert bandit.arms == ("a", "b", "d")
    bandit.update("a", 0)
    assert bandit.released["size"].values.tolist() == [4, 4]
    assert bandit.released["arm"].values.tolist() == ["a", "a"]
    assert {"a", "b", "d"} == set(bandit.select(size=3000))


def test_a_draw_of_ones_own_model_is_for_the_arms_that_are_left():
    bandit = dirdp.ThompsonSampler(["a", "b", "c"], GUARANTEE, first_batch=2)
    bandit.update(["a", "a", "c", "c"], [1, 1, 0, 0])
    bandit.retire_arm("a")
    assert bandit.select(theta=[0.1, 0.2]) == "c"
    with pytest.raises(dirdp.errors.ArgumentError, match="each of 2 arms"):
        bandit.select(theta=[0.1, 0.2, 0.3])
    # Only the batch of c is left in the likelihood.
    likelihoods = [float(bandit.release_logp(np.array([m, 0.5])).eval()) for m in (0.2, 0.9)]
    assert likelihoods[0] == likelihoods[1]


def test_what_is_no_change_is_refused():
    for message, change in (
        ("different from one another", lambda bandit: bandit.add_arm("a")),
        ("a text or an integer", lambda bandit: bandit.add_arm(True)),
        ("Unknown arm", lambda bandit: bandit.retire_arm("x")),
        ("retired already", lambda bandit: (bandit.retire_arm("a"), bandit.retire_arm("a"))),
        ("At least one arm", lambda bandit: [bandit.retire_arm(arm) for arm in ("a", "b", 1)]),
    ):
        bandit = dirdp.ThompsonSampler(["a", "b", 1], GUARANTEE)
        with pytest.raises(dirdp.errors.ArgumentError, match=message):
            change(bandit)
        assert set(bandit.select(size=200)) <= set(bandit.arms)


def test_the_file_and_the_transcript_have_the_arms(tmp_path, monkeypatch):
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, first_batch=2, path=tmp_path / "bandit.db")
    bandit.add_arm("c")
    bandit.update(["c", "c", "a"], [1, 0, 1])
    bandit.retire_arm("a")
    bandit.save()
    text = bandit.transcript().text
    again = dirdp.ThompsonSampler.load(tmp_path / "bandit.db")
    for found in (again, again.transcript()):
        assert found.arms == ("b", "c")
        assert found.retired == ("a",)
        assert found.released.identical(bandit.released)
    assert json.loads(text)["retired"] == ["a"]
    again.update("a", 1)
    assert again.released["arm"].values.tolist() == ["a", "c"]
    # The process that had the file open before changes nothing in it.
    with pytest.raises(dirdp.errors.ReleaseError, match="another process has loaded it"):
        bandit.add_arm("d")
    assert bandit.arms == ("b", "c")
    monkeypatch.setattr(type(again._run.file), "settle", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        again.retire_arm("b")
    assert again.arms == ("b", "c")
    monkeypatch.undo()
    again.retire_arm("b")
    assert dirdp.ThompsonSampler.load(tmp_path / "bandit.db").arms == ("c",)


def test_choices_are_made_among_the_arms_that_are_left():
    """By their own probabilities, and not by those that all arms had together."""
    bandit = dirdp.ThompsonSampler(["a", "b", "c"], GUARANTEE, first_batch=2)
    bandit.update(["a"] * 2 + ["b"] * 16, [1] * 2 + [0] * 16)
    beliefs = [tuple(one) for one in bandit._run.state.released]
    bandit.retire_arm("a")
    seen = bandit.select(size=4000)
    counts = [seen.count(label) for label in ("b", "c")]
    assert sum(counts) == 4000
    expected = best_probabilities(
        np.stack([Belief((1.0, 1.0), bandit.design.mechanism, one).weights for one in beliefs[1:]])
    )
    assert stats.chisquare(counts, 4000 * expected).pvalue > 1e-6
    assert stats.chisquare(counts, 4000 * np.roll(expected, 1)).pvalue < 1e-6
