"""Markov chains of `pymc_extras` as ordinary variables: steps, with rows that the states before choose."""

import sys
from typing import Any

import pymc as pm

from pymc_dirdp.errors import UnsupportedModelError
from pymc_dirdp.models.graph import Node, is_random, origin, parameters, replaced, values_read
from pymc_dirdp.models.likelihoods import stored_observations
from pymc_dirdp.models.refusals import refusal

__all__ = ["unrolled"]

# What of a chain is not read, and what to write instead.
_WAYS = {
    "another matrix for every step": "each step t as pm.Categorical with p=P[t][x[:, t]], observed=x[:, t + 1]",
    "several matrices": "its steps as pm.Categorical with p=P[which, x[:, :-1]], observed=x[:, 1:], where `which` has "
    "the number of the matrix for each step of each chain",
    "first states that are not from one row of probabilities": "its steps as pm.Categorical with p=P[x[:, :-1]], "
    "observed=x[:, 1:], and its first states as a variable of their own",
}
_MODULE, _CLASS = "pymc_extras.distributions.timeseries", "DiscreteMarkovChainRV"


def unrolled(model: pm.Model) -> pm.Model:
    """The same model with each observed `DiscreteMarkovChain` as `pm.Categorical(name, p=P[x[..., :-1]])` of its steps.

    The first states are a variable of their own if their probabilities are random, and are left out if not: a constant
    factor changes no posterior. The model itself is returned if it has no such chain.
    """
    # Who has not imported the package has no chain of it.
    kind = getattr(sys.modules.get(_MODULE), _CLASS, None)
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
            raise _refused(chain, "another matrix for every step")
        if transitions.type.ndim != lags + 1:
            raise _refused(chain, "several matrices")
        before = tuple(_whole(states[..., lag : lag - lags]) for lag in range(lags))
        new[chain] = pm.Categorical.dist(p=transitions[before])
        values[chain] = _whole(states[..., lags:])
        if not set(values_read(first)).isdisjoint(model.basic_RVs):
            starts[chain] = _start(chain, first), _first(states, lags)
    copy = replaced(model, new, values)
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
    """Some of the states, as integers."""
    return part if part.type.dtype.startswith(("int", "uint")) else part.astype("int64")


def _first(states: Any, lags: int) -> Any:
    """The states before the first step; without an axis for them, where each chain has one."""
    return _whole(states[..., 0] if lags == 1 and states.type.ndim > 1 else states[..., :lags])


def _start(chain: Node, first: Node) -> Any:
    """The distribution of the first states, which are independent draws from one row of probabilities."""
    categorical = is_random(first) and type(first.owner.op) is pm.Categorical.rv_type
    # The distribution adds axes of length 1 to one row.
    probability = origin(parameters(first)[1][0])[0] if categorical else first
    if not categorical or probability.type.ndim != 1:
        raise _refused(chain, "first states that are not from one row of probabilities")
    return pm.Categorical.dist(p=probability)


def _refused(chain: Node, what: str) -> UnsupportedModelError:
    return refusal("chain", chain.name, what=what, ways=_WAYS[what])
