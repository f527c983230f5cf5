"""The commands as somebody types them, and the code and the line with which each ends."""

import os
import re
import runpy
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.cli import main as command_line
from pymc_dirdp.cli.main import CODES, main, new_file
from pymc_dirdp.errors import ArgumentError

COMMANDS = ("init", "plan", "release", "report", "statement", "analyse", "verify", "ledger")


def process(*arguments, **options):
    return subprocess.run([sys.executable, "-m", "pymc_dirdp", *arguments], capture_output=True, text=True, **options)


@pytest.mark.thorough
def test_the_page_as_it_stands(survey, block):
    """Every command of the page, typed literally, each in a process of its own."""
    lines = block("shell").splitlines()
    assert {line.split()[1] for line in lines} == {*COMMANDS} - {"init"}
    for line in lines:
        words = line.split()
        assert words[0] == "dirdp"
        done = process(*words[1:])
        assert (done.returncode, done.stderr) == (0, ""), line
    assert "epsilon: 0.5" not in done.stdout
    assert "p_sex, p_hair" in done.stdout
    release = dirdp.load("release.json")
    assert dirdp.verify(release)
    assert release["posterior"]["p_hair"].dims == ("chain", "draw", "sex", "hair")
    with xr.open_datatree("analysis.nc", engine="h5netcdf") as analysis:
        assert analysis["posterior"]["p_hair"].shape == (4, 1000, 2, 4)


def test_the_page_lists_the_codes(page):
    table = dict(re.findall(r"^\| (\d) \| (.*?) \|$", page, re.MULTILINE))
    assert {int(code): meaning.replace("`", "") for code, meaning in table.items()} == CODES


def test_help_lists_commands_and_codes(capsys):
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
        (OSError("secret 592"), 2, "a file: OSError"),
        (KeyboardInterrupt(), 2, "stopped"),
        (ImportError("secret 592"), 5, "ImportError in this library"),
        (ValueError("secret 592"), 5, "ValueError in this library"),
        (MemoryError(), 5, "MemoryError in this library"),
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
        done = subprocess.run(
            [sys.executable, "-m", "pymc_dirdp", "report", "r.json"], stdout=gone, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_without_the_signs(survey, run, block):
    Path("survey.toml").write_text(block("toml").replace("female", "weiblich ♀"), encoding="utf-8")
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = process("plan", "survey.toml", env=environment)
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr == "[[0, 0, 0], False, False]\n"


# Files that are made whole or not at all.


def test_a_file_gets_its_name_at_the_end(tmp_path):
    path = tmp_path / "out.nc"
    with new_file(path, overwrite=False) as aside:
        aside.write_text("whole")
        assert path.read_text() == ""
        # A name that ends in .gz is compressed.
        assert aside.name == path.name
        assert aside.parent.parent == tmp_path
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_has_the_rights_of_any_other(tmp_path):
    with new_file(tmp_path / "out", overwrite=False) as aside:
        aside.write_text("")
    (tmp_path / "other").write_text("")
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)


@pytest.mark.parametrize("overwrite", [False, True])
def test_nothing_is_left_of_a_failure(tmp_path, overwrite):
    def fail():
        with new_file(tmp_path / "out", overwrite=overwrite) as aside:
            aside.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_only_if_it_is_to_be_overwritten(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(ArgumentError, match="there already"), new_file(path, overwrite=False):
        pytest.fail("nothing may be drawn")
    assert path.read_text() == "old"
    with new_file(path, overwrite=True) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_a_link_to_nowhere_is_there(tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ArgumentError, match="there already"), new_file(tmp_path / "out", overwrite=False):
        pytest.fail("nothing may be drawn")


def test_a_second_process_is_refused_before_it_spends_anything(tmp_path):
    path = tmp_path / "out"
    with new_file(path, overwrite=False) as aside:
        with pytest.raises(ArgumentError, match="there already"), new_file(path, overwrite=False):
            pytest.fail("nothing may be drawn")
        aside.write_text("first")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_ordinary_file_is_not_replaced(tmp_path, overwrite):
    path = tmp_path / "out"
    os.mkfifo(path)
    with pytest.raises(ArgumentError, match="no ordinary file"), new_file(path, overwrite=overwrite):
        pytest.fail("nothing may be drawn")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_is_no_file(tmp_path, overwrite):
    with pytest.raises(ArgumentError, match="is a folder"), new_file(tmp_path, overwrite=overwrite):
        pytest.fail("nothing may be drawn")


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError), new_file(tmp_path / "a" / "out", overwrite=False):
        pytest.fail("nothing may be drawn")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError), new_file(tmp_path / "out", overwrite=False):
        pytest.fail("nothing may be drawn")
