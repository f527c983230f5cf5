"""How long others take for the same work.

`uv run --with diffprivlib --with 'scikit-learn<1.6' benchmarks/side_by_side.py` writes `side_by_side.csv` beside
it, which the documentation shows. Both sides of a row do the same work in one process, in turn; the ratios are the
medians, over the rounds, of our time over theirs, by the clock and by the processor time of all threads, and a number
below 1 means that this library is quicker. Memory is the larger of two peaks above what was held before: what Python
and NumPy allocate, which may come from memory that the process held already, and what the process holds, which other
libraries take for themselves. No test asserts any of the numbers. `load` is as in `cost.py`.
"""

import csv
import os
import platform
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import arviz as az
import duckdb
import numpy as np
import opendp.prelude as opendp
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pymc as pm
from cost import commit
from dp_accounting.pld import privacy_loss_distribution as pld

import pymc_dirdp as dirdp
from pymc_dirdp.privacy.composition import Composition

TABLE = Path(__file__).with_suffix(".csv")
COLUMNS = ("work", "beside", "their_version", "ratio", "cpu_ratio", "our_seconds", "our_mb", "their_mb", "found")
HAIR = np.array([108, 286, 71, 127])
DRAWS = 4000
_RNG = np.random.default_rng(1)


@dataclass(frozen=True)
class Pair:
    """One kind of work by two libraries.

    Attributes
    ----------
    work, beside : str
        What is done, and the distribution whose way it is compared with.
    ours, theirs : callable
    rounds : int
    found : callable
        What both found, in words, from both results.
    weight : callable
        By what the other time is multiplied, from its result: draws that depend on each other are worth less.
    """

    work: str
    beside: str
    ours: Callable[[], object]
    theirs: Callable[[], object]
    rounds: int
    found: Callable[[object, object], str] = lambda ours, theirs: ""
    weight: Callable[[object], float] = lambda theirs: 1.0


def draws_of_posteriors() -> Iterator[Pair]:
    with pm.Model():
        p = pm.Dirichlet("p", a=np.ones(4))
        pm.Multinomial("x", n=int(HAIR.sum()), p=p, observed=HAIR)
        release = dirdp.sample(dirdp.PureDP(epsilon=1.0), mechanism="geometric")

    def ours() -> object:
        return dirdp.analyse(release, DRAWS, chains=1, progressbar=False)

    def nuts() -> object:
        private = dirdp.releases.analyst_model(release)
        return pm.sample(1000, chains=2, cores=1, model=private, progressbar=False, random_seed=1)

    def weight(drawn: object) -> float:
        return DRAWS / float(az.ess(drawn, var_names=["p"])["p"].min())

    def found(ours: object, theirs: object) -> str:
        first, second = (float(tree["posterior"]["p"].mean(("chain", "draw"))[1]) for tree in (ours, theirs))
        return f"mean of the largest share {first:.4f} and {second:.4f}"

    work = f"{DRAWS} effective draws of the shares of 4 categories given a geometric release"
    yield Pair(work, "pymc", ours, nuts, 2, found, weight)


def draws_of_gammas() -> Iterator[Pair]:
    counts = _RNG.integers(0, 50, 10**6)
    for alpha in (1.0, 0.05):
        mechanism, shapes = dirdp.mechanisms.DirichletMechanism(np.full(10**6, alpha), 0.3), 0.3 * counts + alpha
        yield Pair(
            f"fast draw of 1,000,000 cells, prior {alpha:g}, beside a fill with gamma variables",
            "numpy",
            lambda mechanism=mechanism: mechanism.sample(counts, sampler="fast"),
            lambda shapes=shapes: _RNG.standard_gamma(shapes),
            25,
        )


def noise() -> Iterator[Pair]:
    opendp.enable_features("contrib")
    counts, prior = _RNG.integers(0, 500, 1000), np.ones(1000)
    domain = opendp.vector_domain(opendp.atom_domain(T=int))
    geometric = dirdp.mechanisms.GeometricMechanism(prior, 2.0)
    laplace = opendp.m.make_geometric(domain, opendp.l1_distance(T=int), scale=2.0)
    gaussian = dirdp.mechanisms.DiscreteGaussianMechanism(prior, 10.0)
    theirs = opendp.m.make_gaussian(domain, opendp.l2_distance(T=int), scale=10.0)
    for name, mine, other in (("geometric", geometric, laplace), ("discrete Gaussian", gaussian, theirs)):
        yield Pair(
            f"exact {name} noise on 1000 cells",
            "opendp",
            lambda mine=mine: mine.release(counts),
            lambda other=other: np.array(other(counts.tolist())),
            15,
        )


def histograms() -> Iterator[Pair]:
    import diffprivlib  # for this row alone, and no dependency of the project

    records = {"x": _RNG.integers(0, 100, 10**6)}

    def ours() -> object:
        counts = dirdp.count(records, ["x"], categories={"x": range(100)})
        return dirdp.mechanisms.GeometricMechanism(np.ones(100), 1.0, adjacency="add-remove").release(counts)

    def theirs() -> object:
        found, _ = diffprivlib.tools.histogram(records["x"], epsilon=1.0, bins=100, range=(-0.5, 99.5))
        return found

    yield Pair("noisy histogram of 1,000,000 records in 100 cells", "diffprivlib", ours, theirs, 9)


def compositions() -> Iterator[Pair]:
    def mechanism(sd: float) -> dirdp.mechanisms.DiscreteGaussianMechanism:
        return dirdp.mechanisms.DiscreteGaussianMechanism(np.ones(4), sd, adjacency="add-remove")

    def found(ours: object, theirs: object) -> str:
        return f"epsilon {ours:.5f} and {theirs:.5f}"

    def equal() -> object:
        return pld.from_gaussian_mechanism(20.0).self_compose(100).get_epsilon_for_delta(1e-6)

    def one_by_one(sds: list[float]) -> object:
        together = pld.from_gaussian_mechanism(sds[0])
        for sd in sds[1:]:
            together = together.compose(pld.from_gaussian_mechanism(sd))
        return together.get_epsilon_for_delta(1e-6)

    ours = lambda: Composition(((mechanism(20.0), 100),)).epsilon(1e-6)  # noqa: E731
    yield Pair("epsilon of 100 equal Gaussian releases", "dp-accounting", ours, equal, 5, found)
    for n in (30, 300):
        sds = (np.geomspace(10.0, 40.0, n) * np.sqrt(n / 30)).tolist()
        yield Pair(
            f"epsilon of {n} different Gaussian releases",
            "dp-accounting",
            lambda sds=sds: Composition(tuple((mechanism(sd), 1) for sd in sds)).epsilon(1e-6),
            lambda sds=sds: one_by_one(sds),
            3,
            found,
        )


def counts(folder: str) -> Iterator[Pair]:
    path, n = Path(folder) / "records.parquet", 5 * 10**6
    columns = {name: _RNG.integers(0, size, n) for name, size in (("a", 20), ("b", 5), ("c", 3))}
    pq.write_table(pa.table(columns), path)
    categories = {"a": range(20), "b": range(5), "c": range(3)}

    def ours(records: object) -> object:
        return dirdp.count(records, list("abc"), categories=categories)

    def in_duckdb() -> object:
        with duckdb.connect() as connection:
            found = connection.execute(f"SELECT a, b, c, count(*) FROM '{path}' GROUP BY ALL")
            return found.fetchall()

    def in_polars() -> object:
        return pl.scan_parquet(path).group_by("a", "b", "c").len().collect()

    work = "table of 5,000,000 records of a Parquet file in 300 cells"
    yield Pair(work, "duckdb", lambda: ours(str(path)), in_duckdb, 7)
    yield Pair(work, "polars", lambda: ours(pl.scan_parquet(path)), in_polars, 7)


def peak(call: Callable[[], object]) -> float:
    """Megabytes at the peak above what was held before, of Python's and NumPy's memory or of the process."""
    tracemalloc.start()
    call()
    allocated = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:  # Only Linux says what a process holds.
        return allocated
    before = _status("VmRSS")
    call()
    return max(_status("VmHWM") - before, allocated)


def _status(name: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{name}:"))


def row(pair: Pair) -> tuple[str, ...]:
    ours, theirs = pair.ours(), pair.theirs()  # What is compiled or cached once belongs to nobody.
    clocks = time.perf_counter, time.process_time
    times = np.empty((pair.rounds, 2, len(clocks)))
    for i in range(pair.rounds):
        for j, call in enumerate((pair.ours, pair.theirs)):
            start = [clock() for clock in clocks]
            call()
            times[i, j] = [clock() - begun for clock, begun in zip(clocks, start, strict=True)]
    ratios = np.median(times[:, 0] / times[:, 1], axis=0) / pair.weight(theirs)
    memory = [peak(call) for call in (pair.ours, pair.theirs)]
    seconds = float(np.median(times[:, 0, 0]))
    numbers = (*(f"{ratio:.3g}" for ratio in ratios), f"{seconds:.2g}", *(f"{mb:.1f}" for mb in memory))
    return pair.work, pair.beside, version(pair.beside), *numbers, pair.found(ours, theirs)


def main() -> None:
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    where = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "version": version("pymc-dirdp"),
        "commit": commit(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": f"{load:.1f}",
    }
    with TemporaryDirectory() as folder, TABLE.open("w", newline="", encoding="utf-8") as file:
        warnings.simplefilter("ignore")
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow((*where, *COLUMNS))
        kinds = (draws_of_gammas(), noise(), histograms(), compositions(), counts(folder), draws_of_posteriors())
        for pair in (pair for kind in kinds for pair in kind):
            line = row(pair)
            writer.writerow((*where.values(), *line))
            file.flush()
            print(*line, sep="  ", flush=True)


if __name__ == "__main__":
    main()
