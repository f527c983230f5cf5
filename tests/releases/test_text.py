"""What the text of a release says has to follow from its mechanisms, and nothing is read beside it."""

import itertools

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ReleaseError
from pymc_dirdp.releases.opened import open_release, text_of
from pymc_dirdp.sampling.bits import SOURCES
from tests.releases.kinds import APPROX, released

COUNTS, SHARE, TABLE = ("output", "rate", "noisy_counts"), ("output", "rate", "draws", 0), ("plan", "tables", 0)
ENTRY = {"ledger": "0" * 32, "number": 1, "hash": "0" * 64}
OUTPUTS = {
    "half a count": ("geometric", (*COUNTS, 0), lambda count: count + 0.5),
    "a sum that is off by one": ("geometric", (*COUNTS, 0), lambda count: count + 1),
    "a count too many": ("geometric", COUNTS, lambda counts: [*counts, 1]),
    "a share above 1": ("draws", SHARE, 1.5),
    "a share of 1": ("draws", SHARE, 1),
    "a share of 0": ("draws", SHARE, 0),
    "a share that is not on the grid": ("draws", SHARE, 0.123456789),
    "another last bit": ("draws", SHARE, lambda share: float(np.nextafter(share, 1))),
    "another last bit of a row": ("draws", ("output", "p", "draws", 0, 0, 0), lambda p: float(np.nextafter(p, 1))),
    "no dims in other words": ("draws", ("plan", "tables", 1, "dims"), []),
    "shares that add up to more": ("draws", ("output", "p", "draws", 0, 0), [0.5, 0.4, 0.2]),
    "a least count below 0": ("draws", ("plan", "min_count"), -1),
    # Found by attack: two releases put together looked like one.
    "two releases in one": ("draws", ("output", "p", "draws"), lambda draws: [*draws, *draws]),
    # Found by attack: all words on people could be replaced where the unit is not a record.
    **{f"another {name}": ("people", ("plan", "people", name), 3) for name in ("others", "n_units", "contribution")},
    "another unit": ("people", ("plan", "people", "unit"), ["household"]),
    "a table twice": ("geometric", ("plan", "groups"), [["p", "p", "rate"]]),
    "fewer records of a person": ("geometric", (*TABLE, "one_person_adds", "records"), 2),
    "a version that is free text": ("geometric", ("plan", "library_version"), "0.1.0 108, 286, 71, 127"),
    "a version of many digits": ("geometric", ("plan", "library_version"), "1" * 100),
    "a source of bits that is none": ("geometric", ("randomness",), "dice"),
    "a source of bits of another sampler": ("geometric", ("randomness",), SOURCES["fast"][0]),
    "a reason that is none": ("geometric", ("left_out",), [{"name": "a", "reason": "108, 286", "about": ""}]),
    "no earlier choices in other words": ("draws", ("plan", "after"), []),
    "an earlier choice that is a plan": ("draws", ("plan", "after"), [{"format": "pymc_dirdp plan"}]),
    "a view of other cells": ("draws", (*TABLE, "observed", 0, "view"), {"cells": [[0, 6]], "by_codes": False}),
    "a label that turns its direction": ("geometric", (*TABLE, "labels", "hair", 0), "b\u202elack"),
    "a label with a line break": ("geometric", (*TABLE, "labels", "hair", 0), "black\nred"),
    "an entry that is none": ("geometric", ("entry",), ENTRY | {"number": 0}),
    "an entry with another hash": ("geometric", ("entry",), ENTRY | {"hash": "0"}),
}


@pytest.mark.parametrize("what", OUTPUTS)
def test_what_no_mechanism_returns_is_refused_by_all(edited, what):
    kind, path, value = OUTPUTS[what]
    release = edited(released(kind), (path, value))
    for use in (dirdp.verify, dirdp.report, dirdp.estimate, dirdp.analyse, dirdp.statement):
        with pytest.raises(ReleaseError, match="damaged"):
            use(release)


LIES = {
    "r": ("draws", (*TABLE, "parameters", "r"), 1.0),
    "epsilon": ("geometric", ("plan", "guarantee", "epsilon"), 0.1),
    "noise": ("geometric", (*TABLE, "parameters", "noise_parameter"), 1.0),
    "draws that each lose": ("draws", ("plan", "guarantee", "epsilon"), 0.5),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_guarantee_that_does_not_follow_is_found_and_not_repeated(edited, lie):
    kind, path, value = LIES[lie]
    sentence = (("plan", "statement"), lambda said: said.replace("(1,", f"({value:g},") if "epsilon" in path else said)
    release = edited(released(kind), (path, value), sentence)
    found = dirdp.verify(release)
    assert not found
    assert "guarantee" in [check.name for check in found.checks if not check.passed]
    text = str(dirdp.report(release, full=True))
    assert "does not follow" in " ".join(text[: text.index("===")].split())
    assert "posterior odds" not in text
    for use in (dirdp.estimate, dirdp.analyse, dirdp.statement):
        with pytest.raises(ReleaseError, match=r"does not follow|does not verify"):
            use(release)


def view_edits(release):
    """For every group, attribute and variable of a tree one of several changes, in turn."""
    turn, more = itertools.count(), {"students": ("q", [108, 286])}
    for node in release.subtree:
        dataset, edits = node.to_dataset(), []
        for name, value in dataset.attrs.items():
            other = "108, 286" if isinstance(value, str) else value * 1.1 + 1
            rest = {key: one for key, one in dataset.attrs.items() if key != name}
            edits.append([dataset.assign_attrs({name: other}), dataset.drop_attrs(deep=False).assign_attrs(rest)])
        for name, variable in dataset.data_vars.items():
            marked = dataset.copy(deep=True)
            marked[name].attrs["students"] = "108, 286"
            is_number = variable.dtype.kind == "f" and np.isfinite(variable.values).any()
            changed = [dataset.assign({name: variable * 1.01 + 1e-3})] if is_number else []
            edits.append([dataset.drop_vars(name), marked, *changed])
        edits.append([dataset.assign(more), dataset.assign_coords(more), dataset.assign_attrs(students="108, 286")])
        if node.path != "/release":
            yield from ((node.path, several[next(turn) % len(several)]) for several in edits)


@pytest.mark.parametrize("kind", ["draws", pytest.param("private number", marks=pytest.mark.thorough)])
def test_every_edit_of_the_view_is_found_and_nothing_is_read_of_it(kind):
    release = released(kind)
    for number, (path, dataset) in enumerate(view_edits(release)):
        tree = release.copy(deep=True)
        tree[path].dataset = dataset
        found = dirdp.verify(tree)
        failed = [check.name for check in found.checks if not check.passed]
        if path == "/posterior" and set(dataset.variables) > set(release[path].variables):
            assert failed == []
            assert any("which the text does not hold" in check.sentence for check in found.checks)
            continue
        assert failed == ["view"], (path, dataset)
        assert found.recomputed is None
        if number % 20 == 0:
            assert text_of(tree) == text_of(release)
            assert open_release(tree) is open_release(release)
    for change in (
        lambda tree: tree.update({"observed_data": xr.DataTree(xr.Dataset({"z": 5}))}),
        lambda tree: tree["privacy"].update({"more": xr.DataTree(xr.Dataset({"z": 5}))}),
        lambda tree: tree.__delitem__("privacy"),
    ):
        tree = release.copy(deep=True)
        change(tree)
        assert not dirdp.verify(tree)
    tree["posterior"].dataset = tree["posterior"].to_dataset() * 0 + 0.25
    assert dirdp.estimate(tree).frame().equals(dirdp.estimate(release).frame())


def test_a_tree_without_its_text_is_no_release():
    release = released("geometric").copy(deep=True)
    del release["release"]
    for text in (None, 3, ["a"], "text"):
        if text is not None:
            release["release"] = xr.DataTree(xr.Dataset({"text": xr.DataArray(text)}))
        for use in (dirdp.verify, dirdp.report, dirdp.estimate, dirdp.statement):
            with pytest.raises(ReleaseError):
                use(release)


def test_other_stores_return_the_text(tmp_path):
    release = released("draws")
    release.to_netcdf(tmp_path / "r.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "r.nc", engine="h5netcdf") as back:
        assert dirdp.verify(back)
        assert str(dirdp.estimate(back)) == str(dirdp.estimate(release))
    with pytest.raises(ReleaseError, match="open_datatree"):
        dirdp.load(tmp_path / "r.nc")
    back = xr.DataTree.from_dict({node.path: node.to_dataset() for node in [*release.subtree][:0:-1]})
    back.attrs = release.attrs
    assert dirdp.verify(back)


def test_a_text_of_few_characters_makes_nothing_large(edited):
    with pm.Model():
        pm.Multinomial("x", n=0, p=pm.Dirichlet("p", a=np.ones(101)), observed=np.zeros(101))
        wide = dirdp.sample(APPROX)
    for release, draws, words in ((wide, 10**6, "100000000 shares"), (released("geometric"), 10**9, "1000000 draws")):
        with pytest.raises(ReleaseError, match=f"more than {words}"):
            dirdp.verify(edited(release, (("plan", "released_draws"), draws)))
