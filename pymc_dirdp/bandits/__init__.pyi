from pymc_dirdp.bandits.batch_draw import BatchDraw as BatchDraw
from pymc_dirdp.bandits.batch_noise import BatchNoise as BatchNoise
from pymc_dirdp.bandits.design import Design as Design
from pymc_dirdp.bandits.every_round import EveryRound as EveryRound
from pymc_dirdp.bandits.lower_bound import bandit_lower_bound as bandit_lower_bound
from pymc_dirdp.bandits.simulation import BanditRuns as BanditRuns
from pymc_dirdp.bandits.simulation import Policy as Policy
from pymc_dirdp.bandits.view import BanditView as BanditView
