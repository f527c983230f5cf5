"""Releases of every kind, written and read; files that were made to break whoever opens them."""

from datetime import datetime

import h5py
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ReleaseError

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
FRAME = pd.DataFrame({"class": ["cat", "hen", "owl"] * 20, "legs": [4, 2, 2] * 20})
CATEGORIES = {"class": ["cat", "hen", "owl"], "legs": [2, 4]}


def rows():
    """A table of rows without dims, a Beta with labels, and Deterministics that are doubles, whole and truth values."""
    with pm.Model(coords={"city": ["Köln", "São Paulo"]}) as model:
        p = pm.Dirichlet("p", a=[[1.0, 2.0, 3.0], [0.5, 0.5, 0.1]])
        pm.Multinomial("x", n=[30, 60], p=p, observed=[[10, 10, 10], [20, 20, 20]])
        rate = pm.Beta("rate", 1, 1, dims="city")
        pm.Binomial("heads", n=[60, 30], p=rate, observed=[20, 11])
        pm.Deterministic("odds", rate / (1 - rate), dims="city")
        pm.Deterministic("best", pm.math.argmax(p, axis=-1))
        pm.Deterministic("likely", rate > 0.5)
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
    "draws": (rows, APPROX, {"contribution": 1, "draws": 3, "strategy": "temper"}),
    "inflate": (rows, APPROX, {"contribution": 1, "strategy": "inflate"}),
    "urn": (rows, dirdp.PureDP(epsilon=2.0), {"contribution": 1, "adjacency": "add-remove", "n_records": 90}),
    "geometric": (rows, APPROX, {"contribution": 1, "mechanism": "geometric", "draws": 2}),
    "private number": (rows, APPROX, {"contribution": 1, "mechanism": "geometric", "adjacency": "add-remove"}),
    "fast": (rows, APPROX, {"contribution": 1, "mechanism": "laplace", "sampler": "fast"}),
    "auto": (network, APPROX, {"mechanism": "auto"}),
    "network": (network, APPROX, {}),
    "marginals": (network, APPROX, {"mechanism": "marginals"}),
    "one category": (one_category, APPROX, {"mechanism": "gaussian"}),
    "truncated": (labelled(["a", "b"]), dirdp.PureDP(epsilon=1.0), {"mechanism": "truncated-geometric"}),
    "hellinger": (labelled(["a", "b"]), dirdp.PureDP(epsilon=1.0), {"mechanism": "hellinger"}),
    "floored": (labelled(["a", "b", "c"]), APPROX, {"mechanism": "floored"}),
    "numbers": (labelled([3, 1, 2]), APPROX, {}),
    "counted": (labelled([0, 1, 2]), APPROX, {}),
    "large": (labelled([2**62 + 1, -(2**62), 5]), APPROX, {}),
    "doubles": (labelled([0.1, 1.5, -3.0]), APPROX, {}),
    "truth": (labelled([False, True]), APPROX, {}),
    "times": (labelled([datetime(2020, 1, 31), datetime(2020, 2, 29)]), APPROX, {}),
    "narrow": (labelled(np.array([1, 2], dtype=np.int8)), APPROX, {}),
    "odd names": (labelled(["", "a/b", "Zeile 1", "x" * 300, "名", '"'] + [" "]), APPROX, {}),
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
        releases[kind] = dirdp.sample(target, model(), progressbar=False, **options)
    return releases[kind]


# A kind of mechanism or of labels each; the others differ less.
QUICK = {"rows", "draws", "geometric", "auto", "marginals", "one category", "numbers", "times", "odd names"}


@pytest.mark.parametrize(
    "released",
    [pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.thorough) for kind in KINDS],
    indirect=True,
)
def test_what_is_read_is_what_was_written(released, tmp_path):
    dirdp.save(released, tmp_path / "r.nc")
    with xr.open_datatree(tmp_path / "r.nc", engine="h5netcdf") as held:
        assert held.attrs["format_version"] == 1
        assert not held["mechanism"].children
        # The other functions name the way to open it.
        with pytest.raises(ReleaseError, match=r"pymc_dirdp\.load\("):
            dirdp.verify(held)
    back = dirdp.load(tmp_path / "r.nc")
    assert back.identical(released)
    assert list(back["mechanism"].children) == list(released["mechanism"].children)
    assert list(back["posterior"].data_vars)[:1] == list(released["posterior"].data_vars)[:1]
    # The last bit of every double, and the kind of every label.
    for node in released.subtree:
        for name, variable in node.to_dataset().variables.items():
            own = back[node.path].to_dataset()[name]
            # Texts come back as objects. NaN is not equal to itself, and is written in one way.
            assert own.dtype.kind == variable.dtype.kind or (own.dtype.kind, variable.dtype.kind) == ("O", "U")
            assert repr(own.values.tolist()) == repr(variable.values.tolist())
        for name, value in node.attrs.items():
            for kind in (str, float):
                assert isinstance(back[node.path].attrs[name], kind) == isinstance(value, kind)
    assert str(dirdp.verify(back)) == str(dirdp.verify(released))
    assert str(dirdp.report(back)) == str(dirdp.report(released))
    assert str(dirdp.statement(back)) == str(dirdp.statement(released))
    # Written again, it is the same again.
    dirdp.save(back, tmp_path / "again.nc")
    assert dirdp.load(tmp_path / "again.nc").identical(released)


@pytest.mark.parametrize("released", ["rows", "geometric"], indirect=True)
def test_conclusions_are_the_same(released, tmp_path):
    dirdp.save(released, tmp_path / "r.nc")
    back = dirdp.load(tmp_path / "r.nc")
    assert str(dirdp.estimate(back)) == str(dirdp.estimate(released))
    here, there = (dirdp.analyse(one, 20, random_seed=1, progressbar=False)["posterior"] for one in (released, back))
    assert here.to_dataset().drop_attrs().identical(there.to_dataset().drop_attrs())


@pytest.mark.thorough
def test_alpha_stands_in_the_file_only_where_it_is_not_the_prior_plus_a_number(tmp_path):
    # How many cells of the first table stand there; "optimal" raises its uneven prior to a level.
    for strategy, held in (("temper", 0), ("inflate", 0), ("optimal", 6), ("algorithm-1", 6)):
        target = dirdp.RenyiDP(order=3, epsilon=0.5)
        release = dirdp.sample(target, rows(), contribution=1, strategy=strategy, progressbar=False)
        dirdp.save(release, tmp_path / "r.nc")
        with xr.open_datatree(tmp_path / "r.nc") as flat:
            cells = flat["cells"].to_dataset().load()
        sizes = {"p": 6, "rate": 4}
        assert cells.sizes["cell"] == sum(sizes.values()) + held, strategy
        assert np.isnan(cells["above_prior"].values[cells["name"].values == "prior"]).all()


@pytest.mark.thorough
def test_what_was_added_is_kept_and_fails_to_verify(tmp_path):
    """Whatever the flat form cannot hold is written as xarray writes it, and never dropped."""
    for damage in (
        lambda tree: tree.attrs.update(secret="108, 286"),
        lambda tree: tree["mechanism/p"].attrs.update(secret=3),
        lambda tree: tree["posterior/p"].attrs.update(secret="x"),
        lambda tree: tree.update({"more": xr.DataTree(xr.Dataset({"x": ("i", [1.0, 2.0])}))}),
        lambda tree: tree["mechanism/p"].update({"x": xr.DataArray([1.0, 2.0], dims="i")}),
        lambda tree: tree["mechanism/p"].update({"more": xr.DataTree(xr.Dataset({"x": 1.0}))}),
        lambda tree: tree["posterior"].update({"x": xr.DataArray([1, 2], dims="i")}),
        lambda tree: tree["posterior"].update({"x": xr.DataArray([1.0, 2.0], dims="i")}),
    ):
        release = dirdp.sample(APPROX, labelled(["a", "b"])(), progressbar=False)
        damage(release)
        dirdp.save(release, tmp_path / "r.nc")
        back = dirdp.load(tmp_path / "r.nc")
        assert {node.path for node in back.subtree} == {node.path for node in release.subtree}
        failed = [check.name for check in dirdp.verify(back).checks if not check.passed]
        # A file may hold any Deterministics, and nothing else that was added.
        assert failed == ([] if "x" in back["posterior"] else ["contents"])


@pytest.mark.parametrize("place", ["mechanism/p", "/"])
def test_a_list_that_was_added_is_kept_and_refused(place, tmp_path):
    release = dirdp.sample(APPROX, labelled(["a", "b"])(), progressbar=False)
    release[place].attrs["secret"] = [1, 2]
    dirdp.save(release, tmp_path / "r.nc")
    with pytest.raises(ReleaseError, match="every attribute of a release is a text or a number"):
        dirdp.verify(dirdp.load(tmp_path / "r.nc"))


def test_a_sparse_release_and_a_tree_that_xarray_wrote_are_read_too(tmp_path):
    sparse = dirdp.release_sparse(dirdp.PureDP(epsilon=1.0), [1, 3], [500, 600], n_cells=10, threshold=50)
    dirdp.save(sparse, tmp_path / "sparse.nc")
    assert dirdp.load(tmp_path / "sparse.nc").identical(sparse)
    release = dirdp.sample(APPROX, rows(), contribution=1, progressbar=False)
    release.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    back = dirdp.load(tmp_path / "tree.nc")
    assert str(dirdp.report(back)) == str(dirdp.report(release))


def test_what_is_no_release_is_not_written(tmp_path):
    release = dirdp.sample(APPROX, labelled(["a", "b"])(), progressbar=False)
    dirdp.save(release, tmp_path / "r.nc")
    with xr.open_datatree(tmp_path / "r.nc") as flat:
        others = [xr.DataTree(), flat, None, release["posterior"].to_dataset()]
        others += [dirdp.posterior(labelled(["a", "b"])(), 5)]
        for other in others:
            with pytest.raises(ReleaseError):
                dirdp.save(other, tmp_path / "other.nc")
    assert not (tmp_path / "other.nc").exists()


def test_no_file_and_no_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        dirdp.load(tmp_path / "nothing.nc")
    with pytest.raises(OSError):  # noqa: PT011  # Which one it is depends on the system.
        dirdp.load(tmp_path)
    with pytest.raises(OSError):  # noqa: PT011
        dirdp.load("https://example.org/release.nc")


def broken(path):
    """Files that are no release or do harm, each by name."""
    yield "empty", lambda: path.write_bytes(b"")
    yield "text", lambda: path.write_text("a,b\n1,2\n")
    yield "cut", lambda: path.write_bytes(path.read_bytes()[:5000])
    yield "short", lambda: path.write_bytes(path.read_bytes()[:64])

    def changed(change):
        def write():
            with h5py.File(path, "r+") as held:
                change(held)

        return write

    def declared(held):
        held.create_dataset("cells/huge", shape=(10**12,), dtype="f8", chunks=(10**4,), fillvalue=0)

    def many(held):
        for i in range(11):
            held.create_dataset(f"more{i}", shape=(10**7,), dtype="f8", chunks=(10**4,), fillvalue=0)

    def external(held):
        held.create_dataset("utility/outside", shape=(4,), dtype="u1", external=[("/etc/hostname", 0, 4)])

    def virtual(held):
        layout = h5py.VirtualLayout(shape=(4,), dtype="f8")
        layout[:] = h5py.VirtualSource("other.nc", "x", shape=(4,))
        held.create_virtual_dataset("utility/outside", layout)

    def linked(held):
        held["utility/outside"] = h5py.ExternalLink("other.nc", "/x")

    def soft(held):
        held["utility/again"] = h5py.SoftLink("/cells/values")

    def compound(held):
        held.create_dataset("utility/odd", data=np.zeros(2, dtype=[("a", "f8"), ("b", "i4")]))

    def times(held):
        held["cells/values"].attrs["units"] = "days since the flood"

    def wide(held):
        del held["mechanism/table"]
        held.create_dataset("mechanism/table", shape=(10**9,), dtype="f8", chunks=(10**4,), fillvalue=0)

    for change in (declared, many, external, virtual, linked, soft, compound, times, wide):
        yield change.__name__, changed(change)


NAMES = ["empty", "text", "cut", "short", "declared", "many", "external", "virtual", "linked", "soft"]
NAMES += ["compound", "times", "wide"]


@pytest.mark.parametrize("name", NAMES)
def test_files_that_do_harm(name, tmp_path):
    path = tmp_path / "r.nc"
    dirdp.save(dirdp.sample(APPROX, labelled(["a", "b"])(), progressbar=False), path)
    write = dict(broken(path))
    assert list(write) == NAMES
    write[name]()
    with pytest.raises(ReleaseError) as refused:
        dirdp.verify(dirdp.load(path)) or pytest.fail("It was read.")
    assert len(str(refused.value)) < 1000
