"""The exact sampler in mechanisms and releases: its distribution, its grid, and what the release says of it."""

import math
import os

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError, SeededReleaseWarning
from pymc_dirdp.mechanisms.registry import Dirichlet
from pymc_dirdp.sampling.exact import urn_counts
from tests.planned import planned_sample

COUNTS = np.array([108, 286, 71, 127])
TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-6)


def hair(counts=COUNTS):
    with pm.Model(coords={"hair": ["black", "brown", "red", "blond"]}) as model:
        p = pm.Dirichlet("p", a=np.ones(4), dims="hair")
        pm.Multinomial("students", n=int(counts.sum()), p=p, observed=counts)
    return model


def test_a_release_lies_on_its_public_grid_and_says_so():
    release = planned_sample(TARGET, hair(), sampler="exact", released_draws=3)
    attrs = release["mechanism/p"].attrs
    assert attrs["sampler"] == "exact"
    assert np.all(urn_counts(release["posterior"]["p"].values, attrs["steps"]) >= 0)
    text = " ".join(str(dirdp.report(release, full=True)).split())
    assert "integers: the release has the proved distribution" in text
    assert f"on a grid of {attrs['steps']} steps" in text


def test_bits_come_from_the_operating_system_unless_there_is_a_seed(monkeypatch):
    asked = []
    real = os.urandom
    monkeypatch.setattr(os, "urandom", lambda size: asked.append(size) or real(size))
    planned_sample(TARGET, hair(), sampler="exact")
    assert sum(asked) >= 64 * 1024
    asked.clear()
    with pytest.warns(SeededReleaseWarning):
        first = planned_sample(TARGET, hair(), sampler="exact", random_seed=5)
    assert not asked
    assert first.attrs["reproducible"] == "not private"
    with pytest.warns(SeededReleaseWarning):
        second = planned_sample(TARGET, hair(), sampler="exact", random_seed=5)
    assert first["posterior"]["p"].equals(second["posterior"]["p"])


def test_two_tables_do_not_share_their_bits():
    with pm.Model() as model:
        for name in ("a", "b"):
            p = pm.Dirichlet(name, a=np.ones(3))
            pm.Multinomial(f"{name}_seen", n=90, p=p, observed=[30, 30, 30])
    for options in ({}, {"random_seed": 1}):
        with pytest.warns(SeededReleaseWarning) if options else np.errstate():
            release = planned_sample(TARGET, model, sampler="exact", **options)
        assert not np.array_equal(release["posterior"]["a"].values, release["posterior"]["b"].values)


def test_the_grid_adds_one_per_cent_of_variance_and_uses_public_numbers_only():
    mechanism = dirdp.mechanisms.DirichletMechanism(np.full((2, 3), 1.5), 0.5)
    assert mechanism.default_steps(1000) == math.ceil(100 * (500 + 4.5))
    assert mechanism.default_steps(10**9) == 10_000_000
    assert mechanism.default_steps(3) == 10_000
    assert dirdp.mechanisms.DirichletMechanism(np.ones((500, 3)), 1.0).default_steps(10**7) == 100_000_000 // 500
    private = dirdp.mechanisms.DirichletMechanism(np.ones(3), 1.0, adjacency="add-remove")
    assert private.default_steps(None) == 1_000_000
    # With rows of very different sizes, which are secret, every row has as many steps.
    for counts in ([[1000, 0, 0], [0, 0, 0]], [[500, 0, 0], [300, 100, 100]]):
        y = mechanism.sample(counts, sampler="exact", random_seed=1)[0]
        assert np.all(urn_counts(y, mechanism.default_steps(1000)) >= 0)


def test_a_rare_category_is_never_zero_and_predictions_are_finite():
    with pm.Model(coords={"y": ["a", "b"], "x": list(range(200))}) as model:
        classes = pm.Dirichlet("y_p", a=np.ones(2), dims="y")
        theta = pm.Dirichlet("x_p", a=np.full((2, 200), 0.01), dims=("y", "x"))
        label = pm.Categorical("y_seen", p=classes, observed=np.random.default_rng(2).integers(0, 2, 400))
        pm.Categorical("x_seen", p=theta[label], observed=np.arange(400) % 7)
    release = planned_sample(
        dirdp.RenyiDP(order=2, epsilon=0.5), model, unit=0, sampler="exact", mechanism=Dirichlet(strategy="temper")
    )
    x_p = release["posterior"]["x_p"].values
    assert (urn_counts(x_p, release["mechanism/x_p"].attrs["steps"]) == 0).any()
    assert np.all(x_p > 0)
    logs = dirdp.predict_log_proba(release, {"x": list(range(200))}, target="y", draws="released")
    assert np.all(np.isfinite(logs))


def test_exact_is_for_integers_and_steps_for_exact():
    with pytest.raises(ArgumentError, match="sampler"):
        planned_sample(TARGET, hair(), sampler="exakt")
    mechanism = dirdp.mechanisms.DirichletMechanism(np.ones(4), 0.2)
    with pytest.raises(ArgumentError, match="steps"):
        mechanism.sample(COUNTS, sampler="fast", steps=100)
    with pytest.raises(ArgumentError, match="steps"):
        mechanism.sample(COUNTS, sampler="exact", steps=0)
    # No pair of numbers is too far apart for it.
    assert dirdp.mechanisms.DirichletMechanism([1e-9, 1e12], 1e-9).sample([5, 5], steps=100).shape == (1, 2)
