from pymc_dirdp.utility.cell_error import cell_errors as cell_errors
from pymc_dirdp.utility.draw_error import DrawError as DrawError
from pymc_dirdp.utility.expected_kl import PriorExpectedKL as PriorExpectedKL
from pymc_dirdp.utility.optimal import optimal_error as optimal_error
from pymc_dirdp.utility.unknown_shares import unknown_shares_kl as unknown_shares_kl
