"""Naive Bayes and Bayesian networks: the models, and predictions from their releases."""

import itertools
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import pymc_dirdp as pmd
from pymc_dirdp.models.observations import read_counts

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
NETWORK = {"size": ["class", "legs"], "class": [], "legs": ["class"]}
LOOSE = pmd.RenyiDP(order=1.01, epsilon=100)


def naive(**options):
    return pmd.naive_bayes(FRAME, FRAME["class"], categories=CATEGORIES, **options)


def counts_of(model):
    return {table.name: read_counts(table, model) for table in pmd.tables(model)}


def test_naive_bayes_counts_features_given_the_class():
    """Oracle: pandas.crosstab; the direction is Pr[feature | class] (ERRATA P1.2)."""
    counts = counts_of(naive())
    by_hand = pd.crosstab(FRAME["class"], FRAME["size"]).reindex(columns=CATEGORIES["size"], fill_value=0)
    np.testing.assert_array_equal(counts["p_size"], by_hand)
    np.testing.assert_array_equal(counts["p_class"], FRAME["class"].value_counts()[CATEGORIES["class"]])
    assert counts["p_legs"].shape == (3, 2)
    # Nobody is huge, and no cat has two legs: the cells are there all the same.
    assert counts["p_size"][:, 2].sum() == 0


def test_networks_hold_every_configuration_of_the_parents():
    model = pmd.bayesian_network(FRAME, NETWORK, categories=CATEGORIES)
    counts = counts_of(model)
    assert counts["p_size"].shape == (3, 2, 3)
    for (i, c), (j, n), (k, s) in itertools.product(*(enumerate(CATEGORIES[v]) for v in ("class", "legs", "size"))):
        here = (FRAME["class"] == c) & (FRAME["legs"] == n) & (FRAME["size"] == s)
        assert counts["p_size"][i, j, k] == here.sum()
    table = next(table for table in pmd.tables(model) if table.name == "p_size")
    assert table.dims == ("class", "legs", "size")


@pytest.mark.parametrize(
    "structure",
    [
        {name: tuple(parents) for name, parents in NETWORK.items()},
        [("class", "size"), ("legs", "size"), ("class", "legs")],
        SimpleNamespace(
            nodes=["class", "legs", "size"], edges=[("class", "size"), ("legs", "size"), ("class", "legs")]
        ),
    ],
)
def test_structures_can_be_written_in_several_ways(structure):
    expected = counts_of(pmd.bayesian_network(FRAME, NETWORK, categories=CATEGORIES))
    found = counts_of(pmd.bayesian_network(FRAME, structure, categories=CATEGORIES))
    assert {name: counts.tolist() for name, counts in found.items()} == {
        name: counts.tolist() for name, counts in expected.items()
    }


@pytest.mark.parametrize(
    ("structure", "message"),
    [
        ({"class": ["legs"], "legs": ["class"]}, "cycle: (class -> legs -> class|legs -> class -> legs)"),
        ({"class": ["class"]}, "cycle: class -> class"),
        ({"class": ["tail"]}, "'tail', which is no variable"),
        ({"class": [], "legs": ["class", "class"]}, "a parent twice"),
        ({"class": [], "tail": []}, r"categories\['tail'\]"),
        ({"class": "legs", "legs": []}, "list of names"),
        ({}, "at least one variable"),
        (["class"], "parent, child"),
    ],
)
def test_wrong_structures(structure, message):
    with pytest.raises(pmd.ArgumentError, match=message):
        pmd.bayesian_network(FRAME, structure, categories=CATEGORIES)


def test_priors_by_variable():
    model = pmd.bayesian_network(FRAME, NETWORK, categories=CATEGORIES, alpha={"size": [1.0, 2.0, 3.0], "class": 0.5})
    priors = {table.name: table.prior for table in pmd.tables(model)}
    np.testing.assert_array_equal(priors["p_size"], np.broadcast_to([1.0, 2.0, 3.0], (3, 2, 3)))
    np.testing.assert_array_equal(priors["p_class"], [0.5] * 3)
    np.testing.assert_array_equal(priors["p_legs"], np.ones((3, 2)))
    with pytest.raises(pmd.ArgumentError, match=r"alpha\['size'\] to broadcast"):
        pmd.bayesian_network(FRAME, NETWORK, categories=CATEGORIES, alpha={"size": [1.0, 2.0]})
    with pytest.raises(pmd.ArgumentError, match="> 0"):
        naive(alpha=0.0)


def test_a_value_that_was_not_declared_stops_the_model():
    with pytest.raises(pmd.DataError, match="'size'"):
        pmd.naive_bayes(FRAME, CLASS, categories=CATEGORIES | {"size": ["small", "huge"]})
    with pytest.raises(pmd.ArgumentError, match="target="):
        pmd.naive_bayes(FRAME, CLASS, categories={"legs": [2, 4]})


def by_hand(release, frame):
    """Log joint of each record and class, record by record."""
    posterior = release["posterior"].isel(chain=0, draw=0)
    return np.log(
        [
            [
                float(posterior["p_class"].sel({"class": c}))
                * float(posterior["p_legs"].sel({"class": c, "legs": record["legs"]}))
                * float(posterior["p_size"].sel({"class": c, "size": record["size"]}))
                for c in CATEGORIES["class"]
            ]
            for _, record in frame.iterrows()
        ]
    )


def test_predictions_by_hand(tmp_path):
    release = pmd.sample(pmd.RenyiDP(order=4, epsilon=1.0), naive())
    joint = by_hand(release, FRAME[:30])
    expected = joint - np.log(np.exp(joint).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(pmd.predict_log_proba(release, FRAME[:30]), expected, rtol=1e-10)
    own = [CATEGORIES["class"].index(c) for c in FRAME["class"][:30]]
    np.testing.assert_allclose(pmd.log_likelihood(release, FRAME[:30]), joint[np.arange(30), own], rtol=1e-10)
    release.to_netcdf(tmp_path / "release.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "release.nc", engine="h5netcdf") as back:
        np.testing.assert_allclose(pmd.predict_log_proba(back.load(), FRAME[:30]), expected, rtol=1e-10)


def test_predictions_average_over_draws():
    release = pmd.sample(pmd.RenyiDP(order=4, epsilon=1.0), naive(), draws=3)
    tables = {f"/mechanism/{name}": node.to_dataset() for name, node in release["mechanism"].children.items()}
    posterior = release["posterior"].to_dataset()
    single = [xr.DataTree.from_dict({"/posterior": posterior.isel(draw=[i]), **tables}) for i in range(3)]
    average = np.mean([np.exp(pmd.predict_log_proba(tree, FRAME[:5])) for tree in single], axis=0)
    np.testing.assert_allclose(np.exp(pmd.predict_log_proba(release, FRAME[:5])), average, rtol=1e-10)


def test_any_variable_of_a_network_can_be_the_target():
    release = pmd.sample(LOOSE, pmd.bayesian_network(FRAME, NETWORK, categories=CATEGORIES))
    posterior = release["posterior"].isel(chain=0, draw=0)
    for target in NETWORK:
        found = pmd.predict_log_proba(release, FRAME[:5], target=target)
        for row, (_, record) in zip(found, FRAME[:5].iterrows(), strict=True):
            joint = []
            for value in CATEGORIES[target]:
                at = record.to_dict() | {target: value}
                joint.append(
                    float(posterior["p_class"].sel({"class": at["class"]}))
                    * float(posterior["p_legs"].sel({"class": at["class"], "legs": at["legs"]}))
                    * float(posterior["p_size"].sel({v: at[v] for v in ("class", "legs", "size")}))
                )
            np.testing.assert_allclose(row, np.log(np.array(joint) / np.sum(joint)), rtol=1e-9)


def test_a_private_classifier_learns():
    """Hens have two legs: at a loose guarantee the classifier knows, and at a tight one it knows nothing."""
    right = np.array([CATEGORIES["class"].index(c) for c in CLASS])
    learnt = pmd.predict_log_proba(pmd.sample(LOOSE, naive()), FRAME)
    assert np.mean(learnt.argmax(axis=1) == right) > 0.7
    assert np.all(learnt[CLASS == "hen"].argmax(axis=1) == 2)


def test_predictions_need_a_network():
    release = pmd.sample(LOOSE, naive())
    with pytest.raises(pmd.ArgumentError, match="'tail' is no variable"):
        pmd.predict_log_proba(release, FRAME, target="tail")
    with pytest.raises(pmd.DataError, match="'size'"):
        pmd.predict_log_proba(release, FRAME.assign(size="giant"))
    with pytest.raises(pmd.ArgumentError, match="no column 'size'"):
        pmd.predict_log_proba(release, FRAME.drop(columns="size"))
    with pytest.raises(pmd.ArgumentError, match="Expected a release"):
        pmd.predict_log_proba(xr.DataTree(), FRAME)
    two_roots = pmd.sample(LOOSE, pmd.bayesian_network(FRAME, {"legs": [], "size": []}, categories=CATEGORIES))
    with pytest.raises(pmd.ArgumentError, match="target=: 'legs', 'size'"):
        pmd.predict_log_proba(two_roots, FRAME)


def test_large_counts_are_kept():
    """PyMC stores integer arrays in 32 bits, which 3e9 records of one value would pass."""
    from pymc_dirdp.models.builders import _stored

    assert _stored(np.array([3_000_000_000, 1])).dtype == np.float64
    assert _stored(np.array([3, 1])).dtype == np.int64
