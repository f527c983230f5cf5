"""Comparisons without data: of all mechanisms that keep a guarantee, and with the least error that any can have."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Unpack, final, override

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaln, entr

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import integer, positive_array
from pymc_dirdp.display import Tabular
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.noisy_counts import POSTPROCESSES
from pymc_dirdp.mechanisms.outputs import Draws
from pymc_dirdp.mechanisms.registry import Dirichlet, noises
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.planning.expected_kl import ExpectedKL, a_priori_kl, predicted_data
from pymc_dirdp.planning.options import TableOptions, TablePlanning
from pymc_dirdp.planning.prices import chosen_for
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.progress import Bar
from pymc_dirdp.signatures import user_facing

__all__ = ["Comparison", "Score", "compare", "optimal_error"]


@final
@dataclass(frozen=True)
class Score:
    """What one mechanism would do to data sets from the model's own prior predictive distribution.

    Attributes
    ----------
    mechanism : str
        Which, and how it was calibrated or post-processed.
    parameters : str
        Its public numbers.
    kl_posterior : float
        Expected divergence of the private posterior from the posterior, in nats, summed over rows.
    kl_draw : float
        Expected divergence of one private posterior draw from the data's frequencies, in nats, averaged over rows.
    kl_estimate : float
        Expected divergence of the released estimate from the data's frequencies: of a draw where that is the release,
        and of the noisy frequencies of the others.
    l_inf, hellinger : float
        Expected largest error of a frequency, and expected Hellinger distance of frequencies, averaged over rows.
    pure : bool
        Whether it also keeps pure differential privacy.
    """

    mechanism: str
    parameters: str
    kl_posterior: float
    kl_draw: float
    kl_estimate: float
    l_inf: float
    hellinger: float
    pure: bool


@final
@dataclass(frozen=True, repr=False)
class Comparison(Tabular):
    """Scores of all mechanisms that can keep one guarantee. `print` it, let a notebook show it, or take `frame()`.

    Attributes
    ----------
    guarantee : Guarantee
        What each of them guarantees.
    adjacency : str
        What one person can change.
    scores : tuple of Score
        One for each mechanism, in the order in which they were tried.
    baseline : Score
        The score of the posterior itself, which is not private.
    unattainable : tuple of str
        The mechanisms that cannot keep the guarantee.

    Examples
    --------
    >>> from pymc_dirdp import PureDP, compare
    >>> found = compare(PureDP(epsilon=1.0), prior=[1, 1], n_records=100, simulations=50, public_totals=True)
    >>> found.scores[-1].mechanism, found.scores[-1].pure
    ('Geometric, project', True)
    """

    guarantee: Guarantee
    adjacency: str
    scores: tuple[Score, ...]
    baseline: Score
    unattainable: tuple[str, ...]

    _columns = ("mechanism", "kl_posterior", "kl_draw", "kl_estimate")

    @override
    def _parts(self) -> tuple[list[str], list[dict[str, Any]], list[str]]:
        notes = ["KL in nats; frame() also has the parameters, l_inf, hellinger and pure"]
        notes += [f"not attainable: {', '.join(self.unattainable)}"] if self.unattainable else []
        title = f"{self.guarantee}, {self.adjacency}; a priori, without data"
        return [title], [asdict(score) for score in (*self.scores, self.baseline)], notes


@user_facing
def compare(
    guarantee: Guarantee,
    *,
    prior: ArrayLike,
    n_records: int,
    simulations: int = 1000,
    progressbar: bool = True,
    **options: Unpack[TablePlanning],
) -> Comparison:
    """Calibrate every mechanism for the same guarantee, and simulate how accurate each would be.

    Parameters
    ----------
    guarantee : Guarantee
        What each mechanism has to keep, for one table.
    prior : array_like, shape (..., d)
        The model's own prior, positive. Data sets are simulated from it.
    n_records : int
        Number of records in all, at least one for each row; rows hold an equal share.
    simulations : int, default 1000
        Number of simulated data sets for the distances of frequencies. All mechanisms see the same ones; such a score
        has a Monte Carlo error of a few per cent.
    progressbar : bool, default True
        Whether to count the mechanisms in a bar, if they take over a second.
    **options
        `adjacency`, `contribution`, `public_totals`, `min_count` and `draws`, as for :func:`pymc_dirdp.calibrate`.
        Noise adds up to 0 where `public_totals` says that the number of records is public.

    Returns
    -------
    comparison : Comparison
        Public: it uses no data.

    References
    ----------
    Theory, section 8 and 9.

    Examples
    --------
    >>> from pymc_dirdp import PureDP
    >>> found = compare(PureDP(epsilon=1.0), prior=[1, 1, 1, 1], n_records=100, simulations=50)
    >>> list(found.frame().columns)[:2]
    ['parameters', 'kl_posterior']
    """
    if varied := {"mechanism", "objective"} & set(options):
        raise ArgumentError(f"compare tries all mechanisms in all settings, so leave {min(varied)}= out.")
    parameters, wanted = positive_array(prior=prior), TableOptions(**options)
    n_rows = math.prod(parameters.shape[:-1])
    size = max(1, round(integer(n_rows, n_records=n_records) / n_rows))
    data = predicted_data(parameters, size * n_rows, integer(1, simulations=simulations))
    scores, unattainable = [], []

    def scored(name: str, mechanism: Mechanism) -> Score:
        return _score(name, mechanism, a_priori_kl(mechanism, parameters, int(n_records)), data)

    candidates = [*_of_plans(Guarantee.checked(guarantee=guarantee), parameters, int(n_records), wanted)]
    with Bar(len(candidates), "mechanisms", shown=progressbar) as bar:
        for name, calibrated in candidates:
            try:
                scores.append(scored(name, calibrated()))
            except UnattainableError:
                unattainable.append(name)
            bar.advance()
    baseline = scored("posterior, not private", DirichletMechanism(parameters, 1.0))
    return Comparison(guarantee, wanted.adjacency, tuple(scores), baseline, tuple(unattainable))


def _of_plans(
    guarantee: Guarantee, prior: Array, n_records: int, wanted: TableOptions
) -> Iterator[tuple[str, Callable[[], Mechanism]]]:
    """Names, and functions that calibrate the mechanisms, as a plan does."""

    def chosen(**changes: Any) -> TableMechanism:
        return chosen_for(guarantee, prior, n_records, replace(wanted, **changes))

    def read_as(kind: str, how: str) -> TableMechanism:
        return replace(chosen(mechanism=kind), postprocess=how)  # type: ignore[type-var]  # each is a dataclass

    dirichlets: dict[str, dict[str, Any]] = {
        "Dirichlet, optimal for the posterior": {"objective": "posterior"},
        "Dirichlet, optimal for the estimate": {"objective": "estimate"},
        "Dirichlet, temper": {"mechanism": Dirichlet(strategy="temper")},
        "Dirichlet, algorithm-1": {"mechanism": Dirichlet(strategy="algorithm-1")},
    }
    for name, changes in dirichlets.items():
        yield name, partial(chosen, **changes)
    for kind in noises(public_totals=wanted.is_public):
        for how in POSTPROCESSES:
            yield f"{kind.capitalize()}, {how}", partial(read_as, kind, how)


def _score(name: str, mechanism: Mechanism, expected: ExpectedKL, data: Integers) -> Score:
    p = data / data.sum(axis=-1, keepdims=True)
    kl, l_inf, hellinger = _distances(p, mechanism.published_shares(data, np.random.default_rng(20261122)))
    pure, rest = math.isfinite(mechanism.pure_epsilon), (l_inf, hellinger)
    # Of a draw that is the release the divergence is that of the draw.
    kl_estimate = expected.estimate if mechanism.output_kind is Draws else kl
    return Score(name, mechanism.in_short, expected.posterior, expected.estimate, kl_estimate, *rest, pure)


def _distances(p: Array, q: Array) -> tuple[float, float, float]:
    """Divergence of q from p, l-infinity and Hellinger distance, averaged over rows and data sets."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log(p / q), 0.0)
    affinity = np.minimum(np.sqrt(p * q).sum(axis=-1), 1.0)
    return float(terms.sum(-1).mean()), float(np.abs(p - q).max(-1).mean()), float(np.sqrt(1 - affinity).mean())


# A programme for so many records takes up to a minute, and its time grows with their fourth power.
_MOST_RECORDS = 100
# The search ends where a mechanism is known that errs so little more, relative or in nats.
_RTOL, _ATOL = 1e-5, 1e-12
_ROUNDS = 30
# Estimates that are closer to one another than this are taken for one; in units of `arcsin(sqrt(y))`.
_CLOSE = 1e-6
# How far the solver may be from what is asked for.
_TOLERANCE = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}


@user_facing
def optimal_error(guarantee: Guarantee, *, prior: ArrayLike, n_records: int) -> float:
    """The least expected divergence that any mechanism reaches, for one table of two cells and a public size.

    The divergence is `KL(x/N || y)`, of the output from the frequencies in the data, averaged over data sets that
    the prior predicts: the measure of :func:`pymc_dirdp.expected_error` with `objective="estimate"`. Two data sets of
    `n_records` records are neighbours if one record differs.

    Parameters
    ----------
    guarantee : PureDP or ApproxDP
        What the mechanism has to keep. Bounds on Rényi divergences are no linear constraints.
    prior : array_like, shape (2,)
        The model's own prior, positive.
    n_records : int
        The public number of records, from 1 to 100. The programme takes a second for 40 records, and up to a minute
        for 100.

    Returns
    -------
    error : float
        In nats. No mechanism errs less, and one errs at most 1e-5 more, relative, or 1e-12 nats; the solver adds a
        rounding error of the same size.

    Raises
    ------
    ArgumentError
        If an argument is outside its domain.

    Notes
    -----
    The best output is the expected frequency given all that is released. If it is `m`, its expected divergence is the
    entropy of `m` less the expected entropy of the frequencies. The entropy is concave, so it is at least the least of
    its chords between any points, and with chords in its place the least error is that of a linear programme. What
    solves it is a mechanism, whose own error is an upper bound. Its outputs become further points, until both agree.

    References
    ----------
    Ghosh, Roughgarden and Sundararajan (2012), Universally utility-maximizing privacy mechanisms,
    https://doi.org/10.1137/09076828X: for `PureDP` geometric noise is the optimum of every error that grows with the
    distance of counts. It was that of this divergence, too, wherever both were computed.

    Examples
    --------
    >>> from pymc_dirdp import PureDP
    >>> round(optimal_error(PureDP(epsilon=1.0), prior=[1, 1], n_records=10), 6)
    0.048812
    """
    parameters = positive_array(prior=prior)
    delta = Guarantee.checked(guarantee=guarantee).stated_delta
    if delta is None:
        raise ArgumentError(
            "The optimum is computed for PureDP and ApproxDP. That of an (epsilon, delta) which follows from your "
            "guarantee is a lower bound: dirdp.privacy.convert(guarantee, dirdp.ApproxDP, delta=1e-6)."
        )
    if parameters.shape != (2,):
        raise ArgumentError(f"The optimum is computed for a prior of shape (2,), got shape {parameters.shape}.")
    n = integer(1, n_records=n_records)
    if n > _MOST_RECORDS:
        raise ArgumentError(
            f"The optimum is computed for up to {_MOST_RECORDS} records. Take fewer; or mechanism='geometric' with "
            "dirdp.estimate, which for PureDP reached it wherever it was computed."
        )
    weights, size = _predicted(parameters, n), 1.0
    points = np.linspace(0, math.pi / 2, 2 * n + 3)
    for _ in range(_ROUNDS):
        lower, joint = _programme(weights, points, math.exp(-guarantee.budget), delta, size)
        mass = joint.sum(axis=0)
        seen = mass > _ATOL
        means = np.clip((np.arange(n + 1) / n @ joint)[seen] / mass[seen], 0, 1)
        upper = float(mass[seen] @ _entropy(means) - weights @ _entropy(np.arange(n + 1) / n))
        if upper - lower <= _RTOL * upper + _ATOL:
            break
        points, size = _with(points, np.arcsin(np.sqrt(means))), max(upper, _ATOL)
    return max(lower, 0.0)


def _predicted(prior: Array, n: int) -> Array:
    """Probabilities of the counts 0, ..., n of the first cell: Beta-binomial."""
    x = np.arange(n + 1)
    logs = betaln(x + prior[0], n - x + prior[1]) - betaln(x + 1, n - x + 1)
    mass = np.exp(logs - logs.max())
    return np.asarray(mass / mass.sum())


def _entropy(share: Array) -> Array:
    return np.asarray(entr(share) + entr(1 - share))


def _with(points: Array, found: Array) -> Array:
    """The points with those that were found, in place of the points that are close to them."""
    found = np.unique(found[(found > _CLOSE) & (found < math.pi / 2 - _CLOSE)])
    found = found[np.diff(found, prepend=0.0) > _CLOSE]
    far = [point for point in points[1:-1] if np.abs(found - point).min(initial=math.inf) > _CLOSE]
    return np.concatenate([[0.0], np.sort([*found, *far]), [math.pi / 2]])


def _programme(weights: Array, points: Array, ratio: float, delta: float, size: float) -> tuple[float, Array]:
    """The least error with chords between the points, and the joint table of count and chord, shape (n + 1, chords).

    Parameters
    ----------
    weights : array, shape (n + 1,)
        Probabilities of the counts.
    points : array
        `arcsin(sqrt(y))` of the ends of the chords, rising from 0 to `pi / 2`.
    ratio : float
        `exp(-epsilon)`.
    delta : float
    size : float
        About how large the error is, so that the solver works with numbers near 1.
    """
    from scipy import sparse  # Here, because it takes half a second to import.
    from scipy.optimize import linprog

    n, share = len(weights) - 1, np.sin(points) ** 2
    entropy = _entropy(share)
    slopes = np.diff(entropy) / np.diff(share)
    frequencies = np.arange(n + 1)[:, None] / n
    # The cost of an output is a chord at the frequency, less the entropy of the frequency, which no output changes.
    cost = weights[:, None] * (entropy[:-1] + slopes * (frequencies - share[:-1]) - _entropy(frequencies))
    chords, neighbours = len(slopes), 2 * n
    one, next_one = (sparse.diags_array(np.ones(n), offsets=k, shape=(n, n + 1)) for k in (0, 1))
    # Two neighbours p, q in both orders: ratio * p <= q + ratio * delta * excess, where the excesses add up to 1.
    each = sparse.eye_array(chords)
    exceeding = sparse.kron(sparse.vstack([ratio * one - next_one, ratio * next_one - one]), each)
    adding = sparse.kron(sparse.eye_array(neighbours), np.ones((1, chords)))
    none = sparse.csr_array((neighbours, cost.size))
    slack = -ratio * delta * sparse.eye_array(neighbours * chords)
    sums_to_one = sparse.kron(sparse.eye_array(n + 1), np.ones((1, chords)))
    found = linprog(
        np.concatenate([cost.ravel() / size, np.zeros(neighbours * chords)]),
        A_ub=sparse.vstack([sparse.hstack([exceeding, slack]), sparse.hstack([none, adding])]).tocsr(),
        b_ub=np.concatenate([np.zeros(neighbours * chords), np.ones(neighbours)]),
        A_eq=sparse.hstack([sums_to_one, sparse.csr_array((n + 1, neighbours * chords))]).tocsr(),
        b_eq=np.ones(n + 1),
        method="highs-ds",
        options=_TOLERANCE,
    )
    if found.x is None:
        raise ArgumentError(
            f"The linear programme for {n} records has no result. Take fewer records, or a less extreme prior. "
            f"The solver says: {found.message}"
        )
    return float(found.fun) * size, weights[:, None] * found.x[: cost.size].reshape(cost.shape)
