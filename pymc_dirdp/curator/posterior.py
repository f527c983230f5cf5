"""The exact posterior of a model, without any privacy."""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pymc as pm
import xarray as xr
from arviz_base import dict_to_dataset
from numpy.typing import NDArray
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer
from pymc_dirdp.curator.confidential import marked
from pymc_dirdp.curator.observed import Observed, observations
from pymc_dirdp.curator.realised import Distribution, own_distribution, variable
from pymc_dirdp.models.graph import compiled_plainly
from pymc_dirdp.models.table import Table, dim_name
from pymc_dirdp.models.tables import root_model, tables
from pymc_dirdp.releases.axes import labels, share_dims
from pymc_dirdp.sampling.bits import Seed, generator
from pymc_dirdp.signatures import user_facing

# The secret draws of a posterior as a tree with every group that ArviZ's functions look for.


def posterior_groups(
    distributions: tuple[Distribution, ...],
    drawn: dict[str, Array],
    observations: dict[str, tuple[Observed, ...]],
    model: pm.Model,
    deterministics: tuple[str, ...],
    rng: np.random.Generator,
) -> dict[str, xr.Dataset]:
    """The groups of one posterior, by name.

    By name of a table, `drawn` has its draws, shape `(chains, draws, *table.shape)`, and `observations` has what feeds
    it. `deterministics` names those of the model that are evaluated.

    The density of the posterior is the exponential of the sum of `log_prior` and `log_likelihood`, as sensitivities and
    importance weights need it: under the private distribution the likelihood is raised to the power `r`. It is a
    density in the coordinates of samplers, see :meth:`Distribution.log_prior`.
    """
    tables = {distribution.table.name: distribution for distribution in distributions}
    chains, draws = next(iter(drawn.values())).shape[:2]
    values = {name: variable(distribution.table, drawn[name]) for name, distribution in tables.items()}
    prior = {
        name: variable(distribution.table, distribution.sample_prior(chains, draws, rng))
        for name, distribution in tables.items()
    }
    density = {name: distribution.log_prior(drawn[name]) for name, distribution in tables.items()}
    dims = {distribution.table.name: share_dims(distribution.table) for distribution in distributions}
    dims |= {name: _dims_of(name, model.named_vars_to_dims.get(name)) for name in deterministics}
    coords = {dim: given for distribution in distributions for dim, given in labels(distribution.table).items()}
    rows = {
        name: dims[name] if distribution.table.family == "beta" else dims[name][:-1]
        for name, distribution in tables.items()
    }
    groups = {
        "posterior": _dataset(values | _formulas(model, deterministics, values), dims, coords),
        "prior": _dataset(prior | _formulas(model, deterministics, prior), dims, coords),
        "log_prior": _dataset(density, rows, coords),
    }
    return groups | _observed_groups(tables, drawn, observations, rng)


def _observed_groups(
    tables: dict[str, Distribution],
    drawn: dict[str, Array],
    observations: dict[str, tuple[Observed, ...]],
    rng: np.random.Generator,
    *,
    most_values: int = 2**24,
) -> dict[str, xr.Dataset]:
    """The groups of what was observed.

    The log-likelihood of single observations may take 128 MB, which `most_values` do, and so may replicated data.
    """
    chains, draws = next(iter(drawn.values())).shape[:2]
    pairs = [(tables[name], seen) for name, several in observations.items() for seen in several]
    dims = {seen.name: list(seen.dims) for _, seen in pairs}
    coords = {dim: given for _, seen in pairs for dim, given in seen.coords.items()}
    given = {seen.name: seen.values for _, seen in pairs}
    groups = {"observed_data": _dataset(given, dims, coords, sample_dims=[])}
    powers = {f"power_{seen.name}": distribution.power for distribution, seen in pairs}
    if chains * draws * sum(math.prod(seen.values.shape) for _, seen in pairs) > most_values:
        total = {
            seen.name: distribution.power * seen.total_log_likelihood(drawn[distribution.table.name])
            for distribution, seen in pairs
        }
        groups["log_likelihood"] = _dataset(total, {}, {})
        groups["log_likelihood"].attrs = powers | {
            "summed": "over all observations, because there are too many to hold one by one"
        }
        return groups
    each = {
        seen.name: distribution.power * seen.log_likelihood(drawn[distribution.table.name])
        for distribution, seen in pairs
    }
    shorter = {seen.name: list(seen.dims[: seen.row.ndim]) for _, seen in pairs}
    groups["log_likelihood"] = _dataset(each, shorter, coords)
    groups["log_likelihood"].attrs = powers
    replicated = {seen.name: seen.replicate(drawn[distribution.table.name], rng) for distribution, seen in pairs}
    groups["posterior_predictive"] = _dataset(replicated, dims, coords)
    return groups


def _formulas(model: pm.Model, names: tuple[str, ...], values: dict[str, Array]) -> dict[str, Array]:
    """The values of these Deterministics at all draws of the tables: shape `(chains, draws, ...)`."""
    if not names:
        return {}
    lead = next(iter(values.values())).shape[:2]
    inputs = [model[name] for name in values if name in model.named_vars]
    observed = {variable: model.rvs_to_values[variable] for variable in model.observed_RVs}
    # The function runs in Python, because it runs once for each draw and a compiler would take seconds.
    function = compiled_plainly(inputs, graph_replace([model[name] for name in names], observed, strict=False))
    draws = [values[str(variable.name)] for variable in inputs]
    flat = [drawn.reshape(-1, *drawn.shape[2:]) for drawn in draws]
    rows = [function(*of_draw) for of_draw in zip(*flat, strict=True)]
    columns = [np.stack(column) for column in zip(*rows, strict=True)]
    return {name: column.reshape(*lead, *column.shape[1:]) for name, column in zip(names, columns, strict=True)}


def _dims_of(name: str, axes: tuple[str | None, ...] | None) -> list[str]:
    return [dim_name(name, axis, dim) for axis, dim in enumerate(axes or ())]


def _dataset(
    values: Mapping[str, NDArray[Any]],
    dims: Mapping[str, list[str]],
    coords: Mapping[str, list[Any]],
    sample_dims: tuple[str, ...] | list[str] = ("chain", "draw"),
) -> xr.Dataset:
    with warnings.catch_warnings():
        # A dim of the model may be called `sample`; the draws are in `chain` and `draw`.
        warnings.filterwarnings("ignore", message="Found dimension named 'sample'")
        dataset = dict_to_dataset(
            dict(values),
            coords=dict(coords),
            dims={name: axes for name, axes in dims.items() if name in values and axes},
            sample_dims=list(sample_dims),
        )
    dataset.attrs = {}
    return dataset


# The exact posterior of a model without any privacy, by conjugacy. All of it is confidential.


@user_facing
def exact_posterior(
    model: pm.Model | None = None,
    draws: int = 4000,
    *,
    random_seed: Seed = None,
) -> xr.DataTree:
    """Independent draws from the posterior of a model itself, **without any privacy**, by conjugacy. **Confidential**.

    It is what `pm.sample` would return for the same model, without a sampler's error. No guarantee covers it: do not
    publish it and do not let it decide what to publish. For a private draw, see :func:`pymc_dirdp.sample`.

    Parameters
    ----------
    model : pymc.Model, optional
        The model on the context stack by default: one that :func:`pymc_dirdp.tables` can read.
    draws : int, default 4000
        How many; they are independent, so as many are worth as many.
    random_seed : int, SeedSequence, Generator or None
        A seed is harmless here, because nothing of the result is published.

    Returns
    -------
    posterior : xarray.DataTree
        The groups that ArviZ looks for, with the names, dims and labels of the model: `posterior`, `prior`,
        `log_prior`, `log_likelihood`, `posterior_predictive` and `observed_data`. Deterministics that depend on the
        Dirichlet and Beta variables come along with these. Every group and variable has an
        attribute `confidential`, and no function of this library takes the tree for a release.

    Raises
    ------
    UnsupportedModelError
        If the posterior is not known to be a product of Dirichlet or Beta distributions. It names the variable.
    ArgumentError
        If there is no model.
    DataError
        If the observations are not what the model says. The message never holds a value.

    Notes
    -----
    The posterior of each row is `Dirichlet(x + prior)`, with the counts `x` of the records in its cells.

    Where single observations would take more than 128 MB, `log_likelihood` holds their sum for each draw and
    `posterior_predictive` is left out; fewer draws bring them back.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}):
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     students = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    ...     exact = dirdp.curator.exact_posterior(random_seed=1)
    >>> exact["posterior"]["p"].mean(["chain", "draw"]).round(2).values
    array([0.18, 0.48, 0.12, 0.21])
    >>> exact.attrs["confidential"]
    'do not publish: computed from the data themselves, so the guarantee does not cover it'
    """
    draws = integer(1, draws=draws)
    model = root_model(model)
    found = tables(model)
    names = deterministics_of(model, found)
    rng = generator(random_seed)
    distributions = tuple(own_distribution(table, model) for table in found)
    drawn = {distribution.table.name: distribution.sample(1, draws, rng) for distribution in distributions}
    return marked(posterior_groups(distributions, drawn, observations(found, model), model, names, rng))


def deterministics_of(model: pm.Model, found: tuple[Table, ...]) -> tuple[str, ...]:
    """The names of the Deterministics that depend on tables and come along, in the model's order."""
    drawn = {model[table.name] for table in found if table.name in model.named_vars}
    return tuple(
        str(formula.name)
        for formula in model.deterministics
        if drawn & set(ancestors([formula], blockers=model.observed_RVs))
    )
