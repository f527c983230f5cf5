"""Private models of any discrete data: the likelihood of a release, without the records."""

import math
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pymc as pm
import xarray as xr

from pymc_dirdp.arrays import Array
from pymc_dirdp.errors import ArgumentError, CategoriesFromDataWarning, LeftOutWarning, type_name, warn
from pymc_dirdp.literals import AdjacencyName, NoiseName
from pymc_dirdp.models.model_options import ModelOptions
from pymc_dirdp.models.privacy_unit import Unit
from pymc_dirdp.models.tables import root_model
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.inference_setup import open_verified
from pymc_dirdp.releases.model_plan import ModelPlan
from pymc_dirdp.releases.model_tables import counting_of, plan_tables, read_model_or_ask, table_model
from pymc_dirdp.releases.noisy_tables import with_terms
from pymc_dirdp.releases.opened import LoadedRelease
from pymc_dirdp.releases.plan import plan_for
from pymc_dirdp.releases.plan_types import Plan
from pymc_dirdp.releases.release import sample_sealed
from pymc_dirdp.releases.saving import load
from pymc_dirdp.sampling.bits import Seed
from pymc_dirdp.signatures import options_of_plan, user_facing

if TYPE_CHECKING:
    from pymc_dirdp.accounting.ledger import Ledger

_RELEASE = "_dirdp_release"


type Source = xr.DataTree | str | os.PathLike[str]


@user_facing
@options_of_plan("weights", "max_cells")
def private_model(
    source: "Guarantee | ModelPlan | Plan | Source | dict[str, Source]",
    model: pm.Model | dict[str, pm.Model] | None = None,
    *,
    public: Iterable[str] | bool = (),
    levels: Mapping[str, int] | None = None,
    count_variables: Iterable[str] = (),
    jointly: Iterable[Iterable[str]] = (),
    support: Mapping[str, Any] | None = None,
    unit: Unit | None = None,
    contribution: int | None = None,
    adjacency: AdjacencyName | None = None,
    mechanism: NoiseName = "auto",
    disjoint: Iterable[Iterable[str]] | None = None,
    n_prior: float | Mapping[str, float] | None = None,
    random_seed: Seed = None,
    ledger: "Ledger | None" = None,
) -> pm.Model:
    """Replace the records of a discrete model by a private release of them.

    The records are counted, and noise is added to the counts once. The new model observes the noisy counts, with their
    exact likelihood. Recipients pass the release, and need no records.

    Parameters
    ----------
    source : Guarantee, ModelPlan, Plan, release, path, or dict of str to these releases
        The guarantee of the release, a plan of this model, or a release or its file. Pass a dict for several releases.
    model : pymc.Model, or dict of str to pymc.Model, optional
        By default the model on the context stack. With a release, its observations may be placeholders.
    public : iterable of str, or True, default ()
        Names of `pm.Data` and numbers of trials that are public.
    levels : mapping of str to int, optional
        The number of levels of each private covariate, whose codes start at 0.
    count_variables : iterable of str, default ()
        Observed variables whose observations are numbers of people, such as Poisson counts of cases.
    jointly : iterable of iterables of str, default ()
        Groups of observed variables with answers of the same people. Each group has one table.
    support : mapping of str to list, optional
        All possible values of an observation, for variables whose support the library cannot find.
    unit, contribution
        The dim whose entries are the people, or the maximum number of records of a person.
    adjacency : {"replace-one", "add-remove"}, optional
        ``"add-remove"`` by default with `count_variables`, else ``"replace-one"``.
    mechanism : {"auto", "geometric", "gaussian", "joint"}, default "auto"
        The noise; ``"auto"`` takes the smallest variance.
    disjoint : iterable of iterables of str, optional
        Groups of observed variables; no person has records in two groups.
    n_prior : float or mapping of str to float, optional
        The largest expected number of records of a row, where numbers are private. The prior up to it is uniform.
    random_seed, ledger
        As for :func:`sample`.

    Returns
    -------
    model : pymc.Model
        The free variables and the Deterministics that read no records. Each observed `y` is a noisy table.

    Raises
    ------
    UnsupportedModelError, ArgumentError, UnattainableError
        If the model, an option or the guarantee is refused. The ledger is not charged then.
    DataError, ReleaseError
        If an observation is not what you declared, or a release is damaged or of another model.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model() as model:
    ...     cases = pm.Poisson("cases", pm.Gamma("rate", 2, 0.2, shape=3), observed=[3, 0, 5])
    >>> private = dirdp.private_model(dirdp.PureDP(epsilon=1.0), model, count_variables=["cases"])
    >>> [rv.name for rv in private.observed_RVs]
    ['cases']
    """
    options = ModelOptions(
        public=public,
        levels=levels,
        count_variables=count_variables,
        jointly=jointly,
        support=support,
        unit=unit,
        contribution=contribution,
        adjacency=adjacency,
        mechanism=mechanism,
        disjoint=disjoint,
    )
    if isinstance(source, ModelPlan):
        if options != ModelOptions():
            raise ArgumentError(
                "Leave all options out, or pass them to plan() instead: a plan of a model decides them."
            )
        options = source.options
    content: Any = source.tables if isinstance(source, ModelPlan) else source
    if isinstance(content, str | os.PathLike):
        content = load(content)
    if isinstance(content, Guarantee | Plan):
        model = root_model(model)
        parsed = read_model_or_ask(model, options, "dirdp.private_model(guarantee, model", plans=True)
        plan = plan_tables(content, parsed) if isinstance(content, Guarantee) else content
        counted = table_model(parsed)
        plan = plan_for(plan, counted)
        # Errors are raised here, before anything is published.
        with_terms(parsed, plan, n_prior)
        counting = counting_of(parsed)
        with warnings.catch_warnings():
            # The categories are the values of the model's variables.
            warnings.simplefilter("ignore", CategoriesFromDataWarning)
            release = sample_sealed(plan, counted, counting, ledger=ledger, random_seed=random_seed, progressbar=False)
        private = with_terms(parsed, plan, n_prior, _noisy_counts(open_verified(release)))
        vars(private)[_RELEASE] = release
        _warn_left_out(model, private)
        return private
    if ledger is not None or random_seed is not None:
        raise ArgumentError("Leave ledger and random_seed out: this release was charged and drawn before.")
    if not isinstance(content, dict):
        return _of_releases({"": content}, root_model(model), options, n_prior)
    if not content or not all(isinstance(name, str) and name for name in content):
        raise ArgumentError("Expected a release for each of one or more names, such as {'may': release}.")
    return _of_releases(content, model, options, n_prior)


def _noisy_counts(stored: LoadedRelease) -> dict[str, Array]:
    """The published noisy counts of each table."""
    assert stored.release is not None
    return {name: output.values[0] for name, output in stored.release.output.items()}


def _of_releases(
    releases: dict[str, Source],
    model: pm.Model | dict[str, pm.Model] | None,
    options: ModelOptions,
    n_prior: float | Mapping[str, float] | None,
) -> pm.Model:
    """The model of several releases, each with its own observed variables, or of a single one without a name."""
    if isinstance(model, dict) and set(model) != set(releases):
        raise ArgumentError("Expected a model for each release, by the same names, or one model for all.")
    private, trees, identities = None, dict[str, xr.DataTree](), set[object]()
    for name, source in releases.items():
        tree: Any = load(source) if isinstance(source, str | os.PathLike) else source
        stored = open_verified(tree)
        assert stored.release is not None
        if stored.release.identity in identities:
            raise ArgumentError(
                f"Leave {name!r} out: the same release is there twice, which would make intervals too narrow."
            )
        if options.adjacency not in (None, stored.plan.adjacency):
            raise ArgumentError(f"The release is for adjacency={stored.plan.adjacency!r}. Leave adjacency out.")
        analyst_model = root_model(model[name] if isinstance(model, dict) else model)
        # A release may have more cells than the default maximum.
        max_cells = max(math.prod(part.table.shape) for part in stored.plan.parts)
        release_options = replace(options, adjacency=stored.plan.adjacency, max_cells=max(options.max_cells, max_cells))
        call = "releases" if name else "release"
        parsed = read_model_or_ask(analyst_model, release_options, f"dirdp.private_model({call}, model", plans=False)
        ending = f"_{name}" if name else ""
        private = with_terms(parsed, stored.plan, n_prior, _noisy_counts(stored), base=private, suffix=ending)
        trees[name] = tree
        identities.add(stored.release.identity)
        if len(trees) == 1:
            _warn_left_out(analyst_model, private)
    assert private is not None
    vars(private)[_RELEASE] = trees.get("", trees)
    return private


def _warn_left_out(model: pm.Model, private: pm.Model) -> None:
    """Warn of Deterministics that a private model lacks. This depends on the graph and the public names only."""
    names = [repr(formula.name) for formula in model.deterministics if formula.name not in private.named_vars]
    if names:
        warn(
            f"The private model has no Deterministic {', '.join(names)}, which may hold records. To keep one that "
            "reads public arrays without an entry for each record, such as weights of strata, write each array as "
            "pm.Data and pass its name in public=.",
            LeftOutWarning,
        )


@user_facing
def release_of(model: pm.Model, name: str | None = None) -> xr.DataTree:
    """The release behind a private model, for `save`, `report`, `statement` and `verify`. It may be published.

    Parameters
    ----------
    model : pymc.Model
        From :func:`private_model`.
    name : str, optional
        The name of the release, if there are several.

    Returns
    -------
    release : xarray.DataTree
        Its tables have the names of the observed variables.

    Raises
    ------
    ArgumentError
        If it is not a private model, or is a copy that PyMC made.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model() as model:
    ...     rate = pm.Gamma("rate", 2, 1, shape=3)
    ...     cases = pm.Poisson("cases", rate, observed=[3, 0, 5])
    >>> private = dirdp.private_model(dirdp.PureDP(epsilon=1.0), model, count_variables=["cases"])
    >>> list(dirdp.releases.release_of(private)["mechanism"].children)
    ['cases']
    """
    release = vars(model).get(_RELEASE) if isinstance(model, pm.Model) else None
    if release is None:
        raise ArgumentError(
            f"Expected a model from dirdp.private_model, got {type_name(model)} without a release. A copy of a private "
            "model has none: pass the private model itself."
        )
    if isinstance(release, dict):
        if name not in release:
            raise ArgumentError(f"The model is of several releases. Pass name= one of {', '.join(release)}.")
        release = release[name]
    return release.copy(deep=True)  # type: ignore[no-any-return]
