"""Files of texts: written completely or not at all, and read within bounds."""

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
from pymc_dirdp.texts.grammar import Text, parse

MAX_BYTES = 2**26
"""The default maximum size of a text. A million cells take about 50 MB."""


def write_text(text: str, path: str | PathLike[str], *, overwrite: bool) -> None:
    """Write a text to a file, compressed if its name ends in `.gz`. An existing file stays until the text is complete.

    Raises
    ------
    FileExistsError
        If there is another file of this name and `overwrite` is False.
    ArgumentError
        If the path exists and is not a file.
    OSError
        If the file cannot be written.
    """
    file, content = file_path(path=path), text.encode()
    if file.suffix == ".gz":
        # Without a timestamp, so that equal texts give equal files.
        content = gzip.compress(content, mtime=0)
    if not overwrite and file.is_file() and file.stat().st_size == len(content) and file.read_bytes() == content:
        return
    with new_file(file, overwrite=overwrite) as temporary, temporary.open("xb") as handle:
        handle.write(content)


@contextmanager
def new_file(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """The path of a temporary file that replaces `path` if there is no error.

    The name is reserved at the start, before any budget is spent, so no two processes write the same file.

    Parameters
    ----------
    path : Path
        The final name of the file.
    overwrite : bool
        Whether to replace an existing file.

    Raises
    ------
    FileExistsError
        If there is such a file already.
    ArgumentError
        If the path exists and is not a file.
    OSError
        If no file can be created there.
    """
    if path.is_dir():
        raise ArgumentError(f"{path} is a folder. Name a file in it.")
    if path.exists() and not path.is_file():
        raise ArgumentError(f"{path} is not a regular file. Give another name.")
    reserved = not overwrite or not (path.exists() or path.is_symlink())
    if reserved:
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            raise FileExistsError(
                f"{path} exists. Give another path, or pass overwrite=True to replace it. If it is a release, it "
                "cannot be drawn again."
            ) from None
    try:
        # In a separate folder it has the same name, by whose suffix a function may choose the format.
        with tempfile.TemporaryDirectory(prefix=path.name, suffix=".new", dir=path.parent) as folder:
            temporary = Path(folder) / path.name
            yield temporary
            temporary.replace(path)
            reserved = False
    finally:
        if reserved:
            path.unlink(missing_ok=True)


def read_text(path: str | PathLike[str], *kinds: type[Text], max_bytes: int = MAX_BYTES) -> Any:
    """Parse the text in a file. Nothing in the file is trusted.

    Line ends that were converted to those of Windows are accepted.

    Parameters
    ----------
    path : path-like
        It is decompressed if it is a gzip file.
    *kinds : type
        The expected kinds; by default any text of this library.
    max_bytes : int, default 2**26
        The maximum size of the decompressed text. It may contain one value for every eight of these bytes,
        so that a small file cannot fill the memory.

    Raises
    ------
    ReleaseError
        If the file is not such a text, was changed, contradicts itself, or is too long.
    UnattainableError
        If it is a plan or a choice that does not satisfy its guarantee.
    OSError
        If there is no such file, or it cannot be read.
    """
    file, max_size = file_path(path=path), integer(1, max_bytes=max_bytes)
    content = _read(file, max_size)
    # The first bytes of netCDF files, as xarray writes them.
    if content.startswith((b"\x89HDF", b"CDF")):
        raise ReleaseError(
            f"Open {file} by xarray.open_datatree: it is a netCDF file, as to_netcdf writes it. dirdp.load reads the "
            "text that dirdp.save writes."
        )
    try:
        # In JSON this byte occurs only between lines. Texts have 10 to 20 bytes for each value.
        return parse(content.replace(b"\r\n", b"\n"), *kinds, max_nodes=max_size // 8)
    except ReleaseError as error:
        raise ReleaseError(f"{file}: {error}") from None


def _read(file: Path, max_size: int) -> bytes:
    """The decompressed bytes of a file; no more than the maximum are read."""
    try:
        with file.open("rb") as handle:
            # The first bytes of a gzip file.
            packed = handle.read(2) == b"\x1f\x8b"
            handle.seek(0)
            content = bytes((gzip.GzipFile(fileobj=handle) if packed else handle).read(max_size + 1))
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise ReleaseError(f"{file} is not a gzip file, or is damaged.") from None
    if len(content) > max_size:
        raise ReleaseError(f"{file} is longer than max_bytes={max_size}. Pass a larger number if you expect that.")
    return content
