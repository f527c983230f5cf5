from pymc_dirdp.privacy.contribution import Contribution as Contribution
from pymc_dirdp.privacy.guarantees import convert as convert
