"""What was put out, read off a release and off a damaged one."""

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ReleaseError
from pymc_dirdp.stored.outputs import outputs
from pymc_dirdp.stored.release import read

APPROX = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def released(**options):
    with pm.Model(coords={"hair": ["black", "brown", "red"]}):
        p = pm.Dirichlet("p", a=[1, 2, 3], dims="hair")
        pm.Multinomial("students", n=60, p=p, observed=[30, 20, 10])
        q = pm.Beta("q", 1, 1)
        pm.Binomial("heads", n=60, p=q, observed=20)
        return dirdp.sample(APPROX, contribution=1, **options)


def test_all_draws_are_outputs_and_a_beta_has_two_components():
    release = released(draws=3, min_count=1.5)
    found = outputs(read(release), release)
    assert list(found) == ["p", "q"]
    assert found["p"].published.shape == (3, 3)
    assert found["q"].published.shape == (3, 2)
    np.testing.assert_array_equal(found["q"].published[:, 0], release["posterior"]["q"].values[0])
    assert (found["p"].n_records, found["p"].least, found["p"].name) == (60, 2, "p")
    assert found["p"].steps == release["mechanism/p"].attrs["steps"]
    assert len(found["p"].row_likelihoods()) == 1
    assert len(found["p"].row_likelihoods()[0]) == 3


def test_noise_is_one_output_however_many_draws_there_are():
    release = released(draws=3, mechanism="geometric")
    found = outputs(read(release), release)["p"]
    np.testing.assert_array_equal(found.published, release["mechanism/p"]["noisy_counts"].values[None])
    assert (found.steps, found.least) == (None, 0)


def test_a_number_that_was_planned_for_is_not_read():
    release = released(adjacency="add-remove", n_records=1000)
    assert outputs(read(release), release)["p"].n_records is None


def test_damage_is_named():
    release = released()
    release["utility"]["n_records"].values[0] = np.nan
    with pytest.raises(ReleaseError, match="public number of records is missing"):
        outputs(read(release), release)
    release["utility"].attrs["records"] = "mine"
    with pytest.raises(ReleaseError, match="neither public nor planned for"):
        outputs(read(release), release)
    release = released(adjacency="add-remove", n_records=1000)
    release["utility"].attrs["records"] = "public"
    with pytest.raises(ReleaseError, match="not under add-remove"):
        outputs(read(release), release)
    release = released()
    release["posterior"]["p"].values[:] = [0, 0.5, 0.5]
    with pytest.raises(ReleaseError, match="probability is 0"):
        outputs(read(release), release)
    release["posterior"]["p"].values[:] = [0.123456789, 0.5, 0.376543211]
    with pytest.raises(ReleaseError, match="not on the grid"):
        outputs(read(release), release)["p"].row_likelihoods()
    release["posterior"]["q"].values[:] = 1.0
    with pytest.raises(ReleaseError, match="probability is 1"):
        outputs(read(release), release)
