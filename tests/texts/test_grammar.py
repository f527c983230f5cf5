"""The grammar of texts is closed: what is not written as this library writes it is refused, wherever it stands."""

import contextlib
import copy
import hashlib
import json
import math
import re
import resource

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.bandits import Transcript
from pymc_dirdp.errors import ReleaseError, UnattainableError
from pymc_dirdp.releases.opened import from_text, open_release, text_of
from pymc_dirdp.releases.plan_types import Plan
from pymc_dirdp.releases.text import Release
from pymc_dirdp.releases.view import view
from pymc_dirdp.texts.grammar import digest, parse, to_builtin, to_lines
from tests.planned import planned_sample, three_questions, two_tables
from tests.releases.kinds import APPROX, released

STRANGE = [None, -1, 0, 1, 2, 0.5, True, 10**12, 10**400, 1e-320, 1e300, math.nan, math.inf, "", "1", "x", "\x1b[2J\n"]
STRANGE += ["9" * 5000, "DirichletMechanism", "GeometricMechanism", "add-remove", "beta", "seed", "fast", "clip", "p"]
STRANGE += [[], {}, [[]], [1, 2], ["p"], {"a": 1}, [0.5] * 3, [[1, 2], [3, 4]]]
KINDS = ["draws", "geometric", "private number", "marginals", "auto"]


@pytest.fixture(scope="module")
def releases():
    return {kind: released(kind) for kind in KINDS}


def places(facts, path=()):
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
    rng = np.random.default_rng(5)
    found = {kind: open_release(release).release for kind, release in releases.items()}
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
    chosen = planned_sample(dirdp.PureDP(epsilon=5.0), after, mechanism="geometric", after=found["structure"])
    found["after a choice"] = open_release(chosen).release
    survey = dirdp.sample(dirdp.PureDP(epsilon=1.0), three_questions(), unit="person", mechanism="joint")
    found["joint"] = open_release(survey).release
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
            again = parse(text.encode())
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


@pytest.mark.parametrize("edits", [60, pytest.param(10**4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", TEXTS)
def test_an_edit_is_refused_or_says_what_it_says(texts, text_of_facts, kind, edits):
    assert refuse_or_understand(texts[kind], edits, text_of_facts, seed=edits) < edits


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
    lists = to_builtin(facts)
    assert to_lines(facts) == to_lines(lists)
    assert json.dumps(json.loads(to_lines(facts))) == json.dumps(lists)
    compact = json.dumps(lists, sort_keys=True, allow_nan=False)
    assert digest(facts) == digest(lists) == hashlib.sha256(compact.encode()).hexdigest()
    if table.ndim == 2:
        assert to_lines({"a": table}).count("\n") == (len(lists["a"]) + 4 if lists["a"] else 3)
    for wrong in (np.nan, np.inf):
        with pytest.raises(ValueError, match="not JSON compliant"):
            to_lines({"a": np.array([[1.0, wrong]])})


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


@pytest.mark.parametrize("number", [200, pytest.param(10**5, marks=pytest.mark.slow)])
def test_hostile_texts_are_refused(texts, number):
    rng, before = np.random.default_rng(number), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(number):
        content = hostile(texts[TEXTS[rng.integers(len(TEXTS))]].text, rng)
        with contextlib.suppress(ReleaseError, UnattainableError):
            assert parse(content).text.encode() == content
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024


def instead(old, new):
    """Something else in one place of a text."""
    return lambda text: text.replace(old, new, 1).encode()


VERSION = '"version": 1,'
BROKEN = {
    "an accident": instead('"sampler": "exact"', '"sampler": "fast"'),
    "empty": lambda text: b"",
    "no JSON": lambda text: b"a,b\n1,2\n",
    "cut": lambda text: text.encode()[:-300],
    "two texts": lambda text: (text + text).encode(),
    "a byte order mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "UTF-16": lambda text: text.encode("utf-16"),
    "no UTF-8": lambda text: text.encode()[:-3] + b"\xff\xfe}\n",
    "another order": lambda text: json.dumps(json.loads(text), sort_keys=True).encode(),
    "one line": lambda text: json.dumps(json.loads(text)).encode(),
    "a space more": instead('"format": ', '"format":  '),
    "no end of line": lambda text: text.rstrip("\n").encode(),
    "a key twice": instead(VERSION, '"version": 1,\n  "version": 1,'),
    "a comment": lambda text: ("// mine\n" + text).encode(),
    "a point": instead(VERSION, '"version": 1.0,'),
    "escapes": instead('"format"', '"\\u0066ormat"'),
    "NaN": instead(VERSION, '"version": NaN,'),
    "1e999": instead(VERSION, '"version": 1e999,'),
    "5000 digits": instead(VERSION, f'"version": {"9" * 5000},'),
    "deep": lambda text: b"[" * 100_000 + b"]" * 100_000,
    "deep inside": instead(VERSION, f'"version": {"[" * 50_000}1{"]" * 50_000},'),
    "half a character": instead('"sampler": "exact"', '"sampler": "\\ud800"'),
    "a later version": instead(VERSION, '"version": 2,'),
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
    with pytest.raises(
        ReleaseError, match="changed after it was written" if name == "an accident" else None
    ) as refused:
        dirdp.load(path)
    assert len(str(refused.value)) < 1000
