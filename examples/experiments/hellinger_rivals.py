"""The mechanisms of P4 and the rivals that it leaves out, for one row of counts with a public number of records."""

import numpy as np

import pymc_dirdp as dirdp

papers, mechanisms = dirdp.papers, dirdp.mechanisms
# The lines of the pictures, by the name of their style.
LABELS = {
    "printed": "Definition 4",
    "corrected": "gamma chosen, as proved",
    "exact": "gamma chosen, exact",
    "geometric noise, estimated": "truncated geometric noise",
    "Laplace noise": "lapMech",
    "Gaussian noise": "ilapMech",
    "nothing known": "global sensitivity",
}


def balanced(n, d):
    """Counts as even as integers can be, with what is left over in the last category."""
    counts = np.full(d, n // d)
    counts[-1] += n - counts.sum()
    return counts


def rivals(prior, n, epsilon, *, smoothness=None, exact=True):
    """Mechanisms at a nominal pure epsilon. The exact calibration compares all neighbours, so it needs small data."""
    guarantee, known = dirdp.PureDP(epsilon=epsilon), {"prior": prior, "n_records": n}
    made = {
        "printed": papers.HellingerMechanism(prior, n, epsilon / 4),
        "corrected": papers.HellingerMechanism.for_guarantee(
            guarantee, **known, smoothness=smoothness, accounting="proved"
        ),
        "geometric noise, estimated": papers.TruncatedNoiseMechanism.for_guarantee(guarantee, **known),
        "Laplace noise": papers.p4_lap_mech(epsilon=epsilon, **known),
        "Gaussian noise": papers.p4_ilap_mech(epsilon=epsilon, **known),
        "nothing known": papers.HellingerMechanism(prior, n, epsilon / 2, sensitivity="global"),
    }
    if exact:
        made["exact"] = papers.HellingerMechanism.for_guarantee(guarantee, **known, smoothness=smoothness)
    return made
