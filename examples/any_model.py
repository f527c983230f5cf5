"""A model without conjugate priors under privacy: plan, release, sample, and hand it to somebody else.

Satisfaction of 1681 residents of Copenhagen by type of housing: Madsen (1976), Statistical analysis of multiple
contingency tables, Scandinavian Journal of Statistics 3, 97-106.
"""

import tempfile

import numpy as np
import pymc as pm
from pymc.distributions.transforms import ordered

import pymc_dirdp as dirdp

TYPES = ["tower", "apartment", "atrium", "terrace"]
TABLE = np.array([[99, 101, 200], [271, 192, 302], [64, 79, 96], [133, 74, 70]])
kind, satisfaction = (np.repeat(codes.ravel(), TABLE.ravel()) for codes in np.indices(TABLE.shape))


def survey(kind, satisfaction):
    with pm.Model(coords={"type": TYPES}) as model:
        cuts = pm.Normal("cuts", [-0.7, 0.7], 1, transform=ordered)
        effect = pm.Normal("effect", 0, 0.5, dims="type")
        eta = effect[pm.Data("kind", kind)]
        pm.OrderedLogistic("answer", eta=eta, cutpoints=cuts, compute_p=False, observed=satisfaction)
    return model


model = survey(kind, satisfaction)
# Both the answer and the type of housing are private, and the number of residents is public.
plan = dirdp.plan(dirdp.PureDP(epsilon=0.2), model, any_model=True, levels={"kind": 4})
print(plan)

private = dirdp.private_model(plan, model)
idata = pm.sample(400, tune=400, chains=2, cores=1, model=private, progressbar=False)
print(idata["posterior"]["effect"].mean(["chain", "draw"]).to_series().round(2))

# The recipient has the file and the code of the model, and no records: one resident of each type is made up.
with tempfile.TemporaryDirectory() as folder:
    dirdp.save(dirdp.releases.release_of(private), f"{folder}/survey.json")
    again = dirdp.private_model(f"{folder}/survey.json", survey(np.arange(4), [0, 0, 0, 0]), levels={"kind": 4})
print([rv.name for rv in again.free_RVs])
