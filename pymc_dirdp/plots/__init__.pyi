from pymc_dirdp.plots.posteriors import plot_analysis as plot_analysis
from pymc_dirdp.plots.posteriors import plot_calibration as plot_calibration
from pymc_dirdp.plots.posteriors import plot_draw as plot_draw
from pymc_dirdp.plots.posteriors import plot_posteriors as plot_posteriors
from pymc_dirdp.plots.privacy import plot_comparison as plot_comparison
from pymc_dirdp.plots.privacy import plot_frontier as plot_frontier
from pymc_dirdp.plots.privacy import plot_privacy as plot_privacy
from pymc_dirdp.plots.regret import plot_regret as plot_regret
