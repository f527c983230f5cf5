"""The likelihoods that are conjugate to a Dirichlet or Beta prior, and how the released variables reach one."""

from dataclasses import dataclass

import pymc as pm
from pymc.variational.minibatch_rv import MinibatchRandomVariable

from pymc_dirdp.models.graph import Node, operation, parameters, stored_array, stored_shape
from pymc_dirdp.models.refusals import refusal
from pymc_dirdp.models.table import Family, KindName

__all__ = [
    "KINDS",
    "Kind",
    "batch_shape",
    "kind_of",
    "probability_of",
    "stored_observations",
    "trials_parameter",
]


@dataclass(frozen=True)
class Kind:
    """The facts that have to be known about a distribution of discrete data.

    Attributes
    ----------
    name : str
        What the documentation calls it.
    family : {"dirichlet", "beta"}
        The conjugate prior.
    trials : int or None
        Which of its parameters is the number of trials; None where each observation is one record.
    probability : int or None
        Which of its parameters is the probability; None where the prior is already integrated out.
    prior : tuple of int
        Which of its parameters are those of the prior that is integrated out.
    core : int
        How many axes one observation has: 1 for a vector of counts, 0 for a number.
    """

    name: KindName
    family: Family
    trials: int | None
    probability: int | None
    prior: tuple[int, ...]
    core: int


_KIND_BY_OP: dict[type, Kind] = {
    pm.Multinomial.rv_type: Kind("multinomial", "dirichlet", trials=0, probability=1, prior=(), core=1),
    pm.Categorical.rv_type: Kind("categorical", "dirichlet", trials=None, probability=0, prior=(), core=0),
    pm.DirichletMultinomial.rv_type: Kind(
        "dirichlet-multinomial", "dirichlet", trials=0, probability=None, prior=(1,), core=1
    ),
    pm.Binomial.rv_type: Kind("binomial", "beta", trials=0, probability=1, prior=(), core=0),
    pm.Bernoulli.rv_type: Kind("bernoulli", "beta", trials=None, probability=0, prior=(), core=0),
    pm.BetaBinomial.rv_type: Kind("beta-binomial", "beta", trials=0, probability=None, prior=(1, 2), core=0),
}
KINDS: dict[KindName, Kind] = {kind.name: kind for kind in _KIND_BY_OP.values()}


# Distributions of which it can be said why they are not supported.
_UNBOUNDED = (pm.Geometric.rv_type, pm.NegativeBinomial.rv_type)
_WITH_COMPONENTS = ("Mixture", "Hurdle", "ZeroInflated")
_HIDING = ("Censored", "Truncated", "Clip")


def kind_of(observed: Node) -> Kind:
    """The kind of an observed variable."""
    # The exact class of the op decides: a name says nothing, and a subclass may have another likelihood.
    op = observed.owner.op
    if type(op) in _KIND_BY_OP:
        return _KIND_BY_OP[type(op)]
    # Each record would count total_size / size times, which no sensitivity covers.
    if isinstance(op, MinibatchRandomVariable):
        raise refusal("total size", observed.name)
    called = operation(observed)
    key = "not conjugate"
    if isinstance(op, _UNBOUNDED):
        key = "unbounded trials"
    elif any(word in called for word in _WITH_COMPONENTS):
        key = "hidden component"
    elif any(word in called for word in _HIDING):
        key = "hidden values"
    raise refusal(key, observed.name, operation=called)


def stored_observations(observed: Node, model: pm.Model) -> Node:
    """The stored array, or the part of one, that holds the observations as they were given; its value is not read.

    PyMC casts a `pm.Data` of floats to integers; this is the variable behind the cast.
    """
    # With a transform, the likelihood would be one of the transformed values.
    if model.rvs_to_transforms.get(observed) is not None:
        raise refusal("transformed observations", observed.name)
    value = model.rvs_to_values[observed]
    source = stored_array(value, through_rounding=True)
    # A computation may count one record many times, or (pm.Minibatch) draw records at random.
    if source is None:
        raise refusal("computed observations", observed.name, operation=operation(value))
    return source


def batch_shape(observed: Node, kind: Kind, model: pm.Model) -> tuple[int, ...]:
    """The lengths of the batch axes of the observations; their values are not read."""
    shape = stored_shape(stored_observations(observed, model))
    return shape[: len(shape) - kind.core]


def probability_of(observed: Node, kind: Kind) -> Node:
    """The parameter of an observed variable that is its probability; `kind` has one."""
    assert kind.probability is not None
    return parameters(observed)[1][kind.probability]


def trials_parameter(observed: Node, kind: Kind) -> Node:
    """The parameter of an observed variable that is its number of trials; `kind` has one."""
    assert kind.trials is not None
    return parameters(observed)[1][kind.trials]
