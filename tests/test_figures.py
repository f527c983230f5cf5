"""The scripts of `examples/experiments`, and the records of their full runs that the page on the papers shows."""

import gzip
import json
import math
import re
import runpy
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "examples" / "experiments"
RECORDS = ROOT / "docs" / "figures"
NAMES = sorted(path.stem for path in SCRIPTS.glob("p[1-4]_*.py") if "EXPERIMENT" in path.read_text(encoding="utf-8"))
WITH_DATA = [name for name in NAMES if "data=True" in (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")]
CLASSIFIERS = ["p1_figures_4_5", "p1_figures_9_10"]
WORDS = {"agrees", "corrected", "differs", "misleading"}


@pytest.fixture(autouse=True)
def _scripts_find_one_another(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPTS))


def experiment(name):
    return runpy.run_path(str(SCRIPTS / f"{name}.py"))["EXPERIMENT"]


def recorded(name):
    return json.loads((RECORDS / f"{name}.json").read_text(encoding="utf-8"))


def run(name, folder, monkeypatch, *options):
    """The record of a quick run; None if nothing was written."""
    monkeypatch.setattr(sys, "argv", [name, "--out", str(folder), "--quick", *options])
    runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
    path = folder / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


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
    assert sorted(path.stem for path in RECORDS.glob("*.csv")) == ["certificate", *NAMES]
    assert len({(recorded(name)["paper"], recorded(name)["item"]) for name in NAMES}) == len(NAMES)


def assert_nothing_known_is_chance(table):
    """One of K classes is right with probability 1 / K, and log K is the cross-entropy, whatever the classes are."""
    known = table[table["line"] == "nothing known"].pivot(index=["data", "epsilon"], columns="measure", values="mean")
    assert known["accuracy"].to_numpy() == pytest.approx(np.exp(-known["cross_entropy"]), rel=1e-5)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_who_knows_nothing_is_right_by_chance(name):
    assert_nothing_known_is_chance(pd.read_csv(RECORDS / f"{name}.csv"))


@pytest.mark.parametrize("name", NAMES)
def test_a_record_is_the_verdict_on_its_table(name):
    record = experiment(name).record(pd.read_csv(RECORDS / f"{name}.csv"))
    assert record == recorded(name)
    assert record["word"] in WORDS
    assert record["sentence"].endswith(".")
    assert record["numbers"]
    assert all(math.isfinite(value) for value in record["numbers"].values())


def test_a_stale_record_is_seen():
    record = recorded("p1_figure_8")
    numbers = record["numbers"]
    first = next(iter(numbers))
    assert not differences(record, record)
    assert differences(record | {"numbers": numbers | {first: 1.001 * numbers[first]}}, record)
    assert differences(record | {"word": "differs"}, record)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WITH_DATA])
def test_a_quick_run_says_the_same(name, tmp_path, monkeypatch):
    assert not differences(run(name, tmp_path, monkeypatch), recorded(name))
    assert (tmp_path / f"{name}.png").stat().st_size > 5_000


@pytest.mark.parametrize("name", WITH_DATA)
def test_data_sets_that_are_not_there_are_named_and_not_replaced(name, tmp_path, monkeypatch, capsys):
    assert run(name, tmp_path / "out", monkeypatch, "--data", str(tmp_path)) is None
    said = capsys.readouterr().out
    assert "left out" in said
    assert "nothing is written" in said


@pytest.mark.parametrize("name", WITH_DATA)
def test_a_script_runs_on_data_of_the_right_form(name, tmp_path, monkeypatch):
    """Made-up records with the columns of the German credit data: the verdict is not that on the real ones."""
    from p1_data import DATA

    target, _, numbers = DATA["german_credit"]
    rng = np.random.default_rng(20261122)
    columns = {column: rng.integers(1, 80, 300) for column in numbers}
    columns |= {f"c{i}": rng.integers(1, 5, 300) for i in range(3)} | {target: rng.integers(0, 2, 300)}
    with gzip.open(tmp_path / "german_credit.csv.gz", "wt", encoding="utf-8") as file:
        pd.DataFrame(columns).to_csv(file, index=False)
    network = {"c0": [], numbers[0]: ["c0"], target: ["c0", numbers[0]]}
    (tmp_path / "networks.json").write_text(json.dumps({"german_credit": network}), encoding="utf-8")
    assert run(name, tmp_path / "out", monkeypatch, "--data", str(tmp_path))["word"] in WORDS
    assert (tmp_path / "out" / f"{name}.png").stat().st_size > 2_000
    if name in CLASSIFIERS:
        assert_nothing_known_is_chance(pd.read_csv(tmp_path / "out" / f"{name}.csv"))


@pytest.mark.parametrize("name", ["bank", "spam", "thyroid"])
def test_data_sets_that_nobody_here_has_can_be_run(name, tmp_path, monkeypatch):
    """Made-up records in the form of the public descriptions, with a column that has one bin."""
    import p1_data
    from p1_figures_4_5 import Classifier

    target, _, numbers = p1_data.DATA[name]
    rng = np.random.default_rng(20261122)
    frame = {column: rng.normal(size=400) for column in (numbers or [f"word{i}" for i in range(57)])}
    frame |= {next(iter(frame)): np.zeros(400), target: rng.integers(0, 2, 400)}
    frame |= {"two": rng.choice(["no", "yes"], 400)} if numbers else {}
    with gzip.open(tmp_path / f"{name}.csv.gz", "wt", encoding="utf-8") as file:
        pd.DataFrame(frame).to_csv(file, index=False)
    classifier = Classifier(tmp_path, name)
    # The class, each column but the one with one bin, and each table with two bins or more.
    assert len(classifier.tables) == len(frame) - 1
    assert all(table.shape[1] > 1 for table in classifier.tables)
    (quality,) = classifier.quality(
        lambda table, rng, times: np.full((times, *table.shape), 1 / table.shape[1]), rng, 1
    )
    assert quality == pytest.approx((math.log(2), 0.5))
    with gzip.open(tmp_path / f"{name}.csv.gz", "wt", encoding="utf-8") as file:
        pd.DataFrame(frame).drop(columns=target).to_csv(file, index=False)
    with pytest.raises(SystemExit, match=f"no column '{target}'"):
        Classifier(tmp_path, name)


def test_numbers_are_those_that_are_computed_without_the_library():
    import outside

    imports = re.findall(r"^(?:import|from) (\w+)", (SCRIPTS / "outside.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(imports) == {"itertools", "math", "functools", "numpy", "scipy"}
    assert len(outside.VALUES) > 70
    wrong = {}
    for (name, what), compute in outside.VALUES.items():
        value, ours = float(compute()), recorded(name)["numbers"][what]
        if not math.isclose(value, ours, rel_tol=outside.TOLERANCE.get((name, what), outside.NEAR)):
            wrong[name, what] = (value, ours)
    assert not wrong


def test_the_distances_of_three_categories_with_noise():
    """Of 30-digit arithmetic; `outside.py` has no noise for more than two categories."""
    assert recorded("p4_figure_6")["numbers"]["3 categories, 9, Laplace noise"] == pytest.approx(
        0.68588011116383023, rel=1e-5
    )


def certificate(folder, monkeypatch, *options):
    monkeypatch.setattr(sys, "argv", ["all.py", "--out", str(folder), "--quick", "--only", *options])
    runpy.run_path(str(SCRIPTS / "all.py"), run_name="__main__")
    return pd.read_csv(folder / "certificate.csv", keep_default_na=False)


def test_the_certificate_has_figures_numbers_errata_and_statements(tmp_path, monkeypatch, capsys):
    rows = certificate(tmp_path, monkeypatch, "p3_figure_3", "p1_figure_6")
    assert (rows["outside"] != "").sum() == 9
    assert set(rows["verdict"][rows["outside"] != ""]) == {"the same"}
    assert set(rows["verdict"][rows["kind"] == "erratum"]) == {"shown"}
    assert (rows["kind"] == "statement").sum() > 50
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert 'src="p3_figure_3.png"' in page
    assert (tmp_path / "p3_figure_3.png").exists()
    # A script whose data are not there is said to be left out.
    assert page.count("not run: needs data sets of P1") == 1
    assert "1 of 2 scripts of figures and tables ran, 1 of them with --quick" in capsys.readouterr().out
    # Another run into the same folder adds to it.
    again = certificate(tmp_path, monkeypatch, "p1_figure_8", "p1_figure_6")
    assert set(again["what"][again["kind"] == "figure"]) == {"p1_figure_6", "p1_figure_8", "p3_figure_3"}
    same = [frame[frame["item"] == "P3 Figure 3"].reset_index(drop=True) for frame in (rows, again)]
    pd.testing.assert_frame_equal(*same)


def test_a_certificate_with_a_wrong_number_fails(tmp_path, monkeypatch):
    import outside

    monkeypatch.setitem(outside.VALUES, ("p3_figure_3", "k 3, exact"), lambda: 10.83)
    with pytest.raises(SystemExit, match=r"P3 Figure 3, k 3, exact"):
        certificate(tmp_path, monkeypatch, "p3_figure_3")
    assert "DIFFERENT" in (tmp_path / "certificate.csv").read_text(encoding="utf-8")


def stale_rows(rows):
    """Lines of the certificate in the documentation that are not what the records and the errata say."""
    import outside

    figures = rows[rows["kind"] == "figure"].set_index("item")
    quick = figures["verdict"].str.startswith("With --quick: ")
    stale = []
    for item, name, verdict in figures[["what", "verdict"]].itertuples():
        record = recorded(name)
        # The numbers in the sentence of a quick run are others.
        said = f"With --quick: {record['word']}. " if quick[item] else f"{record['word']}. {record['sentence']}"
        stale += [item] if not verdict.startswith(said) else []
    for row in rows[rows["kind"] == "number"].itertuples():
        name = figures["what"][row.item]
        record = recorded(name)
        near = record["tolerance"] if quick[row.item] else 1e-5
        right = math.isclose(float(row.ours or row.printed), record["numbers"][row.what], rel_tol=near)
        # The numbers without the library are computed again by a test of their own.
        verdict = "the same" if (name, row.what) in outside.VALUES else ""
        stale += [] if right and row.verdict == verdict else [(row.item, row.what)]
    return stale


def test_the_certificate_of_the_documentation_is_that_of_the_records():
    import outside

    rows = pd.read_csv(RECORDS / "certificate.csv", keep_default_na=False)
    assert set(rows["kind"]) == {"figure", "number", "erratum"}
    assert sorted(rows["what"][rows["kind"] == "figure"]) == NAMES
    numbers = rows[rows["kind"] == "number"]
    assert len(numbers) == sum(len(recorded(name)["numbers"]) for name in NAMES)
    assert (numbers["outside"] != "").sum() == len(outside.VALUES)
    assert not stale_rows(rows)
    errata = re.findall(
        r"^### (P\d\.\d+)\. (.*)$", (ROOT / "docs" / "errata.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    found = rows[rows["kind"] == "erratum"]
    assert list(zip(found["item"], found["what"], strict=True)) == errata
    assert set(found["verdict"]) == {"shown"}
    # A line that is changed is seen.
    place = numbers.index[0]
    rows.loc[place, "ours"] = str(1.1 * float(rows.loc[place, "ours"]))
    assert len(stale_rows(rows)) == 1


def test_the_share_at_the_border_of_p3_figure_1_without_a_projection():
    """A projected point is inside where no entry is negative once the noise is brought to sum 0."""
    rng = np.random.default_rng(20261122)
    noise = rng.normal(0, 0.5, (100_000, 3))
    inside = (rng.dirichlet(np.ones(3), 100_000) + noise - noise.mean(axis=1, keepdims=True) > 0).all(axis=1).mean()
    assert recorded("p3_figure_1")["numbers"]["share at the border, printed"] == pytest.approx(1 - inside, abs=0.01)


def test_the_divergence_of_p2_appendix_d_by_simulation():
    from pymc_dirdp.planning.expected_kl import dirichlet_kl_rows

    numbers, rng = recorded("p2_appendix_d")["numbers"], np.random.default_rng(20261122)
    x = rng.multinomial(1000, rng.dirichlet(np.ones(10), 20_000))
    found = dirichlet_kl_rows(x + 1.0, numbers["r, rho 0.1"] * x + numbers["alpha, rho 0.1"]).mean()
    assert found == pytest.approx(numbers["kl, rho 0.1"], rel=0.02)


def test_the_expected_divergence_of_p1_figure_3_by_simulation():
    table = pd.read_csv(RECORDS / "p1_figure_3.csv")
    rows = table[(table["part"] == "bottom") & (table["order"] == 200) & (table["x"] == 1) & (table["line"] == "exact")]
    # The mean is computed by digamma functions and the band by draws: it lies inside.
    assert (rows["low"] < rows["mean"]).all()
    assert (rows["mean"] < rows["high"]).all()
