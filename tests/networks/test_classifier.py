"""Naive Bayes with a calibration of its own."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from scipy.stats import binom, norm

import pymc_dirdp as dirdp
from pymc_dirdp.networks import classifier as module
from pymc_dirdp.networks.classifier import _POWERS, _evidence_cells, _levels, _log_odds, _weights
from pymc_dirdp.releases.opened import open_release
from tests.networks.test_prediction import made

GUARANTEE, APPROX = dirdp.ZeroCDP(rho=0.05), dirdp.ApproxDP(epsilon=1.0, delta=1e-6)

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")


def repeated(n, rng):
    """A class, and eight features that are all the same noisy measurement of one trait."""
    trait = rng.normal(size=n)
    features = {f"q{i}": (rng.random(n) < 1 / (1 + np.exp(-3 * trait))).astype(int) for i in range(8)}
    return features | {"y": (rng.random(n) < 1 / (1 + np.exp(1 - trait))).astype(int)}


def independent(n, rng):
    """A class of three, and four features that are independent given the class."""
    y = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    features = {f"q{i}": (rng.random(n) < np.array([0.2, 0.5, 0.9])[(y + i) % 3]).astype(int) for i in range(4)}
    return features | {"y": y}


def noise(n, rng):
    """A class of two, and five features that say nothing of it."""
    return {f"q{i}": rng.integers(4, size=n) for i in range(5)} | {"y": (rng.random(n) < 0.2).astype(int)}


def kinds(records):
    return {name: sorted(set(values.tolist())) for name, values in records.items()}


def loss(log_proba, records):
    return -np.mean(log_proba.values[np.arange(len(records["y"])), records["y"]])


def losses(make, n):
    """Of a classifier, and of naive Bayes by its tables, above that of the class alone without any privacy."""
    rng = np.random.default_rng(8)
    train, test = make(n, rng), make(2000, rng)
    found = dirdp.Classifier.sample(GUARANTEE, train, "y", categories=kinds(train), random_seed=1)
    bayes, shares = dirdp.predict_log_proba(found.tables, test, target="y"), np.bincount(test["y"]) / 2000
    alone = -np.sum(shares * np.log(shares))
    return loss(found.predict_log_proba(test), test) - alone, loss(bayes, test) - alone


def test_features_are_trusted_as_far_as_they_tell_of_the_class():
    """Copies of one another less, independent ones in full, and such as say nothing do no harm."""
    classifier, bayes = losses(repeated, 4000)
    assert classifier < -0.04 < 0.15 < bayes
    classifier, bayes = losses(independent, 4000)
    assert classifier - 0.015 < bayes < -0.3
    assert losses(noise, 1000)[0] < 0.005


RECORDS = independent(300, np.random.default_rng(1))


def sampled(records=RECORDS, guarantee=GUARANTEE, **options):
    return dirdp.Classifier.sample(guarantee, records, "y", **{"categories": kinds(RECORDS)} | options)


@pytest.fixture(scope="module")
def seeded():
    with pytest.warns(dirdp.errors.SeededReleaseWarning):
        return sampled(random_seed=1)


def test_nobody_takes_what_the_calibration_needs(monkeypatch):
    """Found by attack: the first release gave the whole reservation back, and its tables were lost with the second."""
    ledger, taken, draw = dirdp.Ledger(GUARANTEE), [], module.sample_sealed

    def greedy(*args, **options):
        release = draw(*args, **options)
        for rho in (0.01, 1e-4):
            with pytest.raises(dirdp.errors.BudgetError):
                ledger.spend(dirdp.ZeroCDP(rho=rho), what="another table", unit="record")
            taken.append(rho)
        return release

    monkeypatch.setattr(module, "sample_sealed", greedy)
    assert sampled(ledger=ledger).calibration is not None
    assert taken
    assert [entry.reserved for entry in ledger.entries()] == [True, True, False, False]
    assert ledger.entries()[0].what == "a classifier of y"


def test_what_cannot_be_released_and_predicted_is_refused_before_the_charge():
    """Found by attack: the first release was paid for, and lost with the error that came after it.

    A plan for the number of rows was charged, and a release of fewer people stated that number.
    """
    duckdb, polars = pytest.importorskip("duckdb"), pytest.importorskip("polars")
    people, one_each = RECORDS | {"who": np.arange(300) // 2}, {"unit": "who", "contribution": 1}
    private = {"adjacency": "add-remove", "n_records": 150}
    drawn = private | {"mechanism": "dirichlet", "guarantee": APPROX}
    for data, options, message in (
        (polars.DataFrame(RECORDS).lazy(), {}, "Expected records in memory"),
        (duckdb.from_df(pd.DataFrame(RECORDS)), {}, "Expected records in memory"),
        (RECORDS, {"categories": kinds(RECORDS) | {"y": [0]}}, "at least two classes"),
        (people, one_each, "add-remove"),
        # Draws of a private number of records ask for a prior of the number, which only `analyse` takes.
        (RECORDS, drawn, "Use mechanism='auto' or other noise on counts"),
    ):
        ledger = dirdp.Ledger(options.get("guarantee", GUARANTEE), adjacency=options.get("adjacency", "replace-one"))
        with pytest.raises(dirdp.errors.ArgumentError, match=message):
            sampled(data, ledger=ledger, **options)
        assert ledger.entries() == ()
    assert dirdp.verify(sampled(people, **one_each, **private).tables)


def test_what_was_saved_predicts_the_same_and_other_releases_are_refused(seeded, tmp_path):
    one, other = seeded, sampled(random_seed=2)
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
    with pytest.raises(dirdp.errors.ReleaseError, match="Pass its attribute tables or calibration"):
        dirdp.verify(one)
    release = made({"y": [], "q": ["y"]}, categories={"y": [0, 1], "q": [0, 1]})
    with pytest.raises(dirdp.errors.DirdpError):
        dirdp.Classifier(release, release)


def test_predictions_are_the_average_over_powers(seeded):
    p = np.exp(dirdp.predict_log_proba(seeded.tables, RECORDS, target="y").values)
    alone = dirdp.fit(seeded.tables, progressbar=False).posterior["p_y"].values.ravel()
    q = [alone * (p / alone) ** power for power in seeded.powers["power"].values]
    average = sum(weight * q / q.sum(axis=1, keepdims=True) for weight, q in zip(seeded.powers.values, q, strict=True))
    np.testing.assert_allclose(np.exp(seeded.predict_log_proba(RECORDS)), average, rtol=1e-9)


@pytest.mark.parametrize("classes", [2, 5])
def test_the_power_that_made_the_counts_is_found(classes):
    """Against the exact binomial likelihood where there is hardly any noise."""
    rng = np.random.default_rng(classes)
    levels = _levels(classes)
    alone = rng.dirichlet(np.full(classes, 5.0))
    edges = np.geomspace(0.5, 8.0, levels - 1)
    middles = np.array([0.25, *np.sqrt(edges[1:] * edges[:-1]), 12.0])
    odds = [(alone / (1 - alone))[:, None] * np.exp(power * middles) for power in _POWERS]
    p = {power: (o / (1 + o)).ravel() for power, o in zip(_POWERS, odds, strict=True)}
    for true in (0.0, 0.45, 1.0):
        right = rng.binomial(3000, p[true])
        exact = [binom.logpmf(right, 3000, p[power]).sum() for power in _POWERS]
        weights = _weights(np.array([right, 3000.0 - right]), 1e-6, np.log(alone), levels)
        assert _POWERS[np.argmax(weights)] == _POWERS[np.argmax(exact)] == true
        assert weights.max() > 0.99
        # With noise of a variance of 900 the right counts have its variance beside their own.
        noisy = np.array([right + 40.0, 2975.0 - right])
        total, fits = noisy.sum(axis=0), []
        for power, q in p.items():
            sd = np.sqrt(900.0 * (q**2 + (1 - q) ** 2) + total * q * (1 - q) + 0.25)
            fits.append(norm.logpdf(noisy[0], q * total, sd).sum() + np.log(0.9 if power == 0 else 0.1 / 9))
        np.testing.assert_allclose(_weights(noisy, 900.0, np.log(alone), levels), softmax(fits), atol=1e-9)


def test_what_is_said_is_the_class_with_the_most_evidence_and_the_level_of_its_log_odds():
    alone = np.array([0.5, 0.3, 0.2])
    p = np.array([[0.52, 0.3, 0.18], [0.4, 0.35, 0.25], [0.0001, 0.0001, 0.9998], [0.1, 0.8, 0.1], [0.5, 0.5, 0.0]])
    with np.errstate(divide="ignore"):
        found = _evidence_cells(np.log(p), np.log(alone), 4)
    assert np.isfinite(_log_odds(np.array([0.0, -1e-300, -1e-16, -800.0]))).all()
    # The log-odds rise by 0.08, 0.29, 9.9, 2.2 and 0.85; the levels end at 0.5, 2 and 8.
    assert found.tolist() == [0, 8, 8 + 3, 4 + 2, 4 + 1]
    assert _levels(2) == 14 // 2 == 7


@pytest.mark.parametrize("chosen", ["auto", dirdp.mechanisms.Marginals(measure=["y", "q0", "q1"])], ids=["auto", "own"])
def test_where_noise_hides_all_the_whole_guarantee_is_for_the_frequencies_of_the_classes(chosen):
    rng, few = np.random.default_rng(8), ("q0", "q1", "y")
    train, test = ({name: made[name] for name in few} for made in (repeated(400, rng), repeated(1000, rng)))
    guarantee = dirdp.ZeroCDP(rho=5e-5)
    ledger = dirdp.Ledger(guarantee)
    found = dirdp.Classifier.sample(guarantee, train, "y", categories=kinds(train), mechanism=chosen, ledger=ledger)
    alone = np.log(dirdp.fit(found.tables, progressbar=False).posterior["p_y"].values.ravel())
    assert abs(loss(found.predict_log_proba(test), test) + np.mean(alone[test["y"]])) < 0.002
    assert found.calibration is None
    assert found.powers.sel(power=0.0) == 1
    assert open_release(found.tables).plan.guarantee == guarantee
    assert dirdp.verify(found.tables)
