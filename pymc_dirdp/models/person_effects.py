"""Free variables with an entry for each person are integrated out, because the private model must not have them.

Given its effect, the answers of a person are independent. So a combination of answers has the probability
`sum_j w_j prod_i p(answer_i | effect_j)` with the nodes and weights of a rule of quadrature.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors

from pymc_dirdp.models.graph import Node, evaluate, is_random, operation, parameters, stored_shape
from pymc_dirdp.models.likelihoods import stored_observations
from pymc_dirdp.models.model_options import ModelOptions, axes_of, core_of, model_refusal
from pymc_dirdp.models.outcomes import Effect, Outcomes, people_axis, refuse_observed_elsewhere
from pymc_dirdp.models.privacy_unit import as_code

_graphs: Any = pt

# A free variable as a function of its parameters and of a standard normal variable.
_FORMULAS = {
    "Normal": lambda mean, sd, standard: mean + sd * standard,
    "LogNormal": lambda mean, sd, standard: pt.exp(mean + sd * standard),
}
_WAYS = (
    "Give each person one effect with a pm.Normal prior, whose mean and standard deviation may be free variables or "
    "functions of covariates. Or give groups of people an effect, chosen by a covariate of codes, as in effect[group]. "
    "Or integrate it out yourself, in the probabilities of all combinations of answers."
)


def normal_rule(nodes: int = 171, *, reach: float = 8.5) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Equally spaced nodes for a standard normal variable, and the logarithms of their weights.

    This is the trapezoidal rule, whose error for a smooth function decreases exponentially with the density of the
    nodes. Gauss-Hermite quadrature with as many nodes is far less accurate for effects with large standard deviations.
    It has most of its nodes where nobody is, and few where a logistic function rises.

    Parameters
    ----------
    nodes : int, default 171
        Number of nodes. The tests compare it with twice as many for up to 12 answers and standard deviations up to 3.
    reach : float, default 8.5
        Largest node. The probability beyond it is 2e-17.

    Examples
    --------
    >>> nodes, log_weights = normal_rule()
    >>> round(float(np.exp(log_weights) @ nodes**4), 12)
    3.0
    """
    values, step = np.linspace(-reach, reach, nodes, retstep=True)
    return values, np.log(step) - values**2 / 2 - np.log(2 * np.pi) / 2


def refuse_long_format(model: pm.Model, options: ModelOptions) -> None:
    """Refuse records in long format, which choose the effects of their people by codes.

    Raises
    ------
    UnsupportedModelError
        The error shows how to make a table with a row for each person.
    """
    axes = [axes_of(rv, model).axes for rv in model.observed_RVs]
    for dim in options.unit:
        if any(dim in variable_axes for variable_axes in axes):
            continue
        for rv in model.free_RVs:
            if dim in model.named_vars_to_dims.get(str(rv.name), ()):
                name = str(model.observed_RVs[0].name)
                raise model_refusal(
                    name,
                    f"has no axis {dim!r}: its records are in long format, and codes say whose they are",
                    "Observe a table with a row for each person and a column for each question: answers = np.empty("
                    f"(people, questions), dtype=int); answers[person, question] = y; then observed=answers, "
                    f'dims=({as_code(dim)}, "question"), with {rv.name}[:, None] for the effects. Everybody has to '
                    "have answered every question.",
                )


def effect_of_person(model: pm.Model, options: ModelOptions) -> Effect | None:
    """The free variable with an entry for each person; None if there is none, or without a `unit`.

    A variable with dims has an entry for each person if it has their dim. A variable without dims has one if it is as
    long as the observations, unless their number is private, because nothing may depend on that.

    Raises
    ------
    UnsupportedModelError
        If it is not an effect that this library can integrate out. The error has a way out.
    """
    if not options.unit:
        return None
    dims, lengths = set(), set()
    for rv in model.observed_RVs:
        if str(rv.name) not in options.count_variables and len(axes_of(rv, model).axes):
            axis = people_axis(rv, model, options)
            dims |= {name for name in (axes_of(rv, model).axes[axis],) if isinstance(name, str)}
            if options.records_are_public:
                lengths.add(stored_shape(stored_observations(rv, model))[axis])
    places = {rv: _axis_of_people(rv, model, dims, lengths) for rv in model.free_RVs}
    effects = [rv for rv, place in places.items() if place is not None and np.dtype(rv.type.dtype).kind == "f"]
    if not effects:
        return None
    effect = effects[0]
    _refuse_unknown(effect, effects, model)
    people = _shape(effect)[places[effect] or 0]
    (mean, sd), standard = parameters(effect)[1], pt.vector(f"{effect.name}_standard", shape=(people,))
    # The vector of people lies along their axis of the free variable; all its other axes have length 1.
    order = [0 if axis == places[effect] else "x" for axis in range(effect.type.ndim)]
    formula = _FORMULAS[operation(effect)](mean, sd, standard.dimshuffle(order))
    return Effect(effect, standard, formula, *normal_rule())


def _axis_of_people(rv: Node, model: pm.Model, dims: Collection[str], lengths: Collection[int]) -> int | None:
    """The axis of a free variable with an entry for each person; None if it has none."""
    variable_dims = model.named_vars_to_dims.get(str(rv.name), ())
    for axis, dim in enumerate(variable_dims):
        if dim in dims:
            return axis
    if any(dim is not None for dim in variable_dims):
        return None
    shape = _shape(rv)
    return next((axis for axis, length in enumerate(shape) if length in lengths and length > 1), None)


def _shape(rv: Node) -> tuple[int, ...]:
    known = rv.type.shape
    return known if None not in known else np.shape(evaluate(rv))


def _refuse_unknown(effect: Node, effects: Sequence[Node], model: pm.Model) -> None:
    """Refuse an effect that is not a function of one standard normal variable for each person."""
    name, op_name = str(effect.name), operation(effect)
    if len(effects) > 1:
        others = ", ".join(repr(str(rv.name)) for rv in effects[1:])
        raise model_refusal(name, f"has an entry for each person, and so has {others}", _WAYS)
    if op_name not in _FORMULAS or core_of(effect):
        raise model_refusal(name, f"has an entry for each person, and its prior is not pm.Normal ({op_name})", _WAYS)
    if sum(length > 1 for length in _shape(effect)) > 1:
        raise model_refusal(name, "has several entries for each person", _WAYS)
    for rv in model.free_RVs:
        if rv is not effect and any(node is effect for node in ancestors([rv])):
            raise model_refusal(str(rv.name), f"depends on {name!r}, which has an entry for each person", _WAYS)
    for node in ancestors([effect]):
        if is_random(node) and node in model.observed_RVs:
            raise model_refusal(name, f"depends on the observed variable {node.name!r}", "Write the prior as numbers.")
    refuse_observed_elsewhere(name, effect, model)


def integrate_effect(
    outcomes: Sequence[Outcomes], effect: Effect | None, model: pm.Model, groups: Iterable[Collection[str]]
) -> list[Outcomes]:
    """The outcomes of all tables, with the effect of each person integrated out.

    The groups are the names of variables that are observed jointly.

    Raises
    ------
    UnsupportedModelError
        If several tables read the effect of a person, because they are not independent without it; or if numbers of
        people read it.
    """
    if effect is None:
        return list(outcomes)
    name = str(effect.variable.name)
    for outcome in outcomes:
        if outcome.kind != "records" and any(node is effect.input for node in ancestors([outcome.log_p])):
            raise model_refusal(name, f"has an entry for each person, and {outcome.name!r} counts people", _WAYS)
    reading = [str(rv.name) for rv in model.observed_RVs if any(node is effect.variable for node in ancestors([rv]))]
    if len(reading) > 1 and not any(set(reading) <= set(group) for group in groups):
        raise model_refusal(
            name,
            f"is read by {', '.join(map(repr, reading))}, whose tables are not independent of one another without it",
            f"Pass jointly=[{as_code(reading)}], so that the table has a cell for each combination of answers.",
        )
    weights = pt.constant(effect.log_weights)[None, :, None]
    return [
        replace(outcome, log_p=_graphs.logsumexp(outcome.log_p + weights, axis=1))
        if outcome.kind == "records"
        else outcome
        for outcome in outcomes
    ]
