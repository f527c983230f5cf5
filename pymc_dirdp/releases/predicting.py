"""Expected errors of fits to all tables of a network, and of their predictions, by simulation without data."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from graphlib import TopologicalSorter
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from pymc_dirdp.arrays import Array
from pymc_dirdp.inference.effects import Effects
from pymc_dirdp.mechanisms.outputs import Marginals
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.models.table import Table
from pymc_dirdp.planning.estimate_error import EstimateError, estimated_shares
from pymc_dirdp.planning.measured_marginals import Axes
from pymc_dirdp.releases.axes import outcome_dims, share_dims
from pymc_dirdp.releases.draws import fitted_shares, measurements_of_table
from pymc_dirdp.releases.plan_types import PlannedTable

type Mechanisms = Mapping[str, TableMechanism]
Codes = NDArray[np.int64]

# Standard deviations of effects on a logit: of the variable itself, and of its interactions with one parent, two and
# more parents. In real tables categories differ most, parents have less effect, and their interactions even less.
_SCALES = (2.0, 0.5, 0.2, 0.1)


@final
@dataclass(frozen=True, eq=False)
class SimulatedNetwork:
    """A simulated network: the axes, counts and shares of its tables, and the values of further records."""

    axes: Mapping[str, Axes]
    counts: dict[str, Array]
    shares: dict[str, Array]
    codes: dict[str, Codes]

    def lost(self, estimates: Mapping[str, Array], target: str | None) -> dict[str, float]:
        """The divergence of the estimates from the shares, in nats a record, averaged over the records.

        There is one for each table. With a target, all of them are that of its probabilities given the other variables.
        """
        if target is None:
            losses = {}
            for name, axes in self.axes.items():
                cells = tuple(self.codes[axis] for axis, _ in axes)
                losses[name] = float(np.mean(np.log(self.shares[name][cells]) - np.log(estimates[name][cells])))
            return losses
        truth = self.codes[target]
        log_true, log_estimated = (self._given_others(tables, target) for tables in (self.shares, estimates))
        places = truth, np.arange(len(truth))
        return dict.fromkeys(self.axes, float(np.mean(log_true[places] - log_estimated[places])))

    def _given_others(self, tables: Mapping[str, Array], target: str) -> Array:
        """The log-probabilities of the values of a variable given the others, shape (values, records)."""
        # There may be no other variable.
        joint: Array = np.zeros((1, len(self.codes[target])))
        for name, axes in self.axes.items():
            if target in (axis for axis, _ in axes):
                places = tuple(slice(None) if axis == target else self.codes[axis] for axis, _ in axes)
                place = [axis for axis, _ in axes].index(target)
                first = np.moveaxis(np.log(tables[name]), place, 0)
                joint = joint + first[:, *(places[:place] + places[place + 1 :])].reshape(first.shape[0], -1)
        return np.asarray(log_softmax(joint, axis=0))


def prediction_loss_of(
    axes: Mapping[str, Axes],
    priors: Mapping[str, Array],
    n_records: int,
    *,
    public: bool,
    target: str | None = None,
    models: int = 2,
    seed: int = 20261122,
) -> Callable[[Mechanisms], dict[str, float] | None]:
    """The expected loss of predicting the next record, or its class, from a release, compared with the true shares.

    It is an average over simulated networks. All mechanisms are compared on the same networks, with noise from the same
    seed, in any order.

    Parameters
    ----------
    axes : mapping of str to Axes
        The axes of the tables of one network, each with two or more categories.
    priors : mapping of str to array
        The prior of each table in the model.
    n_records : int
        The public number of records, or the planning size, above 0.
    public : bool
        Whether it is public, so that predictions can use it.
    target : str, optional
        The axis of the class, to compare predictions of the class given all other variables.
    models : int, default 2
        The number of simulated networks.
    seed : int, default 20261122
        The seed of the simulation.

    Returns
    -------
    judge : callable
        A function from the mechanisms of all tables to the expected loss of each in nats a record, at least 0. It
        returns None if nothing can be estimated from a mechanism.
    """
    rng = np.random.default_rng(seed)
    # Features are recorded because they predict the class, so the effects of single parents are larger here.
    scales = _SCALES if target is None else (2.0, 1.0, 0.2, 0.1)
    networks = [simulated_network(axes, n_records, rng, scales) for _ in range(models)]

    def judge(mechanisms: Mechanisms) -> dict[str, float] | None:
        noise = np.random.default_rng(seed)
        errors = dict.fromkeys(axes, 0.0)
        for network in networks:
            fitted = _fitted(network, mechanisms, float(n_records) if public else None, noise)
            for name, mechanism in mechanisms.items():
                estimate = fitted.get(name)
                if estimate is None:
                    estimate = estimated_shares(mechanism, priors[name], network.counts[name], public=public, rng=noise)
                if estimate is None:
                    return None
                fitted[name] = estimate
            for name, error in network.lost(fitted, target).items():
                errors[name] += error / models
        return {name: max(error, 0.0) for name, error in errors.items()}

    return judge


def _fitted(
    network: SimulatedNetwork, mechanisms: Mechanisms, n_records: float | None, rng: np.random.Generator
) -> dict[str, Array]:
    """The shares of the tables that are fitted together to simulated noisy marginals."""
    measured = [
        measurements_of_table(
            name,
            tuple(axis for axis, _ in network.axes[name]),
            mechanism,
            mechanism.draw(network.counts[name], 1, sampler="fast", random_seed=rng),
        )
        for name, mechanism in mechanisms.items()
        if mechanism.output_kind is Marginals
    ]
    return fitted_shares(measured, n_records)


def axes_of(table: Table) -> Axes:
    """The name and the length of each axis of a table, including the outcomes of a Beta."""
    return tuple(zip([*share_dims(table), *outcome_dims(table)], table.shape, strict=True))


def simulated_network(
    axes: Mapping[str, Axes], n_records: int, rng: np.random.Generator, scales: Sequence[float] = _SCALES
) -> SimulatedNetwork:
    """A network with log-linear tables, and records from it. Parents without a table are uniform."""
    table_of = {table[-1][0]: name for name, table in axes.items()}
    lengths: dict[str, int] = {axis: length for table in axes.values() for axis, length in table}
    parents: dict[str, Any] = dict.fromkeys(lengths, ()) | {
        axis: {parent for parent, _ in axes[name][:-1]} for axis, name in table_of.items()
    }
    codes: dict[str, Codes] = {}
    shares: dict[str, Array] = {}
    # The maximum number of simulated records. The counts of more records are scaled up.
    n_simulated = min(n_records, 500_000)
    # Further records to evaluate predictions.
    size = n_simulated + 20_000
    for axis in TopologicalSorter(parents).static_order():
        if axis not in table_of:
            codes[axis] = rng.integers(lengths[axis], size=size)
            continue
        name = table_of[axis]
        shares[name] = _shares(tuple(length for _, length in axes[name]), rng, scales)
        rows = shares[name][tuple(codes[parent] for parent, _ in axes[name][:-1])]
        values = (rows.cumsum(axis=-1) < rng.random((size, 1))).sum(axis=-1)
        codes[axis] = np.minimum(values, lengths[axis] - 1)
    counts: dict[str, Array] = {}
    for name, table in axes.items():
        shape = tuple(length for _, length in table)
        where = np.ravel_multi_index(tuple(codes[axis][:n_simulated] for axis, _ in table), shape)
        observed = np.bincount(where, minlength=int(np.prod(shape))).reshape(shape)
        counts[name] = np.rint(observed * (n_records / n_simulated))
    return SimulatedNetwork(axes, counts, shares, {axis: values[n_simulated:] for axis, values in codes.items()})


def _shares(shape: tuple[int, ...], rng: np.random.Generator, by_order: Sequence[float] = _SCALES) -> Array:
    """Shares of a variable given its parents. Their logits are sums of effects, which decrease with their order."""
    effects = Effects(shape)
    scales = np.array([by_order[min(max(order - 1, 0), len(by_order) - 1)] for order in effects.orders])
    logits = effects.logits(scales[effects.groups] * rng.standard_normal(shape))
    return np.asarray(np.exp(log_softmax(logits, axis=-1)))


def expected_fit_errors(
    parts: Sequence[PlannedTable], *, public: bool, most_cells: int = 2_000
) -> dict[str, EstimateError]:
    """The expected error of each table that is fitted to marginals, over simulated networks of the same shape.

    Networks are simulated as for :func:`prediction_loss_of`. Each is released, and fitted table by table. Errors are
    averaged over the records, so rows are weighted by their numbers of records.

    Parameters
    ----------
    parts : sequence of PlannedTable
        All tables that are released by marginals, with the public number of records or the planning size.
    public : bool
        Whether the fit uses the number of records.
    most_cells : int, default 2_000
        The maximum number of cells, which are fitted in a second or two.

    Returns
    -------
    errors : dict of str to EstimateError
        Empty if there are no such tables or no records, if their numbers of records differ, if the tables have more
        than `most_cells` cells together, or if two of them are tables of the same variable.
    """
    tables = tuple((part.table.name, axes_of(part.table), part.mechanism) for part in parts)
    sizes, cells = {part.n_records or 0 for part in parts}, sum(part.table.prior.size for part in parts)
    # Two tables of the same variable are not a network. A text may contain that.
    is_network = len({axes[-1][0] for _, axes, _ in tables}) == len(tables)
    if len(sizes) != 1 or 0 in sizes or cells > most_cells or not is_network:
        return {}
    # At most 16 networks are simulated, with 800 cells together unless a single one has more.
    errors = _simulated(tables, sizes.pop(), public, min(16, max(1, 800 // cells)))
    return {name: error for (name, *_), error in zip(tables, errors, strict=True)}


@lru_cache(maxsize=64)
def _simulated(
    tables: tuple[tuple[str, Axes, TableMechanism], ...], n_records: int, public: bool, networks: int
) -> tuple[EstimateError, ...]:
    axes = {name: table_axes for name, table_axes, _ in tables}
    # A fixed seed does not affect privacy, because no data are used. It makes plans reproducible.
    rng = np.random.default_rng(20261123)
    kl, squares = np.zeros(len(tables)), np.zeros(len(tables))
    for _ in range(networks):
        network = simulated_network(axes, n_records, rng)
        mechanisms = {name: mechanism for name, _, mechanism in tables}
        fit = _fitted(network, mechanisms, float(n_records) if public else None, rng)
        for i, name in enumerate(fit):
            p, q = network.shares[name], fit[name]
            in_rows = network.counts[name].sum(axis=-1)
            weights = in_rows / in_rows.sum() / networks
            kl[i] += np.sum(weights * np.sum(p * (np.log(p) - np.log(q)), axis=-1))
            squares[i] += np.sum(weights * np.mean((p - q) ** 2, axis=-1))
    return tuple(EstimateError(float(a), math.sqrt(float(b))) for a, b in zip(kl, squares, strict=True))
