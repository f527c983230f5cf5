"""Files that are made whole or not at all."""

import os
import stat

import pytest

from pymc_dirdp.cli.actions import new_file
from pymc_dirdp.errors import ArgumentError


def test_a_file_gets_its_name_at_the_end(tmp_path):
    path = tmp_path / "out.nc"
    with new_file(path, force=False) as aside:
        aside.write_text("whole")
        assert path.read_text() == ""
        assert aside.parent == tmp_path
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_has_the_rights_of_any_other(tmp_path):
    with new_file(tmp_path / "out", force=False) as aside:
        aside.write_text("")
    (tmp_path / "other").write_text("")
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)


@pytest.mark.parametrize("force", [False, True])
def test_nothing_is_left_of_a_failure(tmp_path, force):
    def fail():
        with new_file(tmp_path / "out", force=force) as aside:
            aside.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_replaced_only_by_force(tmp_path):
    path = tmp_path / "out"
    path.write_text("old")
    with pytest.raises(ArgumentError, match="there already"), new_file(path, force=False):
        pytest.fail("nothing may be drawn")
    assert path.read_text() == "old"
    with new_file(path, force=True) as aside:
        aside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_a_link_to_nowhere_is_there(tmp_path):
    (tmp_path / "out").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ArgumentError, match="there already"), new_file(tmp_path / "out", force=False):
        pytest.fail("nothing may be drawn")


def test_a_second_process_is_refused_before_it_spends_anything(tmp_path):
    path = tmp_path / "out"
    with new_file(path, force=False) as aside:
        with pytest.raises(ArgumentError, match="there already"), new_file(path, force=False):
            pytest.fail("nothing may be drawn")
        aside.write_text("first")
    assert path.read_text() == "first"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_ordinary_file_is_not_replaced(tmp_path, force):
    path = tmp_path / "out"
    os.mkfifo(path)
    with pytest.raises(ArgumentError, match="no ordinary file"), new_file(path, force=force):
        pytest.fail("nothing may be drawn")
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("force", [False, True])
def test_a_folder_is_no_file(tmp_path, force):
    with pytest.raises(ArgumentError, match="is a folder"), new_file(tmp_path, force=force):
        pytest.fail("nothing may be drawn")


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError), new_file(tmp_path / "a" / "out", force=False):
        pytest.fail("nothing may be drawn")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError), new_file(tmp_path / "out", force=False):
        pytest.fail("nothing may be drawn")
