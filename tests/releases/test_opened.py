"""Releases of every kind, written and read: what a file says, how long it may be, and when it replaces another."""

import gzip
import os
import re
import tracemalloc
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ReleaseError
from pymc_dirdp.releases.opened import open_release
from pymc_dirdp.releases.saving import load
from tests.planned import one_row

APPROX, RENYI = dirdp.ApproxDP(epsilon=1.0, delta=1e-6), dirdp.RenyiDP(order=3.0, epsilon=0.3)
CATEGORIES = {"a": ["x", "y"], "b": ["x", "y", "z"]}
RECORDS = {name: np.random.default_rng(1).choice(labels, 500).tolist() for name, labels in CATEGORIES.items()}


def network():
    return dirdp.bayesian_network(RECORDS, {"a": [], "b": ["a"]}, categories=CATEGORIES)


def test_what_is_no_release_is_not_written(tmp_path):
    release = dirdp.sample(dirdp.PureDP(epsilon=1.0), one_row(), mechanism="geometric")
    confidential = dirdp.curator.exact_posterior(one_row(), 5)
    for other in (xr.DataTree(), None, release["posterior"].to_dataset(), confidential):
        with pytest.raises(ReleaseError):
            dirdp.save(other, tmp_path / "other.json")
    assert not (tmp_path / "other.json").exists()


def test_a_file_that_is_packed_or_long_is_read_no_further_than_it_may_be(tmp_path):
    plan = dirdp.plan(APPROX, one_row(), mechanism="geometric")
    packed, plain = tmp_path / "plan.json.gz", tmp_path / "plan.json"
    for path in (packed, plain):
        dirdp.save(plan, path)
    content, text = packed.read_bytes(), plain.read_bytes()
    assert gzip.decompress(content) == text
    for path in (packed, plain):
        assert load(path, max_bytes=len(text)) == load(path) == plan
        with pytest.raises(ReleaseError, match=f"longer than max_bytes={len(text) - 1}"):
            load(path, max_bytes=len(text) - 1)
    flipped = content[:3] + b"\xff" + content[4:40]
    for damaged in (b"", content[:20], content[:-12], content[:-20], flipped, content[:30] + b"\0" * 30):
        packed.write_bytes(damaged)
        with pytest.raises(ReleaseError, match=r"not a (gzip file|text of pymc_dirdp).* damaged"):
            load(packed)
    packed.write_bytes(gzip.compress(bytes(10**8)))
    with pytest.raises(ReleaseError, match="longer than max_bytes=1000000"):
        load(packed, max_bytes=10**6)


@pytest.mark.parametrize("value", [b"[]", b'{"a":[]}', b'""'])
def test_a_small_file_cannot_fill_the_memory(tmp_path, value):
    """Values are counted before any is built: 2 MB of gzip, which hold 160 million empty lists, took 12.9 GB."""
    path, most = tmp_path / "many.json.gz", 10**6
    path.write_bytes(gzip.compress((b"[" + (value + b",") * (most // (len(value) + 1)))[: most - 1] + b"]"))
    tracemalloc.start()
    try:
        with pytest.raises(ReleaseError, match=r"more values than a text of this size\..* larger max_bytes="):
            load(path, max_bytes=most)
        assert tracemalloc.get_traced_memory()[1] < 5 * most
    finally:
        tracemalloc.stop()


def arrays_in(value, seen):
    """All arrays of numbers within a value of this package."""
    if id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        return [value] if value.size > 1 and value.dtype != object else []
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, list | tuple):
        parts = list(value)
    else:
        parts = list(vars(value).values()) if type(value).__module__.startswith("pymc_dirdp") else []
    return [array for part in parts for array in arrays_in(part, seen)]


@pytest.mark.parametrize("mechanism", ["dirichlet", "geometric", "marginals"])
def test_nothing_that_is_returned_is_what_is_cached(mechanism):
    release = dirdp.sample(APPROX if mechanism == "marginals" else RENYI, network(), mechanism=mechanism)
    trees = [release, dirdp.analyse(release, 20)]
    trees += [] if mechanism == "dirichlet" else [dirdp.fit(release, way) for way in ("tables", "joint")]
    estimates = dirdp.estimate(release)
    estimates.frame()
    returned = [
        variable.values for tree in trees for node in tree.subtree for variable in node.to_dataset().variables.values()
    ]
    returned += arrays_in(estimates.tables, set())
    cached = arrays_in(open_release(release), set())
    assert len(cached) > 5
    assert len(returned) > 20
    assert not any(np.shares_memory(one, other) for one in returned for other in cached)


@pytest.fixture(scope="module")
def two():
    return [dirdp.sample(APPROX, one_row(), mechanism="geometric") for _ in range(2)]


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("name", ["r.json", "r.json.gz", "r"])
def test_another_file_is_replaced_only_if_that_is_said(two, tmp_path, name):
    path = tmp_path / name
    first, second = two
    dirdp.save(first, path)
    before = files_in(tmp_path)
    assert set(before) == {name}
    if name.endswith(".gz"):
        assert gzip.decompress(before[name]).decode() == first["release"]["text"].item()
        assert before[name][3:8] == bytes(5)
    dirdp.save(first, path)
    dirdp.save(dirdp.load(path), str(path))
    assert files_in(tmp_path) == before
    with pytest.raises(FileExistsError, match=rf"{re.escape(str(path))} .*overwrite=True"):
        dirdp.save(second, path)
    assert files_in(tmp_path) == before
    dirdp.save(second, path, overwrite=True)
    assert set(files_in(tmp_path)) == {name}
    assert dirdp.load(path).identical(second)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("there", [None, b"mine"])
def test_a_write_that_fails_leaves_what_was_there_and_nothing_else(two, tmp_path, monkeypatch, overwrite, there):
    path = tmp_path / "r.json"
    if there is not None:
        path.write_bytes(there)
    before = files_in(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", Mock(side_effect=OSError("no space left")))
        with pytest.raises(OSError, match="exists" if there and not overwrite else "no space left"):
            dirdp.save(two[0], path, overwrite=overwrite)
    assert files_in(tmp_path) == before


def test_a_link_to_nothing_is_a_file_of_this_name_and_a_folder_stays(two, tmp_path):
    path, target, folder = tmp_path / "r.json", tmp_path / "elsewhere.json", tmp_path / "folder.json"
    path.symlink_to(target)
    folder.mkdir()
    with pytest.raises(FileExistsError, match=r"r\.json exists"):
        dirdp.save(two[0], path)
    assert path.is_symlink()
    assert not target.exists()
    dirdp.save(two[0], path, overwrite=True)
    assert dirdp.load(path).identical(two[0])
    for overwrite in (False, True):
        with pytest.raises(dirdp.errors.ArgumentError, match="is a folder"):
            dirdp.save(two[0], folder, overwrite=overwrite)
    assert sorted(os.listdir(tmp_path)) == ["folder.json", "r.json"]
    assert folder.is_dir()
    with pytest.raises(FileNotFoundError):
        dirdp.save(two[0], tmp_path / "no folder" / "r.json")
