"""The groups `mechanism`, `privacy` and `utility` of a release. They follow from its plan: public numbers only."""

import json
import math
import re
from collections.abc import Hashable
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pymc_dirdp.mechanisms.outputs import DRAWS, Draws, Marginals
from pymc_dirdp.mechanisms.registry import by_class_name
from pymc_dirdp.models.table import dim_beside, dim_name, outcome_dim, plain_labels
from pymc_dirdp.planning.estimate_error import EstimateError, estimate_error
from pymc_dirdp.planning.expected_kl import a_priori_kl, effective_records
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.people import adjacency_named
from pymc_dirdp.releases.plan_types import Plan, PlannedTable
from pymc_dirdp.releases.wording import NO_NUMBER, records_word
from pymc_dirdp.sampling.exact import grid_share

if TYPE_CHECKING:
    from pymc_dirdp.models.table import Table

_A_PRIORI = (
    "n_records",
    "effective_records",
    "expected_kl_posterior",
    "expected_kl_estimate",
    "estimate_kl",
    "share_error",
    "grid_weight",
    "grid_variance",
)
# What is proved about a draw, by sampler; nothing is said of one that is not chosen yet.
_ARITHMETIC = {
    "exact": "integers: the release has the proved distribution, and nothing was rounded on the way from the counts",
    "fast": "floating point, rounded to a public grid: the guarantee is proved for the ideal distribution, and nothing "
    "is proved of the last bits of this draw",
}
# The points at which a view shows curves. Anybody can compute more points from r and alpha.
_POINTS = {
    "order": np.array([1.0, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 128, 256]),
    "epsilon": np.array([0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 1.5, 2, 3, 5, 8, 10]),
    "delta_at": np.array([1e-4, 1e-5, 1e-6, 1e-8, 1e-10]),
}


def described(chosen: Plan, composition: PrivacyCurves, *, sampler: str, source: str = "") -> dict[str, xr.Dataset]:
    """The groups of a release that follow from its plan, by path; `source` is that of the random bits."""
    groups = {f"/mechanism/{part.table.name}": _mechanism(part, chosen, sampler, source) for part in chosen.parts}
    return groups | {"/privacy": _privacy(chosen, composition), "/utility": _utility(chosen, sampler)}


def labels(table: "Table") -> dict[str, list[Any]]:
    """The coords of the released variable. No others come along, because they may hold data."""
    return {dim: plain_labels(values) for dim, values in table.coords.items() if values is not None}


def _mechanism(part: PlannedTable, chosen: Plan, sampler: str, source: str) -> xr.Dataset:
    table, mechanism = part.table, part.mechanism
    dims = cell_dims(table)
    coords = {renamed(dim): values for dim, values in labels(table).items()} | (
        {dims[-1]: ["success", "failure"]} if table.family == "beta" else {}
    )
    attrs: dict[str, str | float] = {
        "mechanism": type(mechanism).__name__,
        "family": table.family,
        # The names are written as JSON, because a name may hold any character.
        "observed": json.dumps([likelihood.name for likelihood in table.likelihoods]),
        "adjacency": mechanism.adjacency,
        "strategy": chosen.strategy,
        "objective": chosen.objective,
        "sampler": sampler,
        "arithmetic": _ARITHMETIC.get(sampler, ""),
        "randomness": source,
        "contribution": mechanism.contributed.to_json(),
    }
    variables: dict[str, Any] = {"prior": (dims, table.prior)}
    for fact in mechanism.facts:
        value = getattr(mechanism, fact.field)
        if fact.optional and value is None:
            continue
        if fact.is_variable:
            variables[fact.name] = (dims if fact.kind == "table" else (), value)
        else:
            attrs[fact.name] = json.dumps(value) if fact.kind == "list" else value
    if part.totals:
        axes = chosen.reading.public_axes(table.name)
        totals = np.reshape(np.array(part.totals, dtype=np.float64), [table.shape[axis] for axis in axes])
        variables[PUBLIC_TOTALS] = ([dims[axis] for axis in axes], totals)
    if (steps := mechanism.steps(sampler, part.n_records)) is not None:
        attrs["steps"] = steps
    if part.choice is not None:
        attrs |= {"chosen_from": json.dumps(part.choice.expected_kl)}
    return xr.Dataset(variables, {dim: values for dim, values in coords.items() if dim in dims}, attrs)


def _privacy(chosen: Plan, curves: PrivacyCurves) -> xr.Dataset:
    relation = adjacency_named(chosen.adjacency)
    pure = curves.pure_epsilon
    # The curves that the view of a release shows, each with its arguments.
    shown = {"renyi_divergence": "order", "delta": "epsilon", "epsilon_at": "delta_at", "best_order_at": "delta_at"}
    return xr.Dataset(
        {name: (at, np.array(_curve_at(curves, name, at))) for name, at in shown.items()},
        coords=_POINTS,
        attrs={
            "guarantee": type(chosen.guarantee).__name__,
            **asdict(chosen.guarantee),
            "statement": str(chosen.guarantee),
            "adjacency": relation.name,
            "neighbours": chosen.reading.neighbours,
            "unit": chosen.unit_label,
            "protected": chosen.protected,
            "assumptions": json.dumps(chosen.assumptions),
            "min_count": chosen.min_count,
            "contribution": chosen.contribution,
            "groups": json.dumps(chosen.groups),
            "draws": chosen.draws,
            **({"pure_epsilon": pure} if math.isfinite(pure) else {}),
            **({"choices": json.dumps([choice.facts for choice in chosen.after])} if chosen.after else {}),
        },
    )


def _utility(chosen: Plan, sampler: str) -> xr.Dataset:
    """A priori numbers: they use the prior, the mechanism and the number of records that was planned for."""
    rows = {part.table.name: _a_priori(part, chosen, sampler) for part in chosen.parts}
    for name, error in _fit_errors(chosen).items():
        rows[name] |= {"estimate_kl": error.kl, "share_error": error.share}
    variables = {name: ("table", np.array([row[name] for row in rows.values()])) for name in _A_PRIORI}
    dataset = xr.Dataset(variables, coords={"table": list(rows)})
    dataset.attrs["records"] = records_word(chosen.reading)
    if any(part.n_records is None for part in chosen.parts):
        dataset.attrs["note"] = NO_NUMBER
    return dataset


def _fit_errors(chosen: Plan) -> dict[str, EstimateError]:
    """The expected errors of the tables that are fitted to marginals of all of them."""
    parts = {part.table.name: part for part in chosen.publishing(Marginals)}
    sizes = {part.n_records for part in parts.values()}
    size = sizes.pop() if len(sizes) == 1 else None
    if size is None:
        return {}
    from pymc_dirdp.releases.predicting import fit_errors  # Here, because it needs PyMC, and a report does not.

    return fit_errors(
        {name: part.table for name, part in parts.items()},
        {name: part.mechanism for name, part in parts.items()},
        size,
        public=chosen.reading.sizes_are_public,
    )


def _a_priori(part: PlannedTable, chosen: Plan, sampler: str) -> dict[str, float]:
    """The expected error of a table, and what the grid of an exact draw adds to it; NaN for what is unknown."""
    values = dict.fromkeys(_A_PRIORI, np.nan)
    mechanism, n_records, drawn = part.mechanism, part.n_records, part.mechanism.tempered
    if n_records is None:
        return values
    values["n_records"] = float(n_records)
    public = chosen.reading.sizes_are_public
    error = estimate_error(
        mechanism, part.table.prior, n_records, public=public, totals=part.totals, draws=chosen.draws
    )
    if error is not None:
        values["estimate_kl"], values["share_error"] = error.kl, error.share
    # Draws given noisy counts have no closed form, leave every record its weight and have no grid.
    if mechanism.output_kind is Draws:
        expected = a_priori_kl(mechanism, part.table.prior, n_records)
        values["expected_kl_posterior"], values["expected_kl_estimate"] = expected.posterior, expected.estimate
    # Where all shares are 1 no record has any weight.
    if drawn is not None and part.table.n_categories > 1:
        values["effective_records"] = effective_records(drawn.r, n_records)
        if (steps := mechanism.steps(sampler, n_records)) is not None:
            share = grid_share(drawn.alpha, drawn.r, n_records, steps=steps)
            values["grid_weight"], values["grid_variance"] = share.weight, share.variance
    return values


def _curve_at(curves: PrivacyCurves, name: str, over: str) -> tuple[float, ...]:
    """The values of a curve at the points of a view.

    They are cached: a plan and its release have the same ones, and a search over counts takes long.
    """
    return _computed(_Keyed(curves.curve_key, curves), name, over)


@dataclass(frozen=True)
class _Keyed:
    """Curves that are distinguished by their key alone."""

    key: Hashable
    curves: PrivacyCurves = field(compare=False)


@lru_cache(maxsize=64)
def _computed(keyed: _Keyed, name: str, over: str) -> tuple[float, ...]:
    # Many points together may take as long as one.
    curves, points = keyed.curves, _POINTS[over]
    match name:
        case "renyi_divergence":
            values = curves.renyi(points)
        case "delta":
            values = curves.delta(points)
        case "best_order_at":
            values = curves.best_order(points)
        case _:
            values = curves.epsilon(points)
    return tuple(np.asarray(values).tolist())


PUBLIC_TOTALS = "public_totals"
"""The variable that holds the public numbers of records of the entries of some row axes."""


def cell_dims(table: "Table") -> list[str]:
    """The dims of the table of counts: those of the variable, and for a Beta the dim of its two outcomes."""
    axes = table.dims or (None,) * (len(table.shape) - (table.family == "beta"))
    # A variable of the group may not have the name of a dim.
    dims = [renamed(dim_name(table.name, axis, dim)) for axis, dim in enumerate(axes)]
    return [*dims, outcome_dim(table.name)] if table.family == "beta" else dims


def renamed(dim: str) -> str:
    """A name for a dim that no variable of a group `mechanism` has."""
    taken = {PUBLIC_TOTALS}
    for kind in by_class_name().values():
        taken |= {fact.name for fact in kind.facts if fact.is_variable} | {kind.publishes} - {DRAWS}
    return dim_beside(dim, taken | {dim for name in taken if re.fullmatch(rf"{name}(_\d+)+", dim)})
