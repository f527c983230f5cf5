"""An A/B/n test with feedback that comes a day late, private for the whole run. `uv run examples/bandit.py`."""

import numpy as np

import pymc_dirdp as dirdp

# What nobody knows: the share of visitors who buy, by the text that they see.
BUYERS = {"old text": 0.10, "new text": 0.13, "short text": 0.09, "long text": 0.11}

rng = np.random.default_rng(1)
ledger = dirdp.Ledger(dirdp.PureDP(epsilon=1.0), unit="visitor")
# Visitors are protected, and not single visits: the sampler uses the first answer of each, and leaves out the others.
bandit = dirdp.ThompsonSampler(list(BUYERS), dirdp.PureDP(epsilon=1.0), contribution=1, unit="visitor", ledger=ledger)
bought = 0
for _ in range(60):
    visitors = rng.integers(10**6, size=500)  # Few of a million come twice.
    # The visitors of a day are sent before any of them has bought; who has not bought by midnight counts as 0.
    arms = bandit.select(size=500)
    rewards = [int(rng.random() < BUYERS[arm]) for arm in arms]
    bandit.update(arms, rewards, person=visitors)
    bought += sum(rewards)

print(dirdp.report(bandit, full=True))
print(ledger)
print(bandit.posterior()["decision"].to_dataset().to_dataframe().round(4))
print(bandit.released.to_dataframe().tail())
print(f"Confidential, and shown because it is made up: {bought} of 30000 bought; without learning about 3225.")
