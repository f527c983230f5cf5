"""What one observation of any discrete model can be, and how likely that is: outcomes by rows of public covariates.

The log-probabilities are graphs over inputs that stand for the free variables. That comes first, because PyMC may
derive a log-probability by drawing a new random variable (`pm.Censored` does), and then it is no function of the free
variables any more. Everything that is found is checked at three random points against PyMC's own log-probability with
an entry for each record, for covariates that are made up; no record is looked at.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pymc as pm
from numpy.typing import NDArray
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors
from pytensor.tensor.type import TensorType

from pymc_dirdp.checks import integer, one_of
from pymc_dirdp.errors import ArgumentError, UnsupportedModelError
from pymc_dirdp.models.graph import Node, compiled_plainly, is_random, stored_shape
from pymc_dirdp.models.likelihoods import stored_observations
from pymc_dirdp.models.shared_data import same_data
from pymc_dirdp.privacy.people import adjacency_named
from pymc_dirdp.sampling.bits import generator

__all__ = [
    "NOISES",
    "Inputs",
    "ModelOptions",
    "Outcomes",
    "core_of",
    "log_probability",
    "n_row_arrays",
    "refuse_observed_elsewhere",
    "refused",
    "too_many",
]

_POINTS = 3


NOISES = ("geometric", "gaussian", "joint")
"""The mechanisms whose likelihood is known; that of joint noise is for tables of one row with a public total."""


@final
@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """What is said about a model of any discrete data, checked. All of it is public.

    See :func:`pymc_dirdp.private_model` for each of them.
    """

    public: Any = ()
    levels: Any = None
    counts: Any = ()
    jointly: Any = ()
    support: Any = None
    unit: str | None = None
    contribution: int = 1
    adjacency: str | None = None
    mechanism: str = "auto"
    weights: Mapping[str, float] | None = None
    disjoint: Iterable[Iterable[str]] | None = None
    max_cells: int = 10_000

    def __post_init__(self) -> None:
        checked = {
            "public": self.public if isinstance(self.public, bool) else _names("public", self.public),
            "levels": {key: integer(1, **{f"levels[{key!r}]": k}) for key, k in dict(self.levels or {}).items()},
            "counts": _names("counts", self.counts),
            "jointly": tuple(_names("each group of jointly", one) for one in _names("jointly", self.jointly)),
            "support": dict(self.support or {}),
            "contribution": integer(1, contribution=self.contribution),
            "max_cells": integer(2, max_cells=self.max_cells),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        if self.unit is not None:
            one_of(("record", "trial"), unit=self.unit)
        one_of(("auto", *NOISES), mechanism=self.mechanism)
        adjacency_named(self.relation)

    @property
    def relation(self) -> str:
        """The adjacency, by default add-remove where the number of people is what is counted."""
        return self.adjacency or ("add-remove" if self.counts else "replace-one")

    @property
    def records_are_public(self) -> bool:
        """Whether the number of records is public: under replace-one."""
        return adjacency_named(self.relation).records_are_public

    @property
    def trials_are_people(self) -> bool:
        """Whether every trial of a Binomial or Multinomial is another person."""
        return self.unit == "trial"

    def is_public(self, name: str | None) -> bool:
        """Whether a covariate or number of trials was said to be public."""
        return self.public is True or (self.public is not False and name in self.public)


def _names(argument: str, names: Iterable[Any]) -> tuple[Any, ...]:
    """A list of names or of groups of them, and an error for a text or anything else."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ArgumentError(f"Expected {argument} to be a list of names: write ['name'].")
    return tuple(names)


@final
@dataclass(frozen=True, eq=False)
class Inputs:
    """The free variables of a model, with inputs in their places, and values of these at random points.

    Attributes
    ----------
    by_variable : dict
        For each free variable the input that stands for it.
    points : list of list of array
        Values of the inputs.
    """

    by_variable: dict[Node, Node]
    points: list[list[Any]]

    @classmethod
    def of(cls, model: pm.Model, free: Sequence[Node]) -> "Inputs":
        """Those of a model: near its initial point, because draws from a prior may be no proper values."""
        start, rng = model.initial_point(random_seed=1), generator(1)
        values = [model.rvs_to_values[rv] for rv in free]
        at = compiled_plainly(values, model.replace_rvs_by_values(list(free)))
        points = []
        for _ in range(_POINTS):
            nearby = [start[value.name] + rng.normal(scale=0.5, size=np.shape(start[value.name])) for value in values]
            points.append(at(*[np.asarray(one, dtype=v.type.dtype) for one, v in zip(nearby, values, strict=True)]))
        return cls({rv: rv.type(name=rv.name) for rv in free}, points)

    def replaced(self, variable: Node) -> Node:
        """The variable as a function of the inputs."""
        return graph_replace([variable], self.by_variable, strict=False)[0]

    def function(self, graph: Node, *others: Node) -> Callable[..., list[NDArray[np.float64]]]:
        """The values of a graph at all points, as a function of other inputs or of stored arrays in their place."""
        places = {node: node.type() for node in others}
        compiled = compiled_plainly(
            [*self.by_variable.values(), *places.values()], graph_replace([graph], places, strict=False)[0]
        )

        def at(*values: Any) -> list[NDArray[np.float64]]:
            with np.errstate(all="ignore"):
                return [np.asarray(compiled(*point, *values)) for point in self.points]

        return at

    def at_points(self, graph: Node, *others: tuple[Node, Any]) -> list[NDArray[np.float64]]:
        """The values of a graph at all points, given those of other inputs."""
        return self.function(graph, *(node for node, _ in others))(*(value for _, value in others))


@final
@dataclass(frozen=True, eq=False)
class Outcomes:
    """The outcomes of one observed variable.

    Attributes
    ----------
    name : str
        The observed variable.
    kind : {"records", "trials", "counts"}
        What one person is: an observation, one of its trials, or one of those that it counts.
    labels : tuple
        Of the outcomes; of counts, of the observations.
    rows : tuple
        Labels of the rows of covariates; one of them where there are no covariates.
    log_p : Variable
        Their log-probabilities as functions of the inputs, shape (rows, outcomes); of counts, the log-probability of
        `value`.
    value : Variable or None
        Of counts: what is observed.
    totals : tuple of int, or None
        The public numbers of records of the rows; None if they are private.
    n_records : int or None
        The number of records where one observation is one person; None elsewhere.
    read : callable
        `read(model)` counts the records of the model. Only this looks at them.
    each : callable or None
        Where one observation is one person: `each(model)` is the row and the outcome of each record, by number.
    """

    name: str
    kind: str
    labels: tuple[Any, ...]
    rows: tuple[Any, ...]
    log_p: Node
    value: Node | None
    totals: tuple[int, ...] | None
    n_records: int | None
    read: Callable[[pm.Model], NDArray[np.int64]]
    each: "Callable[[pm.Model], tuple[NDArray[np.int64], NDArray[np.int64]]] | None" = None


def refused(name: str | None, why: str, way_out: str) -> UnsupportedModelError:
    """The error for a model that `private_model` cannot release."""
    return UnsupportedModelError(f"private_model cannot release this model: {name!r} {why}. {way_out}")


def n_row_arrays(graph: Iterable[Node], n: int) -> list[Node]:
    """The stored arrays in a graph that have an entry for each of n records."""
    found: dict[int, Node] = {}
    for node in graph:
        if isinstance(node, Constant | SharedVariable) and isinstance(node.type, TensorType) and node.type.ndim:
            shape = stored_shape(node)
            # A single record has no covariates but those that are said to be data.
            if shape[0] == n and (n > 1 or (isinstance(node, SharedVariable) and node.name)):
                found.setdefault(id(node), node)
    return list(found.values())


def log_probability(rv: Node, value: Node, inputs: Inputs) -> Node:
    """The log-probability of a value as a function of the inputs alone."""
    found: Node = pm.logp(inputs.replaced(rv), value, warn_rvs=False)
    for node in ancestors([found]):
        if is_random(node):
            other = f" ({node.name!r})" if node.name else ""
            raise refused(
                str(rv.name),
                f"depends on a random variable that is no free variable of the model{other}",
                "Observe both together, as one variable whose values are all their combinations.",
            )
    return found


def refuse_observed_elsewhere(name: str, graph: Node, model: pm.Model) -> None:
    """Refuse a variable of which a stored array is what a variable observes."""
    observed = [stored_observations(rv, model) for rv in model.observed_RVs]
    for node in ancestors([graph]):
        is_array = isinstance(node, Constant | SharedVariable) and isinstance(node.type, TensorType) and node.type.ndim
        if is_array and any(same_data(node, one) for one in observed):
            raise refused(name, "reads what a variable observes", "Observe both together, as one Multinomial variable.")


def core_of(rv: Node) -> int:
    """The number of axes of one observation."""
    op: Any = rv.owner.op
    return int(op.ndim_supp)


def too_many(name: str, cells: int, said: ModelOptions) -> UnsupportedModelError:
    """The error for a table of too many cells."""
    return refused(
        name,
        f"has {cells} cells, which are more than max_cells={said.max_cells}, and the noise would swamp them",
        "Put values of covariates together, use fewer of them, or raise max_cells. Fewer cells than a fifth of the "
        "records is good advice.",
    )
