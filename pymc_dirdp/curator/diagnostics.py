"""The cost of privacy of a release, measured on the data. Results are confidential."""

import numpy as np
import pymc as pm
import xarray as xr

from pymc_dirdp.checks import integer
from pymc_dirdp.curator.confidential import marked
from pymc_dirdp.curator.observed import observations
from pymc_dirdp.curator.posterior import posterior_groups
from pymc_dirdp.curator.realised import Distribution, errors_of, exact_posterior_of, planned_numbers
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.models.table import Table
from pymc_dirdp.models.tables import root_model
from pymc_dirdp.releases.analysis import analyse
from pymc_dirdp.releases.opened import LoadedRelease, Published, open_release
from pymc_dirdp.releases.plan import tables_as_planned
from pymc_dirdp.releases.view import view
from pymc_dirdp.sampling.bits import Seed, generator
from pymc_dirdp.signatures import user_facing


@user_facing
def diagnose(
    release: Published,
    model: pm.Model | None = None,
    *,
    draws: int = 1000,
    chains: int = 4,
    random_seed: Seed = None,
) -> xr.DataTree:
    """Compare a release with the data behind it, for the curator only. **Confidential**.

    The result is computed from the observed data and contains them, and no guarantee covers it. Do not publish it, and
    do not base decisions on what to publish on it. Nothing is written to disk.

    Parameters
    ----------
    release : xarray.DataTree
        A release from :func:`sample` or :func:`load`.
    model : pymc.Model, optional
        The model of the release, with its data; by default the one on the context stack.
    draws : int, default 1000
        The number of draws of each chain, at least 100.
    chains : int, default 4
        The number of blocks of independent draws, which ArviZ treats as chains.
    random_seed : int, SeedSequence, Generator or None
        A seed does not affect privacy here, because you do not publish the result.

    Returns
    -------
    diagnosis : xarray.DataTree
        Every group and variable has the attribute `confidential`.

        * `non_private`: draws of the model's own posterior, with the groups that ArviZ reads.
        * `private`: draws of the distribution behind the release, or given its noisy counts.
        * `release`: the released draws; `guarantee`: the public guarantee.
        * `realised`: errors in nats by table, errors expected without the data, and the rank among fresh releases.
        * `cells`: the errors of every cell, by table; `bias_of_draw` is P1 equation 3.

    Raises
    ------
    ArgumentError
        If `release` is not a release.
    UnsupportedModelError
        If the release is not one of this model, or the model has a part without a closed form.
    DataError
        If the observations do not fit the model. The message has no value.

    Notes
    -----
    `log_likelihood` has a value for each observation, multiplied by `r` under `private`. So use `arviz.loo` with
    `non_private`. Above 128 MB it holds sums, and `posterior_predictive` is left out. Theory, sections 1 and 8.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> release = dirdp.sample(dirdp.ApproxDP(epsilon=0.7, delta=1e-6), model)
    >>> sorted(dirdp.diagnose(release, model, draws=100).children)[:3]
    ['cells', 'guarantee', 'non_private']
    """
    draws, chains = integer(100, draws=draws), integer(1, chains=chains)
    model = root_model(model)
    stored, rng = open_release(release), generator(random_seed)
    exact_posteriors, private = _distributions(stored, model)
    distributions = {"non_private": exact_posteriors}
    # Noise on counts has no tempered posterior, so leave out the groups about it.
    if tempered := len(private) == len(exact_posteriors):
        distributions["private"] = tuple(private.values())
    draws_by_table = {
        name: {distribution.table.name: distribution.sample(chains, draws, rng) for distribution in several}
        for name, several in distributions.items()
    }
    observed = observations([distribution.table for distribution in exact_posteriors], model)
    groups: dict[str, xr.Dataset] = {}
    for name, several in distributions.items():
        table_groups = posterior_groups(several, draws_by_table[name], observed, model, rng)
        groups |= {f"/{name}/{group}": dataset for group, dataset in table_groups.items()}
    release_view = view(stored)
    groups["/release"] = release_view["posterior"].to_dataset()
    if not tempered:
        groups["/private/posterior"] = _posterior_given(release, chains * draws, rng)
    # A table with a single category has no errors.
    varying = tuple(distribution for distribution in exact_posteriors if distribution.table.n_categories > 1)
    groups |= errors_of(release, varying, private, rng)
    public = release_view["privacy"].attrs
    groups["/guarantee"] = xr.Dataset(
        attrs={name: public[name] for name in ("statement", "protected", "adjacency", "released_draws")}
    )
    return marked(groups)


def _distributions(stored: LoadedRelease, model: pm.Model) -> tuple[tuple[Distribution, ...], dict[str, Distribution]]:
    """The model's own posterior of each table, and the tempered posteriors by table. This function reads the counts."""
    own_tables = tables_as_planned(stored.plan, model)
    _refuse_several_tables(own_tables)
    distributions, private = [], {}
    for table in own_tables:
        distribution, mechanism = exact_posterior_of(table, model), stored.tables[table.name].mechanism
        # Check that the counts satisfy `min_count`.
        mechanism.check(distribution.counts)
        distributions.append(distribution)
        if (tempered := mechanism.tempered) is not None:
            private[table.name] = Distribution(table, distribution.counts, tempered.alpha, tempered.r)
    return tuple(distributions), private


def _posterior_given(release: Published, draws: int, rng: np.random.Generator) -> xr.Dataset:
    """Draws given the published output, table by table; none if the plan has no number of records."""
    try:
        numbers = planned_numbers(release)
        analysis = analyse(
            release, draws, chains=1, same_records=False, n_prior=numbers, random_seed=rng, progressbar=False
        )
    except ArgumentError:
        return xr.Dataset()
    return analysis["posterior"].to_dataset()


def _refuse_several_tables(tables: tuple[Table, ...]) -> None:
    """Refuse an observed variable that feeds several tables: its log-likelihood belongs to none of them."""
    for table in tables:
        for likelihood in table.likelihoods:
            if likelihood.view is not None and not likelihood.view.inside.all():
                raise UnsupportedModelError(
                    f"{likelihood.name!r} feeds {table.name!r} and other tables at once, so its log-likelihood belongs "
                    "to no single one. Define one variable with a row for each table, or one observed variable for "
                    "each."
                )
