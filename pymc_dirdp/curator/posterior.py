"""The exact posterior of a model, without any privacy."""

import difflib
import math
import warnings
from collections.abc import Collection, Mapping
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
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.graph import Node, compiled_plainly
from pymc_dirdp.models.table import Table, dim_name
from pymc_dirdp.models.tables import root_model, tables
from pymc_dirdp.releases.axes import labels
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
    dims = {distribution.table.name: _dims(distribution) for distribution in distributions}
    dims |= {name: _dims_of(name, model.named_vars_to_dims.get(name)) for name in deterministics}
    coords = {dim: given for distribution in distributions for dim, given in labels(distribution.table).items()}
    rows = {
        name: dims[name] if distribution.table.family == "beta" else dims[name][:-1]
        for name, distribution in tables.items()
    }
    groups = {
        "posterior": _dataset(values | _flat(model, deterministics, values), dims, coords),
        "prior": _dataset(prior | _flat(model, deterministics, prior), dims, coords),
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


def _flat(model: pm.Model, names: tuple[str, ...], values: dict[str, Array]) -> dict[str, Array]:
    """The Deterministics at all draws; `_evaluated` takes chains and draws as one axis."""
    chains, draws = next(iter(values.values())).shape[:2]
    flat = {name: value.reshape(chains * draws, *value.shape[2:]) for name, value in values.items()}
    observed = {variable: model.rvs_to_values[variable] for variable in model.observed_RVs}
    deterministics = _evaluated(model, names, flat, known=observed)
    return {name: value.reshape(chains, draws, *value.shape[1:]) for name, value in deterministics.items()}


def _dims(distribution: Distribution) -> list[str]:
    table = distribution.table
    axes = table.dims or (None,) * (len(table.shape) - (table.family == "beta"))
    return _dims_of(table.name, axes)


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
    var_names: Collection[str] | None = None,
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
    var_names : collection of str, optional
        The Deterministics that come along with the Dirichlet and Beta variables; by default all that depend on these.
    random_seed : int, SeedSequence, Generator or None
        A seed is harmless here, because nothing of the result is published.

    Returns
    -------
    posterior : xarray.DataTree
        The groups that ArviZ looks for, with the names, dims and labels of the model: `posterior`, `prior`,
        `log_prior`, `log_likelihood`, `posterior_predictive` and `observed_data`. Every group and variable has an
        attribute `confidential`, and no function of this library takes the tree for a release.

    Raises
    ------
    UnsupportedModelError
        If the posterior is not known to be a product of Dirichlet or Beta distributions. It names the variable.
    ArgumentError
        If there is no model, or `var_names` names something else than its Deterministics or its tables.
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
    names = deterministics_of(model, found, var_names)
    rng = generator(random_seed)
    distributions = tuple(own_distribution(table, model) for table in found)
    drawn = {distribution.table.name: distribution.sample(1, draws, rng) for distribution in distributions}
    return marked(posterior_groups(distributions, drawn, observations(found, model), model, names, rng))


def deterministics_of(
    model: pm.Model, found: tuple[Table, ...], var_names: Collection[str] | None = None
) -> tuple[str, ...]:
    """The names of the Deterministics that come along, in the model's order."""
    names = tuple(table.name for table in found)
    wanted = _checked_names(var_names, model, names)
    drawn = {model[name] for name in names if name in model.named_vars}
    possible = tuple(
        str(one.name) for one in model.deterministics if drawn & set(ancestors([one], blockers=model.observed_RVs))
    )
    if wanted is None:
        return possible
    if fixed := wanted - set(possible):
        raise ArgumentError(
            f"var_names has {min(fixed)!r}, which depends on none of {', '.join(map(repr, names))}, so the posterior "
            "says nothing about it. Leave it out."
        )
    return tuple(name for name in possible if name in wanted)


def _checked_names(
    var_names: Collection[str] | None, model: pm.Model, released: tuple[str, ...]
) -> frozenset[str] | None:
    """The Deterministics that `var_names` names, or None for no choice; names of tables are accepted and left out."""
    if var_names is None:
        return None
    if isinstance(var_names, str):
        raise ArgumentError(
            f"Expected var_names to be a list of names, got the text {var_names!r}: write [{var_names!r}]."
        )
    names = [str(deterministic.name) for deterministic in model.deterministics]
    for name in var_names:
        if name not in (*released, *names):
            near = difflib.get_close_matches(str(name), [*names, *released], n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise ArgumentError(f"var_names has {name!r}, which is not a Deterministic of the model.{hint}")
    # All tables always come along.
    return frozenset(var_names) - frozenset(released)


def _evaluated(
    model: pm.Model, names: tuple[str, ...], draws: dict[str, Array], *, known: dict[Node, Node] | None = None
) -> dict[str, Array]:
    """The values of these Deterministics at each draw: arrays of shape `(draws, ...)`.

    `known` has what stands in the place of other random variables.
    """
    if not names:
        return {}
    inputs = [model[name] for name in draws if name in model.named_vars]
    outputs = [model[name] for name in names]
    if known:
        outputs = graph_replace(outputs, known, strict=False)
    # The function runs in Python, because it runs once for each draw and a compiler would take seconds.
    function = compiled_plainly(inputs, outputs)
    arrays = [draws[str(variable.name)] for variable in inputs]
    rows = [function(*values) for values in zip(*arrays, strict=True)]
    return {name: np.stack([np.asarray(row[i]) for row in rows]) for i, name in enumerate(names)}
