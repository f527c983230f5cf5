"""Plain PyMC models over count tables, for users who have records and a structure."""

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
    """A naive Bayes classifier: the class, and each feature given the class and perhaps other features.

    Parameters
    ----------
    X : data frame, mapping of str to one-dimensional array, table of an engine, or path
        The features, as :func:`pymc_dirdp.count` takes records.
    y : array_like, shape (n,), or str
        The class of each record, or the name of its column in `X`. Records of `X` and `y` are matched by position, and
        refused if both have indexes, of pandas or xarray, that differ. What an engine holds has no positions, so there
        it is the name.
    categories : mapping of str to sequence
        All values of the class and of each feature that is used. They are public, so they are not taken from the data.
        A feature with one value stays, and costs nothing.
    target : str, optional
        The name of the class in `categories`; the name of `y` by default, or "class".
    structure : mapping of str to iterable of str, optional
        Parents of features among the features, beside the class: what :func:`choose_structure` has chosen from the
        features alone, or what is public. Features that depend on each other are then not counted as independent
        evidence. Pass a chosen structure as `after=` to :func:`pymc_dirdp.plan`, too.
    prior : float or mapping of str to array_like, default 1.0
        Prior parameters, by variable: a number, or an array that broadcasts to the variable's table.
    unit, contribution : optional
        As in :func:`bayesian_network`.

    Returns
    -------
    model : pymc.Model
        Its variables have the names that :func:`bayesian_network` gives. Columns of `X` without categories are left
        out. It is planned with `objective="estimate"` unless another is given.

    Raises
    ------
    ArgumentError, DataError
        The same errors as those of :func:`bayesian_network`.

    References
    ----------
    P1 section 5.1, with `Pr[feature | class]` for each class (ERRATA P1.2). Friedman, Geiger and Goldszmidt (1997),
    Bayesian network classifiers, https://doi.org/10.1023/A:1007465528199, for a tree beside the class.

    Examples
    --------
    >>> records = {"fur": ["yes", "yes", "no"], "eggs": ["no", "no", "yes"]}
    >>> yes_no = {"fur": ["yes", "no"], "eggs": ["yes", "no"]}
    >>> model = naive_bayes(records, ["cat", "dog", "hen"], categories=yes_no | {"class": ["cat", "dog", "hen"]})
    >>> [variable.name for variable in model.free_RVs]
    ['p_class', 'p_fur', 'p_eggs']

    Of features that depend on each other, each is given the class and another feature:

    >>> both = yes_no | {"class": ["cat", "dog", "hen"]}
    >>> model = naive_bayes(records, ["cat", "dog", "hen"], categories=both, structure={"eggs": ["fur"]})
    >>> model.named_vars_to_dims["p_eggs"]
    ('fur', 'class', 'eggs')
    """
    named = class_name(y, target, categories)
    features = [name for name in categories if name != named]
    if not features:
        raise ArgumentError("Expected categories to declare at least one feature.")
    beside = dict(structure or {})
    if unknown := [name for name in beside if name not in features]:
        raise ArgumentError(
            f"structure has {unknown[0]!r}, which is no feature. Choose it from the features alone; each of them has "
            "the class as a parent anyway."
        )
    columns: Any = X
    if not isinstance(y, str):
        columns = {name: column_of(X, name) for name in (*features, *([] if unit is None else [unit]))} | {named: y}
    parents: dict[str, list[str]] = {named: []}
    parents |= {name: [*_names(name, beside.get(name, ())), named] for name in features}
    model = bayesian_network(columns, parents, categories=categories, prior=prior, unit=unit, contribution=contribution)
    _build(model, structure, target=named)
    return model


def class_name(y: ArrayLike | str, target: str | None, categories: Categories) -> str:
    """The name of the class that `y` holds or names, which `categories` has to declare."""
    named = target or (y if isinstance(y, str) else getattr(y, "name", None)) or "class"
    if isinstance(y, str) and named != y:
        raise ArgumentError(f"y={y!r} names the column of the class, and target={target!r} another. Leave target out.")
    if named not in categories:
        raise ArgumentError(
            f"Expected categories[{named!r}] to hold the classes, or target= to say what they are called."
        )
    return named


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
        The records, as :func:`pymc_dirdp.count` takes them. DuckDB counts all tables in one pass over them.
    structure : mapping of str to iterable of str, or iterable of (parent, child), or directed graph of networkx
        The parents of each variable. It is public: a structure that was learned from the data is not protected, unless
        :func:`choose_structure` has chosen it. Of a graph pass `G` itself, and not a view such as `G.edges`, which
        leaves out variables without arrows.
    categories : mapping of str to sequence
        All values that each variable could take. They are public, so they are not taken from the data. They become
        coords, so those of one variable are all texts or all numbers.
    prior : float or mapping of str to array_like, default 1.0
        Prior parameters, by variable: a number, or an array that broadcasts to the variable's table.
    counts : str, optional
        A column that says how many records each row of the records stands for. By default each row is one record.
    unit, contribution : str and int, optional
        The column that says whose record it is, and how many records of each unit are counted at most, the same ones in
        all tables. :func:`plan` then protects these units.
    otherwise : mapping of str to label, optional
        As in :func:`pymc_dirdp.count`, for missing and undeclared values.

    Returns
    -------
    model : pymc.Model
        For a variable `v` with parents `a, b`: the free variable `p_v` with dims `(a, b, v)`, and the observed `n_v`, a
        Multinomial of counts, for every configuration of the parents. Beside other parents, one with a single label is
        left out, because it divides nothing. This model, and no copy of it, is planned with
        `objective="estimate"` unless another is given: a network predicts, so the error of the draw itself counts.

    Raises
    ------
    ArgumentError
        If the structure has a cycle or names a variable without categories, or a variable has a name that PyMC or the
        table of another has.
    DataError
        If a record holds a value that was not declared, or a missing one, or the columns have different lengths.

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
    # Everything public is checked by now. Each column is read once, however many tables it is in.
    bound = checked_bound(unit, contribution, distinct=False)
    model = tables.counted(records, otherwise=otherwise, bound=bound, counts_column=counts)
    _build(model, structure)
    return model


@final
@dataclass(frozen=True, eq=False)
class NetworkTables:
    """The tables of a network, and cross-tables of some of its variables. All of it is public and was checked.

    Attributes
    ----------
    labels : dict of str to list
        Of each variable.
    families : dict of str to tuple of str
        By the name of a table its variables. The last one is given the others, but in a cross-table.
    axes : dict of str to (str, list)
        The one axis of each cross-table, and its labels.
    priors : dict of str to array
        Of each table.
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
        """Check what a model is to be made of.

        Parameters
        ----------
        structure, categories, prior
            As for :func:`bayesian_network`.
        crosses : mapping of str to sequence of str
            By the name of a table, the variables whose combinations are the cells of one Dirichlet distribution. These
            variables have no table of their own.
        """
        parents = _parents(structure)
        labels = checked_categories(list(parents), categories)
        for name, values in labels.items():
            refuse_labels(name, values)
        crossed = {name for variables in crosses.values() for name in variables}
        families = {name: (*_dividing(given, labels), name) for name, given in parents.items() if name not in crossed}
        if clash := [
            name for name in crosses if name in families or (name in labels and tuple(crosses[name]) != (name,))
        ]:
            raise ArgumentError(f"The cross-table {clash[0]!r} has the name of a variable. Give it another one.")
        axes = {}
        for name, variables in crosses.items():
            # Their number is checked before they are listed.
            table_shape(variables, labels)
            axis = joined({variable: labels[variable] for variable in variables})
            if axis is None:
                raise ArgumentError(
                    f'Names or labels of {" and ".join(map(repr, variables))} hold " and ", " & " and " | ", so '
                    f"nothing is left to join them in the cross-table {name!r}. Write one of these in another way."
                )
            axes[name] = axis
        refuse_names(dict.fromkeys((*parents, *crosses, *(axis for axis, _ in axes.values()))))
        families |= {name: tuple(variables) for name, variables in crosses.items()}
        if isinstance(prior, Mapping) and (unknown := [name for name in prior if name not in families]):
            raise ArgumentError(f"prior has {unknown[0]!r}, which is no variable of the model.")
        shapes = {name: table_shape(family, labels) for name, family in families.items()}
        return cls(labels, families, axes, {name: _prior(name, prior, shape) for name, shape in shapes.items()})

    @property
    def in_words(self) -> list[str]:
        """Each table, its variables and how many cells it has."""
        words = []
        for name, (*given, last) in self.families.items():
            variables = " by ".join((*given, last)) if name in self.axes else f"{last} given {' and '.join(given)}"
            cells = math.prod(len(self.labels[variable]) for variable in (*given, last))
            words.append(f"p_{name}, {variables if given else last}, {cells} cells")
        return words

    def counted(
        self, records: Any, *, otherwise: Otherwise | None, bound: Bound | None, counts_column: str | None
    ) -> pm.Model:
        """The model with the counts of records. The parameters are those of :func:`count_families`. **Secret**."""
        missing, families = checked_otherwise(otherwise, self.labels), list(self.families.values())
        found = count_families(
            records, families, self.labels, otherwise=missing, bound=bound, counts_column=counts_column
        )
        return self._model(found, bound)

    def made_up(self, n_records: int, bound: Bound | None) -> pm.Model:
        """The same model of as many records in the first cell of each table, for planning. No record is read."""
        tables = [np.zeros(table_shape(family, self.labels), dtype=np.int64) for family in self.families.values()]
        for table in tables:
            table.flat[0] = n_records
        return self._model(tables, bound)

    def _model(self, tables: Sequence[Integers], bound: Bound | None) -> pm.Model:
        used = {name for table, family in self.families.items() if table not in self.axes for name in family}
        coords = {name: tuple(values) for name, values in self.labels.items() if name in used}
        coords |= {axis: tuple(values) for axis, values in self.axes.values()}
        with pm.Model(coords=coords) as model:
            for (name, family), table in zip(self.families.items(), tables, strict=True):
                is_cross = name in self.axes
                dims = (self.axes[name][0],) if is_cross else family
                prior = self.priors[name].ravel() if is_cross else self.priors[name]
                cells = _stored(Counts.of(table.ravel() if is_cross else table, bound=bound))
                p = pm.Dirichlet(f"p_{name}", a=prior, dims=dims)
                pm.Multinomial(f"n_{name}", n=np.asarray(cells).sum(axis=-1), p=p, observed=cells, dims=dims)
        if not self.axes:
            set_purpose(model, Purpose("prediction"))
        return model


def _build(model: pm.Model, structure: object, target: str | None = None) -> None:
    """Remember what the model is for, and what it is from. Nobody reads the draw of a network as a posterior."""
    set_purpose(model, Purpose("prediction", target, structure if isinstance(structure, Structure) else None))


def _parents(structure: Mapping[str, Iterable[str]] | Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """The parents of each variable, every variable after its parents."""
    # A graph of networkx has nodes and edges; a list of edges has edges only.
    edges = getattr(structure, "edges", structure)
    expected = (
        "Expected structure to map each variable to its parents, or to list (parent, child), or to be a directed graph"
    )
    if _says(structure, "is_directed") is False or not isinstance(edges, Iterable):
        raise ArgumentError(f"{expected}, got {type_name(structure)}.")
    if _says(structure, "is_multigraph"):
        raise ArgumentError(
            f"{expected}, got {type_name(structure)}, which may hold an arrow twice. Pass networkx.DiGraph(graph)."
        )
    if _is_view(structure):
        # Views of nodes, edges, and successors are mappings, and none of them maps a variable to its parents.
        raise ArgumentError(f"{expected}, got {type_name(structure)}, a view of a graph. Pass the graph itself.")
    parents: dict[str, tuple[str, ...]]
    if isinstance(structure, Mapping):
        parents = {name: _names(name, given) for name, given in structure.items()}
    else:
        parents = dict.fromkeys(getattr(structure, "nodes", ()), ())
        for edge in edges:
            # A text of two letters is no pair of variables.
            if isinstance(edge, str) or not isinstance(edge, Collection) or len(edge) != 2:
                raise ArgumentError(f"{expected}.")
            parent, child = tuple(edge)
            parents[child] = (*parents.get(child, ()), parent)
            parents.setdefault(parent, ())
    if not parents:
        raise ArgumentError("Expected structure to name at least one variable.")
    refuse_names(parents)
    for name, given in parents.items():
        for parent in given:
            if parent not in parents:
                raise ArgumentError(
                    f"A parent of {name!r} is no variable of the structure. Add it with [] if it has no parents; and "
                    "see that the data frame comes first and the structure second."
                )
        if len(set(given)) < len(given):
            raise ArgumentError(f"{name!r} has a parent twice.")
    try:
        order = list(TopologicalSorter(parents).static_order())
    except CycleError as error:
        cycle = " -> ".join(reversed(error.args[1]))
        raise ArgumentError(f"The structure has a cycle: {cycle}. Take one of its arrows out.") from None
    return {name: parents[name] for name in order}


def _dividing(parents: tuple[str, ...], labels: Categories) -> tuple[str, ...]:
    """The parents that divide the records; one of them, if each has a single label."""
    return tuple(parent for parent in parents if len(labels[parent]) > 1) or parents[:1]


def _says(structure: object, question: str) -> bool | None:
    """The answer of a graph to a question about itself; None if it is no graph."""
    answer = getattr(structure, question, None)
    return bool(answer()) if callable(answer) else None


def _is_view(structure: object) -> bool:
    """Whether it is a view of networkx: a mapping from edges, or to mappings of neighbours or attributes."""
    if not isinstance(structure, Mapping):
        return False
    return any(isinstance(name, tuple) or isinstance(structure[name], Mapping) for name in structure)


def _names(name: str, given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ArgumentError(f"Expected the parents of {name!r} as a list of names, got {given!r}.")
    return tuple(given)


def refuse_names(names: Iterable[str]) -> None:
    """Refuse names that no dim can have, or that would stand for two things in the model."""
    taken = tuple(names)
    for name in taken:
        if not isinstance(name, str) or not is_path_name(name):
            raise ArgumentError(
                "Expected names of variables to be texts without '/', '\\' and control characters, such as line "
                f"breaks, got {name!r}. Rename the column."
            )
        if name in PYMC_NAMES:
            raise ArgumentError(f"{name!r} is a name that PyMC keeps for itself. Rename the column.")
        for own in (f"p_{name}", f"n_{name}"):
            if own in taken:
                raise ArgumentError(f"{own!r} is a variable, and the name of a table of {name!r}. Rename a column.")


def refuse_labels(name: str, labels: list[Any]) -> None:
    """Refuse labels that an array would change: it turns 1 and "1" into the same text."""
    try:
        array = np.asarray(labels)
    except ValueError:
        array = np.empty(0)
    if array.dtype.kind not in "biufU" or array.tolist() != labels:
        raise ArgumentError(
            f"Expected the labels of categories[{name!r}] to be all texts or all numbers: they become coords, which "
            "hold one kind. Write the numbers as texts, there and in the records."
        )
    check_labels(name, labels, "the model")


def _prior(name: str, prior: Prior, shape: tuple[int, ...]) -> NDArray[np.float64]:
    given = prior.get(name, 1.0) if isinstance(prior, Mapping) else prior
    try:
        array = np.asarray(given, dtype=float)
    except (OverflowError, TypeError, ValueError):
        raise ArgumentError(f"Expected prior[{name!r}] to be numbers, got {type_name(given)}.") from None
    try:
        table = np.broadcast_to(array, shape)
    except ValueError:
        raise ArgumentError(
            f"Expected prior[{name!r}] to broadcast to the table's shape {shape}, got shape {array.shape}."
        ) from None
    return positive_array(min_entries=1, **{f"prior of {name!r}": table})


def _stored(counts: NDArray[np.int64]) -> NDArray[Any]:
    """The counts as PyMC keeps them whole: it stores integers in 32 bits, so large counts are given as doubles."""
    return counts if counts.sum() < 2**31 else counts.astype(np.float64)
