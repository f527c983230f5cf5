"""Predictions from the release of a Bayesian network: post-processing, so the guarantee covers them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import log_softmax

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import one_of
from pymc_dirdp.counting.columns import Frame, encode
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.networks.fitting import DrawnTable, draws_given_release, is_analysis, stored_draws
from pymc_dirdp.networks.wide_records import log_proba_of_records, log_proba_of_target, mixture_of, pairs_of
from pymc_dirdp.releases.opened import Published
from pymc_dirdp.sampling.bits import Seed
from pymc_dirdp.signatures import user_facing


@dataclass(frozen=True, eq=False)
class _Node:
    """A table of a network. `log_p` has shape `(parts, *parents, variable)`."""

    dims: tuple[str, ...]
    log_p: Array

    def cells(self, part: int, entries: Mapping[str, Any]) -> Array:
        """The log-probabilities of this part at the entries along each dim."""
        log_p: Array = self.log_p[(part, *(entries[dim] for dim in self.dims))]
        return log_p


@dataclass(frozen=True, eq=False)
class _Network:
    """Tables by the variable whose shares they hold, the weights of their parts, and the labels of each variable.

    The probability of a record is the average over parts, by weight, of the product of its cells.
    """

    nodes: dict[str, _Node]
    weights: Array
    labels: dict[str, list[Any]]
    outcomes: frozenset[str]  # The variables with the labels success and failure.

    def codes(self, frame: Frame, names: list[str]) -> dict[str, Integers]:
        """The codes of the values of these columns. An outcome may be a text, a boolean, or 1 and 0."""
        # Success has the even codes and failure the odd ones, as texts and as the values of a Bernoulli.
        values = ["success", "failure", 1, 0]
        columns = encode(frame, names, self.labels | dict.fromkeys(self.outcomes, values))
        return {name: codes % 2 if name in self.outcomes else codes for name, codes in columns.items()}

    def log_joint(self, nodes: list[_Node], entries: Mapping[str, Any], shape: tuple[int, ...]) -> Array:
        """The logarithm of the average over parts of the product of the cells of these tables."""
        average = np.full(shape, -np.inf)
        # One part at a time, because memory for all parts at once would be proportional to their number.
        for part, weight in enumerate(self.weights):
            joint = np.full(shape, np.log(weight))
            for node in nodes:
                joint += node.cells(part, entries)
            average = np.logaddexp(average, joint)
        return average


@user_facing
def predict_log_proba(
    release: Published,
    X: Frame,
    *,
    target: str | None = None,
    draws: int | Literal["released"] | None = None,
    random_seed: Seed = 0,
) -> xr.DataArray:
    """Logarithms of class probabilities, given a release and the record.

    Parameters
    ----------
    release : xarray.DataTree
        The release of a model from :func:`pymc_dirdp.naive_bayes` or :func:`pymc_dirdp.bayesian_network`, or of any
        model whose tables have the dims of their parents and then their own, all with coords. A Beta `p` has only the
        dims of its parents; its variable is `p_outcome`, with the labels "success" and "failure". To predict more than
        once, or with your own prior, pass the result of :func:`pymc_dirdp.analyse`, which saves time. You can also
        pass the estimate of :func:`pymc_dirdp.fit`.
    X : data frame or mapping of str to one-dimensional array
        The records, with the variables that the prediction of the target uses. A column such as `p_outcome` may have
        the labels, booleans, or 1 for a success and 0 for a failure.
    target : str, optional
        The variable to predict; by default the only variable without parents.
    draws : int or "released", optional
        The number of draws given the release over which probabilities are averaged; by default 4000, or fewer if the
        tables have more than 2500 cells. `"released"` uses the draws stored in the release. If the release is one draw
        of the Dirichlet mechanism, this understates uncertainty. By default, :func:`pymc_dirdp.fit` fits a release of
        marginals, without draws.
    random_seed : int, SeedSequence, Generator or None, default 0
        The seed of the draws given the release, which are public. With the default, predictions are reproducible.

    Returns
    -------
    log_proba : xarray.DataArray, dims (record, target)
        In nats, normalised. The second dim has the name and the labels of the target, in the order of the release.
        `log_proba.idxmax(target)` returns the predicted labels.

    Raises
    ------
    ReleaseError
        If it is not a release, or is damaged.
    ArgumentError
        If the release is not that of a network, the target is ambiguous, or the number of records is private. In this
        case pass your prior for it to :func:`pymc_dirdp.analyse`.
    DataError
        If a record has a missing or undeclared value, or the columns have different lengths.

    Notes
    -----
    The probability of a class `c` and features `x` given the release is the average of `p(c, x)` over the draws. The
    prediction is that average for each class, divided by their sum, which is Bayes' rule given the release. The average
    of the normalised probabilities would ignore the information of `x` about the draws.

    If :func:`pymc_dirdp.analyse` analyses the tables one by one, they are independent given the release, and the
    average of a product is the product of the averages. Features that it analyses jointly with the class are
    independent given the count of the class, so draws are averaged in groups with nearly the same count.

    Averages over draws have a Monte Carlo error. With 1000 draws and 20 features, errors of single probabilities were
    up to 0.06, and of the cross-entropy of 300 records 0.003. Both are proportional to one over the root of `draws`.

    References
    ----------
    P1 section 5; Theory, section 16.

    Examples
    --------
    >>> import pandas as pd
    >>> import pymc_dirdp as dirdp
    >>> frame = pd.DataFrame({"spam": ["no", "no", "yes", "no"], "link": ["no", "no", "yes", "yes"]})
    >>> kinds = {"spam": ["no", "yes"], "link": ["no", "yes"]}
    >>> model = dirdp.naive_bayes(frame[["link"]], frame["spam"], categories=kinds, target="spam")
    >>> release = dirdp.sample(dirdp.ApproxDP(epsilon=1.1, delta=1e-6), model)
    >>> log_proba = dirdp.predict_log_proba(release, frame[["link"]])
    >>> log_proba.dims, log_proba["spam"].values.tolist()
    (('record', 'spam'), ['no', 'yes'])
    """
    if (pairs := pairs_of(release)) is not None:
        _refuse_draws(draws)
        return log_proba_of_target(pairs, mixture_of(release, pairs), X, target)
    predictor = Predictor(release, target, draws, random_seed)
    return predictor.to_dataarray(predictor.log_proba(X))


@final
class Predictor:
    """The probabilities of the values of one variable, given a release and the other variables of a record.

    Parameters
    ----------
    release, target, draws, random_seed
        As in :func:`predict_log_proba`.

    Attributes
    ----------
    target : str
    classes : list
        The labels of the target, in the order of the release.
    """

    def __init__(
        self,
        release: Published,
        target: str | None = None,
        draws: int | Literal["released"] | None = None,
        random_seed: Seed = 0,
    ) -> None:
        self._network = _network(release, draws, random_seed)
        nodes = self._network.nodes
        self.target = _target(nodes) if target is None else target
        if self.target not in nodes:
            raise ArgumentError(
                f"{self.target!r} is not a variable of the release, which has {', '.join(map(repr, nodes))}."
            )
        self.classes = self._network.labels[self.target]
        # The other tables do not depend on the target. Their information about the draws is ignored.
        self._relevant = [node for node in nodes.values() if self.target in node.dims]

    @property
    def log_class_shares(self) -> Array:
        """The logarithms of the probabilities of the classes without features, shape (classes,)."""
        node = self._network.nodes[self.target]
        if len(node.dims) > 1:
            raise ArgumentError(f"{self.target!r} has parents in the release, so it is not the class of a classifier.")
        joint = self._network.log_joint([node], {self.target: np.arange(len(self.classes))}, (len(self.classes),))
        return np.asarray(log_softmax(joint))

    def log_proba(self, X: Frame) -> Array:
        """Normalised logarithms of probabilities, shape (records, classes)."""
        others = sorted({dim for node in self._relevant for dim in node.dims} - {self.target})
        columns = self._network.codes(X, others)
        n = len(next(iter(columns.values()))) if columns else _length(X)
        entries = {dim: column[:, None] for dim, column in columns.items()}
        entries[self.target] = np.arange(len(self.classes))
        return np.asarray(
            log_softmax(self._network.log_joint(self._relevant, entries, (n, len(self.classes))), axis=-1)
        )

    def to_dataarray(self, log_proba: Array) -> xr.DataArray:
        """Logarithms of probabilities with the name and the labels of the target."""
        dims = ("record" if self.target != "record" else "row", self.target)
        return xr.DataArray(log_proba, {self.target: self.classes}, dims, name="log_proba")


@user_facing
def log_likelihood(
    release: Published,
    records: Frame,
    *,
    draws: int | Literal["released"] | None = None,
    random_seed: Seed = 0,
) -> Array:
    """The logarithm of the joint probability of all variables of each record, given a release.

    Parameters
    ----------
    release : xarray.DataTree
        The release of a network, or an analysis or estimate of it, as for :func:`predict_log_proba`.
    records : data frame or mapping of str to one-dimensional array
        Records with all variables of the release.
    draws, random_seed
        As for :func:`predict_log_proba`.

    Returns
    -------
    log_likelihood : array, shape (n,)
        In nats: the logarithm of the average, over draws given the release, of the probability of each record. Each
        record is evaluated as the next single record, independently of the others.

    Raises
    ------
    ReleaseError, ArgumentError, DataError
        The same errors as in :func:`predict_log_proba`.

    References
    ----------
    P1 section 5.2, equation 11.

    Examples
    --------
    >>> import pandas as pd
    >>> import pymc_dirdp as dirdp
    >>> frame = pd.DataFrame({"spam": ["no", "no", "yes", "no"], "link": ["no", "no", "yes", "yes"]})
    >>> kinds = {"spam": ["no", "yes"], "link": ["no", "yes"]}
    >>> model = dirdp.bayesian_network(frame, {"spam": [], "link": ["spam"]}, categories=kinds)
    >>> release = dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model)
    >>> dirdp.log_likelihood(release, frame).shape
    (4,)
    """
    if (pairs := pairs_of(release)) is not None:
        _refuse_draws(draws)
        return log_proba_of_records(pairs, mixture_of(release, pairs), records)
    network = _network(release, draws, random_seed)
    for node in network.nodes.values():
        if orphans := set(node.dims) - set(network.nodes):
            raise ArgumentError(
                f"The release has no table of {min(orphans)!r}, a parent in another table, so whole records have no "
                "probability. Predict with predict_log_proba(release, X, target=)."
            )
    columns = network.codes(records, list(network.nodes))
    n = len(next(iter(columns.values())))
    return network.log_joint(list(network.nodes.values()), columns, (n,))


def _refuse_draws(draws: object) -> None:
    if draws is not None:
        raise ArgumentError("The mixture of a wide table is one estimate and has no draws. Leave draws= out.")


def _network(release: Published, draws: int | str | None, random_seed: Seed) -> _Network:
    """The network of average tables for predictions."""
    if isinstance(draws, str):
        one_of(["released"], draws=draws)
        if is_analysis(release):
            raise ArgumentError("An analysis does not have the draws of the release. Pass the release itself.")
        tables = stored_draws(release)
    else:
        tables = draws_given_release(release, draws, random_seed)
    shares, weights = averages(tables)
    nodes: dict[str, _Node] = {}
    labels: dict[str, list[Any]] = {}
    outcomes: set[str] = set()
    for name, table in tables.items():
        variable = table.dims[-1]
        if variable in nodes:
            raise ArgumentError(f"{variable!r} has two tables, so the release is not a Bayesian network.")
        # A rate of success may round to 1. Failure then has the logarithm -inf.
        with np.errstate(divide="ignore"):
            nodes[variable] = _Node(table.dims, np.log(shares[name]))
        outcomes |= {variable} if table.is_beta else set()
        labels |= {dim: values for dim, values in table.labels if values is not None}
    for node in nodes.values():
        if clash := outcomes & set(node.dims[:-1]):
            raise ArgumentError(
                f"{min(clash)!r} is a parent and also the outcome of a Beta, so records are ambiguous. Rename the dim."
            )
        for dim in node.dims:
            if dim not in labels:
                raise ArgumentError(f"The release has no labels of {dim!r}, which are needed to look up records.")
    return _Network(nodes, weights, labels, frozenset(outcomes))


def _target(nodes: dict[str, _Node]) -> str:
    roots = list(nodes) if len(nodes) == 1 else [name for name, node in nodes.items() if len(node.dims) == 1]
    if len(roots) != 1:
        reason = f"{', '.join(map(repr, roots))} have no parents" if roots else "each of them has parents"
        raise ArgumentError(
            f"Pass the variable to predict as target=, one of {', '.join(map(repr, nodes))}. There is no default: "
            f"{reason}."
        )
    return roots[0]


def _length(X: Frame) -> int:
    """The number of records, if the prediction needs no column."""
    if not isinstance(X, Mapping):
        return len(X)  # type: ignore[arg-type]  # A data frame has a length.
    return max((len(column) for column in map(X.__getitem__, X)), default=0)


# Averages of shares over draws, in parts in which the tables of a network are independent.


def averages(tables: dict[str, DrawnTable]) -> tuple[dict[str, Array], Array]:
    """The average shares of each table in several parts of the draws, and the weights of the parts.

    The average over draws of a product of cells, one per table, is the weighted average over parts of the product of
    the averages. The parts depend on the dependence between the tables:

    * The draws of a release itself may be the same posterior draw of all tables, so every draw is a part.
    * Tables that were drawn one by one are independent, so there is one part.
    * If the rows of all other tables are the classes of one table and add up to its counts, the tables are independent
      given the count of a class. For each class the draws are sorted by its count and divided into parts of 200.

    Parameters
    ----------
    tables : dict of str to DrawnTable
        Tables with the same number of draws.

    Returns
    -------
    shares : dict of str to array, shape (parts, ...)
    weights : array, shape (parts,)
        They add up to 1.
    """
    draws = len(next(iter(tables.values())).shares)
    if not any(table.counts.size for table in tables.values()):
        return {name: table.shares for name, table in tables.items()}, np.full(draws, 1 / draws)
    classes = _classes(tables)
    if classes is None:
        return {name: table.shares.mean(axis=0)[None] for name, table in tables.items()}, np.ones(1)
    # Parts are large enough that errors of products of averages are far below the differences between classes.
    parts = np.array_split(np.arange(draws), max(1, draws // 200))
    # The order of the draws for each class, shape `(draws, classes)`.
    orders = np.argsort(classes, axis=0, kind="stable")
    shares = {
        name: np.stack([_part_average(table.shares, orders[part]) for part in parts]) for name, table in tables.items()
    }
    return shares, np.array([len(part) / draws for part in parts])


def _part_average(shares: Array, draws: NDArray[np.int64]) -> Array:
    """The average shares of each class over its draws, whose indices have the shape `(size, classes)`."""
    average: Array = shares[draws, np.arange(draws.shape[1])].mean(axis=0)
    return average


def _classes(tables: dict[str, DrawnTable]) -> NDArray[np.int64] | None:
    """The drawn counts of the classes, if every other table has a row for each class and the same records."""
    roots = [table for table in tables.values() if len(table.dims) == 1]
    others = [table for table in tables.values() if len(table.dims) > 1]
    if len(roots) != 1 or not others:
        return None
    counts = roots[0].counts
    same = all(
        table.dims[:-1] == roots[0].dims and np.array_equal(table.counts.sum(axis=-1), counts) for table in others
    )
    return counts if same else None
