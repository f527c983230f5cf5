"""Releases by a plan, with all options that a plan has."""

import pymc_dirdp as dirdp


def planned_sample(guarantee, model=None, *, random_seed=None, ledger=None, progressbar=True, **planning):
    """A release of a model by the plan of these options; by a plan that was made before, if it comes first."""
    plan = guarantee
    if isinstance(guarantee, dirdp.Guarantee):
        plan = dirdp.plan(guarantee, model, progressbar=progressbar, **planning)
    return dirdp.sample(plan, model, random_seed=random_seed, ledger=ledger, progressbar=progressbar)
