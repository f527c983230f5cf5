"""What the privacy of a release has cost, measured on the data. All of it is confidential."""

import json

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr

from pymc_dirdp.checks import integer
from pymc_dirdp.curator.confidential import marked
from pymc_dirdp.curator.leave_one_out import elpd_by_cell, elpd_by_table, observations
from pymc_dirdp.curator.leave_one_out import nuts as nuts_draws
from pymc_dirdp.curator.posterior import posterior_groups
from pymc_dirdp.curator.realised import (
    Distribution,
    errors_of_estimates,
    own_distribution,
    planned_numbers,
    realised,
    realised_by_row,
    variable,
)
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.models.observations import total_records
from pymc_dirdp.models.table import Table
from pymc_dirdp.models.tables import root_model, tables
from pymc_dirdp.privacy.people import adjacency_named
from pymc_dirdp.progress import Bar
from pymc_dirdp.releases.analysis import analyse
from pymc_dirdp.releases.opened import opened
from pymc_dirdp.sampling.bits import Seed, generator
from pymc_dirdp.signatures import user_facing

__all__ = ["diagnose"]

# What the group `guarantee` repeats of a release.
_GUARANTEE = ("statement", "protected", "adjacency", "draws")


@user_facing
def diagnose(
    release: xr.DataTree,
    model: pm.Model | None = None,
    *,
    draws: int = 1000,
    tune: int = 1000,
    chains: int = 4,
    nuts: bool = True,
    random_seed: Seed = None,
    progressbar: bool = True,
) -> xr.DataTree:
    """What a release has cost in accuracy, for the eyes of the curator. **Confidential**.

    Everything in the result is computed from the observed data, which are in it too. The guarantee of the release does
    not cover it: do not publish it and do not let it decide what to publish. Nothing is written to disk.

    Parameters
    ----------
    release : xarray.DataTree
        A release from :func:`pymc_dirdp.sample`, also from a file, see :func:`pymc_dirdp.load`.
    model : pymc.Model, optional
        The model that it was drawn from, with its data. The one on the context stack by default.
    draws : int, default 1000
        The number of draws of each chain, at least 100.
    tune : int, default 1000
        The number of steps of NUTS that are discarded in each chain.
    chains : int, default 4
        The number of chains of NUTS; for the closed forms, of blocks of independent draws.
    nuts : bool, default True
        Whether to let NUTS sample the private posterior too, which takes seconds.
    random_seed : int, SeedSequence, Generator or None
        A seed is harmless here, because nothing of the result is published.
    progressbar : bool, default True
        Whether to count the steps of NUTS in a bar, if they take over a second.

    Returns
    -------
    diagnosis : xarray.DataTree
        Marked by an attribute `confidential` of every group and variable. Three of its children are trees as ArviZ
        wants them, with the groups `posterior`, `prior`, `log_prior`, `log_likelihood`, `posterior_predictive` and
        `observed_data`:

        * `non_private`: independent draws of the model's own posterior, `Dirichlet(x + prior)`.
        * `private`: independent draws of the distribution behind the release, `Dirichlet(r x + alpha)`.
        * `nuts`: the private posterior again, by NUTS on the prior `alpha` with the likelihood to the power `r`, with
          `sample_stats`.

        Further groups:

        * `release`: the draws that were released.
        * `convergence`: for NUTS, by variable: R-hat, ESS of bulk and tail, Monte Carlo standard error of mean and sd.
        * `agreement`: means of NUTS less means in closed form, in Monte Carlo standard errors.
        * `sensitivity`: the sensitivity to the powers of the prior and of the likelihood, by posterior and variable.
        * `elpd` and `elpd_by_cell`: expected log predictive density of a record that was left out, by posterior and
          table, and its closed form.
        * `realised` and `realised_by_row`: the errors in nats, what was expected of them without the data, and how
          they rank among what was possible.
        * `estimated`: the same for the estimates of :func:`pymc_dirdp.estimate`, by table. Their mean and rank are
          those of fresh releases of the same data; NaN for tables of more than 1000 cells.
        * `cells`: the errors of every cell, by table. `bias_of_draw` is P1 equation 3, with its sign.
        * `guarantee`: what was guaranteed, which is public.

        Of a release in which a table was released by noise, `private` has the draws of :func:`pymc_dirdp.analyse`
        alone, and `nuts`, `realised`, and the sensitivity and `elpd` of a private posterior are left out, because
        there is no tempered posterior. :func:`pymc_dirdp.report` puts a diagnosis on one page.

    Raises
    ------
    ArgumentError
        If `release` is not a release, or not one of this model.
    UnsupportedModelError
        If the model holds something without a closed form.
    DataError
        If the observations are not what the model says. The message never holds a value.

    Notes
    -----
    `log_likelihood` has a value for each observation of the model. In the private posterior the likelihood is raised to
    the power `r`, as sensitivities and importance weights need it. So `arviz.loo(diagnosis["private"])` is about
    tempered observations, and about whole groups where an observation is a row of counts. The group `elpd` is about
    single untempered records, and so is :func:`pymc_dirdp.curator.leave_one_out.elpd`, made for `arviz.compare`. Where
    single observations would take more than 128 MB, `log_likelihood` holds their sum for each draw and
    `posterior_predictive` is left out; fewer draws bring them back.

    References
    ----------
    Theory, sections 1 and 8. Kallioinen et al. (2024), doi:10.1007/s11222-023-10366-5, for the sensitivities. Vehtari,
    Gelman and Gabry (2017), doi:10.1007/s11222-016-9696-4, for the leave-one-out densities.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> release = dirdp.sample(dirdp.ApproxDP(epsilon=0.7, delta=1e-6), model)
    >>> found = dirdp.diagnose(release, model, nuts=False, draws=100)
    >>> sorted(found.children)[:3]
    ['cells', 'elpd', 'elpd_by_cell']
    """
    draws, tune, chains = integer(100, draws=draws), integer(1, tune=tune), integer(1, chains=chains)
    model = root_model(model)
    own, private, mechanisms = _distributions(release, model)
    release = opened(release).tree
    rng = generator(random_seed)
    distributions = {"non_private": own}
    # Noise on counts leaves no tempered posterior, so what is about its distribution is left out.
    tempered = len(private) == len(own)
    if tempered:
        distributions["private"] = tuple(private.values())
    drawn = {
        name: {distribution.table.name: distribution.sample(chains, draws, rng) for distribution in several}
        for name, several in distributions.items()
    }
    statistics = None
    if nuts and tempered:
        distributions["nuts"] = distributions["private"]
        with Bar(chains * (draws + tune), "steps", shown=progressbar) as bar:
            drawn["nuts"], statistics = nuts_draws(
                distributions["nuts"], draws=draws, tune=tune, chains=chains, rng=rng, bar=bar
            )
    released = tuple(str(variable.name) for variable in model.deterministics if variable.name in release["posterior"])
    seen = observations([distribution.table for distribution in own], model)
    groups: dict[str, xr.Dataset] = {}
    for name, several in distributions.items():
        of_one = posterior_groups(several, drawn[name], seen, model, released, rng)
        groups |= {f"/{name}/{group}": dataset for group, dataset in of_one.items()}
    if statistics is not None:
        groups["/nuts/sample_stats"] = statistics
        groups["/convergence"] = _convergence(groups["/nuts/posterior"])
        groups["/agreement"] = _agreement(distributions["nuts"], groups["/nuts/posterior"])
    groups["/sensitivity"] = _sensitivity(groups, list(distributions))
    # The only category of a table has the probability 1, in every distribution and whatever is left out.
    varying = tuple(distribution for distribution in own if distribution.table.n_categories > 1)
    cells = {
        distribution.table.name: elpd_by_cell(
            {
                name: next(one for one in several if one.table is distribution.table)
                for name, several in distributions.items()
            },
            {name: drawn[name][distribution.table.name] for name in distributions},
        )
        for distribution in varying
    }
    groups["/elpd"] = elpd_by_table(cells)
    groups["/elpd_by_cell"] = xr.Dataset(attrs={"n_samples": chains * draws})
    groups |= {f"/elpd_by_cell/{name}": dataset for name, dataset in cells.items()}
    groups["/release"] = release["posterior"].to_dataset()
    if tempered:
        groups["/realised"] = realised(
            varying, tuple(private[distribution.table.name] for distribution in varying), release, rng
        )
        for distribution in varying:
            groups[f"/realised_by_row/{distribution.table.name}"] = realised_by_row(
                distribution, private[distribution.table.name], release
            )
    else:
        groups["/private/posterior"] = _posterior_given(release, private, chains * draws, rng)
    groups |= errors_of_estimates(varying, private, mechanisms, release, rng)
    groups["/guarantee"] = xr.Dataset(attrs={name: release["privacy"].attrs[name] for name in _GUARANTEE})
    return marked(groups)


def _distributions(
    release: xr.DataTree, model: pm.Model
) -> tuple[tuple[Distribution, ...], dict[str, Distribution], dict[str, TableMechanism]]:
    """The model's own posterior of each table; by table, the tempered one, if it has one, and the mechanism.

    This function reads the counts.
    """
    stored = opened(release)
    own_tables = tables(model, public_prior=stored.plan.reading.stated.public_prior)
    groups = {name: table.view for name, table in stored.tables.items()}
    if [table.name for table in own_tables] != list(groups):
        raise _another_model("holds other tables")
    _refuse_several_tables(own_tables)
    own, private, mechanisms = [], {}, {}
    for table in own_tables:
        group = groups[table.name]
        mechanism = mechanisms[table.name] = stored.tables[table.name].mechanism
        _refuse_another_model(table, group, stored.tree, model)
        distribution = own_distribution(table, model)
        # The mechanism checks that the counts keep the guarantee of `min_count`.
        mechanism.check(distribution.counts)
        own.append(distribution)
        if (drawn := mechanism.tempered) is not None:
            private[table.name] = Distribution(table, distribution.counts, drawn.alpha, drawn.r)
    return tuple(own), private, mechanisms


def _posterior_given(
    release: xr.DataTree, private: dict[str, Distribution], draws: int, rng: np.random.Generator
) -> xr.Dataset:
    """Draws given what was published, as anybody may draw them, table by table; none without a size to plan for."""
    try:
        numbers = planned_numbers(release, private)
        found = analyse(release, draws, chains=1, jointly=False, n_prior=numbers, random_seed=rng, progressbar=False)
    except ArgumentError:
        return xr.Dataset()
    posterior = found["posterior"].to_dataset()
    posterior.attrs = {}
    return posterior


def _refuse_several_tables(tables: tuple[Table, ...]) -> None:
    """Refuse an observed variable that feeds several tables: its log-likelihood belongs to none of them."""
    for table in tables:
        for likelihood in table.likelihoods:
            if likelihood.view is not None and not likelihood.view.inside.all():
                raise UnsupportedModelError(
                    f"{likelihood.name!r} feeds {table.name!r} and other tables at once, so its log-likelihood belongs "
                    "to no single one. Make one variable of them with a row for each, or one observed variable for "
                    "each."
                )


def _refuse_another_model(table: Table, group: xr.Dataset, release: xr.DataTree, model: pm.Model) -> None:
    if group.attrs["family"] != table.family or not np.array_equal(group["prior"].values, table.prior):
        raise _another_model(f"has another prior for {table.name!r}")
    if json.loads(group.attrs["observed"]) != [likelihood.name for likelihood in table.likelihoods]:
        raise _another_model(f"observes {table.name!r} by other variables")
    if adjacency_named(str(group.attrs["adjacency"])).records_are_public:
        planned = release["utility"]["n_records"].sel(table=table.name)
        if float(planned) != total_records(table, model):
            raise _another_model(f"has another number of records for {table.name!r}")


def _another_model(reason: str) -> ArgumentError:
    return ArgumentError(
        f"The release is not one of this model, which {reason}. Pass the model that it was drawn from."
    )


def _convergence(posterior: xr.Dataset) -> xr.Dataset:
    # The shares in a table of one category do not vary, and have no R-hat: NaN.
    with np.errstate(invalid="ignore", divide="ignore"):
        results = {
            "r_hat": az.rhat(posterior),
            "ess_bulk": az.ess(posterior, method="bulk"),
            "ess_tail": az.ess(posterior, method="tail"),
            "mcse_mean": az.mcse(posterior, method="mean"),
            "mcse_sd": az.mcse(posterior, method="sd"),
        }
    whole: xr.Dataset = xr.concat(list(results.values()), dim="diagnostic")
    return whole.assign_coords(diagnostic=list(results))


def _agreement(private: tuple[Distribution, ...], posterior: xr.Dataset) -> xr.Dataset:
    with np.errstate(invalid="ignore"):
        error = az.mcse(posterior, method="mean")
    distances = {}
    for distribution in private:
        name = distribution.table.name
        u = distribution.concentration
        exact = variable(distribution.table, u / u.sum(axis=-1, keepdims=True))
        with np.errstate(invalid="ignore"):
            distances[name] = (posterior[name].mean(["chain", "draw"]) - exact) / error[name]
    return xr.Dataset(distances)


def _sensitivity(groups: dict[str, xr.Dataset], names: list[str]) -> xr.Dataset:
    components, by_posterior = ["prior", "likelihood"], []
    for name in names:
        parts = ("posterior", "log_prior", "log_likelihood")
        tree = xr.DataTree.from_dict({f"/{part}": groups[f"/{name}/{part}"] for part in parts})
        by_posterior.append(xr.concat([_scaled(tree, component) for component in components], dim="component"))
    whole: xr.Dataset = xr.concat(by_posterior, dim="posterior")
    return whole.assign_coords(posterior=names, component=components)


def _scaled(tree: xr.DataTree, component: str) -> xr.Dataset:
    density = tree[f"log_{component}"].to_dataset()
    # Without a record the likelihood is the same for all draws, and nothing depends on its power. ArviZ finds no tail.
    if all(np.ptp(values.values) == 0 for values in density.data_vars.values()):
        return xr.zeros_like(tree["posterior"].to_dataset().mean(["chain", "draw"]))
    # A Deterministic may be infinite at some draw, and then has no sensitivity: NaN.
    with np.errstate(invalid="ignore"):
        sensitivity: xr.Dataset = az.psense(tree, group=component)
    return sensitivity
