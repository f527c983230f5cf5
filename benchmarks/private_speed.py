"""Private models beside plain models of the same counts: `uv run -m benchmarks.private_speed [work ...]`.

It appends rows to `private_speed.csv`. Each ratio is a time of the private model over that of the plain model, which
has the counts themselves, both on the clock and in one process: of a call of the gradient (the least of many), of its
compilation without and with what PyTensor has compiled before, and of NUTS with 500 + 500 draws. `load` is as in
`cost.py`. No test asserts any of them.
"""

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pymc as pm

import pymc_dirdp as dirdp
from benchmarks.cost import commit

TABLE = Path(__file__).with_suffix(".csv")
COLUMNS = ("date", "commit", "python", "load", "work", "gradient", "compile, new", "compile, again", "NUTS")
CUTS = np.array([-1.5, -0.5, 0.5, 1.5])


def line(rows: int) -> Any:
    return pm.Normal("level") + pm.Normal("slope") * np.linspace(-1, 1, rows)


def logit(rows: int) -> tuple[pm.Model, pm.Model]:
    """A logit of some 25 records a row, and a Binomial of each row."""
    codes, rng = np.repeat(np.arange(rows), 25), np.random.default_rng(1)
    y = rng.integers(2, size=codes.size)
    with pm.Model() as records:
        code = pm.Data("code", codes)
        pm.Bernoulli("y", logit_p=line(rows)[code], observed=y)
    with pm.Model() as plain:
        pm.Binomial("y", n=25, logit_p=line(rows), observed=np.bincount(codes, y, rows).astype(int))
    return dirdp.private_model(dirdp.PureDP(epsilon=1.0), records, public=["code"], random_seed=1), plain


def ordered(rows: int, *, is_public: bool) -> tuple[pm.Model, pm.Model]:
    """Ordered answers, and a Multinomial of each row; or Poisson counts of each cell, where rows are private."""
    codes, rng = np.repeat(np.arange(rows), 25), np.random.default_rng(1)
    y = rng.integers(5, size=codes.size)
    counts = np.bincount(5 * codes + y, minlength=5 * rows).reshape(rows, 5)
    with pm.Model() as records:
        code = pm.Data("code", codes)
        pm.OrderedLogistic("y", eta=line(rows)[code], cutpoints=CUTS, compute_p=False, observed=y)
    with pm.Model() as plain:
        below = pm.math.sigmoid(CUTS - line(rows)[:, None])
        cumulative = pm.math.concatenate([np.zeros((rows, 1)), below, np.ones((rows, 1))], axis=1)
        p = cumulative[:, 1:] - cumulative[:, :-1]
        if is_public:
            pm.Multinomial("y", n=25, p=p, observed=counts)
        else:
            expected = pm.Uniform("expected", 0, 1000, shape=rows)
            pm.Poisson("y", expected[:, None] * p, observed=counts)
    options: dict[str, Any] = {"public": ["code"]} if is_public else {"levels": {"code": rows}}
    options["adjacency"] = "replace-one" if is_public else "add-remove"
    return dirdp.private_model(dirdp.PureDP(epsilon=1.0), records, random_seed=1, **options), plain


def numbers(rows: int) -> tuple[pm.Model, pm.Model]:
    """Poisson counts of people."""
    with pm.Model() as plain:
        mean = pm.math.exp(2 + line(rows))
        pm.Poisson("y", mean, observed=np.random.default_rng(1).poisson(8, rows))
    return dirdp.private_model(dirdp.PureDP(epsilon=1.0), plain, count_variables=["y"], random_seed=1), plain


WORK: dict[str, Callable[[], tuple[pm.Model, pm.Model]]] = {
    "logit, 20 rows": partial(logit, 20),
    "logit, 400 rows": partial(logit, 400),
    "logit, 2000 rows": partial(logit, 2000),
    "ordered, 20 x 5": partial(ordered, 20, is_public=True),
    "add-remove, 20 x 5": partial(ordered, 20, is_public=False),
    "numbers, 50": partial(numbers, 50),
}


def gradient(model: pm.Model, seconds: float = 0.5) -> tuple[float, float]:
    """Seconds of the compilation of a log-probability with its gradient, and of a call of it."""
    start = time.perf_counter()
    point = model.initial_point(random_seed=1)
    function: Any = model.logp_dlogp_function(ravel_inputs=True, initial_point=point)
    function.trust_input = True
    at = np.concatenate([np.ravel(value) for value in point.values()]).astype(np.float64)
    function(at)
    compiled, least, stop = time.perf_counter() - start, float("inf"), time.perf_counter() + seconds
    while (start := time.perf_counter()) < stop:
        function(at)
        least = min(least, time.perf_counter() - start)
    return compiled, least


def nuts(model: pm.Model) -> float:
    start = time.perf_counter()
    pm.sample(500, tune=500, chains=1, cores=1, model=model, random_seed=1, progressbar=False, quiet=True)
    return time.perf_counter() - start


def times(name: str, *, with_nuts: bool) -> dict[str, list[float]]:
    """Seconds of the private and of the plain model. Imports are made before, by another model."""
    private, plain = WORK[name]()
    with pm.Model() as first:
        pm.Normal("first")
    gradient(first, seconds=0)
    compiled, called = zip(*map(gradient, (private, plain)), strict=True)
    return {"compile": list(compiled), "gradient": list(called)} | (
        {"NUTS": [nuts(private), nuts(plain)]} if with_nuts else {}
    )


def in_new_process(name: str, folder: str, *flags: str) -> dict[str, float]:
    """Ratios of a new process that finds on disk what was compiled into a folder."""
    known = os.environ.get("PYTENSOR_FLAGS", "")
    places = {"PYTENSOR_FLAGS": f"{known},base_compiledir={folder}".lstrip(","), "NUMBA_CACHE_DIR": folder}
    call = [sys.executable, "-W", "ignore", "-m", "benchmarks.private_speed", "--times", *flags, name]
    output = subprocess.run(call, check=True, capture_output=True, text=True, env=os.environ | places).stdout
    return {what: private / plain for what, (private, plain) in json.loads(output.splitlines()[-1]).items()}


def ratios(name: str) -> Iterator[float]:
    with TemporaryDirectory() as folder:
        new = in_new_process(name, folder)
        again = in_new_process(name, folder, "--nuts")
    yield from (again["gradient"], new["compile"], again["compile"], again["NUTS"])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("work", nargs="*", choices=[*WORK, []])
    arguments.add_argument("--times", action="store_true", help="seconds of this process alone, as JSON")
    arguments.add_argument("--nuts", action="store_true", help="with --times: of NUTS too")
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    if given.times:
        print(json.dumps(times(given.work[0], with_nuts=given.nuts)))
        return
    with TABLE.open("a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if file.tell() == 0:
            writer.writerow(COLUMNS)
        for name in given.work or WORK:
            load = os.getloadavg()[0] / (os.cpu_count() or 1)
            where = f"{datetime.now(UTC):%Y-%m-%d}", commit(), platform.python_version(), f"{load:.1f}"
            row = (*where, name, *(f"{value:.3g}" for value in ratios(name)))
            writer.writerow(row)
            file.flush()
            print(*row, flush=True)


if __name__ == "__main__":
    main()
