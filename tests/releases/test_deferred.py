"""What follows from a release: computed when somebody looks at it, and not before; once; and kept within bounds."""

import copy
import pickle
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


@pytest.fixture
def calls(monkeypatch):
    """How often shares were drawn; nothing was opened before."""
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
    # Drawn once for all trees of the release.
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
    # Nobody else sees it, and nothing is read of it.
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
    """What nobody has looked at follows from a text; it has to be this one."""
    swapped = release.copy(deep=True)
    # Far from the first ones: with noise this narrow near ones have the same noisy counts once in a hundred times.
    swapped["release"] = noisy_row([0, 0, 60])["release"].copy()
    assert not is_untouched(swapped["posterior"].to_dataset().variables["p"], text_of(swapped))
    assert failed(swapped) == ["view"]


# Once, whichever verbs ask for it.

_RNG = np.random.default_rng(20261129)
RAIN = _RNG.choice(["no", "yes"], 1000)
RECORDS = {"rain": RAIN, "wet": np.where(_RNG.random(1000) < 0.9, RAIN, "no"), "old": _RNG.choice(["no", "yes"], 1000)}
WORDS = {"rain": ["no", "yes"], "wet": ["no", "yes"], "old": ["no", "yes"]}


def test_a_network_of_marginals_is_fitted_once(monkeypatch, tmp_path):
    monkeypatch.setattr(opening, "_OPENED", Cache(2**28))
    fits = {"tables": 0, "joint": 0}

    def counting(kind, fit):
        def fitted(*args, **named):
            fits[kind] += 1
            return fit(*args, **named)

        return fitted

    # Expected errors are fitted to simulated networks, and not to what was released: they are not counted.
    assert predicting.fitted_shares is draws.fitted_shares
    monkeypatch.setattr(opening, "fitted_shares", counting("tables", draws.fitted_shares))
    monkeypatch.setattr(fitting, "fit_tables", counting("tables", fitting.fit_tables))
    monkeypatch.setattr(fitting, "fit_jointly", counting("joint", fitting.fit_jointly))
    model = dirdp.bayesian_network(RECORDS, {"rain": [], "wet": ["rain"], "old": []}, categories=WORDS)
    release = planned_sample(APPROX, model, mechanism="marginals")
    path = tmp_path / "r.json"
    dirdp.save(release, path)
    for tree in (release, dirdp.load(path), path, release.copy(deep=True)):
        for verb in (dirdp.report, dirdp.verify, dirdp.estimate, dirdp.statement):
            assert str(verb(tree))
    np.asarray(dirdp.load(path)["posterior"]["p_rain"].values)
    assert fits == {"tables": 1, "joint": 0}
    assert dirdp.fit(release, progressbar=False).identical(dirdp.fit(path, progressbar=False))
    dirdp.predict_log_proba(release, RECORDS, target="wet")
    dirdp.log_likelihood(path, RECORDS)
    assert fits == {"tables": 1, "joint": 1}
    # Another consistency is another fit.
    for _ in range(2):
        dirdp.fit(release, "tables", progressbar=False)
    assert fits == {"tables": 2, "joint": 1}


def test_bins_that_a_cached_release_holds_are_nobodys(tmp_path, monkeypatch):
    """A cache is nobody who could count with them; who has them still has to pay."""
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
    # Those of a file that a release was read from, too.
    for tree in (lambda: release, lambda: dirdp.load(tmp_path / "r.json")):
        opening._OPENED.clear()
        assert opening.open_release(tree()).plan.after == (bins,)
        assert [own is bins for own in Bins.unpaid()] == [True]
        with pytest.raises(ArgumentError, match="nothing covers"):
            dirdp.plan(dirdp.PureDP(epsilon=1.0), model, **options)
    del bins
    assert not Bins.unpaid()
    # A plan with such names is one like any other now.
    assert dirdp.plan(dirdp.PureDP(epsilon=1.0), model, **options)


# The cache is bounded by bytes, and measures what its values have computed since.

KB = 1000


def block(n=10 * KB):
    return np.zeros(n, dtype=np.uint8)


def cache_of(size, **values):
    cache = Cache(size)
    for name, value in values.items():
        cache.put(name, value)
    return cache


def there(cache, names):
    return "".join(name for name in names if cache.get(name) is not None)


def test_what_was_used_last_stays_and_the_largest_alone_until_there_is_another():
    cache = cache_of(35 * KB, a=block(), b=block(), c=block())
    assert cache.get("a") is not None
    cache.put("d", block())
    assert (len(cache), there(cache, "abcd")) == (3, "acd")
    cache.put("L", block(100 * KB))
    assert there(cache, "acdL") == "L"
    cache.put("a", block())
    assert there(cache, "aL") == "a"
    cache.clear()
    assert (len(cache), there(cache, "a")) == (0, "")


def test_a_value_that_grows_is_measured_when_the_cache_is_used_again():
    """Values compute what follows from them after they were put: what is bounded is what they have become."""
    growing = {"text": block(KB)}
    cache = cache_of(100 * KB, a=block(KB), b=growing)
    growing["computed"] = block(90 * KB)
    cache.put("c", block(20 * KB))
    assert there(cache, "abc") == "c"
    # Also one that was put long ago, and grew when it was used again.
    cache = cache_of(100 * KB, a={"text": block(KB)}, b=block(KB))
    cache.get("a")["computed"] = block(99 * KB)
    cache.get("a")
    assert len(cache) == 1


def test_arrays_count_whole_and_once():
    whole = np.zeros(10**6)
    some, more = whole[:10], whole[5:500:2]
    # A part of an array keeps the whole of it.
    for value in ([some], [whole, some], [some, more], {"a": some, "b": (more, whole)}):
        assert 8 * 10**6 <= bytes_of(value) < 8 * 10**6 + 2000
    assert bytes_of([np.zeros(1000), np.zeros(1000)]) >= 16_000


def test_what_a_release_has_computed_counts(release):
    stored = open_release(release)
    before = bytes_of(stored)
    assert before >= len(stored.release.text)
    assert stored.draws["p"].nbytes == 8 * 6
    middle = bytes_of(stored)
    assert middle - before >= 8 * 6
    stored.once("mine", lambda: block(10**6))
    assert 10**6 <= bytes_of(stored) - middle < 10**6 + 2000
