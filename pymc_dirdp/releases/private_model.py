"""A model of any discrete data becomes one of its private release: the exact likelihood, without the records."""

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import NDArray
from pytensor.graph.traversal import ancestors

from pymc_dirdp.checks import integer, one_of, positive
from pymc_dirdp.errors import (
    ArgumentError,
    CategoriesFromDataWarning,
    ReleaseError,
    UnattainableError,
    UnsupportedModelError,
    type_name,
)
from pymc_dirdp.models.counted import known_bound
from pymc_dirdp.models.graph import Node, evaluate, operation, stored_shape
from pymc_dirdp.models.likelihoods import stored_observations
from pymc_dirdp.models.outcomes import Inputs, Outcomes, Statements, n_row_arrays, read_outcomes
from pymc_dirdp.models.tables import root_model
from pymc_dirdp.models.without_data import (
    check_nothing_left,
    public_deterministics,
    refuse_free_variables,
    without_data,
)
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import adjacency_named
from pymc_dirdp.releases.charging import Sealed
from pymc_dirdp.releases.files import load
from pymc_dirdp.releases.inference_setup import checked
from pymc_dirdp.releases.likelihood import counts_term, expected_name, in_model, rows_term, shares_name, term_name
from pymc_dirdp.releases.plan import plan
from pymc_dirdp.releases.planned import Plan, PlannedTable
from pymc_dirdp.releases.release import sample_sealed
from pymc_dirdp.sampling.bits import Seed

if TYPE_CHECKING:
    from pymc_dirdp.accounting.ledger import Ledger

__all__ = ["private_model", "release_of"]

_KINDS = ("geometric", "gaussian")
_UNITS = ("record", "trial")
_RELEASE = "_dirdp_release"
_NOBODY = "nobody"


@final
@dataclass(frozen=True, eq=False)
class _Read:
    """A model that was read: what is public of it, and the functions that count its records."""

    model: pm.Model
    free: list[Node]
    inputs: Inputs
    outcomes: list[Outcomes]
    is_public: bool
    most: int
    secret: list[Node]
    records: frozenset[int]
    dims: frozenset[str]


def private_model(
    source: "Guarantee | xr.DataTree | str | os.PathLike[str]",
    model: pm.Model | None = None,
    *,
    public: Iterable[str] | bool = (),
    levels: Mapping[str, int] | None = None,
    counts: Iterable[str] = (),
    support: Mapping[str, Any] | None = None,
    unit: str | None = None,
    max_records_per_person: int = 1,
    adjacency: str | None = None,
    mechanism: str = "auto",
    weights: Mapping[str, float] | None = None,
    disjoint: Iterable[Iterable[str]] | None = None,
    n_prior: float | Mapping[str, float] | None = None,
    max_cells: int = 10_000,
    random_seed: Seed = None,
    ledger: "Ledger | None" = None,
    reservation: int | None = None,
) -> pm.Model:
    """A PyMC model of a private release of the records of any model with discrete observations.

    The records are counted by outcome and covariates, noise is added to the counts once, and the observed variables of
    the model become the exact likelihood of the noisy counts. `pm.sample` of the result costs no further privacy. With
    a release in the place of a guarantee it is the recipient's half: the same model from what was published, without
    the records.

    Parameters
    ----------
    source : Guarantee, xarray.DataTree, or path
        The guarantee of a new release; or a release that :func:`release_of` returned, or its file.
    model : pymc.Model, optional
        The model on the context stack by default. Its observed variables are discrete. With a release, its
        observations may be made up, of any number; covariates hold every row that the release has.
    public : iterable of str, or True, default ()
        The covariates that anybody may know, record by record, by the names of their `pm.Data`; `True` for all. Also
        observed variables whose numbers of trials anybody may know. A covariate with an entry for each record has to
        be named here or in `levels`.
    levels : mapping of str to int, optional
        Private covariates, and how many codes from 0 on each of them has. All combinations are rows of the table.
    counts : iterable of str, default ()
        Observed variables of which each observation is a number of people, such as Poisson counts of cases. One person
        is one of those counted. They need no largest value.
    support : mapping of str to list, optional
        All values of one observation of a variable, where they are not found, such as vectors.
    unit : {"record", "trial"}, optional
        Whether each observation, or each trial of a Binomial or Multinomial, is another person. It has to be said for
        these where they have several trials.
    max_records_per_person : int, default 1
        How many records of each observed variable a person holds at most.
    adjacency : {"replace-one", "add-remove"}, optional
        By default `"replace-one"`, where the number of records is public, and `"add-remove"` with `counts`.
    mechanism : {"auto", "geometric", "gaussian"}, default "auto"
        The noise. `"auto"` takes the one with the smaller variance.
    weights, disjoint
        As for :func:`pymc_dirdp.sample`, by the names of observed variables.
    n_prior : float or mapping of str to float, optional
        Where numbers of records are private: the largest expected number in a row, by default ten times what the
        noisy counts say. All smaller ones are as likely.
    max_cells : int, default 10_000
        More cells than this are refused.
    random_seed : int, SeedSequence, Generator or None
        For tests: a seeded release is not private.
    ledger : Ledger, optional
        It is charged before any record is read.
    reservation : int, optional
        As for :func:`pymc_dirdp.sample`.

    Returns
    -------
    model : pymc.Model
        The free variables with their names, dims, labels and transforms, and Deterministics that are functions of
        these and of single numbers. For an observed variable `y` there is the Potential `y_release`. Where numbers of
        records are private, the expected number of records of each row is the new free variable `y_expected`; where
        only their sum is public, their shares are `y_shares`. Nothing of the records or covariates is in the model.

    Raises
    ------
    UnsupportedModelError, ArgumentError, UnattainableError
        Before the ledger is charged.
    DataError
        After that: some observation or code is not what was said.
    ReleaseError
        If the release is damaged, or does not belong to the model.

    Notes
    -----
    Several observed variables share the guarantee, and their tables are independent given the free variables, as the
    model says. If one person's answers are correlated beyond that, observe them as one variable whose values are all
    combinations.

    Numbers and arrays in priors are taken for public, as in :func:`pymc_dirdp.sample`.

    References
    ----------
    Theory, section 16.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> rng = np.random.default_rng(1)
    >>> with pm.Model(coords={"region": ["north", "south"]}) as model:
    ...     region = pm.Data("which", rng.integers(2, size=200))
    ...     effect = pm.Normal("effect", 0, 1, dims="region")
    ...     y = pm.Bernoulli("y", logit_p=effect[region], observed=rng.integers(2, size=200))
    >>> private = dirdp.private_model(dirdp.PureDP(epsilon=1.0), model, public=["which"])
    >>> [rv.name for rv in private.free_RVs], [one.name for one in private.potentials]
    (['effect'], ['y_release'])
    >>> again = dirdp.private_model(dirdp.releases.release_of(private), model, public=["which"])
    >>> bool(again.compile_logp()(again.initial_point()) == private.compile_logp()(private.initial_point()))
    True
    """
    model = root_model(model)
    if isinstance(source, Plan):
        raise ArgumentError("Expected a guarantee or a release, got a Plan. Pass the guarantee: it is planned here.")
    guarantee = source if isinstance(source, Guarantee) else None
    release: Any = None
    if guarantee is None:
        release = load(source) if isinstance(source, str | os.PathLike) else source
        if ledger is not None or random_seed is not None or reservation is not None or weights is not None:
            raise ArgumentError("A release costs nothing and draws nothing: leave ledger, random_seed and weights out.")
        said_adjacency = checked(release).adjacency
        if adjacency not in (None, said_adjacency):
            raise ArgumentError(f"The release is for adjacency={said_adjacency!r}. Leave adjacency out.")
        adjacency = said_adjacency
    counted = _names("counts", counts)
    adjacency = adjacency or ("add-remove" if counted else "replace-one")
    said = Statements(
        public=public if isinstance(public, bool) else _names("public", public),
        levels={name: integer(1, **{f"levels[{name!r}]": k}) for name, k in dict(levels or {}).items()},
        counts=counted,
        support=dict(support or {}),
        trials_are_people=unit is not None and one_of(_UNITS, unit=unit) == "trial",
        records_are_public=adjacency_named(adjacency).records_are_public,
        max_cells=integer(2, max_cells=max_cells),
    )
    found = _read(model, said, integer(1, max_records_per_person=max_records_per_person))
    if release is None:
        assert guarantee is not None
        options: dict[str, Any] = {"adjacency": adjacency, "weights": weights, "disjoint": disjoint}
        planned = _planned(guarantee, found, one_of(("auto", *_KINDS), mechanism=mechanism), options)
        sealed = Sealed(lambda: _table_model(found, [one.read(model) for one in found.outcomes]), ledger)
        with warnings.catch_warnings():
            # Categories are the model's own values.
            warnings.simplefilter("ignore", CategoriesFromDataWarning)
            release = sample_sealed(
                planned,
                _table_model(found, None),
                sealed,
                random_seed=random_seed,
                reservation=reservation,
                progressbar=False,
            )
    return _with_terms(found, release, n_prior)


def release_of(model: pm.Model) -> xr.DataTree:
    """The release behind a private model: what may be published, for `save`, `report`, `statement` and `verify`.

    Parameters
    ----------
    model : pymc.Model
        From :func:`private_model`.

    Returns
    -------
    release : xarray.DataTree
        Its tables are called by the observed variables.

    Raises
    ------
    ArgumentError
        If it is no private model, or a copy of one that PyMC made.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model() as model:
    ...     rate = pm.Gamma("rate", 2, 1, shape=3)
    ...     cases = pm.Poisson("cases", rate, observed=[3, 0, 5])
    >>> private = dirdp.private_model(dirdp.PureDP(epsilon=1.0), model, counts=["cases"])
    >>> list(dirdp.releases.release_of(private)["mechanism"].children)
    ['cases']
    """
    found = vars(model).get(_RELEASE) if isinstance(model, pm.Model) else None
    if found is None:
        raise ArgumentError(
            f"Expected a model from dirdp.private_model, got {type_name(model)} without a release. A copy of a private "
            "model has none: ask the private model itself."
        )
    return found.copy(deep=True)  # type: ignore[no-any-return]


def _names(argument: str, names: Iterable[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ArgumentError(f"Expected {argument} to be a list of names: write ['name'].")
    return tuple(names)


def _read(model: pm.Model, said: Statements, most: int) -> _Read:
    """Read all observed variables of a model."""
    if not model.observed_RVs:
        raise UnsupportedModelError(
            "No private model is made of this one: it observes nothing. Give its discrete variables observed=; a "
            "recipient gives made-up observations of the same kind."
        )
    observed = [str(rv.name) for rv in model.observed_RVs]
    for argument, names in (("counts", said.counts), ("support", said.support)):
        for name in names:
            one_of(observed, **{f"observed variable in {argument}": name})
    data = {str(one.name) for one in model.data_vars}
    named = [] if isinstance(said.public, bool) else list(said.public)
    for name in [*named, *said.levels]:
        one_of([*sorted(data), *observed], **{"name in public or levels": name})
    if both := set(named) & set(said.levels):
        raise ArgumentError(f"{min(both)!r} is in public and in levels. Say one of them.")
    free, secret, records, dims = list(model.free_RVs), [], set(), set()
    for rv in model.observed_RVs:
        name, stored = str(rv.name), stored_observations(rv, model)
        secret.append(stored)
        if (known := known_bound(name, model)) is not None and known[1].records > most:
            raise ArgumentError(
                f"{name!r} counts at most {known[1].records} records of each {known[1].unit!r}. Say "
                f"max_records_per_person={known[1].records}, or count with contribution=1."
            )
        trials = said.trials_are_people and operation(rv) in ("Binomial", "Multinomial")
        shape = stored_shape(stored)
        core: Any = rv.owner.op
        if name not in said.counts and not trials and len(shape) > core.ndim_supp:
            records.add(shape[0])
            secret += n_row_arrays(ancestors([rv], blockers=free), shape[0])
            dims |= {dim for dim in model.named_vars_to_dims.get(name, ())[:1] if dim is not None}
    private = set() if said.records_are_public else records - set(said.levels.values())
    refuse_free_variables(model, free, secret, private, dims)
    inputs = Inputs.of(model, free)
    outcomes = [read_outcomes(rv, model, inputs, said) for rv in model.observed_RVs]
    for one in outcomes:
        for new in (expected_name(one.name), shares_name(one.name), term_name(one.name)):
            if new in model.named_vars:
                raise ArgumentError(
                    f"{new!r} is a variable of the model, and the private model needs the name. Rename it."
                )
    return _Read(
        model, free, inputs, outcomes, said.records_are_public, most, secret, frozenset(records), frozenset(dims)
    )


@final
@dataclass(frozen=True)
class _Layout:
    """The table of an observed variable: one row, several rows with public or private numbers, or all cells as one."""

    shape: tuple[int, ...]
    dims: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    rows_are_public: bool


def _layout(one: Outcomes, found: _Read) -> _Layout:
    outcomes, rows = tuple(map(str, one.labels)), tuple(map(str, one.rows))
    if one.kind == "counts":
        # A table has two cells at least.
        labels = outcomes if len(outcomes) > 1 else (*outcomes, _NOBODY)
        return _Layout((len(labels),), (f"{one.name}_count",), (labels,), rows_are_public=False)
    if len(rows) == 1:
        return _Layout((len(outcomes),), (f"{one.name}_outcome",), (outcomes,), rows_are_public=found.is_public)
    if found.is_public and (one.totals is None or found.most > 1):
        cells = tuple(f"{row} | {outcome}" for row in rows for outcome in outcomes)
        return _Layout((len(cells),), (f"{one.name}_cell",), (cells,), rows_are_public=False)
    dims = (f"{one.name}_row", f"{one.name}_outcome")
    return _Layout((len(rows), len(outcomes)), dims, (rows, outcomes), rows_are_public=found.is_public)


def _table_model(found: _Read, counts: Sequence[NDArray[np.int64]] | None) -> pm.Model:
    """The tables as a conjugate model, of which releases are planned and drawn. Its prior is not used here.

    Parameters
    ----------
    found : _Read
    counts : sequence of array, or None
        **Secret**: the counts of each table; made-up ones for planning.
    """
    with pm.Model(model=None) as tables:
        for k, one in enumerate(found.outcomes):
            laid = _layout(one, found)
            for dim, labels in zip(laid.dims, laid.labels, strict=True):
                tables.add_coord(dim, labels)
            p = pm.Dirichlet(one.name, np.ones(laid.shape), dims=laid.dims)
            if counts is None:
                held = np.zeros(laid.shape, dtype=np.int64)
                held[..., 0] = _made_up_totals(one, found, laid)
            else:
                held = counts[k].ravel()
                held = np.append(held, 0) if held.size < np.prod(laid.shape) else held
                held = held.reshape(laid.shape)
            pm.Multinomial(_records_name(one), n=held.sum(axis=-1), p=p, observed=held)
    return tables


def _records_name(one: Outcomes) -> str:
    return f"{one.name}_records"


def _made_up_totals(one: Outcomes, found: _Read, laid: _Layout) -> Any:
    """The public numbers of records of the rows; any numbers where they are private."""
    if not found.is_public:
        return 2
    if len(laid.shape) == 2:
        return one.totals
    return one.n_records if one.totals is None else sum(one.totals)


def _planned(guarantee: Guarantee, found: _Read, mechanism: str, options: dict[str, Any]) -> Plan:
    """The plan with the least noise."""
    tables = _table_model(found, None)
    options["contribution"] = found.most
    options["public_n"] = [
        _records_name(one)
        for one in found.outcomes
        if len((laid := _layout(one, found)).shape) == 2 and laid.rows_are_public
    ]
    options = {name: value for name, value in options.items() if value is not None}
    plans, problem = [], None
    for kind in _KINDS if mechanism == "auto" else (mechanism,):
        try:
            plans.append(plan(guarantee, tables, mechanism=kind, **options))
        except UnattainableError as error:
            problem = error
    if not plans:
        assert problem is not None
        raise problem
    return min(plans, key=lambda one: sum(_variance(part) for part in one.parts))


def _variance(part: PlannedTable) -> float:
    noise = part.mechanism.cell_noise
    if noise is None:
        raise UnattainableError("No noise was planned of which the likelihood is known.")
    return float(part.mechanism.noise_sd or 0.0) ** 2


def _with_terms(found: _Read, release: xr.DataTree, n_prior: float | Mapping[str, float] | None) -> pm.Model:
    """The free variables of the model with the likelihood of a release."""
    stored = checked(release)
    assert stored.release is not None
    parts = {part.table.name: part for part in stored.plan.parts}
    if set(parts) != {one.name for one in found.outcomes}:
        raise ReleaseError(
            f"The release has the tables {', '.join(sorted(parts))}, and the model observes "
            f"{', '.join(one.name for one in found.outcomes)}. Take the model that was released."
        )
    hidden = found.records if not found.is_public else frozenset[int]()
    kept = public_deterministics(found.model, found.free, hidden, found.dims)
    private = without_data(found.model, found.free, kept)
    lengths: set[int] = set()
    for one in found.outcomes:
        part, laid = parts[one.name], _layout(one, found)
        labels = tuple(tuple(map(str, part.table.coords[dim] or ())) for dim in laid.dims if dim in part.table.coords)
        if part.table.dims != laid.dims or labels != laid.labels or part.mechanism.cell_noise is None:
            raise ReleaseError(
                f"The table {one.name!r} of the release has other rows or outcomes than the model. Say public, levels, "
                "counts, support and unit as they were said for the release."
            )
        lengths |= {*laid.shape, len(one.rows), len(one.labels)}
        noisy = stored.release.output[one.name].values[0]
        with private:
            pm.Potential(term_name(one.name), _term(one, found, part, laid, noisy, private, n_prior))
    secret = [evaluate(node) for node in found.secret]
    known = {length for rv in found.free for length in found.model.rvs_to_values[rv].type.shape if length is not None}
    check_nothing_left(private, secret, found.records, lengths | (known if found.is_public else set()))
    vars(private)[_RELEASE] = release
    return private


def _term(
    one: Outcomes,
    found: _Read,
    part: PlannedTable,
    laid: _Layout,
    noisy: NDArray[np.float64],
    private: pm.Model,
    n_prior: float | Mapping[str, float] | None,
) -> Any:
    """The log-probability of what was published of an observed variable; new free variables are added to the model."""
    noise = part.mechanism.cell_noise
    assert noise is not None
    if one.kind == "counts":
        return in_model(counts_term(one, found.inputs, noise, noisy[: len(one.labels)]), found.inputs, private)
    rows, cells = len(one.rows), len(one.labels)
    log_p = in_model(one.log_p, found.inputs, private)
    if laid.rows_are_public:
        totals = part.totals or (part.n_records or 0,)
        return rows_term(log_p, noise, noisy.reshape(rows, cells), totals, one.name)
    dims = None
    if rows > 1:
        dims = (f"{one.name}_row",)
        private.add_coord(dims[0], tuple(map(str, one.rows)))
    if found.is_public:
        shares = pm.Dirichlet(shares_name(one.name), np.ones(rows), dims=dims)
        weights = (pt.log(shares)[:, None] + log_p).reshape((1, rows * cells))
        return rows_term(weights, noise, noisy.reshape(1, -1), (part.n_records or 0,), one.name)
    table = noisy.reshape(rows, cells)
    seen = np.maximum(table.sum(axis=1), 1.0)
    given = n_prior.get(one.name) if isinstance(n_prior, Mapping) else n_prior
    spread = 20 * (part.mechanism.noise_sd or 0.0) * cells
    most = float(10 * seen.max() + spread) if given is None else positive(n_prior=given)
    expected = pm.Uniform(
        expected_name(one.name),
        0,
        most,
        shape=None if dims else (rows,),
        dims=dims,
        initval=np.minimum(seen, most / 2),
    )
    return rows_term(pt.log(expected)[:, None] + log_p, noise, table, None, one.name)
