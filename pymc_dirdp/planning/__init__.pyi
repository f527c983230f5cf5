from pymc_dirdp.planning.draw_error import DrawError as DrawError
from pymc_dirdp.planning.expected_kl import PriorExpectedKL as PriorExpectedKL
from pymc_dirdp.planning.optimal import optimal_error as optimal_error
