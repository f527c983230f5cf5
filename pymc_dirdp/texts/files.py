"""Files that hold a text: written whole or not at all, and read within bounds."""

import gzip
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from pymc_dirdp.checks import file_path, integer
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.texts.grammar import Text, understood

MAX_BYTES = 2**26
"""The longest text that is read unless more are allowed. A million cells take about 50 MB."""


def write_text(text: str, path: str | PathLike[str], *, overwrite: bool) -> None:
    """Write a text to a file, compressed if its name ends in `.gz`. What is there stays until the text is complete.

    Raises
    ------
    FileExistsError
        If there is another file of this name, and it is not to be overwritten.
    ArgumentError
        If there is something of this name that is no file.
    OSError
        If the file cannot be written.
    """
    file, content = file_path(path=path), text.encode()
    if file.suffix == ".gz":
        # Without a time, so that the same text is the same file.
        content = gzip.compress(content, mtime=0)
    if not overwrite and file.is_file() and file.stat().st_size == len(content) and file.read_bytes() == content:
        return
    with new_file(file, overwrite=overwrite) as aside, aside.open("xb") as new:
        new.write(content)


@contextmanager
def new_file(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """The path of a file that is written aside, and takes the place of `path` if nothing goes wrong.

    The name is taken at the beginning, so before anything is spent: no two processes write the same file.

    Parameters
    ----------
    path : Path
        The name that the file gets.
    overwrite : bool
        Whether it may replace another file.

    Raises
    ------
    FileExistsError
        If there is such a file already.
    ArgumentError
        If what is there is no file.
    OSError
        If no file can be made there.
    """
    if path.is_dir():
        raise ArgumentError(f"{path} is a folder. Name a file in it.")
    if path.exists() and not path.is_file():
        raise ArgumentError(f"{path} is no ordinary file, such as a device. Give another name.")
    taken = not overwrite or not (path.exists() or path.is_symlink())
    if taken:
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            raise FileExistsError(
                f"{path} exists, and what was released cannot be drawn again. Give another path, or pass "
                "overwrite=True to replace it."
            ) from None
    try:
        # In a folder of its own it has its own name, by which a function may choose how to write it.
        with tempfile.TemporaryDirectory(prefix=path.name, suffix=".new", dir=path.parent) as folder:
            aside = Path(folder) / path.name
            yield aside
            aside.replace(path)
            taken = False
    finally:
        if taken:
            path.unlink(missing_ok=True)


def read_text(path: str | PathLike[str], *kinds: type[Text], most_bytes: int = MAX_BYTES) -> Any:
    """What the text in a file says. Nothing in the file is believed.

    Line ends that became those of Windows on the way are read as they were written.

    Parameters
    ----------
    path : path-like
        It is unpacked if it is a file of gzip.
    *kinds : type
        What is expected; by default any text of this library.
    most_bytes : int, default 2**26
        The longest text that is read, after it was unpacked. It may hold a value for every eight of these bytes, so
        that a small file cannot fill the memory.

    Raises
    ------
    ReleaseError
        If the file holds anything else than such a text, was changed, contradicts itself, or is too long.
    UnattainableError
        If it is a plan or a choice that does not keep its guarantee.
    OSError
        If there is no such file, or it cannot be read.
    """
    file, most = file_path(path=path), integer(1, most_bytes=most_bytes)
    content = _read(file, most)
    # The first bytes of files of netCDF, as xarray writes them.
    if content.startswith((b"\x89HDF", b"CDF")):
        raise ReleaseError(
            f"Open {file} by xarray.open_datatree: it is a netCDF file, as to_netcdf writes it. dirdp.load reads the "
            "text that dirdp.save writes."
        )
    try:
        # Within a text of JSON no such byte stands but between its lines. Texts have 10 to 20 bytes for each value.
        return understood(content.replace(b"\r\n", b"\n"), *kinds, most_nodes=most // 8)
    except ReleaseError as error:
        raise ReleaseError(f"{file}: {error}") from None


def _read(file: Path, most: int) -> bytes:
    """The bytes of a file, unpacked; no more of them are read than may be."""
    try:
        with file.open("rb") as opened:
            # The first bytes of a file of gzip.
            packed = opened.read(2) == b"\x1f\x8b"
            opened.seek(0)
            content = bytes((gzip.GzipFile(fileobj=opened) if packed else opened).read(most + 1))
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise ReleaseError(f"{file} is not a gzip file, or is damaged.") from None
    if len(content) > most:
        raise ReleaseError(f"{file} is longer than most_bytes={most}. Pass a larger number if you expect that.")
    return content
