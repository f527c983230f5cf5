"""What is chosen from the records, and paid for, before tables are released.

A tree says which variables depend on each other; bins are those of a column of numbers.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any

from pymc_dirdp.accounting.budget import check_ledger_type
from pymc_dirdp.checks import at_least, one_line, one_of
from pymc_dirdp.counting.bounding import bound_for
from pymc_dirdp.counting.columns import Categories, Frame, checked_categories
from pymc_dirdp.counting.tables import count_between, count_families, refuse_missing_columns
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.literals import AdjacencyName
from pymc_dirdp.mechanisms.choices import QuantilesMechanism, TreeMechanism
from pymc_dirdp.networks.builders import refuse_labels, refuse_names
from pymc_dirdp.numerics.roots import largest_satisfying, log_ratio_to_budget
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import adjacency_by_name
from pymc_dirdp.releases.choices import Bins, Structure
from pymc_dirdp.releases.ledger_charge import Sealed, charge_choice, people_of
from pymc_dirdp.releases.wording import warn_if_seeded
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
    """Choose a tree over the variables from the records, with a part of a guarantee.

    What is left of the guarantee is for the tables: `plan(guarantee, model, after=structure)` satisfies the guarantee
    for both together, with any mechanism.

    Parameters
    ----------
    guarantee : Guarantee
        What the structure and the tables of its network will keep together.
    records : data frame, mapping of str to one-dimensional array, table of an engine, or path
        The records, as :func:`pymc_dirdp.count` takes them.
    categories : mapping of str to sequence
        All values that each variable could take. They are public, so they are not taken from the data. The variables
        are the candidates; at most 200, and no two with more than a million cells together.
    share : float, default 0.25
        The part of the guarantee that the structure takes: of the budget, or for `ApproxDP` its root of epsilon. With 1
        it takes all, and what follows is paid by a ledger.
    root : str, optional
        A variable that gets no parents, such as a class. By default each part of the forest has its first variable, in
        the order of the categories, as its root. Arrows lead away from it, which changes no probability.
    counts : str, optional
        A column that says how many records each row of the records stands for.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one unit can change.
    unit, contribution : str and int, optional
        As in :func:`bayesian_network`.
    random_seed : int, SeedSequence, Generator or None, default None
        None takes entropy from the operating system. A seed makes the choice reproducible, hence **not private**.
    ledger : Ledger, optional
        The ledger that records what the structure costs, before any record is read.

    Returns
    -------
    structure : Structure
        A mapping of each variable to its parents, at most one each, with what it has cost.

    Raises
    ------
    ArgumentError
        If an argument is outside of its domain, there are too many variables, or nothing to choose.
    UnattainableError
        If no noise keeps the part of the guarantee.
    DataError
        If a record holds a value that was not declared, or a missing one.
    BudgetError, LedgerError
        If the ledger refuses it. Nothing was chosen then.

    Warns
    -----
    SeededReleaseWarning
        If `random_seed` is given.

    Notes
    -----
    Pairs of variables that depend on each other strongly are joined first. The choice ends when no pair is left that
    stands out of the noise, so with few records or a tight guarantee there may be few edges or none. Marginals of
    single variables are measured for the choice, and are not published. The number of records is not used, so it may be
    private. See :class:`~pymc_dirdp.mechanisms.choices.TreeMechanism`.

    A structure that was chosen from the records in any other way, such as by a search that looks at them, is not
    covered by any guarantee, and no function of this library can notice that.

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
    labels = _declared(categories, root=root)
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
    pairs = list(itertools.combinations(mechanism.variables, 2))
    families = [[names[i] for i in axes] for axes in (*((i,) for i in mechanism.variables), *pairs)]
    tables = sealed.read(
        lambda records: count_families(records, families, labels, otherwise={}, bound=bound, counts_column=counts),
        terms["entry"],
        None if terms["reproducible"] else (mechanism, tuple(names)),
    )
    alone = len(mechanism.variables)
    by_pair = dict(zip(pairs, tables[alone:], strict=True))
    edges = mechanism.release(tables[:alone], by_pair, random_seed=random_seed)
    parents = _directed(names, [(names[i], names[j]) for i, j in edges], root=root)
    return Structure(parents=parents, **terms)


def _declared(categories: Categories, *, root: str | None) -> dict[str, list[Any]]:
    """The labels of all variables; names that a network could not have are refused now, before anything is spent."""
    labels = checked_categories(list(categories) if isinstance(categories, Mapping) else [], categories)
    refuse_names(labels)
    for name, values in labels.items():
        refuse_labels(name, values)
    if root is not None:
        one_of(list(labels), root=root)
    return labels


def _directed(
    names: Sequence[str], edges: Sequence[tuple[str, str]], *, root: str | None
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The parents of each variable in a forest: arrows lead away from the first variable of each part."""
    parents: dict[str, tuple[str, ...]] = {}
    for start in [*([] if root is None else [root]), *names]:
        reached = [] if start in parents else [start]
        parents.setdefault(start, ())
        while reached:
            here = reached.pop()
            for pair in edges:
                if here in pair:
                    other = pair[pair[0] == here]
                    if other not in parents:
                        parents[other] = (here,)
                        reached.append(other)
    return tuple((name, parents[name]) for name in names)


# How much noise a structure is chosen with, so that it takes a stated share of a guarantee.


def part_of(guarantee: Guarantee, share: float) -> Guarantee:
    """The part of a guarantee that a structure may take.

    Budgets that add up are divided. An epsilon with a delta is divided by the root of the share, because losses of
    many choices add up like standard deviations.

    Raises
    ------
    ArgumentError
        If the share is not in (0, 1], or there is no epsilon to divide.
    """
    guarantee = Guarantee.checked(guarantee=guarantee)
    share = at_least(0, share=share)
    if not 0 < share <= 1:
        raise ArgumentError(f"Expected share in (0, 1], got share={share:g}.")
    if guarantee.budget == 0:
        raise ArgumentError("Expected a guarantee with an epsilon above 0: a structure cannot take a part of nothing.")
    return guarantee.with_budget(guarantee.budget * (share if guarantee.adds_up else math.sqrt(share)))


def tree_within(
    guarantee: Guarantee,
    lengths: Sequence[int],
    *,
    adjacency: AdjacencyName = "replace-one",
    contribution: int = 1,
    of_marginals: float = 0.3,
) -> TreeMechanism:
    """The mechanism with the least noise that satisfies a guarantee.

    Parameters
    ----------
    guarantee : Guarantee
        What the structure alone has to keep, of any kind.
    lengths, adjacency, contribution
        As for :class:`~pymc_dirdp.mechanisms.choices.TreeMechanism`.
    of_marginals : float, default 0.3
        The share of what the structure may lose that the marginals take; the choices take the rest.

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

    def mechanism(inverse: float) -> TreeMechanism:
        scale = 1 / inverse
        variables = sum(length > 1 for length in lengths)
        # Both scales are for one record; with more of them both sensitivities grow alike.
        choices = max(variables - 1, 1)
        width = min(2, choices) * relation.delta_1 / scale
        if guarantee.is_pure:
            noise, parameter = "geometric", relation.delta_1 * variables / (choices * width) * (1 / of_marginals - 1)
        else:
            spent = choices * width**2 / 8 / (1 / of_marginals - 1)
            noise, parameter = "gaussian", math.sqrt(variables * relation.delta_2_squared / (2 * spent))
        return TreeMechanism(tuple(lengths), scale, parameter, noise, adjacency=adjacency, contribution=contribution)

    mechanism(1.0)  # What is wrong with the lengths is no matter of the noise.

    def excess(inverse: float) -> float:
        try:
            return log_ratio_to_budget(*mechanism(inverse).loss(guarantee))
        except ArgumentError:
            # The noise is smaller or larger than any that can be drawn.
            return math.inf if inverse > 1 else -math.inf

    try:
        # The noise is the least that keeps the part of the guarantee, up to this share of it.
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
        the bins have cost until they are passed as `after=` to :func:`pymc_dirdp.plan`.
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
        If no choice satisfies the guarantee.
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
        raise ArgumentError(f"Expected unit to be another column than the one that is divided, got unit={unit!r}.")
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
    between = sealed.read(
        lambda frame: count_between(frame, name, edges, bound),
        terms["entry"],
        None if terms["reproducible"] else (mechanism, name, tuple(edges)),
    )
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
