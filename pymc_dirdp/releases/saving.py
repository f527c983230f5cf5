"""Files of releases, plans and private choices, as texts that any program can read."""

from os import PathLike
from typing import Any

import xarray as xr

from pymc_dirdp.releases.opened import from_text, of_release, remembered, text_of
from pymc_dirdp.releases.pairs import PairsRelease
from pymc_dirdp.releases.pairs_view import tree_of_pairs
from pymc_dirdp.releases.text import Release
from pymc_dirdp.releases.view import view
from pymc_dirdp.signatures import user_facing
from pymc_dirdp.texts.files import MAX_BYTES, read_text, write_text
from pymc_dirdp.texts.grammar import Text


@user_facing
def save(release: xr.DataTree | Text, path: str | PathLike[str], *, overwrite: bool = False) -> None:
    """Write a release, a plan or a private choice to a JSON file, which :func:`load` reads.

    Parameters
    ----------
    release : xarray.DataTree, Plan, Bins, Structure or Transcript
        From :func:`pymc_dirdp.sample`, :func:`pymc_dirdp.plan`, :func:`pymc_dirdp.choose_bins`,
        :func:`pymc_dirdp.choose_structure` or :meth:`pymc_dirdp.ThompsonSampler.transcript`. The file contains the
        text of a tree, without later changes of the tree.
    path : path-like
        The file. It is compressed if the name ends in `.gz`.
    overwrite : bool, default False
        Whether to replace an existing file, once the new one is complete. You cannot draw the same release again.

    Raises
    ------
    ReleaseError
        If it is not a release, or is confidential.
    FileExistsError
        If there is another file of this name and `overwrite` is False.
    OSError
        If the file cannot be written.

    Notes
    -----
    The methods `to_netcdf` and `to_zarr` of the tree keep the text in the group `release`. All functions of this
    library accept the tree that :func:`xarray.open_datatree` loads from such a file.

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
    write_text(text, path, overwrite=overwrite)


@user_facing
def load(path: str | PathLike[str], *, max_bytes: int = MAX_BYTES) -> Any:
    """Load a file that :func:`save` wrote. Nothing in the file is trusted.

    Parameters
    ----------
    path : path-like
        It is decompressed if it is a gzip file.
    max_bytes : int, default 2**26
        The maximum size of the decompressed text. It may contain one value for every eight of these bytes, so that a
        small file cannot fill the memory. A million cells take about 50 MB.

    Returns
    -------
    release : xarray.DataTree, Plan, Bins, Structure or Transcript
        A release is returned in the form of :func:`pymc_dirdp.sample`. Use :func:`pymc_dirdp.verify` to check its
        guarantee. The guarantee of a plan or a choice is checked here, on its exact curves.

    Raises
    ------
    ReleaseError
        If the file is not such a text, was changed, contradicts itself, or is too long.
    UnattainableError
        If a plan does not satisfy its guarantee.
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
    text = read_text(path, max_bytes=max_bytes)
    if isinstance(text, Release):
        return view(of_release(text))
    return tree_of_pairs(remembered(text)) if isinstance(text, PairsRelease) else text
