"""Files that hold a text: line ends, lengths, and what is no text."""

import gzip
import os
import stat

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.texts.files import new_file, write_text

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def model(labels=("black", "brown")):
    with pm.Model(coords={"hair": list(labels)}) as made:
        p = pm.Dirichlet("p", a=np.ones(len(labels)), dims="hair")
        pm.Multinomial("x", n=60, p=p, observed=[60 // len(labels)] * len(labels))
    return made


KINDS = ("plan", "release", "bins", "structure", "transcript")


@pytest.fixture(scope="module")
def values():
    """What every kind of text says; bins that nobody paid for count as long as somebody holds them."""
    columns = {"age": [20, 30, 40, 50] * 50, "wet": ["no", "yes"] * 100, "old": ["no", "no", "yes", "yes"] * 50}
    labels, pure = {name: ["no", "yes"] for name in ("wet", "old")}, dirdp.PureDP(epsilon=4.0)
    bandit = dirdp.ThompsonSampler(["a", "b"], dirdp.PureDP(epsilon=1.0), contribution=1)
    for person in range(20):
        bandit.update(bandit.select(), 1, person=person)
    found = (
        dirdp.plan(APPROX, model()),
        dirdp.sample(APPROX, model(), mechanism="geometric"),
        dirdp.choose_bins(pure, columns, "age", n_bins=2, candidates=[25, 35, 45], ledger=None),
        dirdp.choose_structure(pure, {name: columns[name] for name in labels}, categories=labels),
        bandit.transcript(),
    )
    return dict(zip(KINDS, found, strict=True))


def alike(value, other):
    return value.identical(other) if isinstance(value, xr.DataTree) else value.text == other.text


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_line_ends_of_windows_are_those_that_were_written(values, tmp_path, kind, packed):
    path = tmp_path / f"text.json{'.gz' if packed else ''}"
    dirdp.save(values[kind], path)
    content = gzip.decompress(path.read_bytes()) if packed else path.read_bytes()
    assert content.count(b"\n") > 3
    assert b"\r" not in content
    for lines in (-1, content.count(b"\n") // 2):
        changed = content.replace(b"\n", b"\r\n", lines)
        path.write_bytes(gzip.compress(changed) if packed else changed)
        back = dirdp.load(path)
        assert alike(back, values[kind])
        # It is written as it was, so that its digest is the same.
        own = tmp_path / "own.json"
        dirdp.save(back, own, overwrite=True)
        assert own.read_bytes() == content
    for end in (b"\r", b"\r\r\n", b"\n\r"):
        changed = content.replace(b"\n", end)
        path.write_bytes(gzip.compress(changed) if packed else changed)
        with pytest.raises(ReleaseError, match=r"text\.json"):
            dirdp.load(path)


def test_an_escaped_line_end_inside_a_text_stays(tmp_path):
    r"""The two characters of an escape are four: `\r\n` in JSON is no line end of the file."""
    path = tmp_path / "text.json"
    plan = dirdp.plan(APPROX, model(labels=("C:\\r\\name", "b\\r\\n")))
    dirdp.save(plan, path)
    content = path.read_bytes()
    assert rb"b\\r\\n" in content
    path.write_bytes(content.replace(b"\n", b"\r\n"))
    assert dirdp.load(path) == plan
    assert dirdp.load(path).text.encode() == content


@pytest.mark.parametrize("start", [b"\x89HDF\r\n\x1a\n", b"CDF\x01", b"CDF\x05"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_file_of_netcdf_is_opened_by_xarray(tmp_path, start, packed):
    path = tmp_path / "release.nc"
    path.write_bytes(gzip.compress(start + bytes(100)) if packed else start + bytes(100))
    for use in (dirdp.load, dirdp.verify, dirdp.estimate):
        with pytest.raises(ReleaseError, match=r"xarray\.open_datatree.*netCDF"):
            use(path)


def test_a_text_is_written_with_the_line_ends_that_it_has(tmp_path):
    path = tmp_path / "text"
    write_text("a\nö\r\n", path, overwrite=False)
    assert path.read_bytes() == "a\nö\r\n".encode()
    for wrong in (None, 3, b"bytes"):
        with pytest.raises(ArgumentError, match="path"):
            write_text("a", wrong, overwrite=False)


# Files that are made whole or not at all.


def test_a_file_gets_its_name_at_the_end(tmp_path):
    path = tmp_path / "out.nc"
    with new_file(path, overwrite=False) as aside:
        # A second process is refused before it spends anything.
        with pytest.raises(FileExistsError, match="exists"), new_file(path, overwrite=False):
            pytest.fail("nothing may be drawn")
        aside.write_text("whole")
        assert path.read_text() == ""
        # A name that ends in .gz is compressed.
        assert aside.name == path.name
        assert aside.parent.parent == tmp_path
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]
    (tmp_path / "other").write_text("")
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE((tmp_path / "other").stat().st_mode)


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_no_ordinary_file_is_not_replaced(tmp_path, overwrite):
    path = tmp_path / "out"
    os.mkfifo(path)
    with pytest.raises(ArgumentError, match="not a regular file"), new_file(path, overwrite=overwrite):
        pytest.fail("nothing may be drawn")
    assert list(tmp_path.iterdir()) == [path]
