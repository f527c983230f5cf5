from pymc_dirdp.privacy.curves import convert as convert
from pymc_dirdp.privacy.people import Contribution as Contribution
