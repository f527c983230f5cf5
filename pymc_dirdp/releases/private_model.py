"""A model of any discrete data becomes one of its private release: the exact likelihood, without the records."""

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
from pymc_dirdp.releases.inference_setup import checked
from pymc_dirdp.releases.ledger_charge import Sealed
from pymc_dirdp.releases.model_plan import ModelPlan
from pymc_dirdp.releases.model_tables import counted, planned_tables, read_completely, table_model
from pymc_dirdp.releases.noisy_tables import with_terms
from pymc_dirdp.releases.opened import Opened
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
    """A PyMC model of a private release of the records of any model with discrete observations.

    The records are counted by outcome and covariates, noise is added to the counts once, and the observed variables of
    the model become the exact likelihood of the noisy counts. `pm.sample` of the result costs no further privacy. With
    a release instead of a guarantee it is the recipient's half: the same model from what was published, without
    the records.

    Parameters
    ----------
    source : Guarantee, ModelPlan, Plan, xarray.DataTree, path, or dict of str to a release or path
        The guarantee of a new release, or a plan for this very model, which has decided all options up to `disjoint`
        (a plan of its tables alone, or the file of one, needs what was said about the model again); or a release that
        :func:`release_of` returned, or its file.
    model : pymc.Model, optional
        The model on the context stack by default. Its observed variables are discrete. With a release, its
        observations may be made up, of any number; covariates hold every row that the release has.
    public : iterable of str, or True, default ()
        The `pm.Data` that anybody may know, entry by entry, such as covariates of records; `True` for all. Also
        observed variables whose numbers of trials anybody may know, and those with another number of records than
        others of the same people. A covariate has to be named here or in `levels`.
    levels : mapping of str to int, optional
        Private covariates, and how many codes from 0 on each of them has. All combinations are rows of the table.
    count_variables : iterable of str, default ()
        Observed variables of which each observation is a number of people, such as Poisson counts of cases. One person
        is one of those counted. They need no largest value.
    jointly : iterable of iterables of str, default ()
        Groups of observed variables that hold answers of the same people, such as `[["item1", "item2"]]`. The table of
        a group has a cell for each combination, and is called by all their names, with `_` between them. It is needed
        where covariates or the number of people are private.
    support : mapping of str to list, optional
        All values of one observation of a variable, where they are not found, such as vectors.
    unit : str, int or tuple of these, optional
        The axis of observations whose entries are the people, as for :func:`pymc_dirdp.sample`: a dim of the observed
        variables, or the number of one of their axes. All other axes are questions: the table has a cell for each
        combination of the answers of a person. A person answers all trials of an observation, and a Multinomial needs
        its values in `support`. Without it an observation of one record is one person, and a
        Binomial, Multinomial, BetaBinomial or DirichletMultinomial of several trials is asked for `unit` or
        `contribution`.
    contribution : int, optional
        How many records of each observed variable a person holds at most, where each trial is a record: with 1 every
        trial is another person. With `count_variables` it is how many of those counted one person is.
    adjacency : {"replace-one", "add-remove"}, optional
        By default `"replace-one"`, where the number of records is public, and `"add-remove"` with `count_variables`.
    mechanism : {"auto", "geometric", "gaussian", "joint"}, default "auto"
        The noise. `"joint"` is one noise for several observed variables of the same people, whose number is public,
        without covariates and with up to some eight outcomes; these do not divide the guarantee. `"auto"` takes the
        one with the smallest variance.
    disjoint
        As for :func:`pymc_dirdp.plan`, by the names of observed variables.
    n_prior : float or mapping of str to float, optional
        Where numbers of records are private: the largest expected number in a row, by default ten times what the
        noisy counts say. All smaller ones are as likely.
    random_seed : int, SeedSequence, Generator or None
        For tests: a seeded release is not private.
    ledger : Ledger, optional
        It is charged before any record is read.

    Returns
    -------
    model : pymc.Model
        The free variables with their names, dims, labels and transforms, and Deterministics that are functions of
        these, of single numbers and of `pm.Data` in `public` without an entry for each record; a
        :class:`~pymc_dirdp.errors.LeftOutWarning` names all others. Each observed variable `y` is the noisy table,
        which PyMC's and ArviZ's functions take as any other. Where numbers of records are private, the expected number
        of records of each row is the new free variable `y_expected`; where only their sum is public, their shares are
        `y_shares`. The shares of a BetaBinomial or DirichletMultinomial of which each trial is a person are `y_p`. A
        free variable with an entry for each person, whose prior is a `pm.Normal` or `pm.LogNormal`, is integrated out
        and no variable of the model. Nothing of the records or covariates is in it.

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
    Several releases are given as a dict from names to releases, such as those of months or of sites, with one model for
    all of them or one for each, which have the same free variables. Then `y` of the release `"may"` is the observed
    variable `y_may`, and so are new free variables and dims. They are of different people, or of other questions to the
    same people, whose number is public: then records are independent given the free variables, and likelihoods
    multiply. A ledger adds up what both say about a person. Two releases of the same records are no independent
    evidence; :func:`pymc_dirdp.analyse` pools these.

    Several observed variables share the guarantee, and the likelihoods of their tables are multiplied. This is the
    likelihood of all of them, because answers of a person are independent given the free variables, as the model has
    them.

    Numbers, arrays and starting values that are written into the model are taken for public, but for arrays with an
    entry for each record.

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
    >>> [rv.name for rv in private.free_RVs], [rv.name for rv in private.observed_RVs]
    (['effect'], ['y'])
    >>> again = dirdp.private_model(dirdp.releases.release_of(private), model, public=["which"])
    >>> bool(again.compile_logp()(again.initial_point()) == private.compile_logp()(private.initial_point()))
    True
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
    given: Any = source.tables if isinstance(source, ModelPlan) else source
    if isinstance(given, str | os.PathLike):
        given = load(given)
    if isinstance(given, Guarantee | Plan):
        model = root_model(model)
        found = read_completely(model, options, "dirdp.private_model(guarantee, model", plans=True)
        chosen = planned_tables(given, found) if isinstance(given, Guarantee) else given
        tables = table_model(found, None)
        chosen = plan_for(chosen, tables)
        # All that could be refused is refused here, before anything is published.
        with_terms(found, chosen, n_prior)
        sealed = Sealed(lambda: counted(found, model), ledger)
        with warnings.catch_warnings():
            # Categories are the model's own values.
            warnings.simplefilter("ignore", CategoriesFromDataWarning)
            release = sample_sealed(chosen, tables, sealed, random_seed=random_seed, progressbar=False)
        private = with_terms(found, chosen, n_prior, _noisy_counts(checked(release)))
        vars(private)[_RELEASE] = release
        _warn_left_out(model, private)
        return private
    if ledger is not None or random_seed is not None:
        raise ArgumentError("Leave ledger and random_seed out: this release was charged and drawn before.")
    if not isinstance(given, dict):
        return _of_releases({"": given}, root_model(model), options, n_prior)
    if not given or not all(isinstance(name, str) and name for name in given):
        raise ArgumentError("Expected a release for each of one or more names, such as {'may': release}.")
    return _of_releases(given, model, options, n_prior)


def _noisy_counts(stored: Opened) -> dict[str, Array]:
    """What a release has published of each table."""
    assert stored.release is not None
    return {name: output.values[0] for name, output in stored.release.output.items()}


def _of_releases(
    releases: dict[str, Source],
    model: pm.Model | dict[str, pm.Model] | None,
    options: ModelOptions,
    n_prior: float | Mapping[str, float] | None,
) -> pm.Model:
    """The model of releases, each an observed variable of its own: of several, or of the one that has no name."""
    if isinstance(model, dict) and set(model) != set(releases):
        raise ArgumentError("Expected a model for each release, by the same names, or one model for all.")
    private, trees, identities = None, dict[str, xr.DataTree](), set[object]()
    for name, given in releases.items():
        tree: Any = load(given) if isinstance(given, str | os.PathLike) else given
        stored = checked(tree)
        assert stored.release is not None
        if stored.release.identity in identities:
            raise ArgumentError(
                f"Leave {name!r} out: the same release is there twice, which would make intervals too narrow."
            )
        if options.adjacency not in (None, stored.plan.adjacency):
            raise ArgumentError(f"The release is for adjacency={stored.plan.adjacency!r}. Leave adjacency out.")
        own = root_model(model[name] if isinstance(model, dict) else model)
        # A release may have more cells than a new one gets without being asked.
        most = max(math.prod(part.table.shape) for part in stored.plan.parts)
        said = replace(options, adjacency=stored.plan.adjacency, max_cells=max(options.max_cells, most))
        call = "releases" if name else "release"
        found = read_completely(own, said, f"dirdp.private_model({call}, model", plans=False)
        ending = f"_{name}" if name else ""
        private = with_terms(found, stored.plan, n_prior, _noisy_counts(stored), beside=private, ending=ending)
        trees[name] = tree
        identities.add(stored.release.identity)
        if len(trees) == 1:
            _warn_left_out(own, private)
    assert private is not None
    vars(private)[_RELEASE] = trees.get("", trees)
    return private


def _warn_left_out(model: pm.Model, private: pm.Model) -> None:
    """Name the Deterministics that a private model lacks. It follows from the graph and what was declared public."""
    names = [repr(formula.name) for formula in model.deterministics if formula.name not in private.named_vars]
    if names:
        warn(
            f"The private model has no Deterministic {', '.join(names)}, which may hold records. To keep one that "
            "reads public arrays without an entry for each record, such as weights of strata, write each of them "
            "as a pm.Data, which public= names.",
            LeftOutWarning,
        )


@user_facing
def release_of(model: pm.Model, name: str | None = None) -> xr.DataTree:
    """The release behind a private model: what may be published, for `save`, `report`, `statement` and `verify`.

    Parameters
    ----------
    model : pymc.Model
        From :func:`private_model`.
    name : str, optional
        Which release, if there are several.

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
    >>> private = dirdp.private_model(dirdp.PureDP(epsilon=1.0), model, count_variables=["cases"])
    >>> list(dirdp.releases.release_of(private)["mechanism"].children)
    ['cases']
    """
    found = vars(model).get(_RELEASE) if isinstance(model, pm.Model) else None
    if found is None:
        raise ArgumentError(
            f"Expected a model from dirdp.private_model, got {type_name(model)} without a release. A copy of a private "
            "model has none: ask the private model itself."
        )
    if isinstance(found, dict):
        if name not in found:
            raise ArgumentError(f"The model is of several releases. Pass name= one of {', '.join(found)}.")
        found = found[name]
    return found.copy(deep=True)  # type: ignore[no-any-return]
