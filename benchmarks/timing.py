"""Does the time of a draw tell of the counts? `uv run benchmarks/timing.py [repeats]`.

Tables of the same public shape and number of records are drawn from in random order, and the median time of each is
compared with that of a flat table. Two lines of the same flat table show what the machine alone does.
"""

import sys
import time

import numpy as np
import pymc as pm

import pymc_dirdp as dirdp
from pymc_dirdp.mechanisms.registry import Dirichlet

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
# Ratios beyond it are what somebody with a stopwatch of 1 % sees.
STOPWATCH = 0.01
_RNG = np.random.default_rng(20261121)


def interleaved(calls, repeats):
    """Seconds of every call, shape (calls, repeats). In each round all are made once, in a new random order."""
    for call in calls:
        call()  # Compilation and caches belong to nobody.
    times = np.empty((len(calls), repeats))
    for i in range(repeats):
        for j in _RNG.permutation(len(calls)):
            start = time.perf_counter_ns()
            calls[j]()
            times[j, i] = time.perf_counter_ns() - start
    return times / 1e9


def ratio(times, reference, resamples=2000):
    """Ratio of medians, and its 99 % bootstrap interval. Rounds are resampled whole: a slow one is slow for all."""
    rounds = _RNG.integers(0, len(times), (resamples, len(times)))
    ratios = np.median(times[rounds], axis=1) / np.median(reference[rounds], axis=1)
    return np.median(times) / np.median(reference), *np.quantile(ratios, [0.005, 0.995])


def stopwatch(low, high):
    if low > 1 + STOPWATCH or high < 1 - STOPWATCH:
        return "SEEN at 1 %"
    if low > 1 or high < 1:
        return "differs, within 1 %" if max(high - 1, 1 - low) < STOPWATCH else "differs, perhaps by 1 %"
    return "not seen" if max(high - 1, 1 - low) < STOPWATCH else "not resolved"


def guesses(times, reference):
    """How often one single measurement tells the two tables apart, at the best threshold: 50 % is blind."""
    both = np.sort(np.concatenate([times, reference]))
    below = np.searchsorted(np.sort(times), both, side="right") - np.searchsorted(
        np.sort(reference), both, side="right"
    )
    return 0.5 + np.abs(below).max() / len(times) / 2


def compare(title, calls, repeats):
    """`calls` by name; the first is the reference."""
    times = dict(zip(calls, interleaved(list(calls.values()), repeats), strict=True))
    reference, *others = times
    print(f"\n{title}: {np.median(times[reference]) * 1e6:.1f} us for '{reference}', {repeats} rounds")
    for name in others:
        value, low, high = ratio(times[name], times[reference])
        look = guesses(times[name], times[reference])
        print(f"  {name:<28} {value:6.3f}  [{low:.3f}, {high:.3f}]   one look: {look:4.0%}   {stopwatch(low, high)}")


def tables_of(d, n):
    """Counts of one shape and number of records."""
    flat = np.full(d, n // d)
    flat[0] += n - flat.sum()
    half = np.zeros(d, dtype=int)
    half[: d // 2] = n // (d // 2)
    half[0] += n - half.sum()
    one, last = np.zeros(d, dtype=int), np.zeros(d, dtype=int)
    one[0] = last[-1] = n
    return {"flat": flat, "flat again": flat.copy(), "half of the cells empty": half, "all in the first": one} | {
        "all in the last": last
    }


def draws(title, mechanism, d, n, *, sampler, repeats, **options):
    calls = {
        name: lambda counts=counts: mechanism.sample(counts, sampler=sampler, **options)
        for name, counts in tables_of(d, n).items()
    }
    compare(title, calls, repeats)


def model_of(counts):
    with pm.Model() as model:
        p = pm.Dirichlet("p", a=np.full(len(counts), 0.05))
        pm.Multinomial("x", n=int(counts.sum()), p=p, observed=counts)
    return model


def whole(title, target, d, n, repeats, **options):
    models = {name: model_of(counts) for name, counts in tables_of(d, n).items()}
    plan = dirdp.plan(target, models["flat"], **options)
    compare(title, {name: lambda model=model: dirdp.sample(plan, model) for name, model in models.items()}, repeats)


if __name__ == "__main__":
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print("Median time over that of the flat table, with a 99 % interval; the share of right guesses from one look.")
    for d, n in ((4, 592), (1000, 100_000)):
        for alpha in (1.0, 0.05):
            mechanism = dirdp.mechanisms.DirichletMechanism(np.full(d, alpha), 0.1)
            draws(f"fast, {d} cells, alpha {alpha:g}, r 0.1", mechanism, d, n, sampler="fast", repeats=repeats)
    for alpha in (1.0, 0.05):
        mechanism = dirdp.mechanisms.DirichletMechanism(np.full(4, alpha), 0.1)
        title = f"exact, 4 cells, alpha {alpha:g}, r 0.1, 10,000 steps"
        draws(title, mechanism, 4, 592, sampler="exact", repeats=repeats, steps=10_000)
    # A loose guarantee leaves a prior of 0.05 as it is; a tight one adds to it, and no cell is small any more.
    loose = dirdp.RenyiDP(order=1.0, epsilon=100.0)
    few = max(repeats // 5, 10)
    whole("dirdp.sample, 4 cells, prior kept at 0.05", loose, 4, 592, few, mechanism=Dirichlet(strategy="temper"))
    whole("dirdp.sample, 4 cells, (1, 1e-6)", TARGET, 4, 592, few)
    whole(
        "dirdp.sample, 1000 cells, prior kept at 0.05",
        loose,
        1000,
        100_000,
        few,
        mechanism=Dirichlet(strategy="temper"),
    )
