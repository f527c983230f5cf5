"""The plan of a release of any model, with a forecast: how much wider each parameter's interval gets by the noise.

Data are simulated from the prior, as many as the model has, and each data set gets noise. NUTS draws from the posterior
of the same model twice: given the noisy counts, and given counts without noise. The ratio of the widths of the two
intervals is taken for each parameter, and its median over the data sets. The parameters that the data were simulated
with are themselves a draw from the posterior, so a chain starts there and needs no time to arrive.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final, override

import numpy as np
import pymc as pm
from pymc.logprob.utils import ParameterValueError
from pymc.step_methods.hmc.quadpotential import QuadPotentialDiagAdapt
from pytensor.graph.replace import graph_replace

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer, refuse_unknown
from pymc_dirdp.display import Tabular
from pymc_dirdp.errors import ArgumentError, UnattainableError, UnsupportedModelError
from pymc_dirdp.mechanisms.outputs import CellNoise
from pymc_dirdp.models.graph import compiled_plainly
from pymc_dirdp.models.outcomes import NOISES, ModelOptions, Outcomes
from pymc_dirdp.models.whose_records import refuse_lost_unit
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.progress import Bar
from pymc_dirdp.releases.model_terms import (
    ModelRead,
    ModelTerms,
    layout_of,
    planned_tables,
    read_model,
    with_terms,
)
from pymc_dirdp.releases.plan import ModelPlanning
from pymc_dirdp.releases.plan_types import Plan, PlannedTable
from pymc_dirdp.sampling.bits import Seed, generator

__all__ = ["KNOWN", "Chain", "ModelPlan", "noisy_data", "plan_of_model", "prior_data"]

_TUNE, _DRAWS = 300, 500
# So many draws from a prior are tried for one that its transforms allow, such as cut points in order.
_TRIES = 10_000
KNOWN = CellNoise(is_normal=True, slope=100.0, constant=0.0)
"""Hardly any noise: counts are known."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class ModelPlan(Tabular):
    """What will be done with the records of a model of any discrete data, and what that costs its parameters.

    It is public: no record was looked at. `print` it, let a notebook show it, or take `frame()`; pass it to
    :func:`pymc_dirdp.private_model` in the place of a guarantee.

    Attributes
    ----------
    tables : Plan
        The tables that are released, called by the observed variables. It can be saved.
    options : ModelOptions
        What was said about the model.
    cells : dict of str to int
        How many cells the table of each observed variable has.
    widening : dict of str to dict of str to float
        By parameter, and by guarantee and mechanism: how many times as wide its 90 % interval gets, as the median over
        simulated data sets. The first of them is that of the plan.
    simulations : int
        The number of data sets.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model() as model:
    ...     rate = pm.Gamma("rate", 2, 0.2, shape=3)
    ...     cases = pm.Poisson("cases", rate, observed=[3, 0, 5])
    >>> chosen = dirdp.plan(dirdp.PureDP(epsilon=1.0), model, any_model=True, counts=["cases"], simulations=0)
    >>> chosen.cells
    {'cases': 3}
    >>> private = dirdp.private_model(chosen, model)
    """

    tables: Plan
    options: ModelOptions
    cells: dict[str, int]
    widening: dict[str, dict[str, float]]
    simulations: int

    def __repr__(self) -> str:
        return f"ModelPlan({self.tables!r}, {sum(self.cells.values())} cells)"

    @override
    def _parts(self) -> tuple[list[str], list[dict[str, Any]], list[str]]:
        above = [f"Plan of a private model, {self.tables.guarantee}, {self.tables.adjacency}"]
        for part in self.tables.parts:
            name, sd = part.table.name, part.mechanism.noise_sd or 0.0
            above.append(f"{name!r}: {self.cells[name]} cells, {part.mechanism.kind} noise of sd {sd:.3g} on each")
        if not self.widening:
            return above, [{"parameter": "all", "forecast": "none: simulations=0"}], []
        rows = [{"parameter": name, **each} for name, each in self.widening.items()]
        return above, rows, [f"times the width of an interval without privacy; {self.simulations} data sets"]


def plan_of_model(
    guarantee: Guarantee,
    model: pm.Model,
    *,
    any_model: bool = True,
    against: Sequence[Guarantee] = (),
    n_records: int | None = None,
    simulations: int = 20,
    random_seed: Seed = 1,
    progressbar: bool = True,
    **said: Any,
) -> ModelPlan:
    """Plan the release of a model of any discrete data. See :func:`pymc_dirdp.plan`."""
    if any_model is not True:
        raise ArgumentError("Say any_model=True, or leave it out for a model with Dirichlet and Beta priors.")
    refuse_unknown("plan", said, ModelPlanning.__annotations__)
    guarantee, options = Guarantee.checked(guarantee=guarantee), ModelOptions(**said)
    others = [Guarantee.checked(guarantee=one) for one in against]
    found = read_model(model, options)
    chosen = planned_tables(guarantee, found, options)
    refuse_lost_unit([str(rv.name) for rv in found.model.observed_RVs], model, options.contribution)
    cells = {one.name: len(one.rows) * len(one.labels) for one in found.outcomes}
    # The size of joint noise is what matters: it is simulated by that of tables by themselves.
    alone = planned_tables(guarantee, found, replace(options, mechanism="geometric")) if chosen.together else chosen
    terms = with_terms(found, alone, None)
    if not integer(0, simulations=simulations):
        return ModelPlan(chosen, options, cells, {}, 0)
    plans = {_called(chosen): chosen}
    for one in (guarantee, *others):
        for kind in NOISES if options.mechanism == "auto" else (options.mechanism,):
            try:
                planned = planned_tables(one, found, replace(options, mechanism=kind))
            except (ArgumentError, UnattainableError):
                continue
            plans.setdefault(_called(planned), planned)
    ratios = _ratios(found, terms, plans, n_records, simulations, generator(random_seed), progressbar)
    widening = {
        name: dict(zip(plans, map(float, column), strict=True))
        for name, column in zip(Chain.names(terms.model, found), np.median(ratios, axis=0).T, strict=True)
    }
    return ModelPlan(chosen, options, cells, widening, simulations)


def _called(chosen: Plan) -> str:
    return f"{chosen.guarantee}, {chosen.parts[0].mechanism.kind}"


def _ratios(
    found: ModelRead,
    terms: ModelTerms,
    plans: Mapping[str, Plan],
    n_records: int | None,
    simulations: int,
    rng: np.random.Generator,
    shown: bool,
) -> Array:
    """How many times as wide intervals get: shape (simulations, plans, parameters)."""
    simulate, chain = prior_data(found, terms.model, n_records), Chain(terms, found)
    ratios = []
    with Bar(simulations * (len(plans) + 1), "posteriors", shown=shown) as bar:
        for _ in range(simulations):
            truth, counts = simulate(rng)
            terms.publish(dict.fromkeys(counts, KNOWN), counts)
            open_width = _width(chain.draws(truth, rng))
            bar.advance()
            each = []
            for chosen in plans.values():
                noise, noisy = noisy_data(chosen.parts, counts, rng)
                terms.publish(noise, noisy)
                each.append(_width(chain.draws(truth, rng)) / open_width)
                bar.advance()
            ratios.append(each)
    return np.array(ratios)


def noisy_data(
    parts: Sequence[PlannedTable], counts: Mapping[str, Array], rng: np.random.Generator
) -> tuple[dict[str, CellNoise], dict[str, Array]]:
    """Made-up counts with the noise of a plan."""
    noise, noisy = {}, {}
    for part in parts:
        name, mechanism = part.table.name, part.mechanism.alike_alone
        noise[name] = mechanism.cell_noise
        noisy[name] = mechanism.releases(counts[name], 1, random_seed=rng)[0]
    return noise, noisy


def _width(draws: Array) -> Array:
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    return np.asarray(high - low)


def prior_data(
    found: ModelRead, private: pm.Model, n_records: int | None
) -> Callable[[np.random.Generator], tuple[dict[str, Any], dict[str, Array]]]:
    """A function that draws parameters from the prior, and the counts of the tables of as many records.

    Parameters
    ----------
    found : ModelRead
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
    unknown = [one for one in found.outcomes if one.kind != "counts" and not found.said.records_are_public]
    if unknown and n_records is None:
        raise ArgumentError(
            f"The number of records of {unknown[0].name!r} is private, and a forecast needs one: pass n_records= (your "
            "guess), or simulations=0."
        )
    size = 0 if n_records is None else integer(1, n_records=n_records)
    places = list(found.inputs.by_variable.values())
    log_p = {one.name: one.log_p for one in found.outcomes if one.kind != "counts"}
    chances = compiled_plainly(places, list(log_p.values()))
    observed = [found.model[one.name] for one in found.outcomes if one.kind == "counts"]
    drawn: Any = compiled_plainly([], [*found.free, *observed])
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
        raise UnsupportedModelError(
            f"No draw from the prior in {_TRIES} has values that its transforms allow. Pass simulations=0."
        )

    return simulate


def _seed(function: Any, rng: np.random.Generator) -> None:
    """New numbers for the generators of a compiled function."""
    for one in function.get_shared():
        if hasattr(one.get_value(borrow=True), "bit_generator"):
            one.set_value(np.random.Generator(np.random.PCG64(int(rng.integers(2**62)))))


def _drawn_counts(
    one: Outcomes, found: ModelRead, p: Any, counts: dict[str, Any], size: int, rng: np.random.Generator
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
    if found.said.records_are_public:
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
    function = compiled_plainly(list(places.values()), transformed)
    names = [private.rvs_to_values[rv].name for rv in free]

    def to_point(values: Mapping[str, Any]) -> dict[str, Any]:
        given = [np.asarray(values[str(rv.name)], dtype=rv.type.dtype) for rv in free]
        return dict(zip(names, map(np.asarray, function(*given)), strict=True))

    return to_point


@final
class Chain:
    """NUTS for a private model, compiled once, whatever is published later.

    Parameters
    ----------
    terms : ModelTerms
    found : ModelRead
    """

    def __init__(self, terms: ModelTerms, found: ModelRead) -> None:
        model = terms.model
        self._model, self._start = model, model.initial_point(random_seed=1)
        self._logp = model.logp_dlogp_function(ravel_inputs=True, initial_point=self._start)
        self._logp.trust_input = True
        self._spread = np.ones(sum(np.size(one) for one in self._start.values()))
        self._weight = 10
        own = [model[str(rv.name)] for rv in found.free]
        values = [model.rvs_to_values[rv] for rv in model.free_RVs]
        self._names = [value.name for value in values]
        self._back = compiled_plainly(values, model.replace_rvs_by_values(own))
        self._to_point = _to_point(model)

    @staticmethod
    def names(model: pm.Model, found: ModelRead) -> list[str]:
        """The names of single parameters, by their labels where they have dims."""
        return [
            name
            for rv in found.free
            for name in _single_names(model, str(rv.name), model.rvs_to_values[model[str(rv.name)]].type.ndim)
        ]

    def draws(
        self, start: Mapping[str, Any], rng: np.random.Generator, tune: int = _TUNE, draws: int = _DRAWS
    ) -> Array:
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


def _single_names(model: pm.Model, name: str, ndim: int) -> list[str]:
    shape = model[name].shape.eval()
    dims = model.named_vars_to_dims.get(name) or (None,) * ndim
    labels = [model.coords.get(dim) if dim is not None else None for dim in dims]
    found = []
    for index in np.ndindex(*map(int, shape)):
        parts = [str(axis[i]) if axis is not None else str(i) for axis, i in zip(labels, index, strict=True)]
        found.append(f"{name}[{', '.join(parts)}]" if parts else name)
    return found
