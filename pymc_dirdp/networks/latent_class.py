"""A wide table as a PyMC model: a mixture of products, which :func:`pymc_dirdp.sample` releases by pairs of columns."""

from os import PathLike
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from numpy.typing import NDArray

from pymc_dirdp.arrays import Integers
from pymc_dirdp.counting.bounding import checked_bound
from pymc_dirdp.counting.columns import Categories, Frame, Otherwise, checked_categories, checked_otherwise
from pymc_dirdp.counting.tables import coded_records
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.inference.mixture import COMMON_SD, COMPONENTS, RANK, SLOPE_SD
from pymc_dirdp.models.graph import Purpose, set_purpose
from pymc_dirdp.networks.builders import refuse_labels, refuse_names
from pymc_dirdp.releases.pairs_drawn import RECORDS, WideColumns
from pymc_dirdp.releases.pairs_view import COMPONENT
from pymc_dirdp.signatures import user_facing


@user_facing
def latent_class(
    records: Frame | str | PathLike[str],
    *,
    categories: Categories,
    counts: str | None = None,
    otherwise: Otherwise | None = None,
    unit: str | None = None,
    contribution: int | None = None,
) -> pm.Model:
    """A wide table: a low-rank mixture of products, whose private release measures all pairs of columns.

    Use it for ten to a few hundred columns if all pairs matter, for synthetic records, and if the dependence structure
    is unknown. :func:`pymc_dirdp.sample` measures each column and each pair with noise, :func:`pymc_dirdp.fit` fits the
    mixture, and nothing is chosen from the data.

    Parameters
    ----------
    records : data frame, mapping of str to one-dimensional array, table of an engine, or path
        The records, in any form that :func:`pymc_dirdp.count` accepts.
    categories : mapping of str to sequence
        At least two columns, and all possible values of each. They are public, so they are not taken from the data. A
        column with a single category costs no privacy.
    counts : str, optional
        The column with the number of records that each row stands for.
    otherwise : mapping of str to label, optional
        The category for missing and undeclared values, for any of the columns.
    unit, contribution : str and int, optional
        The column that identifies the unit of each record, and the maximum number of records counted per unit.

    Returns
    -------
    model : pymc.Model
        The Deterministic `p_v` with dims `(component, v)` for each column `v`, computed from normal coordinates of the
        components, and the observed `records`, with a row of category codes for each. The release by pairs is of this
        model, not of a copy.

    Raises
    ------
    ArgumentError
        If there are fewer than two columns with two categories, too many columns, or a name that cannot be a dim.
    DataError
        If a record has a missing or undeclared value, or the columns have different lengths.

    Notes
    -----
    The logits of all components are `common + place @ slopes`, of rank 24. With normal coordinates, this is close to a
    log-linear model of all pairs, and tables of three columns are close as well. Tables of four or more columns are
    extrapolated from pairs, and rare combinations are lost in the noise.

    References
    ----------
    Lazarsfeld and Henry (1968), Latent structure analysis. McKenna, Mullins, Sheldon and Miklau (2022), AIM,
    https://doi.org/10.14778/3551793.3551817, which chooses the tables that it measures.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> records = {
    ...     "rain": ["no", "yes"] * 500,
    ...     "wet": ["no", "yes"] * 500,
    ...     "coin": ["head", "tail", "tail", "head"] * 250,
    ... }
    >>> categories = {"rain": ["no", "yes"], "wet": ["no", "yes"], "coin": ["head", "tail"]}
    >>> model = dirdp.latent_class(records, categories=categories)
    >>> release = dirdp.sample(dirdp.ApproxDP(epsilon=4.0, delta=1e-6), model)
    >>> table = dirdp.synthetic(release).value_counts(["rain", "wet"])
    >>> bool(table["no", "no"] > 450)
    True
    """
    labels = checked_categories(list(categories), categories)
    refuse_names(labels)
    for name, values in labels.items():
        refuse_labels(name, values)
    if clash := {RECORDS, COMPONENT, "coordinate", "category", "column", "record"} & set(labels):
        raise ArgumentError(f"{min(clash)!r} is a reserved name of the model. Rename the column.")
    if sum(len(values) > 1 for values in labels.values()) < 2:
        raise ArgumentError("Expected at least two columns with two or more categories.")
    bound = checked_bound(unit, contribution, distinct=False)
    codes = coded_records(
        records, labels, otherwise=checked_otherwise(otherwise, labels), bound=bound, counts_column=counts
    )
    model = _model(labels, codes)
    set_purpose(model, Purpose(wide=WideColumns(labels, bound)))
    return model


def _model(labels: dict[str, list[Any]], codes: Integers) -> pm.Model:
    """The mixture with observed records."""
    ends = np.cumsum([0, *map(len, labels.values())]).tolist()
    coords = {name: tuple(values) for name, values in labels.items()}
    with pm.Model(coords=coords | {COMPONENT: range(COMPONENTS), "coordinate": range(RANK)}) as model:
        place = pm.Normal("place", dims=(COMPONENT, "coordinate"))
        slopes = pm.Normal("slopes", sigma=SLOPE_SD, shape=(RANK, ends[-1]))
        common = pm.Normal("common", sigma=COMMON_SD, shape=ends[-1])
        logits = place @ slopes + common
        shares = [
            pm.Deterministic(f"p_{name}", pm.math.softmax(logits[:, start:end], axis=1), dims=(COMPONENT, name))
            for name, start, end in zip(labels, ends, ends[1:], strict=False)
        ]
        pm.CustomDist(
            RECORDS,
            pt.concatenate(shares, axis=1),
            np.array(ends[:-1]),
            logp=_log_proba,
            random=_draw_records,
            signature="(k,c),(v)->(v)",
            dtype="int64",
            observed=codes,
        )
    return model


def _log_proba(records: Any, shares: Any, starts: Any) -> Any:
    """The logarithm of the probability of each record. The categories of each column begin at its entry in `starts`."""
    # PyMC adds leading axes of length 1 to a parameter.
    log_shares = pt.log(shares).reshape((COMPONENTS, -1))
    terms = log_shares[:, records + starts].sum(axis=-1)
    return pm.math.logsumexp(terms, axis=0, keepdims=False) - np.log(COMPONENTS)


def _draw_records(shares: NDArray[Any], starts: Integers, rng: np.random.Generator, size: tuple[int, ...]) -> Integers:
    """Random records of the mixture."""
    component = rng.integers(shares.shape[-2], size=size)
    shares = np.broadcast_to(shares, (*size, *shares.shape[-2:]))
    of_record = np.take_along_axis(shares, component[..., None, None], axis=-2)[..., 0, :]
    # PyMC repeats all parameters for each record.
    columns = np.split(of_record, starts.reshape(-1, starts.shape[-1])[0, 1:], axis=-1)
    u = rng.random((len(columns), *size, 1))
    codes = [(u[i] > np.cumsum(column, axis=-1)[..., :-1]).sum(axis=-1) for i, column in enumerate(columns)]
    return np.stack(codes, axis=-1)
