"""The commands as somebody types them, and the code and the line with which each ends."""

import os
import re
import runpy
import subprocess
import sys

import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.cli import main as command_line
from pymc_dirdp.cli.main import main
from pymc_dirdp.cli.wording import CODES

COMMANDS = ("init", "check", "plan", "release", "report", "statement", "analyse", "verify", "ledger")


def process(*arguments, **options):
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | options
    return subprocess.run([sys.executable, *arguments], **options)


@pytest.mark.thorough
def test_the_page_as_it_stands(survey, block, run):
    lines = block("shell").splitlines()
    assert {line.split()[1] for line in lines} == {*COMMANDS} - {"init"}
    for line in lines:
        words = line.split()
        assert words[0] == "dirdp"
        code, printed, _ = run(*words[1:])
        assert code == 0, line
    assert "epsilon: 0.5" not in printed
    assert "p_sex, p_hair" in printed
    release = dirdp.load("release.json")
    assert dirdp.verify(release)
    assert release["posterior"]["p_hair"].dims == ("chain", "draw", "sex", "hair")
    with xr.open_datatree("analysis.nc", engine="h5netcdf") as analysis:
        assert analysis["posterior"]["p_hair"].shape == (4, 1000, 2, 4)


def test_the_page_and_the_help_list_commands_and_codes(page, capsys):
    table = dict(re.findall(r"^\| (\d) \| (.*?) \|$", page, re.MULTILINE))
    assert {int(code): meaning.replace("`", "") for code, meaning in table.items()} == CODES
    with pytest.raises(SystemExit) as left:
        main(["--help"])
    assert left.value.code == 0
    printed = capsys.readouterr().out
    assert all(f"  {code}  {meaning}" in printed for code, meaning in CODES.items())
    assert all(re.search(rf"^    {name}\b", printed, re.MULTILINE) for name in COMMANDS)


def test_a_module_that_is_run(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["pymc_dirdp", "verify", "nothing.nc"])
    # It runs as if nothing had imported it.
    monkeypatch.delitem(sys.modules, "pymc_dirdp.__main__", raising=False)
    with pytest.raises(SystemExit) as left:
        runpy.run_module("pymc_dirdp", run_name="__main__")
    assert left.value.code == 2
    assert capsys.readouterr().err == "dirdp: nothing.nc: No such file or directory\n"


@pytest.mark.parametrize(
    "arguments",
    [[], ["nonsense"], ["report"], ["release", "a", "b"], ["analyse", "a", "--draws", "many"], ["verify", "a", "b"]],
)
def test_wrong_arguments_are_one_line(arguments, run):
    code, _, error = run(*arguments)
    assert code == 2
    assert error.startswith("dirdp: ")


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (dirdp.errors.DataError("Some counts\nare negative."), 3, "Some counts are negative."),
        (dirdp.errors.BudgetError("Too much."), 4, "Too much."),
        (dirdp.errors.LedgerError("Damaged."), 4, "Damaged."),
        (dirdp.errors.UnattainableError("Too tight."), 4, "Too tight."),
        (dirdp.errors.UnsupportedModelError("A\x1b[2Jb."), 2, "A\\x1b[2Jb."),
        (dirdp.errors.ReleaseError("No release."), 2, "No release."),
        (PermissionError(13, "Permission denied", "x.nc"), 2, "x.nc: Permission denied"),
        (OSError("secret 592"), 2, "a file: cannot be read or written"),
        (KeyboardInterrupt(), 2, "stopped"),
        (ImportError("secret 592"), 5, "ImportError in this library"),
        (ValueError("secret 592"), 5, "ValueError in this library"),
    ],
)
def test_errors_are_a_code_and_one_line(error, code, line, run, monkeypatch):
    def fail(path, **options):
        raise error

    fail.__name__ = "verify"
    monkeypatch.setattr(command_line, "verify", fail)
    ended, _, printed = run("verify", "x.nc")
    assert ended == code
    assert printed.startswith(f"dirdp: {line}")
    assert "592" not in printed


def test_a_reader_that_has_left_is_no_error(alone, run):
    assert run("release", "survey.toml", "survey.csv", "--out", "r.json")[0] == 0
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        done = process("-m", "pymc_dirdp", "report", "r.json", stdout=gone)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_without_the_signs(alone, declare):
    declare(("female", "weiblich ♀"))
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = process("-m", "pymc_dirdp", "plan", "survey.toml", env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_only_what_needs_pymc_imports_it(alone, run):
    """A reader of a release waits for no compiler."""
    assert run("release", "survey.toml", "survey.csv", "--out", "r.json")[0] == 0
    code = (
        "import sys\nfrom pymc_dirdp.cli.main import main\n"
        "ways = ['report', 'r.json'], ['verify', 'r.json'], ['analyse', 'r.json', '--out', 'a.nc']\n"
        "codes = [main(way) for way in ways]\n"
        "sys.exit(str([codes, 'pymc' in sys.modules, 'pytensor' in sys.modules]))"
    )
    done = process("-c", code)
    assert done.stderr == "[[0, 0, 0], False, False]\n"
