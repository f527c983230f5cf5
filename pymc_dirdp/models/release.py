"""A plan and the counts become a release: a DataTree that is safe to publish."""

import warnings
from collections.abc import Iterable, Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

import pymc as pm
import xarray as xr
from arviz_base import dict_to_dataset
from numpy import float64
from numpy.typing import NDArray

from pymc_dirdp.adjacency import adjacency_named
from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError, SeededReleaseWarning, UnattainableError, UnsupportedModelError
from pymc_dirdp.guarantees import Guarantee
from pymc_dirdp.mechanisms.dirichlet import SAMPLERS, DirichletMechanism
from pymc_dirdp.models.description import cell_dims, described, dim_name, exact_steps, labels
from pymc_dirdp.models.deterministics import evaluated, of_parameters
from pymc_dirdp.models.observations import read_counts, total_records
from pymc_dirdp.models.plan import Plan, plan
from pymc_dirdp.models.tables import Table, root_model, tables
from pymc_dirdp.sampling.entropy import Seed, generator

if TYPE_CHECKING:
    from pymc_dirdp.ledger import Ledger

__all__ = ["sample"]

Array = NDArray[float64]

_PLANNING_DEFAULTS = {
    name: parameter.default
    for name, parameter in signature(plan).parameters.items()
    if name not in ("guarantee", "model")
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
    n_records: int | Mapping[str, int] | None = None,
    min_count: float = 0.0,
    contribution: int = 1,
    weights: Mapping[str, float] | None = None,
    disjoint: Iterable[Iterable[str]] | None = None,
    sampler: str = "fast",
    random_seed: Seed = None,
    ledger: "Ledger | None" = None,
) -> xr.DataTree:
    """One private posterior draw of a PyMC model, with its guarantee.

    Parameters
    ----------
    guarantee : RenyiDP, TruncatedCDP, ApproxDP or Plan
        What the whole release promises, or a :class:`Plan` for this very model.
    model : pymc.Model, optional
        The model on the context stack by default.
    adjacency, strategy, objective, draws, mechanism, n_records, min_count, contribution, weights, disjoint
        As for :func:`pymc_dirdp.plan`. With a plan they are already decided and must be left alone.
    sampler : {"fast", "exact"}, default "fast"
        `"fast"` draws in floating point with NumPy, `"exact"` whole numbers from a Pólya urn, for the Dirichlet
        mechanism: see :meth:`pymc_dirdp.DirichletMechanism.sample`. The release says which.
    random_seed : int, SeedSequence, Generator or None, default None
        None takes entropy from the operating system. A seed makes the draw reproducible, hence **not private**: the
        release is marked and a warning says so.
    ledger : Ledger, optional
        Where the release is recorded before anything is drawn. If it does not fit into what is left, nothing is drawn.

    Returns
    -------
    release : xarray.DataTree
        Group `posterior` as `pm.sample` returns it, with dims `chain=1` and `draw=draws`, and groups `mechanism` (one
        child for each table), `privacy` and `utility`. It holds no count but noisy ones, and may be published.

    Raises
    ------
    UnsupportedModelError, UnattainableError, ArgumentError
        As :func:`pymc_dirdp.plan` does.
    DataError
        If the observations are not what the model says. The message never holds a value.
    BudgetError, LedgerError
        If the ledger refuses or cannot be written. Nothing was drawn then.

    Warns
    -----
    SeededReleaseWarning
        If `random_seed` is given.

    References
    ----------
    P2 section 2.3 for posterior sampling, Theory, section 1 to 7.
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
        "contribution": contribution,
        "weights": weights,
        "disjoint": disjoint,
    }
    if isinstance(guarantee, Plan):
        _refuse_second_planning(options)
        chosen = guarantee
        _refuse_edited_model(chosen, model)
    else:
        chosen = plan(guarantee, model, **options)
    composition = chosen.composition
    # Verified again, on the exact curve and without tolerance: a plan may come from a file.
    if not composition.satisfies(chosen.guarantee):
        raise UnattainableError(f"The plan does not keep {chosen.guarantee}, so nothing was drawn. Plan again.")
    _check_sampler(sampler, chosen)
    # All that can fail comes before the ledger, and all that costs privacy after it.
    frame = described(chosen, composition, sampler=sampler)
    kept, left_out = of_parameters(model, tuple(part.table.name for part in chosen.parts))
    counts = {part.table.name: read_counts(part.table, model) for part in chosen.parts}
    for part in chosen.parts:
        if isinstance(part.mechanism, DirichletMechanism):
            steps = exact_steps(part) if sampler == "exact" else None
            part.mechanism.check(counts[part.table.name], sampler=sampler, steps=steps)
    if random_seed is not None:
        warnings.warn(
            "A release with random_seed can be computed again by whoever knows the seed, so it is not private. "
            "Leave random_seed out for anything that is published.",
            SeededReleaseWarning,
            stacklevel=2,
        )
    if ledger is not None:
        ledger.spend(chosen.guarantee, what=", ".join(counts), mechanism=composition, adjacency=chosen.adjacency)
    # One generator for all tables, which moves on: no two of them share their noise.
    rng = generator(random_seed)
    drawn: dict[str, Array] = {}
    for part in chosen.parts:
        name = part.table.name
        if isinstance(part.mechanism, DirichletMechanism):
            # The exact sampler takes its bits from the operating system itself, unless there is a seed.
            source = None if sampler == "exact" and random_seed is None else rng
            steps = exact_steps(part) if sampler == "exact" else None
            values = part.mechanism.sample(
                counts[name], draws=chosen.draws, sampler=sampler, random_seed=source, steps=steps
            )
        else:
            # The guarantee is about the noisy counts, so they are published, and every draw is made from them.
            noisy = part.mechanism.release(counts[name], sampler=sampler, random_seed=rng)
            frame[f"/mechanism/{name}"]["noisy_counts"] = (cell_dims(part.table), noisy)
            values = part.mechanism.sample_from(noisy, draws=chosen.draws, random_seed=rng)
        drawn[name] = _released(part.table, values)
    marks = _marks(chosen, left_out, seeded=random_seed is not None)
    everything = drawn | evaluated(model, kept, drawn)
    tree = xr.DataTree.from_dict({"/posterior": _posterior(everything, chosen, model, marks), **frame})
    tree.attrs = marks
    return tree


def _check_sampler(sampler: str, chosen: Plan) -> None:
    if one_of(SAMPLERS, sampler=sampler) == "exact":
        noisy = [part.table.name for part in chosen.parts if not isinstance(part.mechanism, DirichletMechanism)]
        if noisy:
            raise ArgumentError(
                f"sampler='exact' is for the Dirichlet mechanism; {', '.join(map(repr, noisy))} would be released by "
                "noise. Use mechanism='dirichlet', or mechanism='geometric' with sampler='fast', whose noise is whole."
            )


def _refuse_second_planning(options: dict[str, Any]) -> None:
    changed = [name for name, value in options.items() if value != _PLANNING_DEFAULTS[name]]
    if changed:
        raise ArgumentError(f"A plan already decides {', '.join(changed)}. Pass it to plan() instead.")


def _refuse_edited_model(chosen: Plan, model: pm.Model) -> None:
    same = tables(model) == tuple(part.table for part in chosen.parts)
    public = adjacency_named(chosen.adjacency).records_are_public
    if not same or (public and any(total_records(part.table, model) != part.n_records for part in chosen.parts)):
        names = ", ".join(repr(part.table.name) for part in chosen.parts)
        raise UnsupportedModelError(
            f"The model is not the one that was planned: {names}, a prior, dims, a likelihood or the public number of "
            "records has changed. Call plan() again."
        )


def _released(table: Table, drawn: Array) -> Array:
    """A Beta variable is the probability of success, the first of its two categories."""
    return drawn[..., 0] if table.family == "beta" else drawn


def _marks(chosen: Plan, left_out: tuple[str, ...], *, seeded: bool) -> dict[str, str]:
    marks = {
        "inference_library": "pymc_dirdp",
        "inference_library_version": chosen.library_version,
        "guarantee": str(chosen.guarantee),
        "adjacency": chosen.adjacency,
    }
    if left_out:
        marks["left_out"] = f"{', '.join(left_out)} (they touch observations, pm.Data or randomness of their own)"
    if seeded:
        marks["reproducible"] = "not private"
    return marks


def _posterior(values: dict[str, Array], chosen: Plan, model: pm.Model, marks: dict[str, str]) -> xr.Dataset:
    named = {name: model.named_vars_to_dims.get(name) for name in values}
    coords: dict[str, list[Any]] = {}
    for part in chosen.parts:
        named[part.table.name] = part.table.dims
        coords |= labels(part.table)
    dims = {name: [dim_name(name, i, dim) for i, dim in enumerate(axes)] for name, axes in named.items() if axes}
    with warnings.catch_warnings():
        # A dim of the model may be called so; the draws are in `chain` and `draw`.
        warnings.filterwarnings("ignore", message="Found dimension named 'sample'")
        dataset = dict_to_dataset(
            {name: value[None] for name, value in values.items()},
            coords=coords,  # type: ignore[arg-type]  # any labels will do
            dims=dims,  # type: ignore[arg-type]  # a dict of lists
            sample_dims=["chain", "draw"],
        )
    # Attributes are text or numbers, so that a file gives back what was written.
    dataset.attrs = {key: value for key, value in dataset.attrs.items() if isinstance(value, str | int | float)} | marks
    return dataset
