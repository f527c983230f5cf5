from pymc_dirdp.auditing.attack import audit as audit
from pymc_dirdp.auditing.result import Audit as Audit
from pymc_dirdp.auditing.result import check_curve as check_curve
