"""Many independent releases of the same counts."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pymc_dirdp.checks import one_of
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.dirichlet import SAMPLERS, DirichletMechanism
from pymc_dirdp.mechanisms.gaussian import GaussianMechanism
from pymc_dirdp.mechanisms.laplace import LaplaceMechanism
from pymc_dirdp.mechanisms.noisy_counts import NoisyCounts
from pymc_dirdp.mechanisms.simplex import SimplexMechanism
from pymc_dirdp.mechanisms.whole_posterior import WholePosterior

__all__ = ["BlackBox", "Outputs", "releases", "sampler_of"]

Array = NDArray[np.float64]
BlackBox = Callable[[Array], object]
# Along the first axis. A list, where their shapes may differ.
Outputs = Array | Sequence[Array]

# Noise is drawn for so many tables at a time.
_AT_ONCE = 20_000


def sampler_of(mechanism: Mechanism, sampler: str | None) -> str:
    """The name of the sampler that is audited: the one that is asked for, or the mechanism's own default.

    Raises
    ------
    ArgumentError
        If the mechanism has no such sampler.
    """
    default = _parameters(_door(mechanism)).get("sampler")
    if sampler is None:
        # Continuous noise has no exact sampler.
        continuous = isinstance(mechanism, GaussianMechanism | LaplaceMechanism)
        return "fast" if default is None or continuous else str(default.default)
    if one_of(SAMPLERS, sampler=sampler) != "fast" and default is None:
        raise ArgumentError(f"{type(mechanism).__name__} has no sampler={sampler!r}. Leave sampler out.")
    return sampler


def releases(
    mechanism: Mechanism | BlackBox,
    counts: Array,
    n: int,
    rng: np.random.Generator,
    *,
    sampler: str = "fast",
    steps: int | None = None,
) -> Outputs:
    """`n` releases, each what the guarantee of the mechanism is about.

    Parameters
    ----------
    mechanism : Mechanism or callable
        A callable takes the counts, brings its own randomness and returns an array, of any shape.
    counts : array
        Made up.
    n : int
        How many.
    rng : numpy.random.Generator
        For mechanisms of this library.
    sampler : str
        From :func:`sampler_of`. Of no effect for a callable.
    steps : int, optional
        Of the urn, for the exact sampler of a `DirichletMechanism`.

    Returns
    -------
    outputs : array, shape (n, ...), or list of n arrays
    """
    if not isinstance(mechanism, Mechanism):
        return [np.asarray(mechanism(counts), dtype=np.float64) for _ in range(n)]
    door = _door(mechanism)
    options: dict[str, Any] = {"random_seed": rng}
    if "sampler" in _parameters(door):
        options["sampler"] = sampler
    match mechanism:
        case DirichletMechanism():
            outputs: Array = door(counts, draws=n, steps=steps, **options)
            return outputs
        case SimplexMechanism():
            released: Array = door(counts, protected=range(mechanism.domain.n_protected), draws=n, **options)
            return released
        case NoisyCounts():
            sizes = [min(_AT_ONCE, n - start) for start in range(0, n, _AT_ONCE)]
            return np.concatenate([_noisy(mechanism, counts, size, options) for size in sizes])
    return np.array([door(counts, **options) for _ in range(n)], dtype=np.float64)


def _door(mechanism: Mechanism) -> Callable[..., Any]:
    """The method that releases what the guarantee is about: one draw, or the noisy counts that all draws come from."""
    match mechanism:
        case DirichletMechanism() | SimplexMechanism():
            return mechanism.sample
        case NoisyCounts() | WholePosterior():
            return mechanism.release
    raise ArgumentError(f"A {type(mechanism).__name__} releases nothing. Pass a function of the counts.")


def _parameters(door: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(door).parameters)


def _noisy(mechanism: NoisyCounts, counts: Array, size: int, options: dict[str, Any]) -> Array:
    """Noise is independent in every cell, so one table of many copies is as good as many tables, and faster."""
    # What a person adds decides the curves, and not the noise, and may not fit to the shape of the tall table.
    copies = np.broadcast_to(mechanism.prior, (size, *mechanism.prior.shape))
    tall = dataclasses.replace(mechanism, prior=copies, contribution=1)  # type: ignore[type-var]
    return tall.release(np.broadcast_to(counts, (size, *counts.shape)), **options)
