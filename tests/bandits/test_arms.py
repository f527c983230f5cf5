"""Arms that come and go."""

import json

import numpy as np
import pytest
from scipy import stats

import pymc_dirdp as dirdp
from pymc_dirdp.bandits.batch_release import BatchNoise
from pymc_dirdp.bandits.beliefs import Belief, best_probabilities

GUARANTEE = dirdp.PureDP(epsilon=1.0)


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


WRONG = {
    "different from one another": lambda bandit: bandit.add_arm("a"),
    "a text or an integer": lambda bandit: bandit.add_arm(True),
    "Unknown arm": lambda bandit: bandit.retire_arm("x"),
    "retired already": lambda bandit: (bandit.retire_arm("a"), bandit.retire_arm("a")),
    "At least one arm": lambda bandit: [bandit.retire_arm(arm) for arm in ("a", "b", 1)],
}


def test_what_is_no_change_is_refused():
    for message, change in WRONG.items():
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
    # Where the file cannot be written nothing changes.
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
    noise = BatchNoise.for_guarantee(GUARANTEE)
    expected = best_probabilities(np.stack([Belief((1.0, 1.0), noise, one).weights for one in beliefs[1:]]))
    assert stats.chisquare(counts, 4000 * expected).pvalue > 1e-6
    assert stats.chisquare(counts, 4000 * np.roll(expected, 1)).pvalue < 1e-6
