"""Two models without conjugate priors, each beside its posterior without privacy. It takes less than a minute."""

import warnings

import numpy as np
import pymc as pm
from pymc.distributions.transforms import ordered

import pymc_dirdp as dirdp

GUARANTEE = dirdp.ApproxDP(epsilon=0.5, delta=1e-6)
SETTINGS = {"draws": 250, "tune": 250, "chains": 2, "cores": 1, "random_seed": 1, "progressbar": False, "quiet": True}


def survey(region, answers):
    """Ordered answers, from 0 (no) to 3 (yes), of people in three regions."""
    with pm.Model(coords={"region": ["north", "middle", "south"]}) as model:
        codes = pm.Data("where", region)
        cuts = pm.Normal("cuts", [-1, 0, 1], 1.5, transform=ordered, initval=[-1, 0, 1])
        effect = pm.Normal("effect", 0, 0.5, dims="region")
        pm.OrderedLogistic("answer", eta=effect[codes], cutpoints=cuts, compute_p=False, observed=answers)
    return model


def test_results(positive):
    """A test of which nobody knows the true state of those tested: prevalence, sensitivity and specificity."""
    with pm.Model() as model:
        prevalence = pm.Beta("prevalence", 1, 4)
        sensitivity, specificity = pm.Beta("sensitivity", 45, 5), pm.Beta("specificity", 95, 5)
        pm.Bernoulli("positive", prevalence * sensitivity + (1 - prevalence) * (1 - specificity), observed=positive)
    return model


def beside(private, model, names):
    """Means and standard deviations from the release, and from the records."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [pm.sample(model=one, **SETTINGS)["posterior"] for one in (private, model)]
    print(f"{'':14}{'private':>16}{'not private':>16}")
    for name in names:
        columns = [one[name].values.reshape(-1, *one[name].shape[2:]) for one in found]
        stated = [np.atleast_1d(np.stack([one.mean(0), one.std(0)])).reshape(2, -1) for one in columns]
        for k in range(stated[0].shape[1]):
            cells = [f"{one[0, k]:8.2f} ± {one[1, k]:.2f}" for one in stated]
            print(f"{name + (f'[{k}]' if stated[0].shape[1] > 1 else ''):14}{cells[0]:>16}{cells[1]:>16}")


rng = np.random.default_rng(1)
region = rng.integers(3, size=450)
latent = np.array([-0.8, 0.0, 0.8])[region] + rng.logistic(size=450)
answers = np.digitize(latent, [-1.0, 0.2, 1.5])

# Where somebody lives is private, too: it has three codes, and how many people have which is not told.
model = survey(region, answers)
private = dirdp.private_model(GUARANTEE, model, levels={"where": 3})
dirdp.save(dirdp.release_of(private), "survey.json")
print("Answers to a survey")
beside(private, model, ["effect", "cuts"])

# The recipient has the model and the file. The records of this model are made up: one for each region.
again = dirdp.private_model("survey.json", survey(np.arange(3), np.zeros(3, dtype=int)), levels={"where": 3})
point = private.initial_point()
assert again.compile_logp()(point) == private.compile_logp()(point)

model = test_results(rng.random(400) < 0.2 * 0.9 + 0.8 * 0.05)
print("\nA test without a gold standard")
beside(dirdp.private_model(GUARANTEE, model), model, ["prevalence", "sensitivity", "specificity"])
