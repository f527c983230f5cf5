"""How much wider the intervals of a model get by privacy, before anybody is asked: made-up data from its prior.

The fatal accidents of 20 years are planned with a line and a level. No count of them is read: each data set is drawn
from the prior and released like the real one, and PyMC infers from it with the noise and without.
"""

import warnings

import numpy as np
import pymc as pm

import pymc_dirdp as dirdp

x = (np.arange(20) - 9.5) / 10
guarantee = dirdp.PureDP(epsilon=0.3)


def regression(deaths):
    with pm.Model() as model:
        level, slope = pm.Normal("level", 2, 0.5), pm.Normal("slope", 0, 0.5)
        pm.Poisson("deaths", pm.math.exp(level + slope * x), observed=deaths)
    return model


def widths(model):
    idata = pm.sample(300, tune=300, chains=2, cores=1, model=model, progressbar=False, quiet=True, random_seed=1)
    low, high = idata["posterior"].dataset.quantile([0.05, 0.95], ["chain", "draw"])["slope"].values
    return high - low


# What is made up may be released with a seed, and as often as we like.
warnings.simplefilter("ignore", dirdp.errors.SeededReleaseWarning)
warnings.simplefilter("ignore", dirdp.errors.RepeatedReleaseWarning)
plan = dirdp.plan(guarantee, regression(np.zeros(20, dtype=int)), any_model=True, count_variables=["deaths"])
print(plan)
ratios = []
for seed, deaths in enumerate(pm.draw(regression(np.zeros(20, dtype=int))["deaths"], 5, random_seed=1)):
    model = regression(deaths)
    ratios.append(widths(dirdp.private_model(plan, model, random_seed=seed)) / widths(model))
print(f"{guarantee}: the interval of the slope becomes {np.median(ratios):.2f} times as wide")
