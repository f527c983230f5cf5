"""The columns of files: what is read, and what is refused without a word on what stands there."""

import csv
import json
import sys
from pathlib import Path

import pandas as pd
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.cli.columns import check_schema, read_columns
from pymc_dirdp.cli.declaration import read_declaration
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.networks.builders import bayesian_network

# No error repeats these.
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


def by_pandas(columns, path):
    pd.DataFrame(columns).to_csv(path, index=False)


def by_polars(columns, path):
    pytest.importorskip("polars").DataFrame(columns, schema=dict.fromkeys(columns, str)).write_csv(path)


def of_texts(arrow, columns):
    return arrow.table({name: arrow.array(values, "string") for name, values in columns.items()})


def by_duckdb(columns, path):
    arrow = pytest.importorskip("pyarrow")
    connection = pytest.importorskip("duckdb").connect()
    connection.register("records", of_texts(arrow, columns))
    connection.execute(f"COPY records TO '{path}' (HEADER)")


def by_arrow(columns, path):
    arrow, writer = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.csv")
    writer.write_csv(of_texts(arrow, columns), path)


ANSWERS = ["yes", None, "no", "", 'a "b",\r\nc', None, None]


def of_columns(written, names, *labels):
    listed = ", ".join(json.dumps(label) for label in labels)
    tables = "".join(f"\n[variables.{name}]\ncategories = [{listed}]\n" for name in names)
    text = f'[guarantee]\nkind = "PureDP"\nepsilon = 1.0\n[people]\ncontribution = 1\n{tables}'
    return read_declaration(written(text))


@pytest.mark.parametrize("writer", [by_csv, by_pandas, by_polars, by_duckdb, by_arrow])
@pytest.mark.parametrize("names", ["a", "abc"])
def test_every_record_that_is_written_is_read(writer, names, written, tmp_path):
    """Each column begins at another answer, so that records of several columns are wholly and partly missing."""
    for length in (0, 1, 2, len(ANSWERS)):
        columns = {name: (ANSWERS[i:] + ANSWERS[:i])[-length:] if length else [] for i, name in enumerate(names)}
        writer(columns, tmp_path / "records.csv")
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


@pytest.mark.parametrize(
    ("text", "error", "word"),
    [
        ("", ArgumentError, "name the column 'sex' once"),
        ("female,black,70003\nmale,red,71009\n", ArgumentError, "name the column 'sex' once"),
        ("sex;hair;n\nfemale;black;70003\n", ArgumentError, "delimiter"),
        ("Sex,hair,n\nfemale,black,70003\n", ArgumentError, "'sex'"),
        ("sex,hair\nfemale,black\n", ArgumentError, "'n'"),
        ("sex,sex,hair,n\nfemale,male,black,70003\n", ArgumentError, "'sex' once"),
        ("sex,hair,n\nfemale,black\n", DataError, "another number of fields"),
        ("sex,hair,n\nfemale,black é,70003\n".encode("latin-1"), DataError, "UTF-8"),
        ("sex,hair,n\nfemale,black é,70003\n".encode("utf-16"), DataError, "UTF-8"),
        ("sex,hair,n\nfemale,black,70003,Zaphod\n", DataError, "another number of fields"),
        ("sex,hair,n\nfemale,black,70003\n\nmale,red,71009\n", DataError, "another number of fields"),
        ('sex,hair,n\nfemale,"black,70003\n', DataError, "not a CSV file"),
        ('sex,hair,n\nfemale,"bl"ack,70003\n', DataError, "not a CSV file"),
        ("sex,hair,n\nfemale," + "Zaphod" * 50_000 + ",70003\n", DataError, "not a CSV file"),
        ("sex,hair,n\nZaphod,black,70003\n", DataError, "'sex' holds missing values, or values that categories"),
        ("sex,hair,n\nfemale ,black,70003\n", DataError, "'sex' holds missing"),
        ("sex,hair,n\nfem\0ale,black,70003\n", DataError, "'sex' holds missing"),
        ("sex,hair,n\nfemale,black,-70003\n", DataError, "column 'n' to contain numbers of records"),
        ("sex,hair,n\nfemale,black,70003.0\n", DataError, "integers"),
        ("sex,hair,n\nfemale,black,7e4\n", DataError, "integers"),
        ("sex,hair,n\nfemale,black,70_003\n", DataError, "integers"),
        ("sex,hair,n\nfemale,black,\n", DataError, "integers"),
        ("sex,hair,n\nfemale,black,\u0667\u0660\n", DataError, "integers"),
        ("sex,hair,n\nfemale,black," + "9" * 5000 + "\n", DataError, "integers"),
        ("sex,hair,n\nfemale,black," + "9" * 17 + "\n", DataError, "integers"),
        ("sex,hair,n\nfemale,black,9007199254740992\nmale,red,70003\n", DataError, "a sum of at most"),
    ],
    ids=range(26),
)
def test_files_that_are_refused(facts, text, error, word):
    Path("survey.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
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


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame,
        lambda frame: frame.assign(hair=frame["hair"].astype("category")),
        lambda frame: frame.assign(n=frame["n"].astype(float)),
        lambda frame: frame.assign(n=frame["n"].astype("uint16"), more="Zaphod"),
    ],
    ids=range(4),
)
def test_a_parquet_file(facts, frame, change):
    change(frame).to_parquet("survey.parquet")
    assert counted("survey.parquet", facts) == WHOLE


@pytest.mark.parametrize(
    ("change", "error", "word"),
    [
        (lambda frame: frame.drop(columns="sex"), ArgumentError, "'sex'"),
        (lambda frame: frame.assign(n=frame["n"] + 0.5), DataError, "integers"),
        (lambda frame: frame.assign(n=-frame["n"]), DataError, "integers"),
        (lambda frame: frame.assign(n=[None, *frame["n"][1:]]), DataError, "integers"),
        (lambda frame: frame.assign(n="70003"), DataError, "integers"),
        (lambda frame: frame.assign(n=True), DataError, "integers"),
        (lambda frame: frame.assign(sex="Zaphod"), DataError, "does not declare"),
        (lambda frame: frame.assign(sex=[None, *frame["sex"][1:]]), DataError, "missing"),
    ],
    ids=range(8),
)
def test_parquet_files_that_are_refused(facts, frame, change, error, word):
    change(frame).to_parquet("survey.parquet")
    with pytest.raises(error, match=word) as raised:
        counted("survey.parquet", facts)
    assert not any(secret in str(raised.value) for secret in SECRETS)


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.drop(columns="sex"),
        lambda frame: frame.assign(sex=1.5),
        lambda frame: frame.assign(sex=True),
        lambda frame: frame.assign(hair=[["brown"]] * len(frame)),
        lambda frame: frame.assign(n="70003"),
        lambda frame: frame.assign(n=pd.Timestamp("2026-01-01")),
    ],
    ids=range(6),
)
def test_a_schema_that_cannot_match_is_refused_without_a_record(facts, frame, change):
    """It was found after the charge, which such a file need not pay."""
    change(frame).to_parquet("survey.parquet")
    with pytest.raises(ArgumentError, match=r"'(sex|hair|n)'"):
        check_schema(Path("survey.parquet"), facts)


def test_a_schema_does_not_depend_on_records(facts, frame, declare):
    for change in (frame, frame.assign(sex="Zaphod"), frame.assign(n=frame["n"] + 0.5), frame.assign(sex=None)):
        change.to_parquet("survey.parquet")
        check_schema(Path("survey.parquet"), facts)
    header = Path("survey.csv").read_bytes().partition(b"\n")[0]
    for records in (b"", b"\n", b"\xff\xfe,,\n", b'"female,\n', b"a\n,b,c,d,e\n"):
        Path("survey.csv").write_bytes(header + b"\n" + records)
        check_schema(Path("survey.csv"), facts)
    Path("survey.csv").write_bytes(b"hair,n\n" + records)
    with pytest.raises(ArgumentError, match="'sex'"):
        check_schema(Path("survey.csv"), facts)
    # A unit may be of texts or integers.
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
