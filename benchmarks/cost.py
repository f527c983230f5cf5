"""What the library costs: `uv run benchmarks/cost.py` appends a row for each benchmark to `cost.csv` beside it.

Each number is a ratio to a reference computation of the same run, because seconds of different machines say nothing.
Both are the least of several processor times, or of times on the clock for imports, taken in turn. No test asserts any
of them. `load` is how many processes wanted a core just before, for each core: above 0.5 the machine was busy, and the
ratios are no more than a hint.
"""

import csv
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pymc as pm

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet

TABLE = Path(__file__).with_suffix(".csv")
COLUMNS = ("date", "version", "commit", "python", "load", "benchmark", "reference", "ratio")
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def ratio(
    measured: Callable[[], object],
    reference: Callable[[], object],
    repeats: int,
    clock: Callable[[], float] = time.process_time,
) -> float:
    """The least time of one call over the least time of the other; a busy machine slows both."""
    least = [float("inf"), float("inf")]
    for _ in range(repeats):
        for i, call in enumerate((measured, reference)):
            start = clock()
            call()
            least[i] = min(least[i], clock() - start)
    return least[0] / least[1]


def importing(code: str) -> Callable[[], object]:
    return lambda: subprocess.run([sys.executable, "-c", code], check=True)


def measurements() -> Iterator[tuple[str, str, float]]:
    """The name of each benchmark, its reference, and the ratio."""
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 50, 10**6)
    shapes = 0.3 * counts + 1.0
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.ones(4))
        pm.Multinomial("x", n=592, p=p, observed=[108, 286, 71, 127])

    def gammas() -> object:
        return rng.standard_gamma(shapes)

    fill = "fill of 1e6 gamma variables"
    yield "sample, 4 categories", fill, ratio(lambda: dirdp.sample(TARGET, model), gammas, 15)
    renyi = dirdp.RenyiDP(order=8, epsilon=0.5)
    for strategy, target in (("temper", TARGET), ("inflate", TARGET), ("algorithm-1", renyi)):
        cost = ratio(
            lambda strategy=strategy, target=target: dirdp.calibrate(
                target, prior=np.ones(4), mechanism=Dirichlet(strategy=strategy)
            ),
            gammas,
            15,
        )
        yield f"calibrate, {strategy}", fill, cost
    for d, n in ((4, 592), (50, 10_000), (1000, 50_000)):
        with pm.Model() as model:
            p = pm.Dirichlet("p", a=np.ones(d))
            pm.Multinomial("x", n=n, p=p, observed=rng.multinomial(n, np.ones(d) / d))
        release = dirdp.sample(TARGET, model, mechanism="geometric")
        for name, verb in (("analyse", dirdp.analyse), ("estimate", dirdp.estimate)):
            cost = ratio(lambda verb=verb, release=release: verb(release, progressbar=False), gammas, 5)
            yield f"{name}, geometric, {d:,} cells", fill, cost
    mechanism = dirdp.mechanisms.DirichletMechanism(np.ones(10**6), 0.3)
    yield "draw of 1e6 cells", fill, ratio(lambda: mechanism.sample(counts, sampler="fast"), gammas, 15)
    alone = importing("import pymc")
    yield "import of both", "import of pymc", ratio(importing("import pymc, pymc_dirdp"), alone, 5, time.perf_counter)
    verbs = importing("import pymc, pymc_dirdp; pymc_dirdp.sample")
    yield "import with the model verbs", "import of pymc", ratio(verbs, alone, 5, time.perf_counter)


def commit() -> str:
    """The short name of the commit, marked where files differ from it."""
    answer = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--exclude=*"],
        check=True,
        capture_output=True,
        text=True,
        cwd=TABLE.parent,
    )
    return answer.stdout.strip()


def main() -> None:
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    date = f"{datetime.now(UTC):%Y-%m-%d}"
    where = (date, version("pymc-dirdp"), commit(), platform.python_version(), f"{load:.1f}")
    with TABLE.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(COLUMNS)
        for benchmark, reference, value in measurements():
            writer.writerow((*where, benchmark, reference, f"{value:.3g}"))
            file.flush()
            print(f"{benchmark:<34}{value:10.3g}  of a {reference}", flush=True)


if __name__ == "__main__":
    main()
