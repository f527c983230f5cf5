"""The tree of a release of pairs, in the form that `pm.sample` returns. It is a function of the text alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from pymc_dirdp.arrays import Array
from pymc_dirdp.inference.mixture import COMPONENTS
from pymc_dirdp.releases.opened import TEXT_GROUP
from pymc_dirdp.releases.pairs import PairsRelease
from pymc_dirdp.releases.view import ReleaseTree, deferred, release_marks, text_group, tree_of

COMPONENT = "component"
"""The dim of the components of a mixture."""
FIT_SEED = "fit_seed"
"""The attribute with the seed of the fit, which is public."""


def seed_of(tree: Any) -> int:
    """The seed of the fit in a tree."""
    seed = getattr(tree, "attrs", {}).get(FIT_SEED)
    return int(seed) if isinstance(seed, int | np.integer) and seed >= 0 else 0


def tree_of_pairs(release: PairsRelease, seed: int = 0) -> xr.DataTree:
    """The tree of a release, with the fit as its draw, which is computed on first use.

    Parameters
    ----------
    release : PairsRelease
    seed : int
        The seed of the fit.
    """
    marks = release_marks(release.plan, release.entry, reproducible=release.is_seeded)
    marks |= {"estimate": "the shares are fitted to noisy counts of pairs, and are not a draw", FIT_SEED: seed}
    variables = {}
    for place, (name, labels) in enumerate(release.plan.columns):
        shape = (1, 1, COMPONENTS, len(labels))
        variables[f"p_{name}"] = deferred(
            release.text, ["chain", "draw", COMPONENT, name], shape, _shares(place, seed), printed=False
        )
    coords = {"chain": [0], "draw": [0]} | release.plan.labels
    plan = release.plan
    people = ("statement", "adjacency", "unit_label", "protected", "contribution")
    tree = tree_of(
        {
            "/posterior": xr.Dataset(variables, coords, marks),
            "/privacy": xr.Dataset(attrs={name: getattr(plan, name) for name in people}),
            f"/{TEXT_GROUP}": text_group(release.text),
        },
        ReleaseTree,
    )
    tree.attrs = marks
    return tree


def _shares(place: int, seed: int) -> Callable[[Any], Array]:
    def compute(release: PairsRelease) -> Array:
        shares = release.mixture(seed).by_column[place]
        return np.broadcast_to(shares, (COMPONENTS, shares.shape[1]))

    return compute
