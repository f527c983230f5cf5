"""A priori losses of any mechanism, on data sets that the model's own prior predicts. No data is used."""

import math
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.mechanisms.whole_posterior import WholePosterior
from pymc_dirdp.sampling.fast import dirichlet
from pymc_dirdp.utility.draw_loss import expected_kl
from pymc_dirdp.utility.expected_kl import dirichlet_kl_rows

__all__ = ["Losses", "losses", "predicted_data", "private_parameters"]

Array = NDArray[np.float64]
Integers = NDArray[np.int64]

# How many counts are simulated in all: a mean over them is known to about a per cent, in a fraction of a second.
_CELLS = 200_000
_FEWEST, _MOST = 100, 5_000


@final
@dataclass(frozen=True)
class Losses:
    """Expected losses in nats.

    Attributes
    ----------
    posterior : float
        Divergence of the private posterior from the posterior, summed over rows: P2's measure.
    estimate : float
        Divergence of one private posterior draw from the frequencies, averaged over rows: P1's.
    """

    posterior: float
    estimate: float


def predicted_data(prior: Array, n_records: int, simulations: int | None = None) -> Integers:
    """Data sets of `n_records` records from the prior predictive law; rows hold an equal share.

    Parameters
    ----------
    prior : array, shape (..., d)
    n_records : int
    simulations : int or None
        None takes as many as make the losses accurate to about a per cent.

    Returns
    -------
    data : array of int, shape (simulations, ..., d)
    """
    n_rows = math.prod(prior.shape[:-1])
    size = max(1, round(n_records / n_rows))
    if simulations is None:
        simulations = min(_MOST, max(_FEWEST, _CELLS // prior.size))
    # A fixed seed is harmless: there is no data here, and what is planned twice comes out the same.
    rng = np.random.default_rng(20261121)
    return rng.multinomial(size, dirichlet(prior, simulations, rng))


def private_parameters(mechanism: Mechanism, prior: Array, data: Integers, rng: np.random.Generator) -> Array:
    """Parameters of the private posterior, one release for each data set. Shape of `data`."""
    if isinstance(mechanism, DirichletMechanism):
        return mechanism.r * data + mechanism.alpha
    if isinstance(mechanism, NoisyCounts):
        return mechanism.mended(data + mechanism.noise_for(data.shape, rng)) + prior
    if isinstance(mechanism, WholePosterior):
        return np.array([mechanism.release(counts, random_seed=rng) for counts in data]) + prior
    raise ArgumentError(f"No private posterior of counts comes from a {type(mechanism).__name__}.")


def losses(mechanism: Mechanism, prior: Array, data: Integers) -> Losses:
    """Both losses of a mechanism, averaged over given data sets.

    Parameters
    ----------
    mechanism : Mechanism
    prior : array, shape (..., d)
        The model's own prior.
    data : array of int, shape (simulations, ..., d)
        From :func:`predicted_data`.
    """
    private = private_parameters(mechanism, prior, data, np.random.default_rng(20261122))
    posterior = dirichlet_kl_rows(data + prior, private)
    sizes = data.sum(axis=-1, keepdims=True)
    p = data / np.where(sizes > 0, sizes, 1)
    draw = expected_kl(p, private)
    return Losses(float(posterior.reshape(len(data), -1).sum(axis=1).mean()), float(draw.mean()))
