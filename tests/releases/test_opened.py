"""Releases of every kind, written and read."""

import gzip
import tracemalloc

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ReleaseError
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.releases.opened import open_release
from tests.planned import planned_sample

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
FRAME = pd.DataFrame({"class": ["cat", "hen", "owl"] * 20, "legs": [4, 2, 2] * 20})
CATEGORIES = {"class": ["cat", "hen", "owl"], "legs": [2, 4]}


def rows():
    """A table of rows without dims, and a Beta with labels."""
    with pm.Model(coords={"city": ["Köln", "São Paulo"]}) as model:
        p = pm.Dirichlet("p", a=[[1.0, 2.0, 3.0], [0.5, 0.5, 0.1]])
        pm.Multinomial("x", n=[30, 60], p=p, observed=[[10, 10, 10], [20, 20, 20]])
        rate = pm.Beta("rate", 1, 1, dims="city")
        pm.Binomial("heads", n=[60, 30], p=rate, observed=[20, 11])
    return model


def labelled(labels):
    def model():
        with pm.Model(coords={"k": labels}) as made:
            p = pm.Dirichlet("p", a=np.ones(len(labels)), dims="k")
            pm.Multinomial("x", n=20 * len(labels), p=p, observed=np.full(len(labels), 20))
        return made

    return model


def one_category():
    with pm.Model(coords={"k": ["all"]}) as model:
        for name, size in (("p", 1), ("q", 3)):
            p = pm.Dirichlet(name, a=np.ones(size), dims="k" if size == 1 else None)
            pm.Multinomial(f"x_{name}", n=60, p=p, observed=np.full(size, 60 // size))
    return model


def network():
    return dirdp.naive_bayes(FRAME[["legs"]], FRAME["class"], categories=CATEGORIES)


KINDS = {
    "rows": (rows, APPROX, {"contribution": 1}),
    "draws": (rows, APPROX, {"contribution": 1, "released_draws": 3, "mechanism": Dirichlet(strategy="temper")}),
    "add-remove": (rows, APPROX, {"contribution": 1, "adjacency": "add-remove", "n_records": 90}),
    "geometric": (rows, APPROX, {"contribution": 1, "mechanism": "geometric", "released_draws": 2}),
    "private number": (rows, APPROX, {"contribution": 1, "mechanism": "geometric", "adjacency": "add-remove"}),
    "auto": (network, APPROX, {"mechanism": "auto"}),
    "marginals": (network, APPROX, {"mechanism": "marginals"}),
    "one category": (one_category, APPROX, {"mechanism": "gaussian"}),
}


@pytest.fixture(scope="module")
def releases():
    return {}


@pytest.fixture
def released(releases, request):
    """One release of each kind, which no test changes."""
    kind = request.param
    if kind not in releases:
        model, target, options = KINDS[kind]
        releases[kind] = planned_sample(target, model(), progressbar=False, **options)
    return releases[kind]


# A kind of mechanism each; the others differ less. Kinds of labels are tested with tables.
QUICK = {"rows", "geometric", "auto", "marginals", "one category"}


@pytest.mark.parametrize(
    "released",
    [pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.thorough) for kind in KINDS],
    indirect=True,
)
def test_what_is_read_is_what_was_written(released, tmp_path):
    dirdp.save(released, tmp_path / "r.json")
    back = dirdp.load(tmp_path / "r.json")
    assert back.identical(released)
    assert list(back["mechanism"].children) == list(released["mechanism"].children)
    assert list(back["posterior"].data_vars)[:1] == list(released["posterior"].data_vars)[:1]
    # The last bit of every double, and the kind of every label.
    for node in released.subtree:
        for name, variable in node.to_dataset().variables.items():
            own = back[node.path].to_dataset()[name]
            # A text has no narrow integers.
            assert own.dtype.kind == variable.dtype.kind
            assert repr(own.values.tolist()) == repr(variable.values.tolist())
        for name, value in node.attrs.items():
            for kind in (str, float):
                assert isinstance(back[node.path].attrs[name], kind) == isinstance(value, kind)
    assert str(dirdp.verify(back)) == str(dirdp.verify(released))
    assert str(dirdp.report(back, full=True)) == str(dirdp.report(released, full=True))
    assert str(dirdp.statement(back)) == str(dirdp.statement(released))
    # Written again, it is the same again.
    dirdp.save(back, tmp_path / "again.json")
    assert dirdp.load(tmp_path / "again.json").identical(released)


def test_what_is_no_release_is_not_written(tmp_path):
    release = dirdp.sample(APPROX, labelled(["a", "b"])(), progressbar=False)
    others = [
        xr.DataTree(),
        None,
        release["posterior"].to_dataset(),
        dirdp.curator.exact_posterior(labelled(["a", "b"])(), 5),
    ]
    for other in others:
        with pytest.raises(ReleaseError):
            dirdp.save(other, tmp_path / "other.json")
    assert not (tmp_path / "other.json").exists()


def test_a_file_that_is_packed_or_long_is_read_no_further_than_it_may_be(tmp_path):
    """A file of gzip is checked whole, and of a long one no more than the limit is unpacked."""
    plan = dirdp.plan(APPROX, labelled(["a", "b"])(), mechanism="geometric")
    packed, plain = tmp_path / "plan.json.gz", tmp_path / "plan.json"
    for path in (packed, plain):
        dirdp.save(plan, path)
    content, text = packed.read_bytes(), plain.read_bytes()
    assert gzip.decompress(content) == text
    for path in (packed, plain):
        assert dirdp.load(path, max_bytes=len(text)) == dirdp.load(path) == plan
        with pytest.raises(ReleaseError, match=f"longer than max_bytes={len(text) - 1}"):
            dirdp.load(path, max_bytes=len(text) - 1)
    flipped = content[:3] + b"\xff" + content[4:40]
    for damaged in (b"", content[:20], content[:-12], content[:-20], flipped, content[:30] + b"\0" * 30):
        packed.write_bytes(damaged)
        with pytest.raises(ReleaseError, match=r"not a (gzip file|text of pymc_dirdp).* damaged"):
            dirdp.load(packed)
    packed.write_bytes(gzip.compress(bytes(10**8)))
    with pytest.raises(ReleaseError, match="longer than max_bytes=1000000"):
        dirdp.load(packed, max_bytes=10**6)


@pytest.mark.parametrize("value", [b"[]", b"{}", b"0", b'{"a":[]}', b"[[],[]]", b'""'])
def test_a_small_file_cannot_fill_the_memory(tmp_path, value):
    """Values are counted before any is built: 2 MB of gzip, which hold 160 million empty lists, took 12.9 GB."""
    path, most = tmp_path / "many.json.gz", 10**6
    path.write_bytes(gzip.compress((b"[" + (value + b",") * (most // (len(value) + 1)))[: most - 1] + b"]"))
    tracemalloc.start()
    try:
        with pytest.raises(ReleaseError, match=r"more values than a text of this size\..* larger max_bytes="):
            dirdp.load(path, max_bytes=most)
        assert tracemalloc.get_traced_memory()[1] < 5 * most
    finally:
        tracemalloc.stop()


def arrays_in(value, seen):
    """All arrays of numbers within a value of this package."""
    if id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, np.ndarray):
        return [value] if value.size > 1 and value.dtype != object else []
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, list | tuple):
        parts = list(value)
    else:
        parts = list(vars(value).values()) if type(value).__module__.startswith("pymc_dirdp") else []
    return [array for part in parts for array in arrays_in(part, seen)]


@pytest.mark.parametrize("mechanism", ["dirichlet", "geometric", "marginals"])
def test_nothing_that_is_returned_is_what_is_cached(mechanism):
    """So nobody changes what the next verb reads by an edit of what an earlier one returned."""
    rng = np.random.default_rng(1)
    categories = {"a": ["x", "y"], "b": ["x", "y", "z"]}
    records = {name: rng.choice(labels, 500).tolist() for name, labels in categories.items()}
    model = dirdp.bayesian_network(records, {"a": [], "b": ["a"]}, categories=categories)
    release = dirdp.sample(dirdp.ApproxDP(epsilon=2.0, delta=1e-6), model, mechanism=mechanism)
    trees = [release, dirdp.analyse(release, 20)]
    trees += [] if mechanism == "dirichlet" else [dirdp.fit(release, way) for way in ("tables", "joint")]
    estimates = dirdp.estimate(release)
    estimates.frame()
    returned = [
        variable.values for tree in trees for node in tree.subtree for variable in node.to_dataset().variables.values()
    ]
    returned += arrays_in(estimates.tables, set())
    cached = arrays_in(open_release(release), set())
    assert len(cached) > 5
    assert len(returned) > 20
    assert not any(np.shares_memory(one, other) for one in returned for other in cached)
