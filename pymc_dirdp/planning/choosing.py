"""Chooses the mechanisms of all tables for a guarantee. `"auto"` compares whole plans, without data.

A candidate is a kind of mechanism for every table. Its parameters are solved so that the composition that a release
states satisfies the guarantee. It is judged by the final result: the tables' estimates, or predictions of the next
record. The first candidates take one kind for all tables, or marginals of all tables. Then single tables change their
kind as long as the plan improves.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import at_least
from pymc_dirdp.errors import ArgumentError, DirdpError, UnattainableError, UnsupportedModelError
from pymc_dirdp.literals import AdjacencyName
from pymc_dirdp.mechanisms.registry import MEASURES, Dirichlet, Marginals, by_kind, noises
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.planning.allocation import allocate
from pymc_dirdp.planning.calibration import calibrate_dirichlet
from pymc_dirdp.planning.estimate_error import estimate_error
from pymc_dirdp.planning.measured_marginals import Axes, Protected, measured, refuse_unlike_network
from pymc_dirdp.planning.options import MechanismOptions
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import Contribution

type Mechanisms = dict[str, TableMechanism]
# Maps mechanisms to the expected errors of all tables; None if they are not known.
type Judge = Callable[[Mechanisms], dict[str, float] | None]

# Candidates that measure marginals of all tables, by the choice of marginals.
_MEASURED = {f"marginals ({measure})": measure for measure in MEASURES}


@final
@dataclass(frozen=True)
class Choice:
    """The expected errors of all mechanisms that can satisfy a guarantee.

    Attributes
    ----------
    expected_kl : tuple of (str, float)
        The divergence of the estimates of :func:`pymc_dirdp.estimate` from the shares, in nats, averaged over rows; the
        smallest first. If one person's records feed several tables, it is the average over these tables for the best
        plan found in which this table has that mechanism.
    """

    expected_kl: tuple[tuple[str, float], ...]

    def __post_init__(self) -> None:
        if not self.expected_kl:
            raise ArgumentError("A choice needs at least one mechanism.")
        for _, kl in self.expected_kl:
            at_least(0, expected_kl=kl)

    @property
    def best(self) -> str:
        """The mechanism with the smallest error."""
        return self.expected_kl[0][0]

    def advantage(self, kind: str) -> float:
        """The error of `kind` divided by that of the best; `inf` if it cannot satisfy the guarantee."""
        return dict(self.expected_kl).get(kind, math.inf) / max(self.expected_kl[0][1], 1e-300)


@final
@dataclass(frozen=True, eq=False)
class TableFacts:
    """The facts about one table for a plan.

    Attributes
    ----------
    prior : array, shape (..., d)
        The model's own prior.
    n_records : int or None
        The public number of records, or the size to plan for.
    contribution : Contribution or int
        The contribution of one person.
    weight : float
        Relative share of the divergence.
    axes : tuple of (str, int)
        The name and the length of each axis, if tables may belong to a network.
    totals : tuple of int
        The public numbers of records of parts of its rows, as in a plan.
    """

    prior: Array
    n_records: int | None
    contribution: Contribution | int = 1
    weight: float = 1.0
    axes: Axes = ()
    totals: tuple[int, ...] = ()


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Terms:
    """The settings for all tables of a plan.

    Attributes
    ----------
    groups : sequence of tuple of str
        The tables that one person's records may feed together. Every table is in at least one group.
    adjacency : str
        The neighbouring relation.
    public_totals : bool
        Whether the numbers of records are public, so that noise may add up to 0.
    draws : int
        The number of draws of mechanisms that release draws.
    before : sequence of (PrivacyCurves, int)
        Earlier releases about the same people, and their numbers.
    calibration : mapping
        The `strategy`, `objective` and `min_count` of kinds that have strategies.
    measured : Marginals
        The settings of noisy marginals.
    target : str, optional
        The axis of the class of a classifier, which is predicted.
    prediction_loss : callable, optional
        Decides under `"auto"`. Maps the mechanisms of all tables to the expected error of each; None if that is not
        known. By default it is the error of :func:`pymc_dirdp.estimate`, which is not known for marginals.
    """

    groups: Sequence[tuple[str, ...]]
    adjacency: AdjacencyName = "replace-one"
    public_totals: bool = False
    draws: int = 1
    before: Sequence[tuple[PrivacyCurves, int]] = ()
    calibration: Mapping[str, Any] = field(default_factory=dict)
    measured: Marginals = field(default_factory=Marginals)
    prediction_loss: Judge | None = None
    target: str | None = None

    @classmethod
    def of(cls, options: MechanismOptions, **known: Any) -> "Terms":
        """The settings for these options; `known` are the groups, and all settings that are not options."""
        calibration = {name: getattr(options, name) for name in ("strategy", "objective", "min_count")}
        known |= {
            "adjacency": options.adjacency,
            "draws": options.released_draws,
            "measured": options.settings(Marginals),
        }
        return cls(calibration=calibration, **known)

    def independent_sets(self, tables: Mapping[str, TableFacts]) -> Iterator[dict[str, TableFacts]]:
        """Sets of tables such that nobody feeds two of them, so that each set may use the whole guarantee.

        If there are earlier releases, the guarantee covers their composition with the largest loss of a set, so all
        tables are one set.
        """
        parts = [set(tables)] if self.before else [set(group) & set(tables) for group in self.groups]
        for name in tables:
            joined = [part for part in parts if name in part]
            parts = [set[str]().union(*joined), *(part for part in parts if name not in part)]
        for first in tables:
            part = next(part for part in parts if first in part)
            if first == next(name for name in tables if name in part):
                yield {name: facts for name, facts in tables.items() if name in part}


def of_kind(
    kind: str,
    guarantee: Guarantee,
    *,
    prior: Array,
    n_records: int | None,
    adjacency: AdjacencyName,
    contribution: Contribution | int = 1,
    public_totals: bool = False,
    **strategy: Any,
) -> TableMechanism:
    """The mechanism of a kind that satisfies a guarantee for one table.

    Parameters
    ----------
    kind : str
        As in `plan(mechanism=...)`, except `"auto"`.
    guarantee : Guarantee
    prior, n_records, adjacency, contribution
        As for :func:`pymc_dirdp.calibrate`.
    public_totals : bool
        Whether the numbers of records are public, so that noise may add up to 0, and two categories lose less.
    **strategy
        The options `strategy`, `objective` and `min_count`, for kinds that have strategies.
    """
    common: dict[str, Any] = {"prior": prior, "adjacency": adjacency, "contribution": contribution}
    if kind == Dirichlet.kind:
        return calibrate_dirichlet(guarantee, n_records=n_records, public_totals=public_totals, **common, **strategy)
    mechanism = by_kind(kind, public_totals=public_totals)
    mechanism.refuse_private_totals(public=public_totals)
    return mechanism.for_guarantee(guarantee, **common)


def choose(
    guarantee: Guarantee, tables: Mapping[str, TableFacts], terms: Terms, *, mechanism: str = "auto"
) -> tuple[Mechanisms, dict[str, Choice]]:
    """The mechanisms that satisfy a guarantee together.

    Parameters
    ----------
    guarantee : Guarantee
        The guarantee of all tables together.
    tables : mapping of str to TableFacts
    terms : Terms
    mechanism : str, default "auto"
        The kind for all tables, or `"auto"` for the kinds with the smallest expected error of
        :func:`pymc_dirdp.estimate`. Joint noise is tried if a person has records in every row of a table.

    Returns
    -------
    mechanisms : dict of str to TableMechanism
        Their composition with earlier releases satisfies the guarantee.
    choices : dict of str to Choice
        Under `"auto"` the errors that decided; otherwise empty.

    Raises
    ------
    UnattainableError
        If no mechanism, or not this one, satisfies the guarantee.
    ArgumentError
        If errors cannot be compared, such as without a number of records.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_dirdp import ApproxDP
    >>> tables = {name: TableFacts(np.ones(4), 800) for name in ("one", "two")}
    >>> mechanisms, choices = choose(ApproxDP(epsilon=1.0, delta=1e-6), tables, Terms(groups=[("one", "two")]))
    >>> choices["one"].best == mechanisms["one"].kind
    True
    """
    mechanisms: Mechanisms = {}
    choices: dict[str, Choice] = {}
    for part in terms.independent_sets(tables):
        plans = _Plans(guarantee, part, terms)
        if mechanism != "auto":
            mechanisms |= plans.mechanisms(dict.fromkeys(part, mechanism))
        else:
            best = plans.best
            mechanisms |= best.mechanisms
            choices |= {name: plans.choice(name) for name in part}
    return {name: mechanisms[name] for name in tables}, choices


def noise_instead(
    guarantee: Guarantee, tables: Mapping[str, TableFacts], terms: Terms, mechanisms: Mapping[str, TableMechanism]
) -> dict[str, tuple[str, float]]:
    """The noise that would improve estimates from these tables, and the factor by which it reduces their expected KL.

    Tables of the same people are compared together, with the stated composition. Tables without an entry have no such
    noise, or no known error.
    """
    notes: dict[str, tuple[str, float]] = {}
    for part in terms.independent_sets(tables):
        plans = _Plans(guarantee, part, terms)
        part_plan = plans.with_errors({}, {name: mechanisms[name] for name in part})
        if part_plan is None:
            continue
        with suppress(UnattainableError):
            uniform_plans = plans.uniform(tuple(noises(public_totals=terms.public_totals)))
            best = min(uniform_plans.values(), key=lambda plan: plan.error)
            notes |= {name: (best.kinds[name], part_plan.error / max(best.error, 1e-300)) for name in part}
    return notes


@final
@dataclass(frozen=True, eq=False)
class _Candidate:
    """A kind, a mechanism and an expected error for every table."""

    kinds: dict[str, str]
    mechanisms: Mechanisms
    errors: dict[str, float]

    @cached_property
    def error(self) -> float:
        """The average of the expected errors of the tables."""
        return math.fsum(self.errors.values()) / len(self.errors)


class _Plans:
    """Plans for tables of the same people, solved and judged one after the other."""

    def __init__(self, guarantee: Guarantee, tables: Mapping[str, TableFacts], terms: Terms) -> None:
        self._guarantee, self._tables, self._terms = guarantee, tables, terms
        groups = (tuple(name for name in group if name in tables) for group in terms.groups)
        self._groups = [group for group in groups if group]
        self._calibrated: dict[Hashable, TableMechanism] = {}
        self._shared: dict[Hashable, list[TableMechanism]] = {}
        self._tried: dict[tuple[str, ...], _Candidate | None] = {}
        self._refused: DirdpError | None = None

    def mechanisms(self, kinds: Mapping[str, str]) -> Mechanisms:
        """The mechanisms of these kinds that satisfy the guarantee together. All tables with joint noise share one."""
        in_network = all(facts.axes for facts in self._tables.values())
        if in_network and (kind := next(iter(kinds.values()))) in ("marginals", *_MEASURED):
            return self._marginals_plan(kind)
        draws, weights = self._terms.draws, {name: facts.weight for name, facts in self._tables.items()}
        shares_noise = noises(joint=True, public_totals=self._terms.public_totals)
        joint = [name for name, kind in kinds.items() if kind in shares_noise]
        if joint and not any(set(joint) <= set(group) for group in self._groups):
            raise ArgumentError(
                f"Joint noise is for tables of the same people, and nobody feeds all of {', '.join(joint)}. Pass "
                "mechanism='geometric' or 'auto'."
            )
        # The first of them stands for all, and has their common budget.
        first, others, shared = joint[:1], joint[1:], dict[TableMechanism, list[TableMechanism]]()
        weights |= {name: math.fsum(weights[shared_mechanism] for shared_mechanism in joint) for name in first}

        def of(name: str, share: Guarantee) -> TableMechanism:
            if name not in first:
                return self._of(kinds[name], name, share)
            tables = self._sharing(shares_noise[kinds[name]], joint, share)
            shared[tables[0]] = tables
            return tables[0]

        allocated = allocate(
            self._guarantee,
            of,
            weights={name: weight for name, weight in weights.items() if name not in others},
            groups=[left for group in self._groups if (left := tuple(name for name in group if name not in others))],
            draws=draws,
            earlier=self._terms.before,
            once=[name for name, kind in kinds.items() if by_kind(kind).output_kind.releases_for(draws) == 1],
        )
        return allocated | {
            name: shared_mechanism
            for stands in first
            for name, shared_mechanism in zip(joint, shared[allocated[stands]], strict=True)
        }

    def _sharing(self, kind: type[TableMechanism], names: Sequence[str], share: Guarantee) -> list[TableMechanism]:
        """Tables that share a noise."""
        tables = [self._tables[name] for name in names]
        problem = kind, share, *map(_problem, tables)
        if problem not in self._shared:
            self._shared[problem] = kind.sharing(
                share, [(facts.prior, facts.contribution) for facts in tables], adjacency=self._terms.adjacency
            )
        return self._shared[problem]

    def _marginals_plan(self, kind: str) -> Mechanisms:
        """The mechanisms of all tables with marginals that are measured once."""
        tables, terms = self._tables, self._terms
        if terms.draws != 1:
            raise ArgumentError(
                "mechanism='marginals' publishes noisy marginals and one estimate that is fitted to them. Leave "
                "released_draws out. All that you compute from the marginals costs no more privacy."
            )
        if len(self._groups) > 1 or len(terms.groups) > 1:
            raise UnsupportedModelError(
                "The groups of disjoint= hold different people, so a marginal of one table says nothing about another. "
                "Release each group as a model of its own. Or pass mechanism='gaussian', which releases each table by "
                "itself."
            )
        numbers = {facts.n_records for facts in tables.values()}
        if len(numbers) > 1 and terms.public_totals:
            raise UnsupportedModelError(
                f"The tables {', '.join(map(repr, tables))} hold different numbers of records, so they are not tables "
                "of the same people. Release them as models of their own. Or pass mechanism='gaussian', which releases "
                "each table by itself."
            )
        refuse_unlike_network({name: facts.axes for name, facts in tables.items()})
        people = Protected(
            terms.adjacency,
            {name: facts.contribution for name, facts in tables.items()},
            terms.public_totals,
            tuple(terms.before),
            {name: facts.prior.shape for name, facts in tables.items()},
        )
        options = Marginals(measure=_MEASURED[kind]) if kind in _MEASURED else terms.measured
        known_numbers = [number for number in numbers if number is not None]
        axes = {name: (facts.axes, facts.prior) for name, facts in tables.items()}
        largest = max(known_numbers) if known_numbers else None
        return dict(measured(self._guarantee, axes, people, options, n_records=largest, target=terms.target))

    def _of(self, kind: str, name: str, share: Guarantee) -> TableMechanism:
        facts, terms = self._tables[name], self._terms
        # Tables of one shape, such as features with as many categories, often have the same problem.
        problem = kind, share, *_problem(facts)
        if problem not in self._calibrated:
            self._calibrated[problem] = of_kind(
                kind,
                share,
                prior=facts.prior,
                n_records=facts.n_records,
                adjacency=terms.adjacency,
                contribution=facts.contribution,
                public_totals=terms.public_totals,
                **terms.calibration,
            )
        return self._calibrated[problem]

    def with_errors(self, kinds: dict[str, str], mechanisms: Mechanisms) -> _Candidate | None:
        """Mechanisms with their expected errors; None if one is not known."""
        if self._terms.prediction_loss is not None:
            table_errors = self._terms.prediction_loss(mechanisms)
            return None if table_errors is None else _Candidate(kinds, mechanisms, table_errors)
        errors = {}
        for name, facts in self._tables.items():
            error = estimate_error(
                mechanisms[name],
                facts.prior,
                facts.n_records or 0,
                public=self._terms.public_totals,
                totals=facts.totals,
                draws=self._terms.draws,
            )
            if error is None:
                return None
            errors[name] = error.kl
        return _Candidate(kinds, mechanisms, errors)

    @cached_property
    def _joint(self) -> dict[str, set[str]]:
        """The kinds of joint noise, with the tables that each is for: the most that the same people feed, if any."""
        groups: dict[str, set[str]] = {}
        if self._classifies:
            return groups
        for kind, joint in noises(joint=True, public_totals=self._terms.public_totals).items():
            blocks = {
                name: number
                for name, facts in self._tables.items()
                if joint.suits(facts.prior.shape, facts.contribution)
                # Inference from tables with more cells takes long.
                and facts.prior.size <= 50 * (number := _blocks(facts))
            }
            most = max((set(blocks) & set(group) for group in self._groups), key=len)
            # The joint noise of one block is that of "geometric".
            if sum(blocks[name] for name in most) > 1:
                groups[kind] = most
        return groups

    @property
    def _classifies(self) -> bool:
        """Whether a class is predicted. Only a fit to marginals can use the class alone."""
        return self._terms.prediction_loss is not None and self._terms.target is not None

    @property
    def _marginals(self) -> tuple[str, ...]:
        """The kinds that measure marginals of all tables, if a judge knows the error of the fit."""
        return () if self._terms.prediction_loss is None else tuple(_MEASURED)

    def _try(self, chosen_kinds: Mapping[str, str]) -> _Candidate | None:
        """The plan with these kinds; None if it cannot satisfy the guarantee, or its error is not known.

        A table that does not suit a kind takes geometric noise instead.
        """
        kinds = {
            name: "geometric" if kind in self._joint and name not in self._joint[kind] else kind
            for name, kind in chosen_kinds.items()
        }
        key = tuple(kinds.values())
        if key not in self._tried:
            self._tried[key] = None
            try:
                self._tried[key] = self.with_errors(kinds, self.mechanisms(kinds))
            except (ArgumentError, UnattainableError, UnsupportedModelError) as error:
                # A kind that does not fit, such as marginals for several draws, is not a candidate.
                if not (isinstance(error, UnattainableError) or set(self._marginals) & set(kinds.values())):
                    raise
                self._refused = error
        return self._tried[key]

    def uniform(self, kinds: Sequence[str]) -> dict[str, _Candidate]:
        """The plans in which all tables have one of these kinds; an error if there are none."""
        plans = {kind: self._try(dict.fromkeys(self._tables, kind)) for kind in (*kinds, *self._joint)}
        candidates = {kind: plan for kind, plan in plans.items() if plan is not None}
        if not candidates and self._refused is not None:
            raise self._refused
        return candidates

    @cached_property
    def best(self) -> _Candidate:
        """The plan with the smallest error that was found."""
        for facts in self._tables.values():
            _refuse_without_records(facts.n_records)
        # On ties, the first kind is chosen.
        noisy = noises(public_totals=self._terms.public_totals)
        others = () if self._classifies else ("dirichlet", *noisy)
        uniform = self.uniform((*self._marginals, *others))
        best = min(uniform.values(), key=lambda plan: plan.error)
        # Marginals cover all tables, and a judge takes long.
        uniform = {kind: plan for kind, plan in uniform.items() if kind not in self._marginals}
        if not uniform or self._terms.prediction_loss is not None:
            return best
        # Try the best kind of each table by itself, and then change one set of equivalent tables after the other.
        alone = {name: min(uniform, key=lambda kind: uniform[kind].errors[name]) for name in self._tables}
        best, improved = self._accept_if_better(best, alone), True
        while improved:
            before = best
            for alike in self._equivalent_tables():
                for kind, plan in uniform.items():
                    current = uniform[best.kinds[alike[0]]]
                    # A table changes its kind only if its error is at most 1.5 times as large where all tables have the
                    # other kind.
                    if plan.errors[alike[0]] <= 1.5 * current.errors[alike[0]]:
                        best = self._accept_if_better(best, best.kinds | dict.fromkeys(alike, kind))
            improved = best is not before
        return best

    def _accept_if_better(self, best: _Candidate, kinds: dict[str, str]) -> _Candidate:
        """The plan with these kinds, if it is better and few plans were tried; otherwise the best one so far."""
        # The maximum number of candidates, each of which takes up to a second.
        plan = self._try(kinds) if len(self._tried) < 16 else None
        return best if plan is None or plan.error >= best.error else plan

    def choice(self, name: str) -> Choice:
        """The errors that decided the choice for a table."""
        least: dict[str, float] = {}
        for plan in self._tried.values():
            if plan is not None:
                kind = plan.kinds[name]
                least[kind] = min(plan.error, least.get(kind, math.inf))
        chosen = self.best.kinds[name]
        return Choice(tuple(sorted(least.items(), key=lambda item: (item[1], item[0] != chosen))))

    def _equivalent_tables(self) -> list[list[str]]:
        """Tables with the same problem, such as features with as many categories; none if all are equivalent."""
        groups: dict[Hashable, list[str]] = {}
        for name, facts in self._tables.items():
            member = tuple(name in group for group in self._groups)
            groups.setdefault((*_problem(facts), facts.weight, member), []).append(name)
        return list(groups.values()) if len(groups) > 1 else []


def _blocks(facts: TableFacts) -> int:
    """The number of blocks of cells in which a person has records."""
    return Contribution.of(facts.contribution).blocks(facts.prior.shape)


def _problem(facts: TableFacts) -> tuple[Hashable, ...]:
    return facts.prior.shape, facts.prior.tobytes(), facts.n_records, facts.contribution


def _refuse_without_records(n_records: int | None) -> None:
    if n_records == 0:
        raise ArgumentError("mechanism='auto' compares errors, which need at least one record. Pass 'geometric'.")
    if n_records is None:
        raise ArgumentError(
            "mechanism='auto' plans for a number of records: pass n_records= (your guess, if the number is private)."
        )
