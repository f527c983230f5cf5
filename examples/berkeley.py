"""Admission rates of six Berkeley departments in 1973: one Beta-Binomial row for each department.

A record is one applicant, who applied to one department. The departments are rows of one table, so they share the
guarantee at no cost. Counts: Bickel, Hammel and O'Connell (1975), Sex bias in graduate admissions, Science 187,
398-404.
"""

import pymc as pm

import pymc_dirdp as dirdp

ADMITTED = [601, 370, 322, 269, 147, 46]
APPLIED = [933, 585, 918, 792, 584, 714]

with pm.Model(coords={"department": list("ABCDEF")}):
    rate = pm.Beta("rate", alpha=1, beta=1, dims="department")
    pm.Binomial("admitted", n=APPLIED, p=rate, observed=ADMITTED)
    pm.Deterministic("odds", rate / (1 - rate), dims="department")
    release = dirdp.sample(dirdp.RenyiDP(order=8, epsilon=0.5))

print(dirdp.report(release))
print(release["posterior"].to_dataset()[["rate", "odds"]].squeeze().to_dataframe().round(3))
print("\nSynthetic admissions of 100 applicants to each department:")
print(
    dirdp.releases.sample_posterior_predictive(release, n_records=100)["posterior_predictive"]["admitted"]
    .squeeze()
    .to_series()
)
