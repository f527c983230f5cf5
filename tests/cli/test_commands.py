"""What the commands do, and that they print nothing of the data."""

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import pymc_dirdp as dirdp
from pymc_dirdp.cli import columns
from pymc_dirdp.cli import main as command_line
from pymc_dirdp.cli.declaration import read_declaration

PLAN = ("plan", "survey.toml")
RELEASE = ("release", "survey.toml", "survey.csv", "--out", "r.json")


def test_a_plan_needs_no_data_and_is_the_same_with_them(alone, run):
    assert run(*PLAN, "--out", "a.json")[0] == 0
    assert run(*PLAN, "survey.csv", "--out", "b.json")[0] == 0
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()
    assert run("report", "a.json")[1] == run(*PLAN)[1]
    # No variable is asked of those alone who gave an answer to another one, whose number would be published.
    assert [part.n_records for part in dirdp.load("a.json").parts] == [592, 592]


def test_the_number_of_a_plan_without_data(alone, declare, run):
    # Found by attack: a variable may have the name of any other column.
    declare(("variables.sex", "variables.records"), ('["sex"]', '["records"]'), ('counts = "n"', ""))
    assert "592, is public" in " ".join(run(*PLAN)[1].split())
    declare(("variables.records", "variables.sex"), ('["records"]', '["sex"]'), ("records = 592", 'counts = "n"'))
    code, out, _ = run("check", "survey.toml", "survey.csv")
    assert (code, "unknown without records in [data]" in " ".join(out.split())) == (0, True)
    assert run(*PLAN, "survey.csv")[0] == 0


def test_a_release_follows_its_plan(alone, declare, refused, run):
    run(*PLAN, "--out", "plan.json")
    code, out, _ = run(*RELEASE, "--plan", "plan.json")
    assert code == 0
    release = dirdp.load("r.json")
    assert out == run("report", "r.json")[1]
    *lines, last = str(dirdp.report(release)).splitlines()
    *said, command = out.splitlines()
    assert said == lines
    # What follows is a command, where Python has a function.
    assert "dirdp.analyse(release)" in last
    assert command.split(maxsplit=1)[1] == "dirdp analyse: estimates with credible intervals"
    python, here = "print(dirdp.verify(release).full)", "dirdp verify --full"
    assert here in run("verify", "plan.json")[1]
    assert str(dirdp.verify(release)).replace(python, here) + "\n" == run("verify", "r.json")[1]
    assert str(dirdp.verify(release).full) + "\n" == run("verify", "--full", "r.json")[1]
    assert str(dirdp.estimate(release).tables.keys()) == "dict_keys(['p_sex', 'p_hair'])"
    assert release["privacy"].attrs["unit"] == "record"
    declare(ADD_REMOVE, ("records = 592", ""))
    refused(2, "differs from the declaration", *RELEASE, "--plan", "plan.json", "--overwrite")


def test_a_private_number_of_records(alone, declare, refused, run, numbers_in):
    """The number that a plan was made for was taken for that of the data, and any other was refused."""
    declare(("[options]", '[options]\nadjacency = "add-remove"\nn_records = 500'), ("records = 592", ""))
    assert run(*PLAN, "--out", "plan.json")[0] == 0
    assert run(*PLAN, "survey.csv", "--out", "again.json")[0] == 0
    assert Path("plan.json").read_bytes() == Path("again.json").read_bytes()
    code, out, error = run(*RELEASE, "--plan", "plan.json")
    assert code == 0, error
    assert 592 not in numbers_in(out)
    # Noisy counts need no prior of the number, and a draw does.
    assert run("analyse", "r.json")[0] == 0
    assert run("analyse", "r.json", "--n-prior", "2000")[0] == 0
    declare(('"geometric"', '"dirichlet"'))
    assert run("release", "survey.toml", "survey.csv", "--out", "drawn.json")[0] == 0
    refused(2, "--n-prior", "analyse", "drawn.json")


def test_analysis_in_a_file(alone, run):
    run(*RELEASE)
    code, out, _ = run("analyse", "r.json", "--draws", "50", "--out", "a.nc")
    assert code == 0
    assert "p_hair[female, black]" in out
    analysis = xr.open_datatree("a.nc", engine="h5netcdf")
    assert analysis["latent_counts"]["p_sex"].shape == (4, 50, 2)
    for wrong in (["--draws", "0"], ["--n-prior", "-1"]):
        assert run("analyse", "r.json", *wrong, "--out", "b.nc")[0] == 2
        assert not Path("b.nc").exists()


def test_verify_says_what_is_false(alone, run, edited):
    run(*RELEASE)
    release = edited(
        dirdp.load("r.json"),
        (("plan", "guarantee", "epsilon"), 0.5),
        (("plan", "statement"), lambda said: said.replace("1", "0.5", 1)),
    )
    dirdp.save(release, "false.json")
    code, out, _ = run("verify", "false.json")
    assert code == 1
    assert "does not follow" in out
    assert "FAILED" in out


@pytest.mark.parametrize("name", ["plan", "release", "analyse"])
def test_no_file_is_replaced_without_overwrite(budget, refused, run, name):
    run("ledger", "survey.toml", "--new")
    run(*RELEASE)
    inputs = {"plan": ["survey.toml"], "release": ["survey.toml", "survey.csv"], "analyse": ["r.json"]}[name]
    before = run("ledger", "survey.toml")[1]
    Path("out").write_text("old", encoding="utf-8")
    said = "out exists. Give another path, or --overwrite to replace it. If it is a release"
    refused(2, said, name, *inputs, "--out", "out")
    assert run(name, *inputs, "--out", ".")[0] == 2
    assert run(name, *inputs, "--out", "nowhere/out")[0] == 2
    assert Path("out").read_text(encoding="utf-8") == "old"
    assert run("ledger", "survey.toml")[1] == before
    assert run(name, *inputs, "--out", "out", "--overwrite")[0] == 0
    assert Path("out").read_bytes() != b"old"


def test_a_name_that_ends_in_gz_is_compressed(alone, run):
    assert run(*PLAN, "--out", "plan.json.gz")[0] == 0
    assert Path("plan.json.gz").read_bytes().startswith(b"\x1f\x8b")
    assert run("release", "survey.toml", "survey.csv", "--plan", "plan.json.gz", "--out", "r.json.gz")[0] == 0
    assert Path("r.json.gz").read_bytes().startswith(b"\x1f\x8b")
    assert run("verify", "r.json.gz")[0] == 0


@pytest.fixture
def budget(survey, declare):
    declare(('"auto"', '"geometric"'), ("epsilon = 3.0", "epsilon = 2.0"))


def new_ledger(run):
    assert run("ledger", "survey.toml", "--new")[0] == 0
    return dirdp.Ledger(dirdp.ApproxDP(epsilon=2.0, delta=1e-5), "budget.db")


def test_a_ledger_is_made_once_and_never_by_itself(budget, refused, run):
    for command in (["ledger", "survey.toml"], RELEASE):
        refused(4, "There is no ledger at", *command)
    assert not Path("r.json").exists()
    code, out, _ = run("ledger", "survey.toml", "--new")
    assert code == 0
    head = out.split()[-1]
    assert run("ledger", "survey.toml", "--new")[0] == 4
    assert run(*RELEASE)[0] == 0
    code, out, _ = run("ledger", "survey.toml", "--head", head)
    assert code == 0
    assert "p_sex, p_hair" in out
    assert "about the same people (p_sex, p_hair)" in run("statement", "survey.toml")[1]
    assert 0.9 < json.loads(run("statement", "survey.toml", "--json")[1])["epsilon"] <= 1
    ledger = command_line._ledger(read_declaration(Path("survey.toml")), new=False)
    for full in ([], ["--full"]):
        words = str(dirdp.report(ledger, full=bool(full))).replace("ledger.remaining()", "dirdp ledger DECLARATION")
        assert run("report", "survey.toml", *full)[:2] == (0, f"{words}\n")
    words = str(dirdp.verify(ledger)).replace("print(dirdp.verify(ledger).full)", "dirdp verify --full")
    assert run("verify", "survey.toml")[:2] == (0, f"{words}\n")
    assert run("ledger", "survey.toml", "--head", "1:" + "0" * 64)[0] == 4
    assert run("ledger", "survey.toml", "--head", "what")[0] == 2


def test_a_release_uses_a_reservation(budget, run):
    run("ledger", "survey.toml", "--new")
    facts = read_declaration(Path("survey.toml"))
    (entry,) = command_line._ledger(facts, new=False).reserve(facts.guarantee, what="the spring survey", unit="record")
    assert run(*RELEASE, "--reservation", "7")[0] == 2
    code, *_ = run(*RELEASE, "--reservation", str(entry.number))
    assert code == 0
    ledger = command_line._ledger(facts, new=False)
    assert [(one.reserved, one.uses) for one in ledger.entries()] == [(True, None), (False, entry.number)]
    assert ledger.spent["epsilon"] <= 1


def test_the_data_are_read_after_the_charge(budget, declare, run):
    """Found by review: an undeclared label, a negative number, a ragged line or a record more told about the data."""
    ledger, text = new_ledger(run), Path("survey.csv").read_text(encoding="utf-8")
    declare(("\nepsilon = 1.0", "\nepsilon = 0.2"))
    for charged, line in enumerate(("female,grey,1", "female,red,-1", "female,red", "female,red,1"), 1):
        Path("survey.csv").write_text(f"{text}{line}\n", encoding="utf-8")
        code, _, error = run(*RELEASE)
        assert code in (2, 3)
        assert "The ledger has been charged" in error
        assert "592" not in error
        assert not Path("r.json").exists()
        assert len(ledger.entries()) == charged


def test_what_is_public_is_refused_before_the_charge(budget, refused, run):
    """A header, the mark of an encoding, and the kind of a file: a release that cannot be need not be paid for."""
    ledger, text = new_ledger(run), Path("survey.csv").read_text(encoding="utf-8")

    def free(said, name="survey.csv"):
        for command in (["check"], ["release", "--out", "r.json"]):
            refused(2, said, command[0], "survey.toml", name, *command[1:])
        assert not Path("r.json").exists()
        assert ledger.entries() == ()

    for changed in (text.partition("\n")[2], "", f"a,b\n{text}"):
        Path("survey.csv").write_text(changed, encoding="utf-8")
        free("to name the column")
    for suffix in ("xls", "xlsx", "ods", "XLSX"):
        Path(f"book.{suffix}").write_bytes(b"PK\x03\x04")
        free("is the workbook of a spreadsheet. Save its sheet as CSV.", f"book.{suffix}")
    Path("survey.csv").write_text(text, encoding="utf-8")
    toml = Path("survey.toml").read_text(encoding="utf-8")
    for encoding in ("utf-16", "utf-32"):
        Path("survey.toml").write_text(toml.replace("[data]", f'[data]\nencoding = "{encoding}"'), encoding="utf-8")
        free(f"is not written in {encoding.upper()}")


def test_nothing_is_read_if_nothing_is_charged(budget, run, monkeypatch):
    ledger = new_ledger(run)
    seen, real = [], columns.read_columns
    monkeypatch.setattr(columns, "read_columns", lambda *args: seen.append(len(ledger.entries())) or real(*args))
    text = Path("survey.toml").read_text(encoding="utf-8")
    for old, new in (("\nepsilon = 1.0", "\nepsilon = 3.0"), ("records = 592 ", ""), ("prior = 1.0", "prior = -1")):
        assert old in text
        Path("survey.toml").write_text(text.replace(old, new), encoding="utf-8")
        assert run(*RELEASE)[0] in (2, 4)
        assert run(*PLAN, "survey.csv")[0] == 2
    assert run("release", "survey.toml", "nothing.csv", "--out", "r.json")[0] == 2
    assert not ledger.entries()
    assert not seen
    Path("survey.toml").write_text(text, encoding="utf-8")
    run(*PLAN, "--out", "plan.json")
    Path("survey.toml").write_text(text.replace("records = 592 ", ""), encoding="utf-8")
    assert run(*RELEASE, "--plan", "plan.json")[0] == 0
    assert seen == [1]


@pytest.mark.parametrize(
    ("what", "charged"), [("tempfile.mkdtemp", 0), ("pymc_dirdp.save", 1), ("pathlib.Path.replace", 1)]
)
def test_a_write_that_fails_leaves_an_entry_or_nothing(budget, run, monkeypatch, what, charged):
    """No file without an entry; the user's retry is another release, with an entry of its own."""
    ledger = new_ledger(run)
    with monkeypatch.context() as patched:
        patched.setattr(what, lambda *_, **__: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        assert run(*RELEASE)[0] == 2
    assert len(ledger.entries()) == charged
    assert {path.name for path in Path().iterdir()} == {"survey.toml", "survey.csv", "budget.db"}
    if not charged:
        assert run(*RELEASE)[0] == 0
        assert len(ledger.entries()) == 1


def test_what_does_not_fit_is_not_drawn(budget, declare, run):
    run("ledger", "survey.toml", "--new")
    codes = [run("release", "survey.toml", "survey.csv", "--out", f"{i}.json")[0] for i in range(4)]
    assert codes[0] == 0
    assert codes[-1] == 4
    drawn = codes.count(0)
    assert [Path(f"{i}.json").exists() for i in range(4)] == [True] * drawn + [False] * (4 - drawn)
    assert len(dirdp.Ledger(dirdp.ApproxDP(epsilon=2.0, delta=1e-5), "budget.db").entries()) == drawn
    declare(("epsilon = 2.0", "epsilon = 20.0"))
    assert run(*RELEASE)[0] == 4


def test_options_reach_the_plan(alone, declare, run):
    options = '{kind = "dirichlet", strategy = "temper"}\nreleased_draws = 2\nweights = {p_hair = 3}'
    declare(('"geometric"', options))
    assert run(*PLAN, "--out", "plan.json")[0] == 0
    plan = dirdp.load("plan.json")
    assert (plan.strategy, plan.released_draws) == ("temper", 2)
    assert plan.parts[1].mechanism.r > plan.parts[0].mechanism.r


ADD_REMOVE, NINES = ("[options]", '[options]\nadjacency = "add-remove"'), "9" * 400
# What a command refuses: what is changed in the declaration, the code, and what the error says.
REFUSED = [
    (PLAN, [("records = 592", "")], 2, "Pass the data to the plan, too, or declare records in [data]"),
    (RELEASE, [("records = 592", "records = 593")], 3, "another number of records than the plan states. Plan again"),
    # Found by review: 591, 592 and 593 disclosed the number of records without a charge.
    *(
        (command, [ADD_REMOVE], 2, "the number of records is private")
        for command in (PLAN, (*PLAN, "survey.csv"), RELEASE)
    ),
    (PLAN, [('"geometric"', '"auto"'), ADD_REMOVE, ("records = 592", "")], 2, "pass n_records in [options]"),
    ((*RELEASE, "--reservation", "1"), [], 2, "Declare [ledger]"),
    (("ledger", "survey.toml", "--new"), [], 2, "no section [ledger]"),
    (RELEASE, [(', "blond"', "")], 3, "declare a label for all of them"),
    (RELEASE, [(', "blond"', "")], 3, 'otherwise = "unknown" in its section of [variables]'),
    (PLAN, [('given = ["sex"]', 'given = ["gender"]')], 2, "Unknown variable in given in [variables.hair] 'gender'"),
]
# A piece of the declaration, and what stands in its place that no model or plan takes.
WRONG = {
    'given = ["sex"]': ['given = ["age"]', 'given = ["hair"]'],
    "prior = 1.0": [f"prior = {value}" for value in (NINES, "inf", "0", "[1, 1]", "{a = 1}")],
    "epsilon = 1.0": [f"epsilon = {NINES}"],
    "delta = 1e-6": ["delta = 0"],
    "contribution = 1": [f"contribution = {NINES}"],
    "records = 592": [f"records = {NINES}", "records = 9007199254740993"],
    '["female", "male"]': [f"[1, {NINES}]", '["female", "female"]', '["female", "a\\nb"]'],
    "[variables.sex]": [
        f'[variables."{name}"]\ncategories = ["x", "y"]\n[variables.sex]' for name in ("a/b", "", "chain")
    ],
    '"geometric"': ['{kind = "dirichlet", strategy = 1}'],
    "[options]": [
        *("[options]\nweights = 3", "[options]\nweights = {hair = 3}", "[options]\nmin_count = inf"),
        *("[options]\nreleased_draws = 0", "[options]\nreleased_draws = 1e308", "[options]\nn_records = 3"),
    ],
}


@pytest.mark.parametrize(("command", "changes", "code", "said"), REFUSED, ids=range(len(REFUSED)))
def test_what_a_command_refuses(alone, declare, run, command, changes, code, said):
    declare(*changes)
    ended, _, error = run(*command)
    assert (ended, said in error) == (code, True), error
    assert not Path("r.json").exists()


@pytest.mark.parametrize("old", WRONG)
def test_declarations_that_no_model_or_plan_takes(alone, declare, run, old):
    """Found by attack: a prior of 400 digits was called an error of this library."""
    for new in WRONG[old]:
        declare((old, new))
        code, _, error = run(*PLAN)
        assert code in (2, 3, 4), error
        declare((new, old))


def test_another_plan_is_refused_before_the_charge(budget, declare, refused, run):
    assert run(*PLAN, "--out", "plan.json")[0] == 0
    ledger = new_ledger(run)

    def free(said, *commands):
        for command in commands or [(*RELEASE, "--plan", "plan.json")]:
            refused(2, said, *command)
        assert not Path("r.json").exists()
        assert not ledger.entries()

    for said, old, new in (
        ("differs from the declaration", "\nepsilon = 1.0", "\nepsilon = 0.5"),
        ("differs from the declaration", "contribution = 1", "contribution = 2"),
        ("not the one that was planned", "prior = 1.0", "prior = 2.0"),
        ("not the one that was planned", '"red", "blond"', '"blond", "red"'),
        ("not the one that was planned", 'given = ["sex"]', ""),
    ):
        text = Path("survey.toml").read_text(encoding="utf-8")
        declare((old, new))
        free(said)
        Path("survey.toml").write_text(text, encoding="utf-8")
    facts = json.loads(Path("plan.json").read_text(encoding="utf-8"))
    facts["tables"][0]["parameters"]["noise_parameter"] = 100.0
    Path("plan.json").write_text(json.dumps(facts), encoding="utf-8")
    free("was changed after it was written", ("report", "plan.json"), (*RELEASE, "--plan", "plan.json"))
    run(*RELEASE)
    Path("r.json").rename("done.json")
    refused(2, "done.json is not a plan", *RELEASE, "--plan", "done.json")


def test_no_count_is_printed_by_any_command(alone, declare, run, numbers_in):
    """With numbers that nothing else prints; `analyse` reads the release alone, where they are not."""
    numbers = [f"7{i}91{i}3" for i in range(8)]
    header, *lines = Path("survey.csv").read_text(encoding="utf-8").splitlines()
    rows = [line.rpartition(",")[0] + "," + n for line, n in zip(lines, numbers, strict=True)]
    whole, fourth = "\n".join([header, *rows]), numbers[3]
    declare(("records = 592", f"records = {sum(map(int, numbers))}"))
    broken = [(fourth, new) for new in (f"{fourth}.5", f"-{fourth}", "7491431")]
    broken += [("blond", "Zaphod"), ("n", "number"), (f"{header}\n", "")]
    texts = [whole, *(whole.replace(old, new, 1) for old, new in broken), *(whole + end for end in (",1", '"', "\xff"))]
    printed = ""
    for i, text in enumerate(texts):
        Path("survey.csv").write_bytes(text.encode("latin-1"))
        for command in ((*PLAN, "survey.csv"), (*RELEASE[:-1], f"{i}")):
            code, out, error = run(*command)
            assert (code == 0) == (i == 0), i
            printed += out + error
    printed += "".join(run(command, "0")[1] for command in ("report", "verify"))
    # Somebody takes one file for another.
    for command in ("report", "verify", "analyse", "ledger"):
        printed += run(command, "survey.csv")[2]
    printed += run("plan", "survey.csv", "survey.toml")[2]
    assert not numbers_in(printed) & {*map(int, numbers), 7491431}
    assert "Zaphod" not in printed


UNITS = """
[guarantee]
kind = "PureDP"
epsilon = 500
[people]
{unit}
contribution = {contribution}
[variables]
sex = {{categories = ["f", "m"]}}
left = {{categories = ["no", "yes", "unknown"], otherwise = "unknown"}}
[tables.both]
variables = ["sex", "left"]
[options]
mechanism = "geometric"
{options}
[data]
encoding = "latin-1"
{records}
"""


@pytest.fixture
def visits(tmp_path, monkeypatch):
    """A declaration with units, and data of 40 people with one to five records."""
    monkeypatch.chdir(tmp_path)
    rows = [(f"é{i:02}", "fm"[i % 2], ("no", "yes", "", "?")[i % 4]) for i in range(40) for _ in range(1 + i % 5)]
    text = "\n".join(["who,sex,left", *map(",".join, rows)])
    Path("v.csv").write_bytes(text.encode("latin-1"))

    def declare(contribution, options="", records="", unit='unit = "who"'):
        facts = {"contribution": contribution, "options": options, "records": records, "unit": unit}
        Path("v.toml").write_text(UNITS.format(**facts), encoding="utf-8")

    return declare


PRIVATE = 'adjacency = "add-remove"\nn_records = 100'


def test_a_few_records_of_each_unit_are_released(visits, refused, run):
    """At a guarantee without noise the counts are those of at most so many records of each person."""
    for contribution, options, n in ((1, "", 40), (3, PRIVATE, 8 * (1 + 2 + 3 + 3 + 3)), (9, PRIVATE, 120)):
        visits(contribution, options, "records = 40" if contribution == 1 else "")
        assert run("check", "v.toml", "v.csv")[0] == run("plan", "v.toml", "--out", "p.json", "--overwrite")[0] == 0
        code, out, error = run("release", "v.toml", "v.csv", "--plan", "p.json", "--out", "r.json", "--overwrite")
        assert code == 0, error
        assert "every who" in out
        assert run("analyse", "r.json", "--csv", "r.csv", "--overwrite")[0] == 0
        cells = pd.read_csv("r.csv")
        assert cells["noisy_count"].sum() == n
        assert list(cells["sex"] + cells["left"]) == ["fno", "fyes", "funknown", "mno", "myes", "munknown"]
        unknown = cells["noisy_count"][cells["left"] == "unknown"].sum()
        assert unknown == sum(min(1 + i % 5, contribution) for i in range(40) if i % 4 > 1)
        assert run("verify", "r.json")[0] == 0
    # How many records there are of units with several is private.
    visits(3)
    refused(2, 'Declare adjacency = "add-remove"', "plan", "v.toml", "v.csv")
    visits(1, records="records = 40")
    assert run("plan", "v.toml", "--out", "p.json", "--overwrite")[0] == 0
    visits(1, records="records = 40", unit="")
    refused(2, "contribution or unit", "release", "v.toml", "v.csv", "--plan", "p.json", "--out", "other.json")


@pytest.mark.parametrize("label", ["a and b", "a | b"])
def test_labels_of_a_cross_table_are_divided_among_its_variables(label, alone, refused, run):
    """Labels are joined by what none of them has; if there is nothing left, it is refused."""
    typed = ["init", "s.toml", "--contribution", "1", "--records", "90", "--table", "both=x,y"]
    code, *_ = run(*typed, "--variable", f"x={label},c", "--variable", "y=d,e")
    assert code == 0
    Path("s.csv").write_text(f"x,y\n{label},e\n" + "c,d\n" * 89, encoding="utf-8")
    assert run("release", "s.toml", "s.csv", "--out", "r.json")[0] == 0
    assert run("analyse", "r.json", "--csv", "r.csv")[0] == 0
    assert pd.read_csv("r.csv")[["x", "y"]].values.tolist() == [[label, "d"], [label, "e"], ["c", "d"], ["c", "e"]]
    full = "a and b & c | d"
    refused(2, "cross-table 'both'", *typed, "--overwrite", "--variable", f"x={full},c", "--variable", "y=d,e")


def test_a_cross_table_predicts_nothing(alone, run, declare):
    both = '[tables.both]\nvariables = ["sex", "hair"]\n[options]'
    declare(('given = ["sex"]', ""), ("prior = 1.0", ""), ("[options]", both))
    assert run(*PLAN)[0] == 0
    declare(('"geometric"', '"auto"'), ('"estimate"', '"prediction"'))
    code, _, error = run(*PLAN)
    assert (code, error) == (0, "")


def test_a_check_reads_no_record_and_charges_nothing(budget, refused, run, monkeypatch):
    refused(4, "There is no ledger", "check", "survey.toml")
    run("ledger", "survey.toml", "--new")
    monkeypatch.setattr(command_line, "read_columns", lambda *_: pytest.fail("a record was read"))
    before = Path("budget.db").read_bytes()
    Path("survey.csv").write_bytes(b"sex,hair,n\nZaphod,592\n\xff,,\n")
    printed = [run("check", "survey.toml", *data) for data in ([], ["survey.csv"])]
    assert [code for code, *_ in printed] == [0, 0]
    words = " ".join(printed[1][1].split())
    for said in ("a share is typically off by", "this release fits", "no record was read", "p_hair, hair given sex, 8"):
        assert said in words
    assert Path("budget.db").read_bytes() == before


@pytest.mark.parametrize(
    ("old", "new", "code", "words"),
    [
        ("\nepsilon = 1.0", "\nepsilon = 2.5", 4, "does not fit, so nothing was recorded"),
        ("contribution = 1", 'contribution = "1"', 2, "contribution"),
        ('"n"', '"m"', 2, "name the column 'm'"),
        ("records = 592", "# unknown", 2, "records in [data]"),
        ("records = 592", "records = 30", 0, "warning"),
    ],
)
def test_a_check_ends_as_a_release_would(budget, declare, run, old, new, code, words):
    ledger = new_ledger(run)
    declare((old, new))
    found, out, error = run("check", "survey.toml", "survey.csv")
    assert (found, words in out + error) == (code, True)
    assert not ledger.entries()
    if code:
        assert run(*RELEASE)[0] == code


@pytest.mark.parametrize("records", ["", "records = 592"], ids=["number unknown", "number declared"])
def test_a_declaration_that_no_plan_takes_is_refused_before_any_record(alone, refused, declare, records, monkeypatch):
    """Found by attack: a check called it in order, and whether a private number was the declared one was answered."""
    declare(('counts = "n"', ""), ("records = 592", records), ("contribution = 1", 'contribution = 2\nunit = "id"'))
    for module in (command_line, columns):
        monkeypatch.setattr(module, "read_columns", lambda *_: pytest.fail("a record was read"))
    Path("survey.csv").write_text("id,sex,hair\n1,female,red\n", encoding="utf-8")
    for command in (("check", *PLAN[1:], "survey.csv"), (*PLAN, "survey.csv"), RELEASE):
        refused(2, "the number of records depends on who they are", *command)


RELEASES = {
    "noise": {"mechanism": "geometric"},
    "joint noise": {"mechanism": "joint"},
    "a draw": {},
    "several draws": {"released_draws": 3},
    "a private number": {"mechanism": "geometric", "adjacency": "add-remove", "n_records": 600},
    "marginals": {"mechanism": "marginals"},
}


def released(kind):
    rows, guarantee = pd.read_csv("survey.csv"), dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
    labels = {"sex": ["female", "male"], "hair": ["black", "brown", "red", "blond"]}
    if kind == "a wide table":
        release = dirdp.sample(guarantee, dirdp.latent_class(rows.loc[rows.index.repeat(rows["n"])], categories=labels))
    elif kind == "a probability":
        with pm.Model(coords={"sex": ["female", "male"]}):
            p = pm.Beta("p", 1, 1, dims="sex")
            pm.Binomial("blond", n=[313, 279], p=p, observed=[81, 46])
            release = dirdp.sample(dirdp.PureDP(epsilon=1.0), mechanism="geometric", public=["blond"])
    else:
        model = dirdp.bayesian_network(rows, {"sex": [], "hair": ["sex"]}, categories=labels, counts="n")
        release = dirdp.sample(dirdp.plan(guarantee, model, **RELEASES[kind]), model)
    dirdp.save(release, "r.json")
    return release


@pytest.mark.parametrize("kind", [*RELEASES, "a wide table", "a probability"])
def test_cells_and_draws_in_files_for_other_programs(kind, alone, run):
    """Oracle: the numbers of `estimate`, digit for digit, those of the release, and sums that are known."""
    release = released(kind)
    columns = ["--columns", "hair", "sex"] if kind == "a wide table" else []
    few = ["--n-prior", "2000"] if kind == "a private number" else []
    draws = [] if columns else ["--out", "draws.csv", "--draws", "500"]
    code, printed, error = run("analyse", "r.json", "--csv", "r.csv", "--json", *columns)
    assert code == 0, error
    frame = dirdp.estimate(dirdp.load("r.json"), [0.95], columns=columns[1:] or None).frame()
    content = Path("r.csv").read_bytes()
    assert b"\r" not in content
    assert b"nan" not in content.lower()
    cells = pd.read_csv("r.csv")
    assert list(cells.columns[-8:]) == list(frame.columns)
    # Read as texts, because pandas rounds the last digit.
    digits = pd.read_csv("r.csv", dtype=str)[frame.columns].to_numpy().astype(float)
    assert np.array_equal(digits, frame.to_numpy(float), equal_nan=True)
    if kind not in ("a wide table", "a probability"):
        named = cells["table"] + "[" + cells[["sex", "hair"]].fillna("").agg(", ".join, axis=1).str.strip(", ") + "]"
        assert list(named) == list(frame.index)
    is_noisy = kind in ("noise", "joint noise", "a private number", "a wide table", "a probability")
    assert cells["noisy_count"].notna().all() == is_noisy
    assert cells["draw"].notna().all() == (kind in ("a draw", "several draws"))
    assert ("draw_3" in cells) == (kind == "several draws")
    if is_noisy:
        assert cells["noisy_count"].dtype == np.int64
    if kind == "a draw":
        assert np.allclose(cells["draw"][:2], release["posterior"]["p_sex"].values.ravel(), atol=1e-12)
    whole = json.loads(printed, parse_constant=pytest.fail)
    assert list(whole) == ["interval_probability", "given", "cells"]
    assert [cell["share"] for cell in whole["cells"]] == list(frame["share"])
    assert [list(cell) for cell in whole["cells"]] == [list(cells.columns)] * len(cells)
    if not draws:
        return
    assert run("analyse", "r.json", "--csv", "r.csv", "--overwrite", *draws, *few)[0] == 0
    assert b"\r" not in Path("draws.csv").read_bytes()
    cells, drawn, n = pd.read_csv("r.csv"), pd.read_csv("draws.csv"), len(frame)
    assert list(drawn.columns) == [f"{what} {cell}" for what in ("share", "count") for cell in frame.index]
    assert len(drawn) == 2000
    for i, what in enumerate(("share", "count")):
        means = drawn.iloc[:, i * n : (i + 1) * n].to_numpy().mean(axis=0)
        assert np.all(np.abs(means - cells[what]) < 0.35 * cells[f"{what}_sd"] + 1e-9)
    rows_of = 2 if kind == "a probability" else 4
    assert np.allclose(drawn.iloc[:, n - rows_of : n].sum(axis=1), 1, atol=1e-6)
    if not few:
        assert (drawn.iloc[:, n : n + 2].sum(axis=1) == (313 if kind == "a probability" else 592)).all()


COMMANDS = {
    "check": (["survey.toml", "survey.csv"], []),
    "plan": (["survey.toml", "survey.csv"], ["--out"]),
    "release": (["survey.toml", "survey.csv"], ["--out"]),
    "report": (["r.json"], []),
    "statement": (["r.json"], []),
    "analyse": (["r.json"], ["--csv", "--out"]),
    "verify": (["r.json"], []),
    "ledger": (["survey.toml"], []),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_with_every_kind_of_wrong_file(name, alone, run):
    """One line without a word of Python, and nothing is left behind."""
    assert run(*RELEASE)[0] == 0
    inputs, outputs = COMMANDS[name]
    Path("empty").write_bytes(b"")
    Path("binary").write_bytes(bytes(range(256)))
    Path("other.json").write_text('{"a": [1, 2.5, null], "b": "x"}', encoding="utf-8")
    Path("tree.nc").write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 100)
    Path("cut.json").write_bytes(Path("r.json").read_bytes()[:200])
    before = {path.name for path in Path().iterdir()}
    wrong = ["missing", "nowhere/missing", ".", "empty", "binary", "other.json", "tree.nc", "cut.json", "survey.csv"]
    more = [part for option in outputs for part in (option, f"new{option}")]
    for place, right in enumerate(inputs):
        for path in wrong:
            given = [*inputs[:place], path, *inputs[place + 1 :]]
            if given != inputs:
                code, _, error = run(name, *given, *more)
                assert code in ((2, 3) if right == "survey.csv" else (2,)), (path, error)
    for option in outputs:
        for target in (".", "nowhere/new", "empty", "survey.toml/new"):
            code, _, error = run(name, *inputs, option, target)
            assert code == 2, (target, error)
    assert {path.name for path in Path().iterdir()} == before
    assert Path("empty").read_bytes() == b""


TYPED = [
    *("init", "s.toml", "--contribution", "1", "--counts", "n", "--records", "592", "--given", "hair=sex"),
    *("--variable", "sex=female, male", "--variable", "hair=black,brown,red,blond"),
]


def test_a_declaration_of_typed_categories_is_released_as_the_page_s_own(alone, declare, run):
    """Oracle: the declaration of the page, typed by hand, gives the same plan."""
    code, out, _ = run(*TYPED)
    assert (code, out) == (0, "s.toml is written. Read it, then run: dirdp plan s.toml\n")
    Path("s.toml").write_text(Path("s.toml").read_text().replace('"auto"', '"geometric"'))
    run("plan", "s.toml", "--out", "typed.json")
    run(*PLAN, "--out", "page.json")
    assert Path("typed.json").read_bytes() == Path("page.json").read_bytes()
    assert run("release", "s.toml", "survey.csv", "--out", "r.json")[0] == 0
    assert run(*TYPED)[0] == 2, "there is one already"
    assert run(*TYPED, "--overwrite")[0] == 0


def test_what_is_typed_is_declared(alone, run):
    def declared(*typed):
        assert run("init", "s.toml", "--contribution", "1", "--overwrite", *typed)[0] == 0
        return read_declaration(Path("s.toml"))

    for label in ('"', "\\", "a#b", "]", "'''", "größe", "名", "[x]", "a.b", "two words"):
        # No variable has the name of a path.
        name = "x" if label == "\\" else label
        facts = declared("--variable", f"{name}={label};x", "--separator", ";")
        assert facts.categories == {name: [label, "x"]}
    facts = declared("--epsilon", "2.5", "--delta", "0", "--variable", "children=0,1,2", "--variable", "code=01,2")
    assert facts.categories == {"children": [0, 1, 2], "code": ["01", "2"]}
    assert facts.guarantee == dirdp.PureDP(epsilon=2.5)
    variables = [part for name in "abc" for part in ("--variable", f"{name}=no,yes")]
    for parents in (["--given", "c=a,b"], ["--given", "c=a", "--given", "c=b"], ["--given", "c=a, b"]):
        assert declared(*variables, *parents).structure == {"a": [], "b": [], "c": ["a", "b"]}
    for typed, delimiter in ((";", ";"), (r"\t", "\t")):
        assert declared(*variables, "--delimiter", typed).delimiter == delimiter


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["sex"], "Expected --variable to be a name"),
        (["sex=a,b", "--variable", "sex=c,d"], "declares 'sex' twice"),
        (["sex=a,b", "--given", "hair=sex"], "variable in --given"),
        (["sex=a,b", "--epsilon", "nan"], "epsilon"),
        (["sex=a,b\x1b"], "cannot be printed"),
        (["sex=a,b,"], "A label of --variable sex=a,b, is empty"),
        (["sex=a, ,b"], "is empty"),
        (["sex=a,b", "--unit", "who", "--contribution", "2"], "Pass --n-records, the number of records"),
        (["sex=a,b", "--delimiter", "tab"], "Expected delimiter in [data] to be one character"),
    ],
    ids=range(9),
)
def test_what_is_typed_wrongly_leaves_no_file(extra, said, alone, run):
    code, _, error = run("init", "s.toml", "--contribution", "1", "--variable", *extra)
    assert code == 2
    assert said in error
    assert not list(Path.cwd().glob("s.toml*"))


@pytest.mark.parametrize(("n", "way"), [(0, "replace-one"), (3, "replace-one"), (1, "add-remove")])
def test_missing_values_that_are_declared_are_released_as_records(n, way, alone, run):
    """The empty label is written by hand, as the refusal of `dirdp init` says; a blank line is a record of it."""
    assert run("init", "s.toml", "--contribution", "1", "--delta", "0", "--variable", "a=yes,no")[0] == 0
    text = Path("s.toml").read_text(encoding="utf-8").replace('"no"]', '"no", ""]').replace('"auto"', '"geometric"')
    options = '"geometric"\nadjacency = "add-remove"\nn_records = 9'
    text = text.replace('"geometric"', options) if way == "add-remove" else text
    Path("s.toml").write_text(text, encoding="utf-8")
    for end in ("\n", "\r\n", "\r"):
        Path("s.csv").write_bytes(("a" + end + end * n).encode())
        code, printed, _ = run("release", "s.toml", "s.csv", "--out", "r.json", "--overwrite")
        assert code == 0
        assert (f"the number of records, {n}, is public" in " ".join(printed.split())) == (way == "replace-one")
        assert run("verify", "r.json")[0] == 0


def test_a_statement_for_a_register_and_reports_in_full(alone, run):
    assert run(*RELEASE)[0] == 0
    release = dirdp.load("r.json")
    assert run("statement", "r.json")[1] == f"{dirdp.statement(release)}\n"
    assert json.loads(run("statement", "r.json", "--json")[1]) == dirdp.statement(release).entry
    assert run("report", "r.json", "--full")[1] == f"{dirdp.report(release, full=True)}\n"
    run(*PLAN, "--out", "plan.json")
    full = run("report", "plan.json", "--full")[1].partition("\n\n")[2]
    assert all(run(command, "survey.toml", "--full")[1].endswith(full) for command in ("check", "plan"))


GOOD = ["sex", "hair", "a b", "größe", "n", "1", "-"]
NAMES = [*GOOD * 4, "p_sex", "n_sex", "a/b", "chain", "sex and hair", "draw", "\x1b"]
LABELS = ["0", "1", "2", "-1", "yes", "no", "a and b", "a & b", "a | b", '"', "\\", "é", "01", "x y", "a/b"]
SOMETIMES = {
    "--epsilon": ["1", "0.001", "30", "1e-300", "1e300", "0", "-1", "nan", "inf"],
    "--delta": ["0", "1e-9", "1e-300", "0.5", "1", "2", "-1", "nan"],
    "--counts": ["n", "sex", "", "weird name", "\n"],
    "--records": ["0", "1", "592", "-1", "9007199254740993"],
    "--n-records": ["1", "592", "0", "-1", "100000000000000000000"],
    "--unit": ["who", "sex", ""],
    "--encoding": ["latin-1", "utf-8", "zip", ""],
}


@st.composite
def typed(draw):
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    words = ["--contribution", draw(st.sampled_from(["1", "1", "1", "3", "0"]))]
    for name in names:
        labels = draw(st.lists(st.sampled_from(LABELS), min_size=1, max_size=3, unique=draw(st.integers(0, 5)) > 0))
        words += ["--variable", f"{name}={','.join(labels)}"]
        if draw(st.integers(0, 3)) == 0:
            words += ["--otherwise", f"{name}={draw(st.sampled_from([*labels, 'other']))}"]
    several = st.lists(st.sampled_from(names), min_size=1, max_size=2)
    for option in ("--given", "--table"):
        if draw(st.integers(0, 3)) == 0:
            first = draw(st.sampled_from([*names, "both"]))
            words += [option, f"{first}={','.join(draw(several))}"]
    for option, values in SOMETIMES.items():
        if draw(st.integers(0, 9)) == 7:
            words.append(f"{option}={draw(st.sampled_from(values))}")
    # More than one record of a person is counted only where their number is private.
    typed_options = {word.partition("=")[0] for word in words}
    if "--unit" in typed_options and "--n-records" not in typed_options and draw(st.integers(0, 3)):
        words.append("--n-records=592")
    return words


@pytest.mark.parametrize("examples", [10, pytest.param(40, marks=pytest.mark.thorough)])
def test_a_declaration_that_was_written_is_planned_and_released(examples, tmp_path, monkeypatch, run):
    """Whatever is typed: what `init` takes, `check`, `plan` and `release` take; what it refuses leaves no file."""
    monkeypatch.chdir(tmp_path)
    written = []

    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(typed())
    def holds(words):
        code, _, error = run("init", "s.toml", "--overwrite", *words)
        assert code in (0, 2, 4), error
        assert Path("s.toml").exists() == (code == 0)
        if code:
            return
        facts = read_declaration(Path("s.toml"))
        written.append(facts)
        n = min(7 if facts.records is None else facts.records, 1000)
        cells = {name: str(facts.categories[name][0]) for name in facts.columns if name in facts.categories}
        if facts.counts is not None:
            cells[facts.counts] = str(facts.records or n)
        records = range(n if facts.counts is None else 1)
        rows = [[cells.get(name, f"u{i}") for name in facts.columns] for i in records]
        with Path("s.csv").open("w", encoding=facts.encoding, newline="") as file:
            csv.writer(file).writerows([facts.columns, *rows])
        is_known = facts.records is not None or facts.adjacency == "add-remove"
        assert run("check", "s.toml", "s.csv")[0] == 0
        code, _, error = run("plan", "s.toml", *([] if is_known else ["s.csv"]), "--out", "p.json", "--overwrite")
        assert code == 0, (words, error)
        Path("s.toml").unlink()

    holds()
    assert len(written) > examples / 15
