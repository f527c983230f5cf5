"""Predictions from the release of a Bayesian network: post-processing, so the guarantee covers them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import logsumexp

from pymc_dirdp.counting.tables import Counts, Frame, encode
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.stored.draws import drawn_tables

__all__ = ["log_likelihood", "predict_log_proba"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class _Node:
    """One table of a network: `log_p` has shape `(draws, *parents, variable)`."""

    dims: tuple[str, ...]
    log_p: Array


def predict_log_proba(release: xr.DataTree, X: Frame, *, target: str | None = None) -> Array:
    """Logarithms of class probabilities.

    Parameters
    ----------
    release : xarray.DataTree
        Of a model from :func:`pymc_dirdp.naive_bayes` or :func:`pymc_dirdp.bayesian_network`, or of any model whose
        tables have the dims of their parents and then their own, all with coords.
    X : data frame or mapping of str to one-dimensional array
        The other variables of the records: those that are needed for the target.
    target : str, optional
        The variable to predict; by default the one that has no parents, if there is one such.

    Returns
    -------
    log_proba : array, shape (n, classes)
        In nats, normalised; classes in the order of the release's coords. With several draws the probabilities are
        averaged over them.

    Raises
    ------
    ArgumentError
        If the release is not that of a network, or it is not clear which variable to predict.
    DataError
        If a record holds a value that was not declared, or a missing one, or the columns are not of one length.

    References
    ----------
    P1 section 5.
    """
    nodes = _network(release)
    labels = _labels(release)
    target = _target(nodes) if target is None else target
    if target not in nodes:
        raise ArgumentError(f"{target!r} is no variable of the release, which holds {', '.join(map(repr, nodes))}.")
    # The other tables do not depend on the target, so they cancel.
    relevant = [node for node in nodes.values() if target in node.dims]
    others = sorted({dim for node in relevant for dim in node.dims} - {target})
    columns = encode(X, others, labels)
    n = len(next(iter(columns.values()))) if columns else _length(X)
    classes = np.arange(len(labels[target]))
    draws = len(relevant[0].log_p)
    average = np.full((n, len(classes)), -np.inf)
    # One draw after the other: all at once would take as much memory as there are draws.
    for draw in range(draws):
        joint = np.zeros_like(average)
        for node in relevant:
            index: list[Any] = [classes[None, :] if dim == target else columns[dim][:, None] for dim in node.dims]
            joint += node.log_p[(draw, *index)]
        average = np.logaddexp(average, joint - logsumexp(joint, axis=-1, keepdims=True) - np.log(draws))
    return average


def log_likelihood(release: xr.DataTree, frame: Frame) -> Array:
    """Logarithm of the probability of each record, all variables together.

    Parameters
    ----------
    release : xarray.DataTree
        As for :func:`predict_log_proba`.
    frame : data frame or mapping of str to one-dimensional array
        Records with all variables of the release.

    Returns
    -------
    log_likelihood : array, shape (n,)
        In nats. With several draws the probabilities are averaged over them.

    Raises
    ------
    ArgumentError, DataError
        As :func:`predict_log_proba` does.

    References
    ----------
    P1 section 5.2, equation 11.
    """
    nodes = _network(release)
    columns = encode(frame, list(nodes), _labels(release))
    first, *others = (_at(node, columns) for node in nodes.values())
    total = sum(others, start=first)
    return np.asarray(logsumexp(total, axis=0) - np.log(len(total)))


def _at(node: _Node, columns: dict[str, Counts]) -> Array:
    """Log-probabilities of the records under one table: shape `(draws, n)`."""
    index: list[Any] = [columns[dim] for dim in node.dims]
    return node.log_p[(slice(None), *index)]


def _network(release: xr.DataTree) -> dict[str, _Node]:
    """The tables by the variable that they are about."""
    nodes: dict[str, _Node] = {}
    for table, drawn in drawn_tables(release).items():
        if drawn.family != "dirichlet" or drawn.dims[-1] in nodes:
            raise ArgumentError(f"{table!r} is no table of a Bayesian network, so the release predicts no variable.")
        p = drawn.positive
        nodes[drawn.dims[-1]] = _Node(drawn.dims, np.log(p.reshape(-1, *p.shape[2:])))
    labels = _labels(release)
    for node in nodes.values():
        for dim in node.dims:
            if dim not in nodes:
                raise ArgumentError(f"The release has no table of {dim!r}, which is a parent in it.")
            if dim not in labels:
                raise ArgumentError(f"The release has no labels of {dim!r}, so no record can be looked up in it.")
    return nodes


def _labels(release: xr.DataTree) -> dict[str, list[Any]]:
    posterior = release.children["posterior"].to_dataset()
    return {str(dim): posterior[dim].values.tolist() for dim in posterior.dims if dim in posterior.coords}


def _target(nodes: dict[str, _Node]) -> str:
    roots = [name for name, node in nodes.items() if len(node.dims) == 1]
    if len(roots) != 1:
        raise ArgumentError(
            f"Say which variable to predict, as target=: {', '.join(map(repr, roots))} have no parents."
        )
    return roots[0]


def _length(X: Frame) -> int:
    """How many records there are where no column is needed."""
    if not isinstance(X, Mapping):
        return len(X)  # type: ignore[arg-type]  # every data frame has one
    return max((len(column) for column in map(X.__getitem__, X)), default=0)
