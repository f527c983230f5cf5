"""Reads observed variables of three kinds: observations of people, trials of people, and numbers of people."""

import copy
import math
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.traversal import ancestors

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.models.counted import NumbersReading
from pymc_dirdp.models.graph import (
    Node,
    evaluate,
    is_random,
    is_stored,
    operation,
    parameters,
    same_data,
    source_of,
    stored_shape,
)
from pymc_dirdp.models.likelihoods import stored_observations
from pymc_dirdp.models.model_options import TRIALS, ModelOptions, axes_of, core_of, model_question, model_refusal
from pymc_dirdp.models.outcomes import (
    Inputs,
    Outcomes,
    log_probability,
    n_row_arrays,
    read_records,
    refuse_observed_elsewhere,
)
from pymc_dirdp.models.privacy_unit import as_code, axis_text
from pymc_dirdp.models.questions import Answer


def with_shares(model: pm.Model, options: ModelOptions) -> pm.Model:
    """A model in which the shares of a BetaBinomial or DirichletMultinomial are a free variable.

    The distribution of the observations is the same, and given the shares the trials are independent. All other
    variables are those of the model itself, which does not change. A model without such a variable is returned itself.
    """
    # Distributions whose trials are not independent given the free variables, and their components.
    parts = {
        "BetaBinomial": (pm.Beta, pm.Binomial),
        "DirichletMultinomial": (pm.Dirichlet, pm.Multinomial),
    }
    compound = [rv for rv in model.observed_RVs if options.trials_are_people and operation(rv) in parts]
    if not compound:
        return model
    expanded = pm.Model(model=None)
    vars(expanded).update(
        {key: copy.copy(value) for key, value in vars(model).items() if isinstance(value, list | dict)}
    )
    for rv in compound:
        name, stored, (trials, *prior) = str(rv.name), stored_observations(rv, model), parameters(rv)[1]
        if f"{name}_p" in model.named_vars:
            raise ArgumentError(f"The private model needs the name {f'{name}_p'!r}. Rename this variable.")
        for argument in prior:
            refuse_observed_elsewhere(name, argument, model)
            _refuse_private_trials(name, argument, trials, options)
        shares, plain = parts[operation(rv)]
        expanded.observed_RVs.remove(rv)
        expanded.named_vars.pop(name)
        for variables in (expanded.rvs_to_values, expanded.rvs_to_transforms, expanded.rvs_to_initial_values):
            variables.pop(rv, None)
        dims = expanded.named_vars_to_dims.pop(name, None)
        with expanded:
            p = shares(f"{name}_p", *prior, shape=stored_shape(stored), dims=dims)
            plain(name, trials, p, observed=stored.data if isinstance(stored, Constant) else stored, dims=dims)
    return expanded


def private_trials(trials: Node, options: ModelOptions) -> list[Node]:
    """The stored arrays of the numbers of trials, if these are private."""
    return [] if options.records_are_public else _stored_numbers(trials)


def _stored_numbers(trials: Node) -> list[Node]:
    stored = filter(is_stored, ancestors([trials]))
    return [node for node in stored if isinstance(node, SharedVariable) or node.type.ndim]


def _refuse_private_trials(name: str, graph: Node, trials: Node, options: ModelOptions) -> None:
    """Refuse probabilities that read private numbers of trials, because the private model would contain these."""
    private = private_trials(trials, options)
    for node in filter(is_stored, ancestors([graph])):
        if any(same_data(node, array) for array in private):
            raise model_refusal(
                name,
                "has probabilities that read its numbers of trials, which are private under add-remove",
                f"Pass adjacency='replace-one' and public=[{name!r}] if anybody may know them, or leave them out.",
            )


def read_outcomes(rv: Node, model: pm.Model, inputs: Inputs, options: ModelOptions) -> Outcomes:
    """The outcomes of one observed variable.

    Raises
    ------
    UnsupportedModelError, ArgumentError
        The error names the variable, the reason and a way out.
    """
    name = str(rv.name)
    op_name = operation(rv)
    if "Minibatch" in op_name or model.rvs_to_transforms.get(rv) is not None:
        raise model_refusal(name, "is rescaled or transformed", "Observe all records as they are, without total_size.")
    if np.dtype(rv.type.dtype).kind not in "iub":
        raise model_refusal(
            name,
            f"is a variable of real numbers ({op_name})",
            "Cut it into intervals and observe their codes with pm.Categorical; for a pm.CustomDist or pm.Mixture of "
            "integers pass dtype='int64', and give pm.Censored both bounds, such as lower=0.",
        )
    stored = stored_observations(rv, model)
    shape = stored_shape(stored)
    if name in options.count_variables:
        return _counts(rv, shape, model, inputs, options)
    if op_name in ("Binomial", "Multinomial") and options.trials_are_people and has_several_trials(rv, options):
        return _trials(rv, shape, model, inputs, options)
    options.people_axes(rv, model)
    return read_records(rv, shape, model, inputs, options)


def has_several_trials(rv: Node, options: ModelOptions) -> bool:
    """Whether an observation of a variable may hold several people. With private numbers of trials it may."""
    if operation(rv) not in TRIALS or rv.name in options.count_variables:
        return False
    trials = parameters(rv)[1][0]
    # Numbers of trials that may be data are not read.
    if _stored_numbers(trials) or any(map(is_random, ancestors([trials]))):
        return True
    return not bool(np.all(evaluate(trials) == 1))


def ask_whose_trials(model: pm.Model, options: ModelOptions) -> None:
    """Ask whose trials an observed variable holds, unless the options say it."""
    if options.specifies_trials:
        return
    for rv in model.observed_RVs:
        if not has_several_trials(rv, options):
            continue
        name, axes = str(rv.name), axes_of(rv, model).axes
        people = ""
        if axes:
            people = f"; or unit={as_code(axes[0])} if each entry of {axis_text(axes[0])} is a person"
            people += f", and list all answers of one in support={{{name!r}: [...]}}" if core_of(rv) else ""
        raise model_question(
            name,
            "counts several trials in each observation, and the model leaves open whose they are",
            f"Pass contribution=1 if each trial is another person{people}.",
            Answer({"contribution": 1}),
            *(Answer({"unit": (axis,)}, "if each of its entries is a person") for axis in axes[:1]),
        )


# Each trial is one person.


def _trials(rv: Node, shape: tuple[int, ...], model: pm.Model, inputs: Inputs, options: ModelOptions) -> Outcomes:
    name, core = str(rv.name), core_of(rv)
    batch = shape[: len(shape) - core]
    trials, p = parameters(inputs.replaced(rv))[1]
    for node in ancestors([trials, p]):
        if is_random(node) or any(node is stored_observations(other, model) for other in model.observed_RVs):
            raise model_refusal(
                name, "depends on another observed variable", "Observe both together, as one Multinomial variable."
            )
    refuse_observed_elsewhere(name, p, model)
    _refuse_private_trials(name, p, trials, options)
    n_trials = np.broadcast_to(np.asarray(evaluate(trials)), batch)
    n_rows = math.prod(batch)
    if options.records_are_public and n_rows > 1:
        if any(
            same_data(array, stored_observations(other, model))
            for array in n_row_arrays(ancestors([trials]), n_rows, rv)
            for other in model.observed_RVs
        ):
            raise model_refusal(
                name, "has a number of trials that another variable observes", "Pass adjacency='add-remove'."
            )
        if not options.is_public(name):
            raise model_question(
                name,
                "has a number of trials for each of several rows",
                f"Pass public=[{name!r}] if anybody may know these numbers, or adjacency='add-remove' to keep them "
                "private.",
                Answer({"public": (name,)}, "if anybody may know these numbers"),
            )
    if core:
        logs = pt.log(pt.broadcast_to(p, shape)).reshape((n_rows, shape[-1]))
        labels: tuple[Any, ...] = tuple(range(shape[-1]))
    else:
        whole = pt.broadcast_to(p, batch).reshape((n_rows,))
        logs = pt.stack([pt.log(whole), pt.log1p(-whole)], axis=-1)
        labels = (1, 0)
    options.check_cells(name, n_rows * len(labels))

    source = source_of(stored_observations(rv, model))
    reading = NumbersReading(name, source, n_trials, bool(core), (), rv.type.dtype)
    totals = tuple(n_trials.ravel().astype(int).tolist()) if options.records_are_public else None
    return Outcomes(name, "trials", labels, tuple(range(n_rows)), logs, None, totals, None, reading)


# Each observation is a number of people.


def _counts(rv: Node, shape: tuple[int, ...], model: pm.Model, inputs: Inputs, options: ModelOptions) -> Outcomes:
    name = str(rv.name)
    if core_of(rv):
        raise model_refusal(name, "has vectors as observations", "Pass contribution=1 if each trial is another person.")
    if options.records_are_public:
        raise ArgumentError(
            f"The number of people in count_variables=[{name!r}] is private. Leave adjacency='replace-one' out."
        )
    size = math.prod(shape)
    options.check_cells(name, size)
    value = pt.tensor(dtype=rv.type.dtype, shape=shape, name=f"{name}_value")
    log_p = log_probability(rv, value, model, inputs)
    refuse_observed_elsewhere(name, log_p, model)

    source = source_of(stored_observations(rv, model))
    reading = NumbersReading(name, source, None, False, inputs.compiled_at_points(log_p, value), rv.type.dtype)
    return Outcomes(name, "counts", tuple(range(size)), (0,), log_p, value, None, None, reading)
