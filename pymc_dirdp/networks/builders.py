"""Naive Bayes and Bayesian networks as PyMC models, built from records and a structure."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from os import PathLike
from typing import Any, Self, final

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.checks import positive_array
from pymc_dirdp.counting.bounding import Bound, checked_bound
from pymc_dirdp.counting.columns import (
    Categories,
    Frame,
    Otherwise,
    checked_categories,
    checked_otherwise,
    column_of,
)
from pymc_dirdp.counting.counts import Counts
from pymc_dirdp.counting.tables import count_families, table_shape
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.models.graph import Purpose, set_purpose
from pymc_dirdp.models.table import PYMC_NAMES, check_labels, is_path_name
from pymc_dirdp.releases.axes import joined
from pymc_dirdp.releases.choices import Structure
from pymc_dirdp.signatures import user_facing

Prior = float | Mapping[str, ArrayLike]
Parents = Mapping[str, Iterable[str]]


@user_facing
def naive_bayes(
    X: Frame | str | PathLike[str],
    y: ArrayLike | str,
    *,
    categories: Categories,
    target: str | None = None,
    structure: Parents | None = None,
    prior: Prior = 1.0,
    unit: str | None = None,
    contribution: int | None = None,
) -> pm.Model:
    """A naive Bayes classifier: the class, and each feature given the class and optionally other features.

    Parameters
    ----------
    X : data frame, mapping of str to one-dimensional array, table of an engine, or path
        The features, in any form that :func:`pymc_dirdp.count` accepts.
    y : array_like, shape (n,), or str
        The class of each record, or the name of its column in `X`. Records of `X` and `y` are matched by position. An
        error is raised if both have pandas or xarray indexes and these differ. Tables of an engine have no row order,
        so pass the name.
    categories : mapping of str to sequence
        All possible values of the class and of each feature to use. They are public, so they are not taken from the
        data. A feature with a single value costs no privacy.
    target : str, optional
        The name of the class in `categories`; the name of `y` by default, or "class".
    structure : mapping of str to iterable of str, optional
        Parents of features among the other features, in addition to the class. Pass a public structure, or one that
        :func:`choose_structure` chose from the features alone; then pass it as `after=` to :func:`pymc_dirdp.plan`,
        too. Features that depend on each other then do not count as independent evidence.
    prior : float or mapping of str to array_like, default 1.0
        Prior parameters: one number, or for each variable a number or an array that broadcasts to its table.
    unit, contribution : optional
        As in :func:`bayesian_network`.

    Returns
    -------
    model : pymc.Model
        Its variables are named as in :func:`bayesian_network`. Columns of `X` without categories are left out. A plan
        of the model has `objective="estimate"` by default.

    Raises
    ------
    ArgumentError, DataError
        The same errors as those of :func:`bayesian_network`.

    References
    ----------
    P1 section 5.1, with `Pr[feature | class]` for each class (ERRATA P1.2). Friedman, Geiger and Goldszmidt (1997),
    Bayesian network classifiers, https://doi.org/10.1023/A:1007465528199, for a tree over the features.

    Examples
    --------
    >>> records = {"fur": ["yes", "yes", "no"], "eggs": ["no", "no", "yes"]}
    >>> yes_no = {"fur": ["yes", "no"], "eggs": ["yes", "no"]}
    >>> model = naive_bayes(records, ["cat", "dog", "hen"], categories=yes_no | {"class": ["cat", "dog", "hen"]})
    >>> [variable.name for variable in model.free_RVs]
    ['p_class', 'p_fur', 'p_eggs']

    If features depend on each other, give a feature another feature as a parent in addition to the class:

    >>> both = yes_no | {"class": ["cat", "dog", "hen"]}
    >>> model = naive_bayes(records, ["cat", "dog", "hen"], categories=both, structure={"eggs": ["fur"]})
    >>> model.named_vars_to_dims["p_eggs"]
    ('fur', 'class', 'eggs')
    """
    target = class_name(y, target, categories)
    features = [name for name in categories if name != target]
    if not features:
        raise ArgumentError("Expected categories to declare at least one feature.")
    feature_parents = dict(structure or {})
    if unknown := [name for name in feature_parents if name not in features]:
        raise ArgumentError(
            f"structure has {unknown[0]!r}, which is not a feature. Choose a structure of the features alone; each of "
            "them has the class as a parent anyway."
        )
    columns: Any = X
    if not isinstance(y, str):
        columns = {name: column_of(X, name) for name in (*features, *([] if unit is None else [unit]))} | {target: y}
    parents: dict[str, list[str]] = {target: []}
    parents |= {name: [*_names(name, feature_parents.get(name, ())), target] for name in features}
    model = bayesian_network(columns, parents, categories=categories, prior=prior, unit=unit, contribution=contribution)
    _set_prediction(model, structure, target=target)
    return model


def class_name(y: ArrayLike | str, target: str | None, categories: Categories) -> str:
    """The name of the class variable, which `categories` must declare."""
    name: str = target or (y if isinstance(y, str) else getattr(y, "name", None)) or "class"
    if isinstance(y, str) and name != y:
        raise ArgumentError(f"y={y!r} and target={target!r} name different columns as the class. Leave target= out.")
    if name not in categories:
        raise ArgumentError(f"Expected categories[{name!r}] to list the classes. Pass target= if it has another name.")
    return name


@user_facing
def bayesian_network(
    records: Frame | str | PathLike[str],
    structure: Parents | Iterable[tuple[str, str]],
    *,
    categories: Categories,
    prior: Prior = 1.0,
    counts: str | None = None,
    unit: str | None = None,
    contribution: int | None = None,
    otherwise: Otherwise | None = None,
) -> pm.Model:
    """A discrete Bayesian network: each variable given its parents, with a Dirichlet prior for each configuration.

    Parameters
    ----------
    records : data frame, mapping of str to one-dimensional array, table of an engine, or path
        The records, in any form that :func:`pymc_dirdp.count` accepts. DuckDB counts all tables in one pass.
    structure : mapping of str to iterable of str, or iterable of (parent, child), or directed graph of networkx
        The parents of each variable. It is public. A structure learned from the data is not protected, unless
        :func:`choose_structure` chose it. Pass a graph `G` itself, not a view such as `G.edges`, which leaves out
        variables without edges.
    categories : mapping of str to sequence
        All possible values of each variable. They are public, so they are not taken from the data. They become coords,
        so the labels of one variable are all texts or all numbers.
    prior : float or mapping of str to array_like, default 1.0
        Prior parameters: one number, or for each variable a number or an array that broadcasts to its table.
    counts : str, optional
        The column with the number of records that each row stands for. By default each row is one record.
    unit, contribution : str and int, optional
        The column that identifies the unit of each record, and the maximum number of records counted per unit. The same
        records are counted in all tables. :func:`plan` then protects these units.
    otherwise : mapping of str to label, optional
        The category for missing and undeclared values, as in :func:`pymc_dirdp.count`.

    Returns
    -------
    model : pymc.Model
        A variable `v` with parents `a, b` has the free variable `p_v` with dims `(a, b, v)` and the observed `n_v`, a
        Multinomial of counts for every configuration of the parents. A parent with a single label is left out if there
        are other parents. A plan of this model (not of a copy) has `objective="estimate"` by default: networks are for
        prediction, so the error of the draw itself counts.

    Raises
    ------
    ArgumentError
        If the structure has a cycle or names a variable without categories, or a variable has the name of another
        variable's table or a name reserved by PyMC.
    DataError
        If a record has a missing or undeclared value, or the columns have different lengths.

    References
    ----------
    P1 section 5.2.

    Examples
    --------
    >>> table = {"sex": ["f", "f", "m"], "left": ["no", "yes", "no"], "n": [40, 5, 35]}
    >>> declared = {"sex": ["f", "m"], "left": ["no", "yes"]}
    >>> model = bayesian_network(table, {"sex": [], "left": ["sex"]}, categories=declared, counts="n")
    >>> [variable.name for variable in model.observed_RVs]
    ['n_sex', 'n_left']
    """
    tables = NetworkTables.of(structure, {}, categories=categories, prior=prior)
    bound = checked_bound(unit, contribution, distinct=False)
    model = tables.model_of(records, otherwise=otherwise, bound=bound, counts_column=counts)
    _set_prediction(model, structure)
    return model


@final
@dataclass(frozen=True, eq=False)
class NetworkTables:
    """The tables of a network, and cross-tables of some of its variables. Everything is public and checked.

    Attributes
    ----------
    labels : dict of str to list
        Labels of each variable.
    families : dict of str to tuple of str
        Variables of each table, by its name. The last variable is conditional on the others, except in a cross-table.
    axes : dict of str to (str, list)
        Name and labels of the single axis of each cross-table.
    priors : dict of str to array
        Prior parameters of each table.
    """

    labels: dict[str, list[Any]]
    families: dict[str, tuple[str, ...]]
    axes: dict[str, tuple[str, list[Any]]]
    priors: dict[str, NDArray[np.float64]]

    @classmethod
    def of(
        cls,
        structure: Parents | Iterable[tuple[str, str]],
        crosses: Mapping[str, Sequence[str]],
        *,
        categories: Categories,
        prior: Prior = 1.0,
    ) -> Self:
        """Check the arguments of a model.

        Parameters
        ----------
        structure, categories, prior
            As for :func:`bayesian_network`.
        crosses : mapping of str to sequence of str
            Variables of each cross-table, by its name. Their combinations are the cells of one Dirichlet distribution,
            and the variables have no tables of their own.
        """
        parents = _parents(structure)
        labels = checked_categories(list(parents), categories)
        for name, values in labels.items():
            refuse_labels(name, values)
        cross_variables = {name for variables in crosses.values() for name in variables}
        families = {
            name: (*_dividing_parents(names, labels), name)
            for name, names in parents.items()
            if name not in cross_variables
        }
        if clash := [
            name for name in crosses if name in families or (name in labels and tuple(crosses[name]) != (name,))
        ]:
            raise ArgumentError(f"The cross-table {clash[0]!r} has the name of a variable. Rename it.")
        axes = {}
        for name, variables in crosses.items():
            table_shape(variables, labels)  # Checks the number of labels before they are listed.
            axis = joined({variable: labels[variable] for variable in variables})
            if axis is None:
                raise ArgumentError(
                    f'Names or labels of {" and ".join(map(repr, variables))} contain all of " and ", " & " and " | ", '
                    f"so no separator is left for the labels of the cross-table {name!r}. Change one of them."
                )
            axes[name] = axis
        refuse_names(dict.fromkeys((*parents, *crosses, *(axis for axis, _ in axes.values()))))
        families |= {name: tuple(variables) for name, variables in crosses.items()}
        if isinstance(prior, Mapping) and (unknown := [name for name in prior if name not in families]):
            raise ArgumentError(f"prior has {unknown[0]!r}, which is not a variable of the model.")
        shapes = {name: table_shape(family, labels) for name, family in families.items()}
        return cls(labels, families, axes, {name: _prior(name, prior, shape) for name, shape in shapes.items()})

    @property
    def descriptions(self) -> list[str]:
        """The name, the variables and the number of cells of each table."""
        lines = []
        for name, (*parents, last) in self.families.items():
            variables = " by ".join((*parents, last)) if name in self.axes else f"{last} given {' and '.join(parents)}"
            cells = math.prod(len(self.labels[variable]) for variable in (*parents, last))
            lines.append(f"p_{name}, {variables if parents else last}, {cells} cells")
        return lines

    def model_of(
        self, records: Any, *, otherwise: Otherwise | None, bound: Bound | None, counts_column: str | None
    ) -> pm.Model:
        """The model with the counts of the records. Parameters are those of :func:`count_families`. **Secret**."""
        otherwise, families = checked_otherwise(otherwise, self.labels), list(self.families.values())
        tables = count_families(
            records, families, self.labels, otherwise=otherwise, bound=bound, counts_column=counts_column
        )
        return self._model(tables, bound)

    def planning_model(self, n_records: int, bound: Bound | None) -> pm.Model:
        """The same model with `n_records` records in the first cell of each table. No data are read."""
        tables = [np.zeros(table_shape(family, self.labels), dtype=np.int64) for family in self.families.values()]
        for table in tables:
            table.flat[0] = n_records
        return self._model(tables, bound)

    def _model(self, tables: Sequence[Integers], bound: Bound | None) -> pm.Model:
        dims_in_use = {name for table, family in self.families.items() if table not in self.axes for name in family}
        coords = {name: tuple(values) for name, values in self.labels.items() if name in dims_in_use}
        coords |= {axis: tuple(values) for axis, values in self.axes.values()}
        with pm.Model(coords=coords) as model:
            for (name, family), table in zip(self.families.items(), tables, strict=True):
                is_cross = name in self.axes
                dims = (self.axes[name][0],) if is_cross else family
                prior = self.priors[name].ravel() if is_cross else self.priors[name]
                cells = _as_stored(Counts.of(table.ravel() if is_cross else table, bound=bound))
                p = pm.Dirichlet(f"p_{name}", a=prior, dims=dims)
                pm.Multinomial(f"n_{name}", n=np.asarray(cells).sum(axis=-1), p=p, observed=cells, dims=dims)
        if not self.axes:
            set_purpose(model, Purpose("prediction"))
        return model


def _set_prediction(model: pm.Model, structure: object, target: str | None = None) -> None:
    """Store that the model is for prediction, its target, and the structure that was chosen for it."""
    set_purpose(model, Purpose("prediction", target, structure if isinstance(structure, Structure) else None))


def _parents(structure: Mapping[str, Iterable[str]] | Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """The parents of each variable, in topological order."""
    # A networkx graph has nodes and edges; a list of edges has edges only.
    edges = getattr(structure, "edges", structure)
    expected = (
        "Expected structure to map each variable to its parents, or to list (parent, child), or to be a directed graph"
    )
    if _graph_answer(structure, "is_directed") is False or not isinstance(edges, Iterable):
        raise ArgumentError(f"{expected}, got {type_name(structure)}.")
    if _graph_answer(structure, "is_multigraph"):
        raise ArgumentError(
            f"{expected}, got {type_name(structure)}, which may have parallel edges. Pass networkx.DiGraph(graph)."
        )
    if _is_view(structure):
        # Views of nodes, edges and successors are mappings, but not from variables to parents.
        raise ArgumentError(f"{expected}, got {type_name(structure)}, a view of a graph. Pass the graph itself.")
    parents: dict[str, tuple[str, ...]]
    if isinstance(structure, Mapping):
        parents = {name: _names(name, names) for name, names in structure.items()}
    else:
        parents = dict.fromkeys(getattr(structure, "nodes", ()), ())
        for edge in edges:
            # A string of two letters is not a pair of variables.
            if isinstance(edge, str) or not isinstance(edge, Collection) or len(edge) != 2:
                raise ArgumentError(f"{expected}.")
            parent, child = tuple(edge)
            parents[child] = (*parents.get(child, ()), parent)
            parents.setdefault(parent, ())
    if not parents:
        raise ArgumentError("Expected structure to name at least one variable.")
    refuse_names(parents)
    for name, names in parents.items():
        for parent in names:
            if parent not in parents:
                raise ArgumentError(
                    f"A parent of {name!r} is not a variable of the structure. Add it with [] if it has no parents. "
                    "Also check that you pass the data frame first and the structure second."
                )
        if len(set(names)) < len(names):
            raise ArgumentError(f"{name!r} lists the same parent twice.")
    try:
        order = list(TopologicalSorter(parents).static_order())
    except CycleError as error:
        cycle = " -> ".join(reversed(error.args[1]))
        raise ArgumentError(f"The structure has a cycle: {cycle}. Remove one of its edges.") from None
    return {name: parents[name] for name in order}


def _dividing_parents(parents: tuple[str, ...], labels: Categories) -> tuple[str, ...]:
    """The parents with several labels; if there are none, the first parent."""
    return tuple(parent for parent in parents if len(labels[parent]) > 1) or parents[:1]


def _graph_answer(structure: object, question: str) -> bool | None:
    """The result of a method such as `is_directed` of a graph; None if it is not a graph."""
    answer = getattr(structure, question, None)
    return bool(answer()) if callable(answer) else None


def _is_view(structure: object) -> bool:
    """Whether it is a networkx view, a mapping from edges, or to mappings of neighbours or attributes."""
    if not isinstance(structure, Mapping):
        return False
    return any(isinstance(name, tuple) or isinstance(structure[name], Mapping) for name in structure)


def _names(name: str, parents: Iterable[str]) -> tuple[str, ...]:
    if isinstance(parents, str) or not isinstance(parents, Iterable):
        raise ArgumentError(f"Expected the parents of {name!r} as a list of names, got {parents!r}.")
    return tuple(parents)


def refuse_names(names: Iterable[str]) -> None:
    """Refuse names that cannot be dims, or that clash with another name of the model."""
    names = tuple(names)
    for name in names:
        if not isinstance(name, str) or not is_path_name(name):
            raise ArgumentError(
                "Expected names of variables to be texts without '/', '\\' and control characters such as line "
                f"breaks, got {name!r}. Rename the column."
            )
        if name in PYMC_NAMES:
            raise ArgumentError(f"{name!r} is a name that PyMC reserves. Rename the column.")
        for table in (f"p_{name}", f"n_{name}"):
            if table in names:
                raise ArgumentError(f"{table!r} is a variable and also the table of {name!r}. Rename a column.")


def refuse_labels(name: str, labels: list[Any]) -> None:
    """Refuse labels that NumPy would change: an array of 1 and "1" has equal entries."""
    try:
        array = np.asarray(labels)
    except ValueError:
        array = np.empty(0)
    if array.dtype.kind not in "biufU" or array.tolist() != labels:
        raise ArgumentError(
            f"Expected the labels of categories[{name!r}] to be all texts or all numbers, because coords have one "
            "type. Write the numbers as texts in the categories and in the records."
        )
    check_labels(name, labels, "the model")


def _prior(name: str, prior: Prior, shape: tuple[int, ...]) -> NDArray[np.float64]:
    parameters = prior.get(name, 1.0) if isinstance(prior, Mapping) else prior
    try:
        array = np.asarray(parameters, dtype=float)
    except (OverflowError, TypeError, ValueError):
        raise ArgumentError(f"Expected prior[{name!r}] to be numbers, got {type_name(parameters)}.") from None
    try:
        table = np.broadcast_to(array, shape)
    except ValueError:
        raise ArgumentError(
            f"Expected prior[{name!r}] to broadcast to the table's shape {shape}, got shape {array.shape}."
        ) from None
    return positive_array(min_entries=1, **{f"prior of {name!r}": table})


def _as_stored(counts: NDArray[np.int64]) -> NDArray[Any]:
    """The counts in a type that holds them: PyMC stores integers in 32 bits, so large counts become doubles."""
    return counts if counts.sum() < 2**31 else counts.astype(np.float64)
