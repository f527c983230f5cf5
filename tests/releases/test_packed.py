"""The flat form of a release, changed in one place after the other: one error, or the same release."""

import json

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ReleaseError
from pymc_dirdp.releases.flat import Labels, Piece, UnlikeOthersError, joined, separated
from pymc_dirdp.releases.packed import _above, packed, unpacked
from pymc_dirdp.stored.untrusted import Group

FRAME = pd.DataFrame({"class": ["cat", "hen"] * 20, "legs": [4, 2] * 20, "tail": ["long", "short"] * 20})
CATEGORIES = {"class": ["cat", "hen"], "legs": [2, 4], "tail": ["long", "short"]}


@pytest.fixture(scope="module")
def release():
    """Three tables by noise, with labels that are texts and whole numbers."""
    model = dirdp.naive_bayes(FRAME[["legs", "tail"]], FRAME["class"], categories=CATEGORIES)
    return dirdp.sample(dirdp.PureDP(epsilon=1.0), model, mechanism="geometric", progressbar=False)


@pytest.fixture(scope="module")
def flat(release):
    return packed(release)


def with_variable(tree, group, name, dims, values, attrs=None):
    """The tree with another variable in the place of one, whatever the lengths of the others are."""
    changed = tree.copy(deep=True)
    dataset = changed[group].to_dataset()
    attrs = dataset[name].attrs if attrs is None else attrs
    kept = dataset.drop_vars(name)
    for dim, size in zip(dims, np.shape(values), strict=True):
        if dim in kept.sizes and kept.sizes[dim] != size:
            pytest.skip("xarray holds no such group")
    changed[group].dataset = kept.assign({name: xr.Variable(dims, values, attrs)})
    return changed


def answer(tree):
    """What becomes of a flat file: the error, or whether its statements follow, with the release."""
    try:
        back = unpacked(tree)
        return bool(dirdp.verify(back)), back
    except ReleaseError as error:
        refused = error
    assert 20 < len(str(refused)) < 1000
    assert str(refused).isprintable()
    return None, refused


# Every variable of the flat form that says where something is.
STRUCTURE = [
    ("cells", "table"),
    ("cells", "name"),
    ("cells", "dims"),
    ("cells", "shape"),
    ("cells", "above_prior"),
    ("cells", "values"),
    ("posterior", "name"),
    ("posterior", "dims"),
    ("posterior", "shape"),
    ("posterior", "values"),
    ("mechanism", "table"),
    ("labels", "text_dim"),
    ("labels", "text_length"),
    ("labels", "text_label"),
    ("labels", "whole_dim"),
    ("labels", "whole_length"),
    ("labels", "whole_label"),
]


def at(values, place, value):
    changed = values.astype(object) if values.dtype.kind in "UO" else values.copy()
    changed[place] = value
    return changed


def doubled(values):
    return at(values, (..., -1), values[..., 0])


def texts_of(values):
    """Other texts at the last place, by name."""
    strange = {
        "empty": "",
        "null": "null",
        "deep": "[" * 10_000,
        "long": "x" * (10**7 + 1),
        "escape": "\x1b[2J",
        "path": "../secret",
        "slash": "a/b",
        "dot": ".",
        "negative": "[-2]",
        "zero": "[0]",
        "huge": "[1000000000000000]",
        "huge product": "[100000, 100000]",
        "infinite": "[Infinity]",
        "not a number": "[NaN]",
        "fraction": "[2.5]",
        "double": "[2.0]",
        "truth": "[true]",
        "texts": '["2"]',
        "other dims": '["x", "y", "z", "w"]',
        "dims twice": '["class", "class"]',
        "no dims": "[]",
        "object": '{"legs": 2}',
        "one more": "[3]",
        "number": "7",
    }
    return {name: at(values, -1, text) for name, text in strange.items()}


def numbers_of(values):
    last = (*[0] * (values.ndim - 1), -1)
    strange = {"negative": -1, "zero": 0, "one more": values[last] + 1, "huge": 2**62}
    if values.dtype.kind == "f":
        strange |= {
            "not a number": np.nan,
            "infinite": np.inf,
            "minus infinity": -np.inf,
            "huge": 1e300,
            "tiny": 5e-324,
        }
    found = {name: at(values, last, value) for name, value in strange.items()}
    found["all missing"] = np.full(values.shape, np.nan)
    return found


def variants(values):
    found = texts_of(values) if values.dtype.kind in "UO" else numbers_of(values)
    found |= {
        "twice": doubled(values),
        "reversed": values[..., ::-1],
        "truth values": np.ones(values.shape, dtype=bool),
        "complex": np.ones(values.shape, dtype=complex),
        "none": np.full(values.shape, None, dtype=object),
        "other kind": np.ones(values.shape) if values.dtype.kind in "UO" else np.full(values.shape, "a"),
    }
    return found


# What a change may leave: whoever changes the numbers or the names of a release consistently has made another one.
ALLOWED = {
    # Labels are any texts and numbers, and dims of the same length may change places.
    ("labels", "text_dim"),
    ("labels", "text_label"),
    ("labels", "whole_label"),
}


@pytest.mark.thorough
@pytest.mark.parametrize(("group", "name"), STRUCTURE)
def test_every_part_of_the_form(flat, release, group, name):
    variable = flat[group][name]
    tried = refused = 0
    for kind, values in variants(variable.values).items():
        changed = with_variable(flat, group, name, variable.dims, values)
        follows, found = answer(changed)
        tried += 1
        refused += not follows
        if follows and (group, name) not in ALLOWED:
            # Nothing but a draw, and texts that are read as before.
            own = found.drop_nodes("posterior")
            assert own.identical(release.drop_nodes("posterior")), kind
    assert tried >= 9
    if (group, name) not in ALLOWED:
        assert refused >= tried // 2


@pytest.mark.parametrize(("group", "name"), STRUCTURE)
def test_other_lengths_and_dims(flat, group, name):
    variable = flat[group][name]
    for length in (0, 1, variable.sizes[variable.dims[-1]] + 1, variable.sizes[variable.dims[-1]] - 1):
        values = np.resize(variable.values, (*variable.shape[:-1], length))
        for dims in (variable.dims, (*variable.dims[:-1], "other")):
            changed = flat.copy(deep=True)
            dataset = changed[group].to_dataset().drop_vars(name)
            if dataset.sizes.get(dims[-1], length) != length or (values.shape, dims) == (variable.shape, variable.dims):
                continue
            changed[group].dataset = dataset.assign({name: xr.Variable(dims, values, variable.attrs)})
            assert answer(changed)[0] is None, (length, dims)
    more = (*variable.dims, "more")
    assert answer(with_variable(flat, group, name, more, variable.values[..., None]))[0] is None
    dropped = flat.copy(deep=True)
    dropped[group].dataset = flat[group].to_dataset().drop_vars(name)
    follows, found = answer(dropped)
    # Dims without labels are numbered, so these labels are lost, and the tables have other labels than the draws.
    assert not follows, found


@pytest.mark.parametrize(("group", "name"), STRUCTURE)
def test_every_variable_has_its_own_dims(flat, group, name):
    """A dim of the same length and another name, and dims in another order."""
    variable = flat[group][name]
    renamed = (*variable.dims[:-1], "other")
    for dims, values in ((renamed, variable.values), (variable.dims[::-1], variable.values.T)):
        if dims != variable.dims:
            changed = flat.copy(deep=True)
            kept = changed[group].to_dataset().drop_vars(name)
            changed[group].dataset = kept.assign({name: xr.Variable(dims, values, variable.attrs)})
            assert answer(changed)[0] is None, dims


def test_every_column(flat, release):
    """A number or a word of one table: missing, or another."""
    tried = 0
    for name, column in flat["mechanism"].to_dataset().data_vars.items():
        values = [at(column.values, 0, value) for value in (("", "x", "\x1b[2J") if column.dtype.kind in "UO" else ())]
        values += [at(column.values, 0, value) for value in (np.nan, np.inf, -1.0, 1e300, 0.0)] * (not values)
        values += [column.values.astype(bool), np.full(column.shape, None, dtype=object), doubled(column.values[::-1])]
        for changed in values:
            follows, found = answer(with_variable(flat, "mechanism", name, ("table",), changed))
            tried += 1
            # Nobody can check the names of the observed variables, on which no number rests.
            assert not follows or name == "observed" or found.identical(release), (name, changed)
        for attrs in ({}, {"kind": "other"}, {"kind": 3}, {**column.attrs, "more": "secret"}):
            follows, _ = answer(with_variable(flat, "mechanism", name, ("table",), column.values, attrs))
            tried += 1
            assert follows is None
    assert tried > 60


GROUPS = ("cells", "posterior", "mechanism", "labels", "privacy", "utility")


@pytest.mark.parametrize("group", GROUPS)
def test_groups(flat, group):
    lost = flat.copy(deep=True)
    del lost[group]
    follows, found = answer(lost)
    # Without their labels, dims are numbered as those of any model that has none.
    assert not follows or (group == "labels" and found["posterior/p_class"]["class"].values.tolist() == [0, 1])
    for more in (
        lambda node: node.dataset.assign(secret=("secrets", [108.0, 286.0])),
        lambda node: node.dataset.assign(secret=286.0),
        lambda node: node.dataset.assign_coords(secret=("secrets", ["a", "b"])),
        lambda node: node.dataset.assign_coords(secrets=("secrets", ["a", "b"])),
        lambda node: node.dataset.assign_attrs(secret="286"),
        lambda node: xr.Dataset({name: one.assign_attrs(secret="286") for name, one in node.data_vars.items()}),
    ):
        changed = flat.copy(deep=True)
        changed[group].dataset = more(changed[group])
        assert not answer(changed)[0]
    inside = flat.copy(deep=True)
    inside[f"{group}/more"] = xr.DataTree(xr.Dataset({"secret": 286.0}))
    assert not answer(inside)[0]


def test_other_groups(flat):
    for name in ("others", "other_labels", "more"):
        for dataset in (
            xr.Dataset({"secret": ("i", [108.0, 286.0])}),
            xr.Dataset(coords={"legs": ("legs", [2, 4])}),
            xr.Dataset(coords={"secret": ("secret", [2, 4])}),
            xr.Dataset({"p_class": ("class", [0.5, 0.5])}),
        ):
            changed = flat.copy(deep=True)
            changed[name] = xr.DataTree(dataset)
            follows, found = answer(changed)
            # Other variables with draws may be Deterministics; `verify` names them among what has to be believed.
            assert not follows or (name == "others" and any("secret" in one for one in dirdp.verify(found).believed))


@pytest.mark.parametrize("version", [0, 2, 1.5, "1", np.nan, np.inf, True])
def test_other_versions(flat, version):
    changed = flat.copy(deep=True)
    changed.attrs["format_version"] = version
    if version is not True:  # Python calls it equal to 1.
        assert answer(changed)[0] is None
    changed.attrs |= {"format": "another", "format_version": 1}
    with pytest.raises(ReleaseError, match="another format"):
        unpacked(changed)
    del changed.attrs["format"]
    with pytest.raises(ReleaseError, match="missing"):
        unpacked(changed)


def test_attributes_of_the_group_of_mechanisms_come_back(release):
    """No release has one, and `verify` refuses it, but a file does not lose it."""
    changed = release.copy(deep=True)
    changed["mechanism"].attrs["more"] = "said"
    assert packed(changed)["mechanism"].attrs["more"] == "said"
    assert unpacked(packed(changed)).identical(changed)


@pytest.mark.parametrize(
    "add",
    [
        lambda group: group.update({"table": xr.DataArray(1.0)}),
        lambda group: group.update({"sampler": xr.DataArray(1.0)}),
        lambda group: group.attrs.update(more=True),
        lambda group: group.attrs.update(more=[1.0]),
        lambda group: group.update({"more": xr.DataArray([True, False], dims="i")}),
    ],
)
def test_what_the_flat_form_would_change_is_not_written_in_it(release, add):
    changed = release.copy(deep=True)
    add(changed["mechanism/p_class"])
    with pytest.raises(UnlikeOthersError):
        packed(changed)


def test_pieces_come_back():
    rng = np.random.default_rng(1)
    shapes = [(), (1,), (3, 2), (2, 1, 4)]
    pieces = [
        Piece(f"p{i}", tuple(f"d{j}" for j in range(len(s))), s, rng.random((2, 3, *s))) for i, s in enumerate(shapes)
    ]
    dataset = xr.Dataset(joined(pieces, ("chain", "draw")))
    assert dataset.sizes["cell"] == 1 + 1 + 6 + 8
    for one, back in zip(pieces, separated(Group("x", dataset), leading=("chain", "draw")), strict=True):
        assert (one.name, one.dims, one.shape) == (back.name, back.dims, back.shape)
        np.testing.assert_array_equal(one.values, back.values)
    with pytest.raises(UnlikeOthersError):
        joined([Piece("p", (), (), np.array(1))])


@pytest.mark.parametrize(
    ("dims", "shape", "says"),
    [
        (["a"], [-1], "no shape of an array"),
        (["a"], [0], "no shape of an array"),
        (["a"], [1.0], "no shape of an array"),
        (["a"], [True], "no shape of an array"),
        (["a"], {"1": 1}, "no shape of an array"),
        (["a"], [10**8 + 1], "no shape of an array"),
        (["a", "b"], [10**5, 10**5], "not those of an array"),
        (["a"], [], "not those of an array"),
        (["a", "a"], [1, 1], "not those of an array"),
        ([""], [1], "not those of an array"),
        (["a"], [2], "do not make up"),
    ],
)
def test_dims_and_shapes_that_no_array_has(dims, shape, says):
    dataset = xr.Dataset(joined([Piece("p", ("a",), (1,), np.ones(1))]))
    dataset["dims"], dataset["shape"] = ("piece", [json.dumps(dims)]), ("piece", [json.dumps(shape)])
    with pytest.raises(ReleaseError, match=says):
        separated(Group("x", dataset))


def test_the_number_above_a_prior_gives_the_values_to_the_last_bit():
    """Oracle: the sum itself. The difference, which is rounded, misses the last bit in a quarter of all cases."""
    rng = np.random.default_rng(4)
    found = missed = 0
    for _ in range(2000):
        prior, number = rng.uniform(0.01, 3, 3), rng.uniform(0, 5)
        values = prior + number
        above = _above(prior, values)
        if not np.isnan(above):
            np.testing.assert_array_equal(prior + above, values)
            found += 1
        missed += not np.array_equal(prior + (values[0] - prior[0]), values)
    assert found > 1800
    assert missed > 400
    assert np.isnan(_above(prior, values * [1, 1, 1.5]))


def test_what_is_above_a_prior_has_its_dims_and_shape():
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.ones(3))
        pm.Multinomial("x", n=30, p=p, observed=[10, 10, 10])
    form = packed(dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-6), model, progressbar=False))
    pieces = form["cells"].to_dataset()
    (alpha,) = np.flatnonzero(~np.isnan(pieces["above_prior"].values))
    for name, other in (("dims", ["other"]), ("shape", [2])):
        changed = form.copy(deep=True)
        values = pieces[name].values.astype(object)
        values[alpha] = json.dumps(other)
        changed["cells"].dataset = pieces.assign({name: ("piece", values)})
        with pytest.raises(ReleaseError, match="above a prior that is not there"):
            unpacked(changed)


def test_labels_of_a_dim_are_the_same_everywhere():
    labels = Labels()
    labels.add("a", np.array(["x", "y"]))
    labels.add("a", np.array(["x", "y"], dtype=object))
    for other in (["x", "z"], ["x"], [1, 2]):
        with pytest.raises(UnlikeOthersError):
            labels.add("a", np.array(other))
    # Equal numbers of another type are other labels.
    labels.add("b", np.array([1, 2]))
    with pytest.raises(UnlikeOthersError):
        labels.add("b", np.array([1.0, 2.0]))


def test_tables_may_have_the_names_of_parts_of_the_form(tmp_path):
    """Names are values in the flat form, so none of them is taken."""
    names = ["table", "cells", "values", "labels", "format", "piece", "name"]
    with pm.Model(coords={"cell": ["a", "b"], "shape": [5, 7, 6]}) as model:
        for i, name in enumerate(names):
            p = pm.Dirichlet(name, a=np.ones(2 + i % 2), dims=["cell", "shape"][i % 2])
            pm.Multinomial(f"x{i}", n=10, p=p, observed=[5, 5, 0][: 2 + i % 2])
    release = dirdp.sample(dirdp.ApproxDP(epsilon=5.0, delta=1e-6), model, progressbar=False)
    dirdp.save(release, tmp_path / "r.nc")
    assert "format" in packed(release).attrs
    assert dirdp.load(tmp_path / "r.nc").identical(release)
    assert dirdp.verify(dirdp.load(tmp_path / "r.nc"))
