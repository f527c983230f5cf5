"""What is published, in a file: one text, which any program reads."""

import gzip
import os
import secrets
import zlib
from pathlib import Path
from typing import Any

import xarray as xr

from pymc_dirdp.checks import integer
from pymc_dirdp.errors import ReleaseError
from pymc_dirdp.releases.grammar import Text, understood
from pymc_dirdp.releases.opened import computable, from_text, shown_tree, text_of
from pymc_dirdp.releases.text import Release, SparseRelease

__all__ = ["load", "save"]

_MOST_BYTES = 10**9
_GZIP, _PACKED = ".gz", b"\x1f\x8b"
# The first bytes of files of netCDF, which earlier versions of this library wrote and which xarray writes.
_NETCDF = (b"\x89HDF", b"CDF")


def save(release: xr.DataTree | Text, path: str | os.PathLike[str]) -> None:
    """Write a release, a plan or a private choice to a file, which :func:`load` reads: a JSON text of its facts.

    Parameters
    ----------
    release : xarray.DataTree, Plan, Bins, Structure or Transcript
        From :func:`pymc_dirdp.sample`, :func:`pymc_dirdp.sparse.release_sparse`, :func:`pymc_dirdp.plan`,
        :func:`pymc_dirdp.choose_bins`, :func:`pymc_dirdp.choose_structure` or
        :meth:`pymc_dirdp.ThompsonSampler.transcript`. Of a tree its text is written; what was added to the tree or
        changed in it is not.
    path : path-like
        The file; another one of this name is replaced once the new one is complete. It is compressed if the name ends
        in `.gz`.

    Raises
    ------
    ReleaseError
        If it is no release, or is confidential.
    OSError
        If the file cannot be written.

    Notes
    -----
    The tree's own `to_netcdf` and `to_zarr` keep the text in the group `release`, and all functions of this library
    take the tree that :func:`xarray.open_datatree` makes of such a file.

    Examples
    --------
    >>> import tempfile
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> release = dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dirdp.save(release, f"{folder}/hair.json")
    ...     dirdp.load(f"{folder}/hair.json").identical(release)
    True
    """
    text = release.text if isinstance(release, Text) else text_of(release)
    if not isinstance(release, Text):
        from_text(text)
    file, content = Path(path), text.encode()
    if file.suffix == _GZIP:
        # Without a time, so that the same release is the same file.
        content = gzip.compress(content, mtime=0)
    aside = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        with aside.open("xb") as new:
            new.write(content)
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)


def load(path: str | os.PathLike[str], *, most_bytes: int = _MOST_BYTES) -> Any:
    """What :func:`save` wrote. Nothing in the file is believed.

    Parameters
    ----------
    path : path-like
        It is unpacked if it is a file of gzip.
    most_bytes : int, default 10**9
        The longest text that is read, after it was unpacked.

    Returns
    -------
    release : xarray.DataTree, Plan, Bins, Structure or Transcript
        A release as :func:`pymc_dirdp.sample` returns it; whether its guarantee follows was not decided, see
        :func:`pymc_dirdp.verify`. A plan or a choice keeps its guarantee, which is decided on its exact curves here.

    Raises
    ------
    ReleaseError
        If the file holds anything else than such a text, was changed, contradicts itself, or is too long.
    UnattainableError
        If a plan does not keep its guarantee.
    OSError
        If there is no such file, or it cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     dirdp.save(dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model), f"{folder}/hair.json")
    ...     bool(dirdp.verify(dirdp.load(f"{folder}/hair.json")))
    True
    """
    file = Path(path)
    content = _read(file, integer(1, most_bytes=most_bytes))
    if content.startswith(_NETCDF):
        raise ReleaseError(
            f"Open {file} by xarray.open_datatree: it is a netCDF file, as to_netcdf writes it. dirdp.load reads the "
            "text that dirdp.save writes."
        )
    try:
        found = understood(content)
    except ReleaseError as error:
        raise ReleaseError(f"{file}: {error}") from None
    if not isinstance(found, Release | SparseRelease):
        return found
    with computable():
        return shown_tree(found)


def _read(file: Path, most: int) -> bytes:
    """The bytes of a file, unpacked; no more of them are read than may be."""
    try:
        with file.open("rb") as opened:
            packed = opened.read(len(_PACKED)) == _PACKED
            opened.seek(0)
            content = bytes((gzip.GzipFile(fileobj=opened) if packed else opened).read(most + 1))
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise ReleaseError(f"{file} is not a gzip file, or is damaged.") from None
    if len(content) > most:
        raise ReleaseError(f"{file} is longer than most_bytes={most}. Pass a larger number if you expect that.")
    return content
