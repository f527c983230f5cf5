"""A result says what was found, what could have been found, and what cannot be seen."""

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.attack import audit

TARGET = dirdp.ApproxDP(epsilon=1.0, delta=1e-3)


@pytest.fixture(scope="module")
def found():
    mechanism = dirdp.mechanisms.DirichletMechanism(np.ones(4), 0.1)
    return audit(mechanism, sampler="fast", claim=TARGET, delta=[1e-5, 1e-3], n=4_000, random_seed=1)


def test_results_are_text_html_and_a_frame(found):
    assert str(found).startswith(
        "DirichletMechanism, sampler fast: consistent; 4000 draws from each data set, false alarm below 1e-06"
    )
    assert "<table>" in found._repr_html_()
    assert list(found.frame().index) == [
        "claimed epsilon at delta 0.001",
        "epsilon at delta 1e-05",
        "epsilon at delta 0.001",
        "delta at epsilon 0",
    ]
    mechanism = dirdp.mechanisms.DirichletMechanism(np.ones(4), 0.1)
    assert audit(mechanism, sampler="fast", claim=TARGET, delta=[1e-5, 1e-3], n=4_000, random_seed=1) == found


def test_consistent_says_what_would_have_been_refuted(found):
    claimed = found.bounds[0]
    assert "Consistent is not a proof" in str(found)
    assert (
        f"claimed epsilon at delta 0.001: stated 1; a true value of {claimed.refutable:.3g} or more would have been "
        "refuted with probability 0.9 (in the same mechanism with a larger r)."
    ) in str(found)
    assert "With 4000 draws from each of the two data sets:" in found.power
    assert found.frame()["refutable"].iloc[0] == claimed.refutable > 1


def test_blind_spots_are_named(found):
    rarest = min(bound.rarest for bound in found.bounds)
    assert found.blind_spots == (
        "It cannot detect a loss that occurs only between other data sets than these two, in an event of probability "
        f"below {rarest:.2g}, or in a pattern that none of its statistics covers, or the last bits of the numbers "
        "(pass last_bits=True)."
    )
    assert found.blind_spots in str(found)
    with_bits = audit(
        dirdp.mechanisms.DirichletMechanism(np.ones(4), 0.1), sampler="fast", last_bits=True, n=1_000, random_seed=1
    )
    assert "last bits" not in with_bits.blind_spots


def test_refuted_does_not_speak_of_power():
    mechanism = dirdp.mechanisms.DirichletMechanism(np.ones(4), 3.0)
    refuted = audit(mechanism, sampler="fast", claim=dirdp.PureDP(epsilon=0.1), n=2_000, random_seed=1)
    assert refuted.verdict == "refuted"
    assert "already exceeds the stated value" in str(refuted)
    assert "would have been refuted" not in str(refuted)


def test_a_black_box_says_that_it_needs_a_pair_and_why():
    with pytest.raises(dirdp.errors.ArgumentError, match="an audit compares the outputs of a black box on these two"):
        audit(lambda counts: counts, n=100)
    # The way out that the error names.
    mechanism, rng = dirdp.mechanisms.DirichletMechanism(np.ones(2), 0.1), np.random.default_rng(1)
    release = lambda counts: mechanism.sample(counts, sampler="fast", random_seed=rng)[0]  # noqa: E731
    assert audit(release, claim=mechanism, n=200, random_seed=1).verdict == "consistent"
