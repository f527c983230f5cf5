"""Declarations: what they mean, and what is refused."""

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


SEX, HAIR, KIND = '["female", "male"]', 'given = ["sex"]', 'kind = "ApproxDP"      '
BOTH = '[tables.both]\nvariables = ["sex", "{}"]\n[options]'
# What an error says, what is replaced in the page's declaration, and by what.
REFUSED = [
    (r"Unknown name in the declaration 'guarante'.* Did you mean 'guarantee'\?", "[guarantee]", ["[guarante]"]),
    (r"no section \[people\]", "[people]\ncontribution = 1", [""]),
    (r"contribution in \[people\]|contribution=|got a bool", "contribution = 1", ["", "contribution = true"]),
    ("contribution=", "contribution = 1", ["contribution = 0", "contribution = 1.5", "contribution = nan"]),
    (r"Unknown name in \[people\] 'public'", "contribution = 1", ['contribution = 1\npublic = "n"']),
    (r"Leave counts in \[data\] or unit", "contribution = 1", ['contribution = 1\nunit = "person"']),
    (
        "column that is no variable",
        "contribution = 1",
        ["contribution = 1\nunit = 3", 'contribution = 1\nunit = "sex"'],
    ),
    ("one of its categories", "prior = 1.0", ["otherwise = 1", 'otherwise = "grey"', "otherwise = true"]),
    (r"\[tables.both\] to be a section", "[options]", ["[tables]\nboth = 3\n[options]"]),
    (r"variables in \[tables.both\] to list names", "[options]", ["[tables.both]\n[options]"]),
    ("combinations is a cell", "[options]", ["[tables.both]\nvariables = []\n[options]"]),
    ("'age'", "[options]", [BOTH.format("age")]),
    ("each variable once", "[options]", [BOTH.format("sex")]),
    ("Leave given out of", "[options]", [BOTH.format("hair")]),
    ("Unknown name in", "[options]", ['[tables.both]\nvariables = ["sex"]\ngiven = "a"\n[options]']),
    ("has the name of a variable", "[options]", ['[tables.hair]\nvariables = ["sex"]\n[options]']),
    ("'sex', which is in", "[options]", ['[variables.eye]\ncategories = ["a", "b"]\n' + BOTH.format("eye")]),
    (
        "name of an encoding",
        "encoding",
        ["encoding = 3", *(f'encoding = "{e}"' for e in ("klingon", "zip", "a\\u0000"))],
    ),
    (r"Unknown kind in \[guarantee\] 'approx'", KIND, ['kind = "approx"']),
    (r"kind in \[guarantee\] to be one of .* got an int", KIND, ["kind = 1 "]),
    (r"\[guarantee\] to have a kind", KIND, [""]),
    ("to have epsilon and delta", "delta = 1e-6", ["", "delta = 1e-6\nrho = 1"]),
    ("epsilon|got a str", "epsilon = 1.0", [f"epsilon = {value}" for value in ("nan", "inf", "-1", '"1"')]),
    (
        "all texts, or all integers",
        SEX,
        ['["female", 1]', "[true, false]", "[1.0, 2.0]", "[2020-01-01]", '"female"', "[]"],
    ),
    ("all texts, or all integers", f"categories = {SEX}", [""]),
    ("list names of variables", HAIR, ['given = "sex"', "given = [1]"]),
    (r"Unknown name in \[variables.hair\] 'parents'", HAIR, ['parents = ["sex"]']),
    (r"Unknown name in \[options\]", 'mechanism = "auto"', ["random_seed = 1", 'sampler = "fast"']),
    ("name of a column|no variable", 'counts = "n"', ["counts = 1", 'counts = "sex"']),
    ("one character", "delimiter", [f"delimiter = {value}" for value in ('""', '";;"', "'\"'")]),
    ("records", "records = 592", ["records = -1"]),
    (r"path and limit in \[ledger\]", 'path = "budget.db"', ["", "path = 3"]),
    (r"Unknown name in \[ledger\] 'limits'", "limit = {", ["limits = {"]),
    (r"limit of \[ledger\]", 'limit = { kind = "ApproxDP", epsilon = 3.0, delta = 1e-5 }', ["limit = 3"]),
    (r"\[variables.sex\] to be a section", "[variables.sex]", ["[variables]\nsex = 1\n[variables.other]"]),
]


@pytest.mark.parametrize(("message", "old", "replacements"), REFUSED)
def test_what_no_declaration_says(written, message, old, replacements, block):
    for new in replacements:
        # A name that the page does not have stands beside one that it has.
        found, put = (old, new) if old in block("toml") else ('counts = "n"', f'counts = "n"\n{new}')
        with pytest.raises(dirdp.errors.ArgumentError, match=message):
            read_declaration(written(block("toml").replace(found, put)))


def test_a_cross_table_has_one_prior(written, block):
    text = block("toml").replace("given = [", "# given = [").replace("[options]", BOTH.format("hair"))
    with pytest.raises(dirdp.errors.ArgumentError, match="Leave prior out of"):
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


def test_sections_that_are_none_and_files_that_are_none(written, block, tmp_path):
    for text in ("guarantee = 1", "variables = []", "", "people = 'x'"):
        with pytest.raises(dirdp.errors.ArgumentError, match="section"):
            read_declaration(written(text))
    with pytest.raises(dirdp.errors.ArgumentError, match="at least one variable"):
        read_declaration(written(block("toml").partition("[variables.sex]")[0] + "[variables]"))
    for path in (tmp_path, tmp_path / "nothing.toml"):
        with pytest.raises(OSError, match=r"directory|denied"):
            read_declaration(path)
