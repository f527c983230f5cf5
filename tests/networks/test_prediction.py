"""Predictions from releases of naive Bayes and Bayesian networks."""

import functools
import itertools

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr
from scipy.special import gammaln, logsumexp

import pymc_dirdp as dirdp
from pymc_dirdp.networks import prediction
from pymc_dirdp.networks.fitting import DrawnTable
from pymc_dirdp.networks.prediction import averages
from pymc_dirdp.sampling.exact import urn_counts
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


def joint_by_hand(release, structure, record, chain=0, draw=0):
    """The product of the cells that one record is in, found by label."""
    posterior = release["posterior"].to_dataset().isel(chain=chain, draw=draw)
    return np.prod(
        [
            float(posterior[f"p_{name}"].sel({dim: record[dim] for dim in (*parents, name)}))
            for name, parents in structure.items()
        ]
    )


def conditional_by_hand(release, structure, record, target, **draw):
    joint = [
        joint_by_hand(release, structure, {**record, target: value}, **draw)
        for value in release["posterior"][target].values.tolist()
    ]
    return np.array(joint) / np.sum(joint)


@pytest.mark.parametrize("structure", [NAIVE, NETWORK])
@pytest.mark.parametrize("target", ["class", "legs", "size"])
def test_any_variable_can_be_predicted(structure, target):
    """Oracle: Bayes' rule, record by record and by label."""
    release = made(structure)
    found = own_proba(release, FRAME[:12].drop(columns=target), target=target)
    for row, record in zip(found, FRAME[:12].to_dict("records"), strict=True):
        np.testing.assert_allclose(np.exp(row), conditional_by_hand(release, structure, record, target), rtol=1e-12)


@pytest.mark.parametrize("structure", [NAIVE, NETWORK])
def test_the_likelihood_of_each_record(structure):
    """Oracle: the product of its cells; over all possible records it sums to 1."""
    release = made(structure)
    found = own_likelihood(release, FRAME[:12])
    by_hand = [joint_by_hand(release, structure, record) for record in FRAME[:12].to_dict("records")]
    np.testing.assert_allclose(np.exp(found), by_hand, rtol=1e-12)
    everything = pd.DataFrame(itertools.product(*CATEGORIES.values()), columns=list(CATEGORIES))
    np.testing.assert_allclose(np.exp(own_likelihood(release, everything)).sum(), 1.0, rtol=1e-12)


def test_probabilities_are_averaged_over_draws_and_chains():
    """Those of whole records, before they are normalised, and not their logarithms: each would be another answer."""
    each = list(itertools.product(range(2), range(3)))
    records = FRAME[:5].to_dict("records")
    release = made(NAIVE, draws=3, chains=2)
    likelihood = [np.mean([joint_by_hand(release, NAIVE, r, chain=c, draw=d) for c, d in each]) for r in records]
    np.testing.assert_allclose(np.exp(own_likelihood(release, FRAME[:5])), likelihood, rtol=1e-12)
    predicted = []
    for r in records:
        joint = [
            np.mean([joint_by_hand(release, NAIVE, {**r, "class": k}, chain=c, draw=d) for c, d in each])
            for k in CATEGORIES["class"]
        ]
        predicted.append(np.array(joint) / np.sum(joint))
    np.testing.assert_allclose(np.exp(own_proba(release, FRAME[:5], target="class")), predicted, rtol=1e-12)
    normalised = [
        np.mean([conditional_by_hand(release, NAIVE, r, "class", chain=c, draw=d) for c, d in each], axis=0)
        for r in records
    ]
    assert np.abs(np.array(normalised) - predicted).max() > 1e-3


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


@pytest.mark.thorough
@pytest.mark.parametrize("labels", [[2, 4], [False, True], [0.5, 1.5], ["2", "4"]])
def test_labels_of_every_kind_survive_the_release_and_its_file(labels, tmp_path):
    records = {"class": ["a", "b", "a"], "x": [labels[0], labels[1], labels[1]]}
    model = dirdp.naive_bayes(records, records["class"], categories={"class": ["a", "b"], "x": labels})
    release = dirdp.sample(LOOSE, model)
    release.to_netcdf(tmp_path / "release.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "release.nc", engine="h5netcdf") as back:
        again = own_proba(back.load(), records)
    by_hand = [conditional_by_hand(release, {"class": [], "x": ["class"]}, {"x": x}, "class") for x in records["x"]]
    np.testing.assert_allclose(np.exp(again), by_hand, rtol=1e-10)


@pytest.mark.filterwarnings("ignore:Found dimension named 'sample':UserWarning")  # of ArviZ, about this name
def test_a_variable_may_be_called_sample():
    records = {"class": ["a", "b"], "sample": [0, 1]}
    model = dirdp.naive_bayes(records, records["class"], categories={"class": ["a", "b"], "sample": [0, 1]})
    assert own_proba(planned_sample(LOOSE, model, released_draws=2), records).shape == (2, 2)


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


def test_from_model_to_prediction_and_file(tmp_path):
    release = dirdp.sample(dirdp.RenyiDP(order=4, epsilon=1.0), naive())
    records = FRAME[:30].to_dict("records")
    expected = np.log([conditional_by_hand(release, NAIVE, record, "class") for record in records])
    np.testing.assert_allclose(own_proba(release, FRAME[:30]), expected, rtol=1e-10)
    release.to_netcdf(tmp_path / "release.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "release.nc", engine="h5netcdf") as back:
        np.testing.assert_allclose(own_proba(back.load(), FRAME[:30]), expected, rtol=1e-10)


def test_a_private_classifier_learns():
    """At a loose guarantee; hens are known by their two legs."""
    right = np.array([CATEGORIES["class"].index(c) for c in CLASS])
    learnt = own_proba(dirdp.sample(LOOSE, naive()), FRAME)
    assert np.mean(learnt.argmax(axis=1) == right) > 0.7
    assert np.all(learnt[CLASS == "hen"].argmax(axis=1) == 2)


@pytest.mark.slow
def test_a_loose_release_is_the_network_of_the_data():
    """Oracle: frequencies counted by pandas. Many records, so a draw is within six standard deviations of them."""
    many = pd.concat([FRAME] * 250, ignore_index=True)
    structure = {"class": [], "size": ["class"], "legs": ["class", "size"]}
    release = dirdp.sample(LOOSE, dirdp.bayesian_network(many, structure, categories=CATEGORIES))
    joint = many.value_counts(["class", "size", "legs"], normalize=True)
    records = pd.DataFrame(joint.index.to_list(), columns=["class", "size", "legs"])
    found = np.exp(own_likelihood(release, records))
    np.testing.assert_allclose(found, joint.to_numpy(), atol=6 * 0.5 / np.sqrt(len(many)) + 1e-4)


def test_what_cannot_be_predicted():
    release = made(NAIVE)
    with pytest.raises(dirdp.errors.ArgumentError, match="'tail' is not a variable"):
        own_proba(release, FRAME, target="tail")
    with pytest.raises(dirdp.errors.DataError, match="'size'") as caught:
        own_proba(release, FRAME.assign(size="giant"))
    assert "giant" not in str(caught.value)
    with pytest.raises(dirdp.errors.DataError, match="'legs'"):
        own_likelihood(release, {**FRAME, "legs": [None] * N})
    with pytest.raises(dirdp.errors.DataError, match="different lengths"):
        own_likelihood(release, {**FRAME, "legs": [2]})
    with pytest.raises(dirdp.errors.ArgumentError, match="no column 'size'"):
        own_proba(release, FRAME.drop(columns="size"))
    with pytest.raises(dirdp.errors.ArgumentError, match="Expected a release"):
        own_proba(xr.DataTree(), FRAME)
    with pytest.raises(dirdp.errors.ArgumentError, match="'size', 'legs' have no parents"):
        own_proba(made(NETWORK), FRAME)
    orphan = made(NAIVE)
    orphan["posterior"] = orphan["posterior"].to_dataset().drop_vars("p_class")
    with pytest.raises(dirdp.errors.ArgumentError, match=r"target=, one of 'legs', 'size'.*each of them has parents"):
        own_proba(orphan, FRAME)
    with pytest.raises(dirdp.errors.ArgumentError, match=r"no table of 'class'.*predict_log_proba"):
        own_likelihood(orphan, FRAME)


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


def test_a_rate_that_is_1_up_to_rounding_makes_failure_impossible(monkeypatch):
    release, averages = dirdp.sample(LOOSE, with_rates(), mechanism="geometric", unit=0), prediction.averages

    def sure(tables):
        shares, weights = averages(tables)
        shares["eggs"][..., 0, :] = [1, 0]
        return shares, weights

    monkeypatch.setattr(prediction, "averages", sure)
    found = dirdp.predict_log_proba(release, {"size": ["small"] * 2, "eggs_outcome": ["success", "failure"]})
    assert np.isneginf(found).sum() == np.isneginf(found[:, 0]).sum() == 1


@pytest.mark.parametrize("mechanism", ["dirichlet", "geometric"])
@pytest.mark.parametrize("draws", ["released", 300])
def test_beta_tables_predict(mechanism, draws):
    """Oracle: Bayes' rule by hand on the averages over draws that come one from each table."""
    release = dirdp.sample(LOOSE, with_rates(), mechanism=mechanism, unit=0)
    values = ["success", "failure", "success"]
    X = {"size": ["small", "large", "huge"], "eggs_outcome": values}
    source = release if draws == "released" else dirdp.analyse(release, draws, chains=1, random_seed=3)
    found = dirdp.predict_log_proba(source, X, **({"draws": draws} if draws == "released" else {}))
    posterior = source["posterior"].to_dataset()
    rate = posterior["eggs"] if draws == "released" else posterior["eggs"].mean(["chain", "draw"])
    for i, value in enumerate(values):
        shares = posterior[["p_class", "p_size"]].sel(size=X["size"][i])
        if draws == "released":
            joint = shares["p_class"] * shares["p_size"] * (rate if value == "success" else 1 - rate)
            joint = joint.mean(["chain", "draw"]).values
        else:
            latent = source["latent_counts"]
            assert set(latent.data_vars) == {"p_class", "p_size", "eggs"}
            averaged = shares.mean(["chain", "draw"])
            joint = (averaged["p_class"] * averaged["p_size"] * (rate if value == "success" else 1 - rate)).values
        expected = joint / joint.sum()
        np.testing.assert_allclose(np.exp(found[i]), expected, atol=1e-9 if draws == "released" else 0.02)
    # A prediction that left the Beta out would be another one.
    alone = {name: X[name] for name in ["size"]}
    with pytest.raises(dirdp.errors.ArgumentError, match=r"no column 'eggs_outcome'\. Needed are 'eggs_outcome'"):
        dirdp.predict_log_proba(release, alone)


def test_an_outcome_may_be_a_text_a_boolean_or_a_number():
    release = dirdp.sample(LOOSE, with_rates(), mechanism="geometric", unit=0)
    X = {"size": ["small", "small"]}
    found = [
        dirdp.predict_log_proba(release, X | {"eggs_outcome": values}, draws=50)
        for values in (["success", "failure"], [True, False], [1, 0], np.array([1.0, 0.0]), pd.Series([True, False]))
    ]
    assert all(np.array_equal(one, found[0]) for one in found)
    assert not np.allclose(found[0][0], found[0][1])
    with pytest.raises(dirdp.errors.DataError, match="'eggs_outcome'"):
        dirdp.predict_log_proba(release, X | {"eggs_outcome": [2, 0]}, draws=50)


def test_a_beta_itself_is_predicted_and_scores_whole_records():
    release = dirdp.sample(LOOSE, with_rates(), mechanism="geometric", unit=0)
    known = {"class": ["hen", "cat"]}
    found = np.exp(dirdp.predict_log_proba(release, known, target="eggs_outcome", draws=400))
    rates = dirdp.analyse(release, 4000, chains=1, random_seed=1)["posterior"]["eggs"]
    np.testing.assert_allclose(found[:, 0], rates.mean(["chain", "draw"]).sel({"class": ["hen", "cat"]}), atol=0.02)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    records = {"class": ["hen"] * 2, "size": ["small"] * 2, "eggs_outcome": [True, False]}
    both = dirdp.log_likelihood(release, records, draws="released")
    drawn = release["posterior"].to_dataset()
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
SMALL = {"class": ["a", "b"], "x": [0, 1], "y": [0, 1]}
RECORDS = {"class": list("aaabbb"), "x": [0, 0, 1, 1, 1, 0], "y": [0, 1, 1, 1, 1, 1]}


def small_release(mechanism, **options):
    model = dirdp.naive_bayes(RECORDS, RECORDS["class"], categories=SMALL)
    return planned_sample(dirdp.ApproxDP(epsilon=3.0, delta=1e-4), model, mechanism=mechanism, **options)


def log_noise(release, name, tables):
    """The log probability of the output for each whole table of counts: geometric noise, or an urn's draw.

    It is computed from the numbers of the file alone.
    """
    group = release[f"mechanism/p_{name}"]
    if "noisy_counts" in group:
        return -np.abs(np.atleast_2d(group["noisy_counts"].values) - tables).sum(axis=(-2, -1)) / float(
            group["noise_parameter"]
        )
    u = float(group["r"]) * tables + group["alpha"].values
    drawn = urn_counts(release["posterior"][f"p_{name}"].values[0], group.attrs["steps"])
    logs = gammaln(u + drawn) - gammaln(u)
    rows = gammaln(u.sum(axis=-1)) - gammaln(u.sum(axis=-1) + drawn.sum(axis=-1))
    return logs.sum(axis=(-2, -1)) + rows.sum(axis=-1)


def average_shares(release, name, totals):
    """Average shares of a table given its release and each of some row totals, and the logarithm of its evidence."""
    shares, evidence = [], []
    for rows in totals:
        cells = itertools.product(*(range(n + 1) for n in rows))
        tables = np.array([[[k, n - k] for k, n in zip(first, rows, strict=True)] for first in cells], dtype=float)
        # Under a flat prior all tables with these row totals are as likely as one another.
        logs = log_noise(release, name, tables)
        weights = np.exp(logs - logsumexp(logs))
        rows_of = tables.sum(axis=-1, keepdims=True)
        shares.append(np.tensordot(weights, (tables + 1) / (rows_of + 2), 1))
        evidence.append(logsumexp(logs) - np.log(len(tables)))
    return np.array(shares), np.array(evidence)


def brute_force(release, *, jointly):
    """The average joint probability of class, x and y given the release, summed over all tables of six records."""
    totals = [(n, 6 - n) for n in range(7)]
    classes = average_shares(release, "class", [(6,)])[0][0]
    features = {name: average_shares(release, name, totals) for name in ("x", "y")}
    if not jointly:
        # A uniform prior of the division among rows.
        means = {}
        for name, (shares, evidence) in features.items():
            weights = np.exp(evidence - logsumexp(evidence))
            means[name] = np.tensordot(weights, shares, 1)
        return classes[0][:, None, None] * means["x"][:, :, None] * means["y"][:, None, :]
    tables = np.array([[list(rows)] for rows in totals], dtype=float)
    of_class = log_noise(release, "class", tables) + features["x"][1] + features["y"][1]
    weights = np.exp(of_class - logsumexp(of_class))
    p = (tables[:, 0] + 1) / 8
    return np.einsum("n,nc,ncx,ncy->cxy", weights, p, features["x"][0], features["y"][0])


def is_joint(analysis):
    """Whether the analysis took the tables together: then rows add up to the counts of the class in every draw."""
    latent = analysis["latent_counts"]
    return bool((latent["p_x"].sum("x").values == latent["p_class"].values).all())


@pytest.mark.thorough
@pytest.mark.parametrize("mechanism", ["dirichlet", "geometric"])
def test_predictions_are_averages_over_all_tables_given_the_release(mechanism):
    given = {"x": [0, 0, 1, 1], "y": [0, 1, 0, 1]}
    # Now and then what was drawn lies near the average, and such a release tells the two apart no more.
    for _ in range(20):
        release = small_release(mechanism)
        joint = brute_force(release, jointly=is_joint(dirdp.analyse(release, 100, chains=1, random_seed=1)))
        by_hand = (joint / joint.sum(axis=0)).reshape(2, 4).T
        if np.abs(np.exp(own_proba(release, given)) - by_hand).max() > 0.02:
            break
    else:
        pytest.fail("What is drawn is no average.")
    everything = list(itertools.product(*SMALL.values()))
    records = {name: [record[i] for record in everything] for i, name in enumerate(SMALL)}
    found = dirdp.log_likelihood(release, records, draws=100_000)
    np.testing.assert_allclose(np.exp(found).reshape(2, 2, 2), joint, rtol=0.02)
    np.testing.assert_allclose(np.exp(found).sum(), 1.0, rtol=0.01)
    predicted = np.exp(dirdp.predict_log_proba(release, given, draws=100_000))
    np.testing.assert_allclose(predicted, by_hand, rtol=0.02)


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
        dirdp.predict_log_proba(analysis, records),
        dirdp.predict_log_proba(release, records, draws=500, random_seed=3),
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
