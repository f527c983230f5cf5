"""Bins of a column of numbers, whose edges are chosen from the records, and paid for."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from pymc_dirdp.accounting.budget import check_ledger_type
from pymc_dirdp.checks import one_line
from pymc_dirdp.counting.bounding import bound_for
from pymc_dirdp.counting.columns import Frame, checked_categories
from pymc_dirdp.counting.tables import count_between, refuse_absent
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.choices import QuantilesMechanism
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.releases.choices import Bins
from pymc_dirdp.releases.ledger_charge import Sealed, charged_choice, people_of
from pymc_dirdp.releases.warn import warn_if_seeded
from pymc_dirdp.sampling.bits import Seed

if TYPE_CHECKING:
    from pymc_dirdp.accounting.ledger import Ledger

__all__ = ["choose_bins"]


def choose_bins(
    guarantee: Guarantee,
    records: Frame,
    column: str,
    *,
    n_bins: int,
    candidates: Sequence[float],
    ledger: "Ledger | None",
    adjacency: str = "replace-one",
    unit: str | None = None,
    contribution: int | None = None,
    random_seed: Seed = None,
) -> Bins:
    """Choose bins of a column of numbers at about its quantiles, from the records.

    What is released of the bins afterwards is another loss, of the same people. With `after=bins` the guarantee of a
    release covers both; and a ledger adds up both.

    Parameters
    ----------
    guarantee : Guarantee
        What the choice of all edges keeps, of any kind.
    records : data frame, mapping of str to one-dimensional array, table of an engine, or path
        One entry of each column is one record, as :func:`pymc_dirdp.count` takes them. An engine groups the records by
        their numbers, and each number comes back once.
    column : str
        The column of numbers, without missing values.
    n_bins : int
        How many bins there are at most, 2 to 1000. Each should hold many more records than the scale of the mechanism.
    candidates : sequence of float
        The numbers that could become an edge, in rising order, at most 100,000. They are public, so they are not taken
        from the data: ``range(18, 100)``, or ``np.linspace(0, 1, 101)``.
    ledger : Ledger or None
        Records what the choice costs, before any record is read. It has to be said: with None nothing remembers what
        the bins have cost until they are passed as `after=` to :func:`plan` or :func:`sample`.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one unit can change.
    unit : str, optional
        The column that says whose record it is. Then at most `contribution` records of each unit are counted.
    contribution : int, optional
        With `unit` only; more than 1 needs ``adjacency="add-remove"``.
    random_seed : int, SeedSequence, Generator or None, default None
        None takes entropy from the operating system. A seed makes the choice reproducible, hence **not private**.

    Returns
    -------
    bins : Bins
        The edges, with names of the bins for :func:`count`, and what they have cost.

    Raises
    ------
    ArgumentError
        If an argument is outside of its domain.
    UnattainableError
        If no choice keeps the guarantee.
    DataError
        If a value is missing or is no number.
    BudgetError, LedgerError
        If the ledger refuses it. Nothing was chosen then.

    Warns
    -----
    SeededReleaseWarning
        If `random_seed` is given.
    CategoriesFromDataWarning
        If candidates are an object of pandas, polars or Arrow, which may have been made from data.

    Notes
    -----
    Edges of the naive Bayes models and networks of P1 are quantiles of the data, which P1 does not pay for. Here each
    edge is one choice by the exponential mechanism, whose score is the number of records by which an edge misses its
    share. With a scale of b records, an edge misses its share by more than `b (log(number of candidates) + t)` records,
    compared with the best candidate, with a probability of at most `exp(-t)`.

    References
    ----------
    P1 section 5.1. Smith (2011), https://doi.org/10.1145/1993636.1993743. The page of proofs on bins.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> guarantee = dirdp.ZeroCDP(rho=1.0)
    >>> records = {"age": [20, 30, 40, 50] * 500}
    >>> bins = dirdp.choose_bins(
    ...     dirdp.ZeroCDP(rho=0.5), records, "age", n_bins=4, candidates=[25, 35, 45, 55], ledger=None
    ... )
    >>> bins.edges
    (25.0, 35.0, 45.0)
    >>> frame = {"age": bins.label(records["age"]), "ill": ["no", "no", "no", "yes"] * 500}
    >>> model = dirdp.naive_bayes(frame, "ill", categories={"age": bins.labels, "ill": ["no", "yes"]})
    >>> release = dirdp.sample(guarantee, model, mechanism="geometric", after=bins)
    >>> bool(dirdp.verify(release))
    True
    """
    guarantee = Guarantee.checked(guarantee=guarantee)
    check_ledger_type(ledger)
    name = one_line(column=column)
    edges = _edges(name, candidates)
    bound = bound_for(adjacency=adjacency, unit=unit, contribution=contribution)
    if unit == name:
        raise ArgumentError(f"Expected unit to be another column than the one that is divided, got unit={unit!r}.")
    people = people_of(bound)
    mechanism = QuantilesMechanism.for_guarantee(
        guarantee, n_bins=n_bins, n_candidates=len(edges), adjacency=adjacency, contribution=people[1]
    )
    refuse_absent(records, {name: []}, bound=bound)
    sealed = Sealed(records, ledger)
    del records
    warn_if_seeded("set of bins", random_seed=random_seed)
    terms = charged_choice(
        guarantee, mechanism, what=f"the bins of {name}", people=people, ledger=ledger, random_seed=random_seed
    )
    between = sealed.read(lambda frame: count_between(frame, name, edges, bound), terms["entry"])
    chosen = mechanism.release(between, random_seed=random_seed)
    return Bins(column=name, edges=tuple(edges[place] for place in chosen), **terms)


def _edges(name: str, candidates: Sequence[float]) -> list[float]:
    """The candidates as numbers in rising order; those that may have been made from data are warned of."""
    labels = checked_categories([name], {name: candidates})[name]
    if not all(isinstance(label, int | float) and not isinstance(label, bool) for label in labels):
        raise ArgumentError("Expected candidates to be numbers.")
    try:
        edges = [float(label) for label in labels]
    except OverflowError:
        edges = [math.inf]
    if not all(map(math.isfinite, edges)):
        raise ArgumentError("Expected candidates to be finite numbers. Bins have no outer edges.")
    if not all(low < high for low, high in pairwise(edges)):
        raise ArgumentError("Expected candidates in rising order, no two of which are the same double.")
    return edges
