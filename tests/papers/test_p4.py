"""P4's forms as printed: their scales and errors. The reference values are in tests/mechanisms."""

import itertools
import math

import numpy as np
import pytest
from printed_p4 import p4_local_distance, p4_local_loss

from pymc_dirdp.errors import ArgumentError, DataError
from pymc_dirdp.papers import p4_ilap_mech, p4_lap_mech
from pymc_dirdp.papers.hellinger import HellingerMechanism
from pymc_dirdp.papers.hellinger_distributions import hellinger_distance


@pytest.mark.parametrize("d", [2, 3, 5])
def test_the_scales_of_section_4_1(d):
    lap = p4_lap_mech(epsilon=0.5, prior=np.ones(d), n_records=9)
    ilap = p4_ilap_mech(epsilon=0.5, prior=np.ones(d), n_records=9)
    assert lap.scale == 2 * d
    assert ilap.scale == (2 if d == 2 else 4)
    for mechanism in (lap, ilap):
        assert (mechanism.noise_kind, mechanism.total) == ("laplace", "printed")


def by_definition(counts, prior, exponent):
    """The distribution of section 4.2.2 for two categories, written out."""
    n = sum(counts)
    posteriors = np.array([[z + prior[0], n - z + prior[1]] for z in range(n + 1)])
    truth = posteriors[counts[0]]
    beside = [z for z in (counts[0] - 1, counts[0] + 1) if 0 <= z <= n]
    local = max(hellinger_distance(truth, posteriors[z]) for z in beside)
    distances = np.array([hellinger_distance(truth, one) for one in posteriors])
    weights = np.exp(-exponent * distances / local)
    return weights / weights.sum(), distances


@pytest.mark.parametrize("prior", [[1, 1], [0.1, 0.1], [2, 0.3]])
def test_the_local_mechanism_is_its_definition(prior):
    n, exponent = 9, 0.7
    distributions = [by_definition([x, n - x], prior, exponent) for x in range(n + 1)]
    for x, (distribution, distances) in enumerate(distributions):
        found = p4_local_distance([x, n - x], prior=prior, exponent=exponent)
        assert found == pytest.approx(float(distribution @ distances), rel=1e-11)
    losses = [np.abs(np.log(p / q)).max() for (p, _), (q, _) in itertools.pairwise(distributions)]
    assert p4_local_loss(prior=prior, n_records=n, exponent=exponent) == pytest.approx(max(losses), rel=1e-11)


def test_the_local_sensitivity_guarantees_nothing():
    """ERRATA P4.12: 1.037 at nominal 1."""
    assert p4_local_loss(prior=[0.1, 0.1], n_records=300, exponent=0.5) == pytest.approx(1.037, abs=5e-4)
    # The global sensitivity keeps what it says.
    assert HellingerMechanism([0.1, 0.1], 300, 0.5, sensitivity="global").pure_epsilon <= 1


def test_arguments_of_p4():
    for wrong in (0, -1.0, math.nan):
        with pytest.raises(ArgumentError, match="epsilon"):
            p4_lap_mech(epsilon=wrong, prior=[1, 1], n_records=9)
        with pytest.raises(ArgumentError, match="exponent"):
            p4_local_loss(prior=[1, 1], n_records=9, exponent=wrong)
        with pytest.raises(ArgumentError, match="exponent"):
            p4_local_distance([4, 5], prior=[1, 1], exponent=wrong)
    with pytest.raises(ArgumentError, match="one row"):
        p4_local_loss(prior=np.ones((2, 2)), n_records=9, exponent=1.0)
    with pytest.raises(DataError):
        p4_local_distance([4, -5], prior=[1, 1], exponent=1.0)
