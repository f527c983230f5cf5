from pymc_dirdp.plots.comparison import plot_comparison as plot_comparison
from pymc_dirdp.plots.draw import plot_draw as plot_draw
from pymc_dirdp.plots.frontier import plot_frontier as plot_frontier
from pymc_dirdp.plots.ledger import plot_ledger as plot_ledger
from pymc_dirdp.plots.posteriors import plot_posteriors as plot_posteriors
from pymc_dirdp.plots.posteriors import plot_ternary as plot_ternary
from pymc_dirdp.plots.privacy import plot_privacy as plot_privacy
from pymc_dirdp.plots.regret import plot_regret as plot_regret
