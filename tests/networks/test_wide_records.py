"""Synthetic records, likelihoods and predictions of a wide table, from its release and from a fit of it."""

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError, FewRecordsWarning
from pymc_dirdp.releases.opened import content_of

CATEGORIES = {"a": ["x", "y", "z"], "b": ["x", "y", "z"], "c": [0, 1], "d": ["no", "yes"]}


def made_up(n=6000):
    i = np.arange(n)
    codes = {"a": i % 3, "b": (i + (i % 10 == 0)) % 3, "c": (i // 3) % 2, "d": (i // 6) % 2}
    return {name: np.array(CATEGORIES[name])[values] for name, values in codes.items()}


RECORDS = made_up()


@pytest.fixture(scope="module")
def release():
    model = dirdp.latent_class(RECORDS, categories=CATEGORIES)
    return dirdp.sample(dirdp.ApproxDP(epsilon=2.0, delta=1e-6), model)


def test_synthetic_records_have_the_pairs_of_the_data(release):
    records = dirdp.synthetic(release, random_seed=1)
    assert list(records) == list(CATEGORIES)
    assert len(records) == 6000
    for first, second in (("a", "b"), ("a", "c"), ("c", "d")):
        true = dirdp.count(RECORDS, [first, second], categories=CATEGORIES) / 6000
        found = dirdp.count(records, [first, second], categories=CATEGORIES) / 6000
        assert np.abs(true - found).sum() / 2 < 0.03
    sets = dirdp.synthetic(release, 50, 3, random_seed=2)
    assert sets.groupby(level="set").size().tolist() == [50, 50, 50]
    assert len(dirdp.synthetic(release, 0)) == 0
    with pytest.raises(ArgumentError, match="tables"):
        dirdp.synthetic(release, tables=["p_a"])


def test_probabilities_are_those_of_the_mixture(release):
    mixture = content_of(release).mixture()
    shares = mixture.table([0, 1, 2, 3])
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


def test_many_records_are_taken_in_parts(release, monkeypatch):
    from pymc_dirdp.networks import wide_records

    whole = dirdp.log_likelihood(release, RECORDS)
    monkeypatch.setattr(wide_records, "_BATCH", 7)
    np.testing.assert_array_equal(dirdp.log_likelihood(release, RECORDS), whole)
    empty = {name: values[:0] for name, values in RECORDS.items()}
    assert dirdp.log_likelihood(release, empty).shape == (0,)
    assert dirdp.predict_log_proba(release, empty, target="a").shape == (0, 3)


def test_a_fit_stands_in_the_place_of_its_release(release):
    fit = dirdp.fit(release)
    assert fit["posterior"]["p_a"].dims == ("chain", "draw", "component", "a")
    np.testing.assert_allclose(fit["posterior"]["p_a"].sum("a"), 1, rtol=1e-6)
    assert dirdp.verify(fit)
    assert np.array_equal(dirdp.log_likelihood(fit, RECORDS), dirdp.log_likelihood(release, RECORDS))
    other = dirdp.fit(release, random_seed=3)
    assert dirdp.verify(other)
    assert not np.array_equal(dirdp.log_likelihood(other, RECORDS), dirdp.log_likelihood(release, RECORDS))
    near = np.abs(dirdp.log_likelihood(other, RECORDS) - dirdp.log_likelihood(release, RECORDS))
    assert near.mean() < 0.05


def test_a_fit_is_computed_once_for_a_seed(release, monkeypatch):
    from pymc_dirdp.releases import pairs

    dirdp.fit(release)

    def again(*_, **__):
        raise AssertionError

    monkeypatch.setattr(pairs, "fit_mixture", again)
    dirdp.fit(release)
    dirdp.synthetic(release, 10)
    dirdp.predict_log_proba(release, RECORDS, target="a")


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
    network = dirdp.bayesian_network(RECORDS, {"a": [], "b": ["a"]}, categories=CATEGORIES)
    tables = dirdp.sample(dirdp.PureDP(epsilon=1.0), network, mechanism="geometric")
    with pytest.raises(ArgumentError, match="random_seed"):
        dirdp.fit(tables, random_seed=1)


def test_a_guarantee_that_shows_nothing_warns():
    model = dirdp.latent_class(made_up(60), categories=CATEGORIES)
    release = dirdp.sample(dirdp.ApproxDP(epsilon=0.05, delta=1e-6), model)
    with pytest.warns(FewRecordsWarning, match="hides all dependence"):
        dirdp.fit(release)
    assert len(dirdp.synthetic(release)) == 60
