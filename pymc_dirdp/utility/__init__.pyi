from pymc_dirdp.utility.draw_loss import DrawLoss as DrawLoss
from pymc_dirdp.utility.expected_kl import PriorExpectedKL as PriorExpectedKL
