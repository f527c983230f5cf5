"""Private choices from the records before tables are released: a tree over variables, and bins of a numeric column."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any

from pymc_dirdp.accounting.budget import check_ledger_type
from pymc_dirdp.accounting.opening import Sealed
from pymc_dirdp.checks import at_least, one_line, one_of
from pymc_dirdp.counting.bounding import bound_for
from pymc_dirdp.counting.columns import Categories, Frame, checked_categories
from pymc_dirdp.counting.tables import count_between, count_families, refuse_missing_columns
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.literals import AdjacencyName, CountNoise
from pymc_dirdp.mechanisms.choices import QuantilesMechanism, TreeMechanism
from pymc_dirdp.networks.builders import refuse_labels, refuse_names
from pymc_dirdp.numerics.roots import largest_satisfying, log_ratio_to_budget
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import adjacency_by_name
from pymc_dirdp.releases.choices import Bins, Structure
from pymc_dirdp.releases.ledger_charge import charge_choice, people_of
from pymc_dirdp.releases.wording import warn_if_seeded, warn_of_repetition
from pymc_dirdp.sampling.bits import Seed
from pymc_dirdp.signatures import user_facing

if TYPE_CHECKING:
    from pymc_dirdp.accounting.ledger import Ledger


@user_facing
def choose_structure(
    guarantee: Guarantee,
    records: Frame | str | PathLike[str],
    *,
    categories: Categories,
    share: float = 0.25,
    root: str | None = None,
    counts: str | None = None,
    adjacency: AdjacencyName = "replace-one",
    unit: str | None = None,
    contribution: int | None = None,
    random_seed: Seed = None,
    ledger: "Ledger | None" = None,
) -> Structure:
    """Choose a tree over the variables from the records, with part of a guarantee.

    The rest of the guarantee is for the tables. `plan(guarantee, model, after=structure)` satisfies the guarantee for
    both together, with any mechanism.

    Parameters
    ----------
    guarantee : Guarantee
        The guarantee that the structure and the tables of its network will satisfy together.
    records : data frame, mapping of str to one-dimensional array, table of an engine, or path
        The records, in any form that :func:`pymc_dirdp.count` accepts.
    categories : mapping of str to sequence
        All possible values of each variable. They are public, so they are not taken from the data. These variables are
        the candidates: at most 200, and no two with more than a million cells together.
    share : float, default 0.25
        The share of the privacy budget for the structure. For `ApproxDP`, epsilon is multiplied by the square root of
        the share. With 1 the structure takes all of it, and a ledger pays for the tables.
    root : str, optional
        A variable without parents, such as a class. By default, the root of each part of the forest is its first
        variable in the order of the categories. The choice of the root changes no probability.
    counts : str, optional
        The column with the number of records that each row stands for.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        The change of one unit between neighbouring data sets.
    unit, contribution : str and int, optional
        As in :func:`bayesian_network`.
    random_seed : int, SeedSequence, Generator or None, default None
        None takes entropy from the operating system. A seed makes the choice reproducible, hence **not private**.
    ledger : Ledger, optional
        The ledger that records the cost of the structure before any record is read.

    Returns
    -------
    structure : Structure
        A mapping of each variable to its parents, at most one each, with its privacy cost.

    Raises
    ------
    ArgumentError
        If an argument is outside its domain, there are too many variables, or there is nothing to choose.
    UnattainableError
        If no noise satisfies this share of the guarantee.
    DataError
        If a record has a missing or undeclared value.
    BudgetError, LedgerError
        If the ledger refuses the cost. Nothing was chosen then.

    Warns
    -----
    SeededReleaseWarning
        If `random_seed` is given.

    Notes
    -----
    Strongly dependent pairs of variables are joined first. The choice ends when no remaining pair stands out of the
    noise, so with few records or a tight guarantee there may be few edges or none. The marginals of single variables
    are measured for the choice and are not published. The number of records is not used, so it may be private. See
    :class:`~pymc_dirdp.mechanisms.choices.TreeMechanism`.

    No guarantee covers a structure that was chosen from the records in any other way, such as by a search over
    structures, and no function of this library can detect this.

    References
    ----------
    McKenna, Miklau and Sheldon (2021), Winning the NIST contest, https://doi.org/10.29012/jpc.778. The page of proofs
    on structures.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> records = {"rain": ["no", "yes"] * 500, "wet": ["no", "yes"] * 500, "coin": ["tail"] * 1000}
    >>> categories = {"rain": ["no", "yes"], "wet": ["no", "yes"], "coin": ["head", "tail"]}
    >>> guarantee = dirdp.ApproxDP(epsilon=4.0, delta=1e-6)
    >>> structure = dirdp.choose_structure(guarantee, records, categories=categories)
    >>> model = dirdp.bayesian_network(records, structure, categories=categories)
    >>> release = dirdp.sample(dirdp.plan(guarantee, model, mechanism="marginals", after=structure), model)
    >>> bool(dirdp.verify(release))
    True
    """
    part = part_of(guarantee, share=share)
    check_ledger_type(ledger)
    labels = _checked_labels(categories, root=root)
    bound = bound_for(adjacency=adjacency, unit=unit, contribution=contribution)
    people = people_of(bound)
    names, lengths = list(labels), [len(values) for values in labels.values()]
    mechanism = tree_within(part, lengths, adjacency=adjacency, contribution=people[1])
    refuse_missing_columns(records, labels, bound=bound, counts_column=counts)
    sealed = Sealed(records, ledger)
    del records
    warn_if_seeded("structure", random_seed=random_seed)
    terms = charge_choice(
        part,
        mechanism,
        what=f"the structure of {', '.join(names)}",
        people=people,
        ledger=ledger,
        random_seed=random_seed,
    )
    families = [[names[i] for i in axes] for axes in (*((i,) for i in mechanism.variables), *mechanism.pairs)]
    count = partial(count_families, families=families, labels=labels, otherwise={}, bound=bound, counts_column=counts)
    drawing = mechanism.prepare(random_seed)
    if ledger is None and not terms["reproducible"]:
        warn_of_repetition((mechanism, tuple(names)))
    edges = sealed.release(count, drawing.of, terms["entry"])
    parents = _directed_forest(names, [(names[i], names[j]) for i, j in edges], root=root)
    return Structure(parents=parents, **terms)


def _checked_labels(categories: Categories, *, root: str | None) -> dict[str, list[Any]]:
    """The labels of all variables. Names that a network cannot have are refused before any budget is spent."""
    labels = checked_categories(list(categories) if isinstance(categories, Mapping) else [], categories)
    refuse_names(labels)
    for name, values in labels.items():
        refuse_labels(name, values)
    if root is not None:
        one_of(list(labels), root=root)
    return labels


def _directed_forest(
    names: Sequence[str], edges: Sequence[tuple[str, str]], *, root: str | None
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The parents of each variable in a forest, with edges away from the first variable of each part."""
    parents: dict[str, tuple[str, ...]] = {}
    for start in [*([] if root is None else [root]), *names]:
        queue = [] if start in parents else [start]
        parents.setdefault(start, ())
        while queue:
            parent = queue.pop()
            for pair in edges:
                if parent in pair:
                    child = pair[pair[0] == parent]
                    if child not in parents:
                        parents[child] = (parent,)
                        queue.append(child)
    return tuple((name, parents[name]) for name in names)


# The noise with which the choice of a structure takes a stated share of a guarantee.


def part_of(guarantee: Guarantee, share: float) -> Guarantee:
    """The share of a guarantee for a structure.

    An additive budget is multiplied by the share. The epsilon of approximate DP is multiplied by the square root of the
    share, because the losses of many choices add up like standard deviations.

    Raises
    ------
    ArgumentError
        If the share is not in (0, 1], or the budget is 0.
    """
    guarantee = Guarantee.checked(guarantee=guarantee)
    share = at_least(0, share=share)
    if not 0 < share <= 1:
        raise ArgumentError(f"Expected share in (0, 1], got share={share:g}.")
    if guarantee.budget == 0:
        raise ArgumentError("Expected a guarantee with an epsilon above 0, because a structure takes a share of it.")
    return guarantee.with_budget(guarantee.budget * (share if guarantee.adds_up else math.sqrt(share)))


def tree_within(
    guarantee: Guarantee,
    lengths: Sequence[int],
    *,
    adjacency: AdjacencyName = "replace-one",
    contribution: int = 1,
    marginals_share: float = 0.3,
) -> TreeMechanism:
    """The mechanism with the least noise that satisfies a guarantee.

    Parameters
    ----------
    guarantee : Guarantee
        The guarantee that the structure alone satisfies, of any kind.
    lengths, adjacency, contribution
        As for :class:`~pymc_dirdp.mechanisms.choices.TreeMechanism`.
    marginals_share : float, default 0.3
        The share of the privacy loss for the marginals; the choices take the rest.

    Returns
    -------
    mechanism : TreeMechanism
        `mechanism.satisfies(guarantee)` is True.

    Raises
    ------
    UnattainableError
        If no noise satisfies the guarantee.

    Examples
    --------
    >>> from pymc_dirdp.privacy.guarantees import PureDP
    >>> mechanism = tree_within(PureDP(epsilon=1.0), [2, 3, 4])
    >>> round(mechanism.pure_epsilon, 3)
    1.0
    """
    relation = adjacency_by_name(adjacency)
    noise: CountNoise = "geometric" if guarantee.is_pure else "gaussian"

    def mechanism(inverse: float) -> TreeMechanism:
        scale = 1 / inverse
        variables = sum(length > 1 for length in lengths)
        # Both scales are for one record; both sensitivities are proportional to the contribution.
        choices = max(variables - 1, 1)
        width = min(2, choices) * relation.delta_1 / scale
        if noise == "geometric":
            parameter = relation.delta_1 * variables / (choices * width) * (1 / marginals_share - 1)
        else:
            loss = choices * width**2 / 8 / (1 / marginals_share - 1)
            parameter = math.sqrt(variables * relation.delta_2_squared / (2 * loss))
        return TreeMechanism(tuple(lengths), scale, parameter, noise, adjacency=adjacency, contribution=contribution)

    mechanism(1.0)  # Raises errors about the lengths, which `excess` would take for errors about the noise.

    def excess(inverse: float) -> float:
        try:
            return log_ratio_to_budget(*mechanism(inverse).loss(guarantee))
        except ArgumentError:
            # This noise is too small or too large to be drawn.
            return math.inf if inverse > 1 else -math.inf

    try:
        # The least noise that satisfies the guarantee, up to this tolerance.
        return mechanism(largest_satisfying(excess, rtol=1e-4))
    except ArgumentError:
        raise UnattainableError("The guarantee is so tight that no noise satisfies it; relax it.") from None


@user_facing
def choose_bins(
    guarantee: Guarantee,
    records: Frame,
    column: str,
    *,
    n_bins: int,
    candidates: Sequence[float],
    ledger: "Ledger | None",
    adjacency: AdjacencyName = "replace-one",
    unit: str | None = None,
    contribution: int | None = None,
    random_seed: Seed = None,
) -> Bins:
    """Choose bins of a numeric column near its quantiles, from the records.

    A later release of counts in these bins costs the same people more privacy. With `after=bins` the guarantee of the
    release covers both. A ledger adds both.

    Parameters
    ----------
    guarantee : Guarantee
        The guarantee that the choice of all edges satisfies, of any kind.
    records : data frame, mapping of str to one-dimensional array, table of an engine, or path
        One entry of each column is one record, in any form that :func:`pymc_dirdp.count` accepts. An engine groups the
        records by value and returns each value once.
    column : str
        The numeric column, without missing values.
    n_bins : int
        The maximum number of bins, 2 to 1000. Each should have many more records than the scale of the mechanism.
    candidates : sequence of float
        The possible edges, in rising order, at most 100,000. They are public, so they are not taken from the data:
        ``range(18, 100)``, or ``np.linspace(0, 1, 101)``.
    ledger : Ledger or None
        Records the cost of the choice before any record is read. You must pass it: with None nothing records the cost
        until you pass the bins as `after=` to :func:`pymc_dirdp.plan`.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        The change of one unit between neighbouring data sets.
    unit : str, optional
        The column that identifies the unit of each record. At most `contribution` records of each unit are counted.
    contribution : int, optional
        Only with `unit`. More than 1 needs ``adjacency="add-remove"``.
    random_seed : int, SeedSequence, Generator or None, default None
        None takes entropy from the operating system. A seed makes the choice reproducible, hence **not private**.

    Returns
    -------
    bins : Bins
        The edges, the names of the bins for :func:`count`, and the privacy cost.

    Raises
    ------
    ArgumentError
        If an argument is outside its domain.
    UnattainableError
        If no choice satisfies the guarantee.
    DataError
        If a value is missing or not a number.
    BudgetError, LedgerError
        If the ledger refuses the cost. Nothing was chosen then.

    Warns
    -----
    SeededReleaseWarning
        If `random_seed` is given.
    CategoriesFromDataWarning
        If candidates are an object of pandas, polars or Arrow, which may come from the data.

    Notes
    -----
    P1 uses quantiles of the data as bin edges of its models and does not account for their privacy cost. Here the
    exponential mechanism chooses each edge; the score is the number of records by which an edge misses its quantile.
    With a scale of b records, the excess of this number over that of the best candidate is above
    `b (log(number of candidates) + t)` with a probability of at most `exp(-t)`.

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
    >>> release = dirdp.sample(dirdp.plan(guarantee, model, mechanism="geometric", after=bins), model)
    >>> bool(dirdp.verify(release))
    True
    """
    guarantee = Guarantee.checked(guarantee=guarantee)
    check_ledger_type(ledger)
    name = one_line(column=column)
    edges = _edges(name, candidates)
    bound = bound_for(adjacency=adjacency, unit=unit, contribution=contribution)
    if unit == name:
        raise ArgumentError(f"Expected unit to be another column than the one to divide into bins, got unit={unit!r}.")
    people = people_of(bound)
    mechanism = QuantilesMechanism.for_guarantee(
        guarantee, n_bins=n_bins, n_candidates=len(edges), adjacency=adjacency, contribution=people[1]
    )
    refuse_missing_columns(records, {name: []}, bound=bound)
    sealed = Sealed(records, ledger)
    del records
    warn_if_seeded("set of bins", random_seed=random_seed)
    terms = charge_choice(
        guarantee, mechanism, what=f"the bins of {name}", people=people, ledger=ledger, random_seed=random_seed
    )
    drawing = mechanism.prepare(random_seed)
    if ledger is None and not terms["reproducible"]:
        warn_of_repetition((mechanism, name, tuple(edges)))
    count = partial(count_between, column=name, edges=edges, bound=bound)
    positions = sealed.release(count, drawing.of, terms["entry"])
    return Bins(column=name, edges=tuple(edges[position] for position in positions), **terms)


def _edges(name: str, candidates: Sequence[float]) -> list[float]:
    """The candidates as numbers in rising order, with a warning if they may come from the data."""
    labels = checked_categories([name], {name: candidates})[name]
    if not all(isinstance(label, int | float) and not isinstance(label, bool) for label in labels):
        raise ArgumentError("Expected candidates to be numbers.")
    try:
        edges = [float(label) for label in labels]
    except OverflowError:
        edges = [math.inf]
    if not all(map(math.isfinite, edges)):
        raise ArgumentError(
            "Expected candidates to be finite numbers. The first and the last bin are unbounded anyway."
        )
    if not all(low < high for low, high in pairwise(edges)):
        raise ArgumentError("Expected candidates in rising order, without duplicates in double precision.")
    return edges
