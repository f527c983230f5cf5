"""The tables of a network, fitted to the published noisy counts of a release, which is post-processing.

The noisy counts are measurements of marginals of the tables. `DrawnTable` has draws of one table, from a release or
given a release.
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

from pymc_dirdp.arrays import Array, Integers
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
    """The tables of a network, or the mixture of a wide table, estimated jointly from all noisy counts of a release.

    A draw given a release, or a table computed from its noisy counts, uses each table by itself and treats cells as
    unrelated. This estimate uses that most effects in a table are small, and that all marginals are of the same
    records. Its loss is far smaller if there are many cells for the number of records. It is a point estimate, not a
    posterior, and has no standard errors. Use :func:`pymc_dirdp.estimate` for those.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample`, with `mechanism="marginals"` or another mechanism that publishes noisy counts,
        such as `"geometric"` or `"gaussian"`. Its tables are assumed to have the same records.
    consistency : {"joint", "tables"}, optional
        `"joint"` compares each measured marginal with the marginal of the whole network. `"tables"` fits each table by
        itself to the marginals of its variables; it is faster, and its tables agree only approximately. By default
        `"joint"` for a release of marginals and `"tables"` for noisy tables, because without small marginals the wide
        noise in tables of children distorts those of their parents. `"tables"` also replaces `"joint"` if the marginals
        of the whole network need a table of more than 10**7 cells. The attribute `consistency` has the method used.
    random_seed : int, optional
        The public seed of the starting point of the descent for a wide table; 0 by default.
    progressbar : bool, default True
        Whether to show a bar of fitted tables, or of steps of the descent, if the fit takes more than a second.

    Returns
    -------
    estimate : xarray.DataTree
        For a wide table, the release with its mixture in the group `posterior`: the shares `p_v` of each component, all
        with the same weight. It can replace the release everywhere.

        For a network, the group `posterior` has the shares as one draw, with the names, dims and labels of the release.
        It can replace the release in :func:`pymc_dirdp.predict_log_proba`, :func:`pymc_dirdp.log_likelihood` and
        :func:`pymc_dirdp.synthetic`. The attribute `n_records` is the number of records, or its estimate if it is
        private. If parents of one variable depend on each other beyond the structure, the group `network` has tables
        with this dependence, which predictions, likelihoods and synthetic records use.

    Raises
    ------
    ReleaseError
        If it is not a release, is damaged, or contradicts itself.
    ArgumentError
        If a table was released without noisy counts, or the tables are not a network.

    Notes
    -----
    The logits of a variable are sums of effects, one for each subset of its parents. Effects are shrunk to 0 with a
    strength estimated from the noisy counts (empirical Bayes), so effects below the noise vanish. The likelihood of a
    noisy count is normal, with the sum of the variances of the noise and of the sample. The estimate is the mode, found
    by Newton's method until the norm of the gradient is 0.001. If the noise of a cell is more than a fifth of all
    records, the estimate is the mean of the shares over the normal approximation at the mode.

    A network assumes that parents of one variable are independent given their own parents, which records may
    contradict. If two of them were measured together, and noise does not dominate, the joint fit makes the later one
    depend on the earlier one. The tables of the original structure are marginals of this network.

    References
    ----------
    Theory, section 16, for draws given a release. McKenna, Sheldon and Miklau (2019), Graphical-model based estimation
    and inference for differential privacy, for estimates from noisy marginals without shrinkage.

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
            raise ArgumentError("consistency= is for the tables of a network, and a wide table has none. Leave it out.")
        return fit_of_pairs(pairs, random_seed, progressbar=progressbar)
    if random_seed is not None:
        raise ArgumentError("random_seed= is for the fit of a wide table; this fit is deterministic. Leave it out.")
    network = network_of(release)
    consistency = consistency or ("joint" if network.has_marginals else "tables")
    if consistency == "joint":
        network.refuse_parts()
    families, stored, method = network.families, open_release(release), consistency
    with computable(), Bar((MAX_ROUNDS + 1) * len(families) + 2, "tables", shown=progressbar) as bar:
        fit_families, shares, method_used = stored.once(
            ("fit", method), lambda: _fit_network(families, network.measurements, network.n_records, method, bar)
        )
    groups = {}
    if any(new.axes != old.axes for new, old in zip(fit_families, families, strict=True)):
        groups["/network"] = _network_group(fit_families, shares, network.tables)
        shares = shares_given_parents(fit_families, shares, families)
    tree = tree_of({"/posterior": _posterior_group(shares, network.tables), **groups})
    tree.attrs = {
        "inference_library": "pymc_dirdp",
        "inference_library_version": library_version(),
        "estimate": "the shares are fitted to noisy counts, and are not a draw",
        "consistency": method_used,
        "n_records": round(number_of_records(network.measurements)) if network.n_records is None else network.n_records,
        "beta_tables": json.dumps([name for name, table in network.tables.items() if table.family == "beta"]),
    }
    tree.attrs |= {"guarantee": str(stored.plan.guarantee), "adjacency": stored.plan.adjacency}
    if stored.reproducible:
        tree.attrs["reproducible"] = "not private"
    return tree


def _fit_network(
    families: Sequence[Family], measurements: tuple[Measurement, ...], n_records: int | None, consistency: str, bar: Bar
) -> tuple[Sequence[Family], dict[str, Array], str]:
    """The families of the fit, their shares, and the method that was used."""
    method = "tables"
    if consistency == "joint":
        n = number_of_records(measurements) if n_records is None else n_records
        joint_families = with_co_parents(families, measurements, n)
        try:
            return joint_families, fit_jointly(joint_families, measurements, n_records, bar), "joint"
        except EliminationError as error:
            method = f"tables, because the whole network is too large: {error}"
    return families, fit_tables(families, measurements, n_records, bar), method


def _posterior_group(shares: dict[str, Array], tables: dict[str, ReleasedTable]) -> xr.Dataset:
    variables = {}
    for name, table in tables.items():
        # A Beta variable is the probability of success, the first of its two categories.
        values = shares[name][..., 0] if table.family == "beta" else shares[name]
        labels: tuple[tuple[str, Any], ...] = (("chain", [0]), ("draw", [0]), *table.share_labels)
        coords = {dim: names for dim, names in labels if names is not None}
        # A copy, because the fit is cached and users may change an estimate.
        values = np.broadcast_to(values, table.draws.shape[1:])[None, None].copy()
        variables[name] = xr.DataArray(values, coords, [dim for dim, _ in labels])
    return xr.Dataset(variables)


def _network_group(
    families: Sequence[Family], shares: dict[str, Array], tables: dict[str, ReleasedTable]
) -> xr.Dataset:
    """The fitted tables with additional parents, as one draw."""
    labels = {dim: names for table in tables.values() for dim, names in table.share_labels if names is not None}
    variables = {}
    for family in families:
        is_beta = tables[family.name].family == "beta"
        values = shares[family.name][..., 0] if is_beta else shares[family.name]
        dims = family.parents if is_beta else family.axes
        coords = {"chain": [0], "draw": [0]} | {dim: labels[dim] for dim in dims if dim in labels}
        variables[family.name] = xr.DataArray(values[None, None].copy(), coords, ("chain", "draw", *dims))
    return xr.Dataset(variables)


@final
@dataclass(frozen=True, eq=False)
class Network:
    """The tables of a release, all of the same records, and their published noisy counts.

    Attributes
    ----------
    families : tuple of Family
        The family of each table. A variable with one category has no parents here.
    measurements : tuple of Measurement
    n_records : int or None
        None if it is private.
    tables : dict of str to ReleasedTable
        The tables of the release, by name.
    has_marginals : bool
        Whether marginals of the tables were measured in addition to the tables.
    """

    families: tuple[Family, ...]
    measurements: tuple[Measurement, ...]
    n_records: int | None
    tables: dict[str, ReleasedTable]
    has_marginals: bool

    def refuse_parts(self) -> None:
        """Raise an error if a parent has no table, or the tables depend on each other in a cycle."""
        variables = {family.variable for family in self.families}
        advice = "Pass consistency='tables', which fits each table by itself."
        if orphans := {parent for family in self.families for parent in family.parents} - variables:
            raise ArgumentError(
                f"The release has no table of {min(orphans)!r}, a parent in another table, so it is not a whole "
                f"network. {advice}"
            )
        try:
            TopologicalSorter({family.variable: family.parents for family in self.families}).prepare()
        except CycleError:
            raise ArgumentError(
                f"The tables depend on each other in a cycle, so they are not a network. {advice}"
            ) from None


def network_of(release: Published) -> Network:
    """The tables of a release of noisy counts, as one network or parts of one.

    Raises
    ------
    ReleaseError
        If it is not a release, is damaged, or contradicts itself.
    ArgumentError
        If a table was released without noisy counts, or the tables do not have the same records.
    """
    measured_families, measurements, n_records = measurements_of(release)
    stored = open_release(release)
    if stored.plan.privacy_unit.n_records_is_public and len({part.n_records for part in stored.plan.parts}) > 1:
        raise ArgumentError(
            "The tables have different numbers of records, so they cannot be fitted together. Release tables of "
            "different records as separate models."
        )
    tables = stored.tables
    # A variable with one category has no noisy counts, and may be a parent.
    constants = sorted(tables.keys() - {family.name for family in measured_families})
    # The last axis of a table of counts is that of its variable.
    constant_families = (Family(name, (tables[name].cell_labels[-1][0],), (1,)) for name in constants)
    families = (*measured_families, *constant_families)
    _refuse_several_networks(families)
    return Network(families, measurements, n_records, tables, stored.is_estimate)


def _refuse_several_networks(families: Sequence[Family]) -> None:
    """Refuse tables that cannot belong to one network."""
    table_of: dict[str, str] = {}
    sizes: dict[str, int] = {}
    for family in families:
        if (other := table_of.setdefault(family.variable, family.name)) != family.name:
            raise ArgumentError(
                f"{other!r} and {family.name!r} both have shares of {family.variable!r}, so they are not tables of one "
                "network and cannot be fitted together. Release them as separate models."
            )
        for axis, size in zip(family.axes, family.shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise ArgumentError(
                    f"The axis {axis!r} has different lengths in different tables, so they are not tables of one "
                    "network."
                )


def measurements_of(release: Published) -> tuple[tuple[Family, ...], tuple[Measurement, ...], int | None]:
    """The families of variables, the noisy counts of marginals, and the number of records of a release.

    Parameters
    ----------
    release : xarray.DataTree
        From :func:`pymc_dirdp.sample`, with noise on counts.

    Returns
    -------
    families : tuple of Family
        The family of each table with at least two categories, with the name of the table.
    measurements : tuple of Measurement
    n_records : int or None
        None if it is private.

    Raises
    ------
    ReleaseError
        If it is not a release, is damaged, or contradicts itself.
    ArgumentError
        If a table was released without noisy counts.
    """
    stored = open_verified(release)
    families, measurements = [], []
    for name, table in stored.tables.items():
        if table.prior.shape[-1] == 1:
            continue
        dims = tuple(dim for dim, _ in table.cell_labels)
        family, table_measurements = measurements_of_table(name, dims, table.mechanism, table.output)
        families.append(family)
        measurements += table_measurements
    sizes = {part.n_records for part in stored.plan.parts} if stored.plan.privacy_unit.n_records_is_public else set()
    return tuple(families), tuple(measurements), sizes.pop() if len(sizes) == 1 else None


_NO_COUNTS: Integers = np.empty(0, dtype=np.int64)


@final
@dataclass(frozen=True, eq=False)
class DrawnTable:
    """Draws of one table.

    Attributes
    ----------
    labels : tuple of (str, list)
        The name of each axis of the table, and its labels if there are any. The last axis is the variable, and the
        others are its parents.
    shares : array, shape (draws, ...)
        Shares add up to 1 over the last axis.
    counts : array of int, shape (draws, ...)
        The counts drawn with the shares; empty for draws stored in a release, which have none.
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
    """Whether a tree is an analysis from `dirdp.analyse`, and not a release."""
    return not _is_release(tree) and "latent_counts" in getattr(tree, "children", {})


def is_estimate(tree: Any) -> bool:
    """Whether a tree has one estimate of the shares instead of draws: from `dirdp.fit`, or a release of marginals."""
    return open_release(tree).is_estimate if _is_release(tree) else "estimate" in getattr(tree, "attrs", ())


def records_of_estimate(tree: Published) -> int:
    """The number of records of an estimate, or an error if it has none."""
    if not _is_release(tree):
        return integer(0, n_records=getattr(tree, "attrs", {}).get("n_records"))
    plan = open_release(tree).plan
    sizes = {part.n_records for part in plan.parts} if plan.privacy_unit.n_records_is_public else set()
    if len(sizes) != 1:
        raise ArgumentError("The number of records is private. Pass n_records=, or pass dirdp.fit(release).")
    return sizes.pop() or 0


def stored_draws(release: Published) -> dict[str, DrawnTable]:
    """The draws stored in a release, or the estimate of `dirdp.fit`."""
    if not _is_release(release) and is_estimate(release):
        return _tables_of_estimate(release)
    return {
        name: _table(table.share_labels, table.draws, name, is_beta=table.family == "beta")
        for name, table in open_release(release).tables.items()
    }


def _table(
    labels: ListedLabels, values: Array, name: str, *, is_beta: bool, counts: Integers = _NO_COUNTS
) -> DrawnTable:
    """A table of draws, shape `(draws, ...)`. For a Beta, `values` are those of success, and failure is added."""
    if is_beta:
        labels = (*labels, (f"{name}_outcome", ["success", "failure"]))
        values = np.stack([values, np.maximum(1 - values, 0.0)], axis=-1)
    # A share of 0 becomes the least positive double, so that its logarithm is finite.
    return DrawnTable(labels, np.maximum(values, np.finfo(np.float64).tiny), counts, is_beta=is_beta)


def _analysis(release: Published, draws: int, random_seed: Seed) -> xr.DataTree:
    """An analysis of a release, or an error that says how to make one."""
    try:
        return analyse(release, draws, chains=1, random_seed=random_seed, progressbar=False)
    except ReleaseError:
        raise
    except ArgumentError as error:
        raise ArgumentError(
            f"{error} These are arguments of dirdp.analyse. Pass its result instead of the release."
        ) from error


def draws_given_release(tree: Published, draws: int | None, random_seed: Seed) -> dict[str, DrawnTable]:
    """Draws given a release, from an analysis that is passed or made here. An estimate counts as one draw.

    Parameters
    ----------
    tree : xarray.DataTree
        A release, an analysis of one, or an estimate.
    draws : int or None
        The number of draws; None if `tree` is an analysis or an estimate. By default 4000, or fewer to save memory. A
        release of marginals is fitted by default.
    random_seed : int, SeedSequence, Generator or None
    """
    if is_estimate(tree) and not _is_release(tree):
        if draws is not None:
            raise ArgumentError("An estimate has no draws. Leave draws= out, or pass the release.")
        return _tables_of_estimate(tree)
    if draws is None and is_estimate(tree):
        return _default_estimate(tree)
    if is_analysis(tree):
        if draws is not None:
            raise ArgumentError("An analysis has its own draws. Leave draws= out, or pass the release.")
        return _tables_of_analysis(tree)
    if draws is None:
        cells = sum(math.prod(table.draws.shape[1:]) for table in open_release(tree).tables.values())
        # At most 4000 draws, or 10**7 shares in all.
        draws = min(4000, max(100, 10**7 // cells))
    return _tables_of_analysis(_analysis(tree, integer(1, draws=draws), random_seed))


def _default_estimate(release: Published) -> dict[str, DrawnTable]:
    """The joint fit of a release of marginals, which predicts better than its stored fit of each table by itself.

    The stored fit if the tables are not a whole network.
    """
    with suppress(ArgumentError):
        return _tables_of_estimate(fit(release, progressbar=False))
    return stored_draws(release)


def _shares(draws: xr.DataArray, *, is_beta: bool) -> Array:
    """Valid draws of shares, with dims `chain` and `draw` first, as an array of shape `(draws, ...)`."""
    values = np.asarray(draws.values, dtype=np.float64)
    single = draws.dtype == np.float32
    # The rounding error of sums of shares, for any realistic number of categories.
    tolerance = 1e-5 if single else 1e-9
    total = 1.0 if is_beta else values.sum(axis=-1, keepdims=True)
    if not (np.all((values >= 0) & (values <= 1 + tolerance)) and np.all(np.abs(total - 1) < tolerance)):
        raise ArgumentError(
            f"The draws of {draws.name!r} are not shares, which are in [0, 1]"
            + ("." if is_beta else f" and add up to 1 over {draws.dims[-1]!r}.")
        )
    # Shares in single precision are normalised in double precision.
    values = values / total if single else values
    return np.asarray(values.reshape(-1, *values.shape[2:]))


def _tables_of_estimate(estimate: Any) -> dict[str, DrawnTable]:
    posterior = estimate["posterior"].to_dataset() if "posterior" in estimate else xr.Dataset()
    network = estimate["network"].to_dataset() if "network" in estimate else posterior
    try:
        betas = json.loads(estimate.attrs["beta_tables"])
        is_complete = set(betas) <= set(posterior) == set(network) != set()
    except (LookupError, TypeError, ValueError):
        is_complete = False
    if not is_complete:
        raise ArgumentError("Expected a release, an analysis, or an estimate of dirdp.fit. This estimate is damaged.")
    tables: dict[str, DrawnTable] = {}
    for name, draws in network.data_vars.items():
        is_beta = name in betas
        tables[str(name)] = _table(labels_of(draws), _shares(draws, is_beta=is_beta), str(name), is_beta=is_beta)
    return tables


def _tables_of_analysis(analysis: Any) -> dict[str, DrawnTable]:
    posterior, latent = (analysis[name].to_dataset() for name in ("posterior", "latent_counts"))
    return {str(name): _table_with_counts(posterior, counts) for name, counts in latent.data_vars.items()}


def _table_with_counts(posterior: xr.Dataset, counts: xr.DataArray) -> DrawnTable:
    name = str(counts.name)
    if name not in posterior or not {"chain", "draw"} < set(counts.dims):
        raise ArgumentError(f"The analysis does not have draws of both the shares and the counts of {name!r}.")
    counts = counts.transpose("chain", "draw", ...)
    shares = posterior[name].transpose("chain", "draw", ...)
    is_beta = shares.ndim < counts.ndim
    labels = labels_of(shares)
    if counts.shape != (*shares.shape, 2) if is_beta else counts.shape != shares.shape:
        raise ArgumentError(f"The counts and the shares of {name!r} in the analysis have different shapes.")
    if counts.dtype.kind != "i" or np.any(counts.values < 0):
        raise ArgumentError(f"The counts of {name!r} in the analysis are not non-negative integers.")
    count_draws = counts.values.reshape(-1, *counts.shape[2:])
    return _table(labels, _shares(shares, is_beta=is_beta), name, is_beta=is_beta, counts=count_draws)
