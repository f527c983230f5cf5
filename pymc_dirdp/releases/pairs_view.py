"""The tree that shows a release of pairs, as `pm.sample` returns one: a function of its text, and of nothing else."""

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
"""The attribute of a tree with the seed of its fit, which is public."""


def seed_of(tree: Any) -> int:
    """The seed of the fit that a tree shows."""
    seed = getattr(tree, "attrs", {}).get(FIT_SEED)
    return int(seed) if isinstance(seed, int | np.integer) and seed >= 0 else 0


def tree_of_pairs(release: PairsRelease, seed: int = 0) -> xr.DataTree:
    """The tree of a release, with its fit as one draw, which is computed when somebody looks at it.

    Parameters
    ----------
    release : PairsRelease
    seed : int
        Of the fit.
    """
    marks = release_marks(release.plan, release.entry, reproducible=release.is_seeded)
    marks |= {"estimate": "the shares are fitted to noisy counts of pairs, and are no draw", FIT_SEED: seed}
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
    def of_release(release: PairsRelease) -> Array:
        shares = release.mixture(seed).by_column[place]
        return np.broadcast_to(shares, (COMPONENTS, shares.shape[1]))

    return of_release
