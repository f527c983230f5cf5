"""Inference from a release: posterior draws of shares and counts, and estimates with intervals."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, final, override

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike, NDArray

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer, list_of_names, one_of
from pymc_dirdp.display import TabularResult, number_and_interval
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.estimates import Estimate, interval_ends
from pymc_dirdp.inference.mixture import STEPS
from pymc_dirdp.inference.mixture_intervals import FITS
from pymc_dirdp.inference.observed_table import Labels, ObservedTable
from pymc_dirdp.progress import Bar
from pymc_dirdp.releases.arviz_groups import (
    data_of,
    dataset_of,
    deferred_groups,
    likelihood_attributes,
    sample_axes,
)
from pymc_dirdp.releases.axes import divided
from pymc_dirdp.releases.inference_setup import Inferences, Source, inferences
from pymc_dirdp.releases.opened import Published, content_of, open_release
from pymc_dirdp.releases.pairs import PairsRelease
from pymc_dirdp.releases.pairs_view import seed_of
from pymc_dirdp.releases.view import tree_of, view
from pymc_dirdp.sampling.bits import Seed, generator
from pymc_dirdp.signatures import user_facing
from pymc_dirdp.texts.grammar import library_version

if TYPE_CHECKING:
    import pymc as pm

type CellAxes = tuple[tuple[str, Sequence[Any]], ...]
"""The variables of a table with their labels, axis by axis."""


@user_facing
def analyse(
    release: Source | Sequence[Source],
    draws: int = 1000,
    *,
    chains: int = 4,
    model: "pm.Model | None" = None,
    prior: ArrayLike | Mapping[str, ArrayLike] | None = None,
    n_prior: int | ArrayLike | Mapping[str, int | ArrayLike] | None = None,
    row_prior: ArrayLike | Mapping[str, ArrayLike] | None = None,
    same_records: bool = True,
    random_seed: Seed = None,
    progressbar: bool = True,
) -> xr.DataTree:
    """Draw from the posterior given a release, accounting for the noise of its mechanism.

    It uses the published release only, so it costs no privacy. Draws are independent and exact, except for marginals.

    Parameters
    ----------
    release : xarray.DataTree, MechanismOutput, or a list of them
        The releases of a list have the same tables **of the same records**. Analyse releases of other records
        separately.
    draws : int, default 1000
        The number of draws of each chain.
    chains : int, default 4
        The number of chains. Draws of all chains are independent.
    model : pymc.Model, optional
        A model. Its Deterministics of the shares are added to the posterior.
    prior : array_like, or mapping from table to array_like, optional
        Your prior of the shares, in the shape of the table; (success, failure) for a Beta. By default the model's.
    n_prior : int or array_like, or mapping from table to those, optional
        Your prior of a private number of records: uniform on 0 to n for an integer n, else weights of 0, 1, 2, ....
    row_prior : array_like, or mapping from table to array_like, optional
        The Dirichlet prior of how a table's records divide among its rows; 1 for each by default.
    same_records : bool, default True
        Whether a table of classes and tables of features given the class count the same records.
    random_seed : int, SeedSequence, Generator or None
        A seed does not affect privacy here.
    progressbar : bool, default True
        Whether to show a bar if the tables take over a second.

    Returns
    -------
    analysis : xarray.DataTree
        Groups for ArviZ: `posterior` with the shares, `observed_data`, `posterior_predictive`,
        `log_likelihood` (in nats, of what was published), `log_prior`, `sample_stats`, and `latent_counts`, the number
        of records in each cell. Likelihoods and replicates are computed on access.

    Raises
    ------
    ReleaseError
        If it is not a release, is damaged, or is inconsistent.
    ArgumentError
        If a prior does not match its table, a private number of records has no prior, or the releases of a list cannot
        be analysed jointly.

    Notes
    -----
    The page "What can I infer from a release?" has priors, coverage, `arviz.loo` and memory (16 bytes a cell and draw).

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}):
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     students = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    ...     release = dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-6))
    >>> dirdp.analyse(release)["posterior"]["p"].shape
    (4, 1000, 4)
    """
    draws, chains = integer(1, draws=draws), integer(1, chains=chains)
    inference = inferences(release, prior, n_prior, row_prior, same_records)
    with Bar(len(inference.tables), "tables", shown=progressbar) as bar:
        rng = generator(random_seed)
        posterior_draws = inference.distributions.draw(chains * draws, rng, bar)
    evidence = inference.distributions.log_evidence
    sizes = [posterior_draws[name].effective for name in inference.tables]
    stats = {
        "effective_draws": ("table", [chains * draws if size is None else size for size in sizes]),
        "acceptance": ("table", [posterior_draws[name].acceptance for name in inference.tables]),
        "log_evidence": (("table",) if isinstance(evidence, list) else (), evidence),
    }
    deferred = deferred_groups(inference, posterior_draws, chains, seed=rng.integers(2**63, size=2).tolist())
    arrays = {
        # For a Beta the release has the probabilities of success.
        "/posterior": {
            name: _drawn(
                posterior_draws[name].shares[..., 0] if output.family == "beta" else posterior_draws[name].shares,
                chains,
                output.share_labels,
            )
            for name, output in inference.tables.items()
        },
        "/latent_counts": {
            name: _drawn(posterior_draws[name].counts, chains, output.cell_labels)
            for name, output in inference.tables.items()
        },
        "/observed_data": data_of(inference),
        **{f"/{name}": group for name, group in deferred.items()},
    }
    tree = tree_of(
        {path: dataset_of(group) for path, group in arrays.items()}
        | {"/sample_stats": xr.Dataset(stats, {"table": list(inference.tables)})}
    )
    tree.attrs = _attributes(inference)
    if model is None:
        return tree
    # Without a model nothing is compiled.
    from pymc_dirdp.models.tables import root_model
    from pymc_dirdp.releases.deterministics import with_deterministics

    is_public = all(output.n_records is not None for output in inference.tables.values())
    return with_deterministics(tree, root_model(model), size_is_public=is_public)


def _drawn(values: NDArray[Any], chains: int, labels: Labels) -> tuple[NDArray[Any], Labels]:
    in_chains = values.reshape(chains, -1, *values.shape[1:])
    return in_chains, (*sample_axes(chains, in_chains.shape[1]), *labels)


def _attributes(inference: Inferences) -> dict[str, str]:
    attributes = {
        "inference_library": "pymc_dirdp",
        "inference_library_version": library_version(),
        "method": (
            "Hamiltonian Monte Carlo around Laplace's approximation, given noisy marginals"
            if any(output.measurements for output in inference.tables.values())
            else "exact independent draws given what was published"
        ),
        "conditional_on": " | ".join(f"{name}: {inference.conditions(name)}" for name in inference.tables),
        "consistency": inference.consistency,
        **likelihood_attributes(inference),
    }
    if any(origin.reproducible for origin in inference.origins):
        attributes["reproducible"] = "not private"
    return attributes


# The same verb in American English.
analyze = analyse


@user_facing
def sample_posterior_predictive(
    release: Published, model: "pm.Model | None" = None, *, n_records: int, random_seed: Seed = None
) -> xr.DataTree:
    """Synthetic counts drawn from the released probabilities.

    `pm.sample_posterior_predictive` evaluates the model with its number of trials, and adds the observed counts to the
    tree that it returns. This function uses the release alone.

    Parameters
    ----------
    release : xarray.DataTree
        A release from :func:`pymc_dirdp.sample` or :func:`pymc_dirdp.load`.
    model : pymc.Model, optional
        Ignored, because the release is sufficient. PyMC's function has this argument.
    n_records : int
        The number of synthetic records in each row of each table. You choose it, because the true row sizes are data.
    random_seed : int, SeedSequence, Generator or None
        A seed does not affect privacy here, because the probabilities are public.

    Returns
    -------
    synthetic : xarray.DataTree
        Group `posterior_predictive` with the observed variables' names and dims `chain`, `draw`, then those of the
        table: counts of each category, or of successes for a Beta. A conditional table gives counts for each
        configuration of its parents.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> release = dirdp.sample(dirdp.ApproxDP(epsilon=0.8, delta=1e-6), model)
    >>> made = dirdp.releases.sample_posterior_predictive(release, n_records=100)
    >>> int(made["posterior_predictive"]["students"].sum())
    100
    """
    size = integer(0, n_records=n_records)
    stored = open_release(release)
    rng = generator(random_seed)
    datasets = {}
    posterior = view(stored)["posterior"].to_dataset()
    for name, table in stored.tables.items():
        p = posterior[name]
        for observed in table.observed_names:
            if table.family == "beta":
                values = rng.binomial(size, np.minimum(p.values, 1.0))
            else:
                # The released components sum to 1 up to rounding, and NumPy refuses a sum above 1.
                values = rng.multinomial(size, p.values / p.values.sum(axis=-1, keepdims=True))
            datasets[observed] = p.copy(data=np.asarray(values))
    dataset = xr.Dataset(datasets, attrs=posterior.attrs | {"n_records": size})
    return tree_of({"/posterior_predictive": dataset})


@final
@dataclass(frozen=True, eq=False, repr=False)
class Estimates(TabularResult):
    """Shares and counts of each cell with their errors.

    Print it, display it in a notebook, or use `frame()`. `tidy()` is the frame for other programs.

    Attributes
    ----------
    tables : dict of str to Estimate
        The estimates of each table. The cells of its rows are concatenated.
    axes : dict of str to tuple of (str, list)
        The variables of each table with their labels, by axis.
    published : dict of str to sequence of (str, array)
        The published values of the cells of each table: noisy counts or draws.
    conditions : tuple of str
        The assumptions behind the estimates of each table.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    >>> release = dirdp.sample(dirdp.ApproxDP(epsilon=0.9, delta=1e-6), model)
    >>> dirdp.estimate(release).frame().shape[0]
    4
    """

    tables: dict[str, Estimate]
    axes: dict[str, CellAxes]
    published: dict[str, Sequence[tuple[str, Array]]]
    conditions: tuple[str, ...]

    @cached_property
    def cells(self) -> dict[str, tuple[str, ...]]:
        """What the cells of each table are called, such as `p[black]`."""
        listed = {name: itertools.product(*(labels for _, labels in axes)) for name, axes in self.axes.items()}
        return {name: tuple(f"{name}[{', '.join(map(str, cell))}]" for cell in cells) for name, cells in listed.items()}

    def frame(self) -> Any:
        """A row for each cell: means, standard deviations, and the ends of each interval, as a `pandas.DataFrame`."""
        import pandas as pd

        return pd.DataFrame(list(self._numbers())).set_index("cell")

    def tidy(self) -> Any:
        """One flat row for each cell, as a `pandas.DataFrame` that a spreadsheet or R reads once it is a CSV file.

        Returns
        -------
        frame : pandas.DataFrame
            The columns are `table`; one for each variable, with its label; `noisy_count` and `draw`, which are what was
            published of the cell, and empty where the release has none; and the numbers of :meth:`frame`. Several
            draws or noisy counts of a cell are in `draw_2` and so on. The labels of an axis whose name joins several
            variables by " and ", and whose labels are all combinations of theirs, are divided among these variables.

        Examples
        --------
        >>> import pymc as pm
        >>> import pymc_dirdp as dirdp
        >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
        ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
        ...     x = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
        >>> release = dirdp.sample(dirdp.PureDP(epsilon=1.0), model, mechanism="geometric")
        >>> list(dirdp.estimate(release, prob=[0.95]).tidy().columns)[:5]
        ['table', 'hair', 'noisy_count', 'draw', 'share']
        """
        import pandas as pd

        axes = {
            name: [part for axis in table_axes for part in divided(*axis)] for name, table_axes in self.axes.items()
        }
        published = {name: dict(_numbered(values)) for name, values in self.published.items()}
        outputs = dict.fromkeys(("noisy_count", "draw", *itertools.chain.from_iterable(published.values())))
        variables = dict.fromkeys(variable for table_axes in axes.values() for variable, _ in table_axes)
        numbers = list(self._numbers())
        taken = ["table", *outputs, *itertools.islice(numbers[0], 1, None)]
        # A variable may have the name of another column.
        columns = [f"{name} (variable)" if name in taken else name for name in variables]
        rows = []
        for name, table_axes in axes.items():
            cells = itertools.product(*(labels for _, labels in table_axes))
            for i, (labels, row) in enumerate(zip(cells, numbers, strict=False)):
                label_of = dict(zip((variable for variable, _ in table_axes), labels, strict=True))
                values = [published[name][output].flat[i] if output in published[name] else None for output in outputs]
                rows.append([name, *map(label_of.get, variables), *values, *itertools.islice(row.values(), 1, None)])
            del numbers[: math.prod(len(labels) for _, labels in table_axes)]
        # Of mixed types, because integers beside an empty field would become floating-point numbers.
        frame = pd.DataFrame(rows, columns=["table", *columns, *taken[1:]], dtype=object)
        return frame.astype({name: _number_type(frame[name]) for name in taken[1:]})

    def _numbers(self) -> Any:
        for name, estimate in self.tables.items():
            numbers = {
                "share": (estimate.share_means, estimate.share_sds, estimate.share_intervals),
                "count": (estimate.count_means, estimate.count_sds, estimate.count_intervals),
            }
            for i, cell in enumerate(self.cells[name]):
                row = {"cell": cell}
                for what, (means, sds, intervals) in numbers.items():
                    row |= {what: means[i], f"{what}_sd": sds[i]}
                    for level, (low, high) in zip(estimate.prob, intervals[:, i], strict=True):
                        row |= {f"{what}_low_{level:g}": low, f"{what}_high_{level:g}": high}
                yield row

    @override
    def _parts(self) -> tuple[Sequence[str], Sequence[Mapping[str, Any]], Sequence[str]]:
        rows = []
        level = max(next(iter(self.tables.values())).prob)
        percent = f"{100 * float(f'{level:g}'):g} %"
        for numbers in self._numbers():
            row = {"cell": numbers["cell"]}
            for what, title, interval in (("share", "share", percent), ("count", "records", f"{percent} of records")):
                ends = (numbers[f"{what}_{end}_{level:g}"] for end in ("low", "high"))
                row[title], row[interval] = number_and_interval(numbers[what], numbers[f"{what}_sd"], *ends)
            rows.append(row)
        # The shares in a table of one category are known, so they would lower the typical error.
        sds = [sd for estimate in self.tables.values() for sd in estimate.share_sds.tolist() if sd > 0]
        typical = math.sqrt(sum(sd**2 for sd in sds) / max(len(sds), 1))
        return (
            ("What the release says",),
            rows,
            (
                f"Typical error: {typical:.2g} of a share.",
                "± is one standard deviation: of records by the noise, of a share by the sample, too.",
                *(f"Given {condition}." for condition in self.conditions),
            ),
        )


@user_facing
def estimate(
    release: Source | Sequence[Source],
    prob: Sequence[float] = (0.5, 0.8, 0.95),
    *,
    columns: Sequence[str] | None = None,
    prior: ArrayLike | Mapping[str, ArrayLike] | None = None,
    n_prior: int | ArrayLike | Mapping[str, int | ArrayLike] | None = None,
    row_prior: ArrayLike | Mapping[str, ArrayLike] | None = None,
    same_records: bool = True,
    progressbar: bool = True,
) -> Estimates:
    """Means, standard deviations and central intervals of shares and counts given a release.

    Parameters
    ----------
    release : xarray.DataTree, MechanismOutput, or a list of them
        As for :func:`pymc_dirdp.analyse`.
    prob : sequence of float
        The probabilities of the intervals, in (0, 1). A printed table has the largest only, and `frame()` has all.
    columns : sequence of str, optional
        For a wide table, the one to three columns of the table to estimate. By default each column is estimated
        separately.
    prior, n_prior, row_prior, same_records
        As for :func:`pymc_dirdp.analyse`.

    Returns
    -------
    estimates : Estimates
        Exact sums without sampling, also for private row sizes or a private number of records, and for features that
        are analysed jointly with their classes. Intervals of shares take most of the time, so `print` and `frame()`
        compute them on access. If a count and its row total are both uncertain by hundreds of records, the ends of the
        intervals are sums over some pairs of both, and their level has an error of a few thousandths. For noisy
        marginals the estimates are averages over 4,000 draws, given effects with learned scales instead of the model's
        prior. A line below the table has the effective sample size and the number of cells that depend on the prior.
        For functions of several cells, such as differences between groups, use draws of :func:`pymc_dirdp.analyse`. The
        evidence of tables that are analysed jointly is the joint evidence.

    Raises
    ------
    ReleaseError, ArgumentError
        As :func:`pymc_dirdp.analyse` does.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     heads = pm.Binomial("heads", n=1000, p=p, observed=300)
    ...     release = dirdp.sample(dirdp.PureDP(epsilon=1.0), mechanism="geometric")
    >>> list(dirdp.estimate(release, prob=[0.9]).frame().columns)[:4]
    ['share', 'share_sd', 'share_low_0.9', 'share_high_0.9']
    """
    interval_ends(prob)
    if isinstance(pairs := content_of(release), PairsRelease):
        if not (prior is n_prior is row_prior is None and same_records):
            raise ArgumentError("A wide table has no prior that you can replace. Leave prior, n_prior, row_prior out.")
        return _of_pairs(pairs, seed_of(release), prob, columns, progressbar=progressbar)
    if columns is not None:
        raise ArgumentError("columns= selects columns of a wide table. Leave it out to estimate all tables.")
    inference = inferences(release, prior, n_prior, row_prior, same_records)
    with Bar(len(inference.tables), "tables", shown=progressbar) as bar:
        tables = inference.distributions.estimate(list(prob), bar)
    return Estimates(
        tables,
        {name: _axes(output) for name, output in inference.tables.items()},
        {name: output.cell_values for name, output in inference.tables.items()},
        tuple(
            "; ".join(filter(None, (f"{name}: {inference.conditions(name)}", tables[name].caveat)))
            for name in inference.tables
        ),
    )


def _of_pairs(
    release: PairsRelease, seed: int, prob: Sequence[float], columns: Sequence[str] | None, *, progressbar: bool
) -> Estimates:
    """Estimates of the table of some columns of a wide table, or of each column."""
    labels = release.plan.labels
    place = {name: i for i, name in enumerate(labels)}
    tables = [(name,) for name in labels] if columns is None else [tuple(list_of_names(columns=columns))]
    for name in (name for table in tables for name in table):
        one_of(labels, columns=name)
    # The steps of the fit and of the fits for its errors.
    with Bar(FITS * STEPS, "steps", shown=progressbar) as bar:
        errors = release.errors(seed, bar)
    estimates = {", ".join(table): errors.estimate([place[name] for name in table], prob) for table in tables}
    return Estimates(
        estimates,
        {", ".join(table): tuple((name, labels[name]) for name in table) for table in tables},
        {", ".join(table): release.noisy_counts([place[name] for name in table]) for table in tables},
        tuple(dict.fromkeys(estimate.caveat for estimate in estimates.values())),
    )


def _numbered(values: Sequence[tuple[str, Array]]) -> Iterator[tuple[str, Array]]:
    """The published values of the cells of a table, by the names of columns."""
    numbers_by_kind = Counter[str]()
    for kind, array in values:
        numbers_by_kind[kind] += 1
        yield (kind if numbers_by_kind[kind] == 1 else f"{kind}_{numbers_by_kind[kind]}"), array


def _number_type(column: Any) -> str:
    """The type of a column of numbers: nullable integers for noisy counts that are all integers, else floats."""
    known = column.dropna()
    is_whole = str(column.name).startswith("noisy_count") and all(float(value).is_integer() for value in known)
    return "Int64" if is_whole else "float64"


def _axes(output: ObservedTable) -> CellAxes:
    """The axes of the table of counts with their labels, or numbers without labels."""
    return tuple(
        (name, list(range(size) if labels is None else labels))
        for size, (name, labels) in zip(output.prior.shape, output.cell_labels, strict=True)
    )
