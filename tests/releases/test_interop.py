"""Other libraries, given our mechanisms, evaluate our curves."""

import sys

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.privacy.composition import Composition
from pymc_dirdp.releases.interop import as_mechanism, to_dp_accounting, to_opendp
from pymc_dirdp.sampling.bits import Bits
from tests.planned import planned_sample, two_tables

FLAT = dirdp.mechanisms.DirichletMechanism([1.0, 1.0, 1.0], 0.05)
UNEVEN = dirdp.mechanisms.DirichletMechanism([[0.4, 2.0], [3.0, 1.0]], 0.02)
REMOVE = dirdp.mechanisms.DirichletMechanism([1.0, 2.0], 0.1, adjacency="add-remove")


@pytest.mark.parametrize("mechanism", [FLAT, UNEVEN, REMOVE])
def test_dp_accounting_evaluates_our_curve_and_composes_it_itself(mechanism):
    pld = to_dp_accounting(mechanism)
    for epsilon in (0.0, 0.1, 0.3, 1.0):
        assert pld.get_delta_for_epsilon(epsilon) == pytest.approx(mechanism.delta(epsilon), rel=1e-6, abs=1e-12)
    assert pld.get_epsilon_for_delta(1e-5) == pytest.approx(mechanism.epsilon(1e-5), rel=1e-6)
    both, alone = (to_dp_accounting(one, step=1e-3) for one in (Composition(((mechanism, 3),)), mechanism))
    for epsilon in (0.0, 0.2, 1.0):
        assert both.get_delta_for_epsilon(epsilon) == alone.self_compose(3).get_delta_for_epsilon(epsilon)


def test_a_release_is_read_from_what_it_says_of_itself():
    model, target = two_tables(), dirdp.ApproxDP(epsilon=1.0, delta=1e-6)
    plan = dirdp.plan(target, model, released_draws=3)
    release = dirdp.sample(plan, model)
    assert as_mechanism(release).epsilon(1e-6) == plan.composition.epsilon(1e-6)
    apart = planned_sample(target, model, disjoint=[["p"], ["rate"]])
    assert as_mechanism(apart).satisfies(target)
    assert to_dp_accounting(release, step=1e-3).get_delta_for_epsilon(1.0) == pytest.approx(1e-6, rel=0.02)


@pytest.mark.parametrize("mechanism", [FLAT, UNEVEN, REMOVE])
def test_opendp_evaluates_our_divergence(mechanism):
    measurement = to_opendp(mechanism)
    for order in (1.5, 4.0, 12.0):
        assert measurement.map(1)(order) == pytest.approx(mechanism.renyi(order), rel=1e-6)
        assert measurement.map(0)(order) == 0.0
    draw = measurement(np.ones(mechanism.alpha.shape, dtype=int))
    np.testing.assert_allclose(np.sum(draw, axis=-1), 1)
    with pytest.raises(Exception, match="neighbours only"):
        measurement.map(2)(2.0)


def test_opendp_draws_with_the_bits_of_the_operating_system(monkeypatch):
    """What simulates draws integer noise from a generator of NumPy, whose state can be recovered."""
    mechanism, seeds = dirdp.mechanisms.GeometricMechanism(np.ones(3), 2.0), []

    def bits(seed=None):
        seeds.append(seed)
        return Bits(seed)

    monkeypatch.setattr("pymc_dirdp.mechanisms.base.Bits", bits)
    draw = to_opendp(mechanism)([5, 0, 2])
    assert np.array_equal(draw, np.floor(draw))
    assert seeds == [None]


@pytest.mark.parametrize(("package", "use"), [("dp_accounting", to_dp_accounting), ("opendp", to_opendp)])
def test_what_is_not_installed_is_named_with_the_line_that_installs_it(monkeypatch, package, use):
    for name in {package, *(name for name in sys.modules if name.startswith(f"{package}."))}:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=f"pip install {package.replace('_', '-')}"):
        use(FLAT)


def test_what_is_no_mechanism_is_refused():
    with pytest.raises(dirdp.errors.ArgumentError, match="release"):
        to_dp_accounting(3)
    with pytest.raises(dirdp.errors.ArgumentError, match="DirichletMechanism"):
        to_opendp("a mechanism")
