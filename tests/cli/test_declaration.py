"""Declarations: what they mean, and what is refused."""

from pathlib import Path

import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.cli.declaration import read_declaration


def test_the_example_means_what_it_says(written, block):
    path = written(block("toml"))
    found = read_declaration(path)
    assert found.guarantee == dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
    assert found.limit == dirdp.ApproxDP(epsilon=3.0, delta=1e-5)
    assert found.structure == {"sex": [], "hair": ["sex"]}
    assert found.categories["sex"] == ["female", "male"]
    assert found.prior == {"hair": 1.0}
    assert found.columns == ["sex", "hair", "n"]
    assert (found.contribution, found.records, found.delimiter) == (1, 592, ",")
    assert found.adjacency == "replace-one"
    # The path of the ledger is seen from the declaration, wherever the command is run.
    assert found.ledger == path.parent / "budget.db"


def test_units_other_values_encodings_and_cross_tables(written):
    found = read_declaration(
        written("""
        [guarantee]
        kind = "PureDP"
        epsilon = 1
        [people]
        unit = "who"
        contribution = 3
        [variables]
        sex = {categories = ["f", "m"]}
        age = {categories = [1, 2, 9], otherwise = 9}
        left = {categories = ["no", "yes"], prior = 2}
        [tables.both]
        variables = ["sex", "age"]
        prior = 0.5
        [data]
        encoding = "latin1"
        """)
    )
    assert (found.unit, found.contribution, found.otherwise) == ("who", 3, {"age": 9})
    assert (found.crosses, found.prior) == ({"both": ["sex", "age"]}, {"left": 2, "both": 0.5})
    assert found.encoding == "iso8859-1"
    assert found.columns == ["sex", "age", "left", "who"]


def test_what_may_be_left_out(written, block):
    found = read_declaration(written(block("toml").partition("[options]")[0]))
    assert (found.options, found.counts, found.records, found.ledger, found.limit) == ({}, None, None, None, None)
    assert found.columns == ["sex", "hair"]
    assert (found.unit, found.otherwise, found.crosses, found.encoding) == (None, {}, {}, "utf-8")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([("[guarantee]", "[guarante]")], r"Unknown name in the declaration 'guarante'.* Did you mean 'guarantee'\?"),
        ([("[people]\ncontribution = 1", "")], r"no section \[people\]"),
        ([("contribution = 1", "")], r"Expected contribution in \[people\]"),
        ([("contribution = 1", "contribution = 0")], "contribution=0"),
        ([("contribution = 1", "contribution = 1.5")], "contribution=1.5"),
        ([("contribution = 1", "contribution = nan")], "contribution=nan"),
        ([("contribution = 1", "contribution = true")], "got a bool"),
        ([("contribution = 1", 'contribution = 1\npublic = "n"')], r"Unknown name in \[people\] 'public'"),
        ([("contribution = 1", 'contribution = 1\nunit = "person"')], r"Leave counts in \[data\] or unit"),
        ([("contribution = 1", "contribution = 1\nunit = 3")], "name of a column that is no variable"),
        ([("contribution = 1", 'contribution = 1\nunit = "sex"')], "name of a column that is no variable"),
        ([("prior = 1.0", "otherwise = 1")], "one of its categories"),
        ([("prior = 1.0", 'otherwise = "grey"')], "one of its categories"),
        ([("prior = 1.0", "otherwise = true")], "one of its categories"),
        ([("prior = 1.0", 'otherwise = ["red"]')], "one of its categories"),
        ([("[options]", "[tables]\nboth = 3\n[options]")], r"\[tables.both\] to be a section"),
        ([("[options]", "[tables.both]\n[options]")], r"variables in \[tables.both\] to list names"),
        ([("[options]", "[tables.both]\nvariables = []\n[options]")], "each of their combinations is a cell"),
        ([("[options]", '[tables.both]\nvariables = ["sex", "age"]\n[options]')], "'age'"),
        ([("[options]", '[tables.both]\nvariables = ["sex", "sex"]\n[options]')], "each variable once"),
        ([("[options]", '[tables.both]\nvariables = ["sex", "hair"]\n[options]')], "Leave given out of"),
        ([("[options]", '[tables.both]\nvariables = ["sex"]\ngiven = "a"\n[options]')], "Unknown name in"),
        ([("[options]", '[tables.hair]\nvariables = ["sex"]\n[options]')], "has the name of a variable"),
        (
            [("given = [", "# given = ["), ("[options]", '[tables.both]\nvariables = ["sex", "hair"]\n[options]')],
            "Leave prior out of",
        ),
        (
            [
                ("[options]", '[variables.eye]\ncategories = ["a", "b"]\n[options]'),
                ("[options]", '[tables.both]\nvariables = ["sex", "eye"]\n[options]'),
            ],
            r"\[variables.hair\] is given 'sex', which is in \[tables.both\]",
        ),
        ([('counts = "n"', 'counts = "n"\nencoding = 3')], "name of an encoding"),
        ([('counts = "n"', 'counts = "n"\nencoding = "klingon"')], "name of an encoding"),
        ([('counts = "n"', 'counts = "n"\nencoding = "zip"')], "name of an encoding"),
        ([('counts = "n"', 'counts = "n"\nencoding = "idna"')], "name of an encoding"),
        ([('counts = "n"', 'counts = "n"\nencoding = "a\\u0000"')], "name of an encoding"),
        ([('kind = "ApproxDP"      ', 'kind = "approx"')], r"Unknown kind in \[guarantee\] 'approx'"),
        ([('kind = "ApproxDP"      ', "kind = 1 ")], r"kind in \[guarantee\] to be one of .* got an int"),
        ([('kind = "ApproxDP"      ', "")], r"\[guarantee\] to have a kind"),
        ([("delta = 1e-6", "")], "to have epsilon and delta"),
        ([("delta = 1e-6", "delta = 1e-6\nrho = 1")], "to have epsilon and delta"),
        ([("epsilon = 1.0", "epsilon = nan")], "epsilon"),
        ([("epsilon = 1.0", "epsilon = inf")], "epsilon"),
        ([("epsilon = 1.0", "epsilon = -1")], "epsilon"),
        ([("epsilon = 1.0", 'epsilon = "1"')], "got a str"),
        ([('["female", "male"]', '["female", 1]')], "all texts, or all integers"),
        ([('["female", "male"]', "[true, false]")], "all texts, or all integers"),
        ([('["female", "male"]', "[1.0, 2.0]")], "all texts, or all integers"),
        ([('["female", "male"]', "[2020-01-01, 2020-01-02]")], "all texts, or all integers"),
        ([('["female", "male"]', '"female"')], "all texts, or all integers"),
        ([('["female", "male"]', "[]")], "all texts, or all integers"),
        ([('categories = ["female", "male"]', "")], "all texts, or all integers"),
        ([('given = ["sex"]', 'given = "sex"')], "list names of variables"),
        ([('given = ["sex"]', "given = [1]")], "list names of variables"),
        ([('given = ["sex"]', 'parents = ["sex"]')], r"Unknown name in \[variables.hair\] 'parents'"),
        ([('mechanism = "auto"', "random_seed = 1")], r"Unknown name in \[options\] 'random_seed'"),
        ([('mechanism = "auto"', 'sampler = "fast"')], r"Unknown name in \[options\] 'sampler'"),
        ([('counts = "n"', "counts = 1")], "name of a column"),
        ([('counts = "n"', 'counts = "sex"')], "no variable"),
        ([('counts = "n"', 'counts = "n"\ndelimiter = ""')], "one character"),
        ([('counts = "n"', 'counts = "n"\ndelimiter = ";;"')], "one character"),
        ([('counts = "n"', 'counts = "n"\ndelimiter = \'"\'')], "one character"),
        ([("records = 592", "records = -1")], "records"),
        ([('path = "budget.db"', "")], r"path and limit in \[ledger\]"),
        ([('path = "budget.db"', "path = 3")], r"path and limit in \[ledger\]"),
        ([("limit = {", "limits = {")], r"Unknown name in \[ledger\] 'limits'"),
        ([('limit = { kind = "ApproxDP", epsilon = 3.0, delta = 1e-5 }', "limit = 3")], r"limit of \[ledger\]"),
        ([("[variables.sex]", "[variables]\nsex = 1\n[variables.other]")], r"\[variables.sex\] to be a section"),
    ],
)
def test_what_no_declaration_says(written, changes, message, block):
    text = block("toml")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    with pytest.raises(dirdp.errors.ArgumentError, match=message):
        read_declaration(written(text))


@pytest.mark.parametrize(
    "text",
    [
        b"\xff\xfe",
        b"secret_592,red,n\n70003,1,2\n",
        b"a = [" + b"[" * 100_000,
        b"a = " + b"9" * 5000,
        b'a = 1\na = "secret_592"',
        b"[variables.sex]\n[variables.sex]\n",
        "a = 'größe'".encode("latin-1"),
        b"a = \x00",
    ],
    ids=range(8),
)
def test_what_is_no_toml(written, text):
    """The error repeats nothing of the file, because somebody may have passed the data in its place."""
    with pytest.raises(dirdp.errors.ArgumentError, match="is not valid TOML") as raised:
        read_declaration(written(text))
    assert not {"592", "70003"} & set(str(raised.value).replace("_", " ").split())


@pytest.mark.parametrize("text", ["guarantee = 1", "variables = []", "", "people = 'x'"])
def test_sections_that_are_none(written, text):
    with pytest.raises(dirdp.errors.ArgumentError, match="section"):
        read_declaration(written(text))


def test_no_variable(written, block):
    text = block("toml").partition("[variables.sex]")[0] + "[variables]"
    with pytest.raises(dirdp.errors.ArgumentError, match="at least one variable"):
        read_declaration(written(text))


def test_a_declaration_that_is_not_there(tmp_path):
    for path in (tmp_path, tmp_path / "nothing.toml"):
        with pytest.raises(OSError, match=r"directory|denied"):
            read_declaration(Path(path))


def test_a_variable_that_is_given_and_not_declared_is_named(survey, run):
    text = Path("survey.toml").read_text(encoding="utf-8")
    assert 'given = ["sex"]' in text
    Path("survey.toml").write_text(text.replace('given = ["sex"]', 'given = ["gender"]'), encoding="utf-8")
    code, _, error = run("plan", "survey.toml")
    assert code == 2
    assert "Unknown variable in given in [variables." in error
    assert "'gender'" in error
