"""What follows from a release: computed when somebody looks at it, and not before; once; and kept within bounds."""

import copy
import pickle
from unittest.mock import Mock
from weakref import WeakValueDictionary

import numpy as np
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.networks import fitting
from pymc_dirdp.releases import choices, draws, predicting
from pymc_dirdp.releases import opened as opening
from pymc_dirdp.releases.cache import Cache, bytes_of
from pymc_dirdp.releases.choices import Bins
from pymc_dirdp.releases.deferred import is_untouched
from pymc_dirdp.releases.opened import from_text, open_release, text_of
from pymc_dirdp.releases.view import view
from tests.planned import one_row, planned_sample

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
KB = 1000


@pytest.fixture
def calls(monkeypatch):
    monkeypatch.setattr(opening, "_OPENED", Cache(2**28))
    really, calls = opening.draw_shares, []
    monkeypatch.setattr(opening, "draw_shares", lambda *args: calls.append(1) or really(*args))
    return calls


def noisy_row(counts=(30, 20, 10)):
    return planned_sample(APPROX, one_row(counts), mechanism="geometric", released_draws=2)


@pytest.fixture
def release(calls):
    return noisy_row()


def failed(tree):
    return [check.name for check in dirdp.verify(tree).checks if not check.passed]


def test_what_reads_the_text_draws_nothing(release, calls, tmp_path):
    path = tmp_path / "r.json"
    dirdp.save(release, path)
    loaded = dirdp.load(path)
    assert dirdp.verify(path)
    for other in (release, loaded, loaded.copy(), loaded.copy(deep=True), copy.copy(loaded), copy.deepcopy(loaded)):
        assert dirdp.verify(other)
        assert other["posterior"]["p"].shape == (1, 2, 3)
        assert other["posterior"]["p"].dtype == np.float64
        assert other["posterior"]["p"].dims == ("chain", "draw", "hair")
        assert is_untouched(other["posterior"].to_dataset().variables["p"], text_of(release))
    assert calls == []


LOOKS = {
    "print": lambda tree, _: repr(tree["posterior"]["p"]),
    "array": lambda tree, _: np.asarray(tree["posterior"]["p"]),
    "arithmetic": lambda tree, _: tree["posterior"]["p"] + 1,
    "sel": lambda tree, _: tree["posterior"]["p"].sel(hair="red").values,
    "netcdf": lambda tree, path: tree.to_netcdf(path, engine="h5netcdf"),
    "pickle": lambda tree, _: pickle.dumps(tree),
    "identical": lambda tree, _: tree.identical(tree.copy(deep=True)),
}


@pytest.mark.parametrize("look", LOOKS)
def test_who_looks_finds_what_follows_from_the_text(release, calls, tmp_path, look):
    LOOKS[look](release, tmp_path / "r.nc")
    assert calls == [1]
    right = from_text(text_of(release)).draws["p"]
    trees = [release, view(open_release(release))]
    if look == "pickle":
        assert b"Deferred" not in pickle.dumps(release)
        trees.append(pickle.loads(pickle.dumps(release)))
    if look == "netcdf":
        with xr.open_datatree(tmp_path / "r.nc", engine="h5netcdf") as stored:
            trees.append(stored.load())
    for tree in trees:
        np.testing.assert_array_equal(tree["posterior"]["p"].values[0], right)
        assert dirdp.verify(tree)
    assert calls == [1]


def test_an_edit_in_place_stays_and_is_found(release):
    edited = release.copy(deep=True)
    edited["posterior"]["p"].values[0, 0, 0] = 0.5
    copied = edited.copy(deep=True)
    for tree in (edited, copied, copy.deepcopy(edited), pickle.loads(pickle.dumps(edited))):
        assert tree["posterior"]["p"].values[0, 0, 0] == 0.5
        assert failed(tree) == ["view"]
    copied["posterior"]["p"].values[0, 0, 0] = 0.25
    assert edited["posterior"]["p"].values[0, 0, 0] == 0.5
    copied["posterior"]["p"][{"draw": 1}] = 1 / 3
    assert (copied["posterior"]["p"].values[0, 1] == 1 / 3).all()
    assert (edited["posterior"]["p"].values[0, 1] != 1 / 3).all()
    assert dirdp.verify(release)
    assert from_text(text_of(edited)).draws["p"][0, 0] != 0.5
    # Nor of a noisy count. It was, in all trees of the release: they shared the array with what had been opened.
    before, noisy = str(dirdp.estimate(release)), release["mechanism/p"]["noisy_counts"]
    published = open_release(release).tables["p"].published.copy()
    noisy.values[:] = [0, 0, 60]
    assert not dirdp.verify(release)
    np.testing.assert_array_equal(open_release(release).tables["p"].published, published)
    assert str(dirdp.estimate(release)) == str(dirdp.estimate(edited)) == before
    assert dirdp.verify(view(open_release(release)))


def test_the_shares_of_another_release_are_not_taken_for_its_own(release):
    swapped = release.copy(deep=True)
    # Far from the first ones: with noise this narrow near ones have the same noisy counts once in a hundred times.
    swapped["release"] = noisy_row([0, 0, 60])["release"].copy()
    assert not is_untouched(swapped["posterior"].to_dataset().variables["p"], text_of(swapped))
    assert failed(swapped) == ["view"]


_RNG = np.random.default_rng(20261129)
RAIN = _RNG.choice(["no", "yes"], 1000)
RECORDS = {"rain": RAIN, "wet": np.where(_RNG.random(1000) < 0.9, RAIN, "no"), "old": _RNG.choice(["no", "yes"], 1000)}
WORDS = {name: ["no", "yes"] for name in RECORDS}


def test_a_network_of_marginals_is_fitted_once(monkeypatch, tmp_path):
    monkeypatch.setattr(opening, "_OPENED", Cache(2**28))
    # Expected errors are fitted to simulated networks, and not to what was released: they are not counted.
    assert predicting.fitted_shares is draws.fitted_shares
    shares, tables, joint = (Mock(wraps=fit) for fit in (draws.fitted_shares, fitting.fit_tables, fitting.fit_jointly))
    monkeypatch.setattr(opening, "fitted_shares", shares)
    monkeypatch.setattr(fitting, "fit_tables", tables)
    monkeypatch.setattr(fitting, "fit_jointly", joint)
    model = dirdp.bayesian_network(RECORDS, {"rain": [], "wet": ["rain"], "old": []}, categories=WORDS)
    release = planned_sample(APPROX, model, mechanism="marginals")
    path = tmp_path / "r.json"
    dirdp.save(release, path)
    for tree in (release, dirdp.load(path), path, release.copy(deep=True)):
        for verb in (dirdp.report, dirdp.verify, dirdp.estimate, dirdp.statement):
            assert str(verb(tree))
    np.asarray(dirdp.load(path)["posterior"]["p_rain"].values)
    assert (shares.call_count + tables.call_count, joint.call_count) == (1, 0)
    assert dirdp.fit(release, progressbar=False).identical(dirdp.fit(path, progressbar=False))
    dirdp.predict_log_proba(release, RECORDS, target="wet")
    dirdp.log_likelihood(path, RECORDS)
    assert (shares.call_count + tables.call_count, joint.call_count) == (1, 1)
    for _ in range(2):
        dirdp.fit(release, "tables", progressbar=False)
    assert (shares.call_count + tables.call_count, joint.call_count) == (2, 1)


def test_bins_that_a_cached_release_holds_are_nobodys(tmp_path, monkeypatch):
    monkeypatch.setattr(choices, "_UNPAID", WeakValueDictionary())
    ages = {"age": _RNG.gamma(4, 12, 1000)}
    guarantee = dirdp.PureDP(epsilon=0.2)
    bins = dirdp.choose_bins(guarantee, ages, "age", n_bins=2, candidates=range(20, 80), ledger=None)
    table = {"age": bins.label(ages["age"]), "wet": RECORDS["wet"]}
    categories = {"age": bins.labels, "wet": WORDS["wet"]}
    model = dirdp.bayesian_network(table, {"age": [], "wet": ["age"]}, categories=categories)
    options = {"mechanism": "geometric"}
    release = planned_sample(dirdp.PureDP(epsilon=1.0), model, after=bins, **options)
    dirdp.save(release, tmp_path / "r.json")
    for tree in (lambda: release, lambda: dirdp.load(tmp_path / "r.json")):
        opening._OPENED.clear()
        assert opening.open_release(tree()).plan.after == (bins,)
        assert [own is bins for own in Bins.unpaid()] == [True]
        with pytest.raises(ArgumentError, match="nothing covers"):
            dirdp.plan(dirdp.PureDP(epsilon=1.0), model, **options)
    del bins
    assert not Bins.unpaid()
    assert dirdp.plan(dirdp.PureDP(epsilon=1.0), model, **options)


def block(n=10):
    return np.zeros(n * KB, dtype=np.uint8)


def there(cache):
    return "".join(name for name in "abcdL" if cache.get(name) is not None)


def test_a_cache_keeps_what_was_used_last_and_measures_what_values_have_become():
    cache = Cache(35 * KB)
    for name in "abc":
        cache.put(name, block())
    assert cache.get("a") is not None
    cache.put("d", block())
    assert (len(cache), there(cache)) == (3, "acd")
    # The largest alone stays until there is another.
    cache.put("L", block(100))
    assert there(cache) == "L"
    cache.put("a", block())
    assert (len(cache), there(cache)) == (1, "a")
    cache.clear()
    assert (len(cache), there(cache)) == (0, "")
    # Values compute what follows from them after they were put.
    cache, growing = Cache(100 * KB), {"text": block(1)}
    cache.put("a", block(1))
    cache.put("b", growing)
    growing["computed"] = block(90)
    cache.put("c", block(20))
    assert there(cache) == "c"
    cache.put("a", old := {"text": block(1)})
    old["computed"] = block(99)
    cache.get("a")
    assert len(cache) == 1


def test_arrays_count_whole_and_once(release):
    whole = np.zeros(10**6)
    some, more = whole[:10], whole[5:500:2]
    # A part of an array keeps the whole of it.
    for value in ([some], [whole, some], [some, more], {"a": some, "b": (more, whole)}):
        assert 8 * 10**6 <= bytes_of(value) < 8 * 10**6 + 2000
    assert bytes_of([np.zeros(1000), np.zeros(1000)]) >= 16_000
    # What a release has computed counts.
    stored = open_release(release)
    before = bytes_of(stored)
    assert before >= len(stored.release.text)
    assert stored.draws["p"].nbytes == 8 * 6
    middle = bytes_of(stored)
    assert middle - before >= 8 * 6
    stored.once("mine", lambda: block(1000))
    assert 10**6 <= bytes_of(stored) - middle < 10**6 + 2000
