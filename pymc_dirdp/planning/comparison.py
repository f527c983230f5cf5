"""A comparison of all mechanisms that can keep one promise, by their expected errors. No data are used."""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, final, override

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.checks import integer, positive_array
from pymc_dirdp.display import Tabular
from pymc_dirdp.errors import UnattainableError
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
from pymc_dirdp.mechanisms.known import noises
from pymc_dirdp.mechanisms.noisy_counts import POSTPROCESSES
from pymc_dirdp.papers.hellinger import HellingerMechanism
from pymc_dirdp.papers.hellinger_laws import number_of_tables
from pymc_dirdp.papers.truncated_noise import TruncatedNoiseMechanism
from pymc_dirdp.planning.calibration import calibrate
from pymc_dirdp.planning.expected_kl import predicted_data, simulated_kl
from pymc_dirdp.planning.floored import calibrate_floored
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import adjacency_named
from pymc_dirdp.progress import Bar

__all__ = ["Comparison", "Score", "compare"]

# Up to so many posteriors the Hellinger mechanism is calibrated exactly, which takes about a second.
_MOST_EXACT = 1_200


@final
@dataclass(frozen=True)
class Score:
    """What one mechanism would do to data sets from the model's own prior predictive law.

    Attributes
    ----------
    mechanism : str
        Which, and how it was calibrated or post-processed.
    parameters : str
        Its public numbers.
    kl_posterior : float or None
        Expected divergence of the private posterior from the posterior, in nats, summed over rows; None for the floored
        draw, of which it is not known.
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
    kl_posterior: float | None
    kl_draw: float
    kl_estimate: float
    l_inf: float
    hellinger: float
    pure: bool


@final
@dataclass(frozen=True)
class Comparison(Tabular):
    """Scores of all mechanisms that can keep one guarantee. `print` it, let a notebook show it, or take `frame()`.

    Attributes
    ----------
    guarantee : Guarantee
        What each of them promises.
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
    >>> found = compare(PureDP(epsilon=1.0), prior=[1, 1], n_records=100, simulations=50)
    >>> found.scores[-1].mechanism, found.scores[-1].pure
    ('Hellinger, global', True)
    """

    guarantee: Guarantee
    adjacency: str
    scores: tuple[Score, ...]
    baseline: Score
    unattainable: tuple[str, ...]

    @override
    def _told(self) -> tuple[list[str], list[dict[str, Any]], list[str]]:
        notes = [f"not attainable: {', '.join(self.unattainable)}"] if self.unattainable else []
        title = f"{self.guarantee}, {self.adjacency}; a priori, without data"
        return [title], [asdict(score) for score in (*self.scores, self.baseline)], notes


def compare(
    guarantee: Guarantee,
    *,
    prior: ArrayLike,
    n_records: int,
    adjacency: str = "replace-one",
    simulations: int = 1000,
    progressbar: bool = True,
) -> Comparison:
    """Calibrate every mechanism for the same guarantee, and simulate how accurate each would be.

    Parameters
    ----------
    guarantee : Guarantee
        What each mechanism has to promise, for one table.
    prior : array_like, shape (..., d)
        The model's own prior, positive. Data sets are simulated from it.
    n_records : int
        Number of records in all, at least one for each row; rows hold an equal share.
    adjacency : {"replace-one", "add-remove"}, default "replace-one"
        What one person can change.
    simulations : int, default 1000
        Number of simulated data sets. All mechanisms see the same ones; a score has a Monte Carlo error of a few
        per cent.
    progressbar : bool, default True
        Whether to count the mechanisms in a bar, if they take over a second.

    Returns
    -------
    comparison : Comparison
        Public: it uses no data.

    References
    ----------
    Theory, section 8 and 9.

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP
    >>> found = compare(ApproxDP(epsilon=1.0, delta=1e-6), prior=[1, 1, 1, 1], n_records=592, simulations=50)
    >>> list(found.frame().columns)[:2]
    ['parameters', 'kl_posterior']
    """
    parameters = positive_array(prior=prior)
    relation = adjacency_named(adjacency)
    n_rows = math.prod(parameters.shape[:-1])
    size = max(1, round(integer(n_rows, n_records=n_records) / n_rows))
    data = predicted_data(parameters, size * n_rows, integer(1, simulations=simulations))
    scores, unattainable = [], []
    candidates = list(_candidates(guarantee, parameters, size * n_rows, relation.name))
    with Bar(len(candidates), "mechanisms", shown=progressbar) as bar:
        for name, calibrated in candidates:
            try:
                scores.append(_score(name, calibrated(), parameters, data))
            except UnattainableError:
                unattainable.append(name)
            bar.advance()
    baseline = _score("posterior, not private", DirichletMechanism(parameters, 1.0), parameters, data)
    return Comparison(guarantee, relation.name, tuple(scores), baseline, tuple(unattainable))


def _candidates(
    guarantee: Guarantee, prior: Array, n_records: int, adjacency: str
) -> Iterator[tuple[str, Callable[[], Mechanism]]]:
    """Names, and functions that calibrate the mechanisms."""
    dirichlets: dict[str, dict[str, Any]] = {
        "Dirichlet, optimal for the posterior": {"objective": "posterior"},
        "Dirichlet, optimal for the estimate": {"objective": "estimate"},
        "Dirichlet, temper": {"strategy": "temper"},
        "Dirichlet, algorithm-1": {"strategy": "algorithm-1"},
    }
    public = adjacency_named(adjacency).records_are_public
    shared: dict[str, Any] = {"n_records": n_records, "adjacency": adjacency, "public_totals": public}
    for name, options in dirichlets.items():
        yield name, partial(calibrate, guarantee, prior=prior, **shared, **options)
    yield "Floored draw", partial(calibrate_floored, guarantee, prior=prior, **shared)
    for kind, noisy in noises(public_totals=public).items():
        for how in POSTPROCESSES:
            name = f"{kind.capitalize()}, {how}"
            yield name, partial(noisy.for_guarantee, guarantee, prior=prior, adjacency=adjacency, postprocess=how)
    if adjacency == "replace-one" and prior.ndim == 1:
        # The number of records is public, and so are all posteriors there can be.
        truncated = partial(TruncatedNoiseMechanism.for_guarantee, guarantee, prior=prior, n_records=n_records)
        for noise in ("geometric", "laplace"):
            yield f"Truncated {noise}", partial(truncated, noise_kind=noise)
        for sensitivity in ("smooth", "global"):
            yield f"Hellinger, {sensitivity}", partial(_hellinger, guarantee, prior, n_records, sensitivity)


def _hellinger(guarantee: Guarantee, prior: Array, n_records: int, sensitivity: str) -> HellingerMechanism:
    most = _MOST_EXACT if guarantee.is_pure else _MOST_EXACT // 10
    accounting = "exact" if number_of_tables(n_records, len(prior)) <= most else "proved"
    return HellingerMechanism.for_guarantee(
        guarantee, prior=prior, n_records=n_records, sensitivity=sensitivity, accounting=accounting
    )


def _score(name: str, mechanism: Mechanism, prior: Array, data: Integers) -> Score:
    p = data / data.sum(axis=-1, keepdims=True)
    kl, l_inf, hellinger = _distances(p, mechanism.published_shares(data, np.random.default_rng(20261122)))
    pure, rest = math.isfinite(mechanism.pure_epsilon), (l_inf, hellinger)
    expected = simulated_kl(mechanism, prior, data)
    posterior = None if math.isnan(expected.posterior) else expected.posterior
    # Of a draw the divergence is known given its parameters, which varies less.
    kl_estimate = kl if mechanism.tempered is None else expected.estimate
    return Score(name, mechanism.in_short, posterior, expected.estimate, kl_estimate, *rest, pure)


def _distances(p: Array, q: Array) -> tuple[float, float, float]:
    """Divergence of q from p, l-infinity and Hellinger distance, averaged over rows and data sets."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log(p / q), 0.0)
    affinity = np.minimum(np.sqrt(p * q).sum(axis=-1), 1.0)
    return float(terms.sum(-1).mean()), float(np.abs(p - q).max(-1).mean()), float(np.sqrt(1 - affinity).mean())
