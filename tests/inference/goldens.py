"""Outputs of all mechanisms and shapes of tables, whose evidence, moments and quantiles are in `counts.json`.

`python -m tests.inference.goldens` writes the file. Outputs are made by NumPy, so no change of a sampler changes them.
"""

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from pymc_dirdp.inference.observed_table import Beliefs, MechanismOutput
from pymc_dirdp.inference.tables import Posteriors
from pymc_dirdp.mechanisms import (
    DirichletMechanism,
    DiscreteGaussianMechanism,
    GeometricMechanism,
)
from pymc_dirdp.papers.truncated_noise import TruncatedNoiseMechanism
from pymc_dirdp.sampling.exact import positive_frequencies

PATH = Path(__file__).parents[1] / "reference" / "counts.json"
FIELDS = ("count_means", "count_sds", "share_means", "share_sds", "count_intervals", "share_intervals")
# Of long tables so many cells are stored.
_ROWS = 4


def released(kind, counts, width, private, rng, prior):
    """The output of one table: noise of so many records, or a draw that is as exact."""
    n, adjacency = int(counts.sum()), "add-remove" if private else "replace-one"
    known = {} if private else {"n_records": n}
    if kind in ("draw", "urn"):
        r = min(1.0, n / (counts.size * width**2)) if width else 1.0
        u = np.maximum(r * counts + prior, 1e-3)
        y = rng.gamma(u)
        y = np.maximum(y / y.sum(axis=-1, keepdims=True), 1e-12)
        y /= y.sum(axis=-1, keepdims=True)
        mechanism = DirichletMechanism(prior, r, adjacency=adjacency)
        if kind == "draw":
            return MechanismOutput(mechanism, y, prior=prior, sampler="fast", **known)
        steps = 400
        seen = rng.multinomial(steps, y) if y.ndim == 1 else np.stack([rng.multinomial(steps, one) for one in y])
        return MechanismOutput(mechanism, positive_frequencies(seen, steps), prior=prior, steps=steps, **known)
    if kind == "truncated":
        z = np.clip(counts + np.rint(rng.laplace(0, width, counts.shape)), 0, n)
        for i in range(1, len(z)):
            z[i] = min(z[i], n - z[:i].sum())
        z[-1] = n - z[:-1].sum()
        return MechanismOutput(TruncatedNoiseMechanism(prior, n, width), z, prior=prior)
    # The file was recorded with four arrays of noise, of which two are used.
    laplace, _, _, normal = (
        draw(0, width, counts.shape) for draw in (rng.laplace, rng.laplace, rng.normal, rng.normal)
    )
    make, noise = {
        "geometric": (GeometricMechanism, laplace),
        "discrete gaussian": (DiscreteGaussianMechanism, normal),
    }[kind]
    return MechanismOutput(make(prior, width, adjacency=adjacency), counts + np.rint(noise), prior=prior, **known)


def cases():
    """The name of each case, and what makes its distribution: all tables, the one of the classes, and beliefs."""
    kinds = ("geometric", "discrete gaussian", "draw", "urn", "truncated")
    for kind in kinds:
        for d, n, width, a in (
            (2, 10, 1, 1), (2, 1000, 20, 0.3), (2, 10**6, 100, 1), (3, 12, 2, 0.5), (3, 2000, 8, 1),
            (4, 1000, 40, 1), (10, 300, 10, 0.2), (10, 10**4, 30, 1), (50, 10**4, 20, 0.5), (200, 10**5, 30, 1),
        ):  # fmt: skip
            if kind != "urn" or n < 10**6:
                yield f"{kind} d={d} N={n} width={width} a={a}", (kind, (d,), n, width, a, False)
    for kind in kinds[:4]:
        for d, n, width, a in (
            (2, 12, 2, 1),
            (3, 200, 10, 0.5),
            (4, 2000, 20, 1),
            (10, 300, 5, 0.3),
            (2, 10**5, 50, 1),
        ):
            if kind != "urn" or n < 10**5:
                yield f"{kind} private d={d} N={n} width={width} a={a}", (kind, (d,), n, width, a, True)
        for rows, d, n, width in ((2, 2, 30, 2), (3, 3, 300, 5), (6, 2, 1000, 8), (20, 5, 2000, 3)):
            yield f"{kind} {rows}x{d} N={n} width={width}", (kind, (rows, d), n, width, 1.0, False)
        for rows, d, n, width in ((2, 2, 30, 2), (3, 3, 300, 5)):
            yield f"{kind} private {rows}x{d} N={n} width={width}", (kind, (rows, d), n, width, 0.7, True)
        yield f"{kind} classes", (kind, [(2,), (2, 3), (2, 2)], 60, 3, 1.0, False)
        yield f"{kind} classes private", (kind, [(2,), (2, 2)], 30, 3, 1.0, True)


def posterior_of_case(kind, shape, n, width, a, private, seed=1):
    """The distribution of all tables of a case."""
    rng = np.random.default_rng(seed)
    shapes = shape if isinstance(shape, list) else [shape]
    tables, classes = {}, None
    for i, one in enumerate(shapes):
        p = rng.dirichlet(np.full(one[-1], max(a, 0.3)), one[:-1])
        if len(one) == 1:
            counts = rng.multinomial(n, p)
            classes = counts
        else:
            of_rows = classes if len(shapes) > 1 else rng.multinomial(n, np.full(one[0], 1 / one[0]))
            counts = np.stack([rng.multinomial(m, q) for m, q in zip(of_rows, p, strict=True)])
        output = released(kind, counts, width, private, rng, np.full(one, float(a)))
        tables[f"t{i}"] = replace(output.observed_table, name=f"t{i}")
    n_prior = 2 * n if private else None
    beliefs = {name: Beliefs(n_prior=n_prior) for name in tables}
    return Posteriors(tables, beliefs, "t0" if len(tables) > 1 else None)


def summary(found):
    """What the file has of an estimate of one table."""
    numbers = {"log_evidence": found.log_evidence}
    for field in FIELDS:
        values = np.asarray(getattr(found, field))
        values = values[:, :_ROWS] if values.ndim == 3 else values[:_ROWS]
        numbers[field] = [float(f"{value:.12g}") for value in values.ravel().tolist()]
    return numbers


if __name__ == "__main__":
    found, times = {}, {}
    for name, case in cases():
        start = time.perf_counter()
        tables = posterior_of_case(*case).estimate([0.8])
        found[name] = {table: summary(one) for table, one in tables.items()}
        times[name] = time.perf_counter() - start
        print(f"{times[name]:8.3f} {name}", flush=True)
    PATH.write_text(json.dumps(found, indent=None, separators=(",", ":")).replace('},"', '},\n"') + "\n")
