"""The declaration and the data of docs/command_line.md, and a way to run commands."""

import re
from pathlib import Path

import pytest

from pymc_dirdp.cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text(encoding="utf-8")


# What only somebody who writes Python knows, in an error.
PYTHON = re.compile(
    r"\w=(?!=)|\bdirdp\.\w|\w\(\)|\w\[['\"]|Traceback|\ban? (?:str|int|float|bool|dict|tuple|NoneType)\b|\bNone\b"
    r"|\bTrue\b|\bpandas\b|[Dd]ata ?[Ff]rame|\[Errno|<class|netcdf\("
)


def _block(language):
    return re.search(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)[1]


@pytest.fixture
def page():
    return PAGE


@pytest.fixture
def block():
    return _block


@pytest.fixture
def survey(tmp_path, monkeypatch):
    """A folder with the page's two files, and no ledger yet."""
    monkeypatch.chdir(tmp_path)
    Path("survey.toml").write_text(_block("toml"), encoding="utf-8")
    Path("survey.csv").write_text(_block("text"), encoding="utf-8")
    return tmp_path


@pytest.fixture
def alone(survey):
    """The same without a ledger, and with the mechanism that is planned quickly."""
    text = _block("toml").partition("[ledger]")[0].replace('"auto"', '"geometric"')
    Path("survey.toml").write_text(text, encoding="utf-8")
    return survey


@pytest.fixture
def run(capsys):
    """Run a command: its code, its output, and its error, which is one line or none."""

    def ran(*arguments):
        capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as left:
            code = left.code
        printed = capsys.readouterr()
        assert printed.err.count("\n") == (0 if code in (0, 1) else 1)
        # What is typed after an option is no word of Python.
        assert not PYTHON.search(re.sub(r"--[\w-]+ \S+=", "", printed.err)), printed.err
        assert (printed.out == "") == (code not in (0, 1))
        return code, printed.out, printed.err

    return ran


@pytest.fixture
def refused(run):
    """Run a command that ends with this code, and whose error has these words."""

    def refuse(code, said, *arguments):
        ended, _, error = run(*arguments)
        assert (ended, said in error) == (code, True), (arguments, error)

    return refuse


@pytest.fixture
def declare(tmp_path):
    """Change the declaration by replacing some of its text."""

    def declared(*changes):
        path = Path("survey.toml")
        text = path.read_text(encoding="utf-8")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")

    return declared


@pytest.fixture
def written(tmp_path):
    def write(text):
        path = tmp_path / "survey.toml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write
