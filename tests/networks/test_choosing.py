"""A structure chosen privately: from the records to the release, the ledger and the files, and what is refused."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, DataError, SeededReleaseWarning
from pymc_dirdp.networks import choosing
from pymc_dirdp.networks.choosing import part_of, tree_within

CATEGORIES = {"a": ["x", "y", "z"], "b": ["x", "y", "z"], "c": ["no", "yes"], "d": ["no", "yes"], "one": ["only"]}
TARGET = dirdp.ApproxDP(epsilon=2.0, delta=1e-5)


def made_up(times):
    """`b` follows `a` and `d` follows `c` for nine of ten; everything else is independent, and exactly so."""
    every = np.array(list(itertools.product(range(3), range(2), range(10), range(10))) * times)
    a, c, b_differs, d_differs = every[:, 0], every[:, 1], every[:, 2] == 0, every[:, 3] == 0
    codes = {"a": a, "b": (a + b_differs) % 3, "c": c, "d": c ^ d_differs, "one": 0 * a}
    return {name: np.array(CATEGORIES[name])[values] for name, values in codes.items()}


RECORDS = made_up(7)
N = len(RECORDS["a"])


@pytest.fixture(scope="module")
def structure():
    return dirdp.choose_structure(TARGET, RECORDS, categories=CATEGORIES)


def test_what_depends_on_each_other_is_joined(structure):
    assert dict(structure) == {"a": (), "b": ("a",), "c": (), "d": ("c",), "one": ()}
    assert list(structure) == list(CATEGORIES)
    assert structure.mechanism.satisfies(part_of(TARGET, 0.25))
    assert part_of(TARGET, 0.25).epsilon == 1.0
    assert part_of(dirdp.PureDP(epsilon=2.0), 0.25).epsilon == 0.5
    rooted = dirdp.choose_structure(TARGET, RECORDS, categories=CATEGORIES, root="d")
    assert (rooted["d"], rooted["c"]) == ((), ("d",))


def test_arrows_lead_away_from_the_roots():
    """The first of each part of a forest has no parent, or the root that is asked for; its edges are the arrows."""
    edges = [("a", "c"), ("c", "d"), ("b", "e"), ("a", "f")]
    for root in (None, *"abcdefg"):
        parents = dict(choosing._directed_forest(list("abcdefg"), edges, root=root))
        assert list(parents) == list("abcdefg")
        assert sorted(tuple(sorted((name, *given))) for name, given in parents.items() if given) == sorted(edges)
        assert parents[root or "a"] == parents["g"] == ()
        assert root in tuple("be") or parents["b"] == ()


@pytest.mark.parametrize(("adjacency", "steps", "squares"), [("replace-one", 2, 2), ("add-remove", 1, 1)])
def test_the_marginals_take_three_tenths_of_what_a_structure_loses(adjacency, steps, squares):
    """By the formulas of zero-concentrated privacy: of Gaussian noise, and the bound of a choice."""
    found = tree_within(dirdp.ZeroCDP(rho=0.5), [2, 3, 4], adjacency=adjacency)
    marginals = 3 * squares / (2 * found.parameter**2)
    choices = 2 * (2 * steps / found.scale) ** 2 / 8
    assert marginals / (marginals + choices) == pytest.approx(0.3, rel=1e-6)
    # The curve of a choice is a little below its bound, which leaves room for less noise.
    assert found.satisfies(dirdp.ZeroCDP(rho=0.5))
    assert 0.5 <= marginals + choices < 0.51
    pure = tree_within(dirdp.PureDP(epsilon=0.5), [2, 3, 4], adjacency=adjacency)
    marginals, choices = 3 * steps / pure.parameter, 2 * 2 * steps / pure.scale
    assert marginals / (marginals + choices) == pytest.approx(0.3, rel=1e-6)


def test_rows_may_stand_for_many_records_or_for_none():
    cells = list(itertools.product(CATEGORIES["a"], CATEGORIES["c"]))
    frame = {"a": [a for a, _ in cells], "c": [c for _, c in cells], "n": [900, 0, 0, 800, 0, 0]}
    categories = {name: CATEGORIES[name] for name in "ac"}
    assert dirdp.choose_structure(TARGET, frame, categories=categories, counts="n")["c"] == ("a",)
    nobody = {name: values[:0] for name, values in RECORDS.items()}
    with pytest.warns(SeededReleaseWarning):
        chosen = dirdp.choose_structure(TARGET, nobody, categories=CATEGORIES, random_seed=1)
    assert sum(map(len, dict(chosen).values())) <= 3
    assert "NOT PRIVATE" in str(chosen)


def test_no_count_is_revealed(structure, numbers_in):
    """Nothing in print, in the file or in an attribute is another one for neighbours with the same edges."""
    texts = [repr(structure), str(structure), structure._repr_html_(), json.dumps(structure.facts)]
    counts = {int(np.sum(RECORDS[name] == label)) for name in "abcd" for label in CATEGORIES[name]}
    assert not {n for n in numbers_in(" ".join(texts)) if n >= 100} & (counts | {N})
    other = dirdp.choose_structure(TARGET, made_up(15), categories=CATEGORIES)
    assert other == replace(structure, identity=other.identity)
    assert [str(other), repr(other)] == texts[1::-1]


ONE_OF_TWO = {"unit": "who", "contribution": 1}
WRONG = [
    ({"share": 0}, "share"),
    ({"share": 1.1}, "share"),
    ({"root": "e"}, "root"),
    ({"unit": "a"}, "unit and contribution together"),
    ({"categories": {"a": ["x"], "b": ["x", "y"]}}, "at least two variables"),
    ({"categories": {f"v{i}": [0, 1] for i in range(201)}}, "at most 200"),
    ({"categories": {"a": range(1001), "b": range(1000)}}, "1001000 cells"),
    ({"categories": {"a": ["x", 1], "b": ["x", "y"]}}, "all texts or all numbers"),
    ({"categories": {"a": [0, 1], "p_a": [0, 1]}}, "p_a"),
    # Found by attack: the ledger was charged, and there was no structure.
    ({"records": {"a": RECORDS["a"]}}, "no column 'b'"),
    (ONE_OF_TWO, "no column 'who'"),
    ({"counts": "n"}, "no column 'n'"),
    ({"records": RECORDS | {"n": [1] * N, "who": range(N)}, "counts": "n"} | ONE_OF_TWO, "Leave counts"),
    ({"records": [RECORDS]}, "columns by name, got a list"),
]


def test_what_is_wrong_is_said_before_the_charge_and_values_are_read_after_it(monkeypatch):
    ledger = dirdp.Ledger(dirdp.PureDP(epsilon=3.0))
    right = {"guarantee": dirdp.PureDP(epsilon=1.0), "records": RECORDS, "categories": CATEGORIES, "ledger": ledger}
    with monkeypatch.context() as patch:
        patch.setattr(choosing, "count_families", None)
        for options, said in WRONG:
            with pytest.raises(ArgumentError, match=said):
                dirdp.choose_structure(**right | options)
    assert ledger.entries() == ()
    with pytest.raises(DataError, match="charged"):
        dirdp.choose_structure(**right | {"records": RECORDS | {"c": ["maybe"] * N}})
    assert ledger.spent["epsilon"] > 0


def test_people_with_several_records():
    records, options = RECORDS | {"who": np.arange(N) // 4}, {"unit": "who", "contribution": 2}
    with pytest.raises(ArgumentError, match="add-remove"):
        dirdp.choose_structure(TARGET, records, categories=CATEGORIES, **options)
    chosen = dirdp.choose_structure(TARGET, records, categories=CATEGORIES, adjacency="add-remove", **options)
    assert (chosen.unit, chosen.mechanism.contribution) == ("who", 2)
    alone = dirdp.bayesian_network(records, chosen, categories=CATEGORIES)
    with pytest.raises(ArgumentError, match=r"unit='who'.*'record'"):
        dirdp.plan(TARGET, alone, adjacency="add-remove", n_records=2000, after=chosen, mechanism="marginals")
