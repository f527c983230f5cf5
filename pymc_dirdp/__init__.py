"""Differentially private posterior sampling for PyMC models with Dirichlet or Beta priors.

Write the model as for `pm.sample`, and call `sample(guarantee)` for one private posterior draw.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pymc_dirdp import bounds
    from pymc_dirdp.calibration import calibrate
    from pymc_dirdp.comparison import compare
    from pymc_dirdp.counting import count
    from pymc_dirdp.errors import (
        ArgumentError,
        BudgetError,
        DataError,
        DirdpError,
        LedgerError,
        SeededReleaseWarning,
        UnattainableError,
        UnsupportedModelError,
    )
    from pymc_dirdp.guarantees import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP, convert
    from pymc_dirdp.interop import to_dp_accounting, to_opendp
    from pymc_dirdp.ledger import Ledger
    from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
    from pymc_dirdp.mechanisms.gaussian import GaussianMechanism
    from pymc_dirdp.mechanisms.geometric import GeometricMechanism
    from pymc_dirdp.mechanisms.hellinger import HellingerMechanism, NonPrivateHellinger
    from pymc_dirdp.mechanisms.laplace import LaplaceMechanism
    from pymc_dirdp.mechanisms.simplex import SimplexMechanism
    from pymc_dirdp.mechanisms.truncated_noise import TruncatedNoiseMechanism
    from pymc_dirdp.models.builders import bayesian_network, naive_bayes
    from pymc_dirdp.models.plan import Plan, plan
    from pymc_dirdp.models.prediction import log_likelihood, predict_log_proba
    from pymc_dirdp.models.predictive import sample_posterior_predictive
    from pymc_dirdp.models.release import sample
    from pymc_dirdp.models.report import report
    from pymc_dirdp.models.tables import tables
    from pymc_dirdp.plots.comparison import plot_comparison
    from pymc_dirdp.posteriors.distance import hellinger_distance
    from pymc_dirdp.simplex_domain import SimplexDomain

__all__ = [
    "ApproxDP",
    "ArgumentError",
    "BudgetError",
    "DataError",
    "DirdpError",
    "DirichletMechanism",
    "GaussianMechanism",
    "GeometricMechanism",
    "HellingerMechanism",
    "LaplaceMechanism",
    "Ledger",
    "LedgerError",
    "NonPrivateHellinger",
    "Plan",
    "PureDP",
    "RenyiDP",
    "SeededReleaseWarning",
    "SimplexDomain",
    "SimplexMechanism",
    "TruncatedCDP",
    "TruncatedNoiseMechanism",
    "UnattainableError",
    "UnsupportedModelError",
    "ZeroCDP",
    "bayesian_network",
    "bounds",
    "calibrate",
    "compare",
    "convert",
    "count",
    "hellinger_distance",
    "log_likelihood",
    "naive_bayes",
    "plan",
    "plot_comparison",
    "predict_log_proba",
    "report",
    "sample",
    "sample_posterior_predictive",
    "tables",
    "to_dp_accounting",
    "to_opendp",
]

# Where each name lives. Nothing is imported before it is asked for: SciPy alone takes a third of a second, and the
# mathematics needs no PyMC.
_HOMES = {
    "calibration": ("calibrate",),
    "comparison": ("compare",),
    "counting": ("count",),
    "errors": (
        "ArgumentError",
        "BudgetError",
        "DataError",
        "DirdpError",
        "LedgerError",
        "SeededReleaseWarning",
        "UnattainableError",
        "UnsupportedModelError",
    ),
    "guarantees": ("ApproxDP", "PureDP", "RenyiDP", "TruncatedCDP", "ZeroCDP", "convert"),
    "interop": ("to_dp_accounting", "to_opendp"),
    "ledger": ("Ledger",),
    "mechanisms.dirichlet": ("DirichletMechanism",),
    "mechanisms.gaussian": ("GaussianMechanism",),
    "mechanisms.geometric": ("GeometricMechanism",),
    "mechanisms.hellinger": ("HellingerMechanism", "NonPrivateHellinger"),
    "mechanisms.laplace": ("LaplaceMechanism",),
    "mechanisms.simplex": ("SimplexMechanism",),
    "mechanisms.truncated_noise": ("TruncatedNoiseMechanism",),
    "models.builders": ("bayesian_network", "naive_bayes"),
    "models.plan": ("Plan", "plan"),
    "models.prediction": ("log_likelihood", "predict_log_proba"),
    "models.predictive": ("sample_posterior_predictive",),
    "models.release": ("sample",),
    "models.report": ("report",),
    "models.tables": ("tables",),
    "plots.comparison": ("plot_comparison",),
    "posteriors.distance": ("hellinger_distance",),
    "simplex_domain": ("SimplexDomain",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        found = getattr(import_module(f"pymc_dirdp.{_HOME[name]}"), name)
        globals()[name] = found  # The next look-up is a plain one.
        return found
    if name in __all__:
        return import_module(f"pymc_dirdp.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
