"""The plan and the release of all pairs of columns of a wide table, as texts.

A model of :func:`pymc_dirdp.latent_class` may have a hundred columns, and their joint table would not fit into memory.
Its plan therefore contains columns and no table.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self, final, override

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.accounting.entries import Receipt
from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import one_of
from pymc_dirdp.display import Facts, Line, escape_invisible
from pymc_dirdp.errors import ArgumentError, ReleaseError
from pymc_dirdp.inference.mixture import Mixture, NoisyPairs, fit_mixture
from pymc_dirdp.inference.mixture_intervals import FitErrors
from pymc_dirdp.mechanisms.pairs import PairsMechanism
from pymc_dirdp.models.privacy_unit import PrivacyUnit, UnitOptions
from pymc_dirdp.models.table import check_labels, is_path_name
from pymc_dirdp.numerics.roots import ceil_to_digits as up
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.deployment import Deployment
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.odds import Odds, delta_of
from pymc_dirdp.privacy.people import NOT_PROTECTED, TO_CHECK, Contribution, bounded_by, protected_by, secret_of, who
from pymc_dirdp.progress import QUIET, Bar
from pymc_dirdp.releases.choices import PrivateChoice
from pymc_dirdp.releases.claims import Claim
from pymc_dirdp.releases.plan_types import PublicPlan
from pymc_dirdp.releases.wording import NOTHING_ELSE
from pymc_dirdp.sampling.bits import SOURCES
from pymc_dirdp.texts.codec import Layout, RebuiltOnCopy
from pymc_dirdp.texts.grammar import Text, checked_version, error_location, library_version

_PEOPLE = ("unit", "contribution", "public", "disjoint", "counted", "adjacency")
_TABLE = "records"
"""The name of the records in sentences about people that name a table."""


@final
@dataclass(frozen=True, repr=False)
class PairsPlan(PublicPlan):
    """The plan of a release of a wide table, which is made before any record is counted. It is public.

    Attributes
    ----------
    guarantee : Guarantee
        The guarantee of all noisy counts and earlier choices together.
    columns : tuple of (str, tuple)
        The name of each column and its categories.
    mechanism : PairsMechanism
    unit_options : UnitOptions
        The options about people.
    n_records : int or None
        The public number of records. If it is private, the planning size, or None.
    library_version : str
    after : tuple of PrivateChoice
        The earlier private choices from the same records.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> records = {"rain": ["no", "yes"] * 500, "wet": ["no", "yes"] * 500}
    >>> model = dirdp.latent_class(records, categories={"rain": ["no", "yes"], "wet": ["no", "yes"]})
    >>> dirdp.plan(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model)
    PairsPlan((1, 1e-06)-differential privacy, 2 columns)
    """

    guarantee: Guarantee
    columns: tuple[tuple[str, tuple[Any, ...]], ...]
    mechanism: PairsMechanism
    unit_options: UnitOptions
    n_records: int | None
    library_version: str = field(default_factory=library_version)
    after: tuple[PrivateChoice, ...] = ()

    kind: ClassVar[str] = "plan of pairs"
    layout: ClassVar[Layout] = {
        **{name: name for name in ("statement", "protected", "library_version", "guarantee", "n_records")},
        "people": {name: f"unit_options.{name}" for name in _PEOPLE},
        **{name: name for name in ("columns", "mechanism", "after")},
    }

    def __post_init__(self) -> None:
        checked_version(self.library_version)
        names = [name for name, _ in self.columns]
        if len(set(names)) < len(names) or not all(map(is_path_name, names)):
            raise ArgumentError("its columns have invalid or duplicate names.")
        for name, labels in self.columns:
            check_labels(name, labels, name)
        if self.mechanism.lengths != tuple(len(labels) for _, labels in self.columns):
            raise ArgumentError("its mechanism is for other columns.")
        if (self.mechanism.adjacency, self.mechanism.contribution) != (self.adjacency, self.contribution):
            raise ArgumentError("its mechanism assumes another unit of privacy than the plan states.")
        if self.unit_options.unit or self.unit_options.public or self.unit_options.disjoint:
            raise ArgumentError("it states the unit of privacy by axes, and records have none.")
        for choice in self.after:
            choice.check_same_people(self.adjacency, self.unit_label)

    @cached_property
    def privacy_unit(self) -> PrivacyUnit:
        """The unit of privacy: what one person can change, in sentences."""
        adds = Contribution(self.contribution)
        return PrivacyUnit(self.unit_options, ((_TABLE, (1,)),), ((_TABLE, adds),), ((_TABLE,),), None, False)

    @property
    def contribution(self) -> int:
        """The maximum number of records of a unit."""
        return self.unit_options.contribution or 1

    @property
    def tables_alone(self) -> PrivacyCurves:
        """The privacy curves of all noisy counts, without earlier choices."""
        return self.mechanism

    @property
    def labels(self) -> dict[str, list[Any]]:
        """The categories of each column."""
        return {name: list(labels) for name, labels in self.columns}

    def __repr__(self) -> str:
        return f"PairsPlan({self.guarantee}, {len(self.columns)} columns)"

    def _claim(self) -> Claim:
        people = f"who is protected: {self.protected}".removesuffix(".")
        return Claim(
            "plan", self.guarantee, self.composition, (people, *_assumptions(self), NOTHING_ELSE), self.library_version
        )

    def _facts(self) -> tuple[str, Facts]:
        return f"Plan of private pairs of {_column_names(self)}", _lines(self, None)


@final
@dataclass(frozen=True, eq=False, repr=False)
class PairsRelease(RebuiltOnCopy, Text):
    """Noisy counts of all pairs of columns, which may be published.

    Attributes
    ----------
    plan : PairsPlan
    randomness : str
        The source of random bits; ``"seed"`` if the release can be computed again.
    identity : str
        128 random bits in hexadecimal, which distinguish it from another release with the same numbers.
    entry : Receipt or None
        The entry in the ledger that was charged.
    counts : tuple of array of int
        The noisy counts of each of :attr:`PairsMechanism.tables`.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> from pymc_dirdp.releases.opened import content_of
    >>> records = {"rain": ["no", "yes"] * 500, "wet": ["no", "yes"] * 500}
    >>> model = dirdp.latent_class(records, categories={"rain": ["no", "yes"], "wet": ["no", "yes"]})
    >>> release = content_of(dirdp.sample(dirdp.PureDP(epsilon=1.0), model))
    >>> release, [counts.shape for counts in release.counts]
    (PairsRelease(1-differential privacy, 2 columns), [(2,), (2,), (2, 2)])
    """

    plan: PairsPlan
    randomness: str
    identity: str
    entry: Receipt | None
    counts: tuple[NDArray[np.int64], ...]

    kind: ClassVar[str] = "release of pairs"
    created_by: ClassVar[str] = "sample"

    def __post_init__(self) -> None:
        one_of((*SOURCES["exact"], "seed"), randomness=self.randomness)
        if not re.fullmatch(r"[0-9a-f]{32}", self.identity, re.ASCII):
            raise ArgumentError("its identity is not 32 hexadecimal digits.")
        mechanism = self.plan.mechanism
        if [mechanism.shape(table) for table in mechanism.tables] != [counts.shape for counts in self.counts]:
            raise ArgumentError("its noisy counts do not have the shapes of its columns.")

    @classmethod
    @override
    def from_dict(cls, facts: Mapping[str, Any]) -> Self:
        with error_location("its plan"):
            plan = PairsPlan.from_dict(facts["plan"])
        return cls(plan=plan, **cls.parse_fields(facts, "plan"))

    @override
    def check_guarantee(self) -> None:
        for choice in self.plan.after:
            choice.check_guarantee()

    @property
    def is_seeded(self) -> bool:
        """Whether it, or an earlier choice that it depends on, was drawn with a seed."""
        return self.randomness == "seed" or any(choice.reproducible for choice in self.plan.after)

    def __repr__(self) -> str:
        return f"PairsRelease({self.plan.guarantee}, {len(self.plan.columns)} columns)"

    @cached_property
    def noisy(self) -> NoisyPairs:
        """The noisy counts in the form that a fit uses."""
        mechanism = self.plan.mechanism
        n_records = self.plan.n_records if self.plan.unit_options.n_records_is_public else None
        size = sum(mechanism.lengths)
        counts, pairs = np.zeros(size), np.zeros((size, size), dtype=np.float32)
        noisy = NoisyPairs(mechanism.lengths, counts, pairs, mechanism.drawn_noise.sd**2, n_records)
        for table, published in zip(mechanism.tables, self.counts, strict=True):
            row, *columns = map(noisy.place, table)
            if columns:
                pairs[row, columns[0]] = published
                pairs[columns[0], row] = published.T
            else:
                counts[row] = published
        return noisy

    def noisy_counts(self, columns: Sequence[int]) -> tuple[tuple[str, Array], ...]:
        """The noisy counts of these columns, in the form of :attr:`Output.cell_values`. Empty if there are none."""
        by_table = dict(zip(self.plan.mechanism.tables, self.counts, strict=True))
        counts = by_table.get(tuple(sorted(columns)))
        if counts is None:
            return ()
        return (("noisy_count", np.transpose(counts, np.argsort(np.argsort(columns))).astype(np.float64)),)

    def mixture(self, seed: int = 0, bar: Bar = QUIET) -> Mixture:
        """The mixture that is fitted to the noisy counts. It is cached for each seed.

        Raises
        ------
        ReleaseError
            If the counts are too large for a fit.
        """
        if seed not in self._fits:
            with np.errstate(over="ignore", invalid="ignore"):
                fit = fit_mixture(self.noisy, seed, bar=bar)
            if not np.isfinite(fit.shares).all():
                raise ReleaseError("The release is damaged: its counts are too large for a fit.")
            self._fits[seed] = fit
        return self._fits[seed]

    def errors(self, seed: int = 0, bar: Bar = QUIET) -> FitErrors:
        """The errors of the fit. They are cached for each seed."""
        if seed not in self._errors:
            self._errors[seed] = FitErrors.of(self.noisy, self.mixture(seed, bar), seed, bar=bar)
        return self._errors[seed]

    @cached_property
    def _errors(self) -> dict[int, FitErrors]:
        return {}

    @cached_property
    def _fits(self) -> dict[int, Mixture]:
        return {}

    def _claim(self) -> Claim:
        people = f"who is protected: {self.plan.protected}".removesuffix(".")
        return Claim(
            "release",
            self.plan.guarantee,
            self.plan.composition,
            (people, *_assumptions(self.plan), NOTHING_ELSE),
            self.plan.library_version,
            is_seeded=self.is_seeded,
        )

    def _facts(self) -> tuple[str, Facts]:
        return f"Private pairs of {_column_names(self.plan)}", _lines(self.plan, self)

    def _statement(self) -> tuple[Deployment, Facts]:
        """The entry for a register, and the lines of a report."""
        return deployment_of(self.plan), _lines(self.plan, self)


# Words about both.


def _column_names(plan: PairsPlan) -> str:
    names = [escape_invisible(name) for name, _ in plan.columns]
    return ", ".join(names) if len(names) <= 5 else f"{', '.join(names[:4])} and {len(names) - 4} more columns"


def _assumptions(plan: PairsPlan) -> tuple[str, ...]:
    return (
        "the categories and all options were chosen without the data",
        bounded_by(plan.unit_label, plan.contribution),
        "the release is drawn once, as the plan states",
        *(f"the {choice.kind} came from the mechanism that the file states, once" for choice in plan.after),
    )


def deployment_of(plan: PairsPlan) -> Deployment:
    """The entry of a plan or its release for a register."""
    names, people = ", ".join(name for name, _ in plan.columns), plan.privacy_unit
    return Deployment(
        product=f"pairs of {_column_names(plan)}",
        description=f"Noisy counts of each and of all pairs of {names}",
        guarantee=plan.guarantee,
        unit=people.label,
        neighbours=people.neighbours,
        odds=Odds(plan.composition, delta_of(plan.guarantee), secret_of(people.label, people.relation)),
        accounting="privacy curves of all noisy counts together, computed from the published numbers",
        digest=plan.digest,
        version=plan.library_version,
    )


def _lines(plan: PairsPlan, release: PairsRelease | None) -> Facts:
    """The lines of a report on a plan or a release, by heading."""
    deployment, people, mechanism = deployment_of(plan), plan.privacy_unit, plan.mechanism
    curves, delta = plan.composition, deployment.odds.delta
    pure = float(curves.pure_epsilon)
    strongest = f"epsilon {up(float(curves.epsilon(delta)), 4):.4g} at delta {up(delta):g}"
    if plan.guarantee.is_pure:
        strongest = f"epsilon {up(pure, 4):.4g} at delta 0"
    whom = protected_by(people.label)
    if people.options.counted:
        whom = f"every {who(people.label)}: {people.neighbours}"
    guarantee = list(deployment.lines(protects=whom, protected=plan.protected, most=strongest))
    truths, *limits = NOT_PROTECTED
    public = ["the number of records, and who took part"] if plan.unit_options.n_records_is_public else []
    guarantee += [Line("not protected", "; ".join((truths, *public, "the categories", *limits)), 1)]
    guarantee += [Line(choice.kind, choice.description, 1) for choice in plan.after]
    guarantee += [Line("assumed", "; ".join(_assumptions(plan)), 1), Line("adjacency", plan.adjacency, 2)]
    how = [Line("mechanism", mechanism.summary, 0), Line("mechanism", mechanism.summary, 2)]
    sd = f"{mechanism.drawn_noise.sd:.3g}"
    noise = [Line("noise", f"standard deviation {sd} in each cell of a column or a pair", 1)]
    if plan.n_records is not None:
        pairs = [math.prod(mechanism.shape(table)) for table in mechanism.tables if len(table) > 1]
        number = f"{plan.n_records * len(pairs) / sum(pairs):.3g} records"
        noise = [
            Line("noise", f"{sd} in a cell, where a pair has {number} on average", 0),
            Line("noise", f"{noise[0].text}; on average a cell of a pair has {number}", 1),
        ]
    if release is not None:
        how.append(Line("randomness", release.randomness, 2))
    verb = "dirdp.fit(release), dirdp.synthetic(release), dirdp.estimate(release, columns=[...])"
    following = "dirdp.sample(plan, model) draws the release" if release is None else verb
    return {
        "Answer": [],
        "Guarantee": guarantee,
        "How": how,
        "Noise": noise,
        "Use": [
            Line("to compute with it", f"pymc_dirdp.load(path) opens the file; {verb}", 1),
            Line("to check it", TO_CHECK, 1),
            Line("digest of the plan", plan.digest, 1),
            Line("next", following, 0),
        ],
    }
