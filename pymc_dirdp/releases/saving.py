"""Files of releases, plans and private choices: the text of each, which any program reads."""

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
    """Write a release, a plan or a private choice to a file, which :func:`load` reads: a JSON text of its facts.

    Parameters
    ----------
    release : xarray.DataTree, Plan, Bins, Structure or Transcript
        From :func:`pymc_dirdp.sample`, :func:`pymc_dirdp.plan`, :func:`pymc_dirdp.choose_bins`,
        :func:`pymc_dirdp.choose_structure` or :meth:`pymc_dirdp.ThompsonSampler.transcript`. Of a tree its text is
        written; what was added to the tree or changed in it is not.
    path : path-like
        The file. It is compressed if the name ends in `.gz`.
    overwrite : bool, default False
        Whether another file of this name is replaced, once the new one is complete. A release that was paid for cannot
        be drawn again.

    Raises
    ------
    ReleaseError
        If it is no release, or is confidential.
    FileExistsError
        If there is another file of this name, and `overwrite` is False.
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
    write_text(text, path, overwrite=overwrite)


@user_facing
def load(path: str | PathLike[str], *, max_bytes: int = MAX_BYTES) -> Any:
    """What :func:`save` wrote. Nothing in the file is believed.

    Parameters
    ----------
    path : path-like
        It is unpacked if it is a file of gzip.
    max_bytes : int, default 2**26
        The longest text that is read, after it was unpacked. It may hold a value for every eight of these bytes, so
        that a small file cannot fill the memory. A million cells take about 50 MB.

    Returns
    -------
    release : xarray.DataTree, Plan, Bins, Structure or Transcript
        A release as :func:`pymc_dirdp.sample` returns it; whether its guarantee follows was not decided, see
        :func:`pymc_dirdp.verify`. A plan or a choice satisfies its guarantee, which is decided on its exact curves
        here.

    Raises
    ------
    ReleaseError
        If the file holds anything else than such a text, was changed, contradicts itself, or is too long.
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
