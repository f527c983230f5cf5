"""The conjugate tables that a model holds. No observed value is read in this file."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray

from pymc_dirdp.checks import one_of, positive_array
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.models.chains import unrolled
from pymc_dirdp.models.graph import Node, evaluate, is_random, parameters, values_read
from pymc_dirdp.models.likelihoods import (
    Kind,
    Likelihood,
    batch_shape,
    kind_of,
    stored_observations,
    trials_parameter,
)
from pymc_dirdp.models.lowered import lowered
from pymc_dirdp.models.priors import (
    Family,
    broadcast_prior,
    checked_family,
    family_of,
    prior_of,
    refuse_uncertain_prior,
)
from pymc_dirdp.models.refusals import refusal
from pymc_dirdp.models.routes import route
from pymc_dirdp.privacy.promise import Guarantee

__all__ = ["Likelihood", "Table", "root_model", "tables"]


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """The public facts about one table of counts and its conjugate prior.

    A table holds no graph, no model and no data, and can be pickled. Two tables are equal if all their facts are equal.

    Attributes
    ----------
    name : str
        The variable that is released: the Dirichlet or Beta variable, or `f"{observed}_p"` for a
        `pm.DirichletMultinomial` or `pm.BetaBinomial`, where it is integrated out.
    family : {"dirichlet", "beta"}
        The family of the prior.
    prior : ndarray of float64, shape (..., d), read-only
        The parameters of the prior, one for each cell of the table. A Beta has d = 2: success, then failure. With
        d = 1 every share is 1, whatever the data are, so a release says nothing of them and spends nothing on it.
    dims : tuple of (str or None), or None
        PyMC's dims of the released variable. The categories of a Beta are no axis of it.
    coords : mapping of str to tuple or None
        The labels of these dims; None for a dim without labels.
    likelihoods : tuple of Likelihood
        The observed variables whose records are counted. With several, a person's records may be in each of them.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> (table,) = dirdp.tables(model)
    >>> table.prior
    array([1., 1., 1., 1.])
    """

    name: str
    family: Family
    prior: NDArray[np.float64]
    dims: tuple[str | None, ...] | None = None
    coords: Mapping[str, tuple[Any, ...] | None] = field(default_factory=dict)
    likelihoods: tuple[Likelihood, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", positive_array(fewest=1, **{f"the prior of {self.name!r}": self.prior}))
        object.__setattr__(self, "coords", MappingProxyType(dict(self.coords)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the table of counts, categories last."""
        return self.prior.shape

    @property
    def n_rows(self) -> int:
        """The number of vectors of probabilities."""
        return math.prod(self.shape[:-1])

    @property
    def n_categories(self) -> int:
        """The number of cells of a row."""
        return self.shape[-1]

    def _facts(self) -> tuple[Any, ...]:
        return self.name, self.family, self.dims, dict(self.coords), self.likelihoods

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Table):
            return NotImplemented
        return self._facts() == other._facts() and np.array_equal(self.prior, other.prior)

    def __hash__(self) -> int:
        return hash((self.name, self.family, self.shape, self.dims, self.likelihoods))

    def __reduce__(self) -> tuple[Any, ...]:
        # It is made again by __init__, because pickle forgets that an array is read-only.
        return Table, (self.name, self.family, np.array(self.prior), self.dims, dict(self.coords), self.likelihoods)

    def __repr__(self) -> str:
        observed = ", ".join(repr(likelihood.name) for likelihood in self.likelihoods)
        return f"Table({self.name!r}, {self.family}, shape={self.shape}, observed as {observed})"


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
    held = [
        _integrated_table(rv, integrated[rv], model, public_prior)
        if rv in integrated
        else _table(rv, families[rv], followers[rv], model)
        for rv in model.named_vars.values()
        if rv in integrated or rv in families
    ]
    if not held:
        raise refusal("nothing", model.name or "model")
    if all(table.n_categories == 1 for table in held):
        raise refusal("one category", held[0].name)
    return tuple(held)


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
