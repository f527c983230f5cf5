"""The marginals of a model's tables to measure, and their noise, so that all satisfy one guarantee together."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from typing import Any, final

from pymc_dirdp.checks import one_of, positive
from pymc_dirdp.errors import ArgumentError, UnattainableError, UnsupportedModelError, type_name
from pymc_dirdp.literals import AdjacencyName, CountNoise, MarginalsNoise
from pymc_dirdp.mechanisms.marginals import NOISES, MarginalsMechanism, ZeroSumMarginalsMechanism
from pymc_dirdp.mechanisms.noise import LEAST, MOST, Noise
from pymc_dirdp.mechanisms.noisy_counts import marginal_curves
from pymc_dirdp.mechanisms.registry import MEASURES, Marginals, Measure
from pymc_dirdp.numerics.roots import largest_satisfying, log_ratio_to_budget
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import Contribution

# The name and the length of each axis of a table. The last axis is the variable whose shares the table holds.
type Axes = tuple[tuple[str, int], ...]


@final
@dataclass(frozen=True)
class Marginal:
    """A marginal of one table.

    Attributes
    ----------
    table : str
        The table whose counts are summed.
    axes : tuple of int
        Its remaining axes, in ascending order.
    names : tuple of str
        The names of these axes.
    cells : int
    """

    table: str
    axes: tuple[int, ...]
    names: tuple[str, ...]
    cells: int


def marginals_of(tables: Mapping[str, Axes], measure: Measure) -> tuple[Marginal, ...]:
    """The marginals to measure, each once.

    Parameters
    ----------
    tables : mapping of str to tuple of (str, int)
        The name and the length of each axis of each table, the parents first and the variable itself last.
    measure : {"levels", "families", "variables"} or iterable of str or tuple of str
        `"levels"` measures for each table the marginal of its variable, that of the variable and each parent, and the
        table itself; `"families"` the tables themselves, and `"variables"` the variables alone. Otherwise a list of
        marginals by the names of their axes.

    Raises
    ------
    ArgumentError
        If no table contains a marginal, or no marginal contains a variable.
    """
    if isinstance(measure, str):
        one_of(MEASURES, measure=measure)
        return tuple(marginal for name, axes in tables.items() for marginal in _default_marginals(name, axes, measure))
    marginals: dict[tuple[str, tuple[int, ...]], Marginal] = {}
    for names in _parse_measure(measure, tables):
        marginal = _within(names, tables)
        marginals[marginal.table, marginal.axes] = marginal
    for name, axes in tables.items():
        child = axes[-1][0]
        if not any(marginal.table == name and child in marginal.names for marginal in marginals.values()):
            raise ArgumentError(
                f"measure lists no marginal of {name!r} with {child!r}, so its shares would be unknown. Add "
                f"{tuple(axis for axis, _ in axes)!r} to it, or pass measure='levels'."
            )
    return tuple(marginals.values())


def _marginal(table: str, axes: Axes, selected_axes: Iterable[int]) -> Marginal:
    """The marginal with these axes. An axis of length 1 is left out, because it changes no count."""
    long = tuple(sorted(axis for axis in set(selected_axes) if axes[axis][1] > 1))
    return Marginal(table, long, tuple(axes[axis][0] for axis in long), math.prod(axes[axis][1] for axis in long))


def _default_marginals(table: str, axes: Axes, measure: str) -> list[Marginal]:
    child = len(axes) - 1
    axes_by_kind: dict[str, list[Iterable[int]]] = {"variables": [(child,)], "families": [range(len(axes))]}
    axes_by_kind["levels"] = [(child,), *((parent, child) for parent in range(child)), range(len(axes))]
    return list(dict.fromkeys(_marginal(table, axes, item) for item in axes_by_kind[measure]))


def _parse_measure(measure: object, tables: Mapping[str, Axes]) -> list[tuple[str, ...]]:
    """The marginals that the user lists, as tuples of known names."""
    if not isinstance(measure, Iterable):
        raise ArgumentError(
            f"Expected measure to be one of {', '.join(MEASURES)}, or a list, got {type_name(measure)}."
        )
    known_names = list(dict.fromkeys(name for axes in tables.values() for name, _ in axes))
    marginals = []
    for marginal in measure:
        names = (marginal,) if isinstance(marginal, str) else marginal
        group = names if isinstance(names, tuple | list) else ()
        resolved = [one_of(known_names, **{"variable in measure": name}) for name in group]
        if not resolved or len(set(resolved)) < len(resolved):
            raise ArgumentError("Expected each marginal in measure to be a name, or a tuple of different names.")
        marginals.append(tuple(resolved))
    return marginals


def _within(names: tuple[str, ...], tables: Mapping[str, Axes]) -> Marginal:
    """The marginal of the table of one of its variables.

    There is at most one such table, if the tables have an order.
    """
    holding = {table: axes for table, axes in tables.items() if set(names) <= {name for name, _ in axes}}
    if not holding:
        raise ArgumentError(
            f"No table has all axes of the marginal {names!r} in measure, so it cannot be summed from one. Use names "
            "of one variable and its parents."
        )
    table, axes = min(holding.items(), key=lambda entry: (entry[1][-1][0] not in names, len(entry[1])))
    marginal = _marginal(table, axes, (axis for axis, (name, _) in enumerate(axes) if name in names))
    if marginal.cells < 2:
        raise ArgumentError(f"The marginal {names!r} in measure has one cell and no information. Leave it out.")
    return marginal


@final
@dataclass(frozen=True)
class Protected:
    """Who is protected: the facts that all marginals of a model share.

    Attributes
    ----------
    adjacency : str
    records : mapping of str to int or Contribution
        The maximum number of records of a person in each table, and the rows that they may be in.
    public_totals : bool
        Whether the number of records is public, so that noise may add up to 0.
    before : tuple of (PrivacyCurves, int)
        Earlier releases about the same people, and their numbers. The guarantee covers them, too.
    shapes : mapping of str to tuple of int
        The shape of each table, if the records lie in certain rows.
    """

    adjacency: AdjacencyName
    records: Mapping[str, int | Contribution]
    public_totals: bool
    before: tuple[tuple[PrivacyCurves, int], ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def kind(self, noise: CountNoise) -> type[MarginalsMechanism]:
        """The class of the mechanisms with this kind of noise."""
        anywhere = all(set(Contribution.of(entry).axes) <= {"any"} for entry in self.records.values())
        summed = noise == "geometric" and self.public_totals and anywhere
        return ZeroSumMarginalsMechanism if summed else MarginalsMechanism

    def is_fixed(self, marginal: Marginal) -> bool:
        """Whether a marginal is the same for all neighbouring data sets, so that it loses nothing."""
        return Contribution.of(self.records[marginal.table]).fixes_marginal(marginal.axes, self.adjacency)

    def noise(self, marginal: Marginal, noise: CountNoise, parameter: float) -> Noise:
        """The noise of one marginal."""
        return self.kind(noise).noise_of(noise, parameter, marginal.cells)

    def curves(self, marginal: Marginal, noise: Noise) -> PrivacyCurves:
        """The privacy curves of one marginal with this noise."""
        adds = Contribution.of(self.records[marginal.table])
        records = (adds.records, 1)
        if adds.axes:
            records = adds.in_marginal(self.shapes[marginal.table], marginal.axes)
        return marginal_curves(noise, marginal.cells, *records, adjacency=self.adjacency)


def weights_of(
    marginals: Sequence[Marginal],
    weights: Mapping[Any, float] | None,
    noise_sd: float,
    n_records: int | None,
    target: str | None = None,
    *,
    max_ratio: float = 1e30,
) -> list[float]:
    """Relative precisions of the marginals: 1 divided by the variance of the noise.

    The error of fitted shares grows with the variance of the noise times the number of visible cells: at most all
    cells, and at most those that can hold four times `noise_sd`. Its sum is smallest if the precision is proportional
    to the root of that number, here rounded to a power of 2, so that few marginals differ in their noise. The class of
    a classifier is in every prediction, so its own marginal gets a fifth of all precision. Marginals without it have no
    information about it, and get nearly none.

    Parameters
    ----------
    marginals : sequence of Marginal
    weights : mapping of str or tuple of str to float, or None
        The weights of the user, by the names of a marginal in any order; 1 for all others.
    noise_sd : float
        The standard deviation of the noise if it is equal for all marginals.
    n_records : int or None
        The public number of records, or the size to plan for; None gives all marginals the same weight.
    target : str, optional
        The axis of the class of a classifier.
    max_ratio : float, default 1e30
        The weights of two marginals differ by no more than this factor.
    """
    if weights is None:
        visible = math.inf if noise_sd == 0 else (n_records or 0) / (4.0 * noise_sd)
        visible_cells = [min(marginal.cells, visible) for marginal in marginals]
        usual = [2.0 ** round(math.log2(max(cells, 1.0)) / 2) for cells in visible_cells]
        return usual if target is None else _for_class(marginals, usual, target)
    if not isinstance(weights, Mapping):
        raise ArgumentError(f"Expected weights to map marginals to numbers, got {type_name(weights)}.")
    stated = {}
    for names in weights:
        if not isinstance(names, str | tuple):
            raise ArgumentError(f"Expected the keys of weights to be names or tuples of names, got {type_name(names)}.")
        stated[frozenset([names] if isinstance(names, str) else names)] = names
    by_names = {frozenset(marginal.names): marginal for marginal in marginals}
    for stated_names, names in stated.items():
        if stated_names not in by_names:
            examples = ", ".join(repr(marginal.names) for marginal in marginals[:8])
            raise ArgumentError(
                f"weights names the marginal {names!r}, which is not measured. Those measured are {examples}"
                f"{' and others' * (len(marginals) > 8)}."
            )
    by_marginal = {
        stated_names: positive(**{f"weights[{names!r}]": weights[names]}) for stated_names, names in stated.items()
    }
    result = [by_marginal.get(frozenset(marginal.names), 1.0) for marginal in marginals]
    if max(result) / max_ratio > min(result):
        raise ArgumentError(
            f"Expected weights within a factor of {max_ratio:g} of each other, where a marginal without one has 1. "
            "To leave a marginal out, list the others in measure."
        )
    return result


def _for_class(marginals: Sequence[Marginal], weights: Sequence[float], target: str) -> list[float]:
    """Weights by the information of marginals about a class."""
    class_weights = [
        weight for marginal, weight in zip(marginals, weights, strict=True) if target in marginal.names[:-1]
    ]
    own_weight = math.fsum(class_weights) / 4 or 1.0
    # For geometric noise the budget is divided by the roots of precisions: all these get a tenth together.
    least = min(own_weight, *class_weights, math.inf) / (9 * len(marginals)) ** 2
    scaled = []
    for marginal, weight in zip(marginals, weights, strict=True):
        scaled.append(own_weight if marginal.names == (target,) else weight if target in marginal.names else least)
    return scaled


def choose_noise(
    guarantee: Guarantee,
    marginals: Sequence[Marginal],
    people: Protected,
    *,
    noise: MarginalsNoise,
    weights: Mapping[Any, float] | None,
    n_records: int | None,
    target: str | None = None,
    rough: float = 1e-2,
) -> tuple[CountNoise, list[float]]:
    """The kind of noise, and its parameter for each marginal, with the smallest error at a common guarantee.

    Parameters
    ----------
    guarantee : Guarantee
        The guarantee of all marginals together.
    marginals, weights, n_records, target : optional
        As for :func:`weights_of`.
    people : Protected
    noise : {"auto", "gaussian", "geometric"}
        `"auto"` takes the kind whose variances have the smaller geometric mean. Public numbers alone decide.
    rough : float, default 1e-2
        The relative error of the noise where a rough size is enough.

    Raises
    ------
    UnattainableError
        If no noise of this kind satisfies the guarantee.
    """
    one_of(("auto", *NOISES), noise=noise)

    def roughly(kind: CountNoise) -> tuple[list[float], list[float]]:
        """The weights, which depend on the size of the noise, and the approximate noise for them."""
        equal = _least_noise(guarantee, marginals, people, kind, [1.0] * len(marginals), rtol=rough)
        sd = people.noise(marginals[0], kind, equal[0]).sd
        weights_used = weights_of(marginals, weights, sd, n_records, target)
        # Here the sum of squared losses is about that of equal noise.
        guess = (
            math.sqrt(len(weights_used) / math.fsum(weight / max(weights_used) for weight in weights_used)) / equal[0]
        )
        return weights_used, _least_noise(
            guarantee, marginals, people, kind, weights_used, rtol=rough, start=guess, factor=1.5
        )

    # Under pure privacy there is no Gaussian noise.
    kinds = (noise,) if noise != "auto" else ("geometric",) if guarantee.is_pure else NOISES
    candidates = {kind: roughly(kind) for kind in kinds}
    best = min(candidates, key=lambda kind: _log_variance(marginals, people, kind, candidates[kind][1]))
    weights_used, guess = candidates[best]
    # The noise is the smallest that satisfies the guarantee, up to this relative error.
    return best, _least_noise(
        guarantee, marginals, people, best, weights_used, rtol=1e-6, start=1 / min(guess), factor=1 + 2 * rough
    )


def _log_variance(
    marginals: Sequence[Marginal], people: Protected, kind: CountNoise, parameters: Sequence[float]
) -> float:
    """The sum over marginals of the logarithm of the noise variance of a cell, given the total."""
    # A public total removes the mean of independent noise. Noise that adds up to 0 has none.
    freed = people.public_totals and not people.kind(kind).needs_public_totals
    variances = [
        people.noise(marginal, kind, parameter).sd ** 2 * (1 - freed / marginal.cells)
        for marginal, parameter in zip(marginals, parameters, strict=True)
    ]
    return math.fsum(math.log(max(variance, 1e-300)) for variance in variances)


def _least_noise(
    guarantee: Guarantee,
    marginals: Sequence[Marginal],
    people: Protected,
    kind: CountNoise,
    weights: Sequence[float],
    **search: float,
) -> list[float]:
    """The smallest parameters, proportional to 1 over the root of the weights, that satisfy the guarantee.

    The search finds the inverse of the smallest parameter; `search` has arguments of `largest_satisfying`.
    """
    all_curves = people.curves(marginals[0], people.noise(marginals[0], kind, 1.0))
    if guarantee.is_pure and not math.isfinite(all_curves.pure_epsilon):
        raise UnattainableError(
            f"noise={kind!r} does not satisfy pure differential privacy: its loss is unbounded. Ask for ApproxDP, "
            "RenyiDP, ZeroCDP or TruncatedCDP, or pass noise='geometric'."
        )
    relative = [1 / math.sqrt(weight / max(weights)) for weight in weights]
    # If no marginal loses anything, calibrate as if all did.
    losing = [i for i, marginal in enumerate(marginals) if not people.is_fixed(marginal)] or list(range(len(marginals)))
    # Marginals with equal curves are composed as repetitions of one. The grouping holds for all parameters.
    groups: dict[Hashable, list[int]] = {}
    for i in losing:
        curves = people.curves(marginals[i], people.noise(marginals[i], kind, relative[i]))
        groups.setdefault((relative[i], curves.curve_key), []).append(i)

    def excess(inverse: float) -> float:
        parameters = [item / inverse for item in relative]
        if max(parameters) > MOST:
            raise UnattainableError("The guarantee is so tight that no noise up to 2**200 satisfies it; relax it.")
        if min(parameters) < LEAST:
            return math.inf
        parts = [
            (people.curves(marginals[i], people.noise(marginals[i], kind, parameters[i])), len(same))
            for same in groups.values()
            for i in same[:1]
        ]
        composed = Composition((*people.before, *parts))
        return log_ratio_to_budget(*composed.loss(guarantee))

    inverse = largest_satisfying(excess, **search)
    return [item / inverse for item in relative]


def by_table(
    marginals: Sequence[Marginal],
    noise: CountNoise,
    parameters: Sequence[float],
    people: Protected,
    priors: Mapping[str, Any],
) -> dict[str, MarginalsMechanism]:
    """The mechanism of each table, with its own marginals.

    Parameters
    ----------
    marginals, noise, parameters, people : Any
        As for :func:`choose_noise`.
    priors : mapping of str to array
        The model's own prior of each table.
    """
    result = {}
    for name, prior in priors.items():
        own_marginals = [
            (marginal.axes, value)
            for marginal, value in zip(marginals, parameters, strict=True)
            if marginal.table == name
        ]
        result[name] = people.kind(noise)(
            prior,
            tuple(axes for axes, _ in own_marginals),
            tuple(value for _, value in own_marginals),
            noise,
            adjacency=people.adjacency,
            contribution=people.records[name],
        )
    return result


def measured(
    guarantee: Guarantee,
    tables: Mapping[str, tuple[Axes, Any]],
    people: Protected,
    options: Marginals,
    *,
    n_records: int | None,
    target: str | None = None,
) -> dict[str, MarginalsMechanism]:
    """The mechanism of each table, with its measured marginals.

    Parameters
    ----------
    guarantee : Guarantee
        The guarantee of all marginals together.
    tables : mapping of str to (Axes, array)
        The axes and the prior of each table with at least two categories, all of one network.
    people : Protected
    options : Marginals
    n_records : int or None
        The public number of records, or the size to plan for.
    target : str, optional
        The axis of the class of a classifier.

    Raises
    ------
    ArgumentError
        If an option does not fit, or a table is too large.
    UnattainableError
        If no noise satisfies the guarantee.
    """
    axes = {name: own_axes for name, (own_axes, _) in tables.items()}
    marginals = marginals_of(axes, options.measure)
    noise, parameters = choose_noise(
        guarantee,
        marginals,
        people,
        noise=options.noise,
        weights=options.weights,
        n_records=n_records,
        target=target,
    )
    return by_table(marginals, noise, parameters, people, {name: prior for name, (_, prior) in tables.items()})


def refuse_unlike_network(tables: Mapping[str, Axes], *, most_cells: int = 10**5) -> None:
    """Refuse tables that do not form a network, or are too large to be fitted.

    Shares are fitted to tables of up to `most_cells` cells. The fit of a table of this size takes minutes.

    Raises
    ------
    UnsupportedModelError
        If two tables hold shares of one variable, the tables depend on each other in a cycle, or an axis occurs twice.
    ArgumentError
        If a table is too large.
    """
    table_of_variable: dict[str, str] = {}
    otherwise = "Or pass mechanism='gaussian', which releases each table by itself."
    for name, axes in tables.items():
        if len({axis for axis, _ in axes}) < len(axes):
            raise UnsupportedModelError(
                f"Two axes of {name!r} have the same name, so its marginals are ambiguous. Give each axis its own "
                f"dim. {otherwise}"
            )
        cells = math.prod(length for _, length in axes)
        if cells > most_cells:
            raise ArgumentError(
                f"The table {name!r} has {cells} cells, and shares are fitted to at most {most_cells}. Give "
                f"{axes[-1][0]!r} fewer parents, or variables fewer categories."
            )
        if (other := table_of_variable.setdefault(axes[-1][0], name)) != name:
            raise UnsupportedModelError(
                f"{other!r} and {name!r} both hold shares of {axes[-1][0]!r}, so they are not tables of the same "
                f"records. Make them models of their own, or give their last axes different dims. {otherwise}"
            )
    try:
        TopologicalSorter({axes[-1][0]: {name for name, _ in axes[:-1]} for axes in tables.values()}).prepare()
    except CycleError as error:
        cycle = " -> ".join(reversed(error.args[1]))
        raise UnsupportedModelError(
            f"The tables depend on each other in a cycle: {cycle}. Remove one of these axes. {otherwise}"
        ) from None
