"""Supported priors and likelihoods, chains as likelihoods of their steps, and errors about others."""

import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pymc.variational.minibatch_rv import MinibatchRandomVariable
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors

from pymc_dirdp.models.graph import (
    Node,
    evaluate,
    is_random,
    operation,
    origin,
    parameters,
    replace_variables,
    stored_array,
    stored_shape,
    value_ancestors,
)
from pymc_dirdp.models.questions import Answer, as_question
from pymc_dirdp.models.refusals import join_names, refusal
from pymc_dirdp.models.table import Family, KindName

# The family and the prior of each released variable. Both are public.


_FAMILY_BY_OP: dict[type, Family] = {
    pm.Dirichlet.rv_type: "dirichlet",
    pm.Beta.rv_type: "beta",
    # On (0, 1) it is a Beta with parameters 1 and 1.
    pm.Uniform.rv_type: "beta",
}

_INTEGRATED = (pm.DirichletMultinomial.rv_type, pm.BetaBinomial.rv_type)


def family_of(rv: Node) -> Family | None:
    """The family of a random variable; None if it is of another kind."""
    return _FAMILY_BY_OP.get(type(rv.owner.op))


def checked_family(rv: Node, model: pm.Model, public: Collection[str]) -> Family:
    """The family of a free variable, which has to be a Dirichlet or Beta with a prior of numbers.

    `public` names the `pm.Data` that anybody may know.
    """
    family = family_of(rv)
    if family is None:
        raise _other_variable(rv, model)
    transform = model.rvs_to_transforms.get(rv)
    # The interval of a Uniform restricts nothing. Its bounds are checked below.
    is_uniform_interval = isinstance(transform, pm.distributions.transforms.Interval) and _is_uniform(rv)
    # These transforms change the coordinates of a sampler only. Any other one, such as `ordered`, restricts the
    # distribution.
    harmless = (
        type(None),
        type(pm.distributions.transforms.simplex),
        type(pm.distributions.transforms.logodds),
    )
    if type(transform) not in harmless and not is_uniform_interval:
        raise refusal("transform", rv.name, transform=type(transform).__name__)
    size, arguments = parameters(rv)
    for argument in arguments if size is None else (*arguments, size):
        refuse_uncertain_prior(str(rv.name), argument, model, public)
    if _is_uniform(rv) and not all(np.all(evaluate(a) == b) for a, b in zip(arguments, (0, 1), strict=True)):
        raise refusal("uniform bounds", rv.name)
    return family


def prior_of(rv: Node) -> NDArray[Any]:
    """The parameters of the prior of a Dirichlet or Beta variable, one for each cell of its table."""
    family = family_of(rv)
    assert family is not None
    size, arguments = parameters(rv)
    batch = None if size is None else tuple(int(length) for length in evaluate(size))
    values = [evaluate(argument) for argument in arguments]
    if _is_uniform(rv):
        values = [np.ones(np.shape(value)) for value in values]
    return broadcast_prior(str(rv.name), family, values, batch)


def _is_uniform(rv: Node) -> bool:
    return type(rv.owner.op) is pm.Uniform.rv_type


def _other_variable(rv: Node, model: pm.Model) -> Exception:
    """The error for a free variable that is neither Dirichlet nor Beta, by its role in the model."""
    kind = operation(rv)
    of_priors = [str(other.name) for other in model.free_RVs if other is not rv and rv in set(value_ancestors(other))]
    children = [str(other.name) for other in model.observed_RVs if rv in set(value_ancestors(other))]
    released = any(variable.owner and type(variable.owner.op) in _FAMILY_BY_OP for variable in value_ancestors(rv))
    if released and not children and not of_priors:
        return refusal("unobserved prediction", rv.name, operation=kind)
    if of_priors or (children and not released and not rv.type.dtype.startswith(("int", "bool"))):
        # It is a parameter of a prior that could be released, or of anything else.
        variables = model.free_RVs + model.observed_RVs
        behind = [other for other in variables if other is not rv and rv in ancestors([other])]
        priors = [other for other in behind if type(other.owner.op) in (*_FAMILY_BY_OP, *_INTEGRATED)]
        observed = [other for other in behind if other in model.observed_RVs]
        if priors or observed:
            key = "hyperparameter" if priors else "other parameter"
            names = [str(other.name) for other in priors or observed]
            return refusal(key, rv.name, operation=kind, children=join_names(names))
    elif children:
        return refusal("hidden parent", rv.name, operation=kind, children=join_names(children))
    return refusal("other variable", rv.name, operation=kind)


def refuse_uncertain_prior(name: str, argument: Node, model: pm.Model, public: Collection[str]) -> None:
    """Refuse a prior that depends on anything but numbers, lengths of dims, and data that are declared public."""
    lengths = set(model.dim_lengths.values())
    for variable in value_ancestors(argument):
        if is_random(variable):
            raise refusal("random prior", name, source=variable.name)
        if isinstance(variable, SharedVariable) and variable not in lengths:
            if variable in _records(model):
                raise refusal("prior of records", name, source=variable.name)
            if variable.name not in public:
                raise as_question(
                    refusal("prior of data", name, source=variable.name),
                    *([Answer({"public": (variable.name,)})] if variable in model.data_vars else []),
                )
        elif variable.owner is None and not isinstance(variable, Constant | SharedVariable):
            raise refusal("free input", name)


def data_in_priors(model: pm.Model) -> tuple[str, ...]:
    """The names of the `pm.Data` that priors depend on."""
    priors = []
    for rv in model.free_RVs:
        size, arguments = parameters(rv)
        priors += [*arguments, *([] if size is None else [size])]
    for rv in model.observed_RVs:
        if type(rv.owner.op) in _INTEGRATED:
            # The first parameter is the number of trials.
            priors += parameters(rv)[1][1:]
    used = {variable for argument in priors for variable in value_ancestors(argument)}
    return tuple(str(data.name) for data in model.data_vars if data in used)


def _records(model: pm.Model) -> set[Node]:
    """The arrays that observed variables take from data: observations, codes of parents, numbers of trials."""
    arrays: set[Node] = set()
    for rv in model.observed_RVs:
        arrays |= set(value_ancestors(model.rvs_to_values[rv]))
        # The first parameter of a likelihood without a probability is its number of trials; the others are its prior.
        used = parameters(rv)[1][:1] if type(rv.owner.op) in _INTEGRATED else parameters(rv)[1]
        arrays |= set(ancestors(used, blockers=model.free_RVs))
    return arrays


def broadcast_prior(
    name: str, family: Family, values: Iterable[NDArray[Any]], batch: tuple[int, ...] | None
) -> NDArray[Any]:
    """The prior of every row from the parameters of its distribution."""
    values = list(values)
    try:
        pairs = np.stack(np.broadcast_arrays(*values), axis=-1) if family == "beta" else values[0]
        prior = pairs if batch is None else np.broadcast_to(pairs, (*batch, pairs.shape[-1]))
    except ValueError:
        raise refusal("prior shape", name) from None
    return prior


# The likelihoods that are conjugate to a Dirichlet or Beta prior, and their parameters.


@dataclass(frozen=True)
class Kind:
    """The facts about a supported distribution of discrete data.

    Attributes
    ----------
    name : str
        Its name in the documentation.
    family : {"dirichlet", "beta"}
        The conjugate prior.
    trials : int or None
        Position of the number of trials among its parameters; None if each observation is one record.
    probability : int or None
        Position of the probability among its parameters; None if the prior is integrated out.
    prior : tuple of int
        Positions of the parameters of the prior that is integrated out.
    core : int
        Number of axes of one observation: 1 for a vector of counts, 0 for a number.
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


def kind_of(observed: Node) -> Kind:
    """The kind of an observed variable."""
    # The exact class of the op decides, because a subclass may have another likelihood.
    op = observed.owner.op
    if type(op) in _KIND_BY_OP:
        return _KIND_BY_OP[type(op)]
    # Each record would count total_size / size times, which no sensitivity covers.
    if isinstance(op, MinibatchRandomVariable):
        raise refusal("total size", observed.name)
    op_name = operation(observed)
    key = "not conjugate"
    # Unsupported distributions with a known reason.
    if isinstance(op, (pm.Geometric.rv_type, pm.NegativeBinomial.rv_type)):
        key = "unbounded trials"
    elif any(word in op_name for word in ("Mixture", "Hurdle", "ZeroInflated")):
        key = "hidden component"
    elif any(word in op_name for word in ("Censored", "Truncated", "Clip")):
        key = "hidden values"
    raise refusal(key, observed.name, operation=op_name)


def stored_observations(observed: Node, model: pm.Model) -> Node:
    """The stored array, or the part of one, that holds the observations as you passed them. Its value is not read.

    PyMC casts a `pm.Data` of floats to integers; this is the variable behind the cast.
    """
    # With a transform, the likelihood would be that of the transformed values.
    if model.rvs_to_transforms.get(observed) is not None:
        raise refusal("transformed observations", observed.name)
    value = model.rvs_to_values[observed]
    source = stored_array(value, through_rounding=True)
    # A computation may count one record many times, or (pm.Minibatch) draw records at random.
    if source is None:
        raise refusal("computed observations", observed.name)
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


# Markov chains of `pymc_extras` as ordinary variables: steps, with rows that the states before choose.


def unroll_chains(model: pm.Model) -> pm.Model:
    """The same model with each observed `DiscreteMarkovChain` as `pm.Categorical(name, p=P[x[..., :-1]])` of its steps.

    The first states become a variable of their own if their probabilities are random. Otherwise they are left out,
    because a constant factor does not change the posterior. A model without such a chain is returned itself.
    """
    # Without an import of the package there is no such chain.
    kind = getattr(sys.modules.get("pymc_extras.distributions.timeseries"), "DiscreteMarkovChainRV", None)
    chains = [rv for rv in model.observed_RVs if type(rv.owner.op) is kind]
    if not chains:
        return model
    new: dict[Node, Node] = {}
    values: dict[Node, Node] = {}
    starts: dict[Node, tuple[Node, Node]] = {}
    for chain in chains:
        op: Any = chain.owner.op
        parts: tuple[Any, ...] = (*parameters(chain)[1], stored_observations(chain, model), op.n_lags)
        transitions, _, first, states, lags = parts
        if getattr(op, "time_varying_P", False):
            raise _chain_refusal(chain, "another matrix for every step")
        if transitions.type.ndim != lags + 1:
            raise _chain_refusal(chain, "several matrices")
        before = tuple(_whole(states[..., lag : lag - lags]) for lag in range(lags))
        new[chain] = pm.Categorical.dist(p=transitions[before])
        values[chain] = _whole(states[..., lags:])
        if not set(value_ancestors(first)).isdisjoint(model.basic_RVs):
            # Each chain has one first state, or an axis of several.
            value = states[..., 0] if lags == 1 and states.type.ndim > 1 else states[..., :lags]
            starts[chain] = _start(chain, first), _whole(value)
    copy = replace_variables(model, new, values)
    for chain in chains:
        # The dim of the states has more labels than there are steps.
        if dims := copy.named_vars_to_dims.get(str(chain.name)):
            copy.named_vars_to_dims[str(chain.name)] = (*dims[:-1], None)
    for chain, (start, value) in starts.items():
        start.name = f"{chain.name}_start"
        while start.name in copy.named_vars:
            start.name += "_"
        copy.named_vars[start.name] = start
        if dims := copy.named_vars_to_dims.get(str(chain.name)):
            copy.named_vars_to_dims[start.name] = dims[: value.type.ndim]
        copy.observed_RVs.append(start)
        copy.rvs_to_values[start], copy.values_to_rvs[value] = value, start
        copy.rvs_to_transforms[start] = None
    return copy


def _whole(part: Any) -> Any:
    """A part of the states, as integers."""
    return part if part.type.dtype.startswith(("int", "uint")) else part.astype("int64")


def _start(chain: Node, first: Node) -> Any:
    """The distribution of the first states, which are independent draws from one row of probabilities."""
    categorical = is_random(first) and type(first.owner.op) is pm.Categorical.rv_type
    # The distribution adds axes of length 1 to one row.
    probability = origin(parameters(first)[1][0])[0] if categorical else first
    if not categorical or probability.type.ndim != 1:
        raise _chain_refusal(chain, "first states that are not from one row of probabilities")
    return pm.Categorical.dist(p=probability)


def _chain_refusal(chain: Node, feature: str) -> Exception:
    # Features of a chain that are not supported, and what to write instead.
    ways = {
        "another matrix for every step": "each step t as pm.Categorical with p=P[t][x[:, t]], observed=x[:, t + 1]",
        "several matrices": "its steps as pm.Categorical with p=P[which, x[:, :-1]], observed=x[:, 1:], where `which` "
        "has the number of the matrix for each step of each chain",
        "first states that are not from one row of probabilities": "its steps as pm.Categorical with p=P[x[:, :-1]], "
        "observed=x[:, 1:], and its first states as a variable of their own",
    }
    return refusal("chain", chain.name, what=feature, ways=ways[feature])
