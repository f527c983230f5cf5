"""The likelihoods that are conjugate to a Dirichlet or Beta prior, and how a parameter reaches one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import pymc as pm
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant

from pymc_dirdp.errors import UnsupportedModelError
from pymc_dirdp.models.graph import Node, is_random, operation, origin, parameters, stored_shape, values_read
from pymc_dirdp.models.parents import indexing, parent_name, stored_parent

__all__ = [
    "KINDS",
    "Family",
    "Kind",
    "Likelihood",
    "batch_shape",
    "kind_of",
    "parent_codes",
    "probability_of",
    "refusal",
    "route",
    "stored_observations",
    "trials_parameter",
]

Family = Literal["dirichlet", "beta"]
KindName = Literal["multinomial", "categorical", "dirichlet-multinomial", "binomial", "bernoulli", "beta-binomial"]

_CONJUGATES = (
    "Supported are Multinomial, Categorical and DirichletMultinomial for a Dirichlet prior, "
    "Binomial, Bernoulli and BetaBinomial for a Beta prior."
)


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


@dataclass(frozen=True)
class Likelihood:
    """One observed variable whose records are counted in a table.

    Attributes
    ----------
    name : str
        The observed variable.
    kind : str
        One of `KINDS`.
    rows : tuple of int
        For every row axis of the table, the batch axis of the observed variable that follows it. All other batch
        axes are repeated records and are summed over. Empty for a conditional table.
    parents : tuple of str
        Of a conditional table `theta[parents]`: for every row axis, what says which row a record feeds. A variable's
        name, or "an array" for one without.
    """

    name: str
    kind: KindName
    rows: tuple[int, ...]
    parents: tuple[str, ...] = ()


def refusal(name: str | None, reason: str, way_out: str) -> UnsupportedModelError:
    """The error for a model that cannot be released: which variable, why, and what to do about it."""
    return UnsupportedModelError(f"Cannot release this model: {name!r} {reason}. {way_out}")


def kind_of(observed: Node) -> Kind:
    """The kind of an observed variable."""
    # The exact class of the op decides: a name says nothing, and a subclass may have another likelihood.
    op = observed.owner.op
    if type(op) in _KIND_BY_OP:
        return _KIND_BY_OP[type(op)]
    # Each record would count total_size / size times, which no sensitivity covers.
    if isinstance(op, MinibatchRandomVariable):
        raise refusal(observed.name, "is rescaled by total_size", "Leave total_size out and observe all records.")
    raise refusal(observed.name, f"is observed through {operation(observed)}, which is not supported", _CONJUGATES)


def stored_observations(observed: Node, model: pm.Model) -> Node:
    """The constant or shared variable that holds the observations as they were given; its value is not read.

    PyMC casts a `pm.Data` of floats to integers; this is the variable behind the cast.
    """
    # With a transform, the likelihood would be one of the transformed values.
    if model.rvs_to_transforms.get(observed) is not None:
        raise refusal(observed.name, "has a transform", "Observe the variable itself, without `transform=`.")
    value = model.rvs_to_values[observed]
    source, axes = origin(value, through_rounding=True)
    # A computation may count one record many times, or (pm.Minibatch) draw records at random.
    if not isinstance(source, Constant | SharedVariable) or len(axes) != value.type.ndim:
        raise refusal(
            observed.name,
            f"has observations that are computed in the model ({operation(value)})",
            "Pass an array or a pm.Data that holds the counts or records themselves.",
        )
    return source


def batch_shape(observed: Node, kind: Kind, model: pm.Model) -> tuple[int, ...]:
    """The lengths of the batch axes of the observations; their values are not read."""
    shape = stored_shape(stored_observations(observed, model))
    return shape[: len(shape) - kind.core]


def route(observed: Node, kind: Kind, families: Mapping[Node, Family], model: pm.Model) -> tuple[Node, Likelihood]:
    """The parameter that is the probability of an observed variable, and its likelihood.

    The likelihood says which row of the parameter a record feeds, by its position or by the values of its parents. The
    `kind` has a probability, and `families` holds all parameters of the model.

    Raises
    ------
    UnsupportedModelError
        If the probability is anything but a parameter of the right family, either with new axes of length 1 or indexed
        by one array for every row axis.
    """
    probability = probability_of(observed, kind)
    parameter, axes = origin(probability)
    if parameter not in families:
        indexed = _indexed(observed, kind, probability, families, model)
        if indexed is None:
            raise _no_plain_route(observed, parameter, families)
        return indexed
    _refuse_other_family(observed, kind, parameter, families)
    if kind.family == "beta":
        rows, batch_ndim = axes, probability.type.ndim
    else:
        # The category axis has to stay the last; otherwise the probabilities are not those of the categories.
        if axes[-1] != probability.type.ndim - 1:
            raise refusal(
                observed.name, f"has {parameter.name!r} with its categories not on the last axis", "Add axes before it."
            )
        rows, batch_ndim = axes[:-1], probability.type.ndim - 1
    # Batch axes are aligned on the right. PyTensor adds those that are missing by itself, so this is 0 so far.
    offset = observed.type.ndim - kind.core - batch_ndim
    return parameter, Likelihood(str(observed.name), kind.name, tuple(offset + axis for axis in rows))


def probability_of(observed: Node, kind: Kind) -> Node:
    """The parameter of an observed variable that is its probability; `kind` has one."""
    assert kind.probability is not None
    return parameters(observed)[1][kind.probability]


def trials_parameter(observed: Node, kind: Kind) -> Node:
    """The parameter of an observed variable that is its number of trials; `kind` has one."""
    assert kind.trials is not None
    return parameters(observed)[1][kind.trials]


def parent_codes(observed: Node, kind: Kind, model: pm.Model) -> tuple[Node, ...]:
    """The stored arrays of the codes of a conditional table's parents; none for another table."""
    rows = None if kind.probability is None else indexing(probability_of(observed, kind))
    stored = [stored_parent(index, model) for index in (rows.indices if rows is not None else ())]
    return tuple(array for array in stored if array is not None)


def _indexed(
    observed: Node, kind: Kind, probability: Node, families: Mapping[Node, Family], model: pm.Model
) -> tuple[Node, Likelihood] | None:
    """The parameter and likelihood of a conditional table; None if the probability is no indexing of a parameter."""
    rows = indexing(probability)
    if rows is None or rows.parameter not in families:
        return None
    parameter, indices = rows.parameter, rows.indices
    _refuse_other_family(observed, kind, parameter, families)
    n_rows = parameter.type.ndim - (kind.family == "dirichlet")
    if len(indices) != n_rows:
        raise refusal(
            observed.name,
            f"indexes {parameter.name!r} with {len(indices)} arrays, which has {n_rows} row axes",
            "Give one array of codes for each axis of parents, as in theta[a, b].",
        )
    for index in indices:
        if stored_parent(index, model) is None:
            raise refusal(
                observed.name,
                f"takes its row of {parameter.name!r} from something that is computed in the model "
                f"({parent_name(index)})",
                "Index with an array, a pm.Data or an observed variable that holds the codes themselves.",
            )
    return parameter, Likelihood(str(observed.name), kind.name, (), tuple(map(parent_name, indices)))


def _refuse_other_family(observed: Node, kind: Kind, parameter: Node, families: Mapping[Node, Family]) -> None:
    if families[parameter] != kind.family:
        raise refusal(
            observed.name,
            f"uses {parameter.name!r}, which is a {families[parameter].capitalize()} variable",
            f"{operation(observed)} is conjugate to a {kind.family.capitalize()} prior only.",
        )


def _no_plain_route(observed: Node, reached: Node, families: Mapping[Node, Family]) -> UnsupportedModelError:
    behind = sorted({str(variable.name) for variable in values_read(reached) if variable in families})
    if behind:
        return refusal(
            observed.name,
            f"uses {' and '.join(map(repr, behind))} through {operation(reached)}, not as it is",
            "The posterior is then not a Dirichlet or Beta; pass the variable itself, with new axes at most, or "
            "indexed by one array of codes for each of its row axes.",
        )
    what = f" but {operation(reached)}" if is_random(reached) else ""
    return refusal(
        observed.name,
        f"has no Dirichlet or Beta variable of this model as its probability{what}",
        "Give it one as `p=`; leave observed variables without one out of the model.",
    )
