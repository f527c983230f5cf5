"""What was chosen from the records before a release: refused where nothing covers it, or it leaves nothing."""

from collections.abc import Sequence

import pymc as pm

from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.models.labels import held_labels
from pymc_dirdp.models.purpose import chosen_structure
from pymc_dirdp.models.tables import Table
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


def refuse_unpaid_bins(tables: Sequence[Table], choices: Sequence[PrivateChoice]) -> None:
    """Refuse tables of bins that were chosen from data, if nothing covers what that has cost."""
    covered = {choice.labels for choice in choices if isinstance(choice, Bins)}
    of_dims = [set(map(str, held_labels(dim))) for table in tables for dim in table.coords.values() if dim is not None]
    for bins in Bins.unpaid():
        # There may be other categories beside the bins, such as one for missing values.
        if bins.labels not in covered and any(labels.issuperset(bins.labels) for labels in of_dims):
            raise ArgumentError(
                f"The bins of {bins.column!r} were chosen from the records, and nothing covers what that has cost. Add "
                "after=bins, and the guarantee covers both; or choose them with ledger=, which then holds their cost."
            )


def refuse_all_spent(guarantee: Guarantee, choices: Sequence[PrivateChoice]) -> None:
    """Refuse choices that leave nothing of the guarantee."""
    if choices and not Composition(losses_of(choices)).satisfies(guarantee):
        each = "; ".join(f"the {choice.called} {choice.guarantee}" for choice in choices)
        raise UnattainableError(
            f"What was chosen before does not keep {guarantee} by itself: it keeps, one by one, {each}. Relax the "
            "guarantee; to choose again would cost more."
        )
