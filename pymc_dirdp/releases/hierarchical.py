"""The log-linear hierarchical model of a network as a PyMC model, given the noisy counts of a release."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_dirdp.checks import integer
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.effects import Effects
from pymc_dirdp.inference.margins import Family, Measurement, number_of_records
from pymc_dirdp.inference.network_margins import EliminationError, NetworkMargins
from pymc_dirdp.inference.shrinkage import SCALES
from pymc_dirdp.releases.measurements import Network
from pymc_dirdp.stored.draws import Drawn

__all__ = ["MOST_CELLS", "MOST_WORK", "hierarchical_model"]

MOST_CELLS = 10_000
"""The tables of a model hold no more cells than that together: each is two or three parameters for the sampler."""
MOST_WORK = 200_000
"""Margins of a whole network need products of no more cells than that together, at each step of the sampler."""

Consistency = Literal["joint", "tables"]
# So many standard deviations around what the noisy totals say lies a private number of records.
_FAR = 10.0
# Noise of no more variance is nearly always 0, and the normal law stands for counts that are known.
_LEAST = 1e-2


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
        If the tables have too many cells, or the margins of the whole network need too many.
    """
    families = [family.sorted for family in network.families]
    cells = sum(int(np.prod(family.shape)) for family in families)
    if cells > MOST_CELLS:
        raise ArgumentError(
            f"The tables have {cells} cells together, and a posterior is drawn for {MOST_CELLS} at most. Name some of "
            "them as tables=, or take the estimate of dirdp.fit(release)."
        )
    margins = _margins(network, consistency)
    with pm.Model() as model:
        for name, drawn in network.drawn.items():
            for dim, labels in drawn.labels:
                size = drawn.values.shape[2 + drawn.dims.index(dim)]
                model.add_coord(dim, range(size) if labels is None else labels)
            if _is_constant(drawn):
                pm.Deterministic(name, pt.ones(drawn.values.shape[2:]), dims=drawn.dims)
        n_records = _number(network, n_prior)
        if margins is None:
            for family in families:
                if not _is_constant(network.drawn[family.name]):
                    _table(family, network, n_records)
        else:
            _whole(families, network, margins, n_records)
    return model


def _is_constant(drawn: Drawn) -> bool:
    """Whether the variable has one category, which every record is in."""
    return drawn.family != "beta" and drawn.values.shape[-1] == 1


def _margins(network: Network, consistency: Consistency | None) -> NetworkMargins | None:
    """How the margins of the network are computed; None if each table is taken by itself."""
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
        problem = f"The margins of the whole network need products of {found.work} cells, and a sampler waits for them."
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


def _number(network: Network, n_prior: int | None) -> Any:
    """The number of records: known, or all numbers that the noisy totals leave possible as likely as one another."""
    if network.n_records is not None:
        return float(network.n_records)
    if n_prior is not None:
        return pm.Uniform("n_records", 0.0, float(integer(1, n_prior=n_prior)))
    totals = network.measurements
    found = number_of_records(totals)
    far = _FAR * sum(1 / (one.variance * one.noisy.size) for one in totals) ** -0.5
    return pm.Uniform("n_records", max(0.0, found - far), found + far, initval=found)


def _table(family: Family, network: Network, n_records: Any) -> None:
    """One table by itself: shares of all combinations of its values, and counts of the records in them."""
    axes = len(family.shape)
    p = _softmax(_logits(family, axes), axes)
    _publish(family, network, p / p.sum(axis=-1, keepdims=True))
    counts = n_records * p + pt.sqrt(n_records) * _off(p, family.name, family.shape, axes)
    for measurement in network.measurements:
        if (own := measurement.onto(family.axes)) is not None:
            _observe(f"{family.name}_noisy", own, _summed(counts, family.axes, own.axes))


def _whole(families: Sequence[Family], network: Network, margins: NetworkMargins, n_records: Any) -> None:
    """All tables together: shares given the parents, and those among the records, whose margins are measured."""
    constant = {family.name for family in families if _is_constant(network.drawn[family.name])}
    shares = [
        pt.ones(family.shape) if family.name in constant else _softmax(_logits(family, 1), 1) for family in families
    ]
    made = margins.values(margins.run(shares, _product))
    with_parents = [family for family in families if family.parents]
    rows = {family.name: one for family, one in zip(with_parents, made[len(network.measurements) :], strict=True)}
    of_records = []
    for family, p in zip(families, shares, strict=True):
        if family.name in constant:
            of_records.append(p)
            continue
        _publish(family, network, p)
        expected = n_records * rows.get(family.name, pt.ones(()))
        # The normal law is none of a row that is expected to hold less than a record, and its shares matter little.
        off = _off(p, family.name, family.shape, 1) / pt.sqrt(pt.maximum(expected, 1.0))[..., None]
        of_records.append(p + off)
    found = margins.values(margins.run(of_records, _product))
    for measurement, margin in zip(network.measurements, found, strict=False):
        _observe("noisy", measurement, n_records * margin)


def _observe(prefix: str, measurement: Measurement, expected: Any) -> None:
    """Noisy counts, and the law of their noise."""
    name = first = "_".join((prefix, *measurement.axes))
    model, number = pm.modelcontext(None), 1
    # What was measured of different tables may have the same variables.
    while name in model.named_vars:
        number += 1
        name = f"{first}_{number}"
    seen = pm.Data(f"{name}_published", measurement.noisy)
    if measurement.laplace_scale is None:
        pm.Normal(name, expected, max(measurement.variance, _LEAST) ** 0.5, observed=seen)
    else:
        pm.Laplace(name, expected, measurement.laplace_scale, observed=seen)


def _logits(family: Family, axes: int) -> Any:
    """Sums of effects, whose coordinates are normal with a scale for each group of them.

    The shares are the softmax along so many of the last axes, and effects that are the same along these change nothing.
    """
    effects = Effects(family.shape)
    first = 1 if axes == 1 else 0
    orders, groups = effects.orders, effects.groups[..., first:]
    kept, place = np.unique(groups, return_inverse=True)
    spread = np.maximum(SCALES[np.minimum(orders[kept], len(SCALES) - 1)], SCALES[-1])
    scales = pm.HalfNormal(f"{family.name}_scales", spread)
    table = scales[place.reshape(groups.shape)] * pm.Normal(f"{family.name}_effects", shape=groups.shape)
    for axis, size in enumerate(family.shape):
        # Row k holds the values of the k-th function of the axis.
        functions = Effects((size,)).logits(np.eye(size))
        last = axis == len(family.shape) - 1
        table = pt.moveaxis(pt.tensordot(table, functions[first:] if last else functions, axes=[[axis], [0]]), -1, axis)
    return table


def _softmax(logits: Any, axes: int) -> Any:
    """Shares that add up to 1 over the last axes."""
    over = tuple(range(-axes, 0))
    p = pt.exp(logits - logits.max(axis=over, keepdims=True))
    return p / p.sum(axis=over, keepdims=True)


def _off(p: Any, name: str, shape: tuple[int, ...], axes: int) -> Any:
    """Normal noise with the covariance of one record in the cells of the last axes."""
    over = tuple(range(-axes, 0))
    root = pt.sqrt(p)
    noise = pm.Normal(f"{name}_sampling", shape=shape)
    return root * noise - p * pt.sum(root * noise, axis=over, keepdims=True)


def _publish(family: Family, network: Network, p: Any) -> None:
    """The shares with the name, the dims and the order of the axes that they have in the release."""
    given = next(one for one in network.families if one.name == family.name)
    drawn: Drawn = network.drawn[family.name]
    turned = p.dimshuffle([family.axes.index(axis) for axis in given.axes])
    # A Beta variable is the probability of success, the first of its two categories.
    pm.Deterministic(family.name, turned[..., 0] if drawn.family == "beta" else turned, dims=drawn.dims or None)


def _summed(table: Any, axes: Sequence[str], kept: Sequence[str]) -> Any:
    """The sums over the axes that are not kept; those that are have the same order."""
    over = [i for i, axis in enumerate(axes) if axis not in kept]
    return table.sum(axis=over) if over else table


def _product(axes: Sequence[str], *factors: tuple[Any, Sequence[str]]) -> Any:
    """The product of tables in a graph, summed over all axes but some."""
    together = [*axes, *dict.fromkeys(axis for _, own in factors for axis in own if axis not in axes)]
    product: Any = 1.0
    for factor, own in factors:
        turned = factor.dimshuffle([own.index(axis) if axis in own else "x" for axis in together])
        product = product * turned
    over = list(range(len(axes), len(together)))
    return product.sum(axis=over) if over else product
