"""The model of a wide table in PyMC: its likelihood, what it observes, and records that it refuses."""

import math

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.inference.mixture import COMPONENTS, RANK

CATEGORIES = {"a": ["x", "y", "z"], "b": [1, 2], "one": ["only"]}
RECORDS = {"a": ["x", "z", "y", "x"], "b": [1, 2, 2, 1], "one": ["only"] * 4}


@pytest.fixture(scope="module")
def model():
    return dirdp.latent_class(RECORDS, categories=CATEGORIES)


def test_the_likelihood_is_that_of_a_mixture_of_products(model):
    rng = np.random.default_rng(2)
    values = {
        "place": rng.standard_normal((COMPONENTS, RANK)),
        "slopes": 0.5 * rng.standard_normal((RANK, 6)),
        "common": rng.standard_normal(6),
    }
    logits = values["place"] @ values["slopes"] + values["common"]
    shares = [np.exp(part) / np.exp(part).sum(axis=1, keepdims=True) for part in np.split(logits, [3, 5], axis=1)]
    expected = []
    for a, b in [(0, 0), (2, 1), (1, 1), (0, 0)]:
        expected.append(math.log(np.mean(shares[0][:, a] * shares[1][:, b])))
    found = model.compile_fn(model.logp(vars=[model["records"]], sum=False), on_unused_input="ignore")(values)
    np.testing.assert_allclose(found[0], expected, rtol=1e-10)


@pytest.mark.filterwarnings("ignore:Numba will use object mode")
def test_the_prior_predictive_draws_records(model):
    with model:
        drawn = pm.sample_prior_predictive(draws=3, random_seed=1)
    records = drawn["prior_predictive"]["records"].values
    assert records.shape == (1, 3, 4, 3)
    assert records[..., 0].max() <= 2
    assert records[..., 1].max() <= 1
    assert not records[..., 2].any()
    assert drawn["prior"]["p_a"].shape == (1, 3, COMPONENTS, 3)


def test_rows_that_stand_for_several_records():
    table = {"a": ["x", "y"], "b": [1, 2], "n": [3, 2]}
    declared = {"a": ["x", "y"], "b": [1, 2]}
    model = dirdp.latent_class(table, categories=declared, counts="n")
    found = model.rvs_to_values[model["records"]].data
    assert sorted(map(tuple, found.tolist())) == [(0, 0)] * 3 + [(1, 1)] * 2


def test_missing_values_have_a_category_of_their_own():
    records = RECORDS | {"a": ["x", None, "other", "x"]}
    model = dirdp.latent_class(records, categories=CATEGORIES, otherwise={"a": "z"})
    assert model.rvs_to_values[model["records"]].data[:, 0].tolist() == [0, 2, 2, 0]


@pytest.mark.parametrize("frames", ["pandas", "polars", "pyarrow"])
def test_frames_are_read_alike(frames, model):
    library = pytest.importorskip(frames)
    frame = library.table(RECORDS) if frames == "pyarrow" else library.DataFrame(RECORDS)
    other = dirdp.latent_class(frame, categories=CATEGORIES)
    assert np.array_equal(*(one.rvs_to_values[one["records"]].data for one in (model, other)))


def test_an_engine_gives_the_same_records(model):
    duckdb = pytest.importorskip("duckdb")
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(RECORDS)
    relation = duckdb.from_df(frame)
    other = dirdp.latent_class(relation, categories=CATEGORIES)
    found = [sorted(map(tuple, one.rvs_to_values[one["records"]].data.tolist())) for one in (model, other)]
    assert found[0] == found[1]


def test_at_most_so_many_records_of_a_unit():
    records = RECORDS | {"who": [1, 1, 1, 2]}
    model = dirdp.latent_class(records, categories=CATEGORIES, unit="who", contribution=2)
    assert model.rvs_to_values[model["records"]].data.shape == (3, 3)


@pytest.mark.parametrize(
    ("categories", "says"),
    [
        ({"a": ["x", "y", "z"]}, "at least two columns"),
        ({"a": ["x", "y", "z"], "one": ["only"]}, "at least two columns"),
        ({}, "."),
        (CATEGORIES | {"records": [1, 2]}, "records"),
        (CATEGORIES | {"component": [1, 2]}, "component"),
        (CATEGORIES | {"p_a": [1, 2]}, "p_a"),
        (CATEGORIES | {"c/d": [1, 2]}, "c/d"),
    ],
)
def test_columns_that_no_model_has(categories, says):
    with pytest.raises(ArgumentError, match=says):
        dirdp.latent_class(RECORDS, categories=categories)


def test_values_that_were_not_declared_are_not_shown():
    with pytest.raises(DataError) as raised:
        dirdp.latent_class(RECORDS | {"a": ["x", "secret", "y", "x"]}, categories=CATEGORIES)
    assert "secret" not in str(raised.value)
    with pytest.raises(DataError):
        dirdp.latent_class(RECORDS | {"b": [1, 2, 2]}, categories=CATEGORIES)
    with pytest.raises(ArgumentError):
        dirdp.latent_class({"a": RECORDS["a"]}, categories=CATEGORIES)


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_handful_of_records_is_released(n):
    records = {name: values[:1] * n for name, values in RECORDS.items()}
    model = dirdp.latent_class(records, categories=CATEGORIES)
    for guarantee in (dirdp.ApproxDP(epsilon=1.0, delta=1e-6), dirdp.PureDP(epsilon=0.1)):
        release = dirdp.sample(guarantee, model, adjacency="add-remove")
        assert dirdp.verify(release)
        assert dirdp.log_likelihood(release, RECORDS).shape == (4,)


def test_a_copy_of_the_model_is_no_wide_table(model):
    import copy

    with pytest.raises(Exception, match=r"conjugate|prior|support|Dirichlet"):
        dirdp.sample(dirdp.PureDP(epsilon=1.0), copy.copy(model))
