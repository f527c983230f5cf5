"""How times grow: `uv run -m benchmarks.growth` appends a row for each kind of work to `growth.csv` beside it.

Each number is the processor time of work of ten times the size over that of the size, both the least of several times,
taken in turn. 10 is work that grows as its size does; 12 is the goal, and 100 is what a loop over pairs takes. No test
asserts any of them. `load` is as in `cost.py`.
"""

import csv
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pymc as pm

import pymc_dirdp as dirdp
from benchmarks.cost import commit, ratio
from pymc_dirdp.privacy.composition import Composition
from tests.planned import planned_sample

TABLE = Path(__file__).with_suffix(".csv")
COLUMNS = ("date", "version", "commit", "python", "load", "work", "size", "ratio")
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
LOOSE = dirdp.ApproxDP(epsilon=1e3, delta=1e-6)
_RNG = np.random.default_rng(1)


def rows(n: int) -> Callable[[], object]:
    records = {"a": _RNG.integers(0, 20, n), "b": _RNG.choice(["x", "y", "z"], n)}
    categories = {"a": range(20), "b": ["x", "y", "z"]}
    return lambda: dirdp.count(records, ["a", "b"], categories=categories)


def cells_calibrated(n: int) -> Callable[[], object]:
    prior = np.ones(n)
    return lambda: dirdp.calibrate(TARGET, prior=prior, n_records=10**6)


def cells_drawn(n: int) -> Callable[[], object]:
    mechanism, counts = dirdp.mechanisms.DirichletMechanism(np.ones(n), 0.3), _RNG.integers(0, 50, n)
    return lambda: mechanism.sample(counts, sampler="fast")


def model_of(n: int) -> pm.Model:
    with pm.Model() as model:
        for i in range(n):
            p = pm.Dirichlet(f"p{i}", a=np.ones(4))
            pm.Multinomial(f"x{i}", n=100, p=p, observed=_RNG.multinomial(100, [0.25] * 4))
    return model


def tables_planned(n: int) -> Callable[[], object]:
    model = model_of(n)
    return lambda: dirdp.plan(LOOSE, model)


def tables_released(n: int) -> Callable[[], object]:
    model = model_of(n)
    plan = dirdp.plan(LOOSE, model)
    return lambda: dirdp.sample(plan, model, progressbar=False)


def tables_saved(n: int) -> Callable[[], object]:
    release = dirdp.sample(LOOSE, model_of(n), progressbar=False)

    def save() -> None:
        with TemporaryDirectory() as folder:
            dirdp.save(release, Path(folder) / "release.json")

    return save


def _of_a_file(use: Callable[[Path], object]) -> Callable[[int], Callable[[], object]]:
    """What is done with a file of so many tables."""

    def make(n: int) -> Callable[[], object]:
        release = dirdp.sample(LOOSE, model_of(n), progressbar=False)

        def done() -> None:
            use(path)

        folder = TemporaryDirectory()
        _FOLDERS.append(folder)
        path = Path(folder.name) / "release.json"
        dirdp.save(release, path)
        return done

    return make


_FOLDERS: list[TemporaryDirectory[str]] = []
tables_opened = _of_a_file(dirdp.load)
tables_verified = _of_a_file(lambda path: dirdp.verify(dirdp.load(path)))
tables_reported = _of_a_file(lambda path: str(dirdp.report(dirdp.load(path))))
tables_analysed = _of_a_file(lambda path: dirdp.analyse(dirdp.load(path), 100, chains=1, progressbar=False))


def parts(n: int) -> Callable[[], object]:
    different = [dirdp.mechanisms.DirichletMechanism(np.ones(3), r) for r in np.geomspace(1e-4, 1e-2, n).tolist()]
    return lambda: Composition(tuple((part, 1) for part in different)).epsilon(1e-6)


def entries(n: int) -> Callable[[], object]:
    def spend() -> None:
        ledger = dirdp.Ledger(dirdp.ApproxDP(epsilon=1e6, delta=0.1))
        for _ in range(n):
            ledger.spend(dirdp.ApproxDP(epsilon=0.01, delta=1e-9), what="a release")

    return spend


def draws(n: int) -> Callable[[], object]:
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.ones(4))
        pm.Multinomial("x", n=592, p=p, observed=[108, 286, 71, 127])
    release = dirdp.sample(TARGET, model, mechanism="geometric", progressbar=False)
    return lambda: dirdp.analyse(release, draws=n, chains=1, progressbar=False)


def records_predicted(n: int) -> Callable[[], object]:
    names, declared = ("class", "legs", "tail"), {"class": ["cat", "hen", "owl"], "legs": [2, 4], "tail": ["yes", "no"]}

    def records(size: int) -> pd.DataFrame:
        return pd.DataFrame({name: _RNG.choice(declared[name], size) for name in names})

    known, asked = records(1000), records(n).drop(columns="class")
    model = dirdp.naive_bayes(known.drop(columns="class"), known["class"], categories=declared)
    release = planned_sample(TARGET, model, mechanism="geometric", released_draws=10, progressbar=False)
    return lambda: dirdp.predict_log_proba(release, asked, draws="released")


def tables_predicted(n: int) -> Callable[[], object]:
    """A record of so many features."""
    names = [f"x{i}" for i in range(n)]
    declared = {name: ["no", "yes"] for name in ("class", *names)}
    known = pd.DataFrame({name: _RNG.choice(["no", "yes"], 100) for name in declared})
    model = dirdp.naive_bayes(known[names], known["class"], categories=declared)
    release = dirdp.sample(LOOSE, model, progressbar=False)
    return lambda: dirdp.predict_log_proba(release, known[names], draws="released")


# The smaller size of each kind of work, and how often both are done.
WORK: tuple[tuple[str, Callable[[int], Callable[[], object]], int, int], ...] = (
    ("count rows", rows, 10**5, 5),
    ("calibrate cells", cells_calibrated, 10**5, 5),
    ("draw cells", cells_drawn, 10**5, 5),
    ("plan tables", tables_planned, 50, 3),
    ("release tables", tables_released, 50, 3),
    ("save tables", tables_saved, 50, 3),
    ("open a file of tables", tables_opened, 50, 3),
    ("open and verify tables", tables_verified, 50, 3),
    ("open and report tables", tables_reported, 50, 1),
    ("open and analyse tables", tables_analysed, 50, 1),
    ("compose different parts", parts, 100, 3),
    ("record entries", entries, 1000, 3),
    ("draw given a release", draws, 4000, 5),
    ("predict records", records_predicted, 10**4, 5),
    ("predict from tables", tables_predicted, 50, 3),
)


def measurements() -> Iterator[tuple[str, int, float]]:
    """The name of each kind of work, its smaller size, and the ratio."""
    for name, make, size, repeats in WORK:
        if sys.argv[1:] and not name.startswith(tuple(sys.argv[1:])):
            continue
        small, large = make(size), make(10 * size)
        small()  # What is compiled or cached once belongs to nobody.
        yield name, size, ratio(large, small, repeats, time.process_time)


def main() -> None:
    """All kinds of work, or those whose names begin as the arguments do."""
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    where = (f"{datetime.now(UTC):%Y-%m-%d}", version("pymc-dirdp"), commit(), platform.python_version(), f"{load:.1f}")
    with TABLE.open("a", newline="", encoding="utf-8") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore", dirdp.errors.RepeatedReleaseWarning)
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(COLUMNS)
        for name, size, value in measurements():
            writer.writerow((*where, name, size, f"{value:.3g}"))
            file.flush()
            print(f"{name:<30}{size:>8} to {10 * size:<8}{value:8.3g}", flush=True)


if __name__ == "__main__":
    main()
