"""The expected error of any mechanism, on data sets that the model's own prior predicts. No data is used."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np
from scipy.special import rel_entr

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.planning.draw_error import expected_kl
from pymc_dirdp.planning.expected_kl import PriorExpectedKL, dirichlet_kl_rows
from pymc_dirdp.sampling.fast import dirichlet

__all__ = ["ExpectedKL", "a_priori_kl", "draw_kl", "predicted_data", "simulated_draw_kl", "simulated_kl"]

_FEWEST, _MOST = 100, 5_000
# Alpha is a sum of two doubles, which is rounded.
_ROUNDING = 1e-12


@final
@dataclass(frozen=True)
class ExpectedKL:
    """Expected divergences in nats, before any data are seen.

    Attributes
    ----------
    posterior : float
        The divergence of the private posterior from the posterior, summed over rows: P2's measure. NaN where it is not
        known, as of a floored draw.
    estimate : float
        The divergence of one private posterior draw from the frequencies, averaged over rows: P1's measure. NaN without
        records.
    """

    posterior: float
    estimate: float


def predicted_data(prior: Array, n_records: int, simulations: int | None = None, *, n_cells: int = 200_000) -> Integers:
    """Data sets of `n_records` records from the prior predictive distribution; rows hold an equal share.

    Parameters
    ----------
    prior : array, shape (..., d)
    n_records : int
    simulations : int or None
        None takes as many as make `n_cells` counts, but between 100 and 5,000.
    n_cells : int
        A mean over the default is known to about a per cent, in a fraction of a second.

    Returns
    -------
    data : array of int, shape (simulations, ..., d)
    """
    n_rows = math.prod(prior.shape[:-1])
    size = max(1, round(n_records / n_rows))
    if simulations is None:
        simulations = min(_MOST, max(_FEWEST, n_cells // prior.size))
    # A fixed seed is harmless: there is no data here, and what is planned twice comes out the same.
    rng = np.random.default_rng(20261121)
    return rng.multinomial(size, dirichlet(prior, simulations, rng))


def simulated_kl(mechanism: Mechanism, prior: Array, data: Integers) -> ExpectedKL:
    """Both divergences of any mechanism, averaged over given data sets.

    Parameters
    ----------
    mechanism : Mechanism
    prior : array, shape (..., d)
        The model's own prior.
    data : array of int, shape (simulations, ..., d)
        From :func:`predicted_data`.
    """
    private = mechanism.private_posteriors(data, np.random.default_rng(20261122))
    if private is None:
        # The distribution of such a draw is not Dirichlet, and no divergence of posteriors is known.
        held = bool(np.any(data))
        return ExpectedKL(math.nan, simulated_draw_kl(mechanism, data) if held else math.nan)
    posterior = dirichlet_kl_rows(data + prior, private)
    sizes = data.sum(axis=-1, keepdims=True)
    p = data / np.where(sizes > 0, sizes, 1)
    estimate = float(expected_kl(p, private).mean()) if np.any(sizes > 0) else math.nan
    return ExpectedKL(float(posterior.reshape(len(data), -1).sum(axis=1).mean()), estimate)


def simulated_draw_kl(mechanism: Mechanism, data: Integers) -> float:
    """The divergence of one private draw from the frequencies of made-up data sets, averaged over their rows.

    Parameters
    ----------
    mechanism : Mechanism
    data : array of int, shape (simulations, ..., d)
        From :func:`predicted_data`, each row with a record at least.
    """
    return draw_kl(mechanism.draws_of_shares(data, np.random.default_rng(20261122)), data)


def draw_kl(shares: Array, data: Integers) -> float:
    """The divergence of draws from the frequencies of the data sets they were made of, averaged over their rows."""
    return float(rel_entr(data / data.sum(axis=-1, keepdims=True), shares).sum(axis=-1).mean())


def a_priori_kl(mechanism: Mechanism, prior: Array, n_records: int) -> ExpectedKL:
    """Both divergences before any data are seen: in closed form for a tempered draw, simulated for others.

    Parameters
    ----------
    mechanism : Mechanism
    prior : array, shape (..., d)
        The model's own prior.
    n_records : int
        The public number of records, or the size to plan for.
    """
    if prior.shape[-1] == 1:
        # Every share is 1, before and after.
        return ExpectedKL(0.0, 0.0 if n_records else math.nan)
    drawn = mechanism.tempered
    # What depends on the prior alone is kept, because a frontier asks for many mechanisms.
    key = prior.shape, prior.tobytes(), n_records
    if drawn is None:
        return simulated_kl(mechanism, prior, _predicted(*key))
    keep, s, level = _raised(drawn.alpha, prior)
    expected, matched = _closed_form(*key), drawn.matched(n_records)
    keep, s, level = (value * matched.r / drawn.r for value in (keep, s, level))
    estimate = expected.estimate(matched.r, s, keep=keep, level=level) if n_records else math.nan
    return ExpectedKL(expected.posterior(matched.r, s, keep=keep, level=level), estimate)


def _raised(alpha: Array, prior: Array) -> tuple[float, float, float]:
    """What was kept of the prior, what was added to it, and the level to which small parameters were raised.

    A calibration adds the same number everywhere, raises to a level, or makes the parameters flat.
    """
    if np.ptp(alpha - prior) <= _ROUNDING * float(alpha.max()):
        return 1.0, float((alpha - prior).flat[0]), 0.0
    level = float(alpha.min())
    if np.array_equal(alpha, np.maximum(prior, level)):
        return 1.0, 0.0, level
    return 0.0, float(alpha.flat[0]), 0.0


@lru_cache(maxsize=8)
def _predicted(shape: tuple[int, ...], prior: bytes, n_records: int) -> Integers:
    return predicted_data(np.frombuffer(prior).reshape(shape), n_records)


@lru_cache(maxsize=8)
def _closed_form(shape: tuple[int, ...], prior: bytes, n_records: int) -> PriorExpectedKL:
    return PriorExpectedKL(np.frombuffer(prior).reshape(shape), n_records)
