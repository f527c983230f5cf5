"""The exact sampler in mechanisms and releases: its grid, its bits, and what the release says of it."""

import math
import os

import numpy as np
import pymc as pm
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.errors import ArgumentError
from pymc_dirdp.sampling.exact import urn_counts
from tests.planned import planned_sample

pytestmark = pytest.mark.filterwarnings("ignore::pymc_dirdp.errors.SeededReleaseWarning")
TARGET = dirdp.RenyiDP(order=2, epsilon=0.5)


def two_tables():
    with pm.Model() as model:
        for name in ("a", "b"):
            pm.Multinomial(f"{name}_seen", n=90, p=pm.Dirichlet(name, a=np.ones(3)), observed=[30, 30, 30])
    return model


def test_a_release_lies_on_its_public_grid_and_says_so():
    release = planned_sample(TARGET, two_tables(), sampler="exact", released_draws=3)
    attrs = release["mechanism/a"].attrs
    assert attrs["sampler"] == "exact"
    assert np.all(urn_counts(release["posterior"]["a"].values, attrs["steps"]) >= 0)
    text = " ".join(str(dirdp.report(release, full=True)).split())
    assert "integers: the release has the proved distribution" in text
    assert f"on a grid of {attrs['steps']} steps" in text


def test_bits_come_from_the_operating_system_unless_there_is_a_seed_and_tables_share_none(monkeypatch):
    asked, real, model = [], os.urandom, two_tables()
    monkeypatch.setattr(os, "urandom", lambda size: asked.append(size) or real(size))
    own = planned_sample(TARGET, model, sampler="exact")
    assert sum(asked) >= 64 * 1024
    asked.clear()
    first, second = (planned_sample(TARGET, model, sampler="exact", random_seed=5) for _ in range(2))
    assert not asked
    assert first.attrs["reproducible"] == "not private"
    assert first["posterior"]["a"].equals(second["posterior"]["a"])
    for release in (own, first):
        assert not np.array_equal(release["posterior"]["a"].values, release["posterior"]["b"].values)


def test_the_grid_uses_public_numbers_only():
    """With rows of very different sizes, which are secret, every row has as many steps."""
    mechanism = dirdp.mechanisms.DirichletMechanism(np.full((2, 3), 1.5), 0.5)
    assert mechanism.default_steps(1000) == math.ceil(100 * (500 + 4.5))
    y = mechanism.sample([[1000, 0, 0], [0, 0, 0]], sampler="exact", random_seed=1)[0]
    assert np.all(urn_counts(y, mechanism.default_steps(1000)) >= 0)


def test_exact_is_for_integers_and_steps_for_exact():
    with pytest.raises(ArgumentError, match="sampler"):
        planned_sample(TARGET, two_tables(), sampler="exakt")
    mechanism = dirdp.mechanisms.DirichletMechanism(np.ones(4), 0.2)
    for wrong in ({"sampler": "fast", "steps": 100}, {"sampler": "exact", "steps": 0}):
        with pytest.raises(ArgumentError, match="steps"):
            mechanism.sample([108, 286, 71, 127], **wrong)
    # No pair of numbers is too far apart for it.
    assert dirdp.mechanisms.DirichletMechanism([1e-9, 1e12], 1e-9).sample([5, 5], steps=100).shape == (1, 2)
