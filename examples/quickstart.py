"""The hair colours of 592 students, published without giving away any one of them.

Counts: Snee (1974), Graphical display of two-way contingency tables, The American Statistician 28, 9-12.
"""

import pymc as pm

import pymc_dirdp as dirdp

HAIR = {"black": 108, "brown": 286, "red": 71, "blond": 127}

with pm.Model(coords={"hair": list(HAIR)}):
    p = pm.Dirichlet("p", a=[1, 1, 1, 1], dims="hair")
    pm.Multinomial("students", n=592, p=p, observed=list(HAIR.values()))
    release = dirdp.sample(dirdp.ApproxDP(epsilon=1.0, delta=1e-6))

print(dirdp.report(release))
print("\nThe draw:")
for colour, share in release["posterior"]["p"].squeeze().to_series().items():
    print(f"  {colour:<6} {share:.3f}")
