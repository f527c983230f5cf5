"""A release in a file: written in a second and read in a second, also with hundreds of tables."""

import os
from pathlib import Path
from typing import Final

import h5py
import xarray as xr

from pymc_dirdp.errors import ReleaseError, type_name
from pymc_dirdp.releases.flat import UnlikeOthersError
from pymc_dirdp.releases.packed import packed, unpacked
from pymc_dirdp.stored.untrusted import refuse_others

__all__ = ["load", "save"]

_ENGINE: Final = "h5netcdf"
# A few bytes of a file may declare an array larger than any memory. No release holds more numbers.
_MOST_NUMBERS = 10**8


def save(release: xr.DataTree, path: str | os.PathLike[str]) -> None:
    """Write a release to a file of netCDF, which :func:`load` reads.

    The file holds the tables end to end in one flat group, whatever their number, and the draws likewise. Nothing is
    lost: what the file gives back is compared with the release before it is written.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample` or :func:`pymc_dirdp.release_sparse`.
    path : path-like
        The file; another one of this name is replaced.

    Raises
    ------
    ReleaseError
        If it is no release, or is confidential.
    OSError
        If the file cannot be written.

    Notes
    -----
    A release is a tree of xarray, so its own `to_netcdf` and `to_zarr` write it, too: a group for each table and an
    array for each variable, which takes 18 seconds of a processor for 500 tables and longer to open again, where this
    takes one. All functions of this library take the tree that :func:`xarray.open_datatree` makes of such a file.

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
    ...     dirdp.save(release, f"{folder}/hair.nc")
    ...     dirdp.load(f"{folder}/hair.nc").identical(release)
    True
    """
    refuse_others(release)
    children = set(getattr(release, "children", ()))
    if not isinstance(release, xr.DataTree) or not children & {"mechanism", "noisy_counts"}:
        raise ReleaseError(f"Expected a release from pymc_dirdp.sample, got {type_name(release)} that is none.")
    _flat_if_it_can_be(release).to_netcdf(Path(path), engine=_ENGINE)


def load(path: str | os.PathLike[str]) -> xr.DataTree:
    """A release from a file of :func:`save`, wholly in memory.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    release : xarray.DataTree
        As :func:`pymc_dirdp.sample` returns it. Nothing was verified, see :func:`pymc_dirdp.verify`.

    Raises
    ------
    ReleaseError
        If the file is none of netCDF, is damaged, or declares more than a release holds.
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
    ...     dirdp.save(dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model), f"{folder}/hair.nc")
    ...     bool(dirdp.verify(dirdp.load(f"{folder}/hair.nc")))
    True
    """
    file = Path(path)
    file.open("rb").close()  # This raises the operating system's own error if the file cannot be read.
    try:
        _refuse_odd(file)
        with xr.open_datatree(file, engine=_ENGINE) as opened:
            tree = opened.load()
    except ReleaseError:
        raise
    except Exception:
        # The libraries that read the format have errors of many kinds for files that somebody made to break them.
        raise ReleaseError(f"{file} is no netCDF file such as dirdp.save writes, or a damaged one.") from None
    release = unpacked(tree) if "format" in tree.attrs else tree
    refuse_others(release)
    return release


def _flat_if_it_can_be(release: xr.DataTree) -> xr.DataTree:
    """The flat form; the tree as it is, if that would lose something, as it would of what was added to a release."""
    if not release.children.get("mechanism", release).children:
        return release
    try:
        return packed(release)
    except UnlikeOthersError:
        return release


def _refuse_odd(file: Path) -> None:
    """Refuse a file that declares more numbers than a release has, or would have other files read."""
    total = 0

    def look(name: str, thing: object) -> None:
        nonlocal total
        if isinstance(thing, h5py.Dataset):
            total += int(thing.size or 0)
            if thing.external or thing.is_virtual:
                raise ReleaseError(f"{file} holds data that stand in other files, as no release does.")
        if total > _MOST_NUMBERS:
            raise ReleaseError(f"{file} declares more than {_MOST_NUMBERS} numbers, and no release holds so many.")

    def follow(name: str, link: object) -> None:
        if not isinstance(link, h5py.HardLink):
            raise ReleaseError(f"{file} holds links to other places, as no release does.")

    with h5py.File(file, "r") as held:
        held.visititems_links(follow)
        held.visititems(look)
