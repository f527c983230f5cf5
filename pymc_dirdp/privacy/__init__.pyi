from pymc_dirdp.privacy.contribution import Contribution as Contribution
from pymc_dirdp.privacy.conversion import convert as convert
