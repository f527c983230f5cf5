"""The groups `mechanism`, `privacy` and `utility` of a release. They follow from its plan: public numbers only."""

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from pymc_dirdp.mechanisms.base import SAMPLERS
from pymc_dirdp.models.labels import held_labels
from pymc_dirdp.planning.allocation import composed
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.releases.arithmetic import arithmetic
from pymc_dirdp.releases.cell_dims import cell_dims, renamed
from pymc_dirdp.releases.planned import Plan, PlannedTable
from pymc_dirdp.releases.wording import NO_NUMBER, people_of, records_word
from pymc_dirdp.sampling.entropy import Seed, randomness
from pymc_dirdp.sampling.exact import grid_share
from pymc_dirdp.stored.choices import followed_by
from pymc_dirdp.stored.curves import curve_at
from pymc_dirdp.stored.release import A_PRIORI, CURVES
from pymc_dirdp.utility.estimate_error import EstimateError, estimate_error
from pymc_dirdp.utility.expected_kl import effective_records
from pymc_dirdp.utility.simulated import a_priori_kl

if TYPE_CHECKING:
    from pymc_dirdp.models.tables import Table

__all__ = ["described", "labels"]

# The points at which a release states its curves. Anybody can compute more points from r and alpha.
_POINTS = {
    "order": np.array([1.0, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 128, 256]),
    "epsilon": np.array([0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 1.5, 2, 3, 5, 8, 10]),
    "delta_at": np.array([1e-4, 1e-5, 1e-6, 1e-8, 1e-10]),
}


def described(
    chosen: Plan, composition: PrivacyCurves, *, sampler: str, random_seed: Seed = None
) -> dict[str, xr.Dataset]:
    """The groups of a release that follow from its plan, by path."""
    groups = {f"/mechanism/{part.table.name}": _mechanism(part, chosen, sampler, random_seed) for part in chosen.parts}
    return groups | {"/privacy": _privacy(chosen, composition, sampler), "/utility": _utility(chosen, sampler)}


def labels(table: "Table") -> dict[str, list[Any]]:
    """The coords of the released variable. No others come along, because they may hold data."""
    return {dim: held_labels(values) for dim, values in table.coords.items() if values is not None}


def _mechanism(part: PlannedTable, chosen: Plan, sampler: str, random_seed: Seed) -> xr.Dataset:
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
        "arithmetic": arithmetic(mechanism, sampler),
        "randomness": randomness(random_seed, sampler=sampler) if sampler in SAMPLERS else "",
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
    if (steps := mechanism.steps(sampler, part.n_records)) is not None:
        attrs["steps"] = steps
    if mechanism.readings and not mechanism.has_product_law:
        attrs["postprocess"] = mechanism.readings[0]
    if part.choice is not None:
        attrs |= {"chosen_from": json.dumps(part.choice.expected_kl)}
    return xr.Dataset(variables, {dim: values for dim, values in coords.items() if dim in dims}, attrs)


def _privacy(chosen: Plan, curves: PrivacyCurves, sampler: str) -> xr.Dataset:
    relation = adjacency_named(chosen.adjacency)
    drawn = {
        part.table.name: part.mechanism.as_drawn(part.mechanism.steps(sampler, part.n_records)) for part in chosen.parts
    }
    tables = composed(drawn, chosen.groups, chosen.draws)
    pure = followed_by(chosen.after, tables).pure_epsilon
    return xr.Dataset(
        {name: (at, np.array(curve_at(curves, name, _POINTS[at]))) for name, at in CURVES.items()},
        coords=_POINTS,
        attrs={
            "guarantee": type(chosen.guarantee).__name__,
            **asdict(chosen.guarantee),
            "statement": str(chosen.guarantee),
            "adjacency": relation.name,
            "neighbours": chosen.reading.neighbours,
            "unit": chosen.unit_label,
            "people": people_of(chosen.reading),
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
    variables = {name: ("table", np.array([row[name] for row in rows.values()])) for name in A_PRIORI}
    dataset = xr.Dataset(variables, coords={"table": list(rows)})
    dataset.attrs["records"] = records_word(chosen.reading)
    if any(part.n_records is None for part in chosen.parts):
        dataset.attrs["note"] = NO_NUMBER
    return dataset


def _fit_errors(chosen: Plan) -> dict[str, EstimateError]:
    """The expected errors of the tables that are fitted to margins of all of them."""
    parts = {part.table.name: part for part in chosen.parts if part.mechanism.fits_all_tables}
    sizes = {part.n_records for part in parts.values()}
    size = sizes.pop() if len(sizes) == 1 else None
    if size is None:
        return {}
    from pymc_dirdp.releases.expected_fit import fit_errors  # Here, because it needs PyMC, and a report does not.

    return fit_errors(
        {name: part.table for name, part in parts.items()},
        {name: part.mechanism for name, part in parts.items()},
        size,
        public=chosen.reading.sizes_are_public,
    )


def _a_priori(part: PlannedTable, chosen: Plan, sampler: str) -> dict[str, float]:
    """The expected error of a table, and what the grid of an exact draw adds to it; NaN for what is unknown."""
    values = dict.fromkeys(A_PRIORI, np.nan)
    mechanism, n_records, drawn = part.mechanism, part.n_records, part.mechanism.tempered
    if n_records is None:
        return values
    values["n_records"] = float(n_records)
    public = chosen.reading.sizes_are_public
    error = estimate_error(mechanism, part.table.prior, n_records, public=public, draws=chosen.draws)
    if error is not None:
        values["estimate_kl"], values["share_error"] = error.kl, error.share
    # Draws given noisy counts have no closed form, leave every record its weight and have no grid.
    if drawn is not None or mechanism.beside is not None:
        expected = a_priori_kl(mechanism, part.table.prior, n_records)
        values["expected_kl_posterior"], values["expected_kl_estimate"] = expected.posterior, expected.estimate
    # Where all shares are 1 no record has any weight.
    if drawn is not None and part.table.n_categories > 1:
        values["effective_records"] = effective_records(drawn.r, n_records)
        if (steps := mechanism.steps(sampler, n_records)) is not None:
            share = grid_share(drawn.alpha, drawn.r, n_records, steps=steps)
            values["grid_weight"], values["grid_variance"] = share.weight, share.variance
    return values
