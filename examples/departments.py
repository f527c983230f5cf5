"""A hierarchical model of six private releases: departments that share no data, and rates that are pooled in part.

Women who applied to the six largest departments of Berkeley in 1973, and were admitted: Bickel, Hammel and O'Connell
(1975), Sex bias in graduate admissions, Science 187, 398-404.
"""

import logging
import warnings

import numpy as np
import pymc as pm

import pymc_dirdp as dirdp

departments = list("ABCDEF")
applied = [108, 25, 593, 375, 393, 341]
admitted = [89, 17, 202, 131, 94, 24]

# Each department publishes for itself. A woman applied to one of them, so the guarantee of all is that of one, and a
# warning that the same people may be in all releases does not apply.
warnings.simplefilter("ignore", dirdp.errors.RepeatedReleaseWarning)
releases = []
for n, k in zip(applied, admitted, strict=True):
    with pm.Model():
        rate = pm.Beta("rate", 1, 1)
        pm.Binomial("admitted", n=n, p=rate, observed=k)
        releases.append(dirdp.sample(dirdp.PureDP(epsilon=0.2), mechanism="geometric"))

# From here on nobody needs the data.
with pm.Model(coords={"department": departments}):
    centre, spread = pm.Normal("centre", 0, 1.5), pm.HalfNormal("spread", 1.5)
    logits = pm.Normal("logit", centre, spread, dims="department")
    rates = pm.Deterministic("rate", pm.math.invlogit(logits), dims="department")
    for i, release in enumerate(releases):
        pm.Potential(f"release of {departments[i]}", dirdp.release_logp(release, rates[i]))
    logging.getLogger("pymc").setLevel(logging.ERROR)
    idata = pm.sample(500, tune=500, chains=2, progressbar=False, compute_convergence_checks=False)

print("             alone             pooled in part")
for i, release in enumerate(releases):
    alone = dirdp.estimate(release).tables["rate"]
    pooled = idata["posterior"]["rate"].values[..., i]
    print(
        f"{departments[i]}   {alone.share_means[0]:.2f} ± {alone.share_sds[0]:.2f}"
        f"        {np.mean(pooled):.2f} ± {np.std(pooled):.2f}"
    )
