"""Predictions from the release of a Bayesian network: post-processing, so the guarantee covers them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import logsumexp

from pymc_dirdp.arrays import Array
from pymc_dirdp.counting.tables import Frame, encode
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.stored.draws import drawn_tables

__all__ = ["log_likelihood", "predict_log_proba"]


@dataclass(frozen=True)
class _Node:
    """One table of a network: `log_p` has shape `(draws, *parents, variable)`."""

    dims: tuple[str, ...]
    log_p: Array

    def at(self, draws: int | slice, entries: Mapping[str, Any]) -> Array:
        """The log-probabilities of these draws at the entries along each dim."""
        return self.log_p[(draws, *(entries[dim] for dim in self.dims))]


def predict_log_proba(release: xr.DataTree, X: Frame, *, target: str | None = None) -> Array:
    """Logarithms of class probabilities.

    Parameters
    ----------
    release : xarray.DataTree
        Of a model from :func:`pymc_dirdp.naive_bayes` or :func:`pymc_dirdp.bayesian_network`, or of any model whose
        tables have the dims of their parents and then their own, all with coords.
    X : data frame or mapping of str to one-dimensional array
        The records, with the other variables that are needed for the target.
    target : str, optional
        The variable to predict; by default the one that has no parents, if there is only one.

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
    entries = {dim: column[:, None] for dim, column in columns.items()} | {target: np.arange(len(labels[target]))}
    draws = len(relevant[0].log_p)
    average = np.full((n, len(labels[target])), -np.inf)
    # The draws are taken one after the other, because all at once would need memory in proportion to their number.
    for draw in range(draws):
        joint = np.zeros_like(average)
        for node in relevant:
            joint += node.at(draw, entries)
        average = np.logaddexp(average, joint - logsumexp(joint, axis=-1, keepdims=True) - np.log(draws))
    return average


def log_likelihood(release: xr.DataTree, frame: Frame) -> Array:
    """The logarithm of the probability of each record, with all variables together.

    Parameters
    ----------
    release : xarray.DataTree
        The release of a network, see :func:`predict_log_proba`.
    frame : data frame or mapping of str to one-dimensional array
        Records with all variables of the release.

    Returns
    -------
    log_likelihood : array, shape (n,)
        In nats. With several draws the probabilities are averaged over them.

    Raises
    ------
    ArgumentError, DataError
        The same errors as those of :func:`predict_log_proba`.

    References
    ----------
    P1 section 5.2, equation 11.
    """
    nodes = _network(release)
    columns = encode(frame, list(nodes), _labels(release))
    # Each of these arrays has the shape `(draws, n)`.
    first, *others = (node.at(slice(None), columns) for node in nodes.values())
    total = sum(others, start=first)
    return np.asarray(logsumexp(total, axis=0) - np.log(len(total)))


def _network(release: xr.DataTree) -> dict[str, _Node]:
    """The tables by the variable whose probabilities they hold."""
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
    """The number of records if no column is needed."""
    if not isinstance(X, Mapping):
        return len(X)  # type: ignore[arg-type]  # every data frame has one
    return max((len(column) for column in map(X.__getitem__, X)), default=0)
