"""A release that was opened: what its text says, for all that read one; and the file that it is saved in.

A tree may come from anybody, and its groups may have been edited. So every function that takes a release reads the text
that the tree holds in its group `release`, and looks at the view that follows from the text, never at the groups of the
tree that it was given. :func:`pymc_dirdp.verify` says whether these differ. A file is that text, which any program
reads.
"""

import gzip
import math
import os
import secrets
import zlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, final

import numpy as np
import xarray as xr

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import file_path, integer
from pymc_dirdp.errors import ArgumentError, ReleaseError, type_name
from pymc_dirdp.inference.joint_tables import SharedNoise
from pymc_dirdp.inference.measurements import Measurement
from pymc_dirdp.inference.observed_table import ObservedTable
from pymc_dirdp.mechanisms.outputs import Marginals, Output, RowLikelihood
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.people import Contribution
from pymc_dirdp.releases.description import cell_dims
from pymc_dirdp.releases.plan_types import Plan, PlannedTable
from pymc_dirdp.releases.text import Release
from pymc_dirdp.releases.view import TEXT_GROUP, measurements_of_table, shared_noises, view
from pymc_dirdp.signatures import user_facing
from pymc_dirdp.texts.grammar import Text, understood

type ListedLabels = tuple[tuple[str, list[Any] | None], ...]
"""The name of each axis, and the labels along it if it has any."""
_CACHE: "OrderedDict[str, tuple[Release, xr.DataTree]]" = OrderedDict()
_LOCK = Lock()


@final
@dataclass(frozen=True, eq=False)
class ReleasedTable:
    """One table of a release, with all that inference from it needs; of a plan, without an output.

    Attributes
    ----------
    part : PlannedTable
    view : Dataset
        The group of its mechanism in the view.
    release : Release or None
        None for a plan.
    shown : DataArray or None
        The draws that the view shows, with dims `chain` and `draw` before those of the shares; of a Beta variable those
        of success.
    is_public : bool
        Whether the number of records is public.
    shared : tuple of SharedNoise and int, or None
        The outputs of all tables that share its noise, and which of them this one is.
    measurements : tuple of Measurement
        The noisy marginals of all tables of the same records, where this one was released by marginals.
    """

    part: PlannedTable
    view: xr.Dataset
    release: Release | None
    shown: xr.DataArray | None
    is_public: bool
    shared: tuple[SharedNoise, int] | None = None
    measurements: tuple[Measurement, ...] = ()

    @property
    def name(self) -> str:
        """That of the table."""
        return self.part.table.name

    @property
    def mechanism(self) -> TableMechanism:
        """What drew it."""
        return self.part.mechanism

    @property
    def prior(self) -> Array:
        """The model's own, shape (..., d)."""
        return self.part.table.prior

    @property
    def family(self) -> str:
        """`"dirichlet"` or `"beta"`."""
        return self.part.table.family

    @property
    def contribution(self) -> Contribution:
        """What one person adds to the table."""
        return self.mechanism.contributed

    @property
    def totals(self) -> tuple[int, ...]:
        """The public numbers of records of the entries of some row axes; empty without any."""
        return self.part.totals

    @property
    def n_records(self) -> int | None:
        """How many records the table holds; None if that is private."""
        return self.part.n_records if self.is_public else None

    @property
    def observed_names(self) -> tuple[str, ...]:
        """The observed variables that it is counted from."""
        return tuple(likelihood.name for likelihood in self.part.table.likelihoods)

    @property
    def output(self) -> Output:
        """What its mechanism published."""
        if self.release is None:
            raise ArgumentError("A plan has no output.")
        return self.release.output[self.name]

    @property
    def steps(self) -> int | None:
        """Of the urn that drew; None without one."""
        return None if self.release is None else self.release.steps(self.part)

    @property
    def published(self) -> Array:
        """Independent outputs of the mechanism, shape (k, ..., d): one noisy table, or all draws."""
        return self.output.values

    @property
    def draws(self) -> Array:
        """The draws that the view shows, shape (draws, ...); of a Beta variable those of success."""
        if self.shown is None:
            raise ArgumentError("A plan has drawn nothing.")
        return np.asarray(self.shown.values[0])

    @property
    def share_labels(self) -> ListedLabels:
        """Axes of the draws after `chain` and `draw`, with their labels."""
        return () if self.shown is None else labels_of(self.shown)

    @property
    def cell_labels(self) -> ListedLabels:
        """Axes of the table of counts, with their labels."""
        return labels_of(self.view["prior"])

    @cached_property
    def observed_table(self) -> ObservedTable:
        """What inference reads of it."""
        mechanism, n_records, possible = self.mechanism, self.n_records, None
        # Rows whose records add up to a number that is public or that the output tells.
        totals: Iterable[tuple[Integers, float]] = mechanism.published_totals(self.published[0])
        if self.totals:
            totals = zip(mechanism.contributed.rows_by_entry(self.prior.shape), self.totals, strict=True)
        if n_records is None and "most_records" in self.view.attrs:
            possible = range(int(self.view.attrs["least_records"]), int(self.view.attrs["most_records"]) + 1)
        if self.shared is None:
            joint_rows = mechanism.joint_rows(self.published[0])
        else:
            noise, number = self.shared
            joint_rows = noise.likelihoods[number]
        return ObservedTable(
            name=self.name,
            prior=self.prior,
            n_records=n_records,
            cell_labels=self.cell_labels,
            share_labels=self.share_labels,
            mechanism_names=(type(mechanism).__name__,),
            observed=[self.output.observed(self.cell_labels, self.share_labels)],
            row_likelihoods=self._row_likelihoods,
            damaged=self._damaged,
            family=self.family,
            least=math.ceil(mechanism.min_count or 0),
            blocks=[(rows, round(total)) for rows, total in totals],
            possible_records=possible,
            # Draws have none.
            cell_noise=mechanism.cell_noise,
            joint_rows=joint_rows,
            measurements=self.measurements,
        )

    def _damaged(self, problem: str) -> ReleaseError:
        return ReleaseError(
            f"The release is damaged: of {self.name!r} {problem}. Ask its publisher for the file again."
        )

    def _row_likelihoods(self) -> list[list[RowLikelihood]]:
        self.mechanism.refuse_inference()
        try:
            each = [self.mechanism.row_likelihoods(output, steps=self.steps) for output in self.output.values]
        except ArgumentError as error:
            raise self._damaged(f"the output cannot come from this mechanism ({error})") from error
        return [list(row) for row in zip(*each, strict=True)]


def labels_of(variable: xr.DataArray) -> ListedLabels:
    """Each dim of a variable but `chain` and `draw`, with its labels if it has any."""
    return tuple(
        (str(dim), _plain(variable.coords[dim].values) if dim in variable.coords else None)
        for dim in variable.dims
        if dim not in ("chain", "draw")
    )


def _plain(labels: Any) -> list[Any]:
    """Labels as Python values; those that Python has no kind for, such as nanoseconds, as NumPy's."""
    return list(labels) if labels.dtype.kind in "Mmu" else labels.tolist()


@final
@dataclass(frozen=True, eq=False)
class Opened:
    """A release, or a plan that is described like one.

    Attributes
    ----------
    plan : Plan
    tree : xarray.DataTree
        The view of its text.
    release : Release or None
        None for a plan.
    """

    plan: Plan
    tree: xr.DataTree
    release: Release | None = None

    @property
    def reproducible(self) -> bool:
        """Whether a seed was used."""
        return self.release is not None and self.release.is_seeded

    @property
    def is_estimate(self) -> bool:
        """Whether the shares are one estimate, fitted to what is published of all tables, and no draw."""
        return bool(self.plan.publishing(Marginals))

    @cached_property
    def tables(self) -> dict[str, ReleasedTable]:
        """Its tables by name."""
        groups, public = self.tree["mechanism"].children, self.plan.reading.sizes_are_public
        shown = {} if self.release is None else self.tree["posterior"].to_dataset().data_vars
        shared = {} if self.release is None else shared_noises(self.plan, self.release.output)
        measured = self._measured
        return {
            name: ReleasedTable(
                part,
                groups[name].to_dataset(),
                self.release,
                shown.get(name),
                public,
                shared.get(name),
                measured.get(name, ()),
            )
            for part in self.plan.parts
            for name in (part.table.name,)
        }

    @property
    def _measured(self) -> dict[str, tuple[Measurement, ...]]:
        """For each table that was released by marginals those of all tables of the same records."""
        if self.release is None:
            return {}
        parts = self.plan.publishing(Marginals)
        own: dict[str, list[Measurement]] = {}
        for part in parts:
            name, dims = part.table.name, tuple(cell_dims(part.table))
            own[name] = measurements_of_table(name, dims, part.mechanism, self.release.output[name])[1]
        return {
            part.table.name: tuple(
                one
                for other in parts
                if other.n_records == part.n_records
                and any({part.table.name, other.table.name} <= {*group} for group in self.plan.groups)
                for one in own[other.table.name]
            )
            for part in parts
        }

    @cached_property
    def curves(self) -> PrivacyCurves:
        """The privacy curves of all tables and draws together."""
        return self.plan.composition

    @property
    def pure_epsilon(self) -> float:
        """The largest loss; it is infinite for a Dirichlet draw."""
        return float(self.tree["privacy"].attrs.get("pure_epsilon", math.inf))


def text_of(tree: Any) -> str:
    """The text that a tree holds, which nobody has checked.

    Raises
    ------
    ReleaseError
        If the tree holds none, so that it is no release, or one whose text was lost.
    """
    refuse_confidential(tree)
    children = getattr(tree, "children", None)
    if hasattr(tree, "free_RVs"):
        raise ReleaseError(
            "Expected a release, got a PyMC model. The release of a private model is dirdp.releases.release_of(model); "
            "pm.sample(model=model) draws from its posterior."
        )
    if not isinstance(children, Mapping):
        own = " Call its own report() or posterior()." if hasattr(tree, "report") else ""
        own = " Pass what it holds: its tables, or its calibration." if hasattr(tree, "tables") else own
        raise ReleaseError(
            f"Expected a release from pymc_dirdp.sample, an xarray.DataTree, got {type_name(tree)}.{own} Open a "
            'file by pymc_dirdp.load("release.json") first.'
        )
    variables = children[TEXT_GROUP].to_dataset().variables if TEXT_GROUP in children else {}
    text = variables["text"].values if "text" in variables else None
    if text is None or text.ndim or not isinstance(text.item(), str):
        raise ReleaseError(
            f"Expected a release from pymc_dirdp.sample or pymc_dirdp.load; the tree lacks the group {TEXT_GROUP!r} "
            "with its text."
        )
    return str(text.item())


def from_text(text: str) -> tuple[Release, xr.DataTree]:
    """The release of which this is the text, and its view, which nobody may change.

    Raises
    ------
    ReleaseError
        If it is no text of a release.
    """
    with _LOCK:
        if text in _CACHE:
            _CACHE.move_to_end(text)
            return _CACHE[text]
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise ReleaseError("The release is damaged: its text holds halves of characters.") from None
    release: Any = understood(encoded, Release)
    with computable():
        return release, _cached_view(release)


def shown_tree(release: Release) -> xr.DataTree:
    """The view of a release that was drawn or read, for its user."""
    return _cached_view(release).copy(deep=True)


def _cached_view(release: Release) -> xr.DataTree:
    """The view of a release, which is cached, so that it is not rebuilt."""
    tree = view(release)
    if release.plan.after:
        # Bins that nobody has paid for are known as long as somebody holds them.
        return tree
    with _LOCK:
        _CACHE[release.text] = release, tree
        # Releases that were opened last: the verbs of an analysis all open the same one.
        while len(_CACHE) > 8:
            _CACHE.popitem(last=False)
    return tree


def opened(release: Any) -> Opened:
    """What a release from :func:`pymc_dirdp.sample` says, by its text.

    Raises
    ------
    ReleaseError
        If it is no such release, or its text is damaged.
    """
    found, tree = from_text(text_of(release))
    return Opened(found.plan, tree, found)


def refuse_confidential(tree: Any) -> None:
    """Refuse a tree that was computed from the data themselves."""
    if "confidential" in getattr(tree, "attrs", ()):
        raise ReleaseError(
            "Expected a release from pymc_dirdp.sample, got a tree that is marked as confidential: like those of "
            "posterior() and diagnose(), it was computed from the data themselves, and no guarantee covers it."
        )


@contextmanager
def computable() -> Iterator[None]:
    """Turn a failed computation into a ReleaseError: the numbers of a text may be too large or too small for curves."""
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            yield
    except (ArithmeticError, ValueError) as error:
        if isinstance(error, ReleaseError):
            raise
        raise ReleaseError(
            "The release is damaged: no curve can be computed from its numbers, some of which are far too large or too "
            "small."
        ) from error


@user_facing
def save(release: xr.DataTree | Text, path: str | os.PathLike[str]) -> None:
    """Write a release, a plan or a private choice to a file, which :func:`load` reads: a JSON text of its facts.

    Parameters
    ----------
    release : xarray.DataTree, Plan, Bins, Structure or Transcript
        From :func:`pymc_dirdp.sample`, :func:`pymc_dirdp.plan`, :func:`pymc_dirdp.choose_bins`,
        :func:`pymc_dirdp.choose_structure` or :meth:`pymc_dirdp.ThompsonSampler.transcript`. Of a tree its text is
        written; what was added to the tree or changed in it is not.
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
    file, content = file_path(path=path), text.encode()
    if file.suffix == ".gz":
        # Without a time, so that the same release is the same file.
        content = gzip.compress(content, mtime=0)
    aside = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    try:
        with aside.open("xb") as new:
            new.write(content)
        aside.replace(file)
    finally:
        aside.unlink(missing_ok=True)


@user_facing
def load(path: str | os.PathLike[str], *, most_bytes: int = 2**26) -> Any:
    """What :func:`save` wrote. Nothing in the file is believed.

    Parameters
    ----------
    path : path-like
        It is unpacked if it is a file of gzip.
    most_bytes : int, default 2**26
        The longest text that is read, after it was unpacked. It may hold a value for every eight of these bytes, so
        that a small file cannot fill the memory. A million cells take about 50 MB.

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
    file = file_path(path=path)
    most = integer(1, most_bytes=most_bytes)
    content = _read(file, most)
    # The first bytes of files of netCDF, which earlier versions of this library wrote and which xarray writes.
    if content.startswith((b"\x89HDF", b"CDF")):
        raise ReleaseError(
            f"Open {file} by xarray.open_datatree: it is a netCDF file, as to_netcdf writes it. dirdp.load reads the "
            "text that dirdp.save writes."
        )
    try:
        # Texts have 10 to 20 bytes for each value; those of small integers have fewer.
        found = understood(content, most_nodes=most // 8)
    except ReleaseError as error:
        raise ReleaseError(f"{file}: {error}") from None
    if not isinstance(found, Release):
        return found
    with computable():
        return shown_tree(found)


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
