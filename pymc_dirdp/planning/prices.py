"""The mechanism and the expected error for a guarantee and one table, and the guarantee for an error. No data.

Every function calls :func:`pymc_dirdp.planning.choosing.choose` with the same options and defaults as a plan of a
model, so the results agree bit for bit.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal, Unpack, final, overload, override

from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.checks import integer, one_of, positive, positive_array
from pymc_dirdp.display import TabularResult
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.literals import ErrorOf, MechanismName, options_of
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.numerics.roots import last_safe
from pymc_dirdp.planning.choosing import TableFacts, Terms, choose
from pymc_dirdp.planning.estimate_error import estimate_error
from pymc_dirdp.planning.expected_kl import a_priori_kl
from pymc_dirdp.planning.options import DrawPlanning, TableOptions, TablePlanning
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.signatures import user_facing


@overload
def calibrate(
    guarantee: Guarantee,
    *,
    prior: ArrayLike,
    n_records: int | None = None,
    mechanism: Literal["dirichlet"] | Dirichlet = "dirichlet",
    **options: Unpack[DrawPlanning],
) -> DirichletMechanism: ...
@overload
def calibrate(
    guarantee: Guarantee, *, prior: ArrayLike, n_records: int | None = None, **options: Unpack[TablePlanning]
) -> TableMechanism: ...
@user_facing
def calibrate(
    guarantee: Guarantee, *, prior: ArrayLike, n_records: int | None = None, **options: Unpack[TablePlanning]
) -> TableMechanism:
    """The mechanism that satisfies a guarantee for one table, and uses all of it.

    Parameters
    ----------
    guarantee : Guarantee
        The target. No Dirichlet draw satisfies `PureDP`, `ZeroCDP` or `omega=inf`; noise does.
    prior : array_like, shape (..., d)
        The model's own prior, positive.
    n_records : int, optional
        Total number of records, which `mechanism="dirichlet"` and `"auto"` need: the public N under replace-one, your
        guess under add-remove. It changes the guarantee only with `public=["n_records"]`.
    mechanism : str or settings, default "dirichlet"
        As in `plan(mechanism=...)`, such as ``dirdp.mechanisms.Dirichlet(strategy="temper")``; `"auto"` takes the one
        for which :func:`pymc_dirdp.estimate` has the smallest expected error.
    objective : {"posterior", "estimate"}, default "posterior"
        What `"optimal"` minimizes: `"posterior"` the divergence of the private posterior from the posterior, with `r <=
        1`, so that a loose guarantee returns the posterior unchanged; `"estimate"` the divergence of the draw from the
        data's frequencies (P1's measure).
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        The neighbouring relation.
    contribution : Contribution or int, default 1
        The contribution of one person to the table. An integer is the maximum number of records, anywhere in the table.
    public : iterable of str or bool, default ()
        Pass `["n_records"]` if `n_records` is the public number of records of every data set that could occur, as for a
        plan under replace-one. Noise may then add up to 0, and a table with one row of two categories loses less in a
        draw (Theory, Theorem 14).
    min_count : float, default 0.0
        The public guarantee that every cell of every data set that could occur has at least this many records.
    released_draws : int, default 1
        Number of draws that satisfy the guarantee together. Noise is released once for all of them.

    Returns
    -------
    mechanism : DirichletMechanism, or another TableMechanism
        All `released_draws` of it together satisfy the guarantee. If there is a boundary, the `r` of a Dirichlet draw
        is within 1e-9 relative of it, or within 1e-4 for `ZeroCDP`.

    Raises
    ------
    UnattainableError
        If no setting satisfies the guarantee. The error says which guarantees are attainable.
    ArgumentError
        If an argument is outside its domain, or `n_records` is needed and missing.

    References
    ----------
    Theory, section 2 to 5 and 8, P1 Algorithm 1, P2 section 4.1.

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP
    >>> guarantee = ApproxDP(epsilon=1, delta=1e-6)
    >>> calibrate(guarantee, prior=[1, 1, 1, 1], n_records=592).satisfies(guarantee)
    True
    >>> calibrate(guarantee, prior=[1, 1, 1, 1], n_records=592, public=["n_records"], mechanism="auto")
    ZeroSumGeometricMechanism(...)
    """
    records = None if n_records is None else integer(0, n_records=n_records)
    return chosen_for(guarantee, positive_array(prior=prior), records, TableOptions(**options))


def chosen_for(guarantee: Guarantee, prior: Array, n_records: int | None, options: TableOptions) -> TableMechanism:
    """The mechanism that :func:`~pymc_dirdp.planning.choosing.choose` takes for one table."""
    facts = TableFacts(prior, n_records, options.contribution)
    terms = Terms.of(options, groups=[("table",)], public_totals=options.is_public)
    mechanisms, _ = choose(guarantee, {"table": facts}, terms, mechanism=options.kind)
    return mechanisms["table"]


@user_facing
def expected_error(
    guarantee: Guarantee,
    *,
    prior: ArrayLike,
    n_records: int,
    of: ErrorOf = "draw",
    **options: Unpack[TablePlanning],
) -> float:
    """The expected error at a guarantee, in nats, before any data are seen.

    Parameters
    ----------
    guarantee : Guarantee
        The guarantee of the table.
    prior : array_like, shape (..., d)
        The model's own prior, positive.
    n_records : int
        Total number of records, at least 1.
    of : {"draw", "estimate"}, default "draw"
        `"draw"` is the error of one draw as the answer, as in the papers: with the objective `"posterior"` the
        divergence of the private posterior from the posterior, summed over rows, and with `"estimate"` that of the draw
        from the frequencies, averaged over rows. Noisy counts are clipped, smoothed and treated as the data.
        `"estimate"` is the error of :func:`pymc_dirdp.estimate`: the divergence of the estimated from the true shares,
        averaged over rows. `plan(mechanism="auto")` minimizes it, and you should judge noise by it. It is simulated, to
        a few per cent, and takes up to half a second.
    **options
        As for :func:`pymc_dirdp.calibrate`, which chooses the mechanism.

    Returns
    -------
    error : float
        `inf` if the mechanism cannot satisfy the guarantee.

    References
    ----------
    Theory, section 8.

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP
    >>> guarantee = ApproxDP(epsilon=1.0, delta=1e-6)
    >>> round(expected_error(guarantee, prior=[1, 1, 1, 1], n_records=592, objective="estimate"), 4)
    0.0129
    >>> noise = {"mechanism": "geometric", "of": "estimate", "public": ["n_records"]}
    >>> round(expected_error(guarantee, prior=[1, 1, 1, 1], n_records=592, **noise), 4)
    0.0027
    """
    return _expected_kl(prior, n_records, of, TableOptions(**options))(guarantee)


@user_facing
def least_guarantee(
    kl: float,
    like: Guarantee,
    *,
    prior: ArrayLike,
    n_records: int,
    of: ErrorOf = "draw",
    **options: Unpack[TablePlanning],
) -> Guarantee:
    """The tightest guarantee at which the expected error is at most `kl`.

    Parameters
    ----------
    kl : float
        Target in nats, positive.
    like : Guarantee
        A guarantee of the kind to find, with its delta, order, or omega. Its epsilon or rho is ignored.
    prior, n_records, of, **options
        As for :func:`expected_error`.

    Returns
    -------
    guarantee : Guarantee
        A guarantee like `like`, with the least epsilon or rho, within 1e-5 relative, or within 1e-3 for an estimate.

    Raises
    ------
    UnattainableError
        If no guarantee reaches the target.

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP
    >>> least_guarantee(0.01, ApproxDP(epsilon=1, delta=1e-6), prior=[1, 1, 1, 1], n_records=592, objective="estimate")
    ApproxDP(epsilon=1.25..., delta=1e-06)
    """
    kl, name = positive(kl=kl), Guarantee.checked(guarantee=like).budget_name
    chosen = TableOptions(**options)
    error = _expected_kl(prior, n_records, of, chosen)

    def excess(amount: float) -> float:
        reached = error(like.with_budget(amount))
        return math.log(reached / kl) if reached > 0 else -math.inf

    # Above this budget a guarantee is not private. The expected error of simulated noise is known to about a per cent,
    # that of Dirichlet draws to nine digits.
    amount = last_safe(
        excess,
        factor=0.5,
        least=1e-9,
        most=1e6,
        rtol=1e-6 if of == "draw" else 1e-4,
        tight=f"An expected KL of {kl:g} nats is out of reach with mechanism={chosen.mechanism!r} and "
        f"n_records={n_records} for any {name}. Raise kl or n_records, or pass another mechanism or objective.",
        loose=f"An expected KL of {kl:g} nats needs almost no information: every {name} reaches it.",
    )
    return like.with_budget(amount)


@user_facing
def least_records(
    kl: float,
    guarantee: Guarantee,
    *,
    prior: ArrayLike,
    of: ErrorOf = "draw",
    **options: Unpack[TablePlanning],
) -> int:
    """The number of records from which on the expected error at a guarantee is at most `kl`.

    Parameters
    ----------
    kl : float
        Target in nats, positive.
    guarantee : Guarantee
        The guarantee of the table.
    prior, of, **options
        As for :func:`expected_error`.

    Returns
    -------
    n_records : int
        Found by doubling and bisection, within 1 per cent, or a few per cent for an estimate. Rows of a table are
        assumed to hold an equal share.

    Raises
    ------
    UnattainableError
        If no number of records up to 2**40 reaches the target.

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP
    >>> least_records(0.02, ApproxDP(epsilon=1.0, delta=1e-6), prior=[1, 1, 1, 1], objective="estimate")
    408
    """
    kl, rows = positive(kl=kl), math.prod(positive_array(prior=prior).shape[:-1])
    chosen = TableOptions(**options)

    def error(n: int) -> float:
        return _expected_kl(prior, n, of, chosen)(guarantee)

    high = rows
    while (reached := error(high)) > kl:
        high *= 2
        # Whether a guarantee is attainable at all does not depend on the number of records.
        if high > 2**40 or math.isinf(reached):
            raise UnattainableError(
                f"An expected KL of {kl:g} nats is out of reach at {guarantee} with "
                f"mechanism={chosen.mechanism!r}, for any number of records. Raise kl or loosen the guarantee."
            )
    low = high // 2
    while high - low > max(rows, high // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if error(middle) <= kl else (middle, high)
    return high


@final
@dataclass(frozen=True, repr=False)
class Frontier(TabularResult):
    """Expected errors of several mechanisms over a grid of guarantees.

    `print` it, let a notebook show it, or take `frame()`.

    Attributes
    ----------
    guarantees : tuple of Guarantee
    expected_kl : dict of str to tuple of float
        For each mechanism the expected error at each guarantee, in nats; `inf` where it cannot satisfy it.
    measure : str
        The divergence that is the error, in words.
    n_records : int

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP, privacy_utility
    >>> grid = [ApproxDP(epsilon=e, delta=1e-6) for e in (0.5, 1.0)]
    >>> found = privacy_utility(grid, prior=[1, 1], n_records=100, mechanisms=["dirichlet"])
    >>> found.frame().shape
    (2, 1)
    """

    guarantees: tuple[Guarantee, ...]
    expected_kl: dict[str, tuple[float, ...]]
    measure: str
    n_records: int

    @property
    def amounts(self) -> tuple[float, ...]:
        """The epsilon or rho of each guarantee."""
        return tuple(guarantee.budget for guarantee in self.guarantees)

    @override
    def _parts(self) -> tuple[list[str], list[dict[str, Any]], list[str]]:
        columns = {"guarantee": map(str, self.guarantees)} | self.expected_kl
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        return [f"expected KL of {self.measure}, {self.n_records} records; a priori"], rows, []


@user_facing
def privacy_utility(
    guarantees: Iterable[Guarantee],
    *,
    prior: ArrayLike,
    n_records: int,
    mechanisms: Iterable[MechanismName | Dirichlet] = ("dirichlet", "gaussian", "geometric"),
    of: ErrorOf = "draw",
    **options: Unpack[TablePlanning],
) -> Frontier:
    """Expected errors of several mechanisms over a grid of guarantees.

    Parameters
    ----------
    guarantees : iterable of Guarantee
        At least one guarantee; for a plot, all of one kind.
    mechanisms : iterable of str or settings
        As for :func:`expected_error`. Their names, or their settings as printed, are the names of the columns.
    prior, n_records, of, **options
        As for :func:`expected_error`, without `mechanism`.

    Returns
    -------
    frontier : Frontier
        The errors are public, because they use no data.

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP
    >>> grid = [ApproxDP(epsilon=e, delta=1e-6) for e in (0.5, 1.0)]
    >>> found = privacy_utility(grid, prior=[1, 1, 1, 1], n_records=592, mechanisms=["dirichlet"], objective="estimate")
    >>> [round(kl, 4) for kl in found.expected_kl["dirichlet"]]
    [0.0269, 0.0129]
    """
    grid = tuple(guarantees)
    if not grid:
        raise ArgumentError("Expected at least one guarantee.")
    if "mechanism" in options:
        raise ArgumentError("Expected mechanisms=, a sequence of names, instead of mechanism=.")
    chosen = TableOptions(**options)
    columns = {}
    for mechanism in mechanisms:
        error = _expected_kl(prior, n_records, of, replace(chosen, mechanism=mechanism))
        columns[str(mechanism)] = tuple(map(error, grid))
    # The divergence, by `of` and by the objective of a draw.
    measures = {
        ("draw", "posterior"): "the private posterior from the posterior",
        ("draw", "estimate"): "one draw from the frequencies",
    }
    return Frontier(grid, columns, measures.get((of, chosen.objective), "the estimate from the shares"), int(n_records))


def _expected_kl(prior: ArrayLike, n_records: int, of: str, chosen: TableOptions) -> Callable[[Guarantee], float]:
    """The expected error as a function of the guarantee; `inf` where it is not attainable."""
    parameters, n_records = positive_array(prior=prior), integer(1, n_records=n_records)
    one_of(options_of(ErrorOf), of=of)

    def error(guarantee: Guarantee) -> float:
        try:
            mechanism = chosen_for(guarantee, parameters, n_records, chosen)
        except UnattainableError:
            return math.inf
        if of == "estimate":
            estimated = estimate_error(
                mechanism, parameters, n_records, public=chosen.is_public, draws=chosen.released_draws
            )
            if estimated is None:
                raise ArgumentError(
                    f"Pass of='draw': the error of an estimate is not known for mechanism={chosen.mechanism!r}."
                )
            return estimated.kl
        return float(getattr(a_priori_kl(mechanism, parameters, n_records), chosen.objective))

    return error
