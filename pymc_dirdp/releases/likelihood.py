"""The likelihood of shares given a release, as an operation of PyTensor, and PyMC models for inference around it.

Use `release_logp` in any model, or start from `analyst_model`. `latent_counts` draws the counts given the draws of your
model.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import xarray as xr
from numpy.typing import ArrayLike
from pymc.distributions.dist_math import check_parameters

from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.inference.noisy_rows import noisy_rows
from pymc_dirdp.inference.numbers import ImpossibleError
from pymc_dirdp.inference.observed_table import Beliefs, ObservedTable
from pymc_dirdp.inference.tables import posterior_of
from pymc_dirdp.releases.counts_logp import ReleaseLogp, fixed_rows_logp, register_with_jax
from pymc_dirdp.releases.inference_setup import Inferences, Source, inferences
from pymc_dirdp.sampling.bits import Seed, generator
from pymc_dirdp.signatures import user_facing


def as_tensor(**named: Any) -> Any:
    """Convert an argument to a tensor of PyTensor. The error has its name, but not its value."""
    ((name, value),) = named.items()
    try:
        tensor = pt.as_tensor_variable(value)
    except (NotImplementedError, OverflowError, TypeError, ValueError):
        tensor = None
    if tensor is None or tensor.dtype.startswith("complex"):
        raise ArgumentError(f"Expected {name} to be a tensor or an array of numbers, got {type_name(value)}.")
    return tensor


def copied(release: Source | Sequence[Source]) -> Any:
    """A deep copy of a release, or of several."""
    if isinstance(release, list | tuple):
        return [copied(item) for item in release]
    return release.copy(deep=True) if isinstance(release, xr.DataTree) else release


def logp_of(output: ObservedTable, beliefs: Beliefs, p: Any) -> Any:
    """Log-probability of the output of a table, given its shares.

    Parameters
    ----------
    output : ObservedTable
        The output of the table. It must not change later.
    beliefs : Beliefs
        The priors of private totals.
    p : TensorVariable
        The shares, in the shape of the draws.
    """
    p = as_tensor(p=p)
    beta, cell_shape = output.family == "beta", tuple(output.prior.shape)
    shape = cell_shape[:-1] if beta else cell_shape
    if p.ndim != len(shape) or any(size not in (None, n) for size, n in zip(p.type.shape, shape, strict=True)):
        raise ArgumentError(f"Expected p in the shape of {output.name!r}, {shape}, got {p.type.shape}.")
    if beta:
        log_shares = pt.stack([pt.log(p), pt.log1p(-p)], axis=-1)
        is_valid, condition = (p >= 0) & (p <= 1), "0 <= p <= 1"
    else:
        log_shares = pt.log(p)
        # Tolerance of the sum of shares.
        is_valid, condition = (p >= 0) & pt.isclose(p.sum(axis=-1, keepdims=True), 1.0, 0.0, 1e-6), "p >= 0, sum(p) = 1"
    if (rows := noisy_rows(output, beliefs)) is not None:
        value = fixed_rows_logp(rows, log_shares).sum()
    else:
        register_with_jax()
        value, _ = ReleaseLogp(output, beliefs).make_node(log_shares).outputs
    return check_parameters(value, is_valid, msg=condition)


@user_facing
def release_logp(
    release: Source | Sequence[Source],
    p: Any,
    table: str | None = None,
    *,
    n_prior: int | ArrayLike | None = None,
    row_prior: ArrayLike | None = None,
) -> Any:
    """Log-probability of a release as a function of the shares: its likelihood, for a model of your own.

    The counts are summed out exactly, so it is differentiable, and NUTS can sample `p` and its parameters. It uses the
    published release only and costs no privacy.

    Parameters
    ----------
    release : xarray.DataTree, MechanismOutput, or a list of them
        As for :func:`pymc_dirdp.analyse`. It is copied.
    p : TensorVariable
        The shares, in the shape of a draw of the table. For a Beta they are the probabilities of success.
    table : str, optional
        The name of the table, required if the release has several. Tables of the same records are not independent
        evidence about row sizes, so a sum over them is correct for their shares only.
    n_prior : int or array_like, optional
        As for :func:`pymc_dirdp.analyse`: your prior of a private number of records.
    row_prior : array_like, optional
        As for :func:`pymc_dirdp.analyse`: Dirichlet prior of the division of records among rows, 1 for each by default.
        If your model specifies the row sizes, release and model the whole table as one row instead, which is exact and
        faster.

    Returns
    -------
    logp : TensorVariable
        A scalar, for `pm.Potential`. Its gradient in `log p` is the expected counts. It is `-inf` if no table is
        possible. As with PyMC's distributions, a `p` that is not a probability raises a `ParameterValueError` when
        evaluated, and is `-inf` in the log-probability of a model.

    Raises
    ------
    ReleaseError
        If it is not a release, is damaged, or is inconsistent.
    ArgumentError
        If the shape of `p` or a prior does not match the table, or the table does not exist.

    Notes
    -----
    For rows with public sizes an evaluation with its gradient takes about .01 ms for a row of two cells,
    .05 ms for one of 5, and .5 ms for one of 100; for draws of some thousand records three times as long, and with a
    guaranteed least count, or a million records, some milliseconds. For noisy counts of several rows whose sizes are
    not known, with a public number of records or a private one, it is about 2 ms for two rows of two cells, and 5 to
    50 ms for four of five. A draw of the Dirichlet mechanism has little information about row sizes, so it takes
    longer. There are no second derivatives. On the boundary of the simplex the value is correct, and the gradient in
    `p` is not a number.

    JAX (`nuts_sampler="numpyro"` or `"blackjax"`) calls back into Python for each evaluation, on one core at a time.
    JAX support is registered when JAX is installed, `pip install jax numpyro`, before this function is called.

    References
    ----------
    Theory, section 16.

    Examples
    --------
    A regression on the released shares, which an analyst can fit without the data:

    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     heads = pm.Binomial("heads", n=1000, p=p, observed=300)
    ...     release = dirdp.sample(dirdp.PureDP(epsilon=1.0), mechanism="geometric")
    >>> with pm.Model() as model:
    ...     logit = pm.Normal("logit", 0, 2, initval=-1.0)
    ...     _ = pm.Potential("release", dirdp.release_logp(release, pm.math.invlogit(logit)))
    >>> logp = model.compile_logp()
    >>> bool(logp({"logit": -0.85}) > logp({"logit": 0.85}))
    True
    """
    inference = inferences(copied(release), None, n_prior, row_prior, same_records=False)
    name, *others = _select_tables(inference, table)
    if others:
        raise ArgumentError(f"The release has the tables {', '.join(inference.tables)}. Pass table= one of them.")
    return logp_of(inference.tables[name], inference.beliefs[name], p)


@user_facing
def analyst_model(
    release: Source | Sequence[Source],
    tables: Sequence[str] | None = None,
    *,
    prior: ArrayLike | Mapping[str, ArrayLike] | None = None,
    n_prior: int | ArrayLike | Mapping[str, int | ArrayLike] | None = None,
    row_prior: ArrayLike | Mapping[str, ArrayLike] | None = None,
) -> pm.Model:
    """A PyMC model of a release: the shares with their priors, and the likelihood of what was published.

    Use this model if you want to extend it. Otherwise use :func:`pymc_dirdp.analyse`, which draws from the same
    posterior directly, without chains. For priors other than Dirichlet and Beta write your own model with
    :func:`pymc_dirdp.release_logp`.

    Parameters
    ----------
    release : xarray.DataTree, MechanismOutput, or a list of them
        As for :func:`pymc_dirdp.analyse`. It is copied.
    tables : sequence of str, optional
        The names of tables of the release, by default all.
    prior, n_prior, row_prior
        As for :func:`pymc_dirdp.analyse`.

    Returns
    -------
    model : pymc.Model
        A Dirichlet or a Beta for each table, with its name, dims and labels in the release, and the potential
        `<name>_release`.

    Raises
    ------
    ReleaseError, ArgumentError
        See :func:`pymc_dirdp.analyse`. Also if the release has no such table, or consists of marginals, which have no
        likelihood for each table; use `analyse` for them.

    Notes
    -----
    `pm.sample_prior_predictive` draws from the priors alone and warns that it ignores potentials.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}):
    ...     p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    ...     students = pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    ...     release = dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-6))
    >>> with dirdp.releases.analyst_model(release) as model:
    ...     _ = pm.Deterministic("blond_to_red", model["p"][3] / model["p"][2])
    >>> [variable.name for variable in model.free_RVs + model.potentials]
    ['p', 'p_release']
    """
    inference = inferences(copied(release), prior, n_prior, row_prior, same_records=False)
    with pm.Model() as model:
        for name in _select_tables(inference, tables):
            logp = logp_of(inference.tables[name], inference.beliefs[name], _shares(model, name, inference))
            pm.Potential(f"{name}_release", logp)
    return model


def _shares(model: pm.Model, name: str, inference: Inferences) -> Any:
    """Add the variable of the shares of a table to a model."""
    output = inference.tables[name]
    prior = posterior_of(output, inference.beliefs[name]).prior
    for (dim, labels), size in zip(output.share_labels, prior.shape, strict=False):
        model.add_coord(dim, range(size) if labels is None else labels)
    dims = tuple(dim for dim, _ in output.share_labels) or None
    # Without initial values, because PyMC cannot copy models with them, and the likelihood is finite at any start.
    if output.family == "beta":
        return pm.Beta(name, alpha=prior[..., 0], beta=prior[..., 1], dims=dims)
    return pm.Dirichlet(name, a=prior, dims=dims)


def _select_tables(inference: Inferences, tables: str | Sequence[str] | None) -> list[str]:
    names = [tables] if isinstance(tables, str) else list(inference.tables if tables is None else tables)
    if not names:
        raise ArgumentError("Expected tables to name at least one table of the release.")
    if unknown := [name for name in names if name not in inference.tables]:
        raise ArgumentError(f"The release has no table {unknown[0]!r}, but {', '.join(inference.tables)}.")
    return names


@user_facing
def latent_counts(
    idata: xr.DataTree,
    release: Source | Sequence[Source],
    tables: Sequence[str] | None = None,
    *,
    n_prior: int | ArrayLike | Mapping[str, int | ArrayLike] | None = None,
    row_prior: ArrayLike | Mapping[str, ArrayLike] | None = None,
    random_seed: Seed = None,
) -> xr.Dataset:
    """Exact draws of the counts behind a release, one for each draw of the shares.

    The likelihood in your model has the counts summed out. This function draws them afterwards, given the shares and
    the release, so that shares and counts are joint draws from the posterior of your model.

    Parameters
    ----------
    idata : xarray.DataTree
        From `pm.sample`: its group `posterior` has the shares of each table under the name of the table, with the
        dims `chain` and `draw`, then those of the table in its order. Record shares that your model computes as
        `pm.Deterministic("name of the table", ...)`.
    release : xarray.DataTree, MechanismOutput, or a list of them
        The release of the model.
    tables : sequence of str, optional
        The names of tables, by default all tables of the release that the posterior has.
    n_prior, row_prior
        The priors of the model.
    random_seed : int, SeedSequence, Generator or None
        A seed does not affect privacy here, because the release is public.

    Returns
    -------
    counts : xarray.Dataset
        The integer counts of each table, with the dims `chain`, `draw` and those of the table. To add them to your
        draws: `idata["latent_counts"] = xarray.DataTree(counts)`.

    Raises
    ------
    ReleaseError
        If it is not a release, is damaged, or is inconsistent.
    ArgumentError
        If the posterior does not have these shares, or the release is impossible given them.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_dirdp as dirdp
    >>> with pm.Model():
    ...     p = pm.Beta("p", 1, 1)
    ...     heads = pm.Binomial("heads", n=1000, p=p, observed=300)
    ...     release = dirdp.sample(dirdp.PureDP(epsilon=1.0), mechanism="geometric")
    >>> analysis = dirdp.analyse(release, 2, chains=2)  # the posterior of a model of your own goes here
    >>> dirdp.releases.latent_counts(analysis, release)["p"].sum("p_outcome").values
    array([[1000, 1000],
           [1000, 1000]])
    """
    if "posterior" not in getattr(idata, "children", {}):
        raise ArgumentError("Expected idata to have the group posterior, as from pm.sample.")
    posterior = idata.children["posterior"].to_dataset()
    inference = inferences(release, None, n_prior, row_prior, same_records=False)
    chosen = _select_tables(
        inference, [name for name in inference.tables if name in posterior] if tables is None else tables
    )
    rng = generator(random_seed)
    return xr.Dataset({name: _counts(name, inference, posterior, rng) for name in chosen})


def _counts(name: str, inference: Inferences, posterior: xr.Dataset, rng: np.random.Generator) -> xr.DataArray:
    output = inference.tables[name]
    distribution = posterior_of(output, inference.beliefs[name])
    shape, beta = distribution.prior.shape, output.family == "beta"
    expected = shape[:-1] if beta else shape
    if name not in posterior or not {"chain", "draw"} <= set(posterior[name].dims):
        raise ArgumentError(f"Expected the posterior to hold draws of {name!r}, with the dims chain and draw.")
    draws = posterior[name].transpose("chain", "draw", ...)
    p = draws.values.astype(np.float64)
    if p.shape[2:] != expected:
        raise ArgumentError(f"Expected draws of {name!r} in the shape {expected}, got {p.shape[2:]}.")
    shares = np.stack([p, 1 - p], axis=-1) if beta else p
    if not np.all(shares >= 0) or not np.allclose(shares.sum(axis=-1), 1, rtol=0, atol=1e-6):
        raise ArgumentError(f"The posterior holds draws of {name!r} that are no probabilities.")
    with np.errstate(divide="ignore"):
        logs = np.log(shares).reshape(-1, *shape)
    try:
        counts = np.stack([distribution.with_shares(log_shares).counts(1, rng)[0] for log_shares in logs])
    except ImpossibleError as error:
        raise ArgumentError(
            f"The posterior holds draws of {name!r} with which the release is impossible. Did your model use this "
            "release?"
        ) from error
    coords: dict[str, Any] = {dim: draws.coords[dim] for dim in ("chain", "draw")}
    coords |= {dim: labels for dim, labels in output.cell_labels if labels is not None}
    dims = ["chain", "draw", *(dim for dim, _ in output.cell_labels)]
    return xr.DataArray(counts.reshape(*p.shape[:2], *shape), coords, dims)
