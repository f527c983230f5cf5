"""Files of releases: written whole or not at all, and never over another one unless that is said."""

import gzip
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.texts.files import write_text

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def hair():
    with pm.Model(coords={"hair": ["black", "brown", "red"]}) as model:
        p = pm.Dirichlet("p", a=np.ones(3), dims="hair")
        pm.Multinomial("x", n=60, p=p, observed=[30, 20, 10])
    return model


@pytest.fixture(scope="module")
def two():
    """Two releases of one plan."""
    return [dirdp.sample(APPROX, hair(), mechanism="geometric") for _ in range(2)]


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["r.json", "r.json.gz", "r"])
def test_another_file_is_replaced_only_if_that_is_said(two, tmp_path, name):
    path = tmp_path / name
    first, second = two
    dirdp.save(first, path)
    before = files_in(tmp_path)
    assert set(before) == {name}
    # The same text again changes nothing, also as an object that came from the file.
    dirdp.save(first, path)
    dirdp.save(dirdp.load(path), str(path))
    assert files_in(tmp_path) == before
    with pytest.raises(FileExistsError) as refused:
        dirdp.save(second, path)
    assert str(path) in str(refused.value)
    assert "overwrite=True" in str(refused.value)
    assert files_in(tmp_path) == before
    dirdp.save(second, path, overwrite=True)
    assert set(files_in(tmp_path)) == {name}
    assert dirdp.load(path).identical(second)


def failing(*_, **__):
    raise OSError("no space left")


class Full:
    """A file on a full disk: half of what is written arrives."""

    def __init__(self, opened):
        self._opened = opened

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._opened.close()

    def write(self, content):
        self._opened.write(content[: len(content) // 2])
        self._opened.flush()
        raise OSError("no space left")

    def close(self):
        self._opened.close()


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("there", [None, b"mine"])
def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(two, tmp_path, monkeypatch, overwrite, there):
    path = tmp_path / "r.json"
    if there is not None:
        path.write_bytes(there)
    before, really = files_in(tmp_path), Path.open
    with monkeypatch.context() as patched:
        patched.setattr(
            Path, "open", lambda self, mode="r", *more: Full(really(self, mode, *more)) if "x" in mode else failing()
        )
        words = "exists" if there is not None and not overwrite else "no space left"
        with pytest.raises(OSError, match=words):
            dirdp.save(two[0], path, overwrite=overwrite)
    assert files_in(tmp_path) == before


def test_of_threads_that_write_one_name_the_first_wins(tmp_path):
    """What a file holds is what the only one wrote whose call came back."""
    path, count, gate = tmp_path / "r.json", 16, Barrier(16)

    def write(number):
        gate.wait()
        try:
            write_text(f"{number}" * 100_000, path, overwrite=False)
        except FileExistsError:
            return None
        return number

    for _ in range(5):
        path.unlink(missing_ok=True)
        with ThreadPoolExecutor(count) as pool:
            winners = [number for number in pool.map(write, range(count)) if number is not None]
        assert len(winners) == 1
        assert files_in(tmp_path) == {"r.json": (f"{winners[0]}" * 100_000).encode()}


def test_a_compressed_file_is_the_same_for_the_same_text(two, tmp_path):
    for name in ("a.json.gz", "b.json.gz"):
        dirdp.save(two[0], tmp_path / name)
    files = files_in(tmp_path)
    assert gzip.decompress(files["a.json.gz"]).decode() == two[0]["release"]["text"].item()
    # Neither a time nor a name is in it.
    assert files["a.json.gz"] == files["b.json.gz"]
    assert files["a.json.gz"][3:8] == bytes(5)


def test_a_link_to_nothing_is_a_file_of_this_name(two, tmp_path):
    path, target = tmp_path / "r.json", tmp_path / "elsewhere.json"
    path.symlink_to(target)
    with pytest.raises(FileExistsError, match=r"r\.json exists"):
        dirdp.save(two[0], path)
    assert path.is_symlink()
    assert not target.exists()
    assert os.listdir(tmp_path) == ["r.json"]
    dirdp.save(two[0], path, overwrite=True)
    assert dirdp.load(path).identical(two[0])
    assert not target.exists()


def test_a_folder_of_this_name_stays(two, tmp_path):
    path = tmp_path / "r.json"
    path.mkdir()
    (path / "mine").write_text("mine")
    for overwrite in (False, True):
        with pytest.raises(dirdp.errors.ArgumentError, match="is a folder"):
            dirdp.save(two[0], path, overwrite=overwrite)
    assert [file.name for file in tmp_path.iterdir()] == ["r.json"]
    assert (path / "mine").read_text() == "mine"
    with pytest.raises(FileNotFoundError):
        dirdp.save(two[0], tmp_path / "no folder" / "r.json")
