"""Naive Bayes with a calibration of its own."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import pymc_dirdp as dirdp
from pymc_dirdp.networks import classifier as module
from pymc_dirdp.networks.classifier import _POWERS, _evidence_cells, _levels, _log_odds, _weights
from pymc_dirdp.releases.opened import open_release
from tests.networks.test_prediction import made

GUARANTEE = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")


def repeated(n, rng):
    """A class, and twelve features that are all the same noisy measurement of one trait."""
    trait = rng.normal(size=n)
    features = {f"q{i}": (rng.random(n) < 1 / (1 + np.exp(-3 * trait))).astype(int) for i in range(12)}
    return features | {"y": (rng.random(n) < 1 / (1 + np.exp(1 - trait))).astype(int)}


def independent(n, rng):
    """A class of three, and four features that are independent given the class."""
    y = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    features = {f"q{i}": (rng.random(n) < np.array([0.2, 0.5, 0.9])[(y + i) % 3]).astype(int) for i in range(4)}
    return features | {"y": y}


def noise(n, rng):
    """A class of two, and eight features that say nothing of it."""
    return {f"q{i}": rng.integers(4, size=n) for i in range(8)} | {"y": (rng.random(n) < 0.2).astype(int)}


def kinds(records):
    return {name: sorted(set(values.tolist())) for name, values in records.items()}


def loss(log_proba, records):
    return -np.mean(log_proba.values[np.arange(len(records["y"])), records["y"]])


def losses(make, n=4000, guarantee=GUARANTEE):
    """Of a classifier, of naive Bayes with the whole guarantee, and of the class alone without any privacy."""
    rng = np.random.default_rng(8)
    train, test = make(n, rng), make(4000, rng)
    found = dirdp.Classifier.sample(guarantee, train, "y", categories=kinds(train), random_seed=1)
    model = dirdp.naive_bayes(train, "y", categories=kinds(train))
    bayes = dirdp.sample(guarantee, model, mechanism="marginals", random_seed=1)
    shares = np.bincount(test["y"]) / 4000
    return (
        loss(found.predict_log_proba(test), test),
        loss(dirdp.predict_log_proba(bayes, test, target="y"), test),
        -np.sum(shares * np.log(shares)),
    )


def test_features_are_trusted_as_far_as_they_tell_of_the_class():
    """Copies of one another less, independent ones in full, and such as say nothing do no harm."""
    classifier, bayes, alone = losses(repeated)
    assert bayes > alone + 0.3
    assert classifier < alone - 0.04
    classifier, bayes, alone = losses(independent)
    assert bayes < alone - 0.3
    assert classifier < bayes + 0.01
    classifier, _, alone = losses(noise)
    assert classifier < alone + 0.005


RECORDS = independent(300, np.random.default_rng(1))


def sampled(records=RECORDS, guarantee=GUARANTEE, **options):
    return dirdp.Classifier.sample(guarantee, records, "y", **{"categories": kinds(RECORDS)} | options)


def test_a_ledger_reserves_the_guarantee_before_a_value_is_read_and_holds_both_releases():
    """Found by attack: an exhausted ledger answered whether any label is outside a set, as often as it was asked."""
    ledger = dirdp.Ledger(GUARANTEE)
    sampled(ledger=ledger, random_seed=1)
    assert [entry.reserved for entry in ledger.entries()] == [True, True, False, False]
    assert ledger.entries()[0].what == "a classifier of y"
    spent = dirdp.Ledger(dirdp.ApproxDP(epsilon=0.5, delta=1e-6))
    spoilt = RECORDS | {"q0": np.where(np.arange(300) == 7, 5, RECORDS["q0"])}
    errors = set()
    for data in (RECORDS, spoilt):
        with pytest.raises(dirdp.errors.BudgetError) as caught:
            sampled(data, ledger=spent)
        errors.add(str(caught.value))
    assert len(errors) == 1
    assert spent.entries() == ()
    ledger = dirdp.Ledger(GUARANTEE)
    with pytest.raises(dirdp.errors.DataError, match="The ledger has been charged"):
        sampled(spoilt, ledger=ledger)
    assert [entry.reserved for entry in ledger.entries()] == [True, True, False]


def test_a_number_of_people_that_is_unknown_is_refused_before_the_charge():
    """Found by attack: a plan for the number of rows was charged, and a release of fewer people stated that number."""
    ledger = dirdp.Ledger(GUARANTEE)
    people = RECORDS | {"who": np.arange(len(RECORDS["y"])) // 2}
    with pytest.raises(dirdp.errors.ArgumentError, match="add-remove"):
        sampled(people, ledger=ledger, unit="who", contribution=1)
    assert ledger.entries() == ()
    options = {"unit": "who", "contribution": 1, "adjacency": "add-remove", "n_records": 150}
    assert dirdp.verify(sampled(people, **options).tables)


def test_nobody_takes_what_the_calibration_needs(monkeypatch):
    """Found by attack: the first release gave the whole reservation back, and its tables were lost with the second."""
    ledger, taken, draw = dirdp.Ledger(GUARANTEE), [], module.sample_sealed

    def greedy(*args, **options):
        release = draw(*args, **options)
        for epsilon in (0.2, 0.01):
            with pytest.raises(dirdp.errors.BudgetError):
                ledger.spend(dirdp.ApproxDP(epsilon=epsilon, delta=1e-8), what="another table", unit="record")
            taken.append(epsilon)
        return release

    monkeypatch.setattr(module, "sample_sealed", greedy)
    assert sampled(ledger=ledger).calibration is not None
    assert taken


def test_what_cannot_be_predicted_is_refused_before_the_charge():
    """Found by attack: the first release was paid for, and lost with the error that came after it."""
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    ledger = dirdp.Ledger(GUARANTEE)
    for given in (polars.DataFrame(RECORDS).lazy(), duckdb.from_df(pd.DataFrame(RECORDS))):
        with pytest.raises(dirdp.errors.DirdpError):
            sampled(given, ledger=ledger)
    assert ledger.entries() == ()
    # Draws of a private number of records ask for a prior of the number, which only `analyse` takes.
    ledger = dirdp.Ledger(GUARANTEE, adjacency="add-remove")
    with pytest.raises(dirdp.errors.ArgumentError, match="Use mechanism='auto' or other noise on counts"):
        sampled(mechanism="dirichlet", adjacency="add-remove", n_records=100, ledger=ledger)
    assert ledger.entries() == ()


@pytest.mark.parametrize("guarantee", [dirdp.PureDP(epsilon=2.0), dirdp.RenyiDP(order=5, epsilon=0.5)])
def test_every_kind_of_guarantee_is_divided(guarantee):
    found = sampled(guarantee=guarantee, ledger=dirdp.Ledger(guarantee))
    assert dirdp.verify(found.tables)
    assert dirdp.verify(found.calibration)
    np.testing.assert_allclose(np.exp(found.predict_log_proba(RECORDS)).sum("y"), 1, rtol=1e-12)


def test_what_was_saved_predicts_the_same_and_other_releases_are_refused(tmp_path):
    one, other = (sampled(random_seed=seed) for seed in (1, 2))
    paths = [tmp_path / "tables.json", tmp_path / "calibration.json"]
    for release, path in zip((one.tables, one.calibration), paths, strict=True):
        dirdp.save(release, path)
    again = dirdp.Classifier(*map(dirdp.load, paths))
    np.testing.assert_array_equal(again.predict_log_proba(RECORDS), one.predict_log_proba(RECORDS))
    with pytest.raises(dirdp.errors.ArgumentError, match="so they have a calibration"):
        dirdp.Classifier(one.tables)
    for wrong in ((one.tables, other.calibration), (one.tables, one.tables)):
        with pytest.raises(dirdp.errors.ArgumentError, match="not the calibration of the first"):
            dirdp.Classifier(*wrong)
    for verb in (dirdp.verify, dirdp.report, dirdp.statement):
        with pytest.raises(dirdp.errors.ReleaseError, match="Pass its attribute tables or calibration"):
            verb(one)
    # One class, and what is no release.
    with pytest.raises(dirdp.errors.ArgumentError, match="at least two classes"):
        sampled(RECORDS | {"y": np.zeros(300, int)}, categories=kinds(RECORDS) | {"y": [0]})
    release = made({"y": [], "q": ["y"]}, categories={"y": [0, 1], "q": [0, 1]})
    with pytest.raises(dirdp.errors.DirdpError):
        dirdp.Classifier(release, release)


def test_predictions_are_the_average_over_powers():
    found = sampled(random_seed=1)
    p = np.exp(dirdp.predict_log_proba(found.tables, RECORDS, target="y").values)
    alone = dirdp.fit(found.tables, progressbar=False).posterior["p_y"].values.ravel()
    average = 0.0
    for power, weight in zip(found.powers["power"].values, found.powers.values, strict=True):
        q = alone * (p / alone) ** power
        average = average + weight * q / q.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(np.exp(found.predict_log_proba(RECORDS)), average, rtol=1e-9)


@pytest.mark.parametrize("classes", [2, 5])
def test_the_power_that_made_the_counts_is_found(classes):
    """Against the exact binomial likelihood where there is hardly any noise."""
    rng = np.random.default_rng(classes)
    levels = _levels(classes)
    alone = rng.dirichlet(np.full(classes, 5.0))
    edges = np.geomspace(0.5, 8.0, levels - 1)
    middles = np.array([0.25, *np.sqrt(edges[1:] * edges[:-1]), 12.0])
    odds = (alone / (1 - alone))[:, None]
    for true in (0.0, 0.2, 0.45, 1.0):
        p = {
            power: (odds * np.exp(power * middles) / (1 + odds * np.exp(power * middles))).ravel() for power in _POWERS
        }
        right = rng.binomial(3000, p[true])
        exact = [binom.logpmf(right, 3000, p[power]).sum() for power in _POWERS]
        weights = _weights(np.array([right, 3000.0 - right]), 1e-6, np.log(alone), levels)
        assert _POWERS[np.argmax(weights)] == _POWERS[np.argmax(exact)] == true
        assert weights.max() > 0.99


def test_what_is_said_is_the_class_with_the_most_evidence_and_the_level_of_its_log_odds():
    alone = np.array([0.5, 0.3, 0.2])
    p = np.array([[0.52, 0.3, 0.18], [0.4, 0.35, 0.25], [0.0001, 0.0001, 0.9998], [0.1, 0.8, 0.1], [0.5, 0.5, 0.0]])
    with np.errstate(divide="ignore"):
        found = _evidence_cells(np.log(p), np.log(alone), 4)
    assert np.isfinite(_log_odds(np.array([0.0, -1e-300, -1e-16, -800.0]))).all()
    # The log-odds rise by 0.08, 0.29, 9.9, 2.2 and 0.85; the levels end at 0.5, 2 and 8.
    assert found.tolist() == [0, 8, 8 + 3, 4 + 2, 4 + 1]
    assert _levels(2) == 14 // 2 == 7


@pytest.mark.parametrize("chosen", ["auto", dirdp.mechanisms.Marginals(measure=["y", "q0", "q1"])])
def test_where_noise_hides_all_the_whole_guarantee_is_for_the_frequencies_of_the_classes(chosen):
    rng = np.random.default_rng(8)
    train, test = (
        {name: whole[name] for name in ("q0", "q1", "y")} for whole in (repeated(400, rng), repeated(4000, rng))
    )
    guarantee = dirdp.ApproxDP(epsilon=0.05, delta=1e-6)
    ledger = dirdp.Ledger(guarantee)
    found = dirdp.Classifier.sample(guarantee, train, "y", categories=kinds(train), mechanism=chosen, ledger=ledger)
    alone = np.log(dirdp.fit(found.tables, progressbar=False).posterior["p_y"].values.ravel())
    assert abs(loss(found.predict_log_proba(test), test) + np.mean(alone[test["y"]])) < 0.002
    assert found.calibration is None
    assert found.powers.sel(power=0.0) == 1
    assert open_release(found.tables).plan.guarantee == guarantee
    assert dirdp.verify(found.tables)
    again = dirdp.Classifier(found.tables)
    np.testing.assert_array_equal(again.predict_log_proba(test), found.predict_log_proba(test))
