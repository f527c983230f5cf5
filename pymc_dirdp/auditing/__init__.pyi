from pymc_dirdp.auditing.attack import audit as audit
from pymc_dirdp.auditing.curve_audit import audit_curve as audit_curve
from pymc_dirdp.auditing.result import Audit as Audit
