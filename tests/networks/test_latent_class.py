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


def codes(model):
    return model.rvs_to_values[model["records"]].data


def test_rows_for_several_records_missing_values_and_units():
    table, declared = {"a": ["x", "y"], "b": [1, 2], "n": [3, 2]}, {"a": ["x", "y"], "b": [1, 2]}
    counted = dirdp.latent_class(table, categories=declared, counts="n")
    assert sorted(map(tuple, codes(counted).tolist())) == [(0, 0)] * 3 + [(1, 1)] * 2
    records = RECORDS | {"a": ["x", None, "other", "x"]}
    filled = dirdp.latent_class(records, categories=CATEGORIES, otherwise={"a": "z"})
    assert codes(filled)[:, 0].tolist() == [0, 2, 2, 0]
    records = RECORDS | {"who": [1, 1, 1, 2]}
    assert codes(dirdp.latent_class(records, categories=CATEGORIES, unit="who", contribution=2)).shape == (3, 3)


@pytest.mark.parametrize("frames", ["pandas", "polars", "pyarrow", "duckdb"])
def test_frames_and_an_engine_are_read_alike(frames, model):
    library = pytest.importorskip(frames)
    pandas = pytest.importorskip("pandas")
    make = {"pyarrow": lambda: library.table(RECORDS), "duckdb": lambda: library.from_df(pandas.DataFrame(RECORDS))}
    frame = make.get(frames, lambda: library.DataFrame(RECORDS))()
    found = codes(dirdp.latent_class(frame, categories=CATEGORIES))
    if frames == "duckdb":
        assert sorted(map(tuple, found.tolist())) == sorted(map(tuple, codes(model).tolist()))
    else:
        assert np.array_equal(found, codes(model))


def test_columns_that_no_model_has():
    for categories, says in (
        ({"a": ["x", "y", "z"]}, "at least two columns"),
        ({"a": ["x", "y", "z"], "one": ["only"]}, "at least two columns"),
        ({}, "."),
        *((CATEGORIES | {name: [1, 2]}, name) for name in ("records", "component", "p_a", "c/d")),
    ):
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


@pytest.mark.parametrize("n", [0, 1])
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
