from pymc_dirdp.privacy.conversion import convert as convert
from pymc_dirdp.privacy.people import Contribution as Contribution
