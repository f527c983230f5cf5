"""What ArviZ asks for beside draws of the shares: replicated releases, log-likelihoods and log-priors, by draw.

All of it follows from what was published and from draws of the posterior, so it costs no privacy.

1. A replicate is what another release of as many records with the same shares would publish: new counts, and the
   mechanism's own noise.
2. The log-likelihood is that of what was published given the shares, with the counts summed out. That given the latent
   counts would be no measure of a model: these were drawn given the same output.
3. The log-prior is a density in the coordinates of samplers, whose powers show what the counts of a prior do.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.estimates import Draws
from pymc_dirdp.inference.noisy_rows import noisy_rows
from pymc_dirdp.inference.observed_table import Beliefs, Labels, MechanismOutput, ObservedTable
from pymc_dirdp.inference.rows import RowPosterior
from pymc_dirdp.inference.tables import posterior_of
from pymc_dirdp.mechanisms.outputs import RowLikelihood
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.progress import QUIET
from pymc_dirdp.releases.inference_setup import Inferences
from pymc_dirdp.releases.opened import Opened
from pymc_dirdp.sampling.exact import positive_frequencies

GROUPS = ("posterior_predictive", "log_likelihood", "log_prior")
"""The groups that are computed when they are asked for."""

type DrawnArrays = dict[str, tuple[NDArray[Any], Labels]]
"""By table an array with one entry for each draw in front, and its other axes."""
type Replicate = Callable[[Mapping[str, Integers], np.random.Generator], dict[str, Array]]
"""From counts of all tables, what is published of each, in the shape of what was published."""


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


def log_priors(found: Inferences, drawn: Mapping[str, Draws]) -> DrawnArrays:
    """The log-prior of each row of each table, but of those whose shares have no Dirichlet prior."""
    return {
        name: (log_dirichlet(found.prior(name), drawn[name].shares), seen.cell_labels[:-1])
        for name, seen in found.tables.items()
        if not seen.measurements
    }


# New releases with the same shares.


def replicates(found: Inferences, drawn: Mapping[str, Draws], rng: np.random.Generator) -> list[DrawnArrays]:
    """For each release what another one would publish, one for each draw of the shares.

    A row has as many new records as it has in the draw: the public number, or one from the posterior of a private one.
    Rows of features that are taken together with their classes have as many as there are new records of the class.
    """
    counts = _new_counts(found, drawn, rng)
    draws = len(next(iter(counts.values())))
    several = []
    for number, origin in enumerate(found.origins):
        publish = _replicate_of(origin)
        made = [publish({name: values[i] for name, values in counts.items()}, rng) for i in range(draws)]
        several.append(
            {
                name: (np.stack([one[name] for one in made]), seen.observed[number][1])
                for name, seen in found.tables.items()
            }
        )
    return several


def _new_counts(found: Inferences, drawn: Mapping[str, Draws], rng: np.random.Generator) -> dict[str, Integers]:
    """New counts of all tables given the shares of each draw."""
    counts: dict[str, Integers] = {}
    for name in sorted(found.tables, key=lambda name: name != found.classes):
        totals = drawn[name].counts.sum(axis=-1)
        if found.classes not in (None, name):
            totals = counts[str(found.classes)]
        counts[name] = _multinomial(totals, drawn[name].shares, found.tables[name].least, rng)
    return counts


def _multinomial(totals: Integers, shares: Array, least: int, rng: np.random.Generator) -> Integers:
    """New counts, given that every cell holds so many at least: rows with too few are drawn given that."""
    counts = rng.multinomial(totals, shares / shares.sum(axis=-1, keepdims=True))
    for place in map(tuple, np.argwhere((counts < least).any(axis=-1)).tolist()):
        row = RowPosterior(
            alpha=np.ones(shares.shape[-1]),
            total=int(totals[place]),
            log_likelihood=RowLikelihood.of_nothing().of_cells,
            least=least,
            log_shares=_logarithms(shares[place]),
        )
        counts[place] = row.solved.draw(1, rng)[0, 0]
    return counts


def _replicate_of(origin: Opened | MechanismOutput) -> Replicate:
    alone = MechanismOutput.of(origin)
    return partial(_published_again, origin) if alone is None else partial(_output_again, alone)


def _published_again(release: Any, counts: Mapping[str, Integers], rng: np.random.Generator) -> dict[str, Array]:
    # It imports PyMC, which nobody waits for who asks for draws of shares alone.
    from pymc_dirdp.releases.release import drawn_outputs

    published = {}
    for name, output in drawn_outputs(release.plan, counts, "fast", rng, QUIET).items():
        table = release.tables[name]
        values, _ = output.observed(table.cell_labels, table.share_labels)
        if table.steps is not None:
            values = _on_grid(output.values, table.steps, rng)
            values = (values[..., 0] if table.family == "beta" else values)[None]
        published[name] = values
    return published


def _output_again(
    output: MechanismOutput, counts: Mapping[str, Integers], rng: np.random.Generator
) -> dict[str, Array]:
    table_of_counts = counts[output.name].astype(np.float64)
    values = output.mechanism.releases(table_of_counts, len(output.values), random_seed=rng)
    steps, table = output.steps, TableMechanism.of(output.mechanism)
    if steps is None and table is not None:
        steps = table.steps(str(output.sampler), output.n_records)
    return {output.name: values if steps is None else _on_grid(values, steps, rng)}


def _on_grid(shares: Array, steps: int, rng: np.random.Generator) -> Array:
    """What an urn of so many steps shows of shares: its counts given its own limit are multinomial."""
    counts = rng.multinomial(steps, shares / shares.sum(axis=-1, keepdims=True))
    return np.asarray(positive_frequencies(counts, steps))


# What was published, given the shares.


@final
@dataclass(frozen=True, eq=False)
class LogLikelihoods:
    """The log-likelihoods of tables.

    Attributes
    ----------
    arrays : dict of str to (array, Labels)
        By table, for each draw one value, or one for each row.
    units : dict of str to str
        By table, what one value is of.
    left_out : dict of str to str
        By table, why it has none.
    """

    arrays: DrawnArrays = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def attributes(self) -> dict[str, str]:
        """What a reader of the group has to know."""
        said = {
            "given": "the shares of the draw; the counts are summed out",
            "unit": " | ".join(
                [*(f"{name}: {unit}" for name, unit in self.units.items()), "what is left out by LOO is never a person"]
            ),
        }
        if self.left_out:
            said["left_out"] = " | ".join(f"{name}: {reason}" for name, reason in self.left_out.items())
        return said


def log_likelihoods(found: Inferences, drawn: Mapping[str, Draws]) -> LogLikelihoods:
    """The logarithm of the probability or density of what was published of each table, given the shares of each draw.

    It has one value for each row if rows are independent given their shares, which holds if the number of records of
    each is public and its noise is its own; and one for the table otherwise.
    """
    result = LogLikelihoods()
    for name, seen in found.tables.items():
        if found.classes is not None:
            result.left_out[name] = "taken together with other tables; jointly=False reads each by itself"
            continue
        if seen.measurements:
            result.left_out[name] = "marginals of several tables are fitted together, and have no likelihood by table"
            continue
        logs, by_row = _logarithms(drawn[name].shares), has_independent_rows(seen)
        parts = list(_rows_of(seen)) if by_row else [(seen, found.beliefs[name])]
        logs = logs.reshape(len(logs), len(parts), *parts[0][0].prior.shape)
        try:
            values = np.stack([_evaluated(*part, logs[:, i]) for i, part in enumerate(parts)], axis=-1)
        except ArgumentError as error:
            result.left_out[name] = str(error)
            continue
        labels = seen.cell_labels[:-1] if by_row else ()
        sizes = seen.prior.shape[:-1] if by_row else ()
        result.arrays[name] = values.reshape(len(values), *sizes), labels
        result.units[name] = "a row" if by_row and len(parts) > 1 else "the table"
    return result


def has_independent_rows(seen: ObservedTable) -> bool:
    """Whether the outputs of its rows are independent given the shares."""
    rows = seen.prior.size // seen.prior.shape[-1]
    return seen.joint_rows is None and (len(seen.blocks) == rows > 1)


def _rows_of(seen: ObservedTable) -> Iterator[tuple[ObservedTable, Beliefs]]:
    """Each row as a table of its own; its number of records is known."""
    d = seen.prior.shape[-1]
    likelihoods, priors = seen.row_likelihoods(), seen.prior.reshape(-1, d)
    totals = {row: total for rows, total in seen.blocks for row in rows.tolist()}
    for row, prior in enumerate(priors):
        observed = [
            (values.reshape(-1, d)[row] if values.size == seen.prior.size else values, labels)
            for values, labels in seen.observed
        ]
        alone = replace(
            seen,
            prior=prior,
            n_records=totals[row],
            observed=observed,
            row_likelihoods=partial(list, [likelihoods[row]]),
            blocks=(),
        )
        yield alone, Beliefs()


def _evaluated(seen: ObservedTable, beliefs: Beliefs, logs: Array) -> Array:
    """The log-likelihood at each draw, shape `(draws,)`."""
    likelihood = (noisy_rows(seen, beliefs) or posterior_of(seen, beliefs)).likelihood
    return np.array([likelihood(one)[0] for one in logs])
