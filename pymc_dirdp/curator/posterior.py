"""The exact posterior of a model, without privacy. Results are confidential."""

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer
from pymc_dirdp.curator.confidential import marked
from pymc_dirdp.curator.observed import Observed, axes_of, observations
from pymc_dirdp.curator.realised import Distribution, exact_posterior_of, variable
from pymc_dirdp.models.graph import compile_plain
from pymc_dirdp.models.table import Table
from pymc_dirdp.models.tables import root_model, tables
from pymc_dirdp.releases.arviz_groups import LabelledArrays, dataset_of, sample_axes
from pymc_dirdp.releases.axes import share_labels
from pymc_dirdp.sampling.bits import Seed, generator
from pymc_dirdp.signatures import user_facing


def posterior_groups(
    distributions: tuple[Distribution, ...],
    draws_by_name: dict[str, Array],
    observations: dict[str, tuple[Observed, ...]],
    model: pm.Model,
    rng: np.random.Generator,
) -> dict[str, xr.Dataset]:
    """The groups of one posterior for ArviZ, by name.

    For each table, `draws_by_name` has its draws, shape `(chains, draws, *table.shape)`, and `observations` has the
    observed variables that feed it. Deterministics that depend on tables are included.

    The log-density of the posterior is the sum of `log_prior` and `log_likelihood`, which sensitivity analyses and
    importance weights need. Under the private distribution the likelihood is raised to the power `r`. The density is in
    the coordinates of samplers, see :meth:`Distribution.log_prior`.
    """
    chains, draws = next(iter(draws_by_name.values())).shape[:2]
    lead = sample_axes(chains, draws)
    groups: dict[str, LabelledArrays] = {"posterior": {}, "prior": {}, "log_prior": {}}
    for distribution in distributions:
        table, name = distribution.table, distribution.table.name
        axes = share_labels(table)
        prior = distribution.sample_prior(chains, draws, rng)
        groups["posterior"][name] = variable(table, draws_by_name[name]), (*lead, *axes)
        groups["prior"][name] = variable(table, prior), (*lead, *axes)
        rows = axes if table.family == "beta" else axes[:-1]
        groups["log_prior"][name] = distribution.log_prior(draws_by_name[name]), (*lead, *rows)
    names = deterministics_of(model, tuple(distribution.table for distribution in distributions))
    for group in ("posterior", "prior") if names else ():
        groups[group] |= _formulas(model, names, groups[group])
    observed = _observed_groups(distributions, draws_by_name, observations, rng)
    return {name: dataset_of(arrays) for name, arrays in groups.items()} | observed


def _observed_groups(
    distributions: tuple[Distribution, ...],
    draws_by_name: dict[str, Array],
    observations: dict[str, tuple[Observed, ...]],
    rng: np.random.Generator,
    *,
    max_values: int = 2**24,
) -> dict[str, xr.Dataset]:
    """The groups of observed data, log-likelihoods and replicates.

    The log-likelihood of single observations may take up to `max_values` values (128 MB), and so may replicates.
    """
    chains, draws = next(iter(draws_by_name.values())).shape[:2]
    lead = sample_axes(chains, draws)
    triples = [
        (distribution.power, draws_by_name[distribution.table.name], observed)
        for distribution in distributions
        for observed in observations[distribution.table.name]
    ]
    too_large = chains * draws * sum(observed.values.size for _, _, observed in triples) > max_values
    groups: dict[str, LabelledArrays] = {"observed_data": {}, "log_likelihood": {}}
    groups |= {} if too_large else {"posterior_predictive": {}}
    for power, p, observed in triples:
        groups["observed_data"][observed.variable.name] = observed.values, observed.axes
        if too_large:
            groups["log_likelihood"][observed.variable.name] = power * observed.total_log_likelihood(p), lead
        else:
            axes = (*lead, *observed.axes[: observed.row.ndim])
            groups["log_likelihood"][observed.variable.name] = power * observed.log_likelihood(p), axes
            groups["posterior_predictive"][observed.variable.name] = observed.replicate(p, rng), (*lead, *observed.axes)
    datasets = {name: dataset_of(arrays) for name, arrays in groups.items()}
    datasets["log_likelihood"].attrs = {f"power_{observed.variable.name}": power for power, _, observed in triples}
    if too_large:
        reason = "over all observations, because there are too many to hold one by one"
        datasets["log_likelihood"].attrs["summed"] = reason
    return datasets


def _formulas(model: pm.Model, names: tuple[str, ...], labelled_draws: LabelledArrays) -> LabelledArrays:
    """The values of these Deterministics at all draws of the tables: shape `(chains, draws, ...)`."""
    inputs = [model[name] for name in labelled_draws if name in model.named_vars]
    observed = {variable: model.rvs_to_values[variable] for variable in model.observed_RVs}
    # It runs once for each draw in Python, because compilation would take seconds.
    function = compile_plain(inputs, graph_replace([model[name] for name in names], observed, strict=False))
    draws = [labelled_draws[str(variable.name)][0] for variable in inputs]
    flat = [values.reshape(-1, *values.shape[2:]) for values in draws]
    rows = [function(*of_draw) for of_draw in zip(*flat, strict=True)]
    columns = [np.stack(column) for column in zip(*rows, strict=True)]
    chains, n = draws[0].shape[:2]
    return {
        name: (
            column.reshape(chains, n, *column.shape[1:]),
            (*sample_axes(chains, n), *axes_of(name, column[0], model)),
        )
        for name, column in zip(names, columns, strict=True)
    }


@user_facing
def exact_posterior(
    model: pm.Model | None = None,
    draws: int = 4000,
    *,
    random_seed: Seed = None,
) -> xr.DataTree:
    """Independent draws from the posterior of a model itself, **without any privacy**, by conjugacy. **Confidential**.

    They have the same distribution as those of `pm.sample` for the same model, without a sampler's error. No guarantee
    covers them. Do not publish them, and do not base decisions on what to publish on them. For a private draw, see
    :func:`pymc_dirdp.sample`.

    Parameters
    ----------
    model : pymc.Model, optional
        A model that :func:`pymc_dirdp.tables` can read; by default the one on the context stack.
    draws : int, default 4000
        The number of draws. They are independent, so this is also the effective sample size.
    random_seed : int, SeedSequence, Generator or None
        A seed does not affect privacy here, because you do not publish the result.

    Returns
    -------
    posterior : xarray.DataTree
        The groups that ArviZ reads, with the names, dims and labels of the model: `posterior`, `prior`, `log_prior`,
        `log_likelihood`, `posterior_predictive` and `observed_data`. Deterministics that depend on the Dirichlet and
        Beta variables are included. Every group and variable has an attribute `confidential`, and no function of this
        library accepts the tree as a release.

    Raises
    ------
    UnsupportedModelError
        If the posterior is not known to be a product of Dirichlet or Beta distributions. It names the variable.
    ArgumentError
        If there is no model.
    DataError
        If the observations do not fit the model. The message has no value.

    Notes
    -----
    The posterior of each row is `Dirichlet(x + prior)`, with the counts `x` of the records in its cells.

    If single observations would take more than 128 MB, `log_likelihood` holds their sum for each draw and
    `posterior_predictive` is left out. Ask for fewer draws to include them.

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
    found_tables = tables(model)
    rng = generator(random_seed)
    distributions = tuple(exact_posterior_of(table, model) for table in found_tables)
    draws_by_table = {distribution.table.name: distribution.sample(1, draws, rng) for distribution in distributions}
    return marked(posterior_groups(distributions, draws_by_table, observations(found_tables, model), model, rng))


def deterministics_of(model: pm.Model, found_tables: tuple[Table, ...]) -> tuple[str, ...]:
    """The names of the Deterministics that depend on tables, in the model's order."""
    variables = {model[table.name] for table in found_tables if table.name in model.named_vars}
    return tuple(
        str(formula.name)
        for formula in model.deterministics
        if variables & set(ancestors([formula], blockers=model.observed_RVs))
    )
