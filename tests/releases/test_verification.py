"""A file is not believed: what an edited release says is found out, and nothing follows from it."""

import contextlib
import dataclasses
import sqlite3

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.accounting.entries import next_row
from pymc_dirdp.errors import ArgumentError, LedgerError, ReleaseError
from pymc_dirdp.privacy.people import adjacency_by_name
from pymc_dirdp.releases.interop import as_mechanism
from pymc_dirdp.releases.opened import from_text, open_release
from pymc_dirdp.releases.verification import verify
from pymc_dirdp.releases.wording import plan_assumptions
from tests.planned import planned_sample

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
KINDS = {
    "approx": (TARGET, {}),
    "renyi": (dirdp.RenyiDP(order=4, epsilon=0.5), {"released_draws": 3}),
    "truncated": (dirdp.TruncatedCDP(rho=0.1, omega=8), {"adjacency": "add-remove", "n_records": 100}),
    "pure": (dirdp.PureDP(epsilon=1.0), {"mechanism": "geometric"}),
    "zero": (dirdp.ZeroCDP(rho=0.05), {"mechanism": "gaussian", "released_draws": 2}),
    "apart": (TARGET, {"disjoint": [["p"], ["rate"]]}),
    "many": (TARGET, {"contribution": 2}),
    "exact": (TARGET, {"sampler": "exact"}),
}


def two_tables():
    with pm.Model(coords={"hair": ["black", "brown", "red"], "where": ["here", "there"]}) as model:
        p = pm.Dirichlet("p", a=np.ones((2, 3)), dims=("where", "hair"))
        pm.Multinomial("x", n=[30, 20], p=p, observed=[[20, 6, 4], [10, 5, 5]])
        rate = pm.Beta("rate", 1, 1)
        pm.Binomial("z", n=50, p=rate, observed=5)
        pm.Deterministic("odds", rate / (1 - rate))
    return model


class Released(dict):
    """One release of each kind, made when a test asks for it."""

    def __missing__(self, kind):
        target, options = KINDS[kind]
        return self.setdefault(kind, planned_sample(target, two_tables(), **options))


@pytest.fixture(scope="module")
def releases():
    return Released()


def failed(release):
    return [check.name for check in verify(release).checks if not check.passed]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.thorough
def test_what_the_library_made_follows_also_from_its_file(releases, kind, tmp_path):
    release = releases[kind]
    found = verify(release)
    assert found.follows
    assert bool(found)
    assert failed(release) == []
    assert found.stated == KINDS[kind][0]
    assert as_mechanism(release).satisfies(found.recomputed)
    release.to_netcdf(tmp_path / "release.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "release.nc", engine="h5netcdf") as back:
        assert verify(back) == found
        assert str(verify(back)) == str(found)
        assert as_mechanism(back).epsilon(1e-6) == as_mechanism(release).epsilon(1e-6)


R = ("plan", "tables", 0, "parameters", "r")


def test_whom_a_release_of_people_protects_is_part_of_its_text(edited):
    """Found by attack: all words on people could be replaced where the unit is not a record."""
    with pm.Model(coords={"person": range(4), "question": ["a", "b", "c"], "answer": ["no", "yes"]}) as model:
        theta = pm.Dirichlet("theta", np.ones((3, 2)), dims=("question", "answer"))
        pm.Categorical("answers", p=theta, observed=np.zeros((4, 3), dtype=int), dims=("person", "question"))
    release = dirdp.sample(TARGET, model, unit="person")
    assert verify(release)
    for name, value in (("unit", ["household"]), ("others", True), ("n_units", 400)):
        with pytest.raises(ReleaseError):
            verify(edited(release, (("plan", "people", name), value)))
    with pytest.raises(ReleaseError):
        verify(edited(release, (("plan", "people", "contribution"), 3)))


def test_one_table_with_more_records_than_the_guarantee_is_refused(releases, edited):
    """Found by attack: a table that was calibrated for one record stood under a guarantee for several."""
    one = ("plan", "tables", 0, "one_person_adds", "records")
    with pytest.raises(ReleaseError, match="other records of a person"):
        verify(edited(releases["many"], (one, 1)))


def test_a_text_with_halves_of_characters_is_no_release():
    with pytest.raises(ReleaseError, match="halves of characters"):
        from_text("\ud800")


def test_what_would_follow_instead_is_near_the_least(releases, edited):
    release = edited(releases["approx"], (R, 1.0))
    found = verify(release)
    p, rate = open_release(release).tables.values()
    curves = dirdp.mechanisms.DirichletMechanism(p.mechanism.alpha, 1.0)
    # Independent oracle: the loss of both is at least that of one, and at most the sum of their parts.
    assert curves.epsilon(1e-6) <= found.recomputed.epsilon
    assert found.recomputed.epsilon <= 1.001 * (curves.epsilon(0.5e-6) + rate.mechanism.epsilon(0.5e-6))
    assert str(found.recomputed) in " ".join(str(found).split())
    said = ("plan", "statement")
    stricter = edited(
        releases["renyi"], (("plan", "guarantee", "epsilon"), 0.1), (said, lambda text: text.replace("0.5", "0.1"))
    )
    assert verify(stricter).recomputed.epsilon == pytest.approx(0.5, rel=2e-3)
    assert verify(stricter).recomputed.epsilon >= as_mechanism(releases["renyi"]).renyi(4.0)


def test_numbers_that_are_too_large_for_any_curve_keep_nothing(releases, edited):
    for value in (1e-90, 1e9, 1e90, 1e-300, 1e300):
        try:
            found = verify(edited(releases["apart"], (R, value)))
        except ReleaseError:
            continue
        # A smaller r than was used cannot be distinguished from a release that used it.
        assert not found or value < 1


def test_two_releases_in_one_are_two_draws(releases, edited):
    """Found by attack: two releases put together looked like one."""
    with pytest.raises(ReleaseError, match="one finite number for each cell"):
        verify(edited(releases["approx"], (("output", "p", "draws"), lambda draws: [*draws, *draws])))


def test_draws_from_noisy_counts_are_as_many_as_one_likes(releases, edited):
    """The guarantee is about the noisy counts."""
    release = edited(releases["zero"], (("plan", "released_draws"), 7))
    assert verify(release)
    assert open_release(release).draws["p"].shape[0] == 7


def test_no_sign_of_a_file_reaches_a_terminal(releases, edited):
    r"""Found by attack: `\x1b[2J` in a text cleared the screen."""
    evil = "\x1b[2J\x1b[31mgood\x07\r\nguarantee  perfect\u202e\u2028"
    for path in (
        ("plan", "statement"),
        ("plan", "library_version"),
        ("plan", "sampler"),
        ("randomness",),
        ("plan", "strategy"),
    ):
        with pytest.raises(ReleaseError) as refused:
            verify(edited(releases["approx"], (path, evil)))
        assert all(sign.isprintable() or sign == "\n" for sign in str(refused.value))
    for path in (
        ("plan", "tables", 0, "name"),
        ("plan", "tables", 0, "labels", "hair", 0),
    ):
        for use in (verify, dirdp.report):
            try:
                shown = use(edited(releases["approx"], (path, evil)))
                texts = [str(shown), shown._repr_html_()]
            except ReleaseError as error:
                texts = [str(error)]
            for text in texts:
                assert all(sign.isprintable() or sign == "\n" for sign in text)
                assert "\nguarantee  perfect" not in text


def test_what_no_file_can_show_is_said_in_the_same_words_everywhere():
    """The list of what was believed left out that the sizes of groups, and whose row is whose, are public."""
    with pm.Model(coords={"ward": range(2), "cure": range(3)}) as model:
        p = pm.Dirichlet("p", a=np.ones((2, 3)), dims=("ward", "cure"))
        pm.Multinomial("x", n=[30, 20], p=p, observed=[[10, 12, 8], [9, 6, 5]], dims=("ward", "cure"))
        pm.Binomial("y", n=50, p=pm.Beta("q", 1, 1), observed=20)
    options = {"contribution": 1, "public": ["x"], "disjoint": [["x"], ["y"]], "min_count": 2}
    release = planned_sample(TARGET, model, **options)
    sentences = plan_assumptions(open_release(release).plan, released=True)
    assert len(sentences) == 9
    texts = [dirdp.report(release, full=True), dirdp.statement(release), verify(release).full]
    for text in (" ".join(str(one).lower().split()) for one in texts):
        for sentence in sentences:
            assert " ".join(sentence.lower().split()) in text


def odds(release):
    """What the report says of the odds, as one line."""
    text = " ".join(str(dirdp.report(release, full=True)).split())
    return text[text.index("posterior odds") :].split(" Equivalent ")[0]


@pytest.mark.thorough
def test_each_adjacency_has_its_own_words(releases):
    """A mutant that swapped them survived."""
    replaced, removed = (
        " ".join(str(dirdp.report(releases[kind], full=True)).split()) for kind in ("approx", "truncated")
    )
    assert "one record moves from one cell to another" in replaced
    assert "one record moves" not in removed
    assert adjacency_by_name("add-remove").statement in removed
    assert adjacency_by_name("add-remove").statement not in replaced


SPENT = dirdp.PureDP(epsilon=0.1)


def ledger_with(*facts, path=None, **options):
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=1.0), path, **options)
    for number, fact in enumerate(facts):
        ledger.spend(SPENT, what=f"hair {number}", **fact)
    return ledger


def test_a_ledger_is_verified_by_its_entries_and_a_head_that_was_noted(tmp_path):
    ledger = ledger_with({}, {}, path=tmp_path / "ledger.db")
    noted = ledger.head
    ledger.spend(SPENT, what="later")
    for head in (None, noted, ledger.head):
        found = verify(ledger, head=head)
        assert found
        assert (found.what, found.stated, found.failures) == ("ledger", ledger.guarantee, ())
        assert found.recomputed == ledger.guarantee
        assert ("through the head" in found.checks[0].sentence) == (head is not None)
    for head in (f"2:{'0' * 64}", f"4:{noted[2:]}"):
        found = verify(ledger, head=head)
        assert not found
        assert found.recomputed is None
        assert [check.name for check in found.checks if not check.passed] == ["entries"]
        assert "follows from" not in str(found).splitlines()[0]
    for head in ("", "2", 2, f"2:{'0' * 63}"):
        with pytest.raises(ArgumentError, match="head"):
            verify(ledger, head=head)


def test_a_head_is_for_a_ledger(releases):
    for other in (releases["approx"], dirdp.plan(TARGET, two_tables()), dirdp.ThompsonSampler(["a", "b"], TARGET)):
        with pytest.raises(ArgumentError, match=r"verify\(ledger, head="):
            verify(other, head="0:" + "0" * 64)


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM entries WHERE number = 2",
        "DELETE FROM entries WHERE number = 3",
        "UPDATE entries SET text = replace(text, '0.1', '0.01') WHERE number = 1",
        "UPDATE entries SET text = replace(text, 'hair', 'eyes') WHERE number = 3",
    ],
)
def test_a_damaged_ledger_is_no_error_of_a_verification(tmp_path, damage):
    ledger = ledger_with({}, {}, {}, path=tmp_path / "ledger.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.db")) as connection, connection:
        connection.execute(damage)
    found = verify(ledger)
    assert not found
    assert found.recomputed is None
    assert found.stated == dirdp.PureDP(epsilon=1.0)
    assert found.alternative == "No guarantee of the stated kind follows."
    assert "FAILED" in str(found)
    for use in (dirdp.report, dirdp.statement):
        with pytest.raises(LedgerError):
            use(ledger)


@pytest.mark.parametrize("options", [{}, {"adaptive": False}])
def test_a_ledger_that_was_written_again_beyond_its_limit_states_nothing(tmp_path, options):
    """Attack: with hashes that belong to it. The limit was said to follow, and was stated under the tables."""
    path = tmp_path / "ledger.db"
    ledger = ledger_with({}, path=path, **options)
    (entry,) = ledger.entries()
    rows = [ledger._store._start.last]
    for number in range(1, 13):
        rows.append(next_row(rows[-1][2], number, dataclasses.replace(entry, number=number).text))
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM entries")
        connection.executemany("INSERT INTO entries VALUES (?, ?, ?)", rows[1:])
        connection.execute("UPDATE ledger SET number = ?, hash = ?", rows[-1][::2])
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=1.0), path, **options)
    assert ledger.spent == {"epsilon": 1.2}
    assert "1.2 of 1 spent, -0.2 left" in str(ledger)
    assert not verify(ledger)
    assert verify(ledger).recomputed is None
    with pytest.raises(LedgerError, match="exceed its limit"):
        dirdp.statement(ledger)
    for text in (str(ledger), str(dirdp.report(ledger)), str(dirdp.report(ledger, full=True))):
        assert "together" not in text
        assert "odds" not in text


def test_a_ledger_that_allows_three_records_of_a_person_never_says_one():
    ledger = ledger_with({"contribution": 1}, {"contribution": 3}, {})
    assert "one record" not in str(dirdp.report(ledger)).lower()
    for place in (dirdp.statement(ledger), dirdp.report(ledger, full=True), verify(ledger).full):
        words = " ".join(str(place).split()).lower()
        assert "at most 1 record" not in words
        assert "at most one record" not in words
        assert "holds at most 3 records of a table" in words
    # One record of each is what is said where all entries say so.
    assert "at most 1 record" in str(dirdp.statement(ledger_with({}, {"contribution": 1})))


def test_a_plan_is_verified_like_its_release():
    for target, options in KINDS.values():
        plan = dirdp.plan(target, two_tables(), **options)
        found = verify(plan)
        assert found
        assert (found.what, found.stated) == ("plan", target)
        assert plan.composition.satisfies(found.recomputed)
        assert "randomness" not in [check.name for check in found.checks]
        assert set(found.mechanisms) == {"p", "rate"}
