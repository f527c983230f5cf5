"""A copy of a model with its free variables alone and no records, and a check that nothing of them is left."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray
from pymc.model.fgraph import deepcopy_shared_variable
from pymc.pytensorf import find_rng_nodes
from pytensor.compile.ops import FromFunctionOp
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant, clone_get_equiv
from pytensor.graph.op import HasInnerGraph
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.type import RandomType
from pytensor.tensor.variable import TensorVariable

from pymc_dirdp.errors import InternalError, missing_values
from pymc_dirdp.models.graph import Node, is_random, is_stored, operation, parameters, stored_shape
from pymc_dirdp.models.likelihoods import stored_observations
from pymc_dirdp.models.model_options import ModelOptions, model_question, model_refusal
from pymc_dirdp.models.questions import Answer


def refuse_free_variables(
    model: pm.Model, free: Sequence[Node], secret: Collection[Node], dims: Collection[str]
) -> None:
    """Refuse a model whose free variables read records, or have a dim of the records.

    The number of records is not used here. A free variable with an entry for each of them and no dim is refused when
    the likelihood is built with another number of rows.

    Parameters
    ----------
    model : pymc.Model
    free : sequence of Variable
    secret : collection of Variable
        The stored arrays of observations and covariates.
    dims : collection of str
        The dims along which variables have their records.
    """
    if model.potentials:
        raise model_refusal(
            model.potentials[0].name,
            "is a Potential, which may read records",
            "Write it as a prior or as an observed variable. Survey weights are a covariate.",
        )
    for rv in free:
        name = str(rv.name)
        if np.dtype(rv.type.dtype).kind in "iub":
            if name.endswith("_unobserved"):
                raise model_refusal(name, "stands for missing values", missing_values())
            raise model_refusal(
                name,
                "is a discrete free variable, which NUTS does not sample",
                "Sum it out: use a pm.Mixture with the probabilities of its states as weights.",
            )
        if any(dim in dims for dim in model.named_vars_to_dims.get(name, ()) if dim is not None):
            raise model_refusal(
                name,
                "has an entry for each record, and effects of single persons are their data",
                "Pass unit= with the axis of the people if an observation has all answers of a person. A pm.Normal "
                "effect of each person is then integrated out. Name the observed variable in count_variables= if each "
                "observation is a number of people, as in Poisson regression, or pass contribution=1 if each trial is "
                "a person. Otherwise give groups of records an effect, chosen by a covariate of codes, as in "
                "effect[group].",
            )
        for node in ancestors([rv]):
            if any(node is array or _shares_memory(node, array) for array in secret):
                raise model_refusal(
                    name, "has a prior that reads the records or their covariates", "Write the prior as numbers."
                )
            if is_random(node) and node in model.observed_RVs:
                raise model_refusal(
                    name, f"depends on the observed variable {node.name!r}", "Write the prior as numbers."
                )


def refuse_unnamed_data(model: pm.Model, free: Sequence[Node], secret: Collection[Node], options: ModelOptions) -> None:
    """Refuse a `pm.Data` that was not declared, because the private model would contain its values.

    Numbers of trials that are people, and covariates with an entry for each record, have their own questions.
    """
    counted = model.observed_RVs if options.trials_are_people else []
    trials = [parameters(rv)[1][0] for rv in counted if operation(rv) in ("Binomial", "Multinomial")]
    answered = [*secret, *(node for node in ancestors(trials) if isinstance(node, SharedVariable))]
    read: dict[str, str] = {}
    for rv in [*free, *model.observed_RVs]:
        for node in ancestors([rv], blockers=[other for other in free if other is not rv]):
            if (
                any(node is other for other in model.data_vars)
                and not any(node is other for other in answered)
                and not options.is_public(node.name)
                and node.name not in options.levels
            ):
                read.setdefault(str(node.name), str(rv.name))
    for data, variable in read.items():
        raise model_question(
            variable,
            f"reads the data {data!r}",
            f"Pass public=[{data!r}] if anybody may know them, or write them as numbers.",
            Answer({"public": tuple(read)}),
            # Data with an entry for each record reveal their number.
            *([] if options.records_are_public else [Answer({"public": tuple(read), "adjacency": "replace-one"})]),
        )


def without_data(model: pm.Model, free: Sequence[Node], formulas: Sequence[Node]) -> pm.Model:
    """A model with copies of the free variables and of some Deterministics: same names, dims, labels and transforms.

    The `pm.Data` that these read are copied, too.
    """
    outputs = [*free, *formulas]
    memo: dict[Any, Any] = {}
    for node in [*find_rng_nodes(outputs), *ancestors(outputs)]:
        if isinstance(node, SharedVariable) and node not in memo:
            memo[node] = deepcopy_shared_variable(node)
    clone_get_equiv([], outputs, copy_inputs=True, copy_orphans=False, memo=memo)
    copy = pm.Model(model=None)
    data = [array for array in model.data_vars if array in memo]
    names = [str(variable.name) for variable in [*outputs, *data]]
    dims = {dim for name in names for dim in model.named_vars_to_dims.get(name, ()) if dim is not None}
    for dim in model.coords | model.dim_lengths:
        if dim in dims:
            length = model.dim_lengths[dim]
            copy._coords[dim] = model.coords.get(dim)
            copy._dim_lengths[dim] = memo[length] if length in memo else pt.constant(int(length.eval()))
    for array in data:
        memo[array].name = array.name
        copy.data_vars.append(memo[array])
        copy.add_named_variable(memo[array], dims=model.named_vars_to_dims.get(str(array.name)))
    for variable in free:
        rv = memo[variable]
        rv.name = variable.name
        copy.free_RVs.append(rv)
        copy.create_value_var(rv, transform=model.rvs_to_transforms[variable], default_transform=None)
        start = model.rvs_to_initial_values.get(variable)
        copy.set_initval(rv, None if isinstance(start, TensorVariable) else start)
        copy.add_named_variable(rv, dims=model.named_vars_to_dims.get(str(variable.name)))
    for variable in formulas:
        deterministic = memo[variable]
        deterministic.name = variable.name
        copy.deterministics.append(deterministic)
        copy.add_named_variable(deterministic, dims=model.named_vars_to_dims.get(str(variable.name)))
    return copy


def public_data(model: pm.Model, secret: Collection[Node], dims: Collection[str], options: ModelOptions) -> list[Node]:
    """The `pm.Data` that were declared public and have no entry for each record, such as weights of strata.

    Lengths are compared with the number of records only if that is public.
    """
    observed = [stored_shape(stored_observations(rv, model)) for rv in model.observed_RVs]
    compared = options.records_are_public and not options.trials_are_people
    numbers = {shape[0] for shape in observed if shape and compared}
    return [
        array
        for array in model.data_vars
        if options.is_public(array.name)
        and not any(array is other or _shares_memory(array, other) for other in secret)
        and not any(dim in dims for dim in model.named_vars_to_dims.get(str(array.name), ()))
        and not (array.type.ndim and stored_shape(array)[0] in numbers and stored_shape(array)[0] > 1)
    ]


def public_deterministics(
    model: pm.Model, free: Sequence[Node], dims: Collection[str], public: Collection[Node] = ()
) -> list[Node]:
    """The Deterministics that are functions of free variables, of single numbers and of public data.

    None of them has a dim of the records. Numbers that are written into a model are public, whatever they are. A rule
    that excluded those that equal the number of records would reveal it, because everybody sees what is excluded. An
    array may be the records, and so may the content of a function of the user's own.
    """
    formulas, lengths = [], [length for dim, length in model.dim_lengths.items() if dim not in dims]
    for deterministic in model.deterministics:
        if any(dim in dims for dim in model.named_vars_to_dims.get(str(deterministic.name), ()) if dim is not None):
            continue
        outside = [node for node in ancestors([deterministic], blockers=list(free)) if node not in free]
        if all(node in public or _is_harmless(node, lengths) for node in [*outside, *inner_variables(outside)]):
            formulas.append(deterministic)
    return formulas


def inner_variables(nodes: Iterable[Node]) -> list[Node]:
    """The variables inside of operations, such as those of the step of a scan."""
    inner: list[Node] = []
    for op in {op for node in nodes for op in _operations(node)}:
        if isinstance(op, HasInnerGraph):
            graph = list(ancestors(op.inner_outputs))
            inner += [*graph, *inner_variables(graph)]
    return inner


def _operations(node: Node) -> list[Any]:
    """The operations that compute a variable, and each of its entries."""
    ops = [] if node.owner is None else [node.owner.op]
    return [*ops, *(inner for op in ops for name in ("core_op", "scalar_op") if (inner := getattr(op, name, None)))]


def _is_own_function(op: Any) -> bool:
    """Whether this is an operation of the user's own, whose content cannot be seen."""
    return type(op).__module__.split(".")[0] not in ("pytensor", "pymc") or isinstance(op, FromFunctionOp)


def _is_harmless(node: Node, lengths: Collection[Node]) -> bool:
    if any(map(_is_own_function, _operations(node))):
        return False
    if is_random(node) or isinstance(node.type, RandomType):
        return False
    # Among shared numbers only the lengths of dims are known not to be data.
    if isinstance(node, SharedVariable) and node not in lengths:
        return False
    # An array of one number may be the only record. PyTensor writes a ravel as a reshape to (-1,), which is not a
    # record.
    is_ravel = isinstance(node, Constant) and np.array_equal(node.data, [-1])
    return not (is_stored(node) and node.type.ndim) or is_ravel


def check_nothing_left(
    model: pm.Model, secret: Sequence[Node], published: Sequence[Node], dims: Collection[str]
) -> None:
    """Search all parts of a model for data, and for dims of the records.

    No value and no length is read, so the result reveals nothing about the data and may come before a charge.

    Parameters
    ----------
    model : pymc.Model
    secret : sequence of Variable
        The stored arrays of observations and covariates of records.
    published : sequence of Variable
        The stored arrays that are published.
    dims : collection of str
        The dims along which variables have their records.

    Raises
    ------
    InternalError
        If anything is left. The model is then not returned.
    """
    variables = [*model.basic_RVs, *model.deterministics, *model.potentials, *model.value_vars]
    for node in ancestors(variables):
        if (
            is_stored(node)
            and not any(node is array for array in published)
            and any(_shares_memory(node, array) for array in secret)
        ):
            raise InternalError("A private model still contained an array of its data.")
    if any(dim in dims for dim in model.coords):
        raise InternalError("A private model still contained a dim with an entry for each record.")


def _shares_memory(node: Node, other: Node) -> bool:
    return is_stored(node) and bool(node.type.ndim) and np.shares_memory(_memory(node), _memory(other))


def _memory(node: Any) -> NDArray[Any]:
    """The array of a stored variable itself; an empty one for a computed variable."""
    if isinstance(node, Constant):
        return np.asarray(node.data)
    return np.asarray(node.get_value(borrow=True)) if isinstance(node, SharedVariable) else np.empty(0)
