"""Comparisons, without data, of all mechanisms that satisfy a guarantee."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Unpack, final, override

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import integer, positive_array
from pymc_dirdp.display import TabularResult
from pymc_dirdp.errors import ArgumentError, UnattainableError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.noisy_counts import POSTPROCESSES, frequencies
from pymc_dirdp.mechanisms.outputs import Draws
from pymc_dirdp.mechanisms.registry import Dirichlet, noises
from pymc_dirdp.mechanisms.table import TableMechanism
from pymc_dirdp.planning.expected_kl import ExpectedKL, a_priori_kl, predicted_data
from pymc_dirdp.planning.options import TableOptions, TablePlanning
from pymc_dirdp.planning.prices import chosen_for
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.progress import Bar
from pymc_dirdp.sampling.fast import dirichlet
from pymc_dirdp.signatures import user_facing


@final
@dataclass(frozen=True)
class Score:
    """Expected errors of one mechanism for data sets from the model's own prior predictive distribution.

    Attributes
    ----------
    mechanism : str
        Name of the mechanism, with its calibration or post-processing.
    parameters : str
        Its public parameters.
    kl_posterior : float
        Expected divergence of the private posterior from the posterior, in nats, summed over rows.
    kl_draw : float
        Expected divergence of one private posterior draw from the data's frequencies, in nats, averaged over rows.
    kl_estimate : float
        Expected divergence of the released estimate from the data's frequencies. The estimate is the draw if a draw is
        released, and otherwise the noisy frequencies.
    l_inf, hellinger : float
        Expected largest error of a frequency, and expected Hellinger distance of frequencies, averaged over rows.
    pure : bool
        Whether it also satisfies pure differential privacy.
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
class Comparison(TabularResult):
    """Scores of all mechanisms that can satisfy one guarantee. `print` it, let a notebook show it, or take `frame()`.

    Attributes
    ----------
    guarantee : Guarantee
        The guarantee of each mechanism.
    adjacency : str
        The neighbouring relation.
    scores : tuple of Score
        One score for each mechanism, in the order in which they were tried.
    baseline : Score
        The score of the posterior itself, which is not private.
    unattainable : tuple of str
        The mechanisms that cannot satisfy the guarantee.

    Examples
    --------
    >>> from pymc_dirdp import PureDP, compare
    >>> found = compare(PureDP(epsilon=1.0), prior=[1, 1], n_records=100, simulations=50, public=["n_records"])
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
        The guarantee that each mechanism has to satisfy, for one table.
    prior : array_like, shape (..., d)
        The model's own prior, positive. Data sets are simulated from it.
    n_records : int
        Total number of records, at least one for each row. Rows hold an equal share.
    simulations : int, default 1000
        Number of simulated data sets for the distances of frequencies. All mechanisms get the same ones. These scores
        have a Monte Carlo error of a few per cent.
    progressbar : bool, default True
        Whether to show a progress bar, if the mechanisms take over a second.
    **options
        `adjacency`, `contribution`, `public`, `min_count` and `released_draws`, as for :func:`pymc_dirdp.calibrate`.
        Noise adds up to 0 if `public=["n_records"]` declares the number of records public.

    Returns
    -------
    comparison : Comparison
        The scores are public, because they use no data.

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
        raise ArgumentError(f"compare tries all mechanisms with all settings, so leave {min(varied)}= out.")
    parameters, table_options = positive_array(prior=prior), TableOptions(**options)
    n_rows = math.prod(parameters.shape[:-1])
    size = max(1, round(integer(n_rows, n_records=n_records) / n_rows))
    data = predicted_data(parameters, size * n_rows, integer(1, simulations=simulations))
    scores, unattainable = [], []

    def scored(name: str, mechanism: Mechanism) -> Score:
        shares = published_shares(mechanism, parameters, data, np.random.default_rng(20261122))
        return _score(name, mechanism, a_priori_kl(mechanism, parameters, int(n_records)), data, shares)

    candidates = [*_of_plans(Guarantee.checked(guarantee=guarantee), parameters, int(n_records), table_options)]
    with Bar(len(candidates), "mechanisms", shown=progressbar) as bar:
        for name, calibrated in candidates:
            try:
                scores.append(scored(name, calibrated()))
            except UnattainableError:
                unattainable.append(name)
            bar.advance()
    baseline = scored("posterior, not private", DirichletMechanism(parameters, 1.0))
    return Comparison(guarantee, table_options.adjacency, tuple(scores), baseline, tuple(unattainable))


def _of_plans(
    guarantee: Guarantee, prior: Array, n_records: int, table_options: TableOptions
) -> Iterator[tuple[str, Callable[[], Mechanism]]]:
    """Names of mechanisms, and functions that calibrate them as a plan does."""

    def chosen(**changes: Any) -> TableMechanism:
        return chosen_for(guarantee, prior, n_records, replace(table_options, **changes))

    def read_as(kind: str, reading: str) -> TableMechanism:
        return replace(chosen(mechanism=kind), postprocess=reading)  # type: ignore[type-var]  # each is a dataclass

    dirichlets: dict[str, dict[str, Any]] = {
        "Dirichlet, optimal for the posterior": {"objective": "posterior"},
        "Dirichlet, optimal for the estimate": {"objective": "estimate"},
        "Dirichlet, temper": {"mechanism": Dirichlet(strategy="temper")},
        "Dirichlet, algorithm-1": {"mechanism": Dirichlet(strategy="algorithm-1")},
    }
    for name, changes in dirichlets.items():
        yield name, partial(chosen, **changes)
    for kind in noises(public_totals=table_options.is_public):
        for how in POSTPROCESSES:
            yield f"{kind.capitalize()}, {how}", partial(read_as, kind, how)


def published_shares(mechanism: Mechanism, prior: Array, data: Integers, rng: np.random.Generator) -> Array:
    """Private draws of the shares of many tables, in their shape; for noise, frequencies of released counts."""
    parameters = mechanism.posterior_parameters(data, rng)
    return dirichlet(parameters, 1, rng)[0] if mechanism.output_kind is Draws else frequencies(parameters - prior)


def _score(name: str, mechanism: Mechanism, expected: ExpectedKL, data: Integers, shares: Array) -> Score:
    kl, l_inf, hellinger = _distances(data / data.sum(axis=-1, keepdims=True), shares)
    pure, rest = math.isfinite(mechanism.pure_epsilon), (l_inf, hellinger)
    # If the release is a draw, the divergence is that of the draw.
    kl_estimate = expected.estimate if mechanism.output_kind is Draws else kl
    return Score(name, mechanism.summary, expected.posterior, expected.estimate, kl_estimate, *rest, pure)


def _distances(p: Array, q: Array) -> tuple[float, float, float]:
    """Divergence of q from p, l-infinity and Hellinger distance, averaged over rows and data sets."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log(p / q), 0.0)
    affinity = np.minimum(np.sqrt(p * q).sum(axis=-1), 1.0)
    return float(terms.sum(-1).mean()), float(np.abs(p - q).max(-1).mean()), float(np.sqrt(1 - affinity).mean())
