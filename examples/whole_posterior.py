"""Publish the posterior of a clinical trial, so that everybody may draw from it as often as they like.

A record is one patient. The number of patients is public; how many of them recovered is not. Counts: the streptomycin
trial of the Medical Research Council (1948), https://doi.org/10.1136/bmj.2.4582.769: 28 of 55 treated patients
improved considerably.
"""

import numpy as np

import pymc_dirdp as dirdp

IMPROVED, PATIENTS = 28, 55
one = dirdp.PureDP(epsilon=1.0)

mechanism = dirdp.papers.TruncatedNoiseMechanism.for_guarantee(one, prior=[1, 1], n_records=PATIENTS)
released = mechanism.release([IMPROVED, PATIENTS - IMPROVED])
a, b = released + mechanism.prior
print(f"Released under {one}: Beta({a:g}, {b:g})")

draws = np.random.default_rng().beta(a, b, size=10_000)
print(
    f"Share that improves: {draws.mean():.2f}, 90 % between {np.quantile(draws, 0.05):.2f} and "
    f"{np.quantile(draws, 0.95):.2f}. The noise is not in this interval: see `expected_distance`."
)
print(f"Expected Hellinger error if half of the patients improve: {mechanism.expected_distance([27, 28]):.3f}")
