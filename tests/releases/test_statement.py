"""What is printed under a published table: only what the file keeps, in words, and nothing that a page obeys."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.releases.opened import open_release
from tests.planned import one_row, planned_sample

TARGET, PURE = dirdp.ApproxDP(epsilon=1.0, delta=1e-6), dirdp.PureDP(epsilon=1.0)
EVIL = "a|b`c<script>x&*_[y](z)$ https:evil www.evil.org"
PRIVATE = {"adjacency": "add-remove", "n_records": 60}


def cells(markdown):
    """The cells of each row of the table, split at bars that no backslash escapes."""
    lines = markdown.splitlines()
    assert lines[1] == ""
    return [line.replace("\\\\", "").replace("\\|", "").split("|")[1:-1] for line in lines[2:]]


def test_a_statement_is_a_paragraph_and_a_table():
    release = dirdp.sample(TARGET, one_row())
    found = dirdp.statement(release)
    text, lines = str(found), dict(found.lines)
    assert text.startswith("**Privacy.** p was published with differential privacy.")
    assert all(len(row) == 2 for row in cells(text))
    assert len(cells(text)) == len(found.lines) + 2
    assert lines["guarantee"] == str(TARGET)
    assert lines["protected"] == release["privacy"].attrs["protected"]
    assert "the number of records, and who took part" in lines["not protected"]
    assert f"typically off by {float(release['utility']['share_error'][0]):.2g} (dirdp.estimate)" in text
    assert "pymc_dirdp.load(path) opens the file" in lines["to compute with it"]
    page = found._repr_html_()
    assert page.count("<tr>") == len(found.lines)
    assert "overflow-x:auto" in page


@pytest.mark.parametrize(
    ("guarantee", "flavour"),
    [
        (TARGET, "Approximate DP"),
        (dirdp.RenyiDP(order=2, epsilon=0.5), "Rényi DP"),
        # JSON has no infinity, so there was no entry.
        (dirdp.TruncatedCDP(rho=0.1, omega=math.inf), "Truncated concentrated DP"),
    ],
)
def test_the_entry_has_the_columns_of_the_register_and_the_digest_of_the_plan(guarantee, flavour):
    plan = dirdp.plan(guarantee, one_row(), mechanism="gaussian")
    statement = dirdp.statement(dirdp.sample(plan, one_row()))
    entry = json.loads(statement.to_json(), parse_constant=pytest.fail)
    with pytest.raises(ValueError, match="JSON"):
        replace(statement, entry=entry | {"epsilon": math.inf}).to_json()
    assert list(entry) == [
        *("product", "description", "flavor", "unit", "epsilon", "delta", "parameters", "neighbours", "model"),
        *("accounting", "implementation", "version", "digest"),
    ]
    assert (entry["product"], entry["flavor"], entry["model"]) == ("p", flavour, "Central")
    assert (entry["digest"], entry["version"], entry["delta"]) == (plan.digest, dirdp.__version__, 1e-6)
    # Any other kind is stated as epsilon at a delta, from above.
    assert entry["epsilon"] == 1.0 if guarantee is TARGET else entry["epsilon"] >= plan.composition.epsilon(1e-6)
    assert plan.composition.epsilon(1e-6) <= entry["epsilon"] * (1 + 1e-5)


EDITS = [
    lambda tree: tree["privacy"].attrs.update(epsilon=0.1),
    lambda tree: tree["mechanism/p"]["noise_parameter"].values.__setitem__((), 0.9),
    lambda tree: tree.attrs.pop("inference_library"),
]


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
def test_what_does_not_verify_has_no_statement_and_a_seeded_release_says_that_it_is_not_private(seed):
    release = dirdp.sample(PURE, one_row(), mechanism="geometric", random_seed=seed)
    found = dirdp.statement(release)
    text = str(found) + found._repr_html_() + found.to_json()
    assert ("NOT PRIVATE" in text) == (seed is not None)
    assert bool(re.search("differential privacy|odds", text)) == (seed is None)
    if seed:
        assert str(found).startswith("**NOT PRIVATE.**")
        assert "<strong>NOT PRIVATE.</strong>" in text
        entry = json.loads(found.to_json())
        assert entry["flavor"].startswith("none")
        assert entry["epsilon"] is entry["delta"] is None
    for edit in EDITS:
        edited = release.copy(deep=True)
        edit(edited)
        with pytest.raises(dirdp.errors.ReleaseError):
            dirdp.statement(edited)


def test_hostile_names_are_shown_and_not_obeyed():
    with pm.Model() as model:
        pm.Multinomial(f"n {EVIL}", n=100, p=pm.Dirichlet(EVIL, np.ones(3)), observed=[60, 30, 10])
    found = dirdp.statement(dirdp.sample(PURE, model, mechanism="geometric"))
    text, page = str(found), found._repr_html_()
    assert all(len(row) == 2 for row in cells(text))
    assert r"a\|b\`c&lt;script&gt;x&amp;\*\_\[y\](z)\$ https:evil www&#46;evil.org" in text
    assert "<" not in text
    assert "<script" not in page
    assert "a|b`c&lt;script&gt;x&amp;*_[y](z)$" in page
    assert json.loads(found.to_json())["product"] == EVIL


def spent(limit, guarantees, **options):
    ledger = dirdp.Ledger(limit, unit="person", **options)
    for number, guarantee in enumerate(guarantees, 1):
        ledger.spend(guarantee, what=f"quarter {number}")
    return ledger


def odds_of(source):
    return dict(dirdp.statement(source).lines)["posterior odds"]


def test_the_odds_of_several_pure_releases_are_those_of_all_outputs_together():
    """Oracle: geometric noise on a count and on its neighbour, for all pairs of two outputs."""
    epsilons, limit = (0.3, 0.4), dirdp.PureDP(epsilon=2.0)
    ledger = spent(limit, [dirdp.PureDP(epsilon=epsilon) for epsilon in epsilons])
    assert ledger.guarantee == dirdp.PureDP(epsilon=0.7)
    z = np.arange(-20, 21)
    first, second = (epsilon * (np.abs(z - 1) - np.abs(z)) for epsilon in epsilons)
    both, one = (
        float(re.match(r"times ([\d.e+]+) at most(?!, except)", odds_of(one))[1])
        for one in (ledger, spent(limit, [dirdp.PureDP(epsilon=0.4)]))
    )
    assert math.exp(np.add.outer(first, second).max()) <= both < 1.01 * math.exp(0.7)
    assert one < math.exp(0.7)


def test_a_ledger_is_stated_with_what_it_assumes_and_reserves():
    ledger = dirdp.Ledger(TARGET, unit="person", adjacency="add-remove")
    with pytest.raises(dirdp.errors.ArgumentError, match="holds no release yet"):
        dirdp.statement(ledger)
    part = dirdp.ApproxDP(epsilon=0.05, delta=1e-9)
    ledger.reserve(part, what="the next quarter")
    ledger.spend(part, what="quarter 1 | <b>", contribution=3)
    found = dirdp.statement(ledger)
    lines, entry = dict(found.lines), json.loads(found.to_json())
    assert lines["guarantee"].startswith(str(ledger.guarantee))
    assert lines["reserved"].startswith("the next quarter")
    assert "at most 3 records of one person count in a table" in lines["assumed"]
    assert "whether the records of one person are in the data" in found.paragraph
    assert (entry["delta"], entry["digest"]) == (ledger.guarantee.delta, ledger.head)
    assert "<b>" not in str(found) + found._repr_html_()
    assert all(len(row) == 2 for row in cells(str(found)))


@pytest.mark.parametrize(
    ("epsilon", "options"), [(1.0, {}), (5.0, {}), (5.0, PRIVATE), (1000.0, PRIVATE)], ids=["1", "5", "5-", "1000-"]
)
def test_how_likely_the_counts_themselves_are_is_that_of_the_noise(epsilon, options):
    """By independent draws of the mechanism; and no probability is rounded to 100 % where it is less."""
    counts, times = np.array([10, 20, 30]), 5000
    release = planned_sample(dirdp.PureDP(epsilon=epsilon), one_row(counts), mechanism="geometric", **options)
    statement = dirdp.statement(release)
    found = statement.paragraph
    assert not re.search("100 %|they are not the counts", found)
    # Under add-remove two answers of one person are two steps apart, so nothing is said of their odds.
    assert ("whether the records of one person are in the data" in found) == bool(options)
    assert ("who took part" in dict(statement.lines)["not protected"]) != bool(options)
    mechanism = open_release(release).tables["p"].mechanism
    same = np.mean((mechanism.releases(counts, times, random_seed=3) == counts).all(axis=-1))
    stated = np.exp(mechanism.log_no_noise)
    # Five standard errors, and less than one of 10 million tests fails by chance; few draws are Poisson.
    assert abs(same - stated) <= 5.4 * np.sqrt(max(stated * (1 - stated), 1 / times) / times) + 5 / times
    if stated > 1 - 1e-12:
        assert "All noise is 0 but for a probability below 1e-12" in found
        return
    printed = re.search(r"with a probability of (.*) at most\.$", found)[1]
    bound = 1 - float(printed[4:]) if printed.startswith("1 - ") and "exp" not in printed else None
    bound = float(printed.removesuffix(" %")) / 100 if printed.endswith("%") else bound
    assert stated <= bound <= 1.1 * stated + 1e-15


def test_a_release_and_its_ledger_say_the_same_of_whose_odds_they_are(tmp_path):
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=2.0), tmp_path / "ledger")
    with pm.Model() as model:
        pm.Multinomial("x", n=60, p=pm.Dirichlet("p_sex", np.ones(2)), observed=[25, 35])
    release = dirdp.sample(PURE, model, mechanism="geometric", ledger=ledger)
    assert {odds_of(one).rpartition("about ")[2] for one in (release, ledger)} == {"the records of one person"}
    # An underscore within a word is none of Markdown's signs, and a title is one of what is published.
    assert "p_sex" in str(dirdp.statement(release))
    assert dirdp.report(release, full=True).title == "Private table of noisy counts of p_sex"
