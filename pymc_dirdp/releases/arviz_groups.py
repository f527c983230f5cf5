"""The groups of ArviZ other than the posterior: replicated releases, log-likelihoods and log-priors of each draw.

All of them follow from the release and the posterior draws, so they cost no privacy. They are computed on access,
because a likelihood is a sum over all counts for each draw, which can take far longer than the draws.

1. A replicate is a simulated release of the same number of records with the same shares: new counts with new noise of
   the mechanism.
2. The log-likelihood is that of the release given the shares, with the counts summed out. The likelihood given the
   latent counts would not measure the fit of a model, because these were drawn given the same release.
3. The log-prior is a density in the coordinates of samplers, whose powers show what the counts of a prior do.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import gammaln
from xarray.core.indexing import LazilyIndexedArray

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.inference.estimates import Draws
from pymc_dirdp.inference.noisy_rows import noisy_rows, private_total
from pymc_dirdp.inference.observed_table import Beliefs, Labels, ObservedTable
from pymc_dirdp.inference.rows import RowPosterior
from pymc_dirdp.inference.tables import TablePosterior, posterior_of
from pymc_dirdp.mechanisms.outputs import RowLikelihood
from pymc_dirdp.releases.deferred import Deferred
from pymc_dirdp.releases.inference_setup import Inferences

type LabelledArrays = dict[str, tuple[Any, Labels]]
"""Arrays, perhaps deferred, with their axes, by name."""


def dataset_of(arrays: LabelledArrays) -> xr.Dataset:
    """A group of variables of one model. A dim has the same labels in all variables."""
    coords = {dim: values for _, labels in arrays.values() for dim, values in labels if values is not None}
    return xr.Dataset({name: ([dim for dim, _ in labels], values) for name, (values, labels) in arrays.items()}, coords)


def sample_axes(chains: int, draws: int) -> Labels:
    """The axes of chains and draws."""
    return ("chain", np.arange(chains)), ("draw", np.arange(draws))


def data_of(inference: Inferences) -> LabelledArrays:
    """The published values by table, or by table and release if there are several; as integers if all of them are."""
    arrays: LabelledArrays = {}
    for name, output in inference.tables.items():
        for number, (values, labels) in enumerate(output.observed):
            integers = np.all((values == np.floor(values)) & (np.abs(values) < 2.0**53))
            arrays[_data_name(inference, name, number)] = values.astype(np.int64) if integers else values.copy(), labels
    return arrays


def _data_name(inference: Inferences, name: str, release: int) -> str:
    return name if len(inference.origins) == 1 else f"{name}_release_{release}"


def deferred_groups(
    inference: Inferences, posterior_draws: Mapping[str, Draws], chains: int, seed: Sequence[int]
) -> dict[str, LabelledArrays]:
    """The groups that are computed on access, by name.

    Parameters
    ----------
    inference : Inferences
    posterior_draws : mapping of str to Draws
        Posterior draws, by table.
    chains : int
    seed : sequence of int
        The seed of the replicates.
    """
    draws = len(next(iter(posterior_draws.values())).shares)
    sampled = sample_axes(chains, draws // chains)

    def deferred(compute: Callable[[], NDArray[Any]], shape: tuple[int, ...], labels: Labels, dtype: Any) -> Any:
        array = Deferred(compute, (chains, draws // chains, *shape), np.dtype(dtype))
        return LazilyIndexedArray(array), (*sampled, *labels)

    left_out, replicated = (
        tables_without_likelihood(inference),
        cache(lambda: replicates(inference, posterior_draws, seed)),
    )
    groups: dict[str, LabelledArrays] = {"posterior_predictive": {}, "log_likelihood": {}, "log_prior": {}}
    for name, (values, labels) in data_of(inference).items():
        replicate = partial(lambda name: replicated()[name], name)
        groups["posterior_predictive"][name] = deferred(replicate, values.shape, labels, values.dtype)
    for name, output in inference.tables.items():
        shares, rows, row_labels = posterior_draws[name].shares, output.prior.shape[:-1], output.cell_labels[:-1]
        if not output.measurements:
            density = partial(log_dirichlet, inference.prior(name), shares)
            groups["log_prior"][name] = deferred(density, rows, row_labels, np.float64)
        if name not in left_out:
            by_row = has_independent_rows(output)
            likelihood = partial(log_likelihood, output, inference.beliefs[name], shares)
            shape, labels = (rows, row_labels) if by_row else ((), ())
            groups["log_likelihood"][name] = deferred(likelihood, shape, labels, np.float64)
    return {name: arrays for name, arrays in groups.items() if arrays}


def log_dirichlet(prior: Array, shares: Array) -> Array:
    """Logarithm of the density of a Dirichlet prior for each row, shape `(..., *rows)`.

    It is the density in the coordinates of samplers, `log(p_i / p_d)`: `prod p**prior` over the Beta function. Its
    power `k` is a prior with `k` times the prior counts. With respect to `p` itself a flat prior has the same density
    everywhere, so its powers would not show what its counts do.
    """
    constant = gammaln(prior.sum(axis=-1)) - gammaln(prior).sum(axis=-1)
    return np.asarray(constant + (prior * _logarithms(shares)).sum(axis=-1))


def _logarithms(shares: Array) -> Array:
    return np.log(np.maximum(shares, np.finfo(np.float64).tiny))


# New releases with the same shares.


def replicates(inference: Inferences, posterior_draws: Mapping[str, Draws], seed: Sequence[int]) -> dict[str, Array]:
    """A simulated release for each draw of the shares, by variable of the data.

    A row has the same number of new records as in the draw: the public number, or a posterior draw of a private number.
    Rows of features that are analysed jointly with their classes have the number of new records of the class.

    Parameters
    ----------
    inference : Inferences
    posterior_draws : mapping of str to Draws
        Posterior draws, by table.
    seed : sequence of int
    """
    rng, counts = np.random.default_rng(seed), dict[str, Integers]()
    for name in sorted(inference.tables, key=lambda name: name != inference.classes):
        totals = (
            posterior_draws[name].counts.sum(axis=-1)
            if inference.classes in (None, name)
            else counts[str(inference.classes)]
        )
        counts[name] = _multinomial(totals, posterior_draws[name].shares, inference.tables[name].least, rng)
    # The number of cells in a batch is bounded, to bound the memory.
    draws, cells = len(next(iter(counts.values()))), sum(output.prior.size for output in inference.tables.values())
    parts = math.ceil(draws * cells / 2**22)
    batches = [
        [origin.replicates(dict(zip(counts, batch, strict=True)), rng) for origin in inference.origins]
        for batch in zip(*(np.array_split(values, parts) for values in counts.values()), strict=True)
    ]
    return {
        _data_name(inference, name, number): np.concatenate([part[number][name] for part in batches])
        for number in range(len(inference.origins))
        for name in inference.tables
    }


def _multinomial(totals: Integers, shares: Array, least: int, rng: np.random.Generator) -> Integers:
    """New counts with at least `least` records in each cell. Rows with fewer are drawn again under this condition."""
    counts = rng.multinomial(totals, shares / shares.sum(axis=-1, keepdims=True))
    for index in map(tuple, np.argwhere((counts < least).any(axis=-1)).tolist()) if least else ():
        row = RowPosterior(
            alpha=np.ones(shares.shape[-1]),
            total=int(totals[index]),
            log_likelihood=RowLikelihood.of_nothing().cell_loglik,
            least=least,
            log_shares=_logarithms(shares[index]),
        )
        counts[index] = row.batch.draw(1, rng)[0, 0]
    return counts


# The likelihood of the release given the shares.


def tables_without_likelihood(inference: Inferences) -> dict[str, str]:
    """The tables without a separate likelihood, and the reasons."""
    if inference.classes is not None:
        return dict.fromkeys(
            inference.tables, "analysed jointly with other tables; same_records=False analyses each separately"
        )
    left_out = {}
    for name, output in inference.tables.items():
        if output.measurements:
            left_out[name] = "marginals of several tables are fitted together, and have no likelihood by table"
        elif (joint := output.joint_rows) is not None and len(joint.blocks) * output.prior.shape[
            -1
        ] < output.prior.size:
            left_out[name] = "under joint noise a likelihood requires the row sizes"
    return left_out


def likelihood_attributes(inference: Inferences) -> dict[str, str]:
    """Attributes that explain the log-likelihoods."""
    left_out = tables_without_likelihood(inference)
    units = [
        f"{name}: {'a row' if has_independent_rows(output) else 'the table'}"
        for name, output in inference.tables.items()
        if name not in left_out
    ]
    facts = {"log_likelihood_left_out": " | ".join(f"{name}: {reason}" for name, reason in left_out.items())}
    if units:
        facts["log_likelihood_given"] = "the shares of the draw; the counts are summed out"
        facts["log_likelihood_unit"] = " | ".join([*units, "what is left out by LOO is never a person"])
    return {name: fact for name, fact in facts.items() if fact}


def has_independent_rows(output: ObservedTable) -> bool:
    """Whether the outputs of the rows are independent given the shares.

    They are if the row sizes are public and rows do not share noise.
    """
    rows = output.prior.size // output.prior.shape[-1]
    return output.joint_rows is None and (len(output.blocks) == rows > 1)


def log_likelihood(output: ObservedTable, beliefs: Beliefs, shares: Array) -> Array:
    """The logarithm of the probability or density of the output of a table, given the shares of each draw.

    The shape is `(draws, rows)` if rows are independent given their shares, and `(draws, 1)` otherwise.
    """
    logs, by_row = _logarithms(shares), has_independent_rows(output)
    if (compiled := noisy_rows(output, beliefs)) is not None:
        values = np.stack([compiled.evaluated(log_shares)[0].ravel() for log_shares in logs])
        return values if by_row else values.sum(axis=1, keepdims=True)
    posterior = posterior_of(output, beliefs)
    if by_row and isinstance(posterior, TablePosterior):
        return np.stack([posterior.with_shares(log_shares).log_evidences for log_shares in logs])
    row = private_total(output, beliefs)
    total_likelihoods = [None if row is None else row.likelihood(log_shares) for log_shares in logs]
    return np.array(
        [
            [posterior.with_shares(log_shares).log_evidence if likelihood is None else likelihood[0]]
            for likelihood, log_shares in zip(total_likelihoods, logs, strict=True)
        ]
    )
