"""The expected errors of the tables of a plan, from the prior, the mechanism and the number of records alone."""

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
    """The expected errors of a table. A number is None if it is unknown or does not apply.

    Attributes
    ----------
    n_records : int or None
        The public or the planned number of records.
    effective_records : float or None
        The effective number of records of a draw, `r N`.
    expected_kl_posterior : float or None
        The KL divergence of the private posterior from that of the model, in nats.
    expected_kl_estimate : float or None
        The KL divergence of a draw from the frequencies, in nats.
    estimate_kl : float or None
        The KL divergence of the estimate from the shares, in nats.
    share_error : float or None
        The typical error of a share in the estimate.
    draw_error : float or None
        The typical error of a share in a draw.
    smallest_share : float or None
        The share of the records of its row below which a cell cannot be distinguished from an empty cell.
    grid_weight, grid_variance : float or None
        The effect of the grid of an exact draw: its weight, and its part of the variance.
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
    # Numbers from a malformed file can overflow or be undefined.
    with np.errstate(all="ignore"):
        errors = {part.table.name: _of_table(part, plan) for part in plan.parts}
    # Tables that are fitted jointly to marginals.
    fitted = expected_fit_errors(plan.publishing(Marginals), public=plan.privacy_unit.n_records_is_public)
    for name, error in fitted.items():
        errors[name] = replace(errors[name], estimate_kl=error.kl, share_error=error.share)
    return errors


def _of_table(part: PlannedTable, plan: Plan) -> ExpectedErrors:
    mechanism, n_records, tempered = part.mechanism, part.n_records, part.mechanism.tempered
    if n_records is None:
        return ExpectedErrors()
    errors = ExpectedErrors(n_records)
    prior, public, totals = part.table.prior, plan.privacy_unit.n_records_is_public, part.totals
    error = estimate_error(mechanism, prior, n_records, public=public, totals=totals, draws=plan.released_draws)
    if error is not None:
        errors = replace(errors, estimate_kl=error.kl, share_error=error.share)
    if n_records > 0:
        draw_error = draw_share_error(mechanism, prior, n_records, public=public, totals=totals)
        smallest = smallest_share(mechanism, prior.shape, n_records, totals=totals)
        errors = replace(errors, draw_error=draw_error, smallest_share=smallest)
    # Draws given noisy counts have no closed form, no weight below 1 and no grid.
    if mechanism.output_kind is Draws:
        expected = a_priori_kl(mechanism, prior, n_records)
        errors = replace(errors, expected_kl_posterior=expected.posterior, expected_kl_estimate=expected.estimate)
    # With one category all shares are 1, so records have no weight.
    if tempered is not None and part.table.n_categories > 1:
        errors = replace(errors, effective_records=effective_records(tempered.r, n_records))
        if (steps := mechanism.steps(plan.sampler, n_records)) is not None:
            share = grid_share(tempered.alpha, tempered.r, n_records, steps=steps)
            errors = replace(errors, grid_weight=share.weight, grid_variance=share.variance)
    return errors
