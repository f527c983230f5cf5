"""Differentially private posterior sampling for PyMC models with Dirichlet or Beta priors.

Write the model as for `pm.sample`, and call `sample(guarantee)` for one private posterior draw.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pymc_dirdp import bounds
from pymc_dirdp.calibration import calibrate
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

if TYPE_CHECKING:
    from pymc_dirdp.models.builders import bayesian_network, naive_bayes
    from pymc_dirdp.models.plan import Plan, plan
    from pymc_dirdp.models.prediction import log_likelihood, predict_log_proba
    from pymc_dirdp.models.predictive import sample_posterior_predictive
    from pymc_dirdp.models.release import sample
    from pymc_dirdp.models.report import report
    from pymc_dirdp.models.tables import tables

__all__ = [
    "ApproxDP",
    "ArgumentError",
    "BudgetError",
    "DataError",
    "DirdpError",
    "DirichletMechanism",
    "Ledger",
    "LedgerError",
    "Plan",
    "PureDP",
    "RenyiDP",
    "SeededReleaseWarning",
    "TruncatedCDP",
    "UnattainableError",
    "UnsupportedModelError",
    "ZeroCDP",
    "bayesian_network",
    "bounds",
    "calibrate",
    "convert",
    "count",
    "log_likelihood",
    "naive_bayes",
    "plan",
    "predict_log_proba",
    "report",
    "sample",
    "sample_posterior_predictive",
    "tables",
    "to_dp_accounting",
    "to_opendp",
]

# These need PyMC, which takes seconds to import; the mathematics needs only NumPy and SciPy.
_NEEDS_PYMC = {
    "Plan": "plan",
    "bayesian_network": "builders",
    "log_likelihood": "prediction",
    "naive_bayes": "builders",
    "plan": "plan",
    "predict_log_proba": "prediction",
    "report": "report",
    "sample": "release",
    "sample_posterior_predictive": "predictive",
    "tables": "tables",
}


def __getattr__(name: str) -> Any:
    if name not in _NEEDS_PYMC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"pymc_dirdp.models.{_NEEDS_PYMC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
