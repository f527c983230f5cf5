"""The columns of files: what is read, and what is refused without a word on what stands there."""

import csv
import json
import sys
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.cli.columns import check_schema, read_columns
from pymc_dirdp.cli.declaration import read_declaration
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.networks.builders import bayesian_network

SECRETS = ("70003", "71009", "Zaphod")


@pytest.fixture
def facts(alone):
    return read_declaration(Path("survey.toml"))


def counted(path, facts):
    """The counts of the model that the columns lead to."""
    columns = read_columns(Path(path), facts)
    model = bayesian_network(columns, facts.structure, categories=facts.categories, counts=facts.counts)
    return [model.rvs_to_values[model[name]].eval().tolist() for name in ("n_sex", "n_hair")]


WHOLE = [[313, 279], [[52, 143, 37, 81], [56, 143, 34, 46]]]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text,
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: "\ufeff" + text.replace("\n", "\r\n") + "\r\n",
        lambda text: text + "\n\n",
        lambda text: text.rstrip("\n"),
        lambda text: text.replace("male,red,34", "male,red,30\nmale,red,4\nmale,red,0"),
        lambda text: text.replace("female", '"female"'),
        lambda text: text.replace(",52", ", 52 ").replace(",46", ",00046"),
        lambda text: "\n".join(f"Zaphod,{line},é" for line in text.splitlines()),
    ],
    ids=range(11),
)
def test_files_that_mean_the_same(facts, change):
    path = Path("survey.csv")
    path.write_bytes(change(path.read_text(encoding="utf-8")).encode())
    assert counted(path, facts) == WHOLE


# Writers of CSV. In a file of one column, some write a missing value as a blank line, and others as two quotes.


def by_csv(columns, path):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *zip(*columns.values(), strict=True)])


def of_texts(columns):
    return pa.table({name: pa.array(values, "string") for name, values in columns.items()})


WRITERS = {
    "csv": by_csv,
    "pandas": lambda columns, path: pd.DataFrame(columns).to_csv(path, index=False),
    "polars": lambda columns, path: pl.DataFrame(columns, schema=dict.fromkeys(columns, str)).write_csv(path),
    "DuckDB": lambda columns, path: duckdb.connect().from_arrow(of_texts(columns)).write_csv(str(path), header=True),
    "Arrow": lambda columns, path: pyarrow.csv.write_csv(of_texts(columns), path),
}
ANSWERS = ["yes", None, "no", "", 'a "b",\r\nc', None, None]


def of_columns(written, names, *labels):
    listed = ", ".join(json.dumps(label) for label in labels)
    tables = "".join(f"\n[variables.{name}]\ncategories = [{listed}]\n" for name in names)
    text = f'[guarantee]\nkind = "PureDP"\nepsilon = 1.0\n[people]\ncontribution = 1\n{tables}'
    return read_declaration(written(text))


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("names", ["a", "abc"])
def test_every_record_that_is_written_is_read(writer, names, written, tmp_path):
    """Each column begins at another answer, so that records of several columns are wholly and partly missing."""
    for length in (0, 1, 2, len(ANSWERS)):
        columns = {name: (ANSWERS[i:] + ANSWERS[:i])[-length:] if length else [] for i, name in enumerate(names)}
        WRITERS[writer](columns, tmp_path / "records.csv")
        found = read_columns(tmp_path / "records.csv", of_columns(written, names, "yes", "no"))
        assert found == {name: [value or "" for value in values] for name, values in columns.items()}


@pytest.mark.parametrize(("end", "mark"), [("\n", "\ufeff"), ("\r\n", ""), ("\r", "")])
def test_a_blank_line_of_one_column_is_a_record(end, mark, written, tmp_path):
    path, lines = tmp_path / "records.csv", ["a", "yes", "", "no", ""]
    path.write_bytes((mark + "".join(line + end for line in lines)).encode())
    facts = of_columns(written, "a", "yes", "no", "")
    columns = read_columns(path, facts)
    assert columns == {"a": lines[1:]}
    assert dirdp.count(columns, ["a"], categories=facts.categories).tolist() == [1, 1, 2]
    with pytest.raises(DataError, match="'a' holds missing values"):
        bayesian_network(
            read_columns(path, of_columns(written, "a", "yes", "no")), {"a": []}, categories={"a": ["yes", "no"]}
        )


def test_records_in_place_of_counts(facts, declare):
    declare(('counts = "n"', 'delimiter = ";"'))
    lines = Path("survey.csv").read_text(encoding="utf-8").splitlines()
    rows = ["sex;hair"]
    for line in lines[1:]:
        *cell, number = line.split(",")
        rows += [";".join(cell)] * int(number)
    Path("records.csv").write_text("\n".join(rows), encoding="utf-8")
    assert counted("records.csv", read_declaration(Path("survey.toml"))) == WHOLE


def test_integers_as_categories(facts, declare):
    declare(('["female", "male"]', "[0, 1]"))
    path, numbers = Path("survey.csv"), read_declaration(Path("survey.toml"))
    text = path.read_text(encoding="utf-8").replace("female", "0").replace("male", "1")
    path.write_text(text, encoding="utf-8")
    assert counted(path, numbers) == WHOLE
    for other in ("00", "0.0", " 0", "+0", "\u0660", "False"):
        path.write_text(text.replace("\n0,red", f"\n{other},red"), encoding="utf-8")
        with pytest.raises(DataError, match="does not declare"):
            counted(path, numbers)


HEADERS = [
    ("", "name the column 'sex' once"),
    ("female,black,70003\nmale,red,71009\n", "name the column 'sex' once"),
    ("sex;hair;n\nfemale;black;70003\n", "delimiter"),
    ("Sex,hair,n\nfemale,black,70003\n", "'sex'"),
    ("sex,hair\nfemale,black\n", "'n'"),
    ("sex,sex,hair,n\nfemale,male,black,70003\n", "'sex' once"),
]
# What stands below a header that is right.
RECORDS = [
    ("female,black", "another number of fields"),
    ("female,black,70003,Zaphod", "another number of fields"),
    ("female,black,70003\n\nmale,red,71009", "another number of fields"),
    ("female,black é,70003".encode("latin-1"), "UTF-8"),
    ('female,"black,70003', "not a CSV file"),
    ('female,"bl"ack,70003', "not a CSV file"),
    ("female," + "Zaphod" * 50_000 + ",70003", "not a CSV file"),
    ("Zaphod,black,70003", "'sex' holds missing values, or values that categories"),
    ("female ,black,70003", "'sex' holds missing"),
    ("fem\0ale,black,70003", "'sex' holds missing"),
    ("female,black,-70003", "column 'n' to contain numbers of records"),
    *(
        (f"female,black,{n}", "integers")
        for n in ("70003.0", "7e4", "70_003", "", "\u0667\u0660", "9" * 17, "9" * 5000)
    ),
    ("female,black,9007199254740992\nmale,red,70003", "a sum of at most"),
]
FILES = [("sex,hair,n\nfemale,black,70003\n".encode("utf-16"), DataError, "UTF-8")]
FILES += [(text.encode(), ArgumentError, word) for text, word in HEADERS]
FILES += [
    (b"sex,hair,n\n" + (text if isinstance(text, bytes) else text.encode()) + b"\n", DataError, word)
    for text, word in RECORDS
]


@pytest.mark.parametrize(("content", "error", "word"), FILES, ids=range(len(FILES)))
def test_files_that_are_refused(facts, content, error, word):
    Path("survey.csv").write_bytes(content)
    with pytest.raises(error, match=word) as raised:
        counted("survey.csv", facts)
    assert not any(secret in str(raised.value) for secret in SECRETS)
    assert raised.value.__context__ is None


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-8-sig", "shift_jis"])
def test_an_encoding_that_was_declared(facts, declare, encoding):
    """Names of columns and labels have letters that no two of these encodings write alike."""
    name, label = ("ß", "größe") if encoding != "shift_jis" else ("名", "身長")
    declare(('counts = "n"', f'counts = "n"\nencoding = "{encoding}"'), ("variables.hair", f"variables.'{name}'"))
    declare(('"red", "blond"', f'"red", "{label}"'))
    text = Path("survey.csv").read_text(encoding="utf-8").replace("hair", name).replace("blond", label)
    Path("survey.csv").write_bytes(text.replace("\n", "\r\n").encode(encoding))
    facts = read_declaration(Path("survey.toml"))
    check_schema(Path("survey.csv"), facts)
    columns = read_columns(Path("survey.csv"), facts)
    assert columns[name] == ["black", "brown", "red", label] * 2
    assert columns["n"] == [52, 143, 37, 81, 56, 143, 34, 46]


@pytest.mark.parametrize("encoding", ["ascii", "utf-16", "shift_jis"])
def test_bytes_that_a_declared_encoding_does_not_have(facts, declare, encoding):
    declare(('counts = "n"', f'counts = "n"\nencoding = "{encoding}"'))
    records = "sex,hair,n\nfemale,blond Zaphod,70003".encode("utf-16-le" if encoding == "utf-16" else "ascii")
    Path("survey.csv").write_bytes(b"\xff\xfe"[: 2 * (encoding == "utf-16")] + records + b"\x81")
    facts = read_declaration(Path("survey.toml"))
    check_schema(Path("survey.csv"), facts)
    with pytest.raises(DataError, match=f"not written in {facts.encoding.upper()}") as raised:
        read_columns(Path("survey.csv"), facts)
    assert not any(secret in str(raised.value) for secret in SECRETS)
    assert raised.value.__context__ is None


@pytest.fixture
def frame():
    return pd.read_csv("survey.csv")


def test_a_parquet_file(facts, frame):
    for changed in (
        frame.assign(hair=frame["hair"].astype("category")),
        frame.assign(n=frame["n"].astype(float)),
        frame.assign(n=frame["n"].astype("uint16"), more="Zaphod"),
    ):
        changed.to_parquet("survey.parquet")
        check_schema(Path("survey.parquet"), facts)
        assert counted("survey.parquet", facts) == WHOLE


# What stands in a column, the error, and whether the schema alone is enough to refuse it.
PARQUET = {
    "fractions": ("n", 0.5, "integers", False),
    "negative": ("n", -1, "integers", False),
    "a number is missing": ("n", [None, *range(7)], "integers", False),
    "texts": ("n", "70003", "integers|'n'", True),
    "booleans": ("n", True, "integers|'n'", True),
    "times": ("n", pd.Timestamp("2026-01-01"), "'n'", True),
    "undeclared": ("sex", "Zaphod", "does not declare", False),
    "a label is missing": ("sex", [None, *["male"] * 7], "missing", False),
    "no column": ("sex", None, "'sex'", True),
    "doubles": ("sex", 1.5, "'sex'", True),
    "booleans for labels": ("sex", True, "'sex'", True),
    "lists": ("hair", [["brown"]] * 8, "'hair'", True),
}


@pytest.mark.parametrize("case", PARQUET)
def test_parquet_files_that_are_refused(facts, frame, case):
    """A schema that cannot match was found after the charge, which such a file need not pay."""
    name, values, word, by_schema = PARQUET[case]
    (frame.drop(columns=name) if values is None else frame.assign(**{name: values})).to_parquet("survey.parquet")
    if by_schema:
        with pytest.raises(ArgumentError, match=f"'{name}'"):
            check_schema(Path("survey.parquet"), facts)
    else:
        check_schema(Path("survey.parquet"), facts)
    with pytest.raises((ArgumentError, DataError), match=word) as raised:
        counted("survey.parquet", facts)
    assert not any(secret in str(raised.value) for secret in SECRETS)


def test_a_schema_does_not_depend_on_records(facts, frame, declare):
    frame.assign(sex=None).to_parquet("survey.parquet")
    check_schema(Path("survey.parquet"), facts)
    header = Path("survey.csv").read_bytes().partition(b"\n")[0]
    for records in (b"", b"\n", b"\xff\xfe,,\n", b'"female,\n', b"a\n,b,c,d,e\n"):
        Path("survey.csv").write_bytes(header + b"\n" + records)
        check_schema(Path("survey.csv"), facts)
    Path("survey.csv").write_bytes(b"hair,n\n" + records)
    with pytest.raises(ArgumentError, match="'sex'"):
        check_schema(Path("survey.csv"), facts)
    declare(('counts = "n"', ""), ("contribution = 1", 'contribution = 1\nunit = "who"'))
    facts = read_declaration(Path("survey.toml"))
    for who in ([1, 2, 3, 4, 5, 6, 7, 8], list("abcdefgh")):
        frame.assign(who=who).to_parquet("survey.parquet")
        check_schema(Path("survey.parquet"), facts)
        assert read_columns(Path("survey.parquet"), facts)["who"].to_pylist() == who
    frame.assign(who=1.5).to_parquet("survey.parquet")
    with pytest.raises(ArgumentError, match="'who' to hold texts or integers"):
        check_schema(Path("survey.parquet"), facts)


def test_what_is_no_file(facts, alone, run, monkeypatch):
    for path in (Path(), Path("nothing.csv"), Path("nothing.parquet")):
        with pytest.raises(OSError, match=r"directory|denied"):
            read_columns(path, facts)
    for damaged in (b"", b"PAR1", b"PAR1" + b"\0" * 50 + b"PAR1", b"sex,hair,n\n"):
        Path("survey.parquet").write_bytes(damaged)
        with pytest.raises(DataError, match="not a Parquet file"):
            read_columns(Path("survey.parquet"), facts)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, error = run("plan", "survey.toml", "survey.parquet")
    assert code == 2
    assert "pip install pyarrow" in error
