"""Outputs that nearly contradict what is known, against all tables there are, and outputs that leave no digits."""

import numpy as np
import pymc as pm
import pytest
from scipy.special import logsumexp

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.mechanisms.noise import Noise
from tests.oracles import tables_of

from .posteriors import log_multinomial_dirichlet


def test_noise_that_is_known_at_integers_only_is_not_summed_over_too_many(monkeypatch):
    with pm.Model():
        p = pm.Beta("p", 1, 1)
        pm.Binomial("x", n=10**7, p=p, observed=10**6)
        release = dirdp.sample(dirdp.PureDP(epsilon=1.0), mechanism="geometric")
    monkeypatch.setattr("pymc_dirdp.mechanisms.geometric.ZeroSumGeometric.smooth_noise", False)
    assert not Noise.smooth_noise
    with pytest.raises(
        ArgumentError, match="Set smooth_noise = True in the class of the noise of ZeroSumGeometricMech"
    ):
        dirdp.analyse(release)
    monkeypatch.setattr("pymc_dirdp.mechanisms.geometric.ZeroSumGeometric.smooth_noise", True)
    assert dirdp.analyse(release, draws=10)["posterior"]["p"].notnull().all()


def noisy(z, n_records, scale, prior):
    prior = np.ones(np.shape(z)) if prior is None else np.asarray(prior, dtype=float)
    mechanism = dirdp.mechanisms.GeometricMechanism(prior, scale)
    return dirdp.mechanisms.MechanismOutput(mechanism, np.asarray(z, dtype=float), prior=prior, n_records=n_records)


UNLIKELY = {
    "a prior of many records against the noisy counts": ([0, 0, 500], 500, 1.0, [1e5, 1e5, 1e5]),
    "no records": ([0, 1, -1], 0, 1.0, None),
    "a row that is empty": ([[3, 2], [-30, -30]], 5, 1.0, None),
    "noise wider than the number of records": ([40_000, -20_000, 3], 10, 1e4, None),
    "counts far beyond the number of records": ([10**6, -(10**6)], 100, 1.0, None),
    "a prior that is nearly certain": ([5, 3], 8, 0.01, [1e10, 1e-3]),
}


@pytest.mark.parametrize(("n", "prior"), [(8, 1e15), (8, 1e30), (8, 1e300), (10**7, 1e15)])
def test_priors_that_leave_evidence_no_digits_are_refused(n, prior):
    output = noisy([5, 3], n, 0.01, [prior, 1e-3])
    for infer in (dirdp.estimate, dirdp.analyse):
        with pytest.raises(ArgumentError, match="far too large or too small"):
            infer(output, progressbar=False)


@pytest.mark.parametrize("case", UNLIKELY)
def test_outputs_that_nearly_contradict_what_is_known_have_their_distribution(case):
    """Against all tables, with logarithms of every one."""
    z, n, scale, prior = UNLIKELY[case]
    output = noisy(z, n, scale, prior)
    found = dirdp.estimate(output, prob=[1e-300, 0.5, 1 - 1e-16], progressbar=False).tables["p"]
    a = output.prior.reshape(-1, output.prior.shape[-1])
    x = np.array(list(tables_of(a.shape, n)), dtype=float)
    rows = x.sum(axis=2)
    logs = output.mechanism.log_likelihood(np.asarray(z, dtype=float), x.reshape(-1, *np.shape(z)))
    logs += log_multinomial_dirichlet(x, a).sum(axis=1)
    if len(a) > 1:
        # Divisions of the records among rows are as likely as one another.
        logs -= np.log(len(np.unique(rows, axis=0)))
    evidence = logsumexp(logs)
    masses = np.exp(logs - evidence)
    # Logarithms of Gamma functions of the prior leave that many digits.
    accuracy = max(1e-9, 1e-15 * a.max() * np.log(a.max() + 1) * max(n, 1) / 10)
    assert found.log_evidence == pytest.approx(evidence, rel=1e-12, abs=accuracy)
    np.testing.assert_allclose(found.count_means, np.tensordot(masses, x, 1).ravel(), rtol=accuracy, atol=accuracy)
    assert np.all(np.diff(found.share_intervals, axis=2) >= 0)
    assert np.all((found.share_intervals >= 0) & (found.share_intervals <= 1))
    drawn = dirdp.analyse(output, 20, random_seed=1, progressbar=False)["latent_counts"]["p"].values
    assert np.all(drawn.reshape(80, -1).sum(axis=1) == n)
