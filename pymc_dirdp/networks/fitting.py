"""The tables of a network, fitted to the noisy counts that a release published: post-processing of it.

The noisy counts are measurements of marginals of the tables. `DrawnTable` is a table that one record goes through, in
a draw of a release or given a release.
"""

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from os import PathLike
from typing import Any, Literal, final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer, one_of
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.inference.measurements import Family, Measurement, number_of_records
from pymc_dirdp.inference.table_fit import MAX_ROUNDS, fit_tables
from pymc_dirdp.networks.joint_fit import EliminationError, fit_jointly, shares_given_parents, with_co_parents
from pymc_dirdp.networks.wide_records import fit_of_pairs, pairs_of
from pymc_dirdp.progress import Bar
from pymc_dirdp.releases.analysis import analyse
from pymc_dirdp.releases.axes import ListedLabels, labels_of
from pymc_dirdp.releases.draws import measurements_of_table
from pymc_dirdp.releases.inference_setup import open_verified
from pymc_dirdp.releases.opened import (
    TEXT_GROUP,
    LoadedRelease,
    Published,
    ReleasedTable,
    computable,
    open_release,
    refuse_confidential,
)
from pymc_dirdp.releases.view import tree_of
from pymc_dirdp.sampling.bits import Seed
from pymc_dirdp.signatures import user_facing
from pymc_dirdp.texts.grammar import library_version


@user_facing
def fit(
    release: Published,
    consistency: Literal["joint", "tables"] | None = None,
    *,
    random_seed: int | None = None,
    progressbar: bool = True,
) -> xr.DataTree:
    """The tables of a network, or the mixture of a wide table, estimated from all noisy counts of a release together.

    A draw given a release, or a table that is read off its noisy counts, takes every table by itself and every cell as
    if the others said nothing. This estimate uses that a table is mostly made of small effects, and that the marginals
    of different tables are those of the same records. It loses far less than either where there are many cells for the
    records. It is one estimate, and no posterior: it says nothing of its own error:
    :func:`pymc_dirdp.estimate` does.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample`, with `mechanism="marginals"`, or any other that publishes noisy counts, such as
        `"geometric"` or `"gaussian"`. Its tables are read as those of the same records.
    consistency : {"joint", "tables"}, optional
        By default `"joint"` for a release of marginals, and `"tables"` for one of noisy tables: without small marginals
        among what was measured, wide noise in the tables of children misleads those of their parents. `"joint"`
        compares each measured marginal with that of the whole network. `"tables"` fits each table by itself to the
        marginals of its own variables; it is faster, and its tables agree only roughly. It is also what is done where
        the marginals of the whole network would need a table of more than 10**7 cells; the attribute `consistency` of
        the estimate says so.
    random_seed : int, optional
        Of a wide table, where the descent begins; 0 by default. It is public.
    progressbar : bool, default True
        Whether to count the tables that are fitted, or the steps of a descent, in a bar, if they take over a second.

    Returns
    -------
    estimate : xarray.DataTree
        Of a wide table the release with its mixture in the group `posterior`: shares `p_v` of each component, all of
        which have the same weight. It replaces the release everywhere.

        Of a network its group `posterior` holds the shares as one draw, with the names, dims and labels of the release.
        So it can replace the release in :func:`pymc_dirdp.predict_log_proba`,
        :func:`pymc_dirdp.log_likelihood` and :func:`pymc_dirdp.synthetic`. The attribute
        `n_records` is the number of records, or what the counts say of it if it is private. Where parents of one
        variable depend on each other beyond the structure, the group `network` holds tables that say how, and
        predictions, likelihoods and synthetic records follow them.

    Raises
    ------
    ReleaseError
        If it is no release, is damaged, or contradicts itself.
    ArgumentError
        If some table was released without noisy counts, or the tables are no network.

    Notes
    -----
    The logits of a variable are sums of effects, one for each subset of its parents. An effect is shrunk to 0 with a
    strength that is learned from the noisy counts (empirical Bayes): what the noise hides is left out, and what it does
    not hide stays. The likelihood of a noisy count is normal, with the variance of the noise and that of the sample.
    The estimate is the mode, found by Newton's method to a length of the gradient of 0.001. Where the noise of a cell
    is more than a fifth of all records, it is the mean of the shares over the normal distribution around the mode.

    A network takes parents of one variable for independent given their own parents, and records are not so. Where two
    of them were measured together, and the noise does not hide it, the joint fit makes the later one depend on the
    earlier; the tables of the release's structure are marginals of that.

    References
    ----------
    Theory, section 16, for draws given a release. McKenna, Sheldon and Miklau (2019), Graphical-model based estimation
    and inference for differential privacy, for estimates from noisy marginals without effects that are shrunk to 0.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> records = {"fur": ["yes"] * 60 + ["no"] * 40, "eggs": ["no"] * 65 + ["yes"] * 35}
    >>> yes_no = {"fur": ["yes", "no"], "eggs": ["yes", "no"]}
    >>> model = dirdp.bayesian_network(records, {"eggs": [], "fur": ["eggs"]}, categories=yes_no)
    >>> release = dirdp.sample(dirdp.PureDP(epsilon=1.0), model, mechanism="geometric")
    >>> estimate = dirdp.fit(release)
    >>> dirdp.log_likelihood(estimate, records).shape
    (100,)
    """
    if consistency is not None:
        one_of(["joint", "tables"], consistency=consistency)
    if (pairs := pairs_of(release)) is not None:
        if consistency is not None:
            raise ArgumentError("consistency= is about tables of a network, and a wide table has none. Leave it out.")
        return fit_of_pairs(pairs, random_seed, progressbar=progressbar)
    if random_seed is not None:
        raise ArgumentError("random_seed= is that of a wide table's descent, and nothing is drawn here. Leave it out.")
    network = network_of(release)
    consistency = consistency or ("joint" if network.of_marginals else "tables")
    if consistency == "joint":
        network.refuse_parts()
    families, stored, how = network.families, open_release(release), consistency
    with computable(), Bar((MAX_ROUNDS + 1) * len(families) + 2, "tables", shown=progressbar) as bar:
        fitted, shares, done = stored.once(
            ("fit", how), lambda: _fitted(families, network.measurements, network.n_records, how, bar)
        )
    groups = {}
    if any(own.axes != given.axes for own, given in zip(fitted, families, strict=True)):
        groups["/network"] = _network(fitted, shares, network.drawn)
        shares = shares_given_parents(fitted, shares, families)
    tree = tree_of({"/posterior": _posterior(shares, network.drawn), **groups})
    tree.attrs = {
        "inference_library": "pymc_dirdp",
        "inference_library_version": library_version(),
        "estimate": "the shares are fitted to noisy counts, and are no draw",
        "consistency": done,
        "n_records": round(number_of_records(network.measurements)) if network.n_records is None else network.n_records,
        "beta_tables": json.dumps([name for name, one in network.drawn.items() if one.family == "beta"]),
    }
    tree.attrs |= {"guarantee": str(stored.plan.guarantee), "adjacency": stored.plan.adjacency}
    if stored.reproducible:
        tree.attrs["reproducible"] = "not private"
    return tree


def _fitted(
    families: Sequence[Family], measurements: tuple[Measurement, ...], n_records: int | None, consistency: str, bar: Bar
) -> tuple[Sequence[Family], dict[str, Array], str]:
    """The families that were fitted, their shares, and how they were found."""
    done = "tables"
    if consistency == "joint":
        known = number_of_records(measurements) if n_records is None else n_records
        joined = with_co_parents(families, measurements, known)
        try:
            return joined, fit_jointly(joined, measurements, n_records, bar), "joint"
        except EliminationError as error:
            done = f"tables, because the whole network is too large: {error}"
    return families, fit_tables(families, measurements, n_records, bar), done


def _posterior(shares: dict[str, Array], drawn: dict[str, ReleasedTable]) -> xr.Dataset:
    variables = {}
    for name, one in drawn.items():
        # A Beta variable is the probability of success, the first of its two categories.
        values = shares[name][..., 0] if one.family == "beta" else shares[name]
        labels: tuple[tuple[str, Any], ...] = (("chain", [0]), ("draw", [0]), *one.share_labels)
        coords = {dim: found for dim, found in labels if found is not None}
        # A copy: the fit is computed once for a release, and an estimate may be changed.
        values = np.broadcast_to(values, one.draws.shape[1:])[None, None].copy()
        variables[name] = xr.DataArray(values, coords, [dim for dim, _ in labels])
    return xr.Dataset(variables)


def _network(families: Sequence[Family], shares: dict[str, Array], drawn: dict[str, ReleasedTable]) -> xr.Dataset:
    """The tables that were fitted, one draw, where some have further parents."""
    known = {dim: labels for one in drawn.values() for dim, labels in one.share_labels if labels is not None}
    variables = {}
    for family in families:
        is_beta = drawn[family.name].family == "beta"
        values = shares[family.name][..., 0] if is_beta else shares[family.name]
        dims = family.parents if is_beta else family.axes
        coords = {"chain": [0], "draw": [0]} | {dim: known[dim] for dim in dims if dim in known}
        variables[family.name] = xr.DataArray(values[None, None].copy(), coords, ("chain", "draw", *dims))
    return xr.Dataset(variables)


@final
@dataclass(frozen=True, eq=False)
class Network:
    """The tables of a release whose records are the same, and the noisy counts that it published of them.

    Attributes
    ----------
    families : tuple of Family
        One for each table. A variable with one category has no parents here.
    measurements : tuple of Measurement
    n_records : int or None
        None if it is private.
    drawn : dict of str to ReleasedTable
        The tables as the release holds them, by name.
    of_marginals : bool
        Whether marginals of the tables were measured, and not the tables alone.
    """

    families: tuple[Family, ...]
    measurements: tuple[Measurement, ...]
    n_records: int | None
    drawn: dict[str, ReleasedTable]
    of_marginals: bool

    def refuse_parts(self) -> None:
        """An error if some parent has no table, or the tables depend on each other in a circle."""
        own = {family.variable for family in self.families}
        apart = "Take consistency='tables', which takes each table by itself."
        if orphans := {parent for family in self.families for parent in family.parents} - own:
            raise ArgumentError(
                f"The release has no table of {min(orphans)!r}, which is a parent in it, so it is no whole network. "
                f"{apart}"
            )
        try:
            TopologicalSorter({family.variable: family.parents for family in self.families}).prepare()
        except CycleError:
            raise ArgumentError(
                f"The tables depend on each other in a circle, so they are no network. {apart}"
            ) from None


def network_of(release: Published) -> Network:
    """The tables of a release by noise on counts, as those of one network, or of parts of one.

    Raises
    ------
    ReleaseError
        If it is no release, is damaged, or contradicts itself.
    ArgumentError
        If a table was not released by noise on counts, or tables are not those of the same records.
    """
    found, measurements, n_records = measurements_of(release)
    stored = open_release(release)
    _refuse_other_records(stored)
    drawn = stored.tables
    # A variable with one category has no noisy counts, and may be a parent.
    others = sorted(drawn.keys() - {family.name for family in found})
    families = (*found, *(Family(name, (_variable(drawn[name]),), (1,)) for name in others))
    _refuse_others(families)
    return Network(families, measurements, n_records, drawn, stored.is_estimate)


def _variable(drawn: ReleasedTable) -> str:
    """The variable of a table, by the name that its axis has in the table of counts."""
    return drawn.cell_labels[-1][0]


def _refuse_other_records(stored: LoadedRelease) -> None:
    if stored.plan.privacy_unit.n_records_is_public and len({part.n_records for part in stored.plan.parts}) > 1:
        raise ArgumentError(
            "The tables hold different numbers of records, so nothing is fitted to them together. Release tables of "
            "other records as models of their own."
        )


def _refuse_others(families: Sequence[Family]) -> None:
    """Refuse tables that are not tables of the same records."""
    own: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for family in families:
        if (other := own.setdefault(family.variable, family.name)) != family.name:
            raise ArgumentError(
                f"{other!r} and {family.name!r} both hold shares of {family.variable!r}, so they are no tables of a "
                "network, and nothing is fitted to them together. Release them as models of their own."
            )
        for axis, size in zip(family.axes, family.shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise ArgumentError(
                    f"The axis {axis!r} has different lengths in different tables, so they are no tables of a network."
                )


def measurements_of(release: Published) -> tuple[tuple[Family, ...], tuple[Measurement, ...], int | None]:
    """What a release says of its tables.

    The families of variables, noisy counts of marginals, and the number of records.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample`, of tables that are released by noise on counts.

    Returns
    -------
    families : tuple of Family
        One for each table with two categories or more, by the name of the table.
    measurements : tuple of Measurement
    n_records : int or None
        None if it is private.

    Raises
    ------
    ReleaseError
        If it is no release, is damaged, or contradicts itself.
    ArgumentError
        If a table was not released by noise on counts.
    """
    stored = open_verified(release)
    families, measurements = [], []
    for name, table in stored.tables.items():
        if table.prior.shape[-1] == 1:
            continue
        dims = tuple(dim for dim, _ in table.cell_labels)
        family, own = measurements_of_table(name, dims, table.mechanism, table.output)
        families.append(family)
        measurements += own
    sizes = {part.n_records for part in stored.plan.parts} if stored.plan.privacy_unit.n_records_is_public else set()
    return tuple(families), tuple(measurements), sizes.pop() if len(sizes) == 1 else None


Integers = NDArray[np.int64]

_NO_COUNTS: Integers = np.empty(0, dtype=np.int64)


@final
@dataclass(frozen=True, eq=False)
class DrawnTable:
    """Draws of one table.

    Attributes
    ----------
    labels : tuple of (str, list)
        The name of each axis of the table, and the labels along it if it has any; the last axis is that of the
        variable whose shares they are, and the others are its parents.
    shares : array, shape (draws, ...)
        The last axis adds up to 1.
    counts : array of int, shape (draws, ...)
        The counts that the shares were drawn with; empty for the draws of a release itself, which keeps none.
    is_beta : bool
        Whether the variable is the outcome of a Beta table.
    """

    labels: ListedLabels
    shares: Array
    counts: Integers
    is_beta: bool = False

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the axes."""
        return tuple(dim for dim, _ in self.labels)


def _is_release(tree: Any) -> bool:
    refuse_confidential(tree)
    return isinstance(tree, str | PathLike) or TEXT_GROUP in getattr(tree, "children", {})


def is_analysis(tree: Any) -> bool:
    """Whether a tree is what `dirdp.analyse` returns, and not a release."""
    return not _is_release(tree) and "latent_counts" in getattr(tree, "children", {})


def is_estimate(tree: Any) -> bool:
    """Whether a tree holds one estimate of the shares, and no draws: of `dirdp.fit`, or a release of marginals."""
    return open_release(tree).is_estimate if _is_release(tree) else "estimate" in getattr(tree, "attrs", ())


def records_of_estimate(tree: Published) -> int:
    """The number of records that an estimate tells, or an error if it tells none."""
    if not _is_release(tree):
        return integer(0, n_records=getattr(tree, "attrs", {}).get("n_records"))
    plan = open_release(tree).plan
    sizes = {part.n_records for part in plan.parts} if plan.privacy_unit.n_records_is_public else set()
    if len(sizes) != 1:
        raise ArgumentError("The number of records is private. Pass n_records=, or take dirdp.fit(release).")
    return sizes.pop() or 0


def of_release(release: Published) -> dict[str, DrawnTable]:
    """The draws that a release holds itself, or the estimate of `dirdp.fit`."""
    if not _is_release(release) and is_estimate(release):
        return _of_estimate(release)
    return {
        name: _table(table.share_labels, table.draws, name, is_beta=table.family == "beta")
        for name, table in open_release(release).tables.items()
    }


def _table(
    labels: ListedLabels, values: Array, name: str, *, is_beta: bool, counts: Integers = _NO_COUNTS
) -> DrawnTable:
    """A table of draws, shape `(draws, ...)`; of a Beta those of success, to which those of failure are put."""
    if is_beta:
        labels = (*labels, (f"{name}_outcome", ["success", "failure"]))
        values = np.stack([values, np.maximum(1 - values, 0.0)], axis=-1)
    # What stands for a share that was drawn as 0: its logarithm is finite.
    return DrawnTable(labels, np.maximum(values, np.finfo(np.float64).tiny), counts, is_beta=is_beta)


def analysed(release: Published, draws: int, random_seed: Seed) -> xr.DataTree:
    """An analysis of a release, or an error that says who can make one."""
    try:
        return analyse(release, draws, chains=1, random_seed=random_seed, progressbar=False)
    except ReleaseError:
        raise
    except ArgumentError as error:
        raise ArgumentError(
            f"{error} These are arguments of dirdp.analyse: pass what it returns instead of the release."
        ) from error


def given_release(tree: Published, draws: int | None, random_seed: Seed) -> dict[str, DrawnTable]:
    """Draws given a release: those of an analysis, or of one that is made here.

    An estimate counts as one draw.

    Parameters
    ----------
    tree : xarray.DataTree
        A release, an analysis of one, or an estimate.
    draws : int or None
        How many; an analysis has its own. By default 4000, or fewer where those would fill much memory; and the fit of
        a release of marginals.
    random_seed : int, SeedSequence, Generator or None
    """
    if is_estimate(tree) and not _is_release(tree):
        if draws is not None:
            raise ArgumentError("An estimate has no draws. Leave draws out, or pass the release that was fitted.")
        return _of_estimate(tree)
    if draws is None and is_estimate(tree):
        return _fitted_jointly(tree)
    if is_analysis(tree):
        if draws is not None:
            raise ArgumentError("An analysis has its own draws. Leave draws out, or pass the release itself.")
        return _of_analysis(tree)
    if draws is None:
        cells = sum(math.prod(table.draws.shape[1:]) for table in open_release(tree).tables.values())
        # Draws of an analysis that is made here, and how many shares they may hold together.
        draws = min(4000, max(100, 10**7 // cells))
    return _of_analysis(analysed(tree, integer(1, draws=draws), random_seed))


def _fitted_jointly(release: Published) -> dict[str, DrawnTable]:
    """The tables that fit all marginals of a release at once, or those of the release if they are parts of a network.

    A release of marginals holds what is fitted table by table, which is quick; the joint fit predicts better.
    """
    with suppress(ArgumentError):
        return _of_estimate(fit(release, progressbar=False))
    return of_release(release)


def _shares(draws: xr.DataArray, *, is_beta: bool) -> Array:
    """Draws of shares with dims `chain` and `draw` first, as an array of shape `(draws, ...)`; others are refused."""
    values = np.asarray(draws.values, dtype=np.float64)
    single = draws.dtype == np.float32
    # How nearly shares add up to 1, for any number of categories that is in use.
    near = 1e-5 if single else 1e-9
    total = 1.0 if is_beta else values.sum(axis=-1, keepdims=True)
    if not (np.all((values >= 0) & (values <= 1 + near)) and np.all(np.abs(total - 1) < near)):
        raise ArgumentError(
            f"The draws of {draws.name!r} are no shares: each lies in [0, 1]"
            + ("." if is_beta else f", and over {draws.dims[-1]!r} they add up to 1.")
        )
    # Those in single precision add up to 1 as nearly as that can be.
    values = values / total if single else values
    return np.asarray(values.reshape(-1, *values.shape[2:]))


def _of_estimate(estimate: Any) -> dict[str, DrawnTable]:
    found: dict[str, DrawnTable] = {}
    tables = estimate["posterior"].to_dataset() if "posterior" in estimate else xr.Dataset()
    whole = estimate["network"].to_dataset() if "network" in estimate else tables
    try:
        betas = json.loads(estimate.attrs["beta_tables"])
        known = set(betas) <= set(tables) == set(whole) != set()
    except (LookupError, TypeError, ValueError):
        known = False
    if not known:
        raise ArgumentError("Expected a release, an analysis, or an estimate of dirdp.fit; this estimate is damaged.")
    for name, draws in whole.data_vars.items():
        is_beta = name in betas
        found[str(name)] = _table(labels_of(draws), _shares(draws, is_beta=is_beta), str(name), is_beta=is_beta)
    return found


def _of_analysis(analysis: Any) -> dict[str, DrawnTable]:
    posterior, latent = (analysis[name].to_dataset() for name in ("posterior", "latent_counts"))
    return {str(name): _drawn_with_counts(posterior, drawn) for name, drawn in latent.data_vars.items()}


def _drawn_with_counts(posterior: xr.Dataset, drawn: xr.DataArray) -> DrawnTable:
    name = str(drawn.name)
    if name not in posterior or not {"chain", "draw"} < set(drawn.dims):
        raise ArgumentError(f"The analysis has no draws of the shares and the counts of {name!r} together.")
    counts = drawn.transpose("chain", "draw", ...)
    shares = posterior[name].transpose("chain", "draw", ...)
    is_beta = shares.ndim < counts.ndim
    labels = labels_of(shares)
    if counts.shape != (*shares.shape, 2) if is_beta else counts.shape != shares.shape:
        raise ArgumentError(f"The analysis has counts of {name!r} in another shape than its shares.")
    if counts.dtype.kind != "i" or np.any(counts.values < 0):
        raise ArgumentError(f"The analysis holds something else than counts of {name!r}.")
    found = counts.values.reshape(-1, *counts.shape[2:])
    return _table(labels, _shares(shares, is_beta=is_beta), name, is_beta=is_beta, counts=found)
