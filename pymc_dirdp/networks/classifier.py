"""A naive Bayes classifier with a private calibration of its predictions.

1. The tables of naive Bayes are released with four fifths of the guarantee.
2. For each record, these tables give the class with the most evidence and the strength of the evidence. The last fifth
   releases noisy counts of records by both, and by whether the record has this class.
3. The likelihood of the features is raised to a power: 0 ignores the features, 1 is naive Bayes. Predictions are
   averaged over the powers, weighted by their posterior probabilities given the noisy counts.

With a budget so small that each variable is measured only by itself, there is nothing to calibrate, and the tables take
the whole guarantee.
"""

from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np
import pymc as pm
import xarray as xr
from numpy.typing import ArrayLike
from scipy.special import expit, log_softmax, logsumexp, softmax

from pymc_dirdp.accounting.budget import check_ledger_type
from pymc_dirdp.accounting.ledger import Ledger
from pymc_dirdp.accounting.opening import Counting
from pymc_dirdp.arrays import Array, Integers
from pymc_dirdp.counting.bounding import checked_bound
from pymc_dirdp.counting.columns import Categories, Frame, checked_categories, column_of, encode
from pymc_dirdp.counting.engines import is_engine_table
from pymc_dirdp.counting.tables import count_families
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.literals import AdjacencyName, MechanismName
from pymc_dirdp.mechanisms.outputs import Draws
from pymc_dirdp.mechanisms.registry import Marginals
from pymc_dirdp.networks.builders import Parents, Prior, bayesian_network, class_name, naive_bayes
from pymc_dirdp.networks.fitting import measurements_of
from pymc_dirdp.networks.prediction import Predictor
from pymc_dirdp.privacy.guarantees import Guarantee
from pymc_dirdp.privacy.people import adjacency_by_name
from pymc_dirdp.releases.opened import Published, open_release
from pymc_dirdp.releases.plan import plan
from pymc_dirdp.releases.plan_types import Plan
from pymc_dirdp.releases.release import sample, sample_sealed
from pymc_dirdp.releases.wording import warn_of_repetition
from pymc_dirdp.sampling.bits import Seed
from pymc_dirdp.signatures import user_facing

if TYPE_CHECKING:
    from pymc_dirdp.releases.choices import PrivateChoice

# Powers of the likelihood. Redundant features need small powers; features that a fit shrank too much need powers above
# 1. The power 0, uninformative features, has a prior probability of 0.9, as for a feature in `inference/effects.py`, so
# that a calibration of pure noise ignores the features.
_POWERS = np.array([0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.65, 0.85, 1.0, 1.25])


@user_facing
@final
class Classifier:
    """A naive Bayes classifier: its tables, and a calibration of its predictions.

    Naive Bayes counts redundant features as independent evidence, with or without privacy. Its predictions are then
    overconfident, and often worse than the class frequencies. Here a second release of the same records calibrates the
    predictions. If features are uninformative, or noise hides their information, predictions are the class frequencies.

    Parameters
    ----------
    tables : xarray.DataTree
        The release of the tables of a classifier.
    calibration : xarray.DataTree, optional
        The release of its calibration. There is none if the tables measure no feature together with the class.
        :meth:`sample` makes both. :func:`pymc_dirdp.save` and :func:`pymc_dirdp.load` use one file for each.

    Attributes
    ----------
    tables : xarray.DataTree
    calibration : xarray.DataTree or None
    target : str
        The name of the class.
    powers : xarray.DataArray, dims (power,)
        The posterior probability of each power of the likelihood of the features, given both releases. The power 1 is
        naive Bayes, and 0 ignores the features.

    Raises
    ------
    ArgumentError
        If the second release is not the calibration of the first, or is missing.
    ReleaseError
        If an argument is not a release, or is damaged.

    Notes
    -----
    For a record with features `x`, let `p(c | x)` be the prediction of the tables and `p(c)` the prediction without
    features. The evidence for a class `c` is `log p(c | x) - log p(c)`, and a prediction with the power `t` is
    proportional to `p(c) exp(t * evidence)`. The calibration has noisy counts of records by the class `c` with the most
    evidence, by levels of the increase of the log-odds of `c`, and by whether the record has this class. Given the
    number of records of a level, the number that have the class is binomial, with the probability of the middle of the
    level. Its normal approximation, with the variance of the noise, is the likelihood of a power. The power 0 has a
    prior probability of 0.9, so that predictions ignore the features if noise hides everything. The model assumes one
    power for all evidence. Where this is wrong, single levels of a prediction may still be miscalibrated.

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
                    "The tables measure features together with the class, so they have a calibration. Pass both "
                    "releases that Classifier.sample made."
                )
            self.powers = _power_array(np.where(_POWERS == 0, 1.0, 0.0))
            return
        _, measurements, _ = measurements_of(calibration)
        levels = _levels(len(self._classes))
        cells = 2 * len(self._classes) * levels
        if [(m.axes, m.noisy.size) for m in measurements] != [((_cell_name(tables),), cells)]:
            raise ArgumentError(
                "The second release is not the calibration of the first. Pass classifier.tables and "
                "classifier.calibration of one Classifier.sample, or the two files that they were saved to."
            )
        counts = measurements[0].noisy.reshape(2, -1)
        weights = _weights(counts, measurements[0].variance, self._predictor.log_class_shares, levels)
        self.powers = _power_array(weights)

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
            The guarantee of both releases and of the choices in `after`.
        X : data frame or mapping of str to one-dimensional array
            The features.
        y, categories, target, structure, prior, unit, contribution
            As in :func:`pymc_dirdp.naive_bayes`. With `unit` pass `adjacency="add-remove"`, because the number of
            people is counted after the charge.
        adjacency, n_records, after
            As in :func:`pymc_dirdp.sample`.
        mechanism : str or Marginals, default "auto"
            The mechanism for the tables. If the budget is small, `"auto"` measures each variable by itself, with the
            whole guarantee. The calibration has geometric noise.
        ledger : Ledger, optional
            Reserves the guarantees of both releases before a value is read, and records each release.
        random_seed : int, SeedSequence, Generator or None, default None
            A seed makes both releases reproducible, hence **not private**.
        progressbar : bool, default True

        Returns
        -------
        classifier : Classifier

        Raises
        ------
        BudgetError, LedgerError
            If the guarantee does not fit into the ledger. Nothing was released then.
        ArgumentError, DataError, UnattainableError
            The same errors as in :func:`pymc_dirdp.naive_bayes` and :func:`pymc_dirdp.sample`.
        """
        guarantee = Guarantee.checked(guarantee=guarantee)
        check_ledger_type(ledger)
        # The calibration measures few numbers, so it needs a smaller share than the tables.
        tables_guarantee, calibration_guarantee = guarantee.split(0.8)
        target = class_name(y, target, categories)
        if len(categories[target]) < 2:
            raise ArgumentError(f"Expected categories[{target!r}] to list at least two classes.")
        _refuse_public_people(unit=unit, adjacency=adjacency)
        columns, people = _columns(X, y, target=target, categories=categories, unit=unit)

        def model_of(frame: Frame) -> pm.Model:
            return naive_bayes(
                frame,
                target,
                categories=categories,
                structure=structure,
                prior=prior,
                unit=unit,
                contribution=contribution,
            )

        model = model_of(_placeholder_records(columns, people, categories=categories, adjacency=adjacency))

        def plan_for(guarantee: Guarantee, mechanism: MechanismName | Marginals) -> Plan:
            return plan(
                guarantee,
                model,
                mechanism=mechanism,
                adjacency=adjacency,
                n_records=n_records,
                after=after,
                progressbar=progressbar,
            )

        tables_plan = plan_for(tables_guarantee, mechanism)
        calibrates = _measures_features(tables_plan)
        if not calibrates:
            tables_plan = plan_for(guarantee, Marginals(measure="variables") if mechanism == "auto" else mechanism)
        if tables_plan.publishing(Draws) and not tables_plan.privacy_unit.n_records_is_public:
            raise ArgumentError(
                "Use mechanism='auto' or other noise on counts: predictions from draws alone need a public number of "
                "records."
            )
        if ledger is None:
            ledger = Ledger(guarantee, adjacency=adjacency)
            if random_seed is None:
                warn_of_repetition(tuple(part.table for part in tables_plan.parts))
        # A reservation for each release, so that no other release can take the second one in between.
        reservations = ledger.reserve(
            [tables_guarantee, calibration_guarantee] if calibrates else [guarantee],
            what=f"a classifier of {target}",
            adjacency=tables_plan.adjacency,
            unit=tables_plan.unit_label,
        )
        labels = checked_categories(list(categories), categories)
        families: list[Any] = [part.table.dims for part in tables_plan.parts]
        bound = checked_bound(unit=unit, contribution=contribution, distinct=False)
        count = partial(count_families, families=families, labels=labels, otherwise={}, bound=bound)
        tables = sample_sealed(
            tables_plan,
            model,
            Counting(columns | people, count, has_numbers=True),
            ledger=ledger.using(reservations[0].number),
            random_seed=random_seed,
            progressbar=progressbar,
        )
        if not calibrates:
            return cls(tables)
        predictor, classes_of_records = Predictor(tables), encode(columns, list(categories), labels)[target]
        name, n_classes = _cell_name(tables), len(predictor.classes)
        levels = _levels(n_classes)
        cell_labels = [
            f"{truth}: {i}, {level + 1} of {levels}"
            for truth in ("right", "wrong")
            for i, level in np.ndindex(n_classes, levels)
        ]
        cells = _evidence_cells(predictor.log_proba(columns), predictor.log_class_shares, levels)
        cells += np.where(cells // levels == classes_of_records, 0, n_classes * levels)
        records = {name: np.array(cell_labels)[cells]} | people
        model = bayesian_network(
            records, {name: []}, categories={name: cell_labels}, unit=unit, contribution=contribution
        )
        calibration = sample(
            calibration_guarantee,
            model,
            mechanism="geometric",
            ledger=ledger.using(reservations[1].number),
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
            In nats and normalised, as from :func:`pymc_dirdp.predict_log_proba`.

        Raises
        ------
        DataError
            If a record has a missing or undeclared value, or the columns have different lengths.
        """
        shares = self._predictor.log_class_shares
        by_power = log_softmax(shares + _POWERS[:, None, None] * (self._predictor.log_proba(X) - shares), axis=-1)
        with np.errstate(divide="ignore"):
            average = logsumexp(by_power + np.log(self.powers.values)[:, None, None], axis=0)
        return self._predictor.to_dataarray(average)

    def __repr__(self) -> str:
        mean = float(self.powers.values @ _POWERS)
        return f"Classifier({self.target!r}, {len(self._classes)} classes, likelihood to the power {mean:.2g})"


def _columns(
    X: Frame, y: ArrayLike | str, *, target: str, categories: Categories, unit: str | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of features and class, and the column of the unit. Invalid arguments are refused here."""
    if is_engine_table(X):
        raise ArgumentError(f"Expected records in memory, got {type_name(X)}, whose rows have no order. Fetch them.")
    try:
        len(y)  # type: ignore[arg-type]
    except TypeError:
        raise ArgumentError(
            f"Expected y to be the name of a column of X, or a label for each record, got {type_name(y)}."
        ) from None
    columns = {name: column_of(X, name) for name in categories if name != target}
    columns[target] = column_of(X, y) if isinstance(y, str) else y
    return columns, {} if unit is None else {unit: column_of(X, unit)}


def _refuse_public_people(*, unit: str | None, adjacency: str) -> None:
    """Refuse a plan that would need the number of people, which is known after the charge."""
    if unit is not None and adjacency_by_name(adjacency).records_are_public:
        raise ArgumentError(
            "Pass adjacency='add-remove' and n_records=, your guess of the number of records: with unit= it is "
            "that of the people, who are counted after the charge."
        )


def _placeholder_records(
    columns: dict[str, Any], people: dict[str, Any], *, categories: Categories, adjacency: str
) -> dict[str, Any]:
    """Records for planning, all with the first label of each variable; their number is that of the data if public."""
    n = max(map(len, columns.values())) if adjacency_by_name(adjacency).records_are_public else 1
    return {name: [categories[name][0]] * n for name in columns} | {name: range(n) for name in people}


def _measures_features(tables_plan: Plan) -> bool:
    """Whether the release measures more than each variable by itself, so that features can be informative."""
    return any(len(axes) > 1 for part in tables_plan.parts for axes in part.mechanism.published_axes.values())


def _power_array(weights: Array) -> xr.DataArray:
    return xr.DataArray(weights, {"power": _POWERS}, ["power"], name="probability")


def _cell_name(tables: Published) -> str:
    """The name of the variable of the calibration, with the identity of the tables."""
    release = open_release(tables).release
    if release is None:
        raise ArgumentError("Expected the release of a classifier's tables, got a plan.")
    return f"calibration_of_{release.identity[:12]}"


def _levels(classes: int, *, labels: int = 14, least: int = 4) -> int:
    """The number of levels of the evidence for a class: at least `least`, and about `labels` over all classes."""
    return max(least, labels // classes)


def _edges(levels: int, *, weak: float = 0.5, strong: float = 8.0) -> Array:
    """The edges between levels of the evidence, in nats, on a logarithmic scale."""
    return np.geomspace(weak, strong, levels - 1)


def _evidence_cells(log_proba: Array, log_class_shares: Array, levels: int) -> Integers:
    """The class with the most evidence for each record, and the level of the increase of its log-odds, as one index."""
    classes = (log_proba - log_class_shares).argmax(axis=1)
    log_p = np.take_along_axis(log_proba, classes[:, None], axis=1)[:, 0]
    increase = _log_odds(log_p) - _log_odds(log_class_shares)[classes]
    return np.asarray(classes * levels + np.digitize(increase, _edges(levels)))


def _log_odds(log_p: Array) -> Array:
    """Log-odds of probabilities. A probability that rounds to 1 becomes the largest double below 1."""
    below = np.minimum(log_p, np.log1p(-np.finfo(np.float64).epsneg))
    return np.asarray(below - np.log(-np.expm1(below)))


def _weights(counts: Array, variance: float, log_class_shares: Array, levels: int) -> Array:
    """The probability of each power given noisy counts of right and wrong predictions, shape (2, classes * levels)."""
    edges = _edges(levels)
    # The middle of each level; the last one has no upper end.
    middles = np.array([edges[0] / 2, *np.sqrt(edges[1:] * edges[:-1]), 1.5 * edges[-1]])
    log_odds = np.repeat(_log_odds(log_class_shares), levels)
    p = expit(log_odds + _POWERS[:, None] * np.tile(middles, len(log_class_shares)))
    expected = p * np.maximum(counts.sum(axis=0), 0.0)
    # The variance of the residual: the right count minus `p` times the noisy sum of both counts. The last term keeps it
    # above the rounding error of an integer.
    spread = variance * ((1 - p) ** 2 + p**2) + expected * (1 - p) + 0.25
    fits = -0.5 * np.sum((counts[0] - expected) ** 2 / spread + np.log(spread), axis=1)
    prior = np.where(_POWERS == 0, 0.9, 0.1 / (len(_POWERS) - 1))
    return np.asarray(softmax(fits + np.log(prior)))
