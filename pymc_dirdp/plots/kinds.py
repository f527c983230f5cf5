"""The objects that each function draws, so that an error can name the right function."""

from typing import Any, NoReturn

import xarray as xr

from pymc_dirdp.bandits.simulation import BanditRuns
from pymc_dirdp.bandits.view import BanditView
from pymc_dirdp.errors import ArgumentError, type_name
from pymc_dirdp.planning.comparison import Comparison
from pymc_dirdp.planning.prices import Frontier
from pymc_dirdp.privacy.curves import PrivacyCurves
from pymc_dirdp.releases.opened import TEXT_GROUP
from pymc_dirdp.releases.plan_types import Plan

_TYPES = (
    (Frontier, "A Frontier is drawn by plot_frontier."),
    (Comparison, "A Comparison is drawn by plot_comparison."),
    (BanditRuns, "Runs of a bandit are drawn by plot_regret."),
    (BanditView, "A bandit is drawn by plot_regret, and its privacy curve by plot_privacy."),
    (PrivacyCurves, "A mechanism is drawn by plot_privacy."),
    (Plan, "A plan is drawn by plot_privacy, and dirdp.report(plan) has its expected error."),
)


def is_diagnosis(thing: object) -> bool:
    """Whether an object is a tree from :func:`pymc_dirdp.diagnose`."""
    return {"non_private", "private", "release"} <= set(getattr(thing, "children", ()))


def is_release(thing: object) -> bool:
    """Whether an object is a tree with the text of a release."""
    return TEXT_GROUP in getattr(thing, "children", ()) and not is_diagnosis(thing)


def plot_hint(thing: object) -> str:
    """The functions that draw an object, in a sentence. Empty if there are none."""
    for kind, sentence in _TYPES:
        if isinstance(thing, kind):
            return sentence
    if is_diagnosis(thing):
        return "A diagnosis is drawn by plot_posteriors."
    if is_release(thing):
        return "A release is drawn by plot_draw, plot_analysis and plot_privacy."
    if isinstance(thing, xr.DataTree) and "posterior" in thing.children and "confidential" not in thing.attrs:
        return "Posterior draws are drawn by ArviZ, as in az.plot_forest(tree)."
    return ""


def refuse(expected: str, **argument: Any) -> NoReturn:
    """Raise an error about an argument, with the function that draws it.

    Parameters
    ----------
    expected : str
        The expected type in words, with an article.
    **argument : object
        The argument by its name.
    """
    ((name, value),) = argument.items()
    got = "a diagnosis" if is_diagnosis(value) else "a release" if is_release(value) else type_name(value)
    raise ArgumentError(f"Expected {name} to be {expected}, got {got}. {plot_hint(value)}".rstrip())


def refuse_unless_release(release: Any) -> None:
    """Refuse an object that another function draws. A release is validated later, when it is loaded."""
    if not is_release(release) and plot_hint(release):
        refuse("a release from dirdp.sample or the path of one", release=release)
