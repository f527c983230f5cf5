"""What the privacy of a release has cost, measured on the data. All of it is confidential."""

import json

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr

from pymc_dirdp.checks import integer
from pymc_dirdp.curator.cost import realised, realised_by_row
from pymc_dirdp.curator.laws import Law, own_law, variable
from pymc_dirdp.curator.leave_one_out import elpd_by_cell, elpd_by_table
from pymc_dirdp.curator.marking import marked
from pymc_dirdp.curator.pointwise import observations
from pymc_dirdp.curator.posterior_tree import posterior_groups
from pymc_dirdp.curator.private_model import nuts as nuts_draws
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.mechanisms.base import TableMechanism, Tempered
from pymc_dirdp.models.observations import total_records
from pymc_dirdp.models.tables import Table, root_model, tables
from pymc_dirdp.privacy.adjacency import adjacency_named
from pymc_dirdp.progress import Bar
from pymc_dirdp.sampling.entropy import Seed, generator
from pymc_dirdp.stored.table import mechanism_of_table
from pymc_dirdp.stored.untrusted import refuse_confidential

__all__ = ["diagnose"]


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
    """What a release has cost in accuracy, for the eyes of whoever holds the data. **Confidential**.

    Everything in the result is computed from the observed data, which are in it too. The guarantee of the release does
    not cover it: do not publish it and do not let it decide what to publish. Nothing is written to disk.

    Parameters
    ----------
    release : xarray.DataTree
        A release from :func:`pymc_dirdp.sample`, also after `to_netcdf` and back.
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
        * `private`: independent draws of the law behind the release, `Dirichlet(r x + alpha)`.
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

    Raises
    ------
    ArgumentError
        If `release` is not a release, or not one of this model.
    UnsupportedModelError
        If the model holds something without a closed form, or a table was released by noise on its counts.
    DataError
        If the observations are not what the model says. The message never holds a value.

    Notes
    -----
    `log_likelihood` has a value for each observation of the model. Under the private law the likelihood is raised to
    the power `r`, as sensitivities and importance weights need it. So `arviz.loo(diagnosis["private"])` is about
    tempered observations, and about whole groups where an observation is a row of counts. The group `elpd` is about
    single untempered records, and so is :func:`pymc_dirdp.curator.leave_one_out.elpd`, made for `arviz.compare`. Where
    single observations would take more than 128 MB, `log_likelihood` holds their sum for each draw and
    `posterior_predictive` is left out; fewer draws bring them back.

    References
    ----------
    Theory, sections 1 and 8. Kallioinen et al. (2024), doi:10.1007/s11222-023-10366-5, for the sensitivities. Vehtari,
    Gelman and Gabry (2017), doi:10.1007/s11222-016-9696-4, for the leave-one-out densities.
    """
    draws, tune, chains = integer(100, draws=draws), integer(1, tune=tune), integer(1, chains=chains)
    model = root_model(model)
    own, private = _laws(release, model)
    rng = generator(random_seed)
    laws = {"non_private": own, "private": private}
    drawn = {
        name: {law.table.name: law.sample(chains, draws, rng) for law in several} for name, several in laws.items()
    }
    statistics = None
    if nuts:
        laws["nuts"] = private
        with Bar(chains * (draws + tune), "steps", shown=progressbar) as bar:
            drawn["nuts"], statistics = nuts_draws(private, draws=draws, tune=tune, chains=chains, rng=rng, bar=bar)
    kept = tuple(str(variable.name) for variable in model.deterministics if variable.name in release["posterior"])
    seen = observations([law.table for law in own], model)
    groups: dict[str, xr.Dataset] = {}
    for name, several in laws.items():
        of_one = posterior_groups(several, drawn[name], seen, model, kept, rng)
        groups |= {f"/{name}/{group}": dataset for group, dataset in of_one.items()}
    if statistics is not None:
        groups["/nuts/sample_stats"] = statistics
        groups["/convergence"] = _convergence(groups["/nuts/posterior"])
        groups["/agreement"] = _agreement(private, groups["/nuts/posterior"])
    groups["/sensitivity"] = _sensitivity(groups, list(laws))
    # The only category of a table has the probability 1, in every law and whatever is left out.
    varying = [i for i, law in enumerate(own) if law.table.n_categories > 1]
    cells = {
        own[i].table.name: elpd_by_cell(
            {name: several[i] for name, several in laws.items()},
            {name: drawn[name][own[i].table.name] for name in laws},
        )
        for i in varying
    }
    groups["/elpd"] = elpd_by_table(cells)
    groups["/elpd_by_cell"] = xr.Dataset(attrs={"n_samples": chains * draws})
    groups |= {f"/elpd_by_cell/{name}": dataset for name, dataset in cells.items()}
    groups["/release"] = release["posterior"].to_dataset()
    groups["/realised"] = realised(tuple(own[i] for i in varying), tuple(private[i] for i in varying), release, rng)
    for i in varying:
        groups[f"/realised_by_row/{own[i].table.name}"] = realised_by_row(own[i], private[i], release)
    return marked(groups)


def _laws(release: xr.DataTree, model: pm.Model) -> tuple[tuple[Law, ...], tuple[Law, ...]]:
    """The model's own posterior and the private one of each table. This function reads the counts."""
    refuse_confidential(release)
    if missing := {"posterior", "mechanism", "privacy", "utility"} - set(getattr(release, "children", ())):
        raise ArgumentError(
            f"Expected a release from pymc_dirdp.sample; it lacks the groups {', '.join(sorted(missing))}."
        )
    people = json.loads(release["privacy"].attrs["people"])
    own_tables = tables(model, public_prior=people["public_prior"])
    groups = {name: node.to_dataset() for name, node in release.children["mechanism"].children.items()}
    if [table.name for table in own_tables] != list(groups):
        raise _another_model("holds other tables")
    _refuse_several_tables(own_tables)
    own, private = [], []
    for table in own_tables:
        group = groups[table.name]
        mechanism, drawn = _tempered(table, group)
        _refuse_another_model(table, group, release, model)
        law = own_law(table, model)
        # The mechanism checks that the counts keep the promise of `min_count`.
        mechanism.check(law.counts)
        own.append(law)
        private.append(Law(table, law.counts, drawn.alpha, drawn.r))
    return tuple(own), tuple(private)


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


def _tempered(table: Table, group: xr.Dataset) -> tuple[TableMechanism, Tempered]:
    mechanism = mechanism_of_table(group)
    if mechanism.tempered is None:
        raise UnsupportedModelError(
            f"{table.name!r} was released by {type(mechanism).__name__}: its draws come from a posterior of noisy "
            "counts, not from a tempered posterior of the data. Only the Dirichlet mechanism can be diagnosed."
        )
    return mechanism, mechanism.tempered


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


def _agreement(private: tuple[Law, ...], posterior: xr.Dataset) -> xr.Dataset:
    with np.errstate(invalid="ignore"):
        error = az.mcse(posterior, method="mean")
    distances = {}
    for law in private:
        name = law.table.name
        u = law.concentration
        exact = variable(law.table, u / u.sum(axis=-1, keepdims=True))
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
