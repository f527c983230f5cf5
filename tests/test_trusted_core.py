"""While counts are in hand, only the files of the trusted core run. No counts are left when a release is described."""

import ast
import contextlib
import gc
import re
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.accounting.opening import Sealed
from pymc_dirdp.mechanisms.registry import Dirichlet, Marginals
from pymc_dirdp.releases import pairs_drawn, release
from pymc_dirdp.sampling.drawing import Once, SecretCounts
from tests.planned import one_row, three_questions
from tests.sources import FILES, PACKAGE, PAGES, tree_of
from tests.test_non_interference import FRAMES
from tests.test_non_interference import VERBS as OF_RECORDS

LOOSE, LARGE = dirdp.ApproxDP(epsilon=1.0, delta=1e-6), dirdp.ApproxDP(epsilon=4.0, delta=1e-5)
CELLS = [48611, 31337, 77003, 10522]
RECORDS = {"pet": ["cat", "dog", "cat", "hen"] * 50, "fur": ["yes", "no", "yes", "no"] * 50}
LABELS = {"pet": ["cat", "dog", "hen"], "fur": ["yes", "no"]}

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")


def core():
    section = PAGES["docs/threat_model.md"].split("## The trusted core")[1].split("\n## ")[0]
    return re.findall(r"^\| `pymc_dirdp/([\w/]+\.py)`", section, flags=re.M)


def test_the_page_names_at_most_twelve_files():
    assert 0 < len(core()) == len(set(core())) <= 12
    assert all((PACKAGE / file).is_file() for file in core())


def test_only_the_core_reads_secret_counts():
    readers = {
        str(file.relative_to(PACKAGE))
        for file in FILES
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Attribute) and node.attr == "secret_cells"
    }
    assert readers
    assert readers <= set(core())


def one_table():
    return one_row(CELLS, [1.5, 1, 1, 2])


def codes_and_rates():
    with pm.Model(coords={"parent": ["no", "yes"], "child": list("xyz")}) as model:
        theta = pm.Dirichlet("theta", a=[[1, 2, 1], [1, 1, 3]], dims=("parent", "child"))
        pm.Categorical("c", p=theta[np.array([0, 1, 1, 0, 1])], observed=np.array([0, 1, 2, 1, 1]))
        pm.Bernoulli("b", p=pm.Beta("rate", 1, 1), observed=[0, 0, 1, 1, 1])
    return model


def poisson():
    with pm.Model() as model:
        pm.Poisson("cases", pm.Gamma("rate", 2, 0.2, shape=3), observed=[48, 0, 5])
    return model


def sampled(model=one_table, guarantee=LOOSE, **options):
    dirdp.sample(guarantee, model(), progressbar=False, **options)


def of_pairs(folder):
    dirdp.sample(LOOSE, dirdp.latent_class(RECORDS, categories=LABELS), progressbar=False)


def of_frames(folder):
    pl = pytest.importorskip("polars")
    dirdp.choose_structure(LOOSE, pl.DataFrame(RECORDS).lazy(), categories=LABELS)


def of_units(folder):
    people, whose = RECORDS | {"who": [f"p{i // 2}" for i in range(200)]}, {"unit": "who", "contribution": 1}
    dirdp.choose_structure(LOOSE, people, categories=LABELS, adjacency="add-remove", ledger=None, **whose)


VERBS = {
    "dirichlet": lambda folder: sampled(),
    "temper": lambda folder: sampled(mechanism=Dirichlet(strategy="temper")),
    "seeded": lambda folder: sampled(random_seed=1),
    "fast": lambda folder: dirdp.sample(dirdp.plan(LOOSE, one_table(), sampler="fast"), one_table()),
    "codes": lambda folder: sampled(codes_and_rates),
    "geometric": lambda folder: sampled(codes_and_rates, mechanism="geometric"),
    "gaussian": lambda folder: sampled(codes_and_rates, mechanism="gaussian"),
    "auto": lambda folder: sampled(mechanism="auto", adjacency="add-remove", n_records=100),
    "joint": lambda folder: sampled(codes_and_rates, mechanism="joint"),
    "marginals": lambda folder: sampled(codes_and_rates, mechanism="marginals"),
    "geometric marginals": lambda folder: sampled(codes_and_rates, mechanism=Marginals(noise="geometric")),
    "survey": lambda folder: sampled(three_questions, unit="person"),
    "ledger": lambda folder: sampled(ledger=dirdp.Ledger(LOOSE, folder / "ledger.db")),
    "counts": lambda folder: dirdp.private_model(dirdp.PureDP(epsilon=1.0), poisson(), count_variables=["cases"]),
    "pairs": of_pairs,
    "structure of an engine": of_frames,
    "structure of units": of_units,
    # Verbs that read a frame: what they are charged, and what they refuse, has tests of its own.
    **{
        verb: lambda folder, call=call: call(FRAMES["40 records"], dirdp.Ledger(LARGE, adjacency="add-remove"))
        for verb, call in OF_RECORDS.items()
    },
}


def is_left(item):
    """Whether it is secret counts, or noise, which gives the counts beside the numbers to which it was added."""
    return type(item) is SecretCounts or (type(item) is Once and bool(item._left))


@contextlib.contextmanager
def watched():
    """The files that run between the opening of the records and the return to the verb, and what is left after it."""
    seen, left, open_records = set(), [], Sealed.release

    def look(frame, event, _):
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(str(PACKAGE)):
            seen.add(str(Path(file).relative_to(PACKAGE)))

    def opened(self, count, draw, receipt):
        def first(records):
            sys.setprofile(look)
            return count(records)

        try:
            return open_records(self, first, draw, receipt)
        finally:
            sys.setprofile(None)
            gc.collect()
            left.append(sum(map(is_left, gc.get_objects())))

    # Whatever is there before is looked at no more: a million objects, and draws that other tests prepared.
    gc.freeze()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Sealed, "release", opened)
            yield seen, left
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("verb", VERBS)
def test_only_the_core_runs_with_counts_in_hand(verb, tmp_path):
    with watched() as (seen, left), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        VERBS[verb](tmp_path)
    assert seen
    assert seen <= set(core()), sorted(seen - set(core()))
    assert set(left) == {0}


def arrays_in_frames():
    """The arrays in local variables of all frames of this thread."""
    for frame, _ in traceback.walk_stack(sys._getframe()):
        if frame.f_code.co_filename.startswith(str(PACKAGE)):
            for value in frame.f_locals.values():
                items = value.values() if isinstance(value, dict) else value
                items = items if isinstance(value, dict | list | tuple) else [value]
                yield from (item for item in items if isinstance(item, np.ndarray | SecretCounts))


DESCRIBED = {
    **{
        kind: (release, "view", lambda kind=kind: sampled(mechanism=kind))
        for kind in ("dirichlet", "geometric", "gaussian")
    },
    "pairs": (pairs_drawn, "tree_of_pairs", lambda: of_pairs(None)),
}


@pytest.mark.parametrize("kind", DESCRIBED)
def test_no_frame_has_counts_when_a_release_is_described(kind, monkeypatch):
    module, name, verb = DESCRIBED[kind]
    shown, views, view = [], [], getattr(module, name)

    def describe(*arguments):
        shown.extend(arrays_in_frames())
        views.append(view(*arguments))
        return views[-1]

    monkeypatch.setattr(module, name, describe)
    verb()
    true = [CELLS, [[100, 50, 50], [100, 100]], [100, 50, 50], [100, 100]]
    assert views
    assert not any(type(array) is SecretCounts or array.tolist() in true for array in shown)


@pytest.mark.parametrize(
    "problem", [dirdp.errors.DataError("x"), OSError(2, "gone"), IndexError("index 48611"), MemoryError()]
)
def test_an_error_leaves_no_frame_with_records(problem):
    def failing(records):
        assert records
        raise problem

    with pytest.raises((dirdp.DirdpError, OSError, MemoryError)) as caught:
        Sealed(CELLS, None).release(failing, lambda tables: None, None)
    error = caught.value
    assert error.__context__ is None
    assert error.__cause__ is None
    assert "48611" not in str(error)
    assert not any(frame.f_code is failing.__code__ for frame, _ in traceback.walk_tb(error.__traceback__))


def test_counts_that_are_left_are_seen():
    with watched() as (_, left):
        tables = Sealed(CELLS, None).release(lambda records: [np.array(records)], lambda tables: tables, None)
    assert left == [len(tables)] == [1]
