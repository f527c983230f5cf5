"""Files that are made whole or not at all, and that replace another one only if somebody says so."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pymc_dirdp.errors import ArgumentError

__all__ = ["new_file"]


@contextmanager
def new_file(path: Path, *, force: bool) -> Iterator[Path]:
    """A file beside `path`, which takes its place at the end of the block, if nothing goes wrong.

    The name is taken at the beginning, so before anything is spent: no two processes write the same file.

    Parameters
    ----------
    path : Path
        The name that the file gets.
    force : bool
        Whether it may replace another file.

    Raises
    ------
    ArgumentError
        If there is such a file already, or what is there is no file.
    OSError
        If no file can be made there.
    """
    taken = _take(path, force)
    try:
        handle, name = tempfile.mkstemp(prefix=path.name, suffix=".new", dir=path.parent)
        os.close(handle)
        aside = Path(name)
        try:
            yield aside
            # A temporary file can be read by its owner alone, and others have the rights that this process gives.
            mask = os.umask(0)
            os.umask(mask)
            aside.chmod(0o666 & ~mask)
            aside.replace(path)
            taken = False
        finally:
            aside.unlink(missing_ok=True)
    finally:
        if taken:
            path.unlink(missing_ok=True)


def _take(path: Path, force: bool) -> bool:
    """Make an empty file of this name, or find that there is one that may be replaced; whether it was made."""
    if path.is_dir():
        raise ArgumentError(f"{path} is a folder. Name a file in it.")
    if path.exists() and not path.is_file():
        raise ArgumentError(f"{path} is no ordinary file, such as a device. Give another name.")
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        if not force:
            raise ArgumentError(f"{path} is there already. Give another name, or --force to replace it.") from None
        return False
    return True
