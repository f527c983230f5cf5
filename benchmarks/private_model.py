"""Coverage and widths of intervals of private models, by NUTS, over data sets from the prior: `private_model.csv`.

    uv run python benchmarks/private_model.py [--minutes M] [model ...]

It ends with the data sets of `EPSILONS`, or after M minutes of a processor for each model; so a table says how many
data sets it has.

For each of four models and each guarantee, data are drawn from the prior and released; NUTS draws from the posterior
given the noisy counts ("aware"), given clipped noisy counts as if they were the data ("naive"), and given the counts
themselves ("not private"). An interval covers if the parameter that the data were drawn with lies in it.
"""

import argparse
import csv
import math
import time
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import ordered

import pymc_dirdp as dirdp
from benchmarks.simulated_models import Chain, noisy_data, prior_data, publish
from pymc_dirdp.models.model_options import ModelOptions
from pymc_dirdp.releases import noisy_tables
from pymc_dirdp.releases.model_tables import plan_tables, read_model
from pymc_dirdp.releases.noisy_tables import with_terms

FILE = Path(__file__).with_suffix(".csv")
LEVELS = (0.5, 0.8, 0.95)
EPSILONS = {0.2: 300, 0.5: 300, 1.0: 60, 3.0: 60}
NAIVE = 60
# With this guarantee noise is practically 0: a model is as if it had the counts themselves.
WEAK = dirdp.PureDP(epsilon=60)
COLUMNS = ["model", "epsilon", "method", "data_sets", *(f"{level:.0%}" for level in LEVELS)]
COLUMNS += [*(f"se {level:.0%}" for level in LEVELS), "widening"]


def answers():
    """Ordered answers of people in three regions; regions and the number of people are private."""
    region = pm.Data("region", np.arange(450) % 3)
    cuts = pm.Normal("cuts", [-1.5, -0.5, 0.5, 1.5], 1, transform=ordered, initval=[-1.5, -0.5, 0.5, 1.5])
    effect = pm.Normal("effect", 0, 0.5, shape=3)
    pm.OrderedLogistic("y", eta=effect[region], cutpoints=cuts, compute_p=False, observed=np.zeros(450, dtype=int))
    return {"levels": {"region": 3}, "adjacency": "add-remove"}, 450


def diagnostic_test():
    """A test without a gold standard."""
    prevalence = pm.Beta("prevalence", 1, 4)
    sensitivity, specificity = pm.Beta("sensitivity", 45, 5), pm.Beta("specificity", 95, 5)
    p = prevalence * sensitivity + (1 - prevalence) * (1 - specificity)
    pm.Bernoulli("y", p, observed=np.zeros(400, dtype=int))
    return {}, None


def log_linear_table():
    """A 2 x 2 x 5 table with one interaction."""
    first, second, both = (pm.Normal(name) for name in ("first", "second", "both"))
    third = pm.Normal("third", shape=4)
    i, j, k = np.meshgrid([0.0, 1.0], [0.0, 1.0], np.arange(5), indexing="ij")
    logits = first * i + second * j + both * i * j + pt.concatenate([[0.0], third])[k]
    pm.Multinomial("y", n=500, p=pt.special.softmax(logits.ravel()), observed=[500] + [0] * 19)
    return {"contribution": 1}, None


def cases():
    """Counts of events in ten weeks."""
    level, slope = pm.Normal("level", 2, 1), pm.Normal("slope", 0, 0.2)
    pm.Poisson("y", pm.math.exp(level + slope * (np.arange(10) - 4.5)), observed=np.zeros(10, dtype=int))
    return {"count_variables": ["y"]}, None


MODELS = {one.__name__: one for one in (diagnostic_test, cases, answers, log_linear_table)}


def naive_logp(value, log_weights, *others):
    """Of noisy counts, read as if they were the data."""
    logs = (value * log_weights).sum(axis=-1)
    return logs if len(others) > 1 else logs - pt.exp(log_weights).sum(axis=-1)


def ranks(draws, truth):
    """Where parameters lie among draws, as a uniform number."""
    return ((draws < truth).sum(axis=0) + 0.5) / (len(draws) + 1)


def width(draws):
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    return high - low


def row(name, epsilon, method, found, widening=""):
    u = np.array(found)
    covered = [(np.abs(u - 0.5) < level / 2).mean(axis=1) for level in LEVELS]
    shares = [f"{one.mean():.3f}" for one in covered]
    errors = [f"{one.std(ddof=1) / np.sqrt(len(one)):.4f}" for one in covered]
    return [name, epsilon, method, len(u), *shares, *errors, widening]


def run(name, sets=None, minutes=math.inf):
    """The rows of one model, again and again while data sets are added."""
    sets, start = EPSILONS if sets is None else sets, time.process_time()
    rng = np.random.default_rng(20261125)
    with pm.Model() as model:
        said, n_records = MODELS[name]()
    options = ModelOptions(**said)
    found = read_model(model, options)
    plans = {epsilon: plan_tables(dirdp.PureDP(epsilon=epsilon), found) for epsilon in sets}
    no_noise = plan_tables(WEAK, found)
    weak = with_terms(found, no_noise, None)
    private = {epsilon: with_terms(found, plan, None) for epsilon, plan in plans.items()}
    aware = {epsilon: Chain(model, found) for epsilon, model in private.items()}
    known = Chain(weak, found)
    # Numbers of people have no rows: for them it is the model of the counts themselves that reads noisy ones.
    with mock.patch.object(noisy_tables, "_logp_of_rows", naive_logp):
        clipped = with_terms(found, no_noise, None)
    naive = Chain(clipped, found)
    simulate = prior_data(found, weak, n_records)
    us = {(epsilon, how): [] for epsilon in sets for how in ("aware", "naive")}
    open_u, widths = [], {epsilon: [] for epsilon in sets}
    for k in range(max(sets.values())):
        values, counts = simulate(rng)
        truth = np.concatenate([np.ravel(values[str(rv.name)]) for rv in found.free])
        if k < NAIVE:
            publish(weak, with_terms(found, no_noise, None, counts))
            draws = known.draws(values, rng, 150, 300)
            open_u.append(ranks(draws, truth))
            open_width = width(draws)
        for epsilon, plan in plans.items():
            if k >= sets[epsilon]:
                continue
            noisy = noisy_data(plan.parts, counts, rng)
            publish(private[epsilon], with_terms(found, plan, None, noisy))
            draws = aware[epsilon].draws(values, rng, 150, 300)
            us[epsilon, "aware"].append(ranks(draws, truth))
            if k < NAIVE:
                widths[epsilon].append(width(draws) / open_width)
                counts_at_least_0 = {table: np.maximum(np.round(numbers), 0) for table, numbers in noisy.items()}
                publish(clipped, with_terms(found, no_noise, None, counts_at_least_0))
                us[epsilon, "naive"].append(ranks(naive.draws(values, rng, 150, 300), truth))
        late = time.process_time() - start > 60 * minutes
        if late or k + 1 == max(sets.values()) or (k + 1) % 10 == 0:
            yield rows_of(name, open_u, us, widths)
        if late:
            return


def rows_of(name, open_u, us, widths):
    rows = [row(name, "", "not private", open_u)]
    for epsilon, found in widths.items():
        came = np.median(np.median(found, axis=0))
        rows.append(row(name, epsilon, "aware", us[epsilon, "aware"], f"{came:.2f}"))
        rows.append(row(name, epsilon, "naive", us[epsilon, "naive"]))
    return rows


def write(name, rows):
    known = []
    if FILE.exists():
        with FILE.open(encoding="utf-8", newline="") as file:
            known = [one for one in list(csv.reader(file))[1:] if one[0] != name]
    with FILE.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([COLUMNS, *known, *rows])


def main():
    line = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    line.add_argument("model", nargs="*", choices=[*MODELS, []])
    line.add_argument("--minutes", type=float, default=math.inf)
    given = line.parse_args()
    for name in given.model or MODELS:
        start = time.process_time()
        for rows in run(name, minutes=given.minutes):
            write(name, rows)
        print(name, f"{time.process_time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
