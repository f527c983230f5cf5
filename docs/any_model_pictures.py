"""Four models, under privacy and without it, and pictures of both posteriors: `uv run docs/any_model_pictures.py`.

The pictures are `_static/any_model_*.png`, and the page on any discrete model shows the code of each model from here.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pymc.distributions.transforms import ordered

import pymc_dirdp as dirdp

HERE = Path(__file__).resolve().parent
# Madsen (1976): satisfaction (low, medium, high) of 1681 residents of Copenhagen, by type of housing.
HOUSING = np.array([[99, 101, 200], [271, 192, 302], [64, 79, 96], [133, 74, 70]])
# Bickel, Hammel and O'Connell (1975): admitted or refused, men or women, five departments of Berkeley.
ADMITTED = np.array([[512, 353, 120, 138, 53], [89, 17, 202, 131, 94]])
REFUSED = np.array([[313, 207, 205, 279, 138], [19, 8, 391, 244, 299]])
# Bortkiewicz (1898): soldiers killed by the kick of a horse in 14 corps, 1875 to 1894.
KICKS = np.array([3, 5, 7, 9, 10, 18, 6, 14, 11, 9, 5, 11, 15, 6, 11, 17, 12, 15, 8, 4])


def satisfaction():
    kind, answer = (np.repeat(codes.ravel(), HOUSING.ravel()) for codes in np.indices(HOUSING.shape))
    with pm.Model(coords={"type": ["tower", "apartment", "atrium", "terrace"]}) as model:
        cuts = pm.Normal("cuts", [-0.7, 0.7], 1, transform=ordered)
        effect = pm.Normal("effect", 0, 0.5, dims="type")
        eta = effect[pm.Data("kind", kind)]
        pm.OrderedLogistic("answer", eta=eta, cutpoints=cuts, compute_p=False, observed=answer)
    return model, dirdp.private_model(dirdp.PureDP(epsilon=0.2), model, levels={"kind": 4})


def diagnostic_test():
    positive = np.random.default_rng(1).random(400) < 0.3  # made up
    with pm.Model() as model:
        prevalence = pm.Beta("prevalence", 1, 4)
        sensitivity, specificity = pm.Beta("sensitivity", 45, 5), pm.Beta("specificity", 95, 5)
        p = prevalence * sensitivity + (1 - prevalence) * (1 - specificity)
        pm.Bernoulli("positive", p, observed=positive)
    return model, dirdp.private_model(dirdp.PureDP(epsilon=0.05), model)


def admissions():
    table = np.stack([ADMITTED, REFUSED])  # 2 x 2 x 5
    with pm.Model(coords={"department": list("BCDE")}) as model:
        refused, woman, both = (pm.Normal(name) for name in ("refused", "woman", "refused woman"))
        size = pm.Normal("size", dims="department")
        refusal = pm.Normal("refusal", dims="department")
        i, j, k = np.indices(table.shape)
        of, refusals = (pt.concatenate([[0.0], each])[k] for each in (size, refusal))
        logits = (refused + refusals) * i + woman * j + both * i * j + of
        p = pt.special.softmax(logits.ravel())
        pm.Multinomial("table", n=table.sum(), p=p, observed=table.ravel())
    return model, dirdp.private_model(dirdp.PureDP(epsilon=0.05), model, contribution=1)


def horse_kicks():
    years = np.arange(20)
    with pm.Model() as model:
        level, slope, bend = pm.Normal("level", 2, 1), pm.Normal("slope", 0, 1), pm.Normal("bend", 0, 1)
        x = (years - 9.5) / 10
        pm.Poisson("deaths", pm.math.exp(level + slope * x + bend * x**2), observed=KICKS)
    return model, dirdp.private_model(dirdp.PureDP(epsilon=0.5), model, count_variables=["deaths"])


def draw(name, model, private):
    """Intervals of 90 % with medians, of the parameters of a model."""
    found = []
    for one in (model, private):
        idata = pm.sample(800, tune=800, chains=2, cores=1, random_seed=1, model=one, progressbar=False, quiet=True)
        posterior = idata["posterior"].ds if hasattr(idata["posterior"], "ds") else idata["posterior"]
        draws = {}
        for rv in model.free_RVs:
            values = posterior[rv.name].values.reshape(1600, -1)
            (dim,) = model.named_vars_to_dims.get(rv.name, (None,))
            labels = model.coords.get(dim) or range(values.shape[1])
            draws |= {
                rv.name if values.shape[1] == 1 else f"{rv.name}: {label}": column
                for label, column in zip(labels, values.T, strict=True)
            }
        found.append(draws)
    names = list(found[0])
    figure, axes = plt.subplots(figsize=(4.4, 1.0 + 0.33 * len(names)), layout="constrained")
    for draws, shift, colour, label in zip(
        found, (-0.16, 0.16), ("0.45", "tab:orange"), ("without privacy", "private"), strict=True
    ):
        low, middle, high = np.quantile([draws[one] for one in names], [0.05, 0.5, 0.95], axis=1)
        at = np.arange(len(names)) + shift
        axes.hlines(at, low, high, color=colour, lw=3)
        axes.plot(middle, at, "o", color=colour, label=label)
    axes.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.5, -0.5))
    axes.set_xlabel("parameter (median, 90 % interval)")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x", color="0.9")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=2, frameon=False)
    figure.savefig(HERE / "_static" / f"any_model_{name}.png", dpi=150)


if __name__ == "__main__":
    for make in (satisfaction, diagnostic_test, admissions, horse_kicks):
        if make.__name__ in (sys.argv[1:] or make.__name__):
            draw(make.__name__, *make())
