"""Wide tables: their model in PyMC, synthetic records, likelihoods and predictions of a release and of a fit of it."""

import copy
import itertools
import math

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError, FewRecordsWarning
from pymc_dirdp.inference.mixture import COMPONENTS, RANK
from pymc_dirdp.networks import refinement, wide_records
from pymc_dirdp.networks.refinement import refine
from pymc_dirdp.releases import pairs
from pymc_dirdp.releases.opened import content_of
from tests.networks.test_choosing import CATEGORIES, made_up
from tests.planned import one_row, planned_sample

FEW_CATEGORIES = {"a": ["x", "y", "z"], "b": [1, 2], "one": ["only"]}
FEW = {"a": ["x", "z", "y", "x"], "b": [1, 2, 2, 1], "one": ["only"] * 4}
RECORDS = made_up(10)  # 6,000


@pytest.fixture(scope="module")
def model():
    return dirdp.latent_class(FEW, categories=FEW_CATEGORIES)


def codes(model):
    return model.rvs_to_values[model["records"]].data


def test_the_likelihood_is_that_of_a_mixture_of_products(model):
    rng = np.random.default_rng(2)
    values = {
        "place": rng.standard_normal((COMPONENTS, RANK)),
        "slopes": 0.5 * rng.standard_normal((RANK, 6)),
        "common": rng.standard_normal(6),
    }
    logits = values["place"] @ values["slopes"] + values["common"]
    shares = [np.exp(part) / np.exp(part).sum(axis=1, keepdims=True) for part in np.split(logits, [3, 5], axis=1)]
    expected = [math.log(np.mean(shares[0][:, a] * shares[1][:, b])) for a, b in zip(*codes(model).T[:2], strict=True)]
    found = model.compile_fn(model.logp(vars=[model["records"]], sum=False), on_unused_input="ignore")(values)
    np.testing.assert_allclose(found[0], expected, rtol=1e-10)


@pytest.mark.filterwarnings("ignore:Numba will use object mode")
def test_the_prior_predictive_draws_records(model):
    with model:
        drawn = pm.sample_prior_predictive(draws=3, random_seed=1)
    records = drawn["prior_predictive"]["records"].values
    assert records.shape == (1, 3, 4, 3)
    assert np.all(records.max(axis=(0, 1, 2)) <= [2, 1, 0])
    assert drawn["prior"]["p_a"].shape == (1, 3, COMPONENTS, 3)


def test_rows_for_several_records_missing_values_and_units():
    table, declared = {"a": ["x", "y"], "b": [1, 2], "n": [3, 2]}, {"a": ["x", "y"], "b": [1, 2]}
    counted = dirdp.latent_class(table, categories=declared, counts="n")
    assert sorted(map(tuple, codes(counted).tolist())) == [(0, 0)] * 3 + [(1, 1)] * 2
    filled = dirdp.latent_class(FEW | {"a": ["x", None, "other", "x"]}, categories=FEW_CATEGORIES, otherwise={"a": "z"})
    assert codes(filled)[:, 0].tolist() == [0, 2, 2, 0]
    bounded = dirdp.latent_class(FEW | {"who": [1, 1, 1, 2]}, categories=FEW_CATEGORIES, unit="who", contribution=2)
    assert codes(bounded).shape == (3, 3)


def test_columns_and_values_that_no_model_has():
    for categories, says in (
        ({"a": ["x", "y", "z"], "one": ["only"]}, "at least two columns"),
        *((FEW_CATEGORIES | {name: [1, 2]}, name) for name in ("records", "component", "p_a", "c/d", "missing")),
    ):
        with pytest.raises(ArgumentError, match=says):
            dirdp.latent_class(FEW, categories=categories)
    for wrong in ({"a": ["x", "secret", "y", "x"]}, {"b": [1, 2, 2]}):
        with pytest.raises(DataError) as raised:
            dirdp.latent_class(FEW | wrong, categories=FEW_CATEGORIES)
        assert "secret" not in str(raised.value)


def test_an_empty_table_is_released_and_a_copy_of_a_model_is_no_wide_table(model):
    nobody = dirdp.latent_class({name: [] for name in FEW}, categories=FEW_CATEGORIES)
    release = dirdp.sample(dirdp.PureDP(epsilon=0.1), nobody, adjacency="add-remove")
    assert dirdp.verify(release)
    assert dirdp.log_likelihood(release, FEW).shape == (4,)
    with pytest.raises(Exception, match=r"conjugate|prior|support|Dirichlet"):
        dirdp.sample(dirdp.PureDP(epsilon=1.0), copy.copy(model))


@pytest.fixture(scope="module")
def release():
    model = dirdp.latent_class(RECORDS, categories=CATEGORIES)
    return dirdp.sample(dirdp.ApproxDP(epsilon=2.0, delta=1e-6), model)


def test_synthetic_records_have_the_pairs_of_the_data(release, monkeypatch):
    refined = dirdp.synthetic(release, random_seed=1)
    assert list(refined) == list(CATEGORIES)
    assert len(refined) == 6000
    monkeypatch.setattr(wide_records, "refine", lambda codes, *_: codes)
    for records in (refined, dirdp.synthetic(release, random_seed=1)):
        for first, second in (("a", "b"), ("a", "c"), ("c", "d")):
            true = dirdp.count(RECORDS, [first, second], categories=CATEGORIES) / 6000
            found = dirdp.count(records, [first, second], categories=CATEGORIES) / 6000
            assert np.abs(true - found).sum() / 2 < 0.04
    monkeypatch.undo()
    sets = dirdp.synthetic(release, 50, 3, random_seed=2)
    assert sets.groupby(level="set").size().tolist() == [50, 50, 50]
    assert len(dirdp.synthetic(release, 0)) == 0
    with pytest.raises(ArgumentError, match="tables"):
        dirdp.synthetic(release, tables=["p_a"])


def test_probabilities_are_those_of_the_mixture_also_in_parts(release, monkeypatch):
    mixture = content_of(release).mixture()
    shares = mixture.table(range(5))
    index = [np.array([CATEGORIES[name].index(value) for value in RECORDS[name][:50].tolist()]) for name in CATEGORIES]
    few = {name: values[:50] for name, values in RECORDS.items()}
    np.testing.assert_allclose(dirdp.log_likelihood(release, few), np.log(shares[tuple(index)]), rtol=1e-9)
    for place, target in enumerate(CATEGORIES):
        found = dirdp.predict_log_proba(release, few, target=target)
        assert found.dims == ("record", target)
        others = [code for i, code in enumerate(index) if i != place]
        joint = np.moveaxis(shares, place, -1)[tuple(others)]
        np.testing.assert_allclose(np.exp(found.values), joint / joint.sum(axis=1, keepdims=True), rtol=1e-9)
    assert np.mean(dirdp.predict_log_proba(release, RECORDS, target="b").idxmax("b").values == RECORDS["b"]) > 0.85
    whole = dirdp.log_likelihood(release, RECORDS)
    monkeypatch.setattr(wide_records, "_BATCH", 7)
    np.testing.assert_array_equal(dirdp.log_likelihood(release, RECORDS), whole)
    empty = {name: values[:0] for name, values in RECORDS.items()}
    assert dirdp.log_likelihood(release, empty).shape == (0,)
    assert dirdp.predict_log_proba(release, empty, target="a").shape == (0, 3)


def test_a_fit_stands_in_the_place_of_its_release_and_is_computed_once_for_a_seed(release, monkeypatch):
    fit, other = dirdp.fit(release), dirdp.fit(release, random_seed=3)
    assert dirdp.verify(fit)
    assert dirdp.verify(other)
    assert fit["posterior"]["p_a"].dims == ("chain", "draw", "component", "a")
    np.testing.assert_allclose(fit["posterior"]["p_a"].sum("a"), 1, rtol=1e-6)
    logs, same, others = (dirdp.log_likelihood(one, RECORDS) for one in (release, fit, other))
    assert np.array_equal(logs, same)
    assert 0 < np.abs(logs - others).mean() < 0.05
    monkeypatch.setattr(pairs, "fit_mixture", None)
    dirdp.fit(release)
    dirdp.fit(release, random_seed=3)
    dirdp.synthetic(release, 10)


def test_what_has_no_meaning_for_a_mixture_is_refused(release):
    for call in (
        lambda: dirdp.fit(release, "joint"),
        lambda: dirdp.fit(release, random_seed=-1),
        lambda: dirdp.log_likelihood(release, RECORDS, draws=5),
        lambda: dirdp.predict_log_proba(release, RECORDS, target="a", draws="released"),
        lambda: dirdp.predict_log_proba(release, RECORDS),
        lambda: dirdp.predict_log_proba(release, RECORDS, target="e"),
    ):
        with pytest.raises(ArgumentError):
            call()
    with pytest.raises(DataError) as raised:
        dirdp.log_likelihood(release, RECORDS | {"a": np.array(["secret"] * 6000)})
    assert "secret" not in str(raised.value)
    with pytest.raises(ArgumentError, match="random_seed"):
        dirdp.fit(planned_sample(dirdp.PureDP(epsilon=1.0), one_row(), mechanism="geometric"), random_seed=1)


def test_a_guarantee_that_shows_nothing_warns():
    model = dirdp.latent_class({name: values[::10] for name, values in made_up(1).items()}, categories=CATEGORIES)
    release = dirdp.sample(dirdp.ApproxDP(epsilon=0.05, delta=1e-6), model)
    with pytest.warns(FewRecordsWarning, match="hides all dependence"):
        dirdp.fit(release)
    assert len(dirdp.synthetic(release)) == 60


def all_pairs(codes, lengths):
    hot = np.concatenate([np.eye(length)[codes[:, i]] for i, length in enumerate(lengths)], axis=1)
    return hot.T @ hot


def test_no_single_change_is_left_that_would_help_much(monkeypatch):
    monkeypatch.setattr(refinement, "_SWEEPS", 50)
    rng, lengths = np.random.default_rng(3), (3, 3, 2)
    target, start = (np.stack([rng.integers(k, size=30) for k in lengths], axis=1) for _ in range(2))
    expected, column = all_pairs(target, lengths).astype(float), np.repeat(np.arange(3), lengths)

    def squares(codes):
        return (((all_pairs(codes, lengths) - expected) ** 2) * (column != column[:, None])).sum()

    found = refine(start, lengths, expected, rng)
    least = squares(found)
    # What has the pairs stays as it is, also where there are no records.
    assert np.array_equal(refine(target, lengths, expected, rng), target)
    assert refine(target[:0], lengths, expected, rng).shape == (0, 3)
    for row, (variable, length) in itertools.product(range(30), enumerate(lengths)):
        for value in range(length):
            other = found.copy()
            other[row, variable] = value
            assert squares(other) >= least - 1e-9


def test_the_compiled_sweep_is_the_plain_one():
    rng, lengths = np.random.default_rng(5), (4, 3, 5)
    codes = np.stack([rng.integers(k, size=60) for k in lengths], axis=1)
    starts, expected = np.array([0, 4, 7, 12]), rng.gamma(1.0, size=(12, 12)) * 5
    expected += expected.T
    order = rng.permutation(codes.size)
    plain, compiled = codes.copy(), codes.copy()
    errors = [all_pairs(codes, lengths) - expected for _ in range(2)]
    count = refinement._sweep(plain, starts, errors[0], order)
    assert refinement.compiled_sweep()(compiled, starts, errors[1], order) == count > 0
    assert np.array_equal(plain, compiled)
    np.testing.assert_allclose(errors[0], errors[1])
