"""Data of a model from its prior, with the noise of a plan, and NUTS that is compiled once for all of them."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pymc.logprob.utils import ParameterValueError
from pymc.step_methods.hmc.quadpotential import QuadPotentialDiagAdapt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.replace import graph_replace
from pytensor.graph.traversal import ancestors

from pymc_dirdp.arrays import Array
from pymc_dirdp.models.graph import compile_plain
from pymc_dirdp.models.outcomes import Outcomes
from pymc_dirdp.releases.model_tables import ParsedModel, layout_of
from pymc_dirdp.releases.plan_types import PlannedTable

# So many draws from a prior are tried for one that its transforms allow, such as cut points in order.
_TRIES = 10_000


def noisy_data(
    parts: Sequence[PlannedTable], counts: Mapping[str, Array], rng: np.random.Generator
) -> dict[str, Array]:
    """Made-up counts with the noise of a plan."""
    mechanisms = {part.table.name: getattr(part.mechanism, "equivalent_alone", part.mechanism) for part in parts}
    return {name: mechanism.releases(counts[name], 1, random_seed=rng)[0] for name, mechanism in mechanisms.items()}


def prior_data(
    found: ParsedModel, private: pm.Model, n_records: int | None
) -> Callable[[np.random.Generator], tuple[dict[str, Any], dict[str, Array]]]:
    """A function that draws parameters from the prior, and the counts of the tables of as many records.

    Parameters
    ----------
    found : ParsedModel
    private : pymc.Model
        From :func:`with_terms`.
    n_records : int or None
        How many records to plan for, where their number is private.

    Returns
    -------
    simulate : callable
        `simulate(rng)` returns the values of the free variables of the private model, and counts by the names of
        tables.
    """
    size = n_records or 0
    places = list(found.inputs.by_variable.values())
    log_p = {one.name: one.log_p for one in found.outcomes if one.kind != "counts"}
    chances = compile_plain(places, list(log_p.values()))
    observed = [found.model[one.name] for one in found.outcomes if one.kind == "counts"]
    drawn: Any = compile_plain([], [*found.free, *observed])
    to_point = _to_point(private)
    own = [private.rvs_to_values[private[str(rv.name)]].name for rv in found.free]

    def simulate(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Array]]:
        for _ in range(_TRIES):
            _seed(drawn, rng)
            values = drawn()
            truth = dict(zip((str(rv.name) for rv in found.free), values, strict=False))
            counts = dict(zip((str(rv.name) for rv in observed), values[len(found.free) :], strict=True))
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                try:
                    p = dict(zip(log_p, map(np.exp, chances(*values[: len(found.free)])), strict=True))
                except ParameterValueError:
                    continue
                for one in found.outcomes:
                    truth |= _drawn_counts(one, found, p.get(one.name), counts, size, rng)
                point = to_point(truth)
            if all(np.isfinite(point[name]).all() for name in own):
                return truth, {one.name: _laid(counts[one.name], layout_of(one, found).shape) for one in found.outcomes}
        raise RuntimeError(f"No draw from the prior in {_TRIES} has values that its transforms allow.")

    return simulate


def _seed(function: Any, rng: np.random.Generator) -> None:
    """New numbers for the generators of a compiled function."""
    for one in function.get_shared():
        if hasattr(one.get_value(borrow=True), "bit_generator"):
            one.set_value(np.random.Generator(np.random.PCG64(int(rng.integers(2**62)))))


def _drawn_counts(
    one: Outcomes, found: ParsedModel, p: Any, counts: dict[str, Any], size: int, rng: np.random.Generator
) -> dict[str, Any]:
    """Put in the counts of one table; the values of free variables that its term adds."""
    if one.kind == "counts":
        return {}
    p = p / p.sum(axis=1, keepdims=True)
    rows, laid = len(one.rows), layout_of(one, found)
    if laid.rows_are_public:
        totals = one.totals if one.totals is not None else (one.n_records or 0,)
        counts[one.name] = np.array([rng.multinomial(n, row) for n, row in zip(totals, p, strict=True)])
        return {}
    if found.options.records_are_public:
        shares = rng.dirichlet(np.ones(rows))
        n = sum(one.totals) if one.totals is not None else one.n_records or 0
        counts[one.name] = rng.multinomial(n, (shares[:, None] * p).ravel())
        return {f"{one.name}_shares": shares}
    expected = np.full(rows, size / rows)
    counts[one.name] = rng.poisson(expected[:, None] * p)
    return {f"{one.name}_expected": expected}


def _laid(counts: Any, shape: tuple[int, ...]) -> Array:
    flat = np.asarray(counts, dtype=np.float64).ravel()
    return np.pad(flat, (0, int(np.prod(shape)) - flat.size)).reshape(shape)


def _to_point(private: pm.Model) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """From values of free variables to the values that a sampler moves."""
    free = private.free_RVs
    places: dict[Any, Any] = {rv: rv.type() for rv in free}
    transformed = []
    for rv in free:
        transform = private.rvs_to_transforms[rv]
        inputs = graph_replace(list(rv.owner.inputs), places, strict=False) if transform is not None else []
        transformed.append(places[rv] if transform is None else transform.forward(places[rv], *inputs))
    function = compile_plain(list(places.values()), transformed)
    names = [private.rvs_to_values[rv].name for rv in free]

    def to_point(values: Mapping[str, Any]) -> dict[str, Any]:
        given = [np.asarray(values[str(rv.name)], dtype=rv.type.dtype) for rv in free]
        return dict(zip(names, map(np.asarray, function(*given)), strict=True))

    return to_point


def publish(model: pm.Model, other: pm.Model) -> None:
    """Put what another private model of the same tables holds of its release into one that may be compiled."""
    of_other, own = (
        {node.name: node for node in ancestors(one.basic_RVs + one.value_vars) if isinstance(node, SharedVariable)}
        for one in (other, model)
    )
    for name, node in own.items():
        if name is not None and not hasattr(node.get_value(borrow=True), "bit_generator"):
            node.set_value(of_other[name].get_value())


class Chain:
    """NUTS for a private model, compiled once, whatever is published later.

    Parameters
    ----------
    model : pymc.Model
        From :func:`with_terms`.
    found : ParsedModel
    """

    def __init__(self, model: pm.Model, found: ParsedModel) -> None:
        self._model, self._start = model, model.initial_point(random_seed=1)
        self._logp = model.logp_dlogp_function(ravel_inputs=True, initial_point=self._start)
        self._logp.trust_input = True
        self._spread = np.ones(sum(np.size(one) for one in self._start.values()))
        self._weight = 10
        own = [model[str(rv.name)] for rv in found.free]
        values = [model.rvs_to_values[rv] for rv in model.free_RVs]
        self._names = [value.name for value in values]
        self._back = compile_plain(values, model.replace_rvs_by_values(own))
        self._to_point = _to_point(model)

    def draws(self, start: Mapping[str, Any], rng: np.random.Generator, tune: int, draws: int) -> Array:
        """Draws of the parameters, shape (draws, parameters), from values of the free variables on."""
        potential = QuadPotentialDiagAdapt(
            len(self._spread), np.zeros(len(self._spread)), self._spread, self._weight, rng=rng.spawn(1)[0]
        )
        step = pm.NUTS(
            model=self._model,
            logp_dlogp_func=self._logp,
            initial_point=self._start,
            potential=potential,
            rng=rng.spawn(1)[0],
        )
        point = self._to_point(start)
        found = []
        for k in range(tune + draws):
            if k == tune:
                step.stop_tuning()
            point, _ = step.step(point)
            if k >= tune:
                found.append(np.concatenate([np.ravel(one) for one in self._back(*(point[n] for n in self._names))]))
        # The next data set is alike, so its chain begins with the spread that this one found.
        self._spread = potential._var.copy()
        return np.array(found)
