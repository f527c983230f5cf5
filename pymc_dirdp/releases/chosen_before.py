"""What was chosen from the records before a release: refused where nothing covers it, or it leaves nothing."""

from collections.abc import Iterable, Sequence
from typing import Any

import pymc as pm

from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.models.purpose import chosen_structure
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.stored.bins import Bins
from pymc_dirdp.stored.choice import PrivateChoice
from pymc_dirdp.stored.choices import losses_of

__all__ = ["refuse_all_spent", "refuse_unpaid_bins", "refuse_unpaid_structure"]


def refuse_unpaid_structure(model: pm.Model, choices: Sequence[PrivateChoice]) -> None:
    """Refuse a model whose structure was chosen from data, if nothing covers what that has cost."""
    chosen = chosen_structure(model)
    if chosen is not None and chosen not in choices and not chosen.recorded:
        raise ArgumentError(
            "The structure of this model was chosen from the records, and nothing covers what that has cost. Add "
            "after=structure, and the guarantee covers both; or choose it with ledger=, which then holds its cost. If "
            "you have paid for it elsewhere, build the model from dict(structure)."
        )


def refuse_unpaid_bins(dims: Iterable[Iterable[Any]], choices: Sequence[PrivateChoice] = ()) -> None:
    """Refuse tables of bins that were chosen from data, if nothing covers what that has cost.

    Parameters
    ----------
    dims : iterable of iterable
        The labels of each axis of each table.
    choices : sequence of PrivateChoice, default ()
        What the guarantee covers.
    """
    # By which of several bins with the same edges a table was counted cannot be seen. So all of them have to be
    # covered, here or by an earlier release: else bins that cost 5 would be covered by those that cost .001.
    covered = {choice.labels for choice in choices if isinstance(choice, Bins)}
    unpaid = [bins for bins in Bins.unpaid() if bins not in choices and not (bins.released and bins.labels in covered)]
    for labels in [set(map(str, dim)) for dim in dims] if unpaid else []:
        for bins in unpaid:
            # There may be other categories beside the bins, such as one for missing values.
            if labels.issuperset(bins.labels):
                raise ArgumentError(
                    f"The bins of {bins.column!r} were chosen from the records, and nothing covers what that has cost. "
                    "Pass after=bins to plan() or sample(), and the guarantee covers both; or choose them with "
                    "ledger=, which then holds their cost. Bins that were chosen twice have cost twice: after=[first, "
                    "second]."
                )


def refuse_all_spent(guarantee: Guarantee, choices: Sequence[PrivateChoice]) -> None:
    """Refuse choices that leave nothing of the guarantee."""
    if choices and not Composition(losses_of(choices)).satisfies(guarantee):
        each = "; ".join(f"the {choice.called} {choice.guarantee}" for choice in choices)
        raise UnattainableError(
            f"What was chosen before does not keep {guarantee} by itself: it keeps, one by one, {each}. Relax the "
            "guarantee; to choose again would cost more."
        )
