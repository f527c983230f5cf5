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
    """A file beside `path`, which gets its name at the end of the block, if nothing goes wrong.

    That the file can be made is found out at the beginning, so before anything is spent.

    Parameters
    ----------
    path : Path
        The name that the file gets.
    force : bool
        Whether it may replace another file.

    Raises
    ------
    ArgumentError
        If there is such a file already, or the path is a folder.
    OSError
        If no file can be made there.
    """
    _refuse_existing(path, force)
    handle, name = tempfile.mkstemp(prefix=path.name, suffix=".new", dir=path.parent)
    os.close(handle)
    aside = Path(name)
    try:
        yield aside
        # A temporary file can be read by its owner alone, and others have the rights that this process gives.
        mask = os.umask(0)
        os.umask(mask)
        aside.chmod(0o666 & ~mask)
        if force:
            aside.replace(path)
        else:
            _link(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def _link(aside: Path, path: Path) -> None:
    try:
        path.hardlink_to(aside)
    except FileExistsError:
        _refuse_existing(path, force=False)
        raise


def _refuse_existing(path: Path, force: bool) -> None:
    if path.is_dir():
        raise ArgumentError(f"{path} is a folder. Name a file in it.")
    if not force and (path.exists() or path.is_symlink()):
        raise ArgumentError(f"{path} is there already. Give another name, or --force to replace it.")
