"""The conjugate tables that a model holds. No observed value is read in this file."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant

from pymc_dirdp.checks import positive_array
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.graph import Node, evaluate, is_random, operation, parameters, values_read
from pymc_dirdp.models.likelihoods import (
    Family,
    Kind,
    Likelihood,
    batch_shape,
    kind_of,
    refusal,
    route,
    stored_observations,
    trials_parameter,
)

__all__ = ["Likelihood", "Table", "root_model", "tables"]

_FAMILY_BY_OP: dict[type, Family] = {pm.Dirichlet.rv_type: "dirichlet", pm.Beta.rv_type: "beta"}

# These transforms change the coordinates in which a sampler moves. Any other one, such as `ordered`, restricts the law.
_HARMLESS_TRANSFORMS = (
    type(None),
    type(pm.distributions.transforms.simplex),
    type(pm.distributions.transforms.logodds),
)


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


def tables(model: pm.Model | None = None) -> tuple[Table, ...]:
    """The conjugate tables that a PyMC model holds, in the model's order.

    No observed value is read; where a prior is integrated out, the number of rows is the shape of the observations.

    Parameters
    ----------
    model : pymc.Model, optional
        The model on the context stack by default. A nested model stands for the whole that it is part of.

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
    """
    model = root_model(model)
    for potential in model.potentials:
        raise refusal(
            potential.name,
            "is a pm.Potential, which multiplies the posterior by something that is not a count",
            "Remove it, or write it as prior counts of the Dirichlet or Beta.",
        )
    for rv in model.observed_RVs:
        if type(rv.owner.op) in _FAMILY_BY_OP:
            raise refusal(rv.name, "is a parameter and is itself observed", "Leave it unobserved.")
    # This comes before the priors, because a missing value is a free variable whose own message would mislead.
    _refuse_missing_values(model)
    families = {rv: _family(rv, model) for rv in model.free_RVs}
    followers: dict[Node, list[Likelihood]] = {rv: [] for rv in families}
    integrated: dict[Node, Kind] = {}
    for rv in model.observed_RVs:
        kind = kind_of(rv)
        stored_observations(rv, model)
        _refuse_random_trials(rv, kind)
        if kind.probability is None:
            integrated[rv] = kind
            continue
        parameter, likelihood = route(rv, kind, families, model)
        followers[parameter].append(likelihood)
    for rv, likelihoods in followers.items():
        if not likelihoods:
            raise refusal(rv.name, "has no observed child, so there is nothing to release", "Observe data that use it.")
    held = [
        _integrated_table(rv, integrated[rv], model)
        if rv in integrated
        else _table(rv, families[rv], followers[rv], model)
        for rv in model.named_vars.values()
        if rv in integrated or rv in families
    ]
    if not held:
        raise refusal(model.name or "model", "has no Dirichlet or Beta variable", "There is nothing to release.")
    if all(table.n_categories == 1 for table in held):
        raise refusal(held[0].name, "has one category only, so there is nothing to estimate", "Declare at least two.")
    return tuple(held)


def root_model(model: pm.Model | None) -> pm.Model:
    """The model that was given or is on the context stack; for a nested one, the whole that it is part of."""
    try:
        return pm.modelcontext(model).root
    except (TypeError, AttributeError):
        raise ArgumentError(
            "Expected a PyMC model, got none. Pass it as `model=`, or make the call inside `with model:`."
        ) from None


def _refuse_missing_values(model: pm.Model) -> None:
    # PyMC replaces a masked variable by *_observed, *_unobserved and a Deterministic of the variable's own name.
    names = {deterministic.name for deterministic in model.deterministics}
    for rv in model.free_RVs:
        whole = str(rv.name).removesuffix("_unobserved")
        if whole != rv.name and whole in names:
            raise refusal(
                whole,
                "has missing values, which PyMC would impute",
                "Drop these records, or make `missing` a category of its own.",
            )


def _family(rv: Node, model: pm.Model) -> Family:
    """The family of a free variable, which has to be a Dirichlet or Beta with a prior of numbers."""
    family = _FAMILY_BY_OP.get(type(rv.owner.op))
    if family is None:
        predicts = any(variable.owner and type(variable.owner.op) in _FAMILY_BY_OP for variable in values_read(rv))
        raise refusal(
            rv.name,
            f"is an unobserved {operation(rv)} variable",
            "Observe it, or predict it from the release with sample_posterior_predictive."
            if predicts
            else "Only Dirichlet and Beta variables can be released; write its value as a number.",
        )
    transform = model.rvs_to_transforms.get(rv)
    if type(transform) not in _HARMLESS_TRANSFORMS:
        raise refusal(
            rv.name, f"has a transform that changes its law ({type(transform).__name__})", "Leave `transform=` out."
        )
    size, arguments = parameters(rv)
    for argument in arguments if size is None else (*arguments, size):
        _refuse_uncertain_prior(str(rv.name), argument, model)
    return family


def _refuse_random_trials(observed: Node, kind: Kind) -> None:
    if kind.trials is not None and any(map(is_random, values_read(trials_parameter(observed, kind)))):
        raise refusal(observed.name, "has a number of trials that is random", "Write `n` as numbers or pm.Data.")


def _table(rv: Node, family: Family, likelihoods: Iterable[Likelihood], model: pm.Model) -> Table:
    size, arguments = parameters(rv)
    batch = None if size is None else tuple(int(length) for length in evaluate(size))
    prior = _broadcast_prior(str(rv.name), family, arguments, batch)
    return _checked_table(str(rv.name), family, prior, str(rv.name), likelihoods, model)


def _integrated_table(observed: Node, kind: Kind, model: pm.Model) -> Table:
    """The table of a likelihood whose parameter is integrated out: every observation has its own row."""
    name = f"{observed.name}_p"
    if name in model.named_vars:
        raise refusal(
            observed.name, f"would be released as {name!r}, a name that is taken", f"Rename the variable {name!r}."
        )
    arguments = tuple(parameters(observed)[1][position] for position in kind.prior)
    for argument in arguments:
        _refuse_uncertain_prior(str(observed.name), argument, model)
    batch = batch_shape(observed, kind, model)
    prior = _broadcast_prior(str(observed.name), kind.family, arguments, batch)
    likelihood = Likelihood(str(observed.name), kind.name, tuple(range(len(batch))))
    return _checked_table(name, kind.family, prior, str(observed.name), [likelihood], model)


def _refuse_uncertain_prior(name: str, argument: Node, model: pm.Model) -> None:
    """A prior is public, so it may depend on numbers and on the lengths of dims only."""
    lengths = set(model.dim_lengths.values())
    for variable in values_read(argument):
        if is_random(variable):
            source = f"the random variable {variable.name!r}"
        elif isinstance(variable, SharedVariable) and variable not in lengths:
            source = f"the data {variable.name!r}"
        elif variable.owner is None and not isinstance(variable, Constant | SharedVariable):
            source = "a free input"
        else:
            continue
        raise refusal(name, f"has a prior that depends on {source}", "Write the prior as numbers.")


def _broadcast_prior(
    name: str, family: Family, arguments: Iterable[Node], batch: tuple[int, ...] | None
) -> NDArray[Any]:
    values = [evaluate(argument) for argument in arguments]
    try:
        pairs = np.stack(np.broadcast_arrays(*values), axis=-1) if family == "beta" else values[0]
        prior = pairs if batch is None else np.broadcast_to(pairs, (*batch, pairs.shape[-1]))
    except ValueError:
        raise refusal(name, "has a prior whose shape does not fit its rows", "Make the shapes agree.") from None
    return prior


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
            raise refusal(
                labelled_by, f"has another length along the dim {dim!r} than its labels", "Declare one for each entry."
            )
    return Table(name, family, prior, dims, coords, tuple(likelihoods))
