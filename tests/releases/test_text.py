"""The text of a release is closed: what is not written as this library writes it is refused, wherever it stands."""

import contextlib
import copy
import hashlib
import json
import math
import re
import resource
import time

import numpy as np
import pandas as pd
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.bandits import Transcript
from pymc_dirdp.errors import ReleaseError, UnattainableError
from pymc_dirdp.releases.opened import from_text, opened
from pymc_dirdp.releases.view import view
from pymc_dirdp.releases.plan_types import Plan
from pymc_dirdp.releases.text import Release
from pymc_dirdp.texts.grammar import digest, in_lines, plain, understood

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
FRAME = pd.DataFrame({"class": ["cat", "hen"] * 20, "legs": [4, 2] * 20})
CATEGORIES = {"class": ["cat", "hen"], "legs": [2, 4]}


def two_tables():
    with pm.Model(coords={"hair": ["black", "brown", "red"], "where": ["here", "there"]}) as model:
        p = pm.Dirichlet("p", a=np.ones((2, 3)), dims=("where", "hair"))
        pm.Multinomial("x", n=[30, 20], p=p, observed=[[20, 6, 4], [10, 5, 5]])
        rate = pm.Beta("rate", 1, 1)
        pm.Binomial("z", n=50, p=rate, observed=5)
    return model


def three_questions():
    with pm.Model(coords={"person": range(40), "item": ["a", "b", "c"], "yes": [0, 1]}) as model:
        p = pm.Dirichlet("p", a=np.ones((3, 2)), dims=("item", "yes"))
        pm.Categorical("answer", p=p, observed=np.zeros((40, 3), int), dims=("person", "item"))
    return model


def network():
    return dirdp.naive_bayes(FRAME[["legs"]], FRAME["class"], categories=CATEGORIES)


KINDS = {
    "draws": (two_tables, APPROX, {"contribution": 1, "draws": 2, "min_count": 1.5}),
    "geometric": (two_tables, APPROX, {"contribution": 1, "mechanism": "geometric"}),
    "private number": (two_tables, APPROX, {"contribution": 1, "mechanism": "geometric", "adjacency": "add-remove"}),
    "marginals": (network, dirdp.ZeroCDP(rho=0.1), {"mechanism": "marginals"}),
    "auto": (network, APPROX, {"mechanism": "auto"}),
}
STRANGE = [None, -1, 0, 1, 2, 0.5, True, 10**12, 10**400, 1e-320, 1e300, math.nan, math.inf, "", "1", "x", "\x1b[2J\n"]
STRANGE += ["9" * 5000, "DirichletMechanism", "GeometricMechanism", "add-remove", "beta", "seed", "fast", "clip", "p"]
STRANGE += [[], {}, [[]], [1, 2], ["p"], {"a": 1}, [0.5] * 3, [[1, 2], [3, 4]]]


@pytest.fixture(scope="module")
def releases():
    return {kind: dirdp.sample(target, model(), **options) for kind, (model, target, options) in KINDS.items()}


def facts_of(release):
    facts = json.loads(text_of(release))
    facts.pop("digest")
    return facts


def places(facts, path=()):
    """Every place in nested dicts and lists."""
    for key, value in facts.items() if isinstance(facts, dict) else enumerate(facts):
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from places(value, (*path, key))


def changed(facts, path, how, value):
    """The facts with one place changed, left out, doubled, moved or joined by another."""
    found = copy.deepcopy(facts)
    inside = found
    for key in path[:-1]:
        inside = inside[key]
    if how == "change":
        inside[path[-1]] = value
    elif how == "leave out":
        del inside[path[-1]]
    elif how == "move":
        item = inside.pop(path[-1])
        if isinstance(inside, list):
            inside.append(item)
        else:
            inside[path[-1]] = item
    elif isinstance(inside, list):
        inside.insert(path[-1], copy.deepcopy(inside[path[-1]]) if how == "double" else value)
    else:
        inside[f"{path[-1]} too"] = copy.deepcopy(inside[path[-1]]) if how == "double" else value
    return found


@pytest.fixture(scope="module")
def texts(releases):
    """Eleven kinds of text."""
    rng = np.random.default_rng(5)
    found = {kind: opened(release).release for kind, release in releases.items()}
    found["plan"] = dirdp.plan(APPROX, two_tables(), contribution=1, mechanism="auto", disjoint=[["p"], ["rate"]])
    ages = {"age": rng.integers(18, 90, 2000)}
    found["bins"] = dirdp.choose_bins(
        dirdp.PureDP(epsilon=1.0), ages, "age", n_bins=3, candidates=range(20, 90, 7), ledger=dirdp.Ledger(APPROX)
    )
    columns = {"a": rng.choice(["x", "y"], 500), "b": rng.choice(["x", "y", "z"], 500)}
    found["structure"] = dirdp.choose_structure(
        dirdp.PureDP(epsilon=4.0), columns, categories={"a": ["x", "y"], "b": ["x", "y", "z"]}
    )
    bandit = dirdp.ThompsonSampler(["a", 7, "ü"], dirdp.PureDP(epsilon=1.0))
    bandit.update(["a"] * 90 + [7] * 50, [1, 0] * 70)
    found["bandit"] = bandit.transcript()
    after = dirdp.naive_bayes(columns, "a", categories={"a": ["x", "y"], "b": ["x", "y", "z"]})
    chosen = dirdp.sample(dirdp.PureDP(epsilon=5.0), after, mechanism="geometric", after=found["structure"])
    found["after a choice"] = opened(chosen).release
    survey = dirdp.sample(dirdp.PureDP(epsilon=1.0), three_questions(), unit="person", mechanism="joint")
    found["joint"] = opened(survey).release
    assert set(found) == set(TEXTS)
    return found


def an_edit(facts, every, rng):
    """The facts with one place changed, left out, doubled, moved or joined by another."""
    path = every[rng.integers(len(every))]
    how = rng.choice(["change", "change", "leave out", "double", "add", "move"])
    return changed(facts, path, how, STRANGE[rng.integers(len(STRANGE))])


def keeps(found):
    """Whether what was understood keeps what it states."""
    match found:
        case Release():
            return found.plan.composition.satisfies(found.plan.guarantee)
        case Plan():
            return found.composition.satisfies(found.guarantee)
        case Transcript():
            return found.privacy.satisfies(found.guarantee)
    return found.mechanism.satisfies(found.guarantee)


def refuse_or_understand(found, edits, text_of_facts, seed):
    """Each edited text is refused in a few words, or means what it says; the number of those that were understood."""
    facts, rng, understood_ones, said = json.loads(json.dumps(found.facts)), np.random.default_rng(seed), 0, [""]
    every = list(places(facts))
    for _ in range(edits):
        text = text_of_facts(an_edit(facts, every, rng))
        try:
            again = understood(text.encode())
        except (ReleaseError, UnattainableError) as error:
            said.append(str(error))
            continue
        # With the digest that belongs to it, as anyone can write it: it is this text and no other.
        assert again.text == text
        if not isinstance(again, Release):
            assert keeps(again)
        else:
            try:
                tree = view(from_text(text))
            except ReleaseError as error:  # Nothing can be computed from its numbers.
                said.append(str(error))
                continue
            assert bool(dirdp.verify(tree)) == (keeps(again) and not again.is_seeded)
        understood_ones += 1
    assert max(map(len, said)) < 1500
    assert "\x1b" not in "".join(said)
    return understood_ones


TEXTS = [*KINDS, "plan", "bins", "structure", "bandit", "after a choice", "joint"]


@pytest.mark.parametrize("edits", [50, pytest.param(300, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("kind", TEXTS)
def test_an_edit_is_refused_or_says_what_it_says(texts, text_of_facts, kind, edits):
    assert refuse_or_understand(texts[kind], edits, text_of_facts, seed=1) < edits


@pytest.mark.parametrize(
    "table",
    [
        np.random.default_rng(1).normal(size=(3, 4)),
        np.random.default_rng(2).integers(0, 3, (70_000, 2)) * 0.1,
        np.array([[-0.0, 0.0], [1e300, 5e-324]]),
        np.arange(24).reshape(2, 3, 4),
        np.ones((5, 1)),
        np.zeros((0, 3)),
        np.array(3.5),
    ],
    ids=lambda table: str(table.shape),
)
def test_an_array_is_written_as_its_lists(table):
    """In lines and for the digest; `json.dumps` is the oracle of the digest, and reads the lines."""
    facts = {"b": "ü], [", "a": table, "c": {"z": [1, {"q": table}], "none": [], "text": [["], ["], [1]]}}
    lists = plain(facts)
    assert in_lines(facts) == in_lines(lists)
    assert json.dumps(json.loads(in_lines(facts))) == json.dumps(lists)
    compact = json.dumps(lists, sort_keys=True, allow_nan=False)
    assert digest(facts) == digest(lists) == hashlib.sha256(compact.encode()).hexdigest()
    if table.ndim == 2:
        assert in_lines({"a": table}).count("\n") == (len(lists["a"]) + 4 if lists["a"] else 3)
    for wrong in (np.nan, np.inf):
        with pytest.raises(ValueError, match="not JSON compliant"):
            in_lines({"a": np.array([[1.0, wrong]])})


@pytest.mark.slow
def test_a_hundred_thousand_edits(texts, text_of_facts):
    for kind in TEXTS:
        refuse_or_understand(texts[kind], 10**5 // len(TEXTS) + 1, text_of_facts, seed=2)


def hostile(text, rng):
    """Bytes that somebody has damaged or made up."""
    content, place = bytearray(text.encode()), int(rng.integers(len(text.encode())))
    match rng.integers(8):
        case 0:
            content[place] ^= 1 << int(rng.integers(8))
        case 1:
            del content[place:]
        case 2:
            del content[place : place + int(rng.integers(1, 200))]
        case 3:
            content[place:place] = bytes(rng.integers(0, 256, rng.integers(1, 50), dtype=np.uint8))
        case 4:
            content[place:place] = content[: int(rng.integers(len(content)))]
        case 5:
            content[place:place] = (b"[", b'{"a":')[rng.integers(2)] * int(rng.integers(10**5))
        case 6:
            content[place:place] = (b"9", b"1e9", b'"\\u0000"')[rng.integers(3)] * int(rng.integers(10**4))
        case _:
            numbers = re.findall(rb"\d+", content)
            old = numbers[rng.integers(len(numbers))]
            new = (b"1" + b"0" * int(rng.integers(400)), b"-1", b"1e308", b"0.1", b"9007199254740993")
            content = bytearray(content.replace(old, new[rng.integers(len(new))], 1))
    return bytes(content)


def refuse_all(texts, number, seed):
    """The longest time that a hostile text took, in seconds."""
    rng, longest = np.random.default_rng(seed), 0.0
    for _ in range(number):
        content, before = hostile(texts[TEXTS[rng.integers(len(TEXTS))]].text, rng), time.process_time()
        with contextlib.suppress(ReleaseError, UnattainableError):
            assert understood(content).text.encode() == content
        longest = max(longest, time.process_time() - before)
    return longest


def test_hostile_texts_are_refused(texts):
    refuse_all(texts, 500, seed=3)


@pytest.mark.slow
def test_a_hundred_thousand_hostile_texts(texts):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"the longest took {refuse_all(texts, 10**5, seed=4):.2f} s of a processor")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


def tree_with(release, text):
    tree = release.copy(deep=True)
    tree["release"] = xr.DataTree(xr.Dataset({"text": ((), np.array(text, dtype=object))}))
    return tree


def noise(text):
    return json.dumps(json.loads(text)).encode()


BROKEN = {
    "empty": lambda text: b"",
    "no JSON": lambda text: b"a,b\n1,2\n",
    "cut": lambda text: text.encode()[:-300],
    "two texts": lambda text: (text + text).encode(),
    "a byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "no UTF-8": lambda text: text.encode()[:-3] + b"\xff\xfe}\n",
    "another order": lambda text: json.dumps(json.loads(text), sort_keys=True).encode(),
    "one line": noise,
    "a space more": lambda text: text.replace('"format": ', '"format":  ').encode(),
    "no end of line": lambda text: text.rstrip("\n").encode(),
    "a key twice": lambda text: text.replace('"version": 1,', '"version": 1,\n  "version": 1,', 1).encode(),
    "a comment": lambda text: ("// mine\n" + text).encode(),
    "a point": lambda text: text.replace('"version": 1,', '"version": 1.0,', 1).encode(),
    "escapes": lambda text: text.replace('"format"', '"\\u0066ormat"', 1).encode(),
    "NaN": lambda text: text.replace('"version": 1,', '"version": NaN,', 1).encode(),
    "1e999": lambda text: text.replace('"version": 1,', '"version": 1e999,', 1).encode(),
    "5000 digits": lambda text: text.replace('"version": 1,', f'"version": {"9" * 5000},', 1).encode(),
    "deep": lambda text: b"[" * 100_000 + b"]" * 100_000,
    "deep inside": lambda text: text.replace('"version": 1,', f'"version": {"[" * 50_000}1{"]" * 50_000},', 1).encode(),
    "half a character": lambda text: text.replace('"sampler": "exact"', '"sampler": "\\ud800"').encode(),
    "a later version": lambda text: text.replace('"version": 1,', '"version": 2,', 1).encode(),
    "netCDF": lambda text: b"\x89HDF\r\n\x1a\n" + bytes(1000),
    "another kind": lambda text: b'{\n  "format": "pymc_dirdp plan"\n}\n',
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_text_of_a_release_is_refused(releases, name, tmp_path):
    text = text_of(releases["geometric"])
    broken = BROKEN[name](text)
    assert broken != text.encode()
    path = tmp_path / "r.json"
    path.write_bytes(broken)
    with pytest.raises(ReleaseError) as refused:
        dirdp.load(path)
    assert len(str(refused.value)) < 1000


def test_the_digest_shows_a_change_by_accident(releases, tmp_path):
    text = text_of(releases["geometric"])
    path = tmp_path / "r.json"
    path.write_text(text.replace('"sampler": "exact"', '"sampler": "fast"'), encoding="utf-8")
    with pytest.raises(ReleaseError, match="changed after it was written"):
        dirdp.load(path)


OUTPUTS = {
    "half a count": ("geometric", ("output", "rate", "noisy_counts", 0), lambda count: count + 0.5),
    "a sum that is off by one": ("geometric", ("output", "rate", "noisy_counts", 0), lambda count: count + 1),
    "a count too many": ("geometric", ("output", "rate", "noisy_counts"), lambda counts: [*counts, 1]),
    "a share above 1": ("draws", ("output", "rate", "draws", 0), 1.5),
    "a share of 1": ("draws", ("output", "rate", "draws", 0), 1),
    "a share of 0": ("draws", ("output", "rate", "draws", 0), 0),
    "a share that is not on the grid": ("draws", ("output", "rate", "draws", 0), 0.123456789),
    "another last bit": ("draws", ("output", "rate", "draws", 0), lambda share: float(np.nextafter(share, 1))),
    "another last bit of a row": (
        "draws",
        ("output", "p", "draws", 0, 0, 0),
        lambda share: float(np.nextafter(share, 1)),
    ),
    "no dims in other words": ("draws", ("plan", "tables", 1, "dims"), []),
    "shares that add up to more": ("draws", ("output", "p", "draws", 0, 0), [0.5, 0.4, 0.2]),
    "another number of draws": ("draws", ("plan", "draws"), 3),
    "a least count below 0": ("draws", ("plan", "min_count"), -1),
    "an infinite least count": ("draws", ("plan", "min_count"), "inf"),
    "a table left out": ("geometric", ("plan", "groups"), [["p"]]),
    "a table twice": ("geometric", ("plan", "groups"), [["p", "p", "rate"]]),
    "an unknown table": ("geometric", ("plan", "groups"), [["p", "rate", "q"]]),
    "fewer records of a person": ("geometric", ("plan", "tables", 0, "one_person_adds", "records"), 2),
    "other people": ("geometric", ("plan", "protected"), "every household"),
    "an assumption more": ("geometric", ("plan", "assumptions"), ["the moon is full"]),
    "a version that is free text": ("geometric", ("plan", "library_version"), "0.1.0 108, 286, 71, 127"),
    "a version of many digits": ("geometric", ("plan", "library_version"), "1" * 100),
    "a source of bits that is none": ("geometric", ("randomness",), "dice"),
    "a reason that is none": ("geometric", ("left_out",), [{"name": "a", "reason": "108, 286", "about": ""}]),
    "a choice from nothing": ("draws", ("plan", "tables", 0, "chosen_from"), {"expected_kl": []}),
    "no earlier choices in other words": ("draws", ("plan", "after"), []),
    "an earlier choice that is a plan": ("draws", ("plan", "after"), [{"format": "pymc_dirdp plan"}]),
    "a view of other cells": (
        "draws",
        ("plan", "tables", 0, "observed", 0, "view"),
        {"cells": [[0, 6]], "by_codes": False},
    ),
    "several draws of fitted shares": ("marginals", ("plan", "draws"), 2),
    "a label that turns its direction": ("geometric", ("plan", "tables", 0, "labels", "hair", 0), "b\u202elack"),
    "a label with a line break": ("geometric", ("plan", "tables", 0, "labels", "hair", 0), "black\nred"),
    "an entry that is none": ("geometric", ("entry",), {"ledger": "0" * 32, "number": 0, "hash": "0" * 64}),
    "an entry with another hash": ("geometric", ("entry",), {"ledger": "0" * 32, "number": 1, "hash": "0"}),
}


@pytest.mark.parametrize("what", OUTPUTS)
def test_what_no_mechanism_returns_is_refused_by_all(releases, edited, what):
    kind, path, value = OUTPUTS[what]
    release = edited(releases[kind], (path, value))
    for use in (dirdp.verify, dirdp.report, dirdp.estimate, dirdp.analyse, dirdp.statement):
        with pytest.raises(ReleaseError, match="damaged"):
            use(release)


LIES = {
    "r": ("draws", ("plan", "tables", 0, "parameters", "r"), 1.0),
    "epsilon": ("geometric", ("plan", "guarantee", "epsilon"), 0.1),
    "noise": ("geometric", ("plan", "tables", 0, "parameters", "noise_parameter"), 1.0),
    "draws that each lose": ("draws", ("plan", "guarantee", "epsilon"), 0.5),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_guarantee_that_does_not_follow_is_found_and_not_repeated(releases, edited, lie):
    kind, path, value = LIES[lie]
    sentence = (("plan", "statement"), lambda said: said.replace("(1,", f"({value:g},") if "epsilon" in path else said)
    release = edited(releases[kind], (path, value), sentence)
    found = dirdp.verify(release)
    assert not found
    assert "guarantee" in [check.name for check in found.checks if not check.passed]
    text = str(dirdp.report(release, full=True))
    assert "does not follow" in " ".join(text[: text.index("===")].split())
    assert "odds of the truth" not in text
    for use in (dirdp.estimate, dirdp.analyse, dirdp.statement):
        with pytest.raises(ReleaseError, match=r"does not follow|does not verify"):
            use(release)


def view_edits(release):
    """Every group, attribute and variable of a tree, each changed, left out, or joined by another."""
    for node in release.subtree:
        if node.path == "/release":
            continue
        dataset = node.to_dataset()
        for name, value in dataset.attrs.items():
            yield node.path, dataset.assign_attrs({name: "108, 286" if isinstance(value, str) else value * 1.1 + 1})
            yield (
                node.path,
                dataset.drop_attrs(deep=False).assign_attrs({k: v for k, v in dataset.attrs.items() if k != name}),
            )
        for name, variable in dataset.data_vars.items():
            if variable.dtype.kind == "f" and np.isfinite(variable.values).any():
                yield node.path, dataset.assign({name: variable * 1.01 + 1e-3})
            yield node.path, dataset.drop_vars(name)
            marked = dataset.copy(deep=True)
            marked[name].attrs["students"] = "108, 286"
            yield node.path, marked
        yield node.path, dataset.assign(students=("q", [108, 286]))
        yield node.path, dataset.assign_coords(students=("q", [108, 286]))
        yield node.path, dataset.assign_attrs(students="108, 286")


@pytest.mark.parametrize("kind", ["draws", pytest.param("private number", marks=pytest.mark.thorough)])
def test_every_edit_of_the_view_is_found_and_nothing_is_read_of_it(releases, kind):
    release = releases[kind]
    for number, (path, dataset) in enumerate(view_edits(release)):
        tree = release.copy(deep=True)
        tree[path].dataset = dataset
        found = dirdp.verify(tree)
        failed = [check.name for check in found.checks if not check.passed]
        if path == "/posterior" and set(dataset.variables) > set(release[path].variables):
            # Deterministics may stand there, and a verification names them.
            assert failed == []
            assert any("which the text does not hold" in check.sentence for check in found.checks)
            continue
        assert failed == ["view"], (path, dataset)
        assert found.recomputed is None
        if number % 10 == 0:
            assert text_of(tree) == text_of(release)
            assert opened(tree).tree.identical(opened(release).tree)
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


def test_a_tree_without_its_text_is_no_release(releases):
    release = releases["geometric"].copy(deep=True)
    del release["release"]
    for text in (None, 3, ["a"], "text"):
        if text is not None:
            release["release"] = xr.DataTree(xr.Dataset({"text": xr.DataArray(text)}))
        for use in (dirdp.verify, dirdp.report, dirdp.estimate, dirdp.statement):
            with pytest.raises(ReleaseError):
                use(release)


def test_nobody_changes_the_view_that_others_read(releases, tmp_path):
    dirdp.save(releases["geometric"], tmp_path / "r.json")
    mine = dirdp.load(tmp_path / "r.json")
    mine["posterior"]["p"].values[:] = 0.5
    mine["mechanism/p"].attrs["mechanism"] = "other"
    assert dirdp.load(tmp_path / "r.json").identical(releases["geometric"])
    assert dirdp.verify(releases["geometric"])


def test_a_file_is_there_as_a_whole_or_not_at_all(releases, tmp_path, monkeypatch):
    """Also where the disk is full: the file that was there stays, and no other one is left."""
    path = tmp_path / "r.json"
    path.write_text("mine")
    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
        with pytest.raises(OSError, match="full"):
            dirdp.save(releases["draws"], path)
    assert path.read_text() == "mine"
    assert [file.name for file in tmp_path.iterdir()] == ["r.json"]
    dirdp.save(releases["draws"], path)
    assert dirdp.verify(dirdp.load(path))


@pytest.mark.parametrize("kind", ["geometric", "draws"])
def test_other_stores_keep_the_text(releases, kind, tmp_path):
    """Found by a newcomer: Zarr gives groups back in the order of their names."""
    release = releases[kind]
    release.to_netcdf(tmp_path / "r.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "r.nc", engine="h5netcdf") as back:
        assert dirdp.verify(back)
        assert str(dirdp.estimate(back)) == str(dirdp.estimate(release))
    with pytest.raises(ReleaseError, match="open_datatree"):
        dirdp.load(tmp_path / "r.nc")
    groups = {f"/{name}": node.to_dataset() for name, node in reversed(list(release.children.items()))}
    groups |= {
        f"/mechanism/{name}": node.to_dataset() for name, node in reversed(list(release["mechanism"].children.items()))
    }
    back = xr.DataTree.from_dict(groups)
    back.attrs = release.attrs
    assert dirdp.verify(back)


def test_a_text_of_few_characters_makes_nothing_large(releases, edited):
    with pm.Model():
        pm.Multinomial("x", n=0, p=pm.Dirichlet("p", a=np.ones(101)), observed=np.zeros(101))
        wide = dirdp.sample(APPROX)
    for release, draws, words in ((wide, 10**6, "100000000 shares"), (releases["geometric"], 10**9, "1000000 draws")):
        with pytest.raises(ReleaseError, match=f"more than {words}"):
            dirdp.verify(edited(release, (("plan", "draws"), draws)))
