"""Sentences about releases and the people in them, and the warnings about guarantees and seeds."""

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pymc_dirdp.errors import (
    CategoriesFromDataWarning,
    FewRecordsWarning,
    RepeatedReleaseWarning,
    SeededReleaseWarning,
    WeakGuaranteeWarning,
    quote,
    warn,
)
from pymc_dirdp.mechanisms.outputs import Marginals
from pymc_dirdp.models.privacy_unit import PrivacyUnit
from pymc_dirdp.models.table import Table
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import bounded_by, disjoint_groups, filled_cells
from pymc_dirdp.sampling.bits import Seed

if TYPE_CHECKING:
    from pymc_dirdp.releases.plan_types import Plan


# The number of releases of a model in this process without a ledger, by its public facts.
_released_before: dict[int, int] = {}


def warn_if_seeded(what: str, *, random_seed: Seed) -> None:
    """Warn that anyone who knows the seed can recompute a release or a choice."""
    if random_seed is None:
        return
    warn(
        f"A {what} with random_seed can be recomputed by anyone who knows the seed, so it is not private. "
        "Leave random_seed out for anything that is published.",
        SeededReleaseWarning,
    )


def warn_if_weak(guarantee: Guarantee, n_records: int | None, *, large_epsilon: float = 10.0) -> None:
    """Warn of a guarantee that hardly protects anyone, from public numbers.

    Parameters
    ----------
    guarantee : Guarantee
    n_records : int or None
        The public number of records of the largest table, or the planning size.
    large_epsilon : float, default 10.0
        The largest epsilon without a warning. At this epsilon, posterior odds may increase 20,000-fold.
    """
    epsilon, delta = guarantee.budget, guarantee.stated_delta
    if delta is None:
        return  # Bounds on Rényi divergences have other scales.
    problems = []
    if n_records and delta * n_records >= 1:
        # A power of ten that is at most a tenth of 1/N.
        better = 10.0 ** math.floor(-math.log10(n_records) - 1)
        problems.append(
            f"delta={delta:g} is not below one over the number of records: publishing one random record would satisfy "
            f"it. Choose delta well below 1/N, such as {better:g}."
        )
    if epsilon > large_epsilon:
        problems.append(
            f"epsilon={epsilon:g} is above {large_epsilon:g}: one release can make anyone nearly certain "
            "about a person's record. Common choices are 0.1 to 3."
        )
    if problems:
        warn(" ".join(problems), WeakGuaranteeWarning)


def warn_if_few(plan: "Plan") -> None:
    """Warn of tables with more cells than a fifth of their records, from public numbers.

    If the number of records is private, the planning size is used. Plans of private models have no such warning,
    because a private model has fewer parameters than cells.
    """
    parts = [
        part
        for part in plan.parts
        # Marginals of a network that noise dominates are not measured, so its tables may have many cells.
        if part.mechanism.output_kind is not Marginals
        and part.table.n_categories > 1
        and part.n_records
        and part.table.prior.size > part.n_records / 5
    ]
    if not parts:
        return
    name, cells, size = parts[0].table.name, parts[0].table.prior.size, parts[0].n_records or 0
    records = f"{size} records" if plan.privacy_unit.n_records_is_public else f"the {size} records that you plan for"
    warn(
        f"{name!r} has {cells} cells for {records}, {size / cells:.2g} in a cell on average"
        f"{'; other tables also have too many' * (len(parts) > 1)}. Noise dominates such small counts, and the release "
        f"still spends the privacy budget. Merge categories until there are at most {max(size // 5, 2)} cells, or ask "
        "for a larger epsilon. For several variables, write a model with fewer parameters than cells, such as main "
        "effects, and release it with dirdp.private_model. For many columns, use dirdp.latent_class. "
        "print(dirdp.plan(...)) shows the expected error.",
        FewRecordsWarning,
    )


def abbreviated(guarantee: Guarantee) -> str:
    """The guarantee with the usual abbreviations."""
    return (
        str(guarantee)
        .replace("-truncated concentrated differential privacy", "-tCDP")
        .replace("-zero-concentrated differential privacy", "-zCDP")
        .replace("Rényi differential privacy", "RDP")
        .replace("differential privacy", "DP")
    )


def warn_of_repetition(released: Hashable) -> None:
    """Warn of the second release in this process with these public facts, such as the tables of a model."""
    facts = hash(released)
    times = _released_before[facts] = _released_before.get(facts, 0) + 1
    if times == 2:
        warn(
            "This was released before in this process, without a ledger. If the same people are in the data, the "
            "privacy losses of all releases add up, and their average reveals the data. Publish only one of them, or "
            "pass ledger=Ledger(limit), which enforces a privacy budget. This warning appears once for each model.",
            RepeatedReleaseWarning,
        )


def warn_of_ranking(tables: Iterable[Table], name: str, axis: int) -> None:
    """Warn of labels that are in the order of the counts, which is secret.

    The warning depends on the data, so a ledger must be charged before, and only the curator may see it.
    """
    dim = next(table.dims[axis] for table in tables if table.name == name and table.dims is not None)
    warn(
        f"The counts of {name!r} descend along the dim {dim!r}, like those of value_counts(), and the release "
        "publishes its labels in this order. If the order comes from the data, it reveals the ranking of the "
        "categories, which no guarantee covers. Write the labels as a list, without looking at the data, and count "
        "with dirdp.count. Only the curator may see this warning.",
        CategoriesFromDataWarning,
    )


ESTIMATE = "the shares are fitted to noisy counts of marginals, and are not a draw"
"""The note about fitted shares in a release."""
NO_NUMBER = "unknown without n_records=, your guess of the private number"
"""The note if there is no planning size."""

NOTHING_ELSE = "nothing else was published about the same people; the losses of several releases add up"

NEXT = {
    "plan of a model": ("dirdp.private_model(plan, model) releases it", "dirdp.private_model(plan, model) in Python"),
    "plan": ("dirdp.sample(plan) draws the release; full=True says more", "dirdp release draws it; --full says more"),
    "false": ("do not publish; print(dirdp.verify(release)) says why", "do not publish; dirdp verify says why"),
    "model": ("dirdp.private_model(path, model): your model on noisy counts", "dirdp.private_model in Python"),
    "estimate": ("dirdp.estimate(release): credible intervals", "dirdp analyse: estimates with credible intervals"),
    "inference": (
        "dirdp.analyse(release): posterior draws, credible intervals",
        "dirdp analyse: estimates with credible intervals",
    ),
}
"""The next step, in Python and on a command line."""


def records_word(privacy_unit: PrivacyUnit) -> str:
    """The kind of the numbers of records in a release: public, or planned for."""
    return "public" if privacy_unit.n_records_is_public else "planned for"


def totals_text(totals: Sequence[int]) -> str:
    """The public numbers of records of parts of the rows of a table, in words."""
    low, high = min(totals), max(totals)
    numbers = f"{low}" if low == high else f"{low} to {high}"
    return f"{numbers} in each of {len(totals)} parts of its rows"


def model_assumptions(privacy_unit: PrivacyUnit, tables: Iterable[Table]) -> Iterator[str]:
    """The assumptions that no model shows: the public names and, under replace-one, the rows of each person."""
    if privacy_unit.relation.records_are_public:
        # Parallel composition needs this assumption, which the model cannot show.
        if len(privacy_unit.groups) > 1:
            yield "the size of each group of disjoint is public, and a replaced person stays in the group"
        if any("own" in contribution.axes for _, contribution in privacy_unit.contributions):
            yield "whose row is whose is public, and a replaced person's records stay in the person's own row"
    observed = {likelihood.name for table in tables for likelihood in table.likelihoods}
    for name in privacy_unit.options.public:
        what = f"number of trials or records of {name!r}" if name in observed else f"data {name!r} in a prior"
        yield f"anybody may know the {what}"


def plan_assumptions(plan: "Plan", *, released: bool) -> tuple[str, ...]:
    """The assumptions of a plan that no file can show.

    Parameters
    ----------
    plan : Plan
    released : bool
        Whether the plan was released.
    """
    fast = "the guarantee is proved for the ideal distribution, from which draws in floating point differ"
    intention = f"the release is drawn once, as the plan states, by the {plan.sampler} sampler"
    records = {part.table.name: part.mechanism.assumed_records for part in plan.parts}
    return (
        "the prior, the categories and all options were chosen without the data",
        bounded_by(plan.unit_label, plan.contribution),
        *([disjoint_groups(plan.unit_label, plan.groups)] if len(plan.groups) > 1 else []),
        *plan.assumptions,
        *(
            f"every data set that could occur has {n} records in {quote(name)}"
            for name, n in records.items()
            if n is not None
        ),
        *([f"{filled_cells(plan.min_count)}, in every data set that could occur"] if plan.min_count > 0 else []),
        *(f"the {choice.kind} came from the mechanism that the file states, once" for choice in plan.after),
        f"the release was drawn once, as it states, by the {plan.sampler} sampler" if released else intention,
        *([fast] if plan.sampler == "fast" else []),
    )
