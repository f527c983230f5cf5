"""Probabilities of records, predictions and synthetic records from the mixture of a wide table."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr
from scipy.special import logsumexp

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer
from pymc_dirdp.counting.columns import Frame, encode
from pymc_dirdp.errors import ArgumentError, FewRecordsWarning, warn
from pymc_dirdp.inference.mixture import STEPS, Mixture
from pymc_dirdp.networks.refinement import refine
from pymc_dirdp.networks.systematic import systematic
from pymc_dirdp.progress import Bar
from pymc_dirdp.releases.opened import Published, content_of, refuse_confidential
from pymc_dirdp.releases.pairs import PairsRelease
from pymc_dirdp.releases.pairs_view import seed_of, tree_of_pairs

# Number of records in a batch, whose weights are a matrix with a column for each component.
_BATCH = 2**13


def pairs_of(release: Published) -> PairsRelease | None:
    """The release of pairs in a release or its fit; None for anything else."""
    refuse_confidential(release)
    content = content_of(release)
    return content if isinstance(content, PairsRelease) else None


def mixture_of(release: Published, pairs: PairsRelease) -> Mixture:
    """The mixture of a release of pairs, with the seed of a fit if there is one."""
    return pairs.mixture(seed_of(release))


def fit_of_pairs(pairs: PairsRelease, random_seed: Any, *, progressbar: bool) -> xr.DataTree:
    """The result of :func:`pymc_dirdp.fit` for a release of pairs."""
    seed = integer(0, random_seed=0 if random_seed is None else random_seed)
    with Bar(STEPS, "steps", shown=progressbar) as bar:
        pairs.mixture(seed, bar)
    if pairs.noisy.hides_dependence:
        warn(
            "The noise hides all dependence between columns, so the columns of the fit are nearly independent. Use a "
            "larger privacy budget, fewer columns or larger categories.",
            FewRecordsWarning,
        )
    return tree_of_pairs(pairs, seed)


def log_proba_of_records(pairs: PairsRelease, mixture: Mixture, frame: Frame) -> Array:
    """The logarithm of the probability of whole records."""
    codes = list(encode(frame, list(pairs.plan.labels), pairs.plan.labels).values())
    parts = [mixture.log_proba({i: code[part] for i, code in enumerate(codes)}) for part in _parts(len(codes[0]))]
    return np.concatenate([np.empty(0), *parts])


def log_proba_of_target(pairs: PairsRelease, mixture: Mixture, X: Frame, target: str | None) -> xr.DataArray:
    """The logarithms of the probabilities of the categories of a column given all other columns."""
    labels = pairs.plan.labels
    if target not in labels:
        raise ArgumentError(
            f"Pass the column to predict as target=, one of {', '.join(map(repr, labels))}, got {target!r}."
        )
    others = [name for name in labels if name != target]
    place = {name: i for i, name in enumerate(labels)}
    codes = encode(X, others, labels)
    log_shares = np.log(np.maximum(mixture.by_column[place[target]], np.finfo(np.float64).tiny))
    log_proba = []
    for part in _parts(len(codes[others[0]])):
        weights = mixture.log_weights({place[name]: code[part] for name, code in codes.items()})
        joint = np.stack([logsumexp(weights + column, axis=1) for column in log_shares.T], axis=1)
        log_proba.append(joint - logsumexp(joint, axis=1, keepdims=True))
    values = np.concatenate([np.empty((0, len(labels[target]))), *log_proba])
    dims = ("record" if target != "record" else "row", target)
    return xr.DataArray(values, {target: labels[target]}, dims, name="log_proba")


def records_of(
    pairs: PairsRelease, mixture: Mixture, n_records: int | None, rng: np.random.Generator
) -> dict[str, Any]:
    """Synthetic records, whose counts of pairs are close to their expectation."""
    n, labels = round(pairs.noisy.n_records) if n_records is None else n_records, pairs.plan.labels
    component = np.sort(rng.permutation(n) % len(mixture.shares))
    codes = np.stack([systematic(component, shares, rng) for shares in mixture.by_column], axis=1)
    expected = n / len(mixture.shares) * (mixture.shares.T @ mixture.shares)
    codes = refine(codes, mixture.lengths, expected, rng)
    return {name: np.asarray(values)[codes[:, i]] for i, (name, values) in enumerate(labels.items())}


def _parts(n: int) -> Iterator[slice]:
    return (slice(start, start + _BATCH) for start in range(0, n, _BATCH))
