"""What a release says in words, of people above all. Its numbers decide it when it is drawn and when it is verified."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pymc_dirdp.errors import shown
from pymc_dirdp.models.privacy_unit import Reading
from pymc_dirdp.numerics.roots import ceil_to_digits as up

if TYPE_CHECKING:
    from pymc_dirdp.releases.plan_types import Plan

__all__ = ["ESTIMATE", "NEXT", "NO_NUMBER", "assumed", "records_word", "taken_for_granted", "totals_in_words"]

ESTIMATE = "the shares are fitted to noisy counts of marginals, and are no draw"
"""What a release says of shares that are fitted."""
NO_NUMBER = "unknown in advance without n_records=, your guess of the private number"
"""What it says where nobody said how many records to plan for."""

NEXT = {
    "plan of a model": ("dirdp.private_model(plan, model) releases it", "dirdp.private_model(plan, model) in Python"),
    "plan": ("dirdp.sample(plan) draws the release; full=True says more", "dirdp release draws it; --full says more"),
    "false": ("do not publish; print(dirdp.verify(release)) says why", "do not publish; dirdp verify says why"),
    "model": ("dirdp.private_model(path, model): your model on noisy counts", "dirdp.private_model in Python"),
    "estimate": (
        "release['posterior'] holds one; dirdp.estimate(release): intervals",
        "dirdp analyse: estimates with credible intervals",
    ),
    "draws": ("release['posterior'] holds the draws; full=True says more", "dirdp report --full says more"),
    "inference": (
        "dirdp.analyse(release): posterior draws, credible intervals",
        "dirdp analyse: estimates with credible intervals",
    ),
}
"""What to do next, in Python and on a command line."""

# Parallel composition without a loss across groups needs this assumption, which the model cannot show.
_FIXED_GROUPS = "the size of each group of disjoint is public, and a replaced person stays in the group"
_FIXED_ROWS = "whose row is whose is public, and a replaced person's records stay in the person's own row"


def records_word(reading: Reading) -> str:
    """What a release calls its numbers of records: public, or planned for."""
    return "public" if reading.sizes_are_public else "planned for"


def totals_in_words(totals: Sequence[int]) -> str:
    """The public numbers of records of parts of the rows of a table, in words."""
    least, most = min(totals), max(totals)
    many = f"{least}" if least == most else f"{least} to {most}"
    return f"{many} in each of {len(totals)} parts of its rows"


def assumed(reading: Reading) -> tuple[str, ...]:
    """The assumptions that no model shows: what the user calls public and, under replace-one, whose rows are whose."""
    owns = any("own" in contribution.axes for _, contribution in reading.contributions)
    fixed = {_FIXED_GROUPS: len(reading.groups) > 1, _FIXED_ROWS: owns} if reading.relation.records_are_public else {}
    named = [f"anybody may know the number of trials of {name!r}" for name in reading.stated.public_n]
    named += [f"anybody may know the data {name!r} in a prior" for name in reading.stated.public_prior]
    return (*(sentence for sentence, needed in fixed.items() if needed), *named)


def taken_for_granted(plan: "Plan") -> tuple[str, ...]:
    """All that a guarantee rests on and no file can show, but for the prior, the categories and the draw itself."""
    feed = " and ".join(", ".join(group) for group in plan.groups)
    records = {part.table.name: part.mechanism.assumed_records for part in plan.parts}
    return (
        *([f"different people feed the groups {feed}"] if len(plan.groups) > 1 else []),
        *plan.assumptions,
        *(
            f"every data set that could occur has {n} records in {shown(name)}"
            for name, n in records.items()
            if n is not None
        ),
        *(
            [f"every cell of every data set that could occur holds at least {up(plan.min_count):g} records"]
            if plan.min_count > 0
            else []
        ),
    )
