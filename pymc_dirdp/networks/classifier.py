"""A classifier whose predictions are as sure as a second look at the same records allows.

1. Tables of naive Bayes are released with four fifths of the guarantee.
2. For each record they say for which class its features speak most, and how strongly. With the last fifth, noisy counts
   of that, and of whether the record has this class, are released.
3. The likelihood of the features is raised to a power: with 0 the class alone is left, with 1 naive Bayes. What each
   power makes of the noisy counts weighs it, and predictions are averaged over the powers.

Where so little is allowed that only the variables by themselves are measured, there is nothing to calibrate, and the
whole guarantee is for the tables.
"""

from typing import TYPE_CHECKING, Any, final

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from scipy.special import expit, log_softmax, logsumexp, softmax

from pymc_dirdp.accounting.budget import check_ledger_type
from pymc_dirdp.accounting.ledger import Ledger
from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.counting.columns import Categories, Frame, column_of, encode
from pymc_dirdp.counting.engines import is_engine_table
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.literals import AdjacencyName, MechanismName
from pymc_dirdp.mechanisms.outputs import Draws
from pymc_dirdp.mechanisms.registry import Marginals
from pymc_dirdp.networks.builders import Parents, Prior, bayesian_network, class_name, naive_bayes
from pymc_dirdp.networks.fitting import measurements_of
from pymc_dirdp.networks.prediction import Predictor
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import adjacency_by_name
from pymc_dirdp.releases.ledger_charge import Sealed
from pymc_dirdp.releases.opened import Published, open_release
from pymc_dirdp.releases.plan import plan
from pymc_dirdp.releases.plan_types import Plan
from pymc_dirdp.releases.release import sample, sample_sealed
from pymc_dirdp.releases.wording import warn_of_repetition
from pymc_dirdp.sampling.bits import Seed
from pymc_dirdp.signatures import user_facing

if TYPE_CHECKING:
    from pymc_dirdp.releases.choices import PrivateChoice

# Powers of the likelihood. Features that repeat each other need small ones; above 1 they tell more than was assumed,
# as where the fit shrinks them. That features say nothing, the power 0, has nine tenths of the prior probability, as
# for a feature in `inference/effects.py`: a calibration of noise alone then leaves the class alone.
_POWERS = np.array([0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.65, 0.85, 1.0, 1.25])


@user_facing
@final
class Classifier:
    """Naive Bayes that knows how far to trust itself: its tables, and a calibration of its predictions.

    Naive Bayes counts features that repeat each other as independent evidence, with privacy and without. Its
    predictions are then overconfident, and often worse than the frequencies of the classes. Here a second release of
    the same records says what the predictions are worth. Where features say nothing, or the noise hides what they say,
    the frequencies of the classes remain.

    Parameters
    ----------
    tables : xarray.DataTree
        The release of the tables of a classifier.
    calibration : xarray.DataTree, optional
        That of its calibration, unless the tables measure no feature together with the class. :meth:`sample` makes
        both, and :func:`pymc_dirdp.save` and :func:`pymc_dirdp.load` keep them in files of their own.

    Attributes
    ----------
    tables : xarray.DataTree
    calibration : xarray.DataTree or None
    target : str
        The name of the class.
    powers : xarray.DataArray, dims (power,)
        The probability of each power to which the likelihood of the features is raised, given both releases: 1 is naive
        Bayes, and 0 the class alone.

    Raises
    ------
    ArgumentError
        If the second release is not the calibration of the first, or is missing.
    ReleaseError
        If one of them is no release, or is damaged.

    Notes
    -----
    For a record with features `x` let `p(c | x)` be the prediction of the tables and `p(c)` that without features. The
    evidence for a class `c` is `log p(c | x) - log p(c)`, and a prediction with the power `t` is proportional to
    `p(c) exp(t * evidence)`. The calibration holds noisy counts of records by the class `c` that they have the most
    evidence for, by levels of how far this raises the log-odds of `c`, and by whether they have this class. Given their
    number, the records of one level that have it are binomial, with the probability of the middle of the level. The
    normal approximation, with the variance of the noise, is the likelihood of a power. A priori the class alone has
    a probability of 0.9, so that it remains where noise hides everything. One power for all evidence is what is
    assumed: where that is wrong, single levels of a prediction may still be off.

    References
    ----------
    Platt (1999), Probabilistic outputs for support vector machines. Guo, Pleiss, Sun and Weinberger (2017), On
    calibration of modern neural networks, https://doi.org/10.48550/arXiv.1706.04599, for one number that scales the
    evidence. P1 section 5.1 for naive Bayes.

    Examples
    --------
    >>> import pymc_dirdp as dirdp
    >>> kinds = {"spam": ["no", "yes"], "link": ["no", "yes"]}
    >>> records = {"spam": ["no", "no", "yes", "no"] * 100, "link": ["no", "no", "yes", "yes"] * 100}
    >>> guarantee = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
    >>> classifier = dirdp.Classifier.sample(guarantee, records, "spam", categories=kinds)
    >>> classifier.predict_log_proba({"link": ["yes", "no"]}).dims
    ('record', 'spam')
    >>> again = dirdp.Classifier(classifier.tables, classifier.calibration)
    """

    def __init__(self, tables: Published, calibration: Published | None = None) -> None:
        self.tables, self.calibration = tables, calibration
        self._predictor = Predictor(tables)
        self.target = self._predictor.target
        if calibration is None:
            if _measures_features(open_release(tables).plan):
                raise ArgumentError(
                    "The tables say how features depend on the class, so a calibration belongs to them. Pass both "
                    "releases that Classifier.sample made."
                )
            self.powers = _labelled(np.where(_POWERS == 0, 1.0, 0.0))
            return
        _, measured, _ = measurements_of(calibration)
        levels = _levels(len(self._classes))
        cells = 2 * len(self._classes) * levels
        if [(one.axes, one.noisy.size) for one in measured] != [((_cell_name(tables),), cells)]:
            raise ArgumentError(
                "The second release is not the calibration of the first. Classifier.sample makes both of the same "
                "records; pass classifier.tables and classifier.calibration, or what was saved of them."
            )
        counts = measured[0].noisy.reshape(2, -1)
        weights = _weights(counts, measured[0].variance, self._predictor.alone, levels)
        self.powers = _labelled(weights)

    @classmethod
    @user_facing
    def sample(
        cls,
        guarantee: Guarantee,
        X: Frame,
        y: ArrayLike | str,
        *,
        categories: Categories,
        target: str | None = None,
        structure: Parents | None = None,
        prior: Prior = 1.0,
        unit: str | None = None,
        contribution: int | None = None,
        adjacency: AdjacencyName = "replace-one",
        n_records: int | None = None,
        mechanism: MechanismName | Marginals = "auto",
        after: "PrivateChoice | list[PrivateChoice] | None" = None,
        ledger: Ledger | None = None,
        random_seed: Seed = None,
        progressbar: bool = True,
    ) -> "Classifier":
        """Release the tables and their calibration, which satisfy one guarantee together.

        Parameters
        ----------
        guarantee : Guarantee
            Of both releases, and of what was chosen before.
        X : data frame or mapping of str to one-dimensional array
            The features.
        y, categories, target, structure, prior, unit, contribution
            As in :func:`pymc_dirdp.naive_bayes`.
        adjacency, n_records, after
            As in :func:`pymc_dirdp.sample`.
        mechanism : str or Marginals, default "auto"
            That of the tables; `"auto"` measures the variables by themselves where the budget is small, and then the
            whole guarantee is for them. The calibration is by geometric noise.
        ledger : Ledger, optional
            The guarantees of both releases are reserved in it before a value is read, and each release is recorded.
        random_seed : int, SeedSequence, Generator or None, default None
            As in :func:`pymc_dirdp.sample`: a seed makes both releases reproducible, hence **not private**.
        progressbar : bool, default True

        Returns
        -------
        classifier : Classifier

        Raises
        ------
        BudgetError, LedgerError
            If the guarantee does not fit into the ledger. Nothing was released then.
        ArgumentError, DataError, UnattainableError
            The same errors as those of :func:`pymc_dirdp.naive_bayes` and :func:`pymc_dirdp.sample`.
        """
        guarantee = Guarantee.checked(guarantee=guarantee)
        check_ledger_type(ledger)
        # The share of the guarantee for the tables. The rest measures few numbers, which takes far less.
        first, second = guarantee.split(0.8)
        named = class_name(y, target, categories)
        if len(categories[named]) < 2:
            raise ArgumentError(f"Expected categories[{named!r}] to hold two classes or more: one needs no classifier.")
        own, people = _columns(X, y, target=named, categories=categories, unit=unit)

        def model_of(columns: Frame) -> pm.Model:
            return naive_bayes(
                columns,
                named,
                categories=categories,
                structure=structure,
                prior=prior,
                unit=unit,
                contribution=contribution,
            )

        model = model_of(_made_up(own, people, categories=categories, adjacency=adjacency))

        def planned_for(allowed: Guarantee, mechanism: MechanismName | Marginals) -> Plan:
            return plan(
                allowed,
                model,
                mechanism=mechanism,
                adjacency=adjacency,
                n_records=n_records,
                after=after,
                progressbar=progressbar,
            )

        planned = planned_for(first, mechanism)
        calibrates = _measures_features(planned)
        if not calibrates:
            planned = planned_for(guarantee, Marginals(measure="variables") if mechanism == "auto" else mechanism)
        if planned.publishing(Draws) and not planned.privacy_unit.n_records_is_public:
            raise ArgumentError(
                "Use mechanism='auto' or other noise on counts: draws alone predict nothing where the number of "
                "records is private."
            )
        if ledger is None:
            ledger = Ledger(guarantee, adjacency=adjacency)
            if random_seed is None:
                warn_of_repetition(tuple(part.table for part in planned.parts))
        # Each release has a reservation of its own, so that nobody takes that of the second after the first.
        reserved = ledger.reserve(
            [first, second] if calibrates else [guarantee],
            what=f"a classifier of {named}",
            adjacency=planned.adjacency,
            unit=planned.unit_label,
        )
        true: list[Any] = []

        def read() -> pm.Model:
            true.extend(encode(own, list(categories), categories)[named])
            return model_of(own | people)

        sealed = Sealed(read, ledger.using(reserved[0].number))
        tables = sample_sealed(planned, model, sealed, random_seed=random_seed, progressbar=progressbar)
        if not calibrates:
            return cls(tables)
        predictor = Predictor(tables)
        cell, classes = _cell_name(tables), predictor.classes
        levels = _levels(len(classes))
        labels = [
            f"{truth}: {i}, {level + 1} of {levels}"
            for truth in ("right", "wrong")
            for i, level in np.ndindex(len(classes), levels)
        ]
        said = _said(predictor.log_proba(own), predictor.alone, levels)
        place = said + np.where(said // levels == np.array(true), 0, len(classes) * levels)
        columns = {cell: np.array(labels)[place]} | people
        again = bayesian_network(columns, {cell: []}, categories={cell: labels}, unit=unit, contribution=contribution)
        calibration = sample(
            second,
            again,
            mechanism="geometric",
            ledger=ledger.using(reserved[1].number),
            random_seed=random_seed,
            progressbar=progressbar,
            adjacency=adjacency,
            n_records=n_records,
        )
        return cls(tables, calibration)

    @property
    def _classes(self) -> list[object]:
        return self._predictor.classes

    @user_facing
    def predict_log_proba(self, X: Frame) -> xr.DataArray:
        """Logarithms of class probabilities, averaged over the powers.

        Parameters
        ----------
        X : data frame or mapping of str to one-dimensional array
            The records, with all features.

        Returns
        -------
        log_proba : xarray.DataArray, dims (record, target)
            In nats, normalised, as those of :func:`pymc_dirdp.predict_log_proba`.

        Raises
        ------
        DataError
            If a record holds a value that was not declared, or a missing one, or the columns are not of one length.
        """
        evidence = self._predictor.evidence(X)
        each = log_softmax(self._predictor.alone + _POWERS[:, None, None] * evidence, axis=-1)
        with np.errstate(divide="ignore"):
            averaged = logsumexp(each + np.log(self.powers.values)[:, None, None], axis=0)
        return self._predictor.labelled(averaged)

    def __repr__(self) -> str:
        mean = float(self.powers.values @ _POWERS)
        return f"Classifier({self.target!r}, {len(self._classes)} classes, likelihood to the power {mean:.2g})"


def _columns(
    X: Frame, y: ArrayLike | str, *, target: str, categories: Categories, unit: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of features and class, and that of the people. What cannot be predicted later is refused here."""
    if is_engine_table(X):
        raise ArgumentError(f"Expected records in memory, got {type_name(X)}, whose rows have no order: fetch them.")
    try:
        len(y)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentError(
            f"Expected y to be the name of a column of X, or a label for each record; got {type_name(y)}."
        ) from None
    columns = {name: column_of(X, name) for name in categories if name != target}
    columns[target] = column_of(X, y) if isinstance(y, str) else y
    return columns, {} if unit is None else {unit: column_of(X, unit)}


def _made_up(
    columns: dict[str, Any], people: dict[str, Any], *, categories: Categories, adjacency: str
) -> dict[str, Any]:
    """Records that are planned for: all with the first label of each variable, as many where that is public."""
    n = max(map(len, columns.values())) if adjacency_by_name(adjacency).records_are_public else 1
    return {name: [categories[name][0]] * n for name in columns} | {name: range(n) for name in people}


def _measures_features(planned: Plan) -> bool:
    """Whether more is released than each variable by itself, so that features may say something of the class."""
    return any(len(axes) > 1 for part in planned.parts for axes in part.mechanism.published_axes.values())


def _labelled(weights: Array) -> xr.DataArray:
    return xr.DataArray(weights, {"power": _POWERS}, ["power"], name="probability")


def _cell_name(tables: Published) -> str:
    """The variable of the calibration, which names the release that it is of."""
    release = open_release(tables).release
    if release is None:
        raise ArgumentError("Expected the release of a classifier's tables, got a plan.")
    return f"calibration_of_{release.identity[:12]}"


def _levels(classes: int, *, labels: int = 14, least: int = 4) -> int:
    """Levels of the evidence for a class: about so many `labels` in all, but no fewer levels than `least`."""
    return max(least, labels // classes)


def _edges(levels: int, *, weak: float = 0.5, strong: float = 8.0) -> Array:
    """Where levels of the evidence end, in nats, on a logarithmic scale."""
    return np.geomspace(weak, strong, levels - 1)


def _said(log_proba: Array, alone: Array, levels: int) -> Integers:
    """For each record the class with the most evidence, and the level of how far this raises its log-odds."""
    most = (log_proba - alone).argmax(axis=1)
    own = np.take_along_axis(log_proba, most[:, None], axis=1)[:, 0]
    raised = _log_odds(own) - _log_odds(alone)[most]
    return np.asarray(most * levels + np.digitize(raised, _edges(levels)))


def _log_odds(log_p: Array) -> Array:
    """Log-odds of probabilities; one that is 1 as a double counts as the largest double below it."""
    below = np.minimum(log_p, np.log1p(-np.finfo(np.float64).epsneg))
    return np.asarray(below - np.log(-np.expm1(below)))


def _weights(counts: Array, variance: float, alone: Array, levels: int) -> Array:
    """The probability of each power given noisy counts of what was right and wrong, of shape (2, said)."""
    edges = _edges(levels)
    # The middle of each level; the last one has no upper end.
    middles = np.array([edges[0] / 2, *np.sqrt(edges[1:] * edges[:-1]), 1.5 * edges[-1]])
    p = expit(np.repeat(_log_odds(alone), levels) + _POWERS[:, None] * np.tile(middles, len(alone)))
    expected = p * np.maximum(counts.sum(axis=0), 0.0)
    # What is right less its share of the noisy sum, in which its own noise is one of two.
    # Counts are integers, so a residual is never known more precisely than this.
    spread = variance * ((1 - p) ** 2 + p**2) + expected * (1 - p) + 0.25
    fits = -0.5 * np.sum((counts[0] - expected) ** 2 / spread + np.log(spread), axis=1)
    prior = np.where(_POWERS == 0, 0.9, 0.1 / (len(_POWERS) - 1))
    return np.asarray(softmax(fits + np.log(prior)))
