"""What a bandit has released, as a text that anybody reads and nobody goes on from."""

import json

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.bandits import Transcript
from pymc_dirdp.bandits import runs as runs_of_bandits
from pymc_dirdp.texts.grammar import parse


def run(**options):
    bandit, rng = dirdp.ThompsonSampler(["a", 7, "ü"], dirdp.PureDP(epsilon=1.0), **options), np.random.default_rng(3)
    for number in range(400):
        person = number if "contribution" in options else None
        bandit.update(bandit.select(), int(rng.random() < 0.4), person=person)
    return bandit


@pytest.fixture(
    scope="module", params=[{}, {"contribution": 2, "unit": "visitor", "prior": (2.0, 3.0)}], ids=["rewards", "people"]
)
def bandit(request):
    return run(**request.param)


def test_what_is_read_shows_what_the_bandit_shows(bandit, tmp_path, monkeypatch):
    dirdp.save(bandit.transcript(), tmp_path / "run.json.gz")
    found = dirdp.load(tmp_path / "run.json.gz")
    assert isinstance(found, Transcript)
    assert found.released.identical(bandit.released)
    np.testing.assert_allclose(found.posterior(10)["decision"]["mean"], bandit.posterior(10)["decision"]["mean"])
    assert repr(found).startswith(f"Transcript(3 arms, {found.released.sizes['batch']} batches, ")
    right = dirdp.verify(bandit)
    assert right
    assert right.stated == right.recomputed == dirdp.PureDP(epsilon=1.0)
    for other in (bandit.transcript(), found, tmp_path / "run.json.gz", str(tmp_path / "run.json.gz")):
        assert dirdp.verify(other) == right
    # A text of a megabyte may have 100,000 batches, whose posterior takes half a minute.
    monkeypatch.setattr(runs_of_bandits, "infer_shares", lambda *_: pytest.fail("computed"))
    found = dirdp.load(tmp_path / "run.json.gz")
    assert str(dirdp.report(found, full=True)) == str(dirdp.report(bandit, full=True))
    with pytest.raises(pytest.fail.Exception, match="computed"):
        found.posterior()


def test_the_text_holds_nothing_that_is_open_and_nobody(bandit):
    text = bandit.transcript().text
    facts = json.loads(text)
    settings = bandit.transcript()._settings
    assert settings.key.hex() not in text
    assert bandit._settings.key.hex() not in text
    # Nor does anything else of it know the key by which people are distinguished.
    assert settings.key != bandit._settings.key
    public = "guarantee unit arms retired utilities design seeded released"
    assert set(facts) == {"digest", "format", "version", "statement", "library_version", *public.split()}
    assert [len(one) for one in facts["released"]] == [
        list(map(str, bandit.released["arm"].values)).count(str(arm)) for arm in bandit.arms
    ]


WRONG = {
    ("released", 0, 0, 0): [99],
    ("released", 0, 0, 1): [10**6 + 0.5, True],
    ("released", 0): [[]],
    ("released",): [[]],
    ("design", "scale"): [1e-3],
    ("seeded",): [1],
    ("arms", 0): ["ü", None],
    ("unit",): ["x\n"],
    ("guarantee", "epsilon"): [0.1],
    ("utilities",): [{"left": 1}],
    ("retired",): [[7, 7], ["x"], ["a", 7, "ü"], [True], "a", None, [7, "a"]],
}


def test_a_transcript_that_contradicts_itself_or_says_less_than_it_loses_is_refused(text_of_facts):
    text = run().transcript().text
    for path, value in ((path, value) for path, values in WRONG.items() for value in values):
        facts = json.loads(text)
        facts.pop("digest")
        inside = facts
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = inside[path[-1]][1:] if path == ("released", 0) else value
        with pytest.raises(dirdp.errors.DirdpError, match=r"damaged|does not satisfy"):
            parse(text_of_facts(facts).encode())
    facts = json.loads(text)
    facts.pop("digest")
    for retired in ([], [7], ["a", 7]):
        assert parse(text_of_facts(facts | {"retired": retired}).encode()).retired == tuple(retired)
    for epsilon in (2.0, 0.5):
        facts["statement"], facts["guarantee"]["epsilon"] = f"{epsilon:g}-differential privacy", epsilon
        if epsilon > 1:
            assert parse(text_of_facts(facts).encode()).guarantee.epsilon == epsilon
    with pytest.raises(dirdp.errors.UnattainableError, match="although its transcript says so"):
        parse(text_of_facts(facts).encode())


def test_a_bandit_with_a_seed_does_not_verify_and_states_no_guarantee():
    with pytest.warns(dirdp.errors.SeededReleaseWarning):
        bandit, again = (run(random_seed=1) for _ in range(2))
    assert bandit.released.equals(again.released)
    assert "not private" in bandit.released.attrs["reproducible"]
    assert str(dirdp.report(bandit, full=True)).startswith("Not private")
    stated = dirdp.statement(bandit)
    assert (stated.title, dict(stated.lines)["privacy"]) == ("NOT PRIVATE", "none")
    assert "differential privacy" not in str(stated)
    for seeded in (bandit, bandit.transcript()):
        found = dirdp.verify(seeded)
        assert not found
        assert found.recomputed is None
        assert [check.name for check in found.checks if not check.passed] == ["randomness"]
        assert found.headline.startswith("Not private")


def test_a_run_has_a_statement_that_its_file_has_too(bandit, tmp_path):
    found = dirdp.statement(bandit)
    dirdp.save(bandit.transcript(), tmp_path / "run.json")
    assert str(found) == str(dirdp.statement(tmp_path / "run.json")) == str(dirdp.statement(bandit.transcript()))
    protected = "one reward" if bandit._settings.contribution is None else "the rewards of one visitor"
    assert f"about {protected}" in found.paragraph
    assert "by 2.72 at most." in found.paragraph
    assert {"guarantee", "protects", "holds if", "not covered", "posterior odds", "noise"} <= set(dict(found.lines))
    assert found.entry["digest"] == bandit.transcript().digest
    assert (found.entry["epsilon"], found.entry["delta"]) == (1.0, 0.0)
    # A run of draws in every round has no text, and so no digest.
    guarantee = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
    found = dirdp.statement(dirdp.ThompsonSampler(["a", "b"], guarantee, schedule="every-round", horizon=20))
    assert "except with a probability of at most 1e-06" in found.paragraph
    assert found.entry["digest"] == ""
