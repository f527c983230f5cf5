"""Curves hold against the distributions of the output, and curves that are too low do not."""

import dataclasses

import numpy as np
import pytest

import pymc_dirdp as dirdp
from pymc_dirdp.auditing.result import check_curve


def test_curves_hold_against_the_distributions_of_the_output(subject):
    mechanism, _ = subject
    result = check_curve(mechanism)
    assert result.verdict == "consistent"
    # The pair attains the curve somewhere: an attack on others would have less power.
    assert -1e-2 < result.shortfall <= 1e-9


@pytest.mark.parametrize("name", ["Dirichlet", "Dirichlet, two rows", "Dirichlet, add-remove", "Gaussian", "Simplex"])
def test_exact_curves_are_attained_everywhere(name, named):
    """So the audit by quadrature is as sharp as the curve: one that is 1 % too low would be refuted."""
    for point in check_curve(named(name)).points:
        # Two rows are 360,000 products of two cells.
        assert point.lost == pytest.approx(point.stated, rel=1e-2 if "rows" in name else 2e-4)


def test_both_directions_are_looked_at(named):
    mechanism = named("Dirichlet, add-remove")
    (x, y), result = mechanism.worst_neighbours(), check_curve(mechanism)
    for there, back in zip(result.points, check_curve(mechanism, pair=(y, x)).points, strict=True):
        assert back.lost == pytest.approx(there.lost, rel=1e-9)
    assert "DirichletMechanism: consistent" in str(result)
    assert len(result.frame()) == len(result.points)


def test_ten_counts_that_change_at_once_have_probabilities_below_all_doubles():
    """Oracle: each of them adds `order / (2 sigma**2)`, which the loss reaches for a sigma of 8."""
    in_each = dirdp.privacy.people.Contribution(1, ("each",))
    mechanism = dirdp.mechanisms.DiscreteGaussianMechanism(np.ones((5, 2)), 8.0, contribution=in_each)
    result = check_curve(mechanism, orders=(1.0, 4.0))
    assert result.verdict == "consistent"
    for order in (1.0, 4.0):
        (point,) = (point for point in result.points if point.measure.endswith(f"order {order:g}"))
        assert point.lost == pytest.approx(10 * order / (2 * 8.0**2), rel=1e-9)
    less = dataclasses.replace(mechanism, sigma=7.99)
    assert check_curve(less, claim=dirdp.RenyiDP(order=4, epsilon=mechanism.renyi(4))).verdict == "refuted"


def test_a_rho_that_is_too_low_by_a_per_cent_is_refuted():
    """Under geometric noise the divergence over its order falls with the order."""
    mechanism = dirdp.mechanisms.GeometricMechanism(np.ones(2), 2.0)
    for part, verdict in ((1.0, "consistent"), (0.99, "refuted")):
        claim = dirdp.TruncatedCDP(rho=part * mechanism.rho(8.0), omega=8.0)
        assert check_curve(mechanism, claim=claim).verdict == verdict


def test_what_is_no_mechanism_is_refused_with_where_those_of_a_release_are():
    for attack in (check_curve, dirdp.audit):
        with pytest.raises(dirdp.errors.ArgumentError, match=r"verify\(release\)\.mechanisms"):
            attack("hair.json")


def test_a_mechanism_without_a_guarantee_is_compared_with_the_claim_alone(monkeypatch):
    def refuse(*_):
        raise dirdp.errors.UnattainableError("It keeps no guarantee.")

    mechanism = dirdp.papers.HellingerMechanism([0.1, 0.1], 10, 1.0)
    for curve in ("_renyi", "_rho", "_delta", "_epsilon"):
        monkeypatch.setattr(type(mechanism._curves), curve, refuse)
    assert check_curve(mechanism, claim=dirdp.PureDP(epsilon=0.1)).verdict == "refuted"
    with pytest.raises(dirdp.errors.UnattainableError):
        check_curve(mechanism)
    found = dirdp.audit(mechanism, n=200, random_seed=4)
    assert found.verdict == "nothing stated"
    assert "No value was stated" in str(found)
