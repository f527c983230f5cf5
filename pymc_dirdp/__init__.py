"""Differentially private posterior sampling for PyMC models with Dirichlet or Beta priors.

Write the model as for `pm.sample`, and call `sample(guarantee)` for one private posterior draw.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pymc_dirdp import bounds
    from pymc_dirdp.auditing.attack import audit
    from pymc_dirdp.auditing.curve_audit import audit_curve
    from pymc_dirdp.calibration import calibrate
    from pymc_dirdp.comparison import compare
    from pymc_dirdp.confidential import Confidential
    from pymc_dirdp.counting import count
    from pymc_dirdp.draw_loss import DrawLoss
    from pymc_dirdp.errors import (
        ArgumentError,
        BudgetError,
        CategoriesFromDataWarning,
        DataError,
        DirdpError,
        LedgerError,
        ReleaseError,
        RepeatedReleaseWarning,
        SeededReleaseWarning,
        UnattainableError,
        UnsupportedModelError,
    )
    from pymc_dirdp.frontier import expected_loss, least_guarantee, least_records, privacy_utility
    from pymc_dirdp.guarantees import ApproxDP, PureDP, RenyiDP, TruncatedCDP, ZeroCDP, convert
    from pymc_dirdp.interop import to_dp_accounting, to_opendp
    from pymc_dirdp.ledger import Ledger
    from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
    from pymc_dirdp.mechanisms.discrete_gaussian import DiscreteGaussianMechanism
    from pymc_dirdp.mechanisms.gaussian import GaussianMechanism
    from pymc_dirdp.mechanisms.geometric import GeometricMechanism
    from pymc_dirdp.mechanisms.hellinger import HellingerMechanism, NonPrivateHellinger
    from pymc_dirdp.mechanisms.laplace import LaplaceMechanism
    from pymc_dirdp.mechanisms.simplex import SimplexMechanism
    from pymc_dirdp.mechanisms.truncated_noise import TruncatedNoiseMechanism
    from pymc_dirdp.models.builders import bayesian_network, naive_bayes
    from pymc_dirdp.models.diagnostics import diagnose
    from pymc_dirdp.models.leave_one_out import elpd
    from pymc_dirdp.models.plan import plan
    from pymc_dirdp.models.planned import Plan
    from pymc_dirdp.models.prediction import log_likelihood, predict_log_proba
    from pymc_dirdp.models.predictive import sample_posterior_predictive
    from pymc_dirdp.models.release import sample
    from pymc_dirdp.models.report import report
    from pymc_dirdp.models.tables import tables
    from pymc_dirdp.models.verification import verify
    from pymc_dirdp.plots.comparison import plot_comparison
    from pymc_dirdp.plots.draw import plot_draw
    from pymc_dirdp.plots.frontier import plot_frontier
    from pymc_dirdp.plots.ledger import plot_ledger
    from pymc_dirdp.plots.posteriors import plot_posteriors, plot_ternary
    from pymc_dirdp.plots.privacy import plot_privacy
    from pymc_dirdp.posteriors.distance import hellinger_distance
    from pymc_dirdp.privacy.contribution import Contribution
    from pymc_dirdp.realised import RealisedLoss
    from pymc_dirdp.simplex_domain import SimplexDomain
    from pymc_dirdp.utility import PriorExpectedKL

__all__ = [
    "ApproxDP",
    "ArgumentError",
    "BudgetError",
    "CategoriesFromDataWarning",
    "Confidential",
    "Contribution",
    "DataError",
    "DirdpError",
    "DirichletMechanism",
    "DiscreteGaussianMechanism",
    "DrawLoss",
    "GaussianMechanism",
    "GeometricMechanism",
    "HellingerMechanism",
    "LaplaceMechanism",
    "Ledger",
    "LedgerError",
    "NonPrivateHellinger",
    "Plan",
    "PriorExpectedKL",
    "PureDP",
    "RealisedLoss",
    "ReleaseError",
    "RenyiDP",
    "RepeatedReleaseWarning",
    "SeededReleaseWarning",
    "SimplexDomain",
    "SimplexMechanism",
    "TruncatedCDP",
    "TruncatedNoiseMechanism",
    "UnattainableError",
    "UnsupportedModelError",
    "ZeroCDP",
    "audit",
    "audit_curve",
    "bayesian_network",
    "bounds",
    "calibrate",
    "compare",
    "convert",
    "count",
    "diagnose",
    "elpd",
    "expected_loss",
    "hellinger_distance",
    "least_guarantee",
    "least_records",
    "log_likelihood",
    "naive_bayes",
    "plan",
    "plot_comparison",
    "plot_draw",
    "plot_frontier",
    "plot_ledger",
    "plot_posteriors",
    "plot_privacy",
    "plot_ternary",
    "predict_log_proba",
    "privacy_utility",
    "report",
    "sample",
    "sample_posterior_predictive",
    "tables",
    "to_dp_accounting",
    "to_opendp",
    "verify",
]

# Where each name lives. Nothing is imported before it is asked for: SciPy alone takes a third of a second, and the
# mathematics needs no PyMC.
_HOMES = {
    "auditing.attack": ("audit",),
    "auditing.curve_audit": ("audit_curve",),
    "calibration": ("calibrate",),
    "comparison": ("compare",),
    "confidential": ("Confidential",),
    "counting": ("count",),
    "draw_loss": ("DrawLoss",),
    "errors": (
        "ArgumentError",
        "BudgetError",
        "CategoriesFromDataWarning",
        "DataError",
        "DirdpError",
        "LedgerError",
        "ReleaseError",
        "RepeatedReleaseWarning",
        "SeededReleaseWarning",
        "UnattainableError",
        "UnsupportedModelError",
    ),
    "frontier": ("expected_loss", "least_guarantee", "least_records", "privacy_utility"),
    "guarantees": ("ApproxDP", "PureDP", "RenyiDP", "TruncatedCDP", "ZeroCDP", "convert"),
    "interop": ("to_dp_accounting", "to_opendp"),
    "ledger": ("Ledger",),
    "mechanisms.dirichlet": ("DirichletMechanism",),
    "mechanisms.discrete_gaussian": ("DiscreteGaussianMechanism",),
    "mechanisms.gaussian": ("GaussianMechanism",),
    "mechanisms.geometric": ("GeometricMechanism",),
    "mechanisms.hellinger": ("HellingerMechanism", "NonPrivateHellinger"),
    "mechanisms.laplace": ("LaplaceMechanism",),
    "mechanisms.simplex": ("SimplexMechanism",),
    "mechanisms.truncated_noise": ("TruncatedNoiseMechanism",),
    "models.builders": ("bayesian_network", "naive_bayes"),
    "models.diagnostics": ("diagnose",),
    "models.leave_one_out": ("elpd",),
    "models.plan": ("plan",),
    "models.planned": ("Plan",),
    "models.prediction": ("log_likelihood", "predict_log_proba"),
    "models.predictive": ("sample_posterior_predictive",),
    "models.release": ("sample",),
    "models.report": ("report",),
    "models.tables": ("tables",),
    "models.verification": ("verify",),
    "plots.comparison": ("plot_comparison",),
    "plots.draw": ("plot_draw",),
    "plots.frontier": ("plot_frontier",),
    "plots.ledger": ("plot_ledger",),
    "plots.posteriors": ("plot_posteriors", "plot_ternary"),
    "plots.privacy": ("plot_privacy",),
    "posteriors.distance": ("hellinger_distance",),
    "privacy.contribution": ("Contribution",),
    "realised": ("RealisedLoss",),
    "simplex_domain": ("SimplexDomain",),
    "utility": ("PriorExpectedKL",),
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
