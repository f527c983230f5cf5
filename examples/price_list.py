"""What does accuracy cost? A survey with five answers, planned before anybody has answered.

No data is used here, so everything that is printed may be published.
"""

import numpy as np

import pymc_dirdp as dirdp

PRIOR = np.ones(5)
target = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)

grid = [dirdp.ApproxDP(epsilon=epsilon, delta=1e-6) for epsilon in (0.1, 0.3, 1, 3)]
kinds = ("dirichlet", "gaussian", "geometric", "auto")
print("What one draw is off by, if it is read as the answer:")
print(dirdp.privacy_utility(grid, prior=PRIOR, n_records=2000, mechanisms=kinds[:1], objective="estimate"))
print("\nWhat `dirdp.estimate` is off by, whatever was released:")
print(dirdp.privacy_utility(grid, prior=PRIOR, n_records=2000, mechanisms=kinds, of="estimate", public=["n_records"]))

wanted = 0.01
print(
    f"\nFor an expected KL of {wanted} nats with 2000 people: "
    f"{dirdp.least_guarantee(wanted, target, prior=PRIOR, n_records=2000, objective='estimate')}"
)
print(
    f"At {target}: {dirdp.least_records(wanted, target, prior=PRIOR, objective='estimate')} people, "
    f"or {dirdp.least_records(wanted, target, prior=PRIOR, of='estimate', mechanism='auto', public=['n_records'])} "
    "with the best noise and an estimate"
)

mechanism = dirdp.calibrate(target, prior=PRIOR, n_records=2000, objective="estimate")
error = dirdp.planning.DrawError.of_mechanism([0.4, 0.3, 0.2, 0.07, 0.03], 2000, mechanism.alpha, mechanism.r)
print(
    f"\nIf the answers were 40, 30, 20, 7 and 3 %: the KL of the draw is {error.mean:.4f} nats on average, and more "
    f"than {error.quantile(0.01):.4f} with a probability of 1 % at most"
)
