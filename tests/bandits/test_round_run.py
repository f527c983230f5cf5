"""The sampler itself with a draw in every round."""

import numpy as np
import pytest

import pymc_dirdp as dirdp

GUARANTEE = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
EVERY = {"schedule": "every-round"}


def test_it_plays_as_many_rounds_as_its_guarantee_is_for():
    ledger = dirdp.Ledger(GUARANTEE, unit="reward")
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, **EVERY, horizon=20, ledger=ledger)
    assert len(ledger.entries()) == 1
    assert bandit.privacy.satisfies(GUARANTEE)
    chosen = []
    for _ in range(15):
        chosen.append(bandit.select())
        bandit.update(chosen[-1], int(chosen[-1] == "a"))
    chosen += bandit.select(size=4)
    with pytest.raises(dirdp.errors.ArgumentError, match="and 1 are left"):
        bandit.select(size=2)
    chosen.append(bandit.select())
    with pytest.raises(dirdp.errors.ArgumentError, match="for 20 rounds, and 0 are left"):
        bandit.select()
    released = bandit.released
    assert dict(released.sizes) == {"round": 20, "arm": 2}
    draws = released["draw"].values
    assert ((draws > 0) & (draws < 1)).all()
    # Draws are on a grid, so two may be equal.
    assert [draws[t, bandit.arms.index(arm)] for t, arm in enumerate(chosen)] == draws.max(axis=1).tolist()
    # Rewards that come late cost nothing, and the arms of a guarantee for a horizon stay.
    bandit.update("b", 0.5)
    with pytest.raises(dirdp.errors.ArgumentError, match="the arms cannot change"):
        bandit.add_arm("c")


@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
def test_draws_that_are_equal_choose_every_arm_as_often(monkeypatch):
    """A choice of the first of them would be another distribution than that of Thompson sampling."""
    bandit = dirdp.ThompsonSampler(["a", "b", "c"], GUARANTEE, **EVERY, horizon=600, random_seed=3)
    monkeypatch.setattr(type(bandit.design), "draw", lambda design, counts, bits: 0.5)
    chosen = bandit.select(size=600)
    assert all(abs(chosen.count(arm) - 200) < 60 for arm in "abc")
    draws = iter([0.7, 0.2, 0.7] * 300)
    bandit = dirdp.ThompsonSampler(["a", "b", "c"], GUARANTEE, **EVERY, horizon=300, random_seed=3)
    monkeypatch.setattr(type(bandit.design), "draw", lambda design, counts, bits: next(draws))
    chosen = bandit.select(size=300)
    assert not chosen.count("b")
    assert abs(chosen.count("a") - 150) < 50


def test_its_report_says_what_it_costs():
    bandit = dirdp.ThompsonSampler(["a"], GUARANTEE, **EVERY, horizon=100)
    bandit.update(["a"] * 3, [1, 1, 1])
    bandit.select()
    report = " ".join(str(dirdp.report(bandit, full=True)).split())
    r = bandit.design.mechanism.r
    assert "a run of at most 100 rounds" in report
    assert "100 draws share the guarantee" in report
    assert f"as wide as a posterior of {r:.3g} n rewards" in report
    assert "1 of 100 are over" in report
    assert "any length" not in report
    assert "3" not in repr(vars(bandit._run)["state"])


def test_it_has_no_posterior_and_no_file(tmp_path):
    bandit = dirdp.ThompsonSampler(["a", "b"], GUARANTEE, **EVERY, horizon=10)
    for refused in (bandit.posterior, bandit.model, lambda: bandit.release_logp(None)):
        with pytest.raises(dirdp.errors.ArgumentError, match="no posterior"):
            refused()
    with pytest.raises(dirdp.errors.ArgumentError, match="every-round"):
        bandit.transcript()
    path, ledger = tmp_path / "bandit.db", dirdp.Ledger(GUARANTEE)
    with pytest.raises(dirdp.errors.ArgumentError, match="has no file"):
        bandit.save(path)
    with pytest.raises(dirdp.errors.ArgumentError, match="has no file"):
        dirdp.ThompsonSampler(["a"], GUARANTEE, **EVERY, horizon=10, path=path, ledger=ledger)
    assert ledger.entries() == ()
    assert not path.exists()


@pytest.mark.thorough
def test_a_simulation_has_the_distribution_of_the_sampler():
    """Pulls of the better arm, with draws in floating point and in integers."""
    means, rounds = {"a": 0.9, "b": 0.1}, 12
    loose = dirdp.ApproxDP(epsilon=50.0, delta=1e-2)
    rng, pulls = np.random.default_rng(3), []
    for _ in range(20):
        bandit = dirdp.ThompsonSampler(list(means), loose, **EVERY, horizon=rounds)
        for _ in range(rounds):
            arm = bandit.select()
            bandit.update(arm, int(rng.random() < means[arm]))
        chosen = bandit.released["draw"].values.argmax(axis=1)
        pulls.append(int((chosen == 0).sum()))
    runs = dirdp.simulate_bandit(bandit, list(means.values()), rounds, 4000, random_seed=1, progressbar=False)
    assert runs.name == "a private draw in every round"
    spread = runs.pulls[:, 0].std() / np.sqrt(20)
    assert np.mean(pulls) == pytest.approx(runs.pulls[:, 0].mean(), abs=4 * spread)
    # A policy that learns nothing pulls both arms alike.
    assert np.mean(pulls) > rounds / 2 + 4 * spread


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "always"}, "schedule 'always'"),
        ({"schedule": None}, "schedule"),
        (EVERY, "Pass horizon="),
        (EVERY | {"horizon": 0}, "horizon"),
        (EVERY | {"horizon": 2.5}, "horizon"),
        ({"horizon": 10}, "horizon= is for schedule='every-round'"),
        *[
            (EVERY | {"horizon": 3, name: value}, f"{name}= is for batches")
            for name, value in (("mechanism", "geometric"), ("first_batch", 4), ("growth", 2.0), ("contribution", 1))
        ],
    ],
)
def test_options_that_do_not_go_together(options, message):
    with pytest.raises(dirdp.errors.ArgumentError, match=message):
        dirdp.ThompsonSampler(["a"], GUARANTEE, **options)
