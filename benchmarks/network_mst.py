# /// script
# requires-python = "==3.11.*"
# dependencies = ["dpmm==0.1.9"]
# ///
"""MST by `dpmm`, for one split; `benchmarks/network_rivals.py` starts it with the Python that `dpmm` takes.

`uv run benchmarks/network_mst.py TRAIN HELD_OUT SIZES RECORDS EPSILON DELTA SEED N` reads records as codes from
TRAIN and HELD_OUT, CSV, and the number of values of each variable from SIZES, JSON. It writes N synthetic records to
RECORDS and prints the mean log-likelihood of a record that was held out.

The noise of `dpmm` is for records that come and go. Here records are replaced: a noisy count has to have twice the
variance, and the score by which a pair is chosen twice the sensitivity.
"""

import json
import sys

import numpy as np
import pandas as pd

FLOOR = 1e-12


def main(train, held_out, sizes, records, epsilon, delta, seed, n):
    from dpmm.models.mst import MSTGM  # no dependency of the project

    with open(sizes) as file:
        domain = json.load(file)
    data, asked = (pd.read_csv(path)[list(domain)] for path in (train, held_out))
    model = MSTGM(
        epsilon=float(epsilon),
        delta=float(delta),
        domain=domain,
        random_state=np.random.RandomState(int(seed)),
        n_jobs=1,
    )
    np.random.seed(int(seed))  # noqa: NPY002 - what dpmm draws from
    model.generator.sigma *= 2**0.5
    # The choice takes a third of this: twice the sensitivity is four times the concentrated loss.
    model.generator.rho /= 4
    model.fit(data)
    model.generate(n_records=int(n)).astype(int).to_csv(records, index=False)
    print(mean_log_likelihood(model.generator, asked, domain))


def mean_log_likelihood(fitted, asked, domain):
    """Of the tree: pairs over single variables. Values that were merged share their probability evenly."""
    total, codes = np.zeros(len(asked)), {}
    for name, size in domain.items():
        supported = fitted.compressor.supports[name]
        codes[name] = np.where(supported, np.cumsum(supported) - 1, supported.sum())[asked[name]]
        merged = np.where(supported, 1, max(1, size - supported.sum()))[asked[name]]
        total -= np.log(merged)
    pairs = [tuple(clique) for clique in fitted.cliques if len(clique) == 2]
    for pair in pairs:
        total += logs(fitted.model, pair)[tuple(codes[name] for name in pair)]
    for name in domain:
        total -= (sum(name in pair for pair in pairs) - 1) * logs(fitted.model, (name,))[codes[name]]
    return total.mean()


def logs(model, axes):
    found = np.maximum(model.project(list(axes)).datavector(flatten=False), 0)
    shares = np.maximum(found / found.sum(), FLOOR)
    return np.log(shares / shares.sum())


if __name__ == "__main__":
    main(*sys.argv[1:])
