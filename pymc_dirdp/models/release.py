"""A plan and the counts become a release: a DataTree that is safe to publish."""

import warnings
from dataclasses import asdict
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from arviz_base import dict_to_dataset
from numpy.typing import NDArray

from pymc_dirdp.adjacency import adjacency_named
from pymc_dirdp.errors import ArgumentError, SeededReleaseWarning, UnattainableError, UnsupportedModelError
from pymc_dirdp.guarantees import Guarantee
from pymc_dirdp.models.deterministics import evaluated, of_parameters
from pymc_dirdp.models.observations import read_counts, total_records
from pymc_dirdp.models.plan import Plan, plan
from pymc_dirdp.models.tables import Table, root_model, tables
from pymc_dirdp.sampling.entropy import Seed
from pymc_dirdp.utility import PriorExpectedKL, effective_records

__all__ = ["sample"]

Array = NDArray[np.float64]

# Where the curves of a release are written down. Anybody can compute more points from r and alpha.
_ORDERS = np.array([1.0, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 128, 256])
_EPSILONS = np.array([0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 1.5, 2, 3, 5, 8, 10])
_DELTAS = np.array([1e-4, 1e-5, 1e-6, 1e-8, 1e-10])

_PLANNING_DEFAULTS = {
    "adjacency": "replace-one",
    "strategy": "optimal",
    "objective": "posterior",
    "draws": 1,
    "mechanism": "dirichlet",
    "n_records": None,
    "min_count": 0.0,
}


def sample(
    guarantee: Guarantee | Plan,
    model: pm.Model | None = None,
    *,
    adjacency: str = "replace-one",
    strategy: str = "optimal",
    objective: str = "posterior",
    draws: int = 1,
    mechanism: str = "dirichlet",
    n_records: int | None = None,
    min_count: float = 0.0,
    sampler: str = "fast",
    random_seed: Seed = None,
) -> xr.DataTree:
    """One private posterior draw of a PyMC model, with its guarantee.

    Parameters
    ----------
    guarantee : RenyiDP, TruncatedCDP, ApproxDP or Plan
        What the whole release promises, or a :class:`Plan` for this very model.
    model : pymc.Model, optional
        The model on the context stack by default.
    adjacency, strategy, objective, draws, mechanism, n_records, min_count
        As for :func:`pymc_dirdp.plan`. With a plan they are already decided and must be left alone.
    sampler : {"fast"}, default "fast"
        `"fast"` draws in floating point with NumPy.
    random_seed : int, SeedSequence, Generator or None, default None
        None takes entropy from the operating system. A seed makes the draw reproducible, hence **not private**: the
        release is marked and a warning says so.

    Returns
    -------
    release : xarray.DataTree
        Group `posterior` as `pm.sample` returns it, with dims `chain=1` and `draw=draws`, and groups `mechanism`,
        `privacy` and `utility`. It holds no count and may be published.

    Raises
    ------
    UnsupportedModelError, UnattainableError, ArgumentError
        As :func:`pymc_dirdp.plan` does.
    DataError
        If the observations are not what the model says. The message never holds a value.

    Warns
    -----
    SeededReleaseWarning
        If `random_seed` is given.

    References
    ----------
    P2 section 2.3 for posterior sampling, Theory, section 1 to 5.
    """
    model = root_model(model)
    options: dict[str, Any] = {
        "adjacency": adjacency,
        "strategy": strategy,
        "objective": objective,
        "draws": draws,
        "mechanism": mechanism,
        "n_records": n_records,
        "min_count": min_count,
    }
    if isinstance(guarantee, Plan):
        _refuse_second_planning(options)
        chosen = guarantee
        _refuse_edited_model(chosen, model)
    else:
        chosen = plan(guarantee, model, **options)
    # Verified again, on the exact curve and without tolerance: a plan may come from a file.
    if not chosen.composition.satisfies(chosen.guarantee):
        raise UnattainableError(f"The plan does not keep {chosen.guarantee}, so nothing was drawn. Plan again.")
    counts = read_counts(chosen.table, model)
    if random_seed is not None:
        warnings.warn(
            "A release with random_seed can be computed again by whoever knows the seed, so it is not private. "
            "Leave random_seed out for anything that is published.",
            SeededReleaseWarning,
            stacklevel=2,
        )
    drawn = chosen.mechanism.sample(counts, draws=chosen.draws, sampler=sampler, random_seed=random_seed)
    return _tree(chosen, _released(chosen.table, drawn), model, seeded=random_seed is not None, sampler=sampler)


def _refuse_second_planning(options: dict[str, Any]) -> None:
    changed = [name for name, value in options.items() if value != _PLANNING_DEFAULTS[name]]
    if changed:
        raise ArgumentError(f"A plan already decides {', '.join(changed)}. Pass it to plan() instead.")


def _refuse_edited_model(chosen: Plan, model: pm.Model) -> None:
    same = tables(model) == (chosen.table,)
    public = adjacency_named(chosen.mechanism.adjacency).records_are_public
    if not same or (public and total_records(chosen.table, model) != chosen.n_records):
        raise UnsupportedModelError(
            f"The model is not the one that was planned: {chosen.table.name!r}, its prior, dims, likelihood or public "
            "number of records has changed. Call plan() again."
        )


def _released(table: Table, drawn: Array) -> Array:
    """A Beta variable is the probability of success, the first of its two categories."""
    return drawn[..., 0] if table.family == "beta" else drawn


def _tree(chosen: Plan, values: Array, model: pm.Model, *, seeded: bool, sampler: str) -> xr.DataTree:
    table = chosen.table
    kept, left_out = of_parameters(model, (table.name,))
    variables = {table.name: values, **evaluated(model, kept, {table.name: values})}
    marks: dict[str, str] = {
        "inference_library": "pymc_dirdp",
        "inference_library_version": chosen.library_version,
        "guarantee": str(chosen.guarantee),
        "adjacency": chosen.mechanism.adjacency,
    }
    if left_out:
        marks["left_out"] = f"{', '.join(left_out)} (they touch observations, pm.Data or randomness of their own)"
    if seeded:
        marks["reproducible"] = "not private"
    tree = xr.DataTree.from_dict(
        {
            "/posterior": _posterior(variables, table, model, marks),
            f"/mechanism/{table.name}": _mechanism(chosen, sampler),
            "/privacy": _privacy(chosen),
            "/utility": _utility(chosen),
        }
    )
    tree.attrs = marks
    return tree


def _posterior(variables: dict[str, Array], table: Table, model: pm.Model, marks: dict[str, str]) -> xr.Dataset:
    named = {name: model.named_vars_to_dims.get(name) for name in variables}
    named[table.name] = table.dims
    dims = {name: [_dim(name, i, dim) for i, dim in enumerate(axes)] for name, axes in named.items() if axes}
    dataset = dict_to_dataset(
        {name: values[None] for name, values in variables.items()},
        coords=_labels(table),  # type: ignore[arg-type]  # any labels will do
        dims=dims,  # type: ignore[arg-type]  # a dict of lists
        sample_dims=["chain", "draw"],
    )
    # Attributes are text or numbers, so that a file gives back what was written.
    dataset.attrs = {key: value for key, value in dataset.attrs.items() if isinstance(value, str | int | float)} | marks
    return dataset


def _dim(name: str, axis: int, dim: str | None) -> str:
    return f"{name}_dim_{axis}" if dim is None else dim


def _labels(table: Table) -> dict[str, list[Any]]:
    """Only the coords of the released variable come along: others may hold data."""
    return {dim: list(labels) for dim, labels in table.coords.items() if labels is not None}


def _cell_dims(table: Table) -> list[str]:
    axes = table.dims or (None,) * (len(table.shape) - (table.family == "beta"))
    dims = [_dim(table.name, axis, dim) for axis, dim in enumerate(axes)]
    return [*dims, f"{table.name}_outcome"] if table.family == "beta" else dims


def _mechanism(chosen: Plan, sampler: str) -> xr.Dataset:
    table, mechanism = chosen.table, chosen.mechanism
    dims = _cell_dims(table)
    coords = _labels(table) | ({dims[-1]: ["success", "failure"]} if table.family == "beta" else {})
    return xr.Dataset(
        {"alpha": (dims, mechanism.alpha), "prior": (dims, table.prior), "r": ((), mechanism.r)},
        coords={dim: labels for dim, labels in coords.items() if dim in dims},
        attrs={
            "mechanism": type(mechanism).__name__,
            "family": table.family,
            "likelihood": ", ".join(likelihood.name for likelihood in table.likelihoods),
            "adjacency": mechanism.adjacency,
            "min_count": mechanism.min_count,
            "strategy": chosen.strategy,
            "objective": chosen.objective,
            "sampler": sampler,
        },
    )


def _privacy(chosen: Plan) -> xr.Dataset:
    curves = chosen.composition
    relation = adjacency_named(chosen.mechanism.adjacency)
    return xr.Dataset(
        {
            "renyi_divergence": ("order", curves.renyi(_ORDERS)),
            "delta": ("epsilon", curves.delta(_EPSILONS)),
            "epsilon_at": ("delta_at", curves.epsilon(_DELTAS)),
            "best_order_at": ("delta_at", [curves.best_order(delta) for delta in _DELTAS.tolist()]),
        },
        coords={"order": _ORDERS, "epsilon": _EPSILONS, "delta_at": _DELTAS},
        attrs={
            "guarantee": type(chosen.guarantee).__name__,
            **asdict(chosen.guarantee),
            "statement": str(chosen.guarantee),
            "adjacency": relation.name,
            "neighbours": relation.statement,
            "min_count": chosen.mechanism.min_count,
            "draws": chosen.draws,
        },
    )


def _utility(chosen: Plan) -> xr.Dataset:
    """A priori numbers only: they use the prior, the mechanism and the number of records that was planned for."""
    if chosen.n_records is None:
        return xr.Dataset(attrs={"note": "no a priori loss without n_records, the size to plan for"})
    table, mechanism = chosen.table, chosen.mechanism
    # alpha = prior + s for every strategy but algorithm-1, whose alpha is flat.
    keep = 0.0 if chosen.strategy == "algorithm-1" else 1.0
    s = float((mechanism.alpha - keep * table.prior).flat[0])
    expected = PriorExpectedKL(table.prior, chosen.n_records)
    numbers = {
        "expected_kl_posterior": expected.posterior(mechanism.r, s, keep=keep),
        "effective_records": effective_records(mechanism.r, chosen.n_records),
    }
    if chosen.n_records > 0:
        numbers["expected_kl_estimate"] = expected.estimate(mechanism.r, s, keep=keep)
    return xr.Dataset({name: ((), value) for name, value in numbers.items()}, attrs={"n_records": chosen.n_records})
