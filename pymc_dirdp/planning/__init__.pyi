from pymc_dirdp.planning.comparison import Comparison as Comparison
from pymc_dirdp.planning.draw_error import DrawError as DrawError
from pymc_dirdp.planning.expected_kl import PriorExpectedKL as PriorExpectedKL
from pymc_dirdp.planning.prices import Frontier as Frontier
