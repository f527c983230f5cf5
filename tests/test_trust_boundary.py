"""Nothing that may leave the house holds a count, a posterior parameter or a private number of records."""

import bisect
import contextlib
import dataclasses
import functools
import gc
import io
import itertools
import json
import logging
import math
import pickle
import re
import sys
import traceback
import types
import warnings
import weakref

import numpy as np
import pymc as pm
import pytest
import xarray as xr

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.releases.opened import LoadedRelease
from pymc_dirdp.releases.view import mechanism_group, privacy_group
from tests.planned import planned_sample
from tests.verbs import CALLS, called

# Four bytes are not all zeros, no size or offset in a file is so large, and sums stay below the 2**31 of PyMC.
CELLS = [486113771, 313371929, 770035531, 105220937]
RATES = ([148611233, 231337907, 177003419], [317771117, 463310081, 229876543])  # successes, trials
# Groups of records and the parent of each group: what is counted is their sum.
GROUPS = [[148613257, 33371407, 77003551], [51907663, 105221809, 68153917], [91907113, 15221459, 58153767]]
PARENTS = [0, 1, 0]
CODES = [[240520370, 48592866, 135157318], GROUPS[1]]
SEVERAL = ([701234567, 298765441, 176543299], [[400617263, 300617304], [98765003, 200000438], [55443321, 121099978]])
PLANNED = 10**6

LOOSE = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
TIGHT = dirdp.RenyiDP(order=2, epsilon=1e-4)
# Noise of millions of records: a noisy count that is a count to four digits would be a miracle.
TINY = dirdp.ApproxDP(epsilon=1e-8, delta=1e-12)
WAYS = {
    "dirichlet": (LOOSE, {}),
    "exact": (TIGHT, {"mechanism": Dirichlet(strategy="temper"), "sampler": "exact"}),
    "gaussian": (TINY, {"mechanism": "gaussian"}),
    "geometric": (TINY, {"mechanism": "geometric"}),
}


@functools.cache
def one_table(cells=tuple(CELLS)):
    """Each model once: nothing here changes it."""
    with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
        p = pm.Dirichlet("p", a=[1.5, 1, 1, 2], dims="hair")
        pm.Deterministic("odds", p / (1 - p), dims="hair")
        answers = pm.Multinomial("students", n=sum(cells), p=p, observed=cells)
        # Left out of the release, because it is made of the data.
        pm.Deterministic("residual", answers - 3 * p)
    return model


@functools.cache
def beta_rates():
    with pm.Model(coords={"department": list("ABC")}) as model:
        rate = pm.Beta("rate", 1.5, 2.5, dims="department")
        pm.Binomial("admitted", n=RATES[1], p=rate, observed=RATES[0])
    return model


@functools.cache
def conditional():
    with pm.Model(coords={"parent": ["no", "yes"], "child": list("xyz")}) as model:
        theta = pm.Dirichlet("theta", a=[[1, 2, 1], [1, 1, 3]], dims=("parent", "child"))
        pm.Multinomial("children", n=list(map(sum, GROUPS)), p=theta[np.array(PARENTS)], observed=GROUPS)
    return model


@functools.cache
def several_tables():
    with pm.Model(coords={"kind": ["cat", "dog", "hen"], "fur": ["yes", "no"]}) as model:
        p_kind = pm.Dirichlet("p_kind", a=[1, 2, 3], dims="kind")
        p_fur = pm.Dirichlet("p_fur", a=np.full((3, 2), 1.5), dims=("kind", "fur"))
        pm.Multinomial("n_kind", n=sum(SEVERAL[0]), p=p_kind, observed=SEVERAL[0])
        pm.Multinomial("n_fur", n=SEVERAL[0], p=p_fur, observed=SEVERAL[1])
    return model


MODELS = {
    "one table": (one_table, {"p": CELLS}),
    "beta": (beta_rates, {"rate": np.stack([RATES[0], np.subtract(RATES[1], RATES[0])], axis=-1)}),
    "conditional": (conditional, {"theta": CODES}),
    "several": (several_tables, {"p_kind": SEVERAL[0], "p_fur": SEVERAL[1]}),
}


class Secrets:
    """Numbers that must not be found, in whatever form."""

    def __init__(self, numbers, frequencies=()):
        self.numbers = np.unique(np.array([*numbers, *frequencies], dtype=float))
        self.sorted = self.numbers.tolist()
        texts, self.binary = set(), {}
        for number in map(float, numbers):
            texts |= _texts(number)
            self._add_binary(number, ("f4", "f8"))
            if number == int(number):
                # Signed and unsigned numbers of this size are the same bytes.
                self._add_binary(int(number), ("i8", "i4") if abs(number) < 2**31 else ("i8",))
                # In a file texts follow each other without a gap, and NumPy gives each letter four bytes.
                if abs(number) > 1e7:
                    self.binary |= {f"{number:.0f}".encode(code): f"{number:.0f}" for code in ("ascii", "utf-32-le")}
        for number in map(float, frequencies):
            # Draws are near the frequencies: four digits are what a release is for.
            texts |= {f"{number:.{digits}f}" for digits in (6, 7, 8, 10)} | {repr(number)}
            self._add_binary(number, ("f8",))
        self.texts = texts

    def _add_binary(self, number, kinds):
        for kind in kinds:
            for order in "<>":
                self.binary[np.array(number, dtype=order + kind).tobytes()] = f"{number!r} as {order}{kind}"

    def within(self, artefact):
        """What is found in a text, or in bytes, which may hold text."""
        if isinstance(artefact, str):
            # Addresses of objects are random digits.
            artefact = re.sub(r"\b0x[0-9a-f]{6,}", "", artefact)
            # Integers of the text, never a piece of a longer one; a comma may part digits or numbers.
            found = {token.rstrip(".,_") for token in re.findall(r"(?<![\d.])\d[\d.,_]*(?:e[+-]?\d+)?", artefact)}
            found |= {piece for token in found for piece in re.split(r"[,_]", token)}
            return sorted(found & self.texts)
        raw = bytes(artefact)
        return self.within(raw.decode("latin-1")) + [what for found, what in self.binary.items() if found in raw]

    def among(self, values):
        """What is equal, up to rounding, to a number, or to one of an array."""
        if isinstance(values, int | float):
            # Objects of the library hold millions of them.
            values = float(values) if abs(values) < 1e300 else math.inf
            at = bisect.bisect(self.sorted, values)
            return [repr(s) for s in self.sorted[max(at - 1, 0) : at + 1] if abs(values - s) <= 1e-9 * abs(s)]
        array = np.asarray(values)
        if array.dtype.kind not in "iuf" or not array.size:
            return []
        array = array.astype(float)
        return [repr(s) for s in self.sorted if np.any(np.abs(array - s) <= 1e-9 * abs(s))]

    def on(self, root, limit=200_000):
        """What hangs on an object: in attributes, closures, caches and whatever else it keeps alive."""
        found, seen, waiting = [], {}, [root]
        while waiting:
            thing = waiting.pop()
            # It stays alive, because the id of what is gone is given to another.
            if id(thing) in seen:
                continue
            seen[id(thing)] = thing
            assert len(seen) < limit, "the walk has left the object"
            if type(thing) in (weakref.ProxyType, weakref.CallableProxyType):
                continue  # It keeps nothing alive, and what it stood for may be gone.
            if isinstance(thing, str | bytes | bytearray):
                found += self.within(thing)
            elif isinstance(thing, int | float | np.number):
                found += [] if isinstance(thing, bool) else self.among(thing)
            elif isinstance(thing, np.ndarray):
                found += self.among(thing)
                waiting += [thing.base, *(thing.ravel().tolist() if thing.dtype.kind in "OUS" else ())]
            elif str(type(thing).__module__).startswith("pyarrow") and hasattr(thing, "to_pylist"):
                # Where Arrow is installed pandas keeps texts in its memory, into which no reference leads.
                waiting += thing.to_pylist()
            elif isinstance(thing, types.FunctionType):
                cells = [cell.cell_contents for cell in thing.__closure__ or () if cell != types.CellType()]
                waiting += [cells, thing.__defaults__, thing.__kwdefaults__, vars(thing)]
            elif isinstance(thing, type | types.ModuleType):
                ours = str(getattr(thing, "__module__", None) or thing.__name__).startswith("pymc_dirdp")
                waiting += vars(thing).values() if ours else ()
            else:
                waiting += gc.get_referents(thing)
        return found


def _texts(number):
    """A number as somebody would print it, if it can still be told from any other."""
    texts = {repr(number), str(np.float64(number)), *(f"{number:.{digits}g}" for digits in range(4, 16))}
    texts |= {f"{number:.{digits}f}" for digits in range(1, 9)} | {f"{number:.{digits}e}" for digits in range(3, 9)}
    texts |= {np.format_float_positional(number), np.format_float_scientific(number)}
    texts |= {f"{number:.0f}", f"{number:,.0f}", f"{number:_.0f}"} if number == int(number) else set()
    return {text for text in texts if len(re.sub(r"e.*|\D", "", text).strip("0")) >= 4}


def secrets_of(counts, plan):
    """All that is secret of a release: by table the counts, sums of rows, posterior parameters and frequencies."""
    numbers, frequencies = [], []
    for part in plan.parts:
        x = np.array(counts[part.table.name], dtype=float)
        rows, n = x.sum(axis=-1, keepdims=True), x.sum()
        parameters = [x, x + part.table.prior]
        if isinstance(part.mechanism, dirdp.mechanisms.DirichletMechanism):
            parameters += [part.mechanism.r * x, part.mechanism.concentration(x)]
        # One row is the number of records, which replace-one makes public.
        parameters += [rows] if rows.size > 1 else []
        if plan.adjacency == "add-remove":
            parameters += [n, getattr(part.mechanism, "r", 1.0) * n]
        numbers += [number for array in parameters for number in np.ravel(array)]
        frequencies += [*np.ravel(x / n), *np.ravel(x / rows)] if rows.size > 1 else [*np.ravel(x / n)]
    public = {part.n_records for part in plan.parts}
    return Secrets([number for number in numbers if number not in public], frequencies)


@contextlib.contextmanager
def overheard():
    """Everything that is said on the way: warnings, log records of all libraries, output and error output."""
    said, records = {}, []
    handler = logging.Handler(logging.NOTSET)
    handler.emit = records.append
    loggers = [logging.root, *(one for one in logging.root.manager.loggerDict.values() if hasattr(one, "setLevel"))]
    levels = [logger.level for logger in loggers]
    out, err = io.StringIO(), io.StringIO()
    try:
        for logger in loggers:
            logger.setLevel(logging.DEBUG)
            logger.addHandler(handler)
        with (
            warnings.catch_warnings(record=True) as warned,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            warnings.simplefilter("always")
            yield said
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
            logger.removeHandler(handler)
    said["stdout"], said["stderr"] = out.getvalue(), err.getvalue()
    said["warnings"] = "\n".join(f"{one.category} {one.message} {one.message.args!r}" for one in warned)
    said["log"] = "\n".join(f"{r.name} {r.getMessage()} {r.msg!r} {r.args!r} {r.exc_text} {vars(r)!r}" for r in records)


def shown(name, thing, *, html=True):
    """An object in all the ways in which it shows itself, and pickled."""
    faces = {f"{name}.repr": repr(thing), f"{name}.str": str(thing)}
    if html and hasattr(thing, "_repr_html_"):
        faces[f"{name}.html"] = thing._repr_html_()
    return faces | {f"{name}.pickle{protocol}": pickle.dumps(thing, protocol=protocol) for protocol in (3, 5)}


def saved(release, folder):
    path = folder / "release.nc"
    release.to_netcdf(path, engine="h5netcdf")
    groups = {node.path: node.to_dataset().to_dict() | dict(node.attrs) for node in release.subtree}
    return {"netcdf": path.read_bytes(), "json": json.dumps(groups, default=str)}


def leaks(secrets, artefacts):
    return {name: found for name, artefact in artefacts.items() if (found := secrets.within(artefact))}


def releases_of_each_kind():
    """Every two of way, adjacency and kind of draws meet in the quick tests; noise is with half of the kinds there."""
    for (i, kind), (j, way), (k, adjacency) in itertools.product(
        enumerate(MODELS), enumerate(WAYS), enumerate(("replace-one", "add-remove"))
    ):
        is_quick = (i + j + k) % 2 == 0 and (WAYS[way][0] is not TINY or (i in (0, 3)) == (way == "gaussian"))
        yield pytest.param(kind, way, adjacency, marks=pytest.mark.thorough if is_quick else pytest.mark.slow)


@pytest.mark.parametrize(("kind", "way", "adjacency"), list(releases_of_each_kind()))
def test_nothing_that_comes_out_of_a_release_holds_a_secret(kind, way, adjacency, tmp_path):
    build, counts = MODELS[kind]
    guarantee, options = WAYS[way]
    options = dict(options)
    options.setdefault("sampler", "fast")
    if adjacency == "add-remove":
        options |= {"adjacency": adjacency, "n_records": PLANNED}
    # Each of the four pairs of a seed and a ledger comes with each adjacency, in either half.
    turn = (list(MODELS).index(kind) + list(WAYS).index(way) + (adjacency == "add-remove")) // 2
    seed = 11 if turn % 2 else None
    ledger = dirdp.Ledger(LOOSE, tmp_path / "ledger.db", adjacency=adjacency) if turn % 4 < 2 else None
    model = build()
    with overheard() as artefacts:
        # Every trial is another person, also behind the parents of the conditional table.
        plan = dirdp.plan(guarantee, model, contribution=1, **options)
        release = dirdp.sample(plan, model, random_seed=seed, ledger=ledger)
        reports = dirdp.report(plan, full=True), dirdp.report(release, full=True)
        synthetic = dirdp.releases.sample_posterior_predictive(release, model, n_records=1000, random_seed=1)
    assert ("SeededReleaseWarning" in artefacts["warnings"]) == (seed is not None)
    secrets = secrets_of(counts, plan)
    things = {"release": release, "plan": plan, "composition": plan.composition, "synthetic": synthetic}
    things |= {f"report {i}": report for i, report in enumerate(reports)}
    for part in plan.parts:
        things |= {f"table {part.table.name}": part.table, f"mechanism {part.table.name}": part.mechanism}
    if ledger is not None:
        things |= {"ledger": ledger} | {f"entry {entry.number}": entry for entry in ledger.entries()}
        artefacts["ledger file"] = (tmp_path / "ledger.db").read_bytes()
        artefacts["ledger balance"] = f"{ledger.spent} {ledger.left} {ledger.composition_rule}"
    # A picture of what is inferred takes seconds, and its form depends on the kind alone.
    for name, thing in things.items():
        artefacts |= shown(name, thing, html=kind == "one table" or thing is not release)
    artefacts |= saved(release, tmp_path)
    dirdp.save(plan, tmp_path / "plan.json")
    artefacts["plan file"] = (tmp_path / "plan.json").read_text(encoding="utf-8")
    assert max(map(len, artefacts.values())) < min(CELLS), "an offset in a file could look like a count"
    assert leaks(secrets, artefacts) == {}
    assert {name: found for name, thing in things.items() if (found := secrets.on(thing))} == {}
    with xr.open_datatree(tmp_path / "release.nc", engine="h5netcdf") as back:
        assert secrets.on(back.load()) == []


@pytest.mark.thorough
def test_the_library_itself_keeps_nothing():
    # Its own numbers, because the library may remember a number of records that was public elsewhere.
    cells = tuple(count + 1000003 for count in CELLS)
    model, found = one_table(cells), []
    for options in ({}, {"mechanism": "geometric"}, {"sampler": "exact", "mechanism": Dirichlet(strategy="temper")}):
        options = {"sampler": "fast"} | options
        plan = dirdp.plan(TIGHT, model, adjacency="add-remove", n_records=PLANNED, **options)
        dirdp.sample(plan, model)
        found.append(secrets_of({"p": cells}, plan))
    every = Secrets(np.concatenate([secrets.numbers for secrets in found]))
    modules = [module for name, module in sys.modules.items() if name.split(".")[0] == "pymc_dirdp"]
    # Caches have grown, if other tests ran before this one.
    assert every.on(modules, limit=5_000_000) == []


# What was observed is wrong, and the message must not say how: no value, no position, no size.
UNSEEN = 993311557
LARGE = 2**60 + 2**20
SURNAME = "Featherstonehaugh"
BAD = {
    "negative": ([-CELLS[0], *CELLS[1:]], None),
    "sum": (CELLS, sum(CELLS) + 7),
    "fraction": ([CELLS[0] + 0.5, *CELLS[1:]], None),
    "missing": ([float("nan"), *CELLS[1:]], sum(CELLS)),
    "infinite": ([float("inf"), *CELLS[1:]], sum(CELLS)),
    "large": ([float(LARGE), *CELLS[1:]], float(LARGE)),
}
ALL = [*CELLS, sum(CELLS), sum(CELLS) + 7, CELLS[0] + 0.5, sum(CELLS) + 0.5, LARGE, UNSEEN, *np.ravel(CODES)]
ALL += [*RATES[0], *RATES[1], sum(RATES[1]), *map(sum, CODES), sum(map(sum, CODES)), -CELLS[0]]


class Awkward:
    def __hash__(self):
        raise TypeError(f"{UNSEEN} has no hash")

    def __repr__(self):
        return str(UNSEEN)


class Talking(dict):
    def __missing__(self, name):
        raise KeyError(name, *self.values())


def _sampled(observe, **options):
    with pm.Model():
        observe()
        dirdp.sample(LOOSE, **options)


def _cells(cells, n):
    # As doubles: PyMC would cut an array to integers.
    total = float(np.nansum(cells)) if n is None else n
    observed = pm.Data("x", np.ones(4))
    observed.set_value(np.array(cells, dtype=float))
    pm.Multinomial("students", n=pm.Data("n", np.array(total)), p=pm.Dirichlet("p", np.ones(4)), observed=observed)


def _codes(parents, codes):
    theta = pm.Dirichlet("theta", a=np.ones((2, 3)))
    pm.Categorical("c", p=theta[np.array(parents)], observed=np.array(codes))


def _more_than_trials():
    pm.Binomial("admitted", n=RATES[0], p=pm.Beta("rate", 1, 1, shape=3), observed=RATES[1])


def _in_ledger(folder, releases, file=None):
    if file:
        (folder / "ledger.db").write_bytes(file)
    ledger = dirdp.Ledger(LOOSE, folder / "ledger.db")
    for _ in range(releases):
        dirdp.sample(LOOSE, one_table(), ledger=ledger)


READERS = {
    **dict.fromkeys(
        ("count", "choose_bins", "choose_structure", "bayesian_network", "latent_class", "log_likelihood"), "records"
    ),
    **dict.fromkeys(("naive_bayes", "Classifier.sample", "predict_log_proba", "Classifier.predict_log_proba"), "X"),
}


def _spoilt(verb, value):
    arguments = CALLS[verb]()
    columns = {name: [value, *column[1:]] for name, column in arguments[READERS[verb]].items()}
    called(verb, arguments | {READERS[verb]: columns})


BINS = CALLS["choose_bins"]() | {"adjacency": "add-remove"}
PRIVATE = {"adjacency": "add-remove", "n_records": PLANNED}
MISTAKES = {
    f"observed {what}": lambda folder, bad=bad: _sampled(lambda: _cells(*bad), **PRIVATE) for what, bad in BAD.items()
} | {
    "codes": lambda folder: _sampled(lambda: _codes([0, 1], [0, UNSEEN])),
    "negative code": lambda folder: _sampled(lambda: _codes([0, 1], [0, -CELLS[0]])),
    "parents": lambda folder: _sampled(lambda: _codes([0, UNSEEN], [0, 1])),
    "above trials": lambda folder: _sampled(_more_than_trials),
    "edited": lambda folder: dirdp.sample(dirdp.plan(LOOSE, one_table()), one_table((CELLS[0] + 7, *CELLS[1:]))),
    "broken min_count": lambda folder: planned_sample(LOOSE, one_table(), min_count=min(CELLS) + 1, sampler="fast"),
    "broken min_count, exact": lambda folder: planned_sample(LOOSE, one_table(), min_count=min(CELLS) + 1),
    "over budget": lambda folder: _in_ledger(folder, 2),
    "no ledger": lambda folder: _in_ledger(folder, 1, b"no ledger"),
    "count table": lambda folder: _spoilt("count", np.full((2, 2), UNSEEN)),
    "count missing column": lambda folder: dirdp.count(Talking(a=[UNSEEN]), ["b"], categories={"b": ["u"]}),
    "bins of nobody": lambda folder: called(
        "choose_bins", BINS | {"records": {"age": [UNSEEN], "who": [None]}, "unit": "who", "contribution": 2}
    ),
    "bins from the data": lambda folder: called("choose_bins", BINS | {"candidates": [UNSEEN, UNSEEN]}),
    "counts for a guarantee": lambda folder: dirdp.sample(CELLS, one_table()),
    "counts for counts' prior": lambda folder: dirdp.calibrate(LOOSE, prior=[-CELLS[0], *CELLS[1:]], n_records=PLANNED),
}
# What a record may hold that nobody declared, for each verb that reads records.
SPOILS = {
    "number": UNSEEN,
    "name": SURNAME,
    "without hash": Awkward(),
    "ragged": [UNSEEN, UNSEEN],
    "too large": 10**400,
    "missing": None,
}
MISTAKES |= {
    f"{verb} {what}": lambda folder, verb=verb, value=value: _spoilt(verb, value)
    for verb in READERS
    for what, value in SPOILS.items()
    if (verb, what) != ("choose_bins", "number")
}
# NumPy's own error, which repeats the value, was once the context of ours, and large ones had no error.
WRONG_COUNTS = {what: cells for what, (cells, _) in BAD.items() if what != "sum"} | {
    "shape": CELLS[:3],
    "text": [str(UNSEEN), "x", "y", "z"],
    "objects": [Awkward()] * 4,
    "endless": [*CELLS[:3], 10**400],
    "dict": {str(UNSEEN): 1},
    "ragged": [[1], [2, SURNAME]],
}
DRAWS = dirdp.mechanisms.DirichletMechanism([1, 1, 1, 1], 0.1)
SIMPLEX = dirdp.papers.SimplexMechanism(24, dirdp.papers.SimplexDomain(4, eta=0.05, etabar=0.05, b=0.4))
USES = {
    "dirichlet.sample": DRAWS.sample,
    "dirichlet.concentration": DRAWS.concentration,
    "gaussian.sample": dirdp.mechanisms.DiscreteGaussianMechanism([1, 1, 1, 1], 3.0).sample,
    "gaussian.release": dirdp.mechanisms.DiscreteGaussianMechanism([1, 1, 1, 1], 3.0).release,
    "geometric.release": dirdp.mechanisms.GeometricMechanism([1, 1, 1, 1], 3.0).release,
    "simplex.sample": lambda counts: SIMPLEX.sample(counts, protected=[0, 1]),
}
MISTAKES |= {
    f"{use} {what}": lambda folder, use=use, counts=counts: USES[use](counts)
    for use in USES
    for what, counts in WRONG_COUNTS.items()
}


def written(error):
    chain, texts = [error], {}
    for i, one in enumerate(chain):
        texts[i] = f"{one} {one!r} {one.args!r} {getattr(one, '__notes__', [])!r} {vars(one)!r}"
        chain += [other for other in (one.__cause__, one.__context__) if other is not None and other not in chain]
    return texts | {"traceback": "".join(traceback.format_exception(error)), "pickle": pickle.dumps(error)}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_no_error_says_what_the_data_are(mistake, tmp_path):
    secrets = Secrets(ALL)
    with overheard() as artefacts, pytest.raises((dirdp.DirdpError, TypeError)) as caught:
        MISTAKES[mistake](tmp_path)
    artefacts |= written(caught.value)
    assert leaks(secrets, artefacts) == {}
    if mistake.partition(" ")[0] in USES:
        assert caught.value.__context__ is None
        assert caught.value.__cause__ is None
    assert SURNAME not in "".join(text for text in artefacts.values() if isinstance(text, str))
    if (tmp_path / "ledger.db").exists():
        assert leaks(secrets, {"ledger file": (tmp_path / "ledger.db").read_bytes()}) == {}


# From here on the search itself: whatever it is meant to find is planted, and has to be found.
PARAMETER = 0.0371 * CELLS[0] + 3.25
FREQUENCY = CELLS[0] / sum(CELLS)
KNOWN = Secrets([*CELLS, PARAMETER], [FREQUENCY])


def test_the_search_finds_a_number_in_a_text_and_in_bytes_and_passes_others():
    cell, array = CELLS[1], np.array(CELLS)
    for text in (
        *(f"x={cell}", f"{cell:,}", f"{float(cell)}", f"{cell:.4g}", f"{cell:.6f}", json.dumps({"n": CELLS})),
        *(str(array), repr(array.astype(float)), f"{PARAMETER!r}", f"{PARAMETER:.4g}", f"{PARAMETER:.6f}"),
        *(f"{np.array([PARAMETER])}", f"{FREQUENCY:.6f}"),
    ):
        assert KNOWN.within(text), text
        assert KNOWN.within(b"\x00\xff" + text.encode()), text
    for order, kind in itertools.product("<>", ("i4", "u4", "i8", "u8", "f4", "f8")):
        for numbers in (CELLS, [PARAMETER]) if kind[0] == "f" else (CELLS,):
            assert KNOWN.within(b"abc" + np.array(numbers, dtype=order + kind).tobytes())
    for protocol, number in itertools.product(range(pickle.HIGHEST_PROTOCOL + 1), (CELLS[0], PARAMETER)):
        assert KNOWN.within(pickle.dumps(number, protocol))
    others = f"{CELLS[0] + 1} 1{CELLS[0]} 0.{CELLS[0]} {CELLS[0]}1 {PARAMETER + 1e4!r} {FREQUENCY + 1e-6:.6f}"
    assert KNOWN.within(others) == KNOWN.within(np.array(CELLS, dtype="<i4").tobytes()[1:3]) == []
    for passed in (CELLS[0] + 1, CELLS[0] + 1.0, PARAMETER * (1 + 1e-6), np.nan, 10**400, [CELLS[0] + 1.0, np.nan]):
        assert KNOWN.among(passed) == []
    assert KNOWN.among(CELLS[0])
    assert KNOWN.among([PARAMETER])


@pytest.mark.parametrize("value", [CELLS, np.array([PARAMETER, 1.0]), [FREQUENCY]])
def test_the_search_finds_what_hangs_on_an_object(value):
    class Slotted:
        __slots__ = ("slot",)

    slotted, plan = Slotted(), dirdp.plan(LOOSE, one_table())
    slotted.slot = {"deep": [(value,)]}
    assert KNOWN.on(plan) == KNOWN.on(Slotted) == []
    # As a cached property would.
    vars(plan)["_cached"] = value
    # A view of a part keeps the whole alive.
    view = np.array([2.0, *np.ravel(value)])[:1]
    for holder in (
        plan,
        lambda: value,
        slotted,
        types.SimpleNamespace(f=lambda: value),
        np.array([value], object),
        view,
    ):
        assert KNOWN.on(holder)


@functools.cache
def clean():
    return dirdp.sample(TIGHT, one_table(), adjacency="add-remove", n_records=PLANNED)


PLANTS = {
    None: lambda release: None,
    "attribute": lambda release: release["utility"].attrs.update(n=CELLS[0]),
    "variable": lambda release: release["mechanism/p"].update({"slot": xr.DataArray(CELLS, dims="hair")}),
    "coordinate": lambda release: release["mechanism/p"].coords.update({"hair": list(map(str, CELLS))}),
    "group": lambda release: release.update(
        {"extra": xr.DataTree(xr.Dataset({"slot": ("cell", list(map(str, CELLS)))}))}
    ),
}


@pytest.mark.parametrize("where", PLANTS)
def test_the_search_finds_a_number_in_a_release(where, tmp_path):
    release = clean().copy(deep=True)
    PLANTS[where](release)
    found = leaks(KNOWN, shown("release", release) | saved(release, tmp_path))
    # Only the names of groups at depth are cut short there.
    cut = {"release.repr", "release.html"} if where != "attribute" else set()
    every = {"release.repr", "release.html", "release.pickle3", "release.pickle5", "netcdf", "json"}
    assert every - set(found) <= cut if where else found == {}
    with xr.open_datatree(tmp_path / "release.nc", engine="h5netcdf") as back:
        assert bool(KNOWN.on(release)) == bool(KNOWN.on(back.load())) == (where is not None)


def test_the_search_finds_what_is_said_on_the_way_and_in_a_ledger(tmp_path):
    with overheard() as said:
        warnings.warn(f"{CELLS[0]} records", UserWarning, stacklevel=1)
        logging.getLogger("pymc").debug("row %s", CELLS[1])
        logging.getLogger("pytensor.tests").debug("hidden", extra={"rows": CELLS})
        print(CELLS[2])
        print(CELLS[3], file=sys.stderr)
    assert set(leaks(KNOWN, said)) == {"warnings", "log", "stdout", "stderr"}
    assert {str(count) for count in CELLS} <= set(leaks(KNOWN, said)["log"]) | {str(CELLS[0])}
    ledger = dirdp.Ledger(LOOSE, tmp_path / "ledger.db")
    ledger.spend(LOOSE, what=f"{CELLS[0]} people")
    found = leaks(KNOWN, shown("ledger", ledger) | {"file": (tmp_path / "ledger.db").read_bytes()})
    assert {"ledger.str", "ledger.html", "file"} == set(found)
    assert KNOWN.on(ledger.entries())


@pytest.mark.parametrize("how", ["message", "note", "counts", "__cause__", "__context__"])
def test_the_search_finds_what_an_error_says(how):
    error = dirdp.errors.DataError(f"Found {CELLS[0]}." if how == "message" else "Wrong.")
    assert bool(leaks(KNOWN, written(error))) == (how == "message")
    if how == "note":
        error.add_note(f"row {CELLS[0]}")
    elif how != "message":
        setattr(error, how, ValueError(CELLS[0]) if "__" in how else CELLS)
    # Hidden from the traceback, and still attached.
    error.__suppress_context__ = True
    assert leaks(KNOWN, written(error))


def test_every_kind_of_secret_is_searched_for():
    """Parameters of both posteriors, and a number of records that is public under one relation only."""
    counts, n_records = np.array(CODES), int(np.sum(CODES))
    for adjacency, size in (("replace-one", {}), ("add-remove", {"n_records": PLANNED})):
        plan = dirdp.plan(TIGHT, conditional(), contribution=1, adjacency=adjacency, **size)
        secrets = secrets_of({"theta": CODES}, plan)
        (part,) = plan.parts
        for found in (counts, counts + part.table.prior, part.mechanism.concentration(counts)):
            assert all(secrets.among(number) for number in found.ravel())
        assert bool(secrets.among(n_records)) == (adjacency == "add-remove")
        # As `utility` would hold it, if it were made of the data.
        stored = LoadedRelease(plan)
        assert secrets.on([stored.errors, privacy_group(plan, 1.0), mechanism_group(part, stored)]) == []
        errors = {name: dataclasses.replace(error, n_records=n_records) for name, error in stored.errors.items()}
        assert bool(secrets.on(errors)) == (adjacency == "add-remove")
