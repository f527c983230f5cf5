"""The conjugate tables that a model holds. No observed value is read in this file."""

from collections.abc import Collection, Iterable
from typing import Any

import pymc as pm
from numpy.typing import NDArray

from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.models.chains import unrolled
from pymc_dirdp.models.graph import Node, evaluate, is_random, lowered, parameters, values_read
from pymc_dirdp.models.likelihood_routing import route
from pymc_dirdp.models.likelihoods import (
    Kind,
    batch_shape,
    broadcast_prior,
    checked_family,
    family_of,
    kind_of,
    prior_of,
    refuse_uncertain_prior,
    stored_observations,
    trials_parameter,
)
from pymc_dirdp.models.refusals import refusal
from pymc_dirdp.models.table import Family, Likelihood, Table
from pymc_dirdp.privacy.guarantees import Guarantee

__all__ = ["root_model", "tables"]


def tables(model: pm.Model | None = None, *, public_prior: Collection[str] = ()) -> tuple[Table, ...]:
    """The conjugate tables that a PyMC model holds, in the model's order.

    No observed value is read; where a prior is integrated out, the number of rows is the shape of the observations.

    Parameters
    ----------
    model : pymc.Model, optional
        The model on the context stack by default. A nested model stands for the whole that it is part of.
    public_prior : collection of str, default ()
        The `pm.Data` in priors that anybody may know.

    Returns
    -------
    tuple of Table
        It holds at least one table.

    Raises
    ------
    UnsupportedModelError
        If the model holds anything for which the posterior is not known to be a product of Dirichlet or Beta
        distributions of prior plus counts. It names the variable, the reason and a way out.
    ArgumentError
        If there is no model, or a prior is not positive.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> [(table.name, table.dims) for table in dirdp.tables(model)]
    [('p', ('hair',))]
    """
    model = root_model(model)
    for potential in model.potentials:
        raise refusal("potential", potential.name)
    for rv in model.observed_RVs:
        if family_of(rv) is not None:
            raise refusal("observed parameter", rv.name)
    # This comes before the priors, because a missing value is a free variable whose own message would mislead.
    _refuse_missing_values(model)
    for name in public_prior:
        one_of([str(data.name) for data in model.data_vars], **{"pm.Data in public_prior": name})
    families = {rv: checked_family(rv, model, public_prior) for rv in model.free_RVs}
    followers: dict[Node, list[Likelihood]] = {rv: [] for rv in families}
    integrated: dict[Node, Kind] = {}
    for rv in model.observed_RVs:
        kind = kind_of(rv)
        stored_observations(rv, model)
        _refuse_random_trials(rv, kind)
        if kind.probability is None:
            integrated[rv] = kind
            continue
        for parameter, likelihood in route(rv, kind, families, model).likelihoods:
            followers[parameter].append(likelihood)
    for rv, likelihoods in followers.items():
        if not likelihoods:
            raise refusal("no child", rv.name)
    occupied = [
        _integrated_table(rv, integrated[rv], model, public_prior)
        if rv in integrated
        else _table(rv, families[rv], followers[rv], model)
        for rv in model.named_vars.values()
        if rv in integrated or rv in families
    ]
    if not occupied:
        raise refusal("nothing", model.name or "model")
    if all(table.n_categories == 1 for table in occupied):
        raise refusal("one category", occupied[0].name)
    return tuple(occupied)


def root_model(model: pm.Model | None) -> pm.Model:
    """The model that was given or is on the context stack; for a nested one, the whole that it is part of."""
    if isinstance(model, Guarantee):
        raise ArgumentError(
            f"Expected a PyMC model, got the guarantee {type(model).__name__}. The guarantee comes first, then the "
            "model."
        )
    if not isinstance(model, pm.Model | None):
        raise ArgumentError(
            f"Expected a PyMC model, got {type_name(model)}. Pass the model as `model=`, or make the call inside "
            "`with model:`."
        )
    try:
        found = pm.modelcontext(model)
    except TypeError:
        raise ArgumentError(
            "Expected a PyMC model, got none. Pass it as `model=`, or make the call inside `with model:`."
        ) from None
    return unrolled(lowered(found.root))


def _refuse_missing_values(model: pm.Model) -> None:
    # PyMC replaces a masked variable by *_observed, *_unobserved and a Deterministic of the variable's own name.
    names = {deterministic.name for deterministic in model.deterministics}
    for rv in model.free_RVs:
        whole = str(rv.name).removesuffix("_unobserved")
        if whole != rv.name and whole in names:
            raise refusal("missing values", whole)


def _refuse_random_trials(observed: Node, kind: Kind) -> None:
    if kind.trials is not None and any(map(is_random, values_read(trials_parameter(observed, kind)))):
        raise refusal("random trials", observed.name)


def _table(rv: Node, family: Family, likelihoods: Iterable[Likelihood], model: pm.Model) -> Table:
    return _checked_table(str(rv.name), family, prior_of(rv), str(rv.name), likelihoods, model)


def _integrated_table(observed: Node, kind: Kind, model: pm.Model, public_prior: Collection[str]) -> Table:
    """The table of a likelihood whose parameter is integrated out: every observation has its own row."""
    name = f"{observed.name}_p"
    if name in model.named_vars:
        raise refusal("name taken", observed.name, released=name)
    arguments = tuple(parameters(observed)[1][position] for position in kind.prior)
    for argument in arguments:
        refuse_uncertain_prior(str(observed.name), argument, model, public_prior)
    batch = batch_shape(observed, kind, model)
    prior = broadcast_prior(str(observed.name), kind.family, map(evaluate, arguments), batch)
    likelihood = Likelihood(str(observed.name), kind.name, tuple(range(len(batch))))
    return _checked_table(name, kind.family, prior, str(observed.name), [likelihood], model)


def _checked_table(
    name: str, family: Family, prior: NDArray[Any], labelled_by: str, likelihoods: Iterable[Likelihood], model: pm.Model
) -> Table:
    """The table, with the dims and coords of the variable `labelled_by`."""
    dims = model.named_vars_to_dims.get(labelled_by)
    dims = None if dims is None else tuple(dims)
    coords = {dim: model.coords[dim] for dim in dims or () if dim is not None}
    released_shape = prior.shape if family == "dirichlet" else prior.shape[:-1]
    for dim, length in zip(dims or (), released_shape, strict=dims is not None):
        labels = coords.get(dim)
        if labels is not None and len(labels) != length:
            raise refusal("labels", labelled_by, dim=dim)
    return Table(name, family, prior, dims, coords, tuple(likelihoods))
