"""Differentially private posterior sampling for PyMC models with Dirichlet or Beta priors.

Write the model as for `pm.sample`, and call `sample(guarantee)` for one private posterior draw.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pymc_dirdp import published
    from pymc_dirdp.accounting.ledger import Ledger
    from pymc_dirdp.auditing.attack import audit
    from pymc_dirdp.auditing.curve_audit import audit_curve
    from pymc_dirdp.auditing.result import Audit
    from pymc_dirdp.counting.tables import count
    from pymc_dirdp.curator.confidential import Confidential
    from pymc_dirdp.curator.diagnostics import diagnose
    from pymc_dirdp.curator.leave_one_out import elpd
    from pymc_dirdp.curator.realised import RealisedLoss
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
    from pymc_dirdp.mechanisms.base import Mechanism
    from pymc_dirdp.mechanisms.dirichlet import DirichletMechanism
    from pymc_dirdp.mechanisms.discrete_gaussian import DiscreteGaussianMechanism
    from pymc_dirdp.mechanisms.gaussian import GaussianMechanism
    from pymc_dirdp.mechanisms.geometric import GeometricMechanism
    from pymc_dirdp.mechanisms.hellinger import HellingerMechanism, NonPrivateHellinger
    from pymc_dirdp.mechanisms.hellinger_distance import hellinger_distance
    from pymc_dirdp.mechanisms.laplace import LaplaceMechanism
    from pymc_dirdp.mechanisms.simplex import SimplexMechanism
    from pymc_dirdp.mechanisms.simplex_domain import SimplexDomain
    from pymc_dirdp.mechanisms.truncated_noise import TruncatedNoiseMechanism
    from pymc_dirdp.models.tables import Table, tables
    from pymc_dirdp.networks.builders import bayesian_network, naive_bayes
    from pymc_dirdp.networks.prediction import log_likelihood, predict_log_proba
    from pymc_dirdp.planning.calibration import calibrate
    from pymc_dirdp.planning.comparison import Comparison, compare
    from pymc_dirdp.planning.frontier import Frontier, expected_loss, least_guarantee, least_records, privacy_utility
    from pymc_dirdp.plots.comparison import plot_comparison
    from pymc_dirdp.plots.draw import plot_draw
    from pymc_dirdp.plots.frontier import plot_frontier
    from pymc_dirdp.plots.ledger import plot_ledger
    from pymc_dirdp.plots.posteriors import plot_posteriors, plot_ternary
    from pymc_dirdp.plots.privacy import plot_privacy
    from pymc_dirdp.privacy.contribution import Contribution
    from pymc_dirdp.privacy.conversion import convert
    from pymc_dirdp.privacy.guarantees import ApproxDP, Guarantee, PureDP, RenyiDP, TruncatedCDP, ZeroCDP
    from pymc_dirdp.releases.interop import to_dp_accounting, to_opendp
    from pymc_dirdp.releases.plan import plan
    from pymc_dirdp.releases.planned import Plan
    from pymc_dirdp.releases.predictive import sample_posterior_predictive
    from pymc_dirdp.releases.release import sample
    from pymc_dirdp.releases.report import Report, report
    from pymc_dirdp.releases.verification import Verification, verify
    from pymc_dirdp.utility.draw_loss import DrawLoss
    from pymc_dirdp.utility.expected_kl import PriorExpectedKL

__all__ = [
    "ApproxDP",
    "ArgumentError",
    "Audit",
    "BudgetError",
    "CategoriesFromDataWarning",
    "Comparison",
    "Confidential",
    "Contribution",
    "DataError",
    "DirdpError",
    "DirichletMechanism",
    "DiscreteGaussianMechanism",
    "DrawLoss",
    "Frontier",
    "GaussianMechanism",
    "GeometricMechanism",
    "Guarantee",
    "HellingerMechanism",
    "LaplaceMechanism",
    "Ledger",
    "LedgerError",
    "Mechanism",
    "NonPrivateHellinger",
    "Plan",
    "PriorExpectedKL",
    "PureDP",
    "RealisedLoss",
    "ReleaseError",
    "RenyiDP",
    "RepeatedReleaseWarning",
    "Report",
    "SeededReleaseWarning",
    "SimplexDomain",
    "SimplexMechanism",
    "Table",
    "TruncatedCDP",
    "TruncatedNoiseMechanism",
    "UnattainableError",
    "UnsupportedModelError",
    "Verification",
    "ZeroCDP",
    "audit",
    "audit_curve",
    "bayesian_network",
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
    "published",
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
    "mechanisms.base": ("Mechanism",),
    "auditing.result": ("Audit",),
    "auditing.attack": ("audit",),
    "auditing.curve_audit": ("audit_curve",),
    "planning.calibration": ("calibrate",),
    "planning.comparison": (
        "Comparison",
        "compare",
    ),
    "curator.confidential": ("Confidential",),
    "counting.tables": ("count",),
    "utility.draw_loss": ("DrawLoss",),
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
    "planning.frontier": (
        "Frontier",
        "expected_loss",
        "least_guarantee",
        "least_records",
        "privacy_utility",
    ),
    "privacy.guarantees": (
        "ApproxDP",
        "Guarantee",
        "PureDP",
        "RenyiDP",
        "TruncatedCDP",
        "ZeroCDP",
    ),
    "privacy.conversion": ("convert",),
    "releases.interop": ("to_dp_accounting", "to_opendp"),
    "accounting.ledger": ("Ledger",),
    "mechanisms.dirichlet": ("DirichletMechanism",),
    "mechanisms.discrete_gaussian": ("DiscreteGaussianMechanism",),
    "mechanisms.gaussian": ("GaussianMechanism",),
    "mechanisms.geometric": ("GeometricMechanism",),
    "mechanisms.hellinger": ("HellingerMechanism", "NonPrivateHellinger"),
    "mechanisms.laplace": ("LaplaceMechanism",),
    "mechanisms.simplex": ("SimplexMechanism",),
    "mechanisms.truncated_noise": ("TruncatedNoiseMechanism",),
    "networks.builders": ("bayesian_network", "naive_bayes"),
    "curator.diagnostics": ("diagnose",),
    "curator.leave_one_out": ("elpd",),
    "releases.plan": ("plan",),
    "releases.planned": ("Plan",),
    "networks.prediction": ("log_likelihood", "predict_log_proba"),
    "releases.predictive": ("sample_posterior_predictive",),
    "releases.release": ("sample",),
    "releases.report": (
        "Report",
        "report",
    ),
    "models.tables": (
        "Table",
        "tables",
    ),
    "releases.verification": (
        "Verification",
        "verify",
    ),
    "plots.comparison": ("plot_comparison",),
    "plots.draw": ("plot_draw",),
    "plots.frontier": ("plot_frontier",),
    "plots.ledger": ("plot_ledger",),
    "plots.posteriors": ("plot_posteriors", "plot_ternary"),
    "plots.privacy": ("plot_privacy",),
    "mechanisms.hellinger_distance": ("hellinger_distance",),
    "privacy.contribution": ("Contribution",),
    "curator.realised": ("RealisedLoss",),
    "mechanisms.simplex_domain": ("SimplexDomain",),
    "utility.expected_kl": ("PriorExpectedKL",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("pymc-dirdp")
    if name in _HOME:
        found = getattr(import_module(f"pymc_dirdp.{_HOME[name]}"), name)
        globals()[name] = found  # The next look-up is a plain one.
        return found
    if name in __all__:
        return import_module(f"pymc_dirdp.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
