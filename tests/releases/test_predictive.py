"""Synthetic records of a release: how many are asked for."""

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp


def test_a_number_of_records_is_not_negative():
    with pm.Model() as model:
        p = pm.Dirichlet("p", np.ones(3))
        pm.Multinomial("y", n=9, p=p, observed=[4, 4, 1])
    release = dirdp.sample(dirdp.RenyiDP(order=3, epsilon=0.2), model)
    assert (
        dirdp.releases.sample_posterior_predictive(release, n_records=0, random_seed=1)["posterior_predictive"][
            "y"
        ].sum()
        == 0
    )
    with pytest.raises(dirdp.errors.ArgumentError, match="n_records"):
        dirdp.releases.sample_posterior_predictive(release, n_records=-1, random_seed=1)
