"""A release in a file: one text, which any program reads."""

import gzip
import os
import secrets
import zlib
from pathlib import Path

import xarray as xr

from pymc_dirdp.checks import integer
from pymc_dirdp.errors import ReleaseError
from pymc_dirdp.releases.opened import from_text, text_of

__all__ = ["load", "save"]

_MOST_BYTES = 10**9
_GZIP, _PACKED = ".gz", b"\x1f\x8b"
# The first bytes of files of netCDF, which earlier versions of this library wrote and which xarray writes.
_NETCDF = (b"\x89HDF", b"CDF")


def save(release: xr.DataTree, path: str | os.PathLike[str]) -> None:
    """Write a release to a file, which :func:`load` reads: a JSON text that holds the plan and what was drawn.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample` or :func:`pymc_dirdp.sparse.release_sparse`. Its text is written; what was added
        to the tree or changed in it is not.
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
    text = text_of(release)
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


def load(path: str | os.PathLike[str], *, most_bytes: int = _MOST_BYTES) -> xr.DataTree:
    """A release from a file of :func:`save`.

    Parameters
    ----------
    path : path-like
        It is unpacked if it is a file of gzip.
    most_bytes : int, default 10**9
        The longest text that is read, after it was unpacked.

    Returns
    -------
    release : xarray.DataTree
        As :func:`pymc_dirdp.sample` returns it. Whether its guarantee follows was not decided, see
        :func:`pymc_dirdp.verify`.

    Raises
    ------
    ReleaseError
        If the file holds anything else than the text of a release, or is too long.
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
            f"{file} is a file of netCDF and no text. dirdp.load reads what dirdp.save wrote. A tree that was written "
            "by its own to_netcdf keeps its text: open it by xarray.open_datatree."
        )
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ReleaseError(f"{file} is no text such as dirdp.save writes, or a damaged one.") from None
    _, tree = from_text(text)
    return tree.copy(deep=True)


def _read(file: Path, most: int) -> bytes:
    """The bytes of a file, unpacked; no more of them are held than may be."""
    try:
        with file.open("rb") as opened:
            packed = opened.read(len(_PACKED)) == _PACKED
            opened.seek(0)
            content = bytes((gzip.GzipFile(fileobj=opened) if packed else opened).read(most + 1))
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise ReleaseError(f"{file} is no file of gzip, or a damaged one.") from None
    if len(content) > most:
        raise ReleaseError(f"{file} is longer than most_bytes={most}. Pass a larger number if you expect that.")
    return content
