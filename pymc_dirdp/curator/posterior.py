"""The exact posterior of a model without any privacy, by conjugacy. All of it is confidential."""

from collections.abc import Collection

import pymc as pm
import xarray as xr
from pytensor.graph.traversal import ancestors

from pymc_dirdp.checks import integer
from pymc_dirdp.curator.laws import own_law
from pymc_dirdp.curator.marking import marked
from pymc_dirdp.curator.pointwise import observations
from pymc_dirdp.curator.posterior_tree import posterior_groups
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.table import Table
from pymc_dirdp.models.tables import root_model, tables
from pymc_dirdp.releases.deterministics import checked_names
from pymc_dirdp.sampling.entropy import Seed, generator

__all__ = ["exact_posterior"]


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
    kept = _deterministics(model, found, var_names)
    rng = generator(random_seed)
    laws = tuple(own_law(table, model) for table in found)
    drawn = {law.table.name: law.sample(1, draws, rng) for law in laws}
    return marked(posterior_groups(laws, drawn, observations(found, model), model, kept, rng))


def _deterministics(model: pm.Model, found: tuple[Table, ...], var_names: Collection[str] | None) -> tuple[str, ...]:
    """The names of the Deterministics that come along, in the model's order."""
    names = tuple(table.name for table in found)
    wanted = checked_names(var_names, model, names)
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
