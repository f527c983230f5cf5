from pymc_dirdp.curator.diagnostics import diagnose as diagnose
from pymc_dirdp.curator.posterior import exact_posterior as exact_posterior
