from pymc_dirdp.utility.draw_error import DrawError as DrawError
from pymc_dirdp.utility.expected_kl import PriorExpectedKL as PriorExpectedKL
from pymc_dirdp.utility.optimal import optimal_error as optimal_error
