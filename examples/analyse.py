"""What may be inferred from one private release: draws and intervals that know about the noise.

Hair colours of 592 students: Snee (1974), Graphical display of two-way contingency tables, The American Statistician
28, 9-12.
"""

import numpy as np
import pymc as pm

import pymc_dirdp as dirdp

with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}):
    p = pm.Dirichlet("p", a=np.ones(4), dims="hair")
    pm.Multinomial("students", n=592, p=p, observed=[108, 286, 71, 127])
    release = dirdp.sample(dirdp.ApproxDP(epsilon=0.5, delta=1e-6))

# From here on nobody needs the data.
print(dirdp.estimate(release))

analysis = dirdp.analyse(release)
shares = analysis["posterior"]["p"]
more = (shares.sel(hair="blond") > shares.sel(hair="red")).mean().item()
print(f"\nThere is more blond than red hair with probability {more:.2f}, given the release.")
