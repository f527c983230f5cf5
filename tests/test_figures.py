"""The scripts of `examples/experiments`, and the records of their full runs that the page on the papers shows."""

import importlib
import io
import json
import math
import re
import runpy
import shutil
import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import outside
import outside_simulated
import pandas as pd
import pytest
import statements
from p1_data import DATA

from tests.sources import DOCS, PAGES, ROOT, TEXTS, rows_of

SCRIPTS, RECORDS = ROOT / "examples" / "experiments", DOCS / "figures"
CODE = {path.stem: TEXTS[f"examples/experiments/{path.name}"] for path in sorted(SCRIPTS.glob("*.py"))}
NAMES = [name for name, code in CODE.items() if re.match(r"p[1-4]_", name) and "EXPERIMENT" in code]
WITH_DATA = [name for name in NAMES if "data=True" in CODE[name]]
CLASSIFIERS = ["p1_figures_4_5", "p1_figures_9_10"]
# A quick run of these, or one on made-up data, takes seconds.
LONG = {
    *("p1_figure_3", "p1_figure_8", "p2_appendix_d", "p2_figure_2", "p4_figure_5", "p4_figure_6", "p4_tables_1_2"),
    *("p1_figures_9_10", "p1_figure_11"),
}
WORDS = {"agrees", "corrected", "differs", "misleading"}


def marked(names):
    return [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in names]


def experiment(name):
    return runpy.run_path(str(SCRIPTS / f"{name}.py"))["EXPERIMENT"]


def recorded(name):
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


def run(name, folder, monkeypatch, *options):
    """The record of a quick run of an experiment, or the table of another script; None if nothing was written."""
    monkeypatch.setattr(sys, "argv", [name, "--out", str(folder), "--quick", *options])
    if name in NAMES:
        runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
    else:
        importlib.import_module(name).main()
    assert (folder / f"{name}.csv").exists() == (folder / f"{name}.png").exists()
    if not (folder / f"{name}.csv").exists():
        return None
    table = pd.read_csv(folder / f"{name}.csv")
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) if name in NAMES else table


def differences(found, record):
    """The numbers of a quick run that are not those of the full one, and the word if it is another."""
    wrong = [] if found["word"] == record["word"] else [f"{found['word']}, not {record['word']}"]
    for name, value in found["numbers"].items():
        expected = record["numbers"][name]
        if not math.isclose(value, expected, rel_tol=record["tolerance"]):
            wrong.append(f"{name}: {value:g}, not {expected:g}")
    return wrong


def test_every_script_has_a_record_and_every_record_a_script():
    assert sorted(path.stem for path in RECORDS.glob("*.json")) == NAMES
    assert sorted(path.stem for path in RECORDS.glob("*.csv")) == ["best_possible", "certificate", "outside_r", *NAMES]
    assert len({(recorded(name)["paper"], recorded(name)["item"]) for name in NAMES}) == len(NAMES)


def assert_nothing_known_is_chance(table):
    """One of K classes is right with probability 1 / K, and log K is the cross-entropy, whatever the classes are."""
    known = table[table["line"] == "nothing known"].pivot(index=["data", "epsilon"], columns="measure", values="mean")
    assert known["accuracy"].to_numpy() == pytest.approx(np.exp(-known["cross_entropy"]), rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_the_verdict_on_its_table(name):
    table = pd.read_csv(RECORDS / f"{name}.csv")
    record = experiment(name).record(table)
    assert record == recorded(name)
    assert record["word"] in WORDS
    assert record["sentence"].endswith(".")
    assert record["numbers"]
    assert all(math.isfinite(value) for value in record["numbers"].values())
    if name in CLASSIFIERS:
        assert_nothing_known_is_chance(table)


def test_a_stale_record_is_seen():
    record = recorded("p1_figure_8")
    name, number = next(iter(record["numbers"].items()))
    assert not differences(record, record)
    assert differences(record | {"numbers": record["numbers"] | {name: 1.001 * number}}, record)
    assert differences(record | {"word": "differs"}, record)


@pytest.mark.parametrize("name", marked(name for name in NAMES if name not in WITH_DATA))
def test_a_quick_run_says_the_same(name, tmp_path, monkeypatch):
    assert not differences(run(name, tmp_path, monkeypatch), recorded(name))
    assert (tmp_path / f"{name}.png").stat().st_size > 5_000


NEEDED = {"real_classifiers": "german_credit", "real_networks": "networks", "open_bandit": "open_bandit"}
MISSING = dict.fromkeys(WITH_DATA, "left out") | {name: f"{data}: not in" for name, data in NEEDED.items()}


@pytest.mark.parametrize("name", MISSING)
def test_data_sets_that_are_not_there_are_named_and_not_replaced(name, tmp_path, monkeypatch, capsys):
    assert run(name, tmp_path, monkeypatch, "--data", str(tmp_path)) is None
    said = capsys.readouterr().out
    assert MISSING[name] in said
    assert "nothing is written" in said


@pytest.mark.parametrize("name", marked(WITH_DATA))
def test_a_script_runs_on_data_of_the_right_form(name, tmp_path, monkeypatch):
    """Made-up records with the columns of the German credit data: the verdict is not that on the real ones."""
    target, _, numbers = DATA["german_credit"]
    rng = np.random.default_rng(20261122)
    columns = {column: rng.integers(1, 80, 300) for column in numbers}
    columns |= {f"c{i}": rng.integers(1, 5, 300) for i in range(3)} | {target: rng.integers(0, 2, 300)}
    pd.DataFrame(columns).to_csv(tmp_path / "german_credit.csv.gz", index=False)
    network = {"c0": [], numbers[0]: ["c0"], target: ["c0", numbers[0]]}
    (tmp_path / "networks.json").write_text(json.dumps({"german_credit": network}), encoding="utf-8")
    assert run(name, tmp_path / "out", monkeypatch, "--data", str(tmp_path))["word"] in WORDS
    # A picture without a panel is white.
    assert (plt.imread(tmp_path / "out" / f"{name}.png")[..., :3].min(axis=2) < 0.9).mean() > 0.005
    if name in CLASSIFIERS:
        assert_nothing_known_is_chance(pd.read_csv(tmp_path / "out" / f"{name}.csv"))


@pytest.mark.slow
def test_numbers_are_those_that_are_computed_without_the_library():
    for name in ("outside", "outside_simulated"):
        imports = set(re.findall(r"^(?:import|from) (\w+)", CODE[name], re.MULTILINE))
        assert imports <= {"csv", "functools", "gzip", "itertools", "json", "math", "numpy", "outside", "scipy"}
    assert len(outside.VALUES) > 120
    for (name, what), compute in (outside.VALUES | outside_simulated.VALUES).items():
        near = outside_simulated.tolerance((name, what))
        assert math.isclose(float(compute()), recorded(name)["numbers"][what], rel_tol=near), (name, what)


def in_r(file):
    rows = pd.read_csv(file)
    assert len(rows) > 15
    return rows.set_index(["name", "what"])["r"].to_dict()


def test_numbers_are_those_that_r_computed():
    known = in_r(RECORDS / "outside_r.csv")
    for (name, what), value in known.items():
        # A record has six digits, of which five agree.
        assert value == pytest.approx(recorded(name)["numbers"][what], rel=1e-5)
    has_vgam = ["Rscript", "-e", "quit(status = !requireNamespace('VGAM', quietly = TRUE))"]
    if shutil.which("Rscript") is None or subprocess.call(has_vgam, stderr=subprocess.DEVNULL):
        return
    done = subprocess.run(["Rscript", SCRIPTS / "outside.R"], capture_output=True, text=True, check=True)
    assert in_r(io.StringIO(done.stdout)) == pytest.approx(known, rel=1e-8)


def test_a_statement_has_one_number_and_a_wrong_one_is_seen(monkeypatch):
    rows = runpy.run_path(str(SCRIPTS / "all.py"))["statement_rows"]()
    assert sum(row.outside != "" for row in rows) == len(statements.NUMBERS) > 50
    assert all(row.verdict.endswith(("; the same", "; within 4%")) for row in rows if row.outside)
    for key in statements.NUMBERS:
        assert sum(row.item.startswith(key) for row in rows) == 1, key
    what, ours, other = statements.NUMBERS["P3 Lemma 1"]
    monkeypatch.setitem(statements.NUMBERS, "P3 Lemma 1", (what, lambda: 1.001 * ours(), other))
    rows = runpy.run_path(str(SCRIPTS / "all.py"))["statement_rows"]()
    assert [row.item for row in rows if "DIFFERENT" in row.verdict] == ["P3 Lemma 1"]


def certificate(folder, monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["all.py", "--out", str(folder), "--quick", "--only", *options])
    runpy.run_path(str(SCRIPTS / "all.py"), run_name="__main__")
    return pd.read_csv(folder / "certificate.csv", keep_default_na=False)


def test_the_certificate_has_figures_numbers_errata_and_statements(tmp_path, monkeypatch, capsys):
    rows = certificate(tmp_path, monkeypatch, "p3_figure_3", "p1_figure_6")
    numbers = rows[rows["kind"] == "number"]
    assert (numbers["outside"] != "").sum() == 9
    assert set(numbers["verdict"]) == {"the same"}
    assert set(rows["verdict"][rows["kind"] == "erratum"]) == {"shown"}
    assert (rows["kind"] == "statement").sum() > 50
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert 'src="p3_figure_3.png"' in page
    assert (tmp_path / "p3_figure_3.png").exists()
    # A script whose data are not there is said to be left out.
    assert page.count("not run: needs data sets of P1") == 1
    assert "1 of 2 scripts of figures and tables ran, 1 of them with --quick" in capsys.readouterr().out
    # Another run into the same folder adds to it, and fails with a wrong number.
    monkeypatch.setitem(outside.VALUES, ("p3_figure_2", next(iter(recorded("p3_figure_2")["numbers"]))), lambda: 77.7)
    with pytest.raises(SystemExit, match="P3 Figure 2"):
        certificate(tmp_path, monkeypatch, "p3_figure_2", "p1_figure_6")
    again = pd.read_csv(tmp_path / "certificate.csv", keep_default_na=False)
    assert set(again["what"][again["kind"] == "figure"]) == {"p1_figure_6", "p3_figure_2", "p3_figure_3"}
    assert (again["verdict"] == "DIFFERENT").sum() == 1
    same = [frame[frame["item"] == "P3 Figure 3"].reset_index(drop=True) for frame in (rows, again)]
    pd.testing.assert_frame_equal(*same)


def stale_rows(rows):
    figures, outside = rows[rows["kind"] == "figure"].set_index("item"), outside_simulated.every(SCRIPTS)
    said = {item: f"{recorded(name)['word']}. {recorded(name)['sentence']}" for item, name in figures["what"].items()}
    yield from (item for item, verdict in figures["verdict"].items() if verdict != said[item])
    for row in rows[rows["kind"] == "number"].itertuples():
        name = figures["what"][row.item]
        right = math.isclose(float(row.ours or row.printed), recorded(name)["numbers"][row.what], rel_tol=1e-5)
        # The numbers without the library are computed again by tests of their own.
        near = outside_simulated.tolerance((name, row.what))
        verdict = "" if (name, row.what) not in outside else "the same" if near < 0.001 else f"within {near:.0%}"
        if not right or row.verdict != verdict:
            yield row.item, row.what


def test_the_certificate_of_the_documentation_is_that_of_the_records():
    rows = pd.read_csv(RECORDS / "certificate.csv", keep_default_na=False)
    kinds = dict(iter(rows.groupby("kind")))
    numbers, errata, found = kinds["number"], kinds["erratum"], kinds["statement"]
    assert sorted(kinds["figure"]["what"]) == NAMES
    assert len(numbers) == sum(len(recorded(name)["numbers"]) for name in NAMES)
    assert (numbers["outside"] == "").sum() == 8
    assert not list(stale_rows(rows))
    headings = re.findall(r"^### (P\d\.\d+)\. (.*)$", PAGES["docs/errata.md"], re.MULTILINE)
    assert list(zip(errata["item"], errata["what"], strict=True)) == headings
    assert set(errata["verdict"]) == {"shown"}
    assert (pd.to_numeric(errata["seconds"]) < 1).all()
    said = rows_of(PAGES["docs/papers.md"], "Statement")
    assert list(found["item"]) == [statement for statement, _, _ in said]
    assert [verdict.split(";")[0] for verdict in found["verdict"]] == [verdict.split("*")[1] for _, _, verdict in said]
    assert (found["outside"] != "").sum() == len(statements.NUMBERS)
    place = numbers.index[0]
    rows.loc[place, "ours"] = str(1.1 * float(rows.loc[place, "ours"]))
    assert len(list(stale_rows(rows))) == 1


# Scripts that release real data sets, on made-up ones of the same form.

# Whether the credit was repaid, and who rents, owns or neither: one variable says much of the other.
SHARES = {0: [0.8, 0.15, 0.05], 1: [0.1, 0.2, 0.7]}


@pytest.fixture
def credit(monkeypatch, tmp_path):
    """Two of the columns of the German credit data, one that is not declared, and a network of the two."""
    declared = importlib.import_module("declared_data")
    columns, target = declared.DATA["german_credit"]
    few = {name: columns[name] for name in ("housing", target)}
    monkeypatch.setitem(declared.DATA, "german_credit", (few, target))
    for name in ("real_classifiers", "real_networks"):
        monkeypatch.setattr(importlib.import_module(name), "QUICK", (10.0,))
    rng = np.random.default_rng(20261123)
    repaid = rng.integers(0, 2, 900)
    housing = [rng.choice([1, 2, 3], p=SHARES[value]) for value in repaid]
    frame = pd.DataFrame({"other": rng.integers(0, 9, 900), "housing": housing, target: repaid})
    frame.to_csv(tmp_path / "german_credit.csv.gz", index=False)
    network = {"german_credit": {target: [], "housing": [target]}}
    (tmp_path / "networks.json").write_text(json.dumps(network), encoding="utf-8")
    # What anybody finds without the library: shares of the records that train, one more in each cell, on the others.
    order = np.random.default_rng(1).permutation(900)
    train, test = frame.iloc[order[:630]], frame.iloc[order[630:]]
    table = pd.crosstab(train[target], train["housing"]).to_numpy() + 1
    own = train.groupby(target).size().to_numpy() + 1
    shares = own[:, None] / own.sum() * table / table.sum(axis=1, keepdims=True)
    joint = shares[:, test["housing"] - 1]
    at = np.arange(len(test))
    return {
        "cross_entropy": -np.log(joint / joint.sum(axis=0))[test[target], at].mean(),
        "accuracy": np.mean(joint.argmax(axis=0) == test[target]),
        "log_likelihood": np.log(joint[test[target], at]).mean(),
    }


MEASURED = {"real_classifiers": ("cross_entropy", "accuracy"), "real_networks": ("log_likelihood",)}


@pytest.mark.parametrize("script", MEASURED)
def test_a_release_with_a_large_epsilon_says_what_the_records_say(script, credit, tmp_path, monkeypatch):
    first, *others = MEASURED[script]
    only = [] if others else ["--only", "german_credit"]
    table = run(script, tmp_path, monkeypatch, "--data", str(tmp_path), *only)
    assert list(table) == ["data", "epsilon", "reading", "release", first, *others]
    assert set(table["data"]) == {"german_credit"}
    plain, private = table[np.isinf(table["epsilon"])], table[np.isfinite(table["epsilon"])]
    for name in (first, *others):
        assert plain[name].to_numpy() == pytest.approx([credit[name]], rel=1e-9)
    # Algorithm 1 has a bound for P1's guarantee alone.
    readings = set(importlib.import_module(script).READINGS) - {"Algorithm 1, treated as the data"}
    assert sorted(private.groupby(["epsilon", "reading", "release"]).size().index) == sorted(
        (10.0, reading, release) for reading in readings for release in (0, 1)
    )
    private = private[private["reading"] != "class alone"]
    assert private[first].to_numpy() == pytest.approx(credit[first], abs=0.06)
    if others:
        right = private["accuracy"].to_numpy() * 270
        assert right == pytest.approx(np.round(right), abs=1e-9)
        assert private["accuracy"].min() > credit["accuracy"] - 0.1


def test_bandits(tmp_path, monkeypatch, capsys):
    """Impressions of six items. Those that a policy chose are not shown at random, and do not count."""
    rng = np.random.default_rng(20261123)
    logs = []
    for campaign, rate in (("men", 0.05), ("women", 0.2)):
        for policy, clicks in (("random", rng.random(3000) < rate), ("bts", np.ones(500, bool))):
            items = np.arange(len(clicks)) % 6
            log = {"policy": policy, "campaign": campaign, "item_id": items, "click": clicks.astype(int)}
            logs.append(pd.DataFrame(log))
    log = pd.concat(logs)
    log.to_csv(tmp_path / "open_bandit.csv.gz", index=False)
    table = run("open_bandit", tmp_path, monkeypatch, "--data", str(tmp_path))
    columns = ["regret_q05", "regret_median", "regret_q95", "clicks", "clicks_at_random"]
    assert list(table) == ["campaign", "epsilon", *columns]
    assert list(zip(table["campaign"], table["epsilon"], strict=True)) == [
        (campaign, epsilon) for campaign in ("men", "women") for epsilon in (0.1, 1.0, 10.0)
    ]
    said = capsys.readouterr().out
    at_random = log[log["policy"] == "random"].groupby("campaign")["click"].mean()
    for campaign, rows in table.groupby("campaign"):
        assert f"{campaign}: 6 items, mean {at_random[campaign]:.4f}, worth" in said
        # The rates are drawn near the mean: as if of at most 3000 impressions, but there may be fewer.
        assert rows["clicks_at_random"].nunique() == 1
        assert rows["clicks_at_random"].iloc[0] / 10_000 == pytest.approx(at_random[campaign], abs=0.02)
        # The best item would have had the clicks of all visitors and the regret.
        best = (rows["clicks"] + rows["regret_median"]).to_numpy()
        assert best == pytest.approx(best[0], rel=1e-12)
        assert best[0] > rows["clicks_at_random"].iloc[0]
        assert (rows["regret_q05"] >= 0).all()
        assert (rows["regret_q05"] <= rows["regret_median"]).all()
        assert (rows["regret_median"] <= rows["regret_q95"]).all()
