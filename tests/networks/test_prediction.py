"""Predictions from releases of naive Bayes and Bayesian networks."""

import functools
import itertools
import operator

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.networks import prediction
from pymc_dirdp.networks.fitting import DrawnTable
from pymc_dirdp.networks.prediction import averages
from tests.planned import planned_sample

RNG = np.random.default_rng(5)
N = 400
CLASS = RNG.choice(["cat", "dog", "hen"], N, p=[0.5, 0.3, 0.2])
FRAME = pd.DataFrame(
    {
        "class": CLASS,
        "legs": np.where(CLASS == "hen", 2, 4),
        "size": np.where(RNG.random(N) < np.where(CLASS == "dog", 0.8, 0.2), "large", "small"),
    }
)
CATEGORIES = {"class": ["cat", "dog", "hen"], "legs": [2, 4], "size": ["small", "large", "huge"]}
# The class is the parent in one, a child of two parents in the other, whose dims come in another order.
NAIVE = {"class": [], "legs": ["class"], "size": ["class"]}
NETWORK = {"size": [], "legs": [], "class": ["size", "legs"]}
LOOSE = dirdp.RenyiDP(order=1.01, epsilon=100)


# By the release's own draws, which need no more than tables of probabilities.
own_proba = functools.partial(dirdp.predict_log_proba, draws="released")
own_likelihood = functools.partial(dirdp.log_likelihood, draws="released")


def naive():
    return dirdp.naive_bayes(FRAME, FRAME["class"], categories=CATEGORIES)


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
    posterior = release["posterior"].to_dataset()
    cells = (
        posterior[f"p_{name}"].sel({dim: record[dim] for dim in (*parents, name)})
        for name, parents in structure.items()
    )
    return float(functools.reduce(operator.mul, cells).mean(["chain", "draw"]))


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
    everything = pd.DataFrame(itertools.product(*CATEGORIES.values()), columns=list(CATEGORIES))
    np.testing.assert_allclose(np.exp(own_likelihood(release, everything)).sum(), 1.0, rtol=1e-12)
    for target in CATEGORIES:
        found = np.exp(own_proba(release, frame.drop(columns=target), target=target))
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


@pytest.mark.parametrize(
    "frame",
    [
        {"x": ["b", "a", "a"]},
        pd.DataFrame({"x": ["b", "a", "a"]}),
        pd.DataFrame({"x": ["b", "a", "a"]}).to_records(index=False),
        xr.Dataset({"x": ("record", ["b", "a", "a"])}),
    ],
    ids=["mapping", "pandas", "records", "xarray"],
)
def test_a_variable_on_its_own_has_one_answer_for_all_records(frame):
    release = made({"x": []}, categories={"x": ["a", "b"]})
    found = np.exp(own_proba(release, frame))
    np.testing.assert_allclose(found, np.tile(release["posterior"]["p_x"].values[0, 0], (3, 1)), rtol=1e-12)


def test_no_records_no_predictions():
    assert own_proba(made(NAIVE), FRAME[:0]).shape == (0, 3)
    assert own_likelihood(made(NAIVE), FRAME[:0]).shape == (0,)


def test_from_model_to_prediction():
    """At a loose guarantee a private classifier learns: hens are known by their two legs."""
    release = dirdp.sample(LOOSE, naive())
    learnt = own_proba(release, FRAME)
    expected = [conditional_by_hand(release, NAIVE, record, "class") for record in FRAME[:30].to_dict("records")]
    np.testing.assert_allclose(np.exp(learnt[:30]), expected, rtol=1e-10)
    right = np.array([CATEGORIES["class"].index(c) for c in CLASS])
    assert np.mean(learnt.argmax(axis=1) == right) > 0.7
    assert np.all(learnt[CLASS == "hen"].argmax(axis=1) == 2)


def without_class():
    orphan = made(NAIVE)
    orphan["posterior"] = orphan["posterior"].to_dataset().drop_vars("p_class")
    return orphan


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: own_proba(made(NAIVE), FRAME, target="tail"), "'tail' is not a variable"),
        (lambda: own_proba(made(NAIVE), FRAME.drop(columns="size")), "no column 'size'"),
        (lambda: own_proba(made(NAIVE), FRAME.assign(size="giant")), "'size'"),
        (lambda: own_likelihood(made(NAIVE), {**FRAME, "legs": [None] * N}), "'legs'"),
        (lambda: own_likelihood(made(NAIVE), {**FRAME, "legs": [2]}), "different lengths"),
        (lambda: own_proba(xr.DataTree(), FRAME), "Expected a release"),
        (lambda: own_proba(made(NETWORK), FRAME), "'size', 'legs' have no parents"),
        (
            lambda: own_proba(without_class(), FRAME),
            r"target=, one of 'legs', 'size'.*each of them has parents",
        ),
        (lambda: own_likelihood(without_class(), FRAME), r"no table of 'class'.*predict_log_proba"),
    ],
)
def test_what_cannot_be_predicted(call, message):
    with pytest.raises((dirdp.errors.ArgumentError, dirdp.errors.DataError), match=message) as caught:
        call()
    assert "giant" not in str(caught.value)


HATCHED = (RNG.random(N) < np.where(CLASS == "hen", 0.9, 0.1)).astype(int)


def with_rates():
    """Classes, a feature of three categories, and a Beta of each class for a feature of yes and no."""
    codes = np.array([CATEGORIES["class"].index(value) for value in CLASS])
    sizes = np.array([CATEGORIES["size"].index(value) for value in FRAME["size"]])
    with pm.Model(coords={"class": CATEGORIES["class"], "size": CATEGORIES["size"]}) as model:
        p_class = pm.Dirichlet("p_class", np.ones(3), dims="class")
        p_size = pm.Dirichlet("p_size", np.ones((3, 3)), dims=("class", "size"))
        eggs = pm.Beta("eggs", 1, 1, dims="class")
        of = pm.Categorical("of", p=p_class, observed=codes)
        pm.Categorical("seen", p=p_size[of], observed=sizes)
        pm.Bernoulli("laid", p=eggs[of], observed=HATCHED)
    return model


@pytest.fixture(scope="module")
def rated():
    return dirdp.sample(LOOSE, with_rates(), mechanism="geometric", unit=0)


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
    values = ["success", "failure", "success"]
    X = {"size": ["small", "large", "huge"], "eggs_outcome": values}
    source = rated if draws == "released" else dirdp.analyse(rated, draws, chains=1, random_seed=3)
    found = dirdp.predict_log_proba(source, X, **({"draws": draws} if draws == "released" else {}))
    means = source["posterior"].to_dataset().mean(["chain", "draw"])
    for i, value in enumerate(values):
        rate = means["eggs"] if value == "success" else 1 - means["eggs"]
        joint = (means["p_class"] * means["p_size"].sel(size=X["size"][i]) * rate).values
        np.testing.assert_allclose(np.exp(found[i]), joint / joint.sum(), atol=1e-9 if draws == "released" else 0.02)
    # A prediction that left the Beta out would be another one.
    with pytest.raises(dirdp.errors.ArgumentError, match=r"no column 'eggs_outcome'\. Needed are 'eggs_outcome'"):
        dirdp.predict_log_proba(rated, {"size": X["size"]})


def test_an_outcome_may_be_a_text_a_boolean_or_a_number(rated):
    X = {"size": ["small", "small"]}
    found = [
        dirdp.predict_log_proba(rated, X | {"eggs_outcome": values}, draws=50)
        for values in (["success", "failure"], [True, False], [1, 0], np.array([1.0, 0.0]), pd.Series([True, False]))
    ]
    assert all(np.array_equal(one, found[0]) for one in found)
    assert not np.allclose(found[0][0], found[0][1])
    with pytest.raises(dirdp.errors.DataError, match="'eggs_outcome'"):
        dirdp.predict_log_proba(rated, X | {"eggs_outcome": [2, 0]}, draws=50)


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


def test_rates_of_groups_without_shares_predict_given_the_group():
    """Nothing says how many records a department has, and a prediction does not need it."""
    with pm.Model(coords={"department": list("ABC")}) as model:
        rate = pm.Beta("rate", 1, 2, dims="department")
        pm.Binomial("admitted", n=[933, 585, 918], p=rate, observed=[601, 370, 322], dims="department")
    release = dirdp.sample(
        dirdp.PureDP(epsilon=2.0), model, mechanism="geometric", adjacency="add-remove", n_records=2000
    )
    analysis = dirdp.analyse(release, 500, chains=1, n_prior=4000, random_seed=2)
    found = np.exp(dirdp.predict_log_proba(analysis, {"department": ["C", "A"]}))
    np.testing.assert_allclose(found[:, 0], analysis["posterior"]["rate"].mean(["chain", "draw"])[[2, 0]])
    with pytest.raises(dirdp.errors.ArgumentError, match="no table of 'department'"):
        dirdp.log_likelihood(analysis, {"department": ["C"], "rate_outcome": [1]})


# From here on by draws given the release.


def small_release(mechanism, **options):
    records = {"class": list("aaabbb"), "x": [0, 0, 1, 1, 1, 0], "y": [0, 1, 1, 1, 1, 1]}
    categories = {"class": ["a", "b"], "x": [0, 1], "y": [0, 1]}
    model = dirdp.naive_bayes(records, records["class"], categories=categories)
    return planned_sample(dirdp.ApproxDP(epsilon=3.0, delta=1e-4), model, mechanism=mechanism, **options)


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


def test_an_analysis_predicts_as_its_release_does():
    release = small_release("geometric")
    records = {"x": [0, 1], "y": [1, 1]}
    analysis = dirdp.analyse(release, 500, chains=1, random_seed=3)
    np.testing.assert_array_equal(
        dirdp.predict_log_proba(analysis, records), dirdp.predict_log_proba(release, records, draws=500, random_seed=3)
    )
    # The same predictions for the same release, unless somebody asks for others.
    plain = dirdp.predict_log_proba(release, records, draws=100)
    np.testing.assert_array_equal(plain, dirdp.predict_log_proba(release, records, draws=100))
    assert not np.array_equal(plain, dirdp.predict_log_proba(release, records, draws=100, random_seed=1))
    with pytest.raises(dirdp.errors.ArgumentError, match="own draws"):
        dirdp.predict_log_proba(analysis, records, draws=100)
    with pytest.raises(dirdp.errors.ArgumentError, match="does not have the draws"):
        dirdp.predict_log_proba(analysis, records, draws="released")
    for draws in (0, -1, 2.5):
        with pytest.raises(dirdp.errors.ArgumentError, match="draws"):
            dirdp.predict_log_proba(release, records, draws=draws)
    with pytest.raises(dirdp.errors.ArgumentError, match="'released'"):
        dirdp.predict_log_proba(release, records, draws="release")


def test_a_private_number_of_records_needs_an_analysis():
    release = small_release("dirichlet", adjacency="add-remove", n_records=6)
    with pytest.raises(dirdp.errors.ArgumentError, match=r"n_prior.*dirdp\.analyse"):
        dirdp.predict_log_proba(release, {"x": [0], "y": [1]})
    analysis = dirdp.analyse(release, 200, chains=1, n_prior=30, random_seed=1)
    found = np.exp(dirdp.predict_log_proba(analysis, {"x": [0], "y": [1]}))
    np.testing.assert_allclose(found.sum(), 1.0)


def test_a_release_with_little_in_it_does_not_claim_to_know():
    """At a guarantee that leaves nothing but noise, its own draw is sure of itself, and what follows from it is not."""
    release = dirdp.sample(dirdp.PureDP(epsilon=1e-3), naive(), mechanism="geometric")
    given = np.exp(dirdp.predict_log_proba(release, FRAME, draws=1000)).max(axis=1).mean()
    assert given < 0.6
    assert np.exp(own_proba(release, FRAME)).max(axis=1).mean() > given
