"""The log-linear hierarchical model of a network as a PyMC model, given the noisy counts of a release."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_dirdp.arrays import Integers
from pymc_dirdp.checks import integer
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.effects import Effects
from pymc_dirdp.inference.flat_tables import FlatTables, JointCells
from pymc_dirdp.inference.margins import Family, Measurement, number_of_records
from pymc_dirdp.inference.network_margins import EliminationError, NetworkMargins
from pymc_dirdp.releases.noisy_marginals import Network
from pymc_dirdp.releases.opened import ReleasedTable

__all__ = ["MOST_CELLS", "MOST_WORK", "hierarchical_model"]

MOST_CELLS = 10_000
"""The tables of a model hold no more cells than that together: each is two or three parameters for the sampler."""
MOST_WORK = 200_000
"""Marginals of a whole network need products of no more cells than that together, at each step of the sampler."""

Consistency = Literal["joint", "tables"]
# So many standard deviations around what the noisy totals say lies a private number of records.
_FAR = 10.0
# Noise of no more variance is nearly always 0, and the normal distribution stands for counts that are known.
_LEAST = 1e-2
# The logit of what is no cell: its share is 0, and no slope comes from it.
_NEVER = -1e4


def hierarchical_model(network: Network, consistency: Consistency | None, n_prior: int | None) -> pm.Model:
    """The model of some tables and all measurements of their variables.

    Parameters
    ----------
    network : Network
    consistency : {"joint", "tables"} or None
        None is `"joint"` where the model is small enough for it.
    n_prior : int or None
        The largest number of records, if it is private.

    Raises
    ------
    ArgumentError
        If the tables have too many cells, or the marginals of the whole network need too many.
    """
    families = [family.sorted for family in network.families]
    cells = sum(int(np.prod(family.shape)) for family in families)
    if cells > MOST_CELLS:
        raise ArgumentError(
            f"The tables have {cells} cells together, and a posterior is drawn for {MOST_CELLS} at most. Name some of "
            "them as tables=, or take the estimate of dirdp.fit(release)."
        )
    margins = _marginals(network, consistency)
    with pm.Model() as model:
        for name, drawn in network.drawn.items():
            for dim, labels in drawn.share_labels:
                size = drawn.draws.shape[1 + drawn.dims.index(dim)]
                model.add_coord(dim, range(size) if labels is None else labels)
            if _is_constant(drawn):
                pm.Deterministic(name, pt.ones(drawn.draws.shape[1:]), dims=drawn.dims)
        varying = [family for family in families if not _is_constant(network.drawn[family.name])]
        if varying:
            own = _Names(model, network)
            n_records = _number(network, n_prior, own)
            if margins is None:
                _apart(varying, network, n_records, own)
            else:
                _together(families, varying, network, margins, n_records, own)
    return model


class _Names:
    """Names of variables and dims of the model that no table and no dim of the release has."""

    def __init__(self, model: pm.Model, network: Network) -> None:
        self._taken = {*model.coords, *network.drawn}

    def of(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        return name


def _is_constant(drawn: ReleasedTable) -> bool:
    """Whether the variable has one category, which every record is in."""
    return drawn.family != "beta" and drawn.draws.shape[-1] == 1


def _marginals(network: Network, consistency: Consistency | None) -> NetworkMargins | None:
    """How the marginals of the network are computed; None if each table is taken by itself."""
    if consistency == "tables":
        return None
    families = [family.sorted for family in network.families]
    try:
        network.refuse_parts()
        # How many records the rows of a table hold says how far their shares are from those of all people.
        rows = [family.parents for family in families if family.parents]
        found = NetworkMargins(families, [*(one.axes for one in network.measurements), *rows])
        if found.work <= MOST_WORK:
            return found
        problem = (
            f"The marginals of the whole network need products of {found.work} cells, and a sampler waits for them."
        )
    except EliminationError as error:
        problem = str(error)
    except ArgumentError:
        if consistency is None:
            return None
        raise
    if consistency is None:
        return None
    raise ArgumentError(
        f"{problem} Take consistency='tables' in analyst_model, or dirdp.fit(release), which computes them for "
        "estimates."
    )


def _number(network: Network, n_prior: int | None, own: _Names) -> Any:
    """The number of records: known, or all numbers that the noisy totals leave possible as likely as one another."""
    if network.n_records is not None:
        return float(network.n_records)
    name = own.of("n_records")
    if n_prior is not None:
        return pm.Uniform(name, 0.0, float(integer(1, n_prior=n_prior)))
    totals = network.measurements
    found = number_of_records(totals)
    far = _FAR * sum(1 / (one.variance * one.noisy.size) for one in totals) ** -0.5
    return pm.Uniform(name, max(0.0, found - far), found + far, initval=found)


def _apart(families: Sequence[Family], network: Network, n_records: Any, own: _Names) -> None:
    """Each table by itself: shares of all combinations of its values, and counts of the records in them."""
    tables = FlatTables(families, whole=True)
    logs = _log_shares(tables, own)
    p = pt.exp(logs)
    for family, start in zip(families, tables.starts, strict=False):
        table = _table(p, family, start)
        _publish(family, network, table / table.sum(axis=-1, keepdims=True))
    counts = n_records * p + pt.sqrt(n_records) * _off(tables, logs, own)
    measured = [
        (number, one, measurement, family.name)
        for number, family in enumerate(families)
        for measurement in network.measurements
        if (one := measurement.onto(family.axes)) is not None
    ]
    cells, to = tables.margins([(number, one.axes) for number, one, *_ in measured])
    # Sums of several marginals may be those of the same cells.
    labelled = [
        (one, f"{name}: ", f" of {', '.join(whole.axes)}" if len(whole.axes) > len(one.axes) else "")
        for _, one, whole, name in measured
    ]
    _observe(_added(counts[cells], to), labelled, network, own)


def _together(
    families: Sequence[Family],
    varying: Sequence[Family],
    network: Network,
    margins: NetworkMargins,
    n_records: Any,
    own: _Names,
) -> None:
    """All tables together: shares given the parents, and those among the records, whose marginals are measured."""
    tables = FlatTables(varying, whole=False)
    logs = _log_shares(tables, own)
    p = pt.exp(logs)
    for family, start in zip(varying, tables.starts, strict=False):
        _publish(family, network, _table(p, family, start))
    wanted = [one.axes for one in network.measurements]
    rows, found = _sums_of_network(families, tables, margins, wanted)
    # The normal distribution is none of a row that is expected to hold less than a record, and its shares matter
    # little.
    in_rows = pt.sqrt(pt.maximum(n_records * rows(p), 1.0))
    of_records = p + _off(tables, logs, own) / in_rows[tables.sum_of]
    _observe(n_records * found(of_records), [(one, "", "") for one in network.measurements], network, own)


def _sums_of_network(
    families: Sequence[Family], tables: FlatTables, margins: NetworkMargins, wanted: Sequence[tuple[str, ...]]
) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """The shares of the records in each row of the tables, and in each cell of the marginals, given all shares."""
    sizes = {family.variable: family.shape[-1] for family in families}
    if JointCells.fits(sizes, len(tables.families), len(wanted)):
        joint = JointCells(tables, sizes)

        def to_sums(to: Integers) -> Callable[[Any], Any]:
            def summed(shares: Any) -> Any:
                # The probability of each combination of values, once for each sum that it is a part of.
                together = pt.prod(shares[joint.factors], axis=0, no_zeros_in_input=True)
                return _added(pt.tile(together, len(to)), to.ravel())

            return summed

        return to_sums(tables.sum_of[joint.factors]), to_sums(joint.margins(wanted))

    def run(shares: Any) -> list[Any]:
        flat = zip(tables.families, tables.starts, strict=False)
        of = {family.name: _table(shares, family, start) for family, start in flat}
        given = [of.get(family.name, pt.ones(family.shape)) for family in families]
        return margins.values(margins.run(given, _product))

    def rows(shares: Any) -> Any:
        with_parents = [family.name for family in families if family.parents]
        made = dict(zip(with_parents, run(shares)[len(wanted) :], strict=True))
        return pt.concatenate([made.get(family.name, pt.ones(1)).ravel() for family in tables.families])

    def found(shares: Any) -> Any:
        return pt.concatenate([margin.ravel() for margin in run(shares)[: len(wanted)]])

    return rows, found


def _log_shares(tables: FlatTables, own: _Names) -> Any:
    """The logarithms of the shares: the effects, which are normal with a scale for each group of them, added up."""
    effects = [
        f"{family.name}{list(map(int, np.unravel_index(place, family.shape)))}"
        for family, kept in zip(tables.families, tables.kept, strict=True)
        for place in kept
    ]
    # With a shape beside its dim a variable has a size that rewrites of the graph may use.
    scales = pm.HalfNormal(
        own.of("scales"), tables.spreads, shape=len(tables.spreads), dims=_dim("scale", tables.scale_names, own)
    )
    unit = pm.Normal(own.of("effects"), shape=len(effects), dims=_dim("effect", effects, own))
    logits = _logits(tables, scales[tables.scale_of] * unit)
    padded = pt.concatenate([logits, np.array([_NEVER])])[tables.sums]
    shifted = padded - padded.max(axis=1, keepdims=True)
    logs = shifted - pt.log(pt.exp(shifted).sum(axis=1, keepdims=True))
    return logs.ravel()[tables.places]


def _logits(tables: FlatTables, values: Any) -> Any:
    """The logit of each cell of all tables."""
    if (matrix := tables.matrix) is not None:
        return pt.dot(matrix, values)
    found, start = [], 0
    for family, kept in zip(tables.families, tables.kept, strict=True):
        # Effects that change no share are 0.
        table = pt.set_subtensor(pt.zeros(int(np.prod(family.shape)))[kept], values[start : start + len(kept)])
        table, start = table.reshape(family.shape), start + len(kept)
        for axis, size in enumerate(family.shape):
            # Row k holds the values of the k-th function of the axis.
            functions = Effects((size,)).logits(np.eye(size))
            table = pt.moveaxis(pt.tensordot(table, functions, axes=[[axis], [0]]), -1, axis)
        found.append(table.ravel())
    return pt.concatenate(found)


def _off(tables: FlatTables, logs: Any, own: _Names) -> Any:
    """Normal noise with the covariance of one record in the cells whose shares add up to 1."""
    cells = [
        f"{family.name}{list(map(int, index))}" for family in tables.families for index in np.ndindex(family.shape)
    ]
    # The root of a share that is nearly 0 has a slope all the same.
    noise = pt.exp(logs / 2) * pm.Normal(own.of("sampling"), shape=len(cells), dims=_dim("cell", cells, own))
    total = pt.concatenate([noise, np.zeros(1)])[tables.sums].sum(axis=1)
    return noise - pt.exp(logs) * total[tables.sum_of]


def _dim(name: str, labels: Sequence[str], own: _Names) -> str:
    dim = own.of(name)
    pm.modelcontext(None).add_coord(dim, labels)
    return dim


def _observe(expected: Any, measured: Sequence[tuple[Measurement, str, str]], network: Network, own: _Names) -> None:
    """Noisy counts end to end, each with the distribution of its noise, and with a label between two texts."""
    ends = np.cumsum([0, *(one.noisy.size for one, *_ in measured)])
    labels = _labels(network)
    for kind, distribution in (("noisy", pm.Normal), ("noisy_laplace", pm.Laplace)):
        chosen = [i for i, (one, *_) in enumerate(measured) if (one.laplace_scale is None) == (kind == "noisy")]
        if not chosen:
            continue
        scales, called = [], []
        for one, before, after in (measured[i] for i in chosen):
            scale = max(one.variance, _LEAST) ** 0.5 if one.laplace_scale is None else one.laplace_scale
            scales += [scale] * one.noisy.size
            for cell in itertools.product(*(labels[axis] for axis in one.axes)):
                values = ", ".join(f"{axis}={value}" for axis, value in zip(one.axes, cell, strict=True))
                called.append(f"{before}{values}{after}")
        name = own.of(kind)
        cells = np.concatenate([np.arange(ends[i], ends[i + 1]) for i in chosen])
        seen = pm.Data(f"{name}_published", np.concatenate([measured[i][0].noisy.ravel() for i in chosen]))
        distribution(name, expected[cells], scales, observed=seen, dims=_dim(f"{name}_cell", called, own))


def _labels(network: Network) -> dict[str, list[Any]]:
    """The labels of the values of each variable."""
    found: dict[str, list[Any]] = {}
    for family in network.families:
        given = [labels for _, labels in network.drawn[family.name].share_labels]
        given += [["success", "failure"]] * (len(family.axes) - len(given))
        for axis, size, own in zip(family.axes, family.shape, given, strict=False):
            found.setdefault(axis, list(range(size)) if own is None else list(own))
    return found


def _added(values: Any, to: Integers) -> Any:
    """Sums of values, by the number of the sum that each is a part of."""
    return pt.inc_subtensor(pt.zeros(int(to.max()) + 1)[to], values)


def _table(flat: Any, family: Family, start: int) -> Any:
    """The cells of one table, in its own shape."""
    return flat[int(start) : int(start) + int(np.prod(family.shape))].reshape(family.shape)


def _publish(family: Family, network: Network, p: Any) -> None:
    """The shares with the name, the dims and the order of the axes that they have in the release."""
    given = next(one for one in network.families if one.name == family.name)
    drawn: ReleasedTable = network.drawn[family.name]
    turned = p.dimshuffle([family.axes.index(axis) for axis in given.axes])
    # A Beta variable is the probability of success, the first of its two categories.
    pm.Deterministic(family.name, turned[..., 0] if drawn.family == "beta" else turned, dims=drawn.dims or None)


def _product(axes: Sequence[str], *factors: tuple[Any, Sequence[str]]) -> Any:
    """The product of tables in a graph, summed over all axes but some."""
    together = [*axes, *dict.fromkeys(axis for _, own in factors for axis in own if axis not in axes)]
    product: Any = 1.0
    for factor, own in factors:
        turned = factor.dimshuffle([own.index(axis) if axis in own else "x" for axis in together])
        product = product * turned
    over = list(range(len(axes), len(together)))
    return product.sum(axis=over) if over else product
