"""Plain PyMC models over count tables, for users who have records and a structure."""

from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Any

import numpy as np
import pymc as pm
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.checks import positive_array
from pymc_dirdp.counting import Categories, Frame, checked_categories, count
from pymc_dirdp.errors import ArgumentError

__all__ = ["bayesian_network", "naive_bayes"]

Alpha = float | Mapping[str, ArrayLike]


def naive_bayes(
    X: Frame, y: ArrayLike, *, categories: Categories, target: str | None = None, alpha: Alpha = 1.0
) -> pm.Model:
    """A naive Bayes classifier: the class, and each feature given the class.

    Parameters
    ----------
    X : data frame or mapping of str to one-dimensional array
        The features.
    y : array_like, shape (n,)
        The class of each record.
    categories : mapping of str to sequence
        All values of the class and of each feature that is used. Public: not read off the data.
    target : str, optional
        What the class is called in `categories`; the name of `y` by default, or "class".
    alpha : float or mapping of str to array_like, default 1.0
        Prior parameters, by variable: a number, or an array that broadcasts to the variable's table.

    Returns
    -------
    model : pymc.Model
        With variables as :func:`bayesian_network` names them.

    References
    ----------
    P1 section 5.1, with `Pr[feature | class]` for each class (ERRATA P1.2).

    Examples
    --------
    >>> records = {"fur": ["yes", "yes", "no"], "eggs": ["no", "no", "yes"]}
    >>> yes_no = {"fur": ["yes", "no"], "eggs": ["yes", "no"]}
    >>> model = naive_bayes(records, ["cat", "dog", "hen"], categories=yes_no | {"class": ["cat", "dog", "hen"]})
    >>> [variable.name for variable in model.free_RVs]
    ['p_class', 'p_fur', 'p_eggs']
    """
    named = target or getattr(y, "name", None) or "class"
    if named not in categories:
        raise ArgumentError(
            f"Expected categories[{named!r}] to hold the classes, or target= to say what they are called."
        )
    features = [name for name in categories if name != named]
    if not features:
        raise ArgumentError("Expected categories to declare at least one feature.")
    columns = {name: _column(X, name) for name in features} | {named: y}
    return bayesian_network(
        columns, {named: []} | {name: [named] for name in features}, categories=categories, alpha=alpha
    )


def bayesian_network(
    frame: Frame,
    structure: Mapping[str, Iterable[str]] | Iterable[tuple[str, str]],
    *,
    categories: Categories,
    alpha: Alpha = 1.0,
) -> pm.Model:
    """A discrete Bayesian network: each variable given its parents, with a Dirichlet prior for each configuration.

    Parameters
    ----------
    frame : data frame or mapping of str to one-dimensional array
        The records.
    structure : mapping of str to iterable of str, or iterable of (parent, child)
        The parents of each variable. It is public: a structure that was learned from the data is not protected.
    categories : mapping of str to sequence
        All values that each variable could take. Public: not read off the data.
    alpha : float or mapping of str to array_like, default 1.0
        Prior parameters, by variable: a number, or an array that broadcasts to the variable's table.

    Returns
    -------
    model : pymc.Model
        For a variable `v` with parents `a, b`: the free variable `p_v` with dims `(a, b, v)`, and the observed `n_v`, a
        Multinomial of counts, for every configuration of the parents.

    Raises
    ------
    ArgumentError
        If the structure has a cycle or names a variable without categories.
    DataError
        If a record holds a value that was not declared.

    References
    ----------
    P1 section 5.2.
    """
    parents = _parents(structure, categories)
    labels = checked_categories(list(parents), categories)
    with pm.Model(coords={name: tuple(values) for name, values in labels.items()}) as model:
        for name, given in parents.items():
            counts = _stored(count(frame, [*given, name], categories=labels))
            dims = (*given, name)
            p = pm.Dirichlet(f"p_{name}", a=_prior(name, alpha, counts.shape), dims=dims)
            pm.Multinomial(f"n_{name}", n=counts.sum(axis=-1), p=p, observed=counts, dims=dims)
    return model


def _column(X: Frame, name: str) -> Any:
    try:
        return X[name]
    except Exception:
        pass
    raise ArgumentError(f"The records have no column {name!r}.")


def _parents(
    structure: Mapping[str, Iterable[str]] | Iterable[tuple[str, str]], categories: Categories
) -> dict[str, tuple[str, ...]]:
    """The parents of each variable, every variable after its parents."""
    if isinstance(structure, Mapping):
        parents = {name: _names(name, given) for name, given in structure.items()}
    else:
        # A graph of networkx says its nodes and edges; a list of edges is the edges.
        parents = dict.fromkeys(getattr(structure, "nodes", ()), ())
        for edge in getattr(structure, "edges", structure):
            if isinstance(edge, str) or len(edge) != 2:
                raise ArgumentError(
                    "Expected structure to map each variable to its parents, or to list (parent, child)."
                )
            parent, child = edge
            parents[child] = (*parents.get(child, ()), parent)
            parents.setdefault(parent, ())
    if not parents:
        raise ArgumentError("Expected structure to name at least one variable.")
    for name, given in parents.items():
        for parent in given:
            if parent not in parents:
                raise ArgumentError(
                    f"{name!r} has the parent {parent!r}, which is no variable of the structure. "
                    f"Add {parent!r}: [] if it has no parents."
                )
        if len(set(given)) < len(given):
            raise ArgumentError(f"{name!r} has a parent twice.")
    try:
        order = list(TopologicalSorter(parents).static_order())
    except CycleError as error:
        cycle = " -> ".join(reversed(error.args[1]))
        raise ArgumentError(f"The structure has a cycle: {cycle}. Take one of its arrows out.") from None
    checked_categories(order, categories)
    # In the user's order where it is possible: a variable is moved only behind its parents.
    return {name: parents[name] for name in order}


def _names(name: str, given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise ArgumentError(f"Expected the parents of {name!r} as a list of names, got the text {given!r}.")
    return tuple(given)


def _prior(name: str, alpha: Alpha, shape: tuple[int, ...]) -> NDArray[np.float64]:
    given = alpha.get(name, 1.0) if isinstance(alpha, Mapping) else alpha
    try:
        return positive_array(**{f"alpha of {name!r}": np.broadcast_to(np.asarray(given, dtype=float), shape)})
    except ValueError as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(
            f"Expected alpha[{name!r}] to broadcast to the table's shape {shape}, got shape {np.shape(given)}."
        ) from None


def _stored(counts: NDArray[np.int64]) -> NDArray[Any]:
    """PyMC keeps integers in 32 bits and doubles whole: large counts go in as doubles."""
    return counts if counts.sum() < 2**31 else counts.astype(np.float64)
