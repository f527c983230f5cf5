"""What second ways of sums over counts are for: `uv run -m tests.benchmarks.second_ways` appends to `second_ways.csv`.

Each ratio is the processor time of some work without a second way over that with it, both the least of three, taken in
turn. A second way has to be worth a factor of ten somewhere. No test asserts any of them. `load` is as in `cost.py`.
"""

import csv
import os
import platform
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from unittest.mock import patch

import numpy as np

from pymc_dirdp.inference import lattice, tables
from pymc_dirdp.inference.numbers import Numbers
from tests.benchmarks.cost import commit, ratio
from tests.inference.goldens import posterior_of_case

TABLE = Path(__file__).with_suffix(".csv")
COLUMNS = ("date", "version", "commit", "python", "load", "way", "work", "ratio")


def of_every_number(at: Callable[..., object]) -> Callable[..., object]:
    """Lists of every number, where there are blocks."""
    return lambda numbers, tilts, *args, longest=None, **options: at(numbers, tilts, *args, **options)


def estimate(kind: str, shape: tuple[int, ...], n: int, width: int) -> None:
    posterior_of_case(kind, shape, n, width, 1, False).estimate([0.8])


def draw(kind: str, shape: tuple[int, ...], n: int, width: int) -> None:
    posterior_of_case(kind, shape, n, width, 1, False).draw(1000, np.random.default_rng(1))


def likelihood(cells: int, draws: int = 20) -> None:
    posterior = posterior_of_case("geometric", (cells,), 1000, 2, 1, True)._posteriors["t0"]
    for logs in np.log(np.random.default_rng(1).dirichlet(np.full(cells, 50.0), draws)):
        posterior.likelihood(logs)


# The way, what stands in its place, the work, and what is done.
WORK: tuple[tuple[str, tuple[object, str, object], str, Callable[[], None]], ...] = (
    (
        "blocks of numbers",
        (Numbers, "at", of_every_number(Numbers.at)),
        "estimate 30 cells of 1e8 records",
        partial(estimate, "draw", (30,), 10**8, 2000),
    ),
    (
        "proposals of a half",
        (lattice, "_draw_narrow_half", partial(lattice._draw_narrow_half, few_tries=0)),
        "draw 200 cells of 1e5 records",
        partial(draw, "discrete gaussian", (200,), 10**5, 30),
    ),
    (
        "private totals",
        (tables, "private_total", lambda *_: None),
        "likelihood of 100 cells of a private number of records",
        partial(likelihood, 100),
    ),
)


def without(place: tuple[object, str, object], work: Callable[[], None]) -> None:
    with ExitStack() as stack:
        stack.enter_context(patch.object(*place))
        work()


def main() -> None:
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    where = (f"{datetime.now(UTC):%Y-%m-%d}", version("pymc-dirdp"), commit(), platform.python_version(), f"{load:.1f}")
    with TABLE.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(COLUMNS)
        for way, place, name, work in WORK:
            value = ratio(partial(without, place, work), work, 3)
            writer.writerow((*where, way, name, f"{value:.3g}"))
            file.flush()
            print(f"{way:<30}{name:<36}{value:8.3g}", flush=True)


if __name__ == "__main__":
    main()
