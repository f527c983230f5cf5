"""Floating-point draws on a public grid."""

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from pymc_dirdp.arrays import Array
from pymc_dirdp.sampling.bits import children

# Number of doubles in a block, of which several fit into the cache of a core.
_BLOCK = 2**14

_Fill = Callable[[Array, Array, np.random.Generator], None]


def dirichlet(concentration: Array, draws: int, rng: np.random.Generator, *, overwrite: bool = False) -> Array:
    """Draws from `Dirichlet(concentration)`, row by row, without zeros and NaN.

    Use it for simulations, for draws from public numbers, and for the curator's own posterior. The last bits of draws
    depend on the parameters. Draw releases with :func:`fast_dirichlet` or :mod:`pymc_dirdp.sampling.exact`.

    Parameters
    ----------
    concentration : array, shape (..., d)
        Positive parameters.
    draws : int
        Number of independent draws.
    rng : numpy.random.Generator
        From :func:`pymc_dirdp.sampling.bits.generator`.
    overwrite : bool, default False
        Whether a single draw may overwrite the parameters.

    Returns
    -------
    y : array, shape (draws, ..., d)
        Each row is positive and sums to 1 up to rounding. No component is below the smallest normal double, 2.2e-308.

    Notes
    -----
    Every component is drawn as `log G_a = log G_{a+1} + log(U) / a`, and every row is normalised by log-sum-exp, so no
    branch depends on the parameters.
    """
    return _normalised(concentration if overwrite else concentration.copy(), draws, rng)


def _normalised(concentration: Array, draws: int, rng: np.random.Generator) -> Array:
    """The draws of :func:`dirichlet`. A single draw overwrites the parameters."""
    y = _filled(_log_gammas, concentration, draws, rng)
    y -= y.max(axis=-1, keepdims=True)
    np.exp(y, out=y)
    y /= y.sum(axis=-1, keepdims=True)
    return np.maximum(y, np.finfo(np.float64).tiny, out=y)


def _filled(fill: _Fill, shapes: Array, draws: int, rng: np.random.Generator, *, blocks: int = 16) -> Array:
    """Draws with these shape parameters. A single draw overwrites them, because a new array takes time.

    Several parts are divided among one thread per core. Each part, of `blocks` blocks, has its own generator, so a seed
    gives the same draws on any number of cores.
    """
    flat = shapes.reshape(-1)
    drawn = flat[None] if draws == 1 else np.empty((draws, flat.size))
    at_once = max(1, _BLOCK // flat.size)
    starts = itertools.product(range(0, draws, at_once), range(0, flat.size, _BLOCK))

    def work(part: tuple[tuple[int, int], ...], rng: np.random.Generator) -> None:
        # One buffer for all blocks, because the system has to clear new memory.
        copy = np.empty(min(_BLOCK, flat.size))
        for i, j in part:
            block = copy[: min(_BLOCK, flat.size - j)]
            block[:] = flat[j : j + _BLOCK]
            fill(block, drawn[i : i + at_once, j : j + _BLOCK], rng)

    parts = list(itertools.batched(starts, blocks))
    if len(parts) == 1:
        work(parts[0], rng)
    else:
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            list(threads.map(work, parts, children(rng, len(parts))))  # Raises the error of a thread.
    return drawn.reshape(draws, *shapes.shape)


def _gammas(shapes: Array, out: Array, rng: np.random.Generator) -> None:
    """Gamma variables with these shapes, each at least the next double above 1. The shapes are overwritten."""
    # NumPy has another algorithm for a shape of exactly 1.
    rng.standard_gamma(np.maximum(shapes, np.nextafter(1.0, 2.0), out=shapes), size=out.shape, out=out)


def _log_gammas(shapes: Array, out: Array, rng: np.random.Generator) -> None:
    """Logarithms of Gamma variables with these shapes."""
    _gammas(shapes + 1, out, rng)
    np.log(out, out=out)
    # 1 - random() is in (0, 1], so its logarithm is finite, but division by a tiny parameter may overflow.
    with np.errstate(over="ignore"):
        out += np.log(1.0 - rng.random(size=out.shape)) / shapes
    np.maximum(out, -np.finfo(np.float64).max / 2, out=out)


def fast_dirichlet(concentration: Array, draws: int, rng: np.random.Generator, *, least: float = 0.0) -> Array:
    """Draws from `Dirichlet(concentration)` rounded to a public grid, for releases in floating point.

    For a draw `y` of :func:`dirichlet` and `k = round(y * 2**32)`, the release is `(2 k + 1) / sum(2 k + 1)`, which
    is a positive function of integers. Tests found no trace of the floating-point arithmetic on this grid, but did on a
    grid of 2**-50. There is no proof. The number of random words and the time of a draw depend on the secret.

    Parameters
    ----------
    concentration, draws, rng
        As in :func:`dirichlet`. The concentration may be secret, and is overwritten.
    least : float, default 0
        A public lower bound of all parameters, whatever the secret. If it is at least 1, Gamma variables are divided by
        their sum without logarithms, in three quarters of the time.

    Returns
    -------
    y : array, shape (draws, ..., d)
        Each row is positive, at least about 2**-33, and sums to 1 up to rounding.

    References
    ----------
    Mironov (2012), On significance of the least significant bits for differential privacy,
    https://doi.org/10.1145/2382196.2382264.
    """
    if least < 1:
        return on_public_grid(_normalised(concentration, draws, rng))
    y = _filled(_gammas, concentration, draws, rng)
    return on_public_grid(y, y.sum(axis=-1, keepdims=True))


def on_public_grid(y: Array, total: Array | float = 1.0) -> Array:
    """`(2 k + 1) / sum(2 k + 1)` with `k = round(y / total * 2**32)`, in the shape of `y`, which is overwritten."""
    rows = y.reshape(-1, y.shape[-1])
    # A grid finer than about 2**-45 would retain bits of the floating-point arithmetic.
    scales = np.broadcast_to(2**32 / total, (*y.shape[:-1], 1)).reshape(-1, 1)
    at_once = max(1, _BLOCK // rows.shape[1])
    for i in range(0, len(rows), at_once):
        chunk, scale = rows[i : i + at_once], scales[i : i + at_once]
        sums = np.zeros_like(scale)
        # In blocks, because the cache of a core is faster than memory.
        for j in range(0, rows.shape[1], _BLOCK):
            block = chunk[:, j : j + _BLOCK]
            block *= scale
            np.rint(block, out=block)
            # Half of `2 k + 1`. Doubles represent the halves and their sums exactly, so shares are correctly rounded.
            block += 0.5
            sums += block.sum(axis=-1, keepdims=True)
        chunk /= sums
    return rows.reshape(y.shape)
