"""Predictions from releases of naive Bayes and Bayesian networks."""

import functools
import itertools

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.networks import prediction
from pymc_dirdp.networks.fitting import DrawnTable
from pymc_dirdp.networks.prediction import Predictor, averages
from tests.networks.test_builders import CATEGORIES, CLASS, FRAME, N

# The class is the parent in one, a child of two parents in the other, whose dims come in another order.
NAIVE = {"class": [], "legs": ["class"], "size": ["class"]}
NETWORK = {"size": [], "legs": [], "class": ["size", "legs"]}
HATCHED = (np.random.default_rng(6).random(N) < np.where(CLASS == "hen", 0.9, 0.1)).astype(int)


# By the release's own draws, which need no more than tables of probabilities.
own_proba = functools.partial(dirdp.predict_log_proba, draws="released")
own_likelihood = functools.partial(dirdp.log_likelihood, draws="released")


def made(structure, draws=1, chains=1, categories=CATEGORIES):
    """A tree such as `dirdp.fit` returns, with tables that no two cells of are alike."""
    rng = np.random.default_rng(9)
    tables = {}
    for name, parents in structure.items():
        dims = (*parents, name)
        values = rng.dirichlet(np.ones(len(categories[name])), (chains, draws, *(len(categories[v]) for v in parents)))
        tables[f"p_{name}"] = (("chain", "draw", *dims), values)
    coords = {"chain": range(chains), "draw": range(draws)} | {name: categories[name] for name in structure}
    tree = xr.DataTree.from_dict({"/posterior": xr.Dataset(tables, coords)})
    tree.attrs = {"estimate": "made up", "beta_tables": "[]"}
    return tree


def joint_by_hand(release, structure, record):
    """The product of the cells that one record is in, found by label, averaged over draws and chains."""
    tables, product = release["posterior"].to_dataset(), 1.0
    for name, parents in structure.items():
        product = product * tables[f"p_{name}"].sel({dim: record[dim] for dim in (*parents, name)})
    return float(product.mean(["chain", "draw"]))


def conditional_by_hand(release, structure, record, target):
    """By Bayes' rule, from the tables of the target and of its children."""
    structure = {name: parents for name, parents in structure.items() if target in (*parents, name)}
    joint = [joint_by_hand(release, structure, {**record, target: value}) for value in CATEGORIES[target]]
    return np.array(joint) / np.sum(joint)


@pytest.mark.parametrize(("structure", "draws", "chains"), [(NAIVE, 1, 1), (NAIVE, 3, 2), (NETWORK, 3, 2)])
def test_predictions_and_likelihoods_are_those_of_the_cells_of_each_record(structure, draws, chains):
    """Bayes' rule by label. Averages are of whole records, before they are normalised, and not of logarithms."""
    release, frame = made(structure, draws, chains), FRAME[:8]
    records = frame.to_dict("records")
    likelihood = [joint_by_hand(release, structure, record) for record in records]
    np.testing.assert_allclose(np.exp(own_likelihood(release, frame)), likelihood, rtol=1e-12)
    assert own_likelihood(release, frame[:0]).shape == (0,)
    assert own_proba(release, frame[:0], target="class").shape == (0, 3)
    # Where no column is needed, others say how many records there are.
    alone = made({"class": []})
    assert [own_proba(alone, columns).shape for columns in ({}, {"legs": [2, 4]})] == [(0, 3), (2, 3)]
    everything = pd.DataFrame(itertools.product(*CATEGORIES.values()), columns=list(CATEGORIES))
    np.testing.assert_allclose(np.exp(own_likelihood(release, everything)).sum(), 1.0, rtol=1e-12)
    for target in CATEGORIES:
        given = frame.drop(columns=target)
        found = np.exp(own_proba(release, given, target=target))
        for same in (given.to_records(), xr.Dataset({name: ("record", given[name]) for name in given})):
            assert np.array_equal(np.exp(own_proba(release, same, target=target)), found)
        expected = [conditional_by_hand(release, structure, record, target) for record in records]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_many_features_do_not_underflow():
    """300 features of one in a thousand: the product is 1e-900, which no double holds."""
    names = [f"x{i}" for i in range(300)]
    categories = {"class": ["a", "b"], **{x: [0, 1] for x in names}}
    tables = {"p_class": (("chain", "draw", "class"), [[[0.5, 0.5]]])}
    tables |= {f"p_{x}": (("chain", "draw", "class", x), [[[[0.999, 0.001], [0.9, 0.1]]]]) for x in names}
    release = xr.DataTree.from_dict({"/posterior": xr.Dataset(tables, categories)})
    release.attrs = {"estimate": "made up", "beta_tables": "[]"}
    found = own_proba(release, {x: [1] for x in names})
    np.testing.assert_allclose(found, [[-300 * np.log(100), 0.0]], atol=1e-10)


def without_class():
    orphan = made(NAIVE)
    orphan["posterior"] = orphan["posterior"].to_dataset().drop_vars("p_class")
    return orphan


WRONG = {
    "'tail' is not a variable": lambda: own_proba(made(NAIVE), FRAME, target="tail"),
    "no column 'size'": lambda: own_proba(made(NAIVE), FRAME.drop(columns="size")),
    "'size'": lambda: own_proba(made(NAIVE), FRAME.assign(size="giant")),
    "'legs'": lambda: own_likelihood(made(NAIVE), {**FRAME, "legs": [None] * N}),
    "different lengths": lambda: own_likelihood(made(NAIVE), {**FRAME, "legs": [2]}),
    "Expected a release": lambda: own_proba(xr.DataTree(), FRAME),
    "'size', 'legs' have no parents": lambda: own_proba(made(NETWORK), FRAME),
    "target=, one of 'legs', 'size'.*each of them has parents": lambda: own_proba(without_class(), FRAME),
    "'legs' has parents": lambda: Predictor(made(NAIVE), "legs", "released").log_class_shares,
    "no table of 'class'.*predict_log_proba": lambda: own_likelihood(without_class(), FRAME),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_cannot_be_predicted(message):
    with pytest.raises((dirdp.errors.ArgumentError, dirdp.errors.DataError), match=message) as caught:
        WRONG[message]()
    assert "giant" not in str(caught.value)


@pytest.fixture(scope="module")
def rated():
    """Classes, a feature of three categories, and a Beta of each class for a feature of yes and no."""
    with pm.Model(coords={"class": CATEGORIES["class"], "size": CATEGORIES["size"]}):
        p_class = pm.Dirichlet("p_class", np.ones(3), dims="class")
        p_size = pm.Dirichlet("p_size", np.ones((3, 3)), dims=("class", "size"))
        eggs = pm.Beta("eggs", 1, 1, dims="class")
        of = pm.Categorical("of", p=p_class, observed=[CATEGORIES["class"].index(value) for value in CLASS])
        sizes = [CATEGORIES["size"].index(value) for value in FRAME["size"]]
        pm.Categorical("seen", p=p_size[of], observed=sizes)
        pm.Bernoulli("laid", p=eggs[of], observed=HATCHED)
        return dirdp.sample(dirdp.RenyiDP(order=1.01, epsilon=100), mechanism="geometric", unit=0)


def test_a_rate_that_is_1_up_to_rounding_makes_failure_impossible(rated, monkeypatch):
    averages = prediction.averages

    def sure(tables):
        shares, weights = averages(tables)
        shares["eggs"][..., 0, :] = [1, 0]
        return shares, weights

    monkeypatch.setattr(prediction, "averages", sure)
    found = dirdp.predict_log_proba(rated, {"size": ["small"] * 2, "eggs_outcome": ["success", "failure"]})
    assert np.isneginf(found).sum() == np.isneginf(found[:, 0]).sum() == 1


@pytest.mark.parametrize("draws", ["released", 300])
def test_beta_tables_predict(rated, draws):
    """Oracle: Bayes' rule by hand on the averages over draws that come one from each table."""
    values, sizes = ["success", "failure", "success"], ["small", "large", "huge"]
    source = rated if draws == "released" else dirdp.analyse(rated, draws, chains=1, random_seed=3)
    given = {"draws": draws} if draws == "released" else {}
    found = dirdp.predict_log_proba(source, {"size": sizes, "eggs_outcome": values}, **given)
    means = source["posterior"].to_dataset().mean(["chain", "draw"])
    for i, value in enumerate(values):
        rate = means["eggs"] if value == "success" else 1 - means["eggs"]
        joint = (means["p_class"] * means["p_size"].sel(size=sizes[i]) * rate).values
        np.testing.assert_allclose(np.exp(found[i]), joint / joint.sum(), atol=1e-9 if given else 0.02)
    # An outcome may be a text, a boolean or a number.
    for same in ([True, False, True], [1, 0, 1], np.array([1.0, 0.0, 1.0]), pd.Series([True, False, True])):
        again = dirdp.predict_log_proba(source, {"size": sizes, "eggs_outcome": same}, **given)
        assert np.array_equal(again, found)
    with pytest.raises(dirdp.errors.ArgumentError, match=r"no column 'eggs_outcome'\. Needed are 'eggs_outcome'"):
        dirdp.predict_log_proba(rated, {"size": sizes})
    with pytest.raises(dirdp.errors.DataError, match="'eggs_outcome'"):
        dirdp.predict_log_proba(rated, {"size": sizes, "eggs_outcome": [2, 0, 1]}, draws=50)


def test_a_beta_itself_is_predicted_and_scores_whole_records(rated):
    known = {"class": ["hen", "cat"]}
    found = np.exp(dirdp.predict_log_proba(rated, known, target="eggs_outcome", draws=400))
    rates = dirdp.analyse(rated, 1000, chains=1, random_seed=1)["posterior"]["eggs"]
    np.testing.assert_allclose(found[:, 0], rates.mean(["chain", "draw"]).sel({"class": ["hen", "cat"]}), atol=0.02)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    records = {"class": ["hen"] * 2, "size": ["small"] * 2, "eggs_outcome": [True, False]}
    both = dirdp.log_likelihood(rated, records, draws="released")
    drawn = rated["posterior"].to_dataset()
    rest = drawn["p_class"].sel({"class": "hen"}) * drawn["p_size"].sel({"class": "hen", "size": "small"})
    assert np.exp(both).sum() == pytest.approx(float(rest.mean()))


def test_features_drawn_jointly_with_the_class_are_independent_given_its_count():
    """Draws from a distribution that is known: a product of averages over all draws would be wrong by far."""
    rng = np.random.default_rng(2)
    draws, features = 20_000, 12
    count = rng.integers(1, 100, draws)
    totals = np.stack([count, 100 - count], axis=-1)
    tables = {"p_class": DrawnTable((("class", ["a", "b"]),), (totals + 1) / 102, totals)}
    for i in range(features):
        # The share of the first label is that of the class, give or take noise of its own.
        shares = np.clip(totals / 100 * 0.8 + 0.1 + rng.normal(0, 0.02, totals.shape), 0.01, 0.99)
        pairs = np.stack([shares, 1 - shares], axis=-1)
        counts = np.stack([totals // 2, totals - totals // 2], axis=-1)
        tables[f"p_{i}"] = DrawnTable((("class", ["a", "b"]), (f"x{i}", [0, 1])), pairs, counts)
    shares, weights = averages(tables)
    found = weights @ np.prod([shares[f"p_{i}"][:, 0, 0] for i in range(features)], axis=0)
    n = np.arange(1, 100)
    assert found == pytest.approx(np.mean((n / 100 * 0.8 + 0.1) ** features), rel=0.03)
    assert len(weights) == 100
    assert weights.sum() == pytest.approx(1.0)
    # Where one row total differs in one draw the tables were drawn one by one.
    tables["p_3"].counts[7, 0] += 1
    apart = averages({name: DrawnTable(t.labels, t.shares, t.counts) for name, t in tables.items()})
    assert len(apart[1]) == 1


def test_an_analysis_predicts_as_its_release_does(rated):
    records = {"size": ["small", "huge"], "eggs_outcome": [0, 1]}
    analysis = dirdp.analyse(rated, 100, chains=1, random_seed=3)
    found = dirdp.predict_log_proba(rated, records, draws=100, random_seed=3)
    np.testing.assert_array_equal(dirdp.predict_log_proba(analysis, records), found)
    # The same predictions for the same release, unless somebody asks for others.
    plain = dirdp.predict_log_proba(rated, records, draws=100)
    np.testing.assert_array_equal(plain, dirdp.predict_log_proba(rated, records, draws=100))
    assert not np.array_equal(plain, found)
    for source, draws, message in (
        (analysis, 100, "own draws"),
        (analysis, "released", "does not have the draws"),
        (rated, "release", "'released'"),
    ):
        with pytest.raises(dirdp.errors.ArgumentError, match=message):
            dirdp.predict_log_proba(source, records, draws=draws)
