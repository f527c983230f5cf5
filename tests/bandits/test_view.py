"""What a bandit has released, as a text that anybody reads and nobody goes on from."""

import json

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.bandits import Transcript
from pymc_dirdp.bandits import runs as runs_of_bandits
from pymc_dirdp.texts.grammar import parse


def run(**options):
    guarantee = dirdp.PureDP(epsilon=1.0)
    rng = np.random.default_rng(3)
    bandit = dirdp.ThompsonSampler(["a", 7, "ü"], guarantee, **options)
    people = options.get("contribution")
    for number in range(400):
        arm = bandit.select()
        bandit.update(arm, int(rng.random() < 0.4), person=None if people is None else number)
    return bandit


RUNS = {
    "noise": {},
    "people": {"contribution": 2, "unit": "visitor"},
    "prior": {"prior": (2.0, 3.0)},
}


@pytest.fixture(scope="module", params=RUNS)
def bandit(request):
    return run(**RUNS[request.param])


def test_what_is_read_shows_what_the_bandit_shows(bandit, tmp_path):
    dirdp.save(bandit.transcript(), tmp_path / "run.json.gz")
    found = dirdp.load(tmp_path / "run.json.gz")
    assert isinstance(found, Transcript)
    assert found.released.identical(bandit.released)
    assert str(dirdp.report(found, full=True)) == str(dirdp.report(bandit, full=True))
    np.testing.assert_allclose(found.posterior(10)["decision"]["mean"], bandit.posterior(10)["decision"]["mean"])
    assert (
        repr(found)
        == f"Transcript({len(bandit.arms)} arms, {found.released.sizes['batch']} batches, {found.guarantee})"
    )
    assert not hasattr(found, "update")
    assert not hasattr(found, "select")


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


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("released", 0, 0, 0), 99),
        (("released", 0, 0, 1), 10**6 + 0.5),
        (("released", 0, 0, 1), True),
        (("released", 0), []),
        (("released",), []),
        (("design", "scale"), 1e-3),
        (("seeded",), 1),
        (("arms", 0), "ü"),
        (("arms", 0), None),
        (("unit",), "x\n"),
        (("guarantee", "epsilon"), 0.1),
        (("utilities",), {"left": 1}),
    ],
)
def test_a_transcript_that_contradicts_itself_is_refused(path, value, text_of_facts, tmp_path):
    facts = json.loads(run().transcript().text)
    facts.pop("digest")
    inside = facts
    for key in path[:-1]:
        inside = inside[key]
    before, inside[path[-1]] = inside[path[-1]], value
    if path == ("released", 0):
        value.extend(before[1:])
    (tmp_path / "run.json").write_text(text_of_facts(facts), encoding="utf-8")
    with pytest.raises((dirdp.errors.ReleaseError, dirdp.errors.UnattainableError), match=r"damaged|does not satisfy"):
        dirdp.load(tmp_path / "run.json")


def test_a_text_is_opened_without_computing_a_posterior(bandit, tmp_path, monkeypatch):
    """A text of a megabyte may have 100,000 batches, whose posterior takes half a minute."""
    dirdp.save(bandit.transcript(), tmp_path / "run.json")
    monkeypatch.setattr(runs_of_bandits, "infer_shares", lambda *_: pytest.fail("computed"))
    found = dirdp.load(tmp_path / "run.json")
    assert str(dirdp.report(found, full=True)) == str(dirdp.report(bandit, full=True))
    with pytest.raises(pytest.fail.Exception, match="computed"):
        found.posterior()


def test_a_transcript_of_less_than_it_says_is_no_bandit(text_of_facts):
    transcript = run().transcript()
    for epsilon, allowed in ((2.0, True), (0.5, False)):
        facts = json.loads(transcript.text)
        facts.pop("digest")
        facts["guarantee"]["epsilon"] = epsilon
        facts["statement"] = f"{epsilon:g}-differential privacy"
        text = text_of_facts(facts).encode()
        if allowed:
            assert parse(text).guarantee.epsilon == epsilon
        else:
            with pytest.raises(dirdp.errors.UnattainableError, match="although its transcript says so"):
                parse(text)


def test_a_transcript_is_verified_like_its_bandit(bandit, tmp_path):
    path = tmp_path / "run.json"
    dirdp.save(bandit.transcript(), path)
    right = dirdp.verify(bandit)
    assert right
    assert right.what == "bandit"
    assert right.stated == right.recomputed == dirdp.PureDP(epsilon=1.0)
    for other in (bandit.transcript(), dirdp.load(path), path, str(path)):
        assert dirdp.verify(other) == right


def test_a_bandit_with_a_seed_does_not_verify_and_states_no_guarantee():
    with pytest.warns(dirdp.errors.SeededReleaseWarning):
        bandit = run(random_seed=1)
    stated = dirdp.statement(bandit)
    assert stated.title == "NOT PRIVATE"
    assert "differential privacy" not in str(stated)
    assert dict(stated.lines)["privacy"] == "none"
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
    lines = dict(found.lines)
    assert {"guarantee", "protects", "holds if", "not covered", "posterior odds", "noise"} <= set(lines)
    assert found.entry["digest"] == bandit.transcript().digest
    assert (found.entry["epsilon"], found.entry["delta"]) == (1.0, 0.0)


def test_a_run_of_draws_in_every_round_has_a_statement_without_a_digest():
    guarantee = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
    found = dirdp.statement(dirdp.ThompsonSampler(["a", "b"], guarantee, schedule="every-round", horizon=20))
    assert "except with a probability of at most 1e-06" in found.paragraph
    assert found.entry["digest"] == ""
