"""The errors that are expected of a plan's tables, by the prior, the mechanism and the number of records alone."""

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from pymc_dirdp.mechanisms.outputs import Draws, Marginals
from pymc_dirdp.planning.draw_error import draw_share_error, smallest_share
from pymc_dirdp.planning.estimate_error import estimate_error
from pymc_dirdp.planning.expected_kl import a_priori_kl, effective_records
from pymc_dirdp.releases.plan_types import Plan, PlannedTable
from pymc_dirdp.releases.predicting import expected_fit_errors
from pymc_dirdp.sampling.exact import grid_share


@final
@dataclass(frozen=True)
class ExpectedErrors:
    """What is expected of one table. A number is None where it is not known, or the table has none.

    Attributes
    ----------
    n_records : int or None
        The public number of records, or the one that was planned for.
    effective_records : float or None
        How many records the draw counts, `r N`.
    expected_kl_posterior : float or None
        The divergence of the private posterior from the model's own, in nats.
    expected_kl_estimate : float or None
        That of a draw from the frequencies.
    estimate_kl : float or None
        That of the estimate from the shares.
    share_error : float or None
        The typical error of a share in the estimate.
    draw_error : float or None
        That of a share in the draw.
    smallest_share : float or None
        Below it a cell may be taken for an empty one that shows the prior alone: a share of the records of its row.
    grid_weight, grid_variance : float or None
        What the grid of an exact draw adds: its weight, and a part of the variance.
    """

    n_records: int | None = None
    effective_records: float | None = None
    expected_kl_posterior: float | None = None
    expected_kl_estimate: float | None = None
    estimate_kl: float | None = None
    share_error: float | None = None
    draw_error: float | None = None
    smallest_share: float | None = None
    grid_weight: float | None = None
    grid_variance: float | None = None


def expected_errors(plan: Plan) -> dict[str, ExpectedErrors]:
    """The expected errors of each table of a plan."""
    # A file may hold numbers of which nothing can be computed.
    with np.errstate(all="ignore"):
        errors = {part.table.name: _of_table(part, plan) for part in plan.parts}
    # The tables that are fitted to marginals of all of them.
    fitted = expected_fit_errors(plan.publishing(Marginals), public=plan.reading.n_records_is_public)
    for name, error in fitted.items():
        errors[name] = replace(errors[name], estimate_kl=error.kl, share_error=error.share)
    return errors


def _of_table(part: PlannedTable, plan: Plan) -> ExpectedErrors:
    mechanism, n_records, tempered = part.mechanism, part.n_records, part.mechanism.tempered
    if n_records is None:
        return ExpectedErrors()
    errors = ExpectedErrors(n_records)
    prior, public, totals = part.table.prior, plan.reading.n_records_is_public, part.totals
    error = estimate_error(mechanism, prior, n_records, public=public, totals=totals, draws=plan.released_draws)
    if error is not None:
        errors = replace(errors, estimate_kl=error.kl, share_error=error.share)
    if n_records > 0:
        draw_error = draw_share_error(mechanism, prior, n_records, public=public, totals=totals)
        smallest = smallest_share(mechanism, prior.shape, n_records, totals=totals)
        errors = replace(errors, draw_error=draw_error, smallest_share=smallest)
    # Draws given noisy counts have no closed form, leave every record its weight and have no grid.
    if mechanism.output_kind is Draws:
        expected = a_priori_kl(mechanism, prior, n_records)
        errors = replace(errors, expected_kl_posterior=expected.posterior, expected_kl_estimate=expected.estimate)
    # Where all shares are 1 no record has any weight.
    if tempered is not None and part.table.n_categories > 1:
        errors = replace(errors, effective_records=effective_records(tempered.r, n_records))
        if (steps := mechanism.steps(plan.sampler, n_records)) is not None:
            share = grid_share(tempered.alpha, tempered.r, n_records, steps=steps)
            errors = replace(errors, grid_weight=share.weight, grid_variance=share.variance)
    return errors
