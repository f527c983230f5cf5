"""What is printed under a published table: only what the file keeps, in words, and nothing that a page obeys."""

import json
import math
import re

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.releases.opened import open_release
from tests.planned import planned_sample

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
EVIL = "a|b`c<script>x&*_[y](z)$ https:evil www.evil.org"


def survey(name="p", observed="students", labels=("x", "y", "z")):
    with pm.Model(coords={"answer": list(labels)}) as model:
        p = pm.Dirichlet(name, np.ones(3), dims="answer")
        pm.Multinomial(observed, n=100, p=p, observed=[60, 30, 10], dims="answer")
    return model


def cells(markdown):
    """The cells of each row of the table, split at bars that no backslash escapes."""
    lines = markdown.splitlines()
    assert lines[1] == ""
    return [line.replace("\\\\", "").replace("\\|", "").split("|")[1:-1] for line in lines[2:]]


def test_a_statement_is_a_paragraph_and_a_table():
    release = dirdp.sample(TARGET, survey())
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
    assert "pymc_dirdp.analyse(release)" in lines["to compute with it"]
    page = found._repr_html_()
    assert page.count("<tr>") == len(found.lines)
    assert "overflow-x:auto" in page


@pytest.mark.parametrize(
    ("guarantee", "options", "flavour", "loss"),
    [
        (TARGET, {}, "Approximate DP", (1.0, 1e-6)),
        (dirdp.RenyiDP(order=2, epsilon=0.5), {"released_draws": 3}, "Rényi DP", (None, 1e-6)),
    ],
)
def test_the_entry_has_the_columns_of_the_register_and_the_digest_of_the_plan(guarantee, options, flavour, loss):
    plan = dirdp.plan(guarantee, survey(), **options)
    release = dirdp.sample(plan, survey())
    entry = json.loads(dirdp.statement(release).to_json())
    assert list(entry) == [
        *("product", "description", "flavor", "unit", "epsilon", "delta", "parameters", "neighbours", "model"),
        *("accounting", "implementation", "version", "digest"),
    ]
    assert (entry["product"], entry["flavor"], entry["model"]) == ("p", flavour, "Central")
    assert (entry["digest"], entry["version"]) == (plan.digest, dirdp.__version__)
    epsilon, delta = loss
    assert entry["delta"] == delta
    # Any other kind is stated as epsilon at a delta, from above.
    assert entry["epsilon"] == epsilon if epsilon else entry["epsilon"] >= plan.composition.epsilon(delta)
    assert plan.composition.epsilon(delta or 1e-9) <= entry["epsilon"] * (1 + 1e-5)


def test_a_seeded_release_says_loudly_that_it_is_not_private():
    with pytest.warns(dirdp.errors.SeededReleaseWarning):
        release = dirdp.sample(TARGET, survey(), random_seed=1)
    found = dirdp.statement(release)
    assert str(found).startswith("**NOT PRIVATE.**")
    assert "<strong>NOT PRIVATE.</strong>" in found._repr_html_()
    entry = json.loads(found.to_json())
    assert entry["flavor"].startswith("none")
    assert entry["epsilon"] is entry["delta"] is None
    for text in (str(found), found._repr_html_(), found.to_json()):
        assert "differential privacy" not in text
        assert "odds" not in text


@pytest.mark.parametrize(
    "edit",
    [
        lambda tree: tree["privacy"].attrs.update(epsilon=0.1),
        lambda tree: tree["privacy"].attrs.update(protected="everybody"),
        lambda tree: tree["mechanism/p"]["r"].values.__setitem__((), 0.9),
        lambda tree: tree.attrs.update(note="all answers are safe"),
        lambda tree: tree.attrs.pop("inference_library"),
    ],
)
@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
def test_a_release_that_does_not_verify_has_no_statement(edit, seed):
    release = dirdp.sample(TARGET, survey(), random_seed=seed)
    edit(release)
    with pytest.raises(dirdp.errors.ReleaseError):
        dirdp.statement(release)


def test_hostile_names_are_shown_and_not_obeyed():
    found = dirdp.statement(dirdp.sample(TARGET, survey(EVIL, f"n {EVIL}")))
    text, page = str(found), found._repr_html_()
    assert all(len(row) == 2 for row in cells(text))
    shown = r"a\|b\`c&lt;script&gt;x&amp;\*\_\[y\](z)\$ https:evil www&#46;evil.org"
    assert shown in text
    assert "<" not in text
    assert "<script" not in page
    assert "a|b`c&lt;script&gt;x&amp;*_[y](z)$" in page
    assert json.loads(found.to_json())["product"] == EVIL


def test_under_add_remove_the_odds_are_about_being_in_the_data():
    """Two answers of one person are two steps apart there, so nothing is said of their odds."""
    release = dirdp.sample(TARGET, survey(), adjacency="add-remove", n_records=100)
    found = dirdp.statement(release)
    assert "whether the records of one person are in the data" in found.paragraph
    assert "who took part" not in dict(found.lines)["not protected"]


def stated_odds(ledger):
    """The factor of a ledger's statement, and the probability that it leaves out."""
    odds = dict(dirdp.statement(ledger).lines)["posterior odds"]
    factor, probability = re.match(
        r"times ([\d.e+]+) at most(?:, except with a probability of at most ([\d.e-]+))?", odds
    ).groups()
    return float(factor), float(probability or 0)


def spent(limit, guarantees, **options):
    ledger = dirdp.Ledger(limit, unit="person", **options)
    for number, guarantee in enumerate(guarantees, 1):
        ledger.spend(guarantee, what=f"quarter {number}")
    return ledger


def test_the_odds_of_several_pure_releases_are_those_of_all_outputs_together():
    """Oracle: geometric noise on a count and on its neighbour, for all pairs of two outputs."""
    epsilons = 0.3, 0.4
    ledger = spent(dirdp.PureDP(epsilon=2.0), [dirdp.PureDP(epsilon=epsilon) for epsilon in epsilons])
    assert ledger.guarantee == dirdp.PureDP(epsilon=0.7)
    z = np.arange(-20, 21)
    first, second = (epsilon * (np.abs(z - 1) - np.abs(z)) for epsilon in epsilons)
    factor, probability = stated_odds(ledger)
    assert probability == 0
    assert math.exp(np.add.outer(first, second).max()) <= factor < 1.01 * math.exp(0.7)
    # One release alone has smaller odds than some pairs of outputs.
    assert stated_odds(spent(dirdp.PureDP(epsilon=2.0), [dirdp.PureDP(epsilon=0.4)]))[0] < math.exp(0.7)


def test_a_ledger_of_releases_is_stated_with_what_it_assumes_and_reserves():
    ledger = dirdp.Ledger(TARGET, unit="person", adjacency="add-remove")
    with pytest.raises(dirdp.errors.ArgumentError, match="holds no release yet"):
        dirdp.statement(ledger)
    part = dirdp.ApproxDP(epsilon=0.05, delta=1e-9)
    number = ledger.reserve(part, what="the next quarter")[0].number
    for quarter in range(1, 12):
        ledger.spend(part, what=f"quarter {quarter} | <b>", contribution=3)
    found = dirdp.statement(ledger)
    lines, entry = dict(found.lines), json.loads(found.to_json())
    assert ledger.guarantee == TARGET
    assert lines["guarantee"].startswith(str(TARGET))
    assert lines["published"].endswith("and 3 more")
    assert lines["reserved"].startswith("the next quarter")
    assert "at most 3 records of one person count in a table" in lines["assumed"]
    assert "whether the records of one person are in the data" in found.paragraph
    assert (entry["epsilon"], entry["delta"], entry["digest"]) == (1.0, 1e-6, ledger.head)
    assert "<b>" not in str(found) + found._repr_html_()
    assert all(len(row) == 2 for row in cells(str(found)))
    ledger.using(number).spend(part, what="the next quarter")
    assert "reserved" not in dict(dirdp.statement(ledger).lines)


@pytest.mark.parametrize("epsilon", [1.0, 5.0, 1000.0])
@pytest.mark.parametrize("adjacency", ["replace-one", "add-remove"])
def test_how_likely_the_counts_themselves_are_is_that_of_the_noise(epsilon, adjacency):
    """By independent draws of the mechanism; and no probability is rounded to 100 % where it is less."""
    with pm.Model():
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("x", n=60, p=p, observed=[10, 20, 30])
        options = {"adjacency": adjacency} | ({"n_records": 60} if adjacency == "add-remove" else {})
        release = planned_sample(dirdp.PureDP(epsilon=epsilon), mechanism="geometric", **options)
    found = dirdp.statement(release).paragraph
    assert "100 %" not in found
    assert "they are not the counts" not in found
    mechanism = open_release(release).tables["p"].mechanism
    counts, times = np.array([10, 20, 30]), 20_000
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
    with pm.Model(coords={"sex_of": ["f", "m"]}):
        p = pm.Dirichlet("p_sex", np.ones(2), dims="sex_of")
        pm.Multinomial("x", n=60, p=p, observed=[25, 35])
        release = dirdp.sample(dirdp.PureDP(epsilon=1.0), mechanism="geometric", ledger=ledger)
    of_release, of_ledger = dirdp.statement(release), dirdp.statement(ledger)
    odds = [dict(found.lines)["posterior odds"].rpartition("about ")[2] for found in (of_release, of_ledger)]
    assert odds[0] == odds[1] == "the records of one person"
    # An underscore within a word is none of Markdown's signs, and a title is one of what is published.
    assert "p_sex" in str(of_release)
    assert dirdp.report(release, full=True).title == "Private table of noisy counts of p_sex"
