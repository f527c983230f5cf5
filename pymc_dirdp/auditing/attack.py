"""Attack a mechanism: draw outputs for two neighbours, count, and bound its privacy loss from below."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from pymc_dirdp.arrays import Array
from pymc_dirdp.auditing.intervals import Counts, Event, Measure, Scores, chosen, counted, measures, parts
from pymc_dirdp.auditing.result import Audit, Bound, family_of, rarest_event, refutable
from pymc_dirdp.auditing.statistics import BlackBox, Seen, Source, Statistic, as_rows, commonest_shape, learned
from pymc_dirdp.checks import integer, open_unit_interval
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.literals import Sampler
from pymc_dirdp.mechanisms.base import Mechanism
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.sampling.bits import Seed, generator
from pymc_dirdp.signatures import user_facing


@user_facing
def audit(
    mechanism: Mechanism | BlackBox,
    *,
    pair: tuple[ArrayLike, ArrayLike] | None = None,
    claim: Guarantee | PrivacyCurves | None = None,
    delta: float | Sequence[float] = 1e-5,
    n: int | None = None,
    sampler: Sampler | None = None,
    steps: int | None = None,
    prob: float = 1 - 1e-6,
    last_bits: bool = False,
    random_seed: Seed = None,
) -> Audit:
    """Lower bounds on the privacy loss of a mechanism, from its outputs for two neighbouring data sets.

    The audit distinguishes the outputs of a mechanism of this library by their exact likelihood ratio, and those of a
    black box by a linear discriminant that is learned from a quarter of the outputs. For both it also searches for
    exact values that only one data set gives, and for the data themselves. An eighth of the outputs chooses the event
    for each bound. The remaining outputs are used only to count this event. The bound follows from exact confidence
    limits of its two probabilities, or of the share of these outputs that come from one data set.

    Parameters
    ----------
    mechanism : Mechanism or callable
        A callable takes the counts, has its own randomness, and returns an array of any shape.
    pair : tuple of two arrays, optional
        Artificial neighbouring data sets. You must make sure that they are neighbours. By default the worst known
        neighbours of the mechanism, or of a claim that is a mechanism. A black box needs a pair, because outputs do not
        show which neighbours have the largest loss.
    claim : Guarantee or PrivacyCurves, optional
        The claim about the mechanism. A guarantee is attacked in its own measure. Curves, such as those of another
        mechanism, are attacked at each `delta` and at epsilon 0, where small mistakes show first.
    delta : float or sequence of float, default 1e-5
        The deltas for which epsilon is bounded, each in [0, 1); 0 is pure differential privacy.
    n : int, optional
        Outputs for each of the two data sets, at least 100. By default 100,000, or 10,000 from the exact sampler of a
        `DirichletMechanism`. A coin decides from which data set each counted output comes.
    sampler : {"exact", "fast"}, optional
        The sampler of the mechanism to attack. By default the mechanism's default.
    steps : int, optional
        The steps of the exact sampler of a `DirichletMechanism`. Fewer are faster, but attack another release with a
        smaller loss.
    prob : float, default 1 - 1e-6
        The confidence level of all bounds together. They are valid for every mechanism and every n.
    last_bits : bool, default False
        Also attack the floating-point representation, and not only the distribution. The trailing zero bits show how a
        sum was rounded, and so its terms. This attack breaks all noise in floating point.
    random_seed : int, SeedSequence, Generator or None
        For mechanisms of this library. It does not affect privacy, because there are no real data.

    Returns
    -------
    result : Audit
        Its text states what the audit would have refuted, and what it cannot detect.

    References
    ----------
    Jagielski, Ullman and Oprea (2020), Auditing differentially private machine learning, section 4. Clopper and
    Pearson (1934). Steinke, Nasr and Jagielski (2023), Privacy auditing with one (1) training run, section 4.

    Examples
    --------
    >>> from pymc_dirdp import ApproxDP
    >>> from pymc_dirdp.mechanisms import DirichletMechanism
    >>> mechanism = DirichletMechanism([1, 1, 1], 0.5)
    >>> audit(mechanism, sampler="fast", n=20_000, random_seed=1).verdict
    'consistent'
    >>> claim = ApproxDP(epsilon=0.5, delta=1e-5)
    >>> audit(mechanism, sampler="fast", claim=claim, n=20_000, random_seed=1).verdict
    'refuted'
    """
    doubt = 1 - open_unit_interval(prob=prob)
    x, y = _neighbours(mechanism, pair, claim)
    source = Source(mechanism, sampler=sampler, steps=steps).checked()
    all_measures = measures(source.known, claim, delta)
    size = integer(100, n=source.default_draws if n is None else n)
    # The likelihood and the alternatives are those of the mechanism, or of the mechanism that a black box claims to be.
    model = source.known or Mechanism.of(claim)
    split = parts(size, likelihood=model is not None)
    rng = generator(random_seed)
    # A fair coin decides from which data set each counted output comes.
    x_size = int(rng.binomial(2 * split.counted, 0.5))
    set_aside = split.learned + split.chosen
    sizes = set_aside + x_size, set_aside + 2 * split.counted - x_size
    samples = [source.releases(z, m, rng) for z, m in zip((x, y), sizes, strict=True)]
    # The shape is learned from the same outputs as the statistics.
    shape = commonest_shape(*(outputs[: split.learned] for outputs in samples))
    from_x, from_y = (as_rows(outputs, shape) for outputs in samples)
    statistics = _statistics(model, from_x[: split.learned], from_y[: split.learned], x, y, last_bits)

    def scores(statistic: Statistic, part: slice) -> Scores:
        return np.sort(statistic(from_x[part])), np.sort(statistic(from_y[part]))

    # The probability that any bound is wrong is at most `doubt`.
    level = doubt / len(all_measures)
    on_these = slice(split.learned, set_aside)
    events = chosen([scores(s, on_these) for s in statistics], all_measures, split.counted, level)
    test_scores = {
        i_statistic: scores(statistics[i_statistic], slice(set_aside, None))
        for i_statistic in {event.which for event in events}
    }
    bounds = tuple(
        _bound(measure, event, counted(event, *test_scores[event.which]), split.counted, level, (model, x, y))
        for measure, event in zip(all_measures, events, strict=True)
    )
    return Audit(source.name, source.drawn_by, size, 1 - doubt, claim, last_bits, bounds)


def _neighbours(
    mechanism: Mechanism | BlackBox,
    pair: tuple[ArrayLike, ArrayLike] | None,
    claim: Guarantee | PrivacyCurves | None,
) -> tuple[Array, Array]:
    known_mechanism = Mechanism.of(mechanism)
    if known_mechanism is None and isinstance(mechanism, PrivacyCurves):
        raise ArgumentError(
            f"A {type(mechanism).__name__} has privacy curves but no sampler. Pass a function of the counts that makes "
            "its releases, with pair=(x, y) and claim=the curves."
        )
    if known_mechanism is None and not callable(mechanism):
        Mechanism.required(mechanism)
    if pair is not None:
        x, y = (np.asarray(data, dtype=np.float64) for data in pair)
        return x, y
    known_mechanism = known_mechanism or Mechanism.of(claim)
    if known_mechanism is not None:
        return known_mechanism.worst_neighbours()
    raise ArgumentError(
        "Pass pair=(x, y), two neighbouring data sets: an audit compares the outputs of a black box on these two. If "
        "the box should be a mechanism of this library, pass claim=mechanism to use its worst pair."
    )


def _statistics(
    model: Mechanism | None, x_outputs: Seen, y_outputs: Seen, x: Array, y: Array, last_bits: bool
) -> list[Statistic]:
    """The likelihood ratio, the most powerful statistic, if it is known; then learned statistics."""
    exact: list[Statistic] = []
    if model is not None and x_outputs.shape == x.shape:
        # On a grid the smallest positive number is a step of the grid.
        positive = x_outputs.points[x_outputs.points > 0]
        floor = float(positive.min()) / 2 if positive.size and np.any(x_outputs.points == 0) else 0.0
        exact = [lambda outputs: model.log_likelihood_ratio(outputs.numbers.reshape(-1, *x.shape), x, y, floor=floor)]
    prior = getattr(model, "prior", getattr(model, "alpha", None))
    priors = [] if prior is None else [prior]
    return exact + learned(x_outputs, y_outputs, x, y, discriminant=not exact, last_bits=last_bits, priors=priors)


def _bound(
    measure: Measure,
    event: Event,
    counts: Counts,
    trials: int,
    level: float,
    subject: tuple[Mechanism | None, Array, Array],
) -> Bound:
    lower = float(measure.lower(counts, event.method, level)[0])
    ceiling = measure.most_shown(counts.trials_p, counts.trials_p, counts.trials_q, level)
    family = family_of(*subject, measure)
    return Bound(
        measure.name,
        # A privacy loss is never negative.
        max(lower, 0.0),
        measure.stated,
        refutable(family, measure, trials, level),
        family.name,
        rarest_event(measure, trials, level),
        max(ceiling, 0.0),
        int(counts.hits_p[0]),
        counts.trials_p,
        int(counts.hits_q[0]),
        counts.trials_q,
    )
